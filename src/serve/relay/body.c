// SPDX-License-Identifier: Apache-2.0
// What a relay changes of requests for text before they are sent: the model's name, and long
// prompts that are compressed. Members that are not changed are written again in their order,
// numbers as they were spelt; a body in which nothing is to be changed goes on byte for byte.
#include <string.h>

#include "serve/relay/impl.h"
#include "serve/request/body.h"

static bool compresses(const struct relay *r) {
    return r->o.compressor && r->o.prefill.mode != PREFILL_OFF;
}

bool relay_body_wanted(const struct relay *r, const struct relayed *q) {
    return q->text && (r->o.model || compresses(r));
}

// Tools that the model may call. Those of a request with tool_choice none take no part.
static bool has_tools(const struct json *body) {
    const char *choice = json_str(json_get(body, "tool_choice"), NULL);
    return (json_len(json_get(body, "tools")) > 0 || json_len(json_get(body, "functions")) > 0) &&
           !(choice && !strcmp(choice, "none"));
}

bool relay_body_read(struct relayed *q) {
    struct api_error unread;
    size_t n;
    const char *text = exchange_body(q->x, &n);
    if (!body_parse(text, n, &q->json, &unread) || json_kind_of(q->json) != JSON_OBJECT) {
        json_free(q->json);
        q->json = NULL;
        return false;
    }
    http_hold_set(&q->hold, 2 * json_memory(q->json)); // and what is written of it
    const struct prefill_options *o = &q->r->o.prefill;
    const struct json *prompt = json_get(q->json, "prompt");
    bool chat = json_kind_of(json_get(q->json, "messages")) == JSON_ARRAY;
    if (!compresses(q->r) || !(chat || json_kind_of(prompt) == JSON_STRING))
        return false;
    // A prompt has no more tokens than its body has bytes.
    const struct prefill_prompt p = {.tokens = (int64_t)n, .tools = has_tools(q->json)};
    const char *reason = prefill_skip(o, &p);
    q->compression = (struct prefill_report){.tried = true, .reason = reason};
    return !reason;
}

struct rewrite {
    const struct relayed *q;
    const char *key;          // of the member that is replaced; NULL: none
    const struct json *value; // by this, or by the text
    const struct str *text;
    struct json_writer w;
    bool model; // has been written
};

static int copy_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct rewrite *c = arg;
    (void)n;
    jw_key(&c->w, key);
    if (c->q->r->o.model && !strcmp(key, "model")) {
        jw_cstr(&c->w, c->q->r->o.model);
        c->model = true;
    } else if (c->key && !strcmp(key, c->key) && c->text) {
        jw_str(&c->w, c->text->data ? c->text->data : "", c->text->len);
    } else {
        jw_value(&c->w, c->key && !strcmp(key, c->key) ? c->value : v);
    }
    return 0;
}

static bool write_again(struct relayed *q, struct rewrite *c) {
    jw_begin(&c->w, '{');
    json_each(q->json, copy_member, c);
    if (q->r->o.model && !c->model) {
        jw_key_str(&c->w, "model", q->r->o.model);
    }
    jw_end(&c->w, '}');
    q->body = c->w.out;
    if (q->body.failed)
        api_fail(&q->error, 503, NULL, "no memory for the request's body");
    return !q->body.failed;
}

static bool fail(struct relayed *q, const struct err *e) {
    api_error_of(&q->error, e);
    return false;
}

static bool shorten_messages(struct relayed *q) {
    const struct relay_options *o = &q->r->o;
    struct rewrite c = {.q = q, .key = "messages"};
    struct json *kept = NULL;
    struct err e = {0};
    int rc = prefill_messages(o->compressor, &o->prefill, json_get(q->json, "messages"), -1, &kept,
                              &q->compression, &e);
    bool ok = !rc || rc == ERR_FORMAT;
    if (rc == ERR_FORMAT) // for the upstream to judge
        q->compression = (struct prefill_report){
            .tried = true, .reason = "the messages are not of the form that is compressed"};
    else if (rc)
        fail(q, &e);
    c.value = kept;
    q->raw = ok && kept && o->raw && relay_raw_fits(q->json);
    if (q->raw)
        ok = !relay_raw_body(o->raw, q->json, kept, o->model, &q->body, &e) || fail(q, &e);
    else if (ok && kept)
        ok = write_again(q, &c);
    json_free(kept);
    return ok;
}

static bool shorten_text(struct relayed *q) {
    const struct relay_options *o = &q->r->o;
    struct compress_part text = {0};
    struct str kept = {0};
    struct rewrite c = {.q = q, .key = "prompt", .text = &kept};
    struct err e = {0};
    text.text = json_str(json_get(q->json, "prompt"), &text.n);
    bool ok = !prefill_text(o->compressor, &o->prefill, &text, -1, &kept, &q->compression, &e);
    if (!ok)
        fail(q, &e);
    if (ok && !q->compression.reason)
        ok = write_again(q, &c);
    str_fini(&kept);
    return ok;
}

bool relay_body_shorten(struct relayed *q) {
    bool chat = json_kind_of(json_get(q->json, "messages")) == JSON_ARRAY;
    return chat ? shorten_messages(q) : shorten_text(q);
}

bool relay_body_make(struct relayed *q) {
    struct rewrite c = {.q = q};
    bool ok = !q->json || q->body.len || !q->r->o.model || write_again(q, &c);
    json_free(q->json);
    q->json = NULL;
    http_hold_set(&q->hold, q->body.cap);
    return ok;
}
