// SPDX-License-Identifier: Apache-2.0
// What a relay changes of requests for text before they are sent: the model's name, and long
// prompts that are compressed. Members that are not changed are written again in their order,
// numbers as they were spelt; a body in which nothing is to be changed goes on byte for byte. And
// compressed chats as raw prompts, with their answers; of these, members that are not named here go
// on as they are.
#include <string.h>

#include "serve/relay/impl.h"
#include "serve/request/body.h"
#include "text/chat/read.h"

static const struct json_rules rules = {.depth = 256, .big_integers = true};

bool relay_raw_fits(const struct json *body) {
    static const char *const chat_only[] = {"logprobs",   "top_logprobs", "response_format",
                                            "modalities", "audio",        "prediction"};
    for (size_t i = 0; i < sizeof chat_only / sizeof *chat_only; i++)
        if (json_kind_of(json_get(body, chat_only[i])) != JSON_NULL)
            return false;
    if (json_bool(json_get(body, "continue_final_message"), false) ||
        !json_bool(json_get(body, "add_generation_prompt"), true))
        return false;
    const struct json *messages = json_get(body, "messages");
    const char *role = json_str(json_get(json_at(messages, json_len(messages) - 1), "role"), NULL);
    return json_kind_of(messages) == JSON_ARRAY && role && strcmp(role, "assistant") != 0;
}

struct completion_body {
    struct json_writer w;
    const char *model;
    bool named;
};

static int copy_completion_member(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const dropped[] = {"messages",
                                          "tools",
                                          "tool_choice",
                                          "functions",
                                          "function_call",
                                          "parallel_tool_calls",
                                          "documents",
                                          "chat_template_kwargs",
                                          "reasoning_effort",
                                          "add_generation_prompt",
                                          "continue_final_message",
                                          NULL};
    struct completion_body *b = arg;
    if (words_among(dropped, key))
        return 0;
    if (b->model && !strcmp(key, "model")) {
        jw_key_str(&b->w, "model", b->model);
        b->named = true;
        return 0;
    }
    return jw_member(&b->w, strcmp(key, "max_completion_tokens") ? key : "max_tokens", n, v);
}

static int write_completion_body(struct completion_body *b, const struct json *body,
                                 const struct str *prompt, struct err *e) {
    jw_begin(&b->w, '{');
    json_each(body, copy_completion_member, b);
    if (b->model && !b->named)
        jw_key_str(&b->w, "model", b->model);
    jw_key_text(&b->w, "prompt", prompt->data, prompt->len);
    jw_end(&b->w, '}');
    return b->w.out.failed ? err_set(e, ERR_MEMORY, "no memory for the request's body") : 0;
}

int relay_raw_body(const struct chat_template *t, const struct json *body,
                   const struct json *messages, const char *model, struct str *out, struct err *e) {
    struct conversation v = {0};
    const struct chat_input in = {.said = &v,
                                  .documents = json_get(body, "documents"),
                                  .kwargs = json_get(body, "chat_template_kwargs"),
                                  .add_generation_prompt = true};
    struct chat_text x = {0};
    struct completion_body b = {.model = model};
    char place[CONVERSATION_PLACE];
    int rc = conversation_read(&v, messages, false, place, e);
    if (!rc)
        rc = chat_render(t, &in, &x, e);
    if (!rc)
        rc = write_completion_body(&b, body, &x.text, e);
    chat_text_fini(&x);
    conversation_fini(&v);
    if (rc)
        str_fini(&b.w.out);
    else
        *out = b.w.out;
    return rc;
}

// How a chunk, or a whole answer, is written anew.
struct answer {
    struct json_writer w;
    bool chunk;
    bool *spoke;
};

static int copy_choice_as_chat(void *arg, const char *key, size_t n, const struct json *v) {
    struct answer *a = arg;
    size_t len = 0;
    const char *text = json_str(v, &len);
    if (strcmp(key, "text") != 0)
        return jw_member(&a->w, key, n, v);
    jw_key_begin(&a->w, a->chunk ? "delta" : "message", '{');
    if (!a->chunk || !*a->spoke)
        jw_key_str(&a->w, "role", "assistant");
    if (a->spoke)
        *a->spoke = true;
    jw_key_text(&a->w, "content", text, len);
    jw_end(&a->w, '}');
    return 0;
}

static int copy_answer_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct answer *a = arg;
    (void)n;
    jw_key(&a->w, key);
    if (!strcmp(key, "object")) {
        jw_cstr(&a->w, a->chunk ? "chat.completion.chunk" : "chat.completion");
    } else if (!strcmp(key, "choices")) {
        jw_begin(&a->w, '[');
        for (size_t i = 0; i < json_len(v); i++) {
            jw_begin(&a->w, '{');
            json_each(json_at(v, i), copy_choice_as_chat, a);
            jw_end(&a->w, '}');
        }
        jw_end(&a->w, ']');
    } else {
        jw_value(&a->w, v);
    }
    return 0;
}

// A completion's object as a chat's; out stays empty where it is none.
static bool convert_completion(const char *text, size_t n, bool *spoke, struct str *out) {
    struct answer a = {.chunk = spoke != NULL, .spoke = spoke};
    struct json *v = NULL;
    if (json_parse_with(&v, text, n, &rules, NULL) ||
        json_kind_of(json_get(v, "choices")) != JSON_ARRAY) {
        json_free(v);
        return true;
    }
    jw_begin(&a.w, '{');
    json_each(v, copy_answer_member, &a);
    jw_end(&a.w, '}');
    json_free(v);
    bool ok = !a.w.out.failed;
    if (ok)
        str_append(out, a.w.out.data, a.w.out.len);
    str_fini(&a.w.out);
    return ok && !out->failed;
}

bool relay_raw_answer(const char *text, size_t n, struct str *out) {
    return convert_completion(text, n, NULL, out);
}

static int rewrite_line(void *arg, const char *line, size_t n, struct err *e) {
    struct relay_raw_stream *s = arg;
    const char *data = sse_data(line, n);
    size_t before = s->out->len;
    if (data) {
        str_puts(s->out, "data: ");
        size_t head = s->out->len;
        if (!convert_completion(data, (size_t)(line + n - data), &s->spoke, s->out))
            return err_set(e, ERR_MEMORY, "no memory for an event");
        if (s->out->len == head)
            s->out->len = before;
    }
    if (s->out->len == before)
        str_append(s->out, line, n);
    str_putc(s->out, '\n');
    return s->out->failed ? err_set(e, ERR_MEMORY, "no memory for an event") : 0;
}

bool relay_raw_push(struct relay_raw_stream *s, const char *bytes, size_t n, struct str *out) {
    s->out = out;
    return !sse_read(&s->reader, bytes, n, rewrite_line, s, NULL);
}

void relay_raw_fini(struct relay_raw_stream *s) {
    sse_reader_fini(&s->reader);
}

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
    http_memory_set(&q->memory, 2 * json_memory(q->json)); // and what is written of it
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

static int copy_body_member(void *arg, const char *key, size_t n, const struct json *v) {
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

static bool rewrite_body(struct relayed *q, struct rewrite *c) {
    jw_begin(&c->w, '{');
    json_each(q->json, copy_body_member, c);
    if (q->r->o.model && !c->model)
        jw_key_str(&c->w, "model", q->r->o.model);
    jw_end(&c->w, '}');
    q->body = c->w.out;
    if (q->body.failed)
        api_fail(&q->error, 503, NULL, "no memory for the request's body");
    return !q->body.failed;
}

static bool fail_body(struct relayed *q, const struct err *e) {
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
        fail_body(q, &e);
    c.value = kept;
    q->raw = ok && kept && o->raw && relay_raw_fits(q->json);
    if (q->raw)
        ok = !relay_raw_body(o->raw, q->json, kept, o->model, &q->body, &e) || fail_body(q, &e);
    else if (ok && kept)
        ok = rewrite_body(q, &c);
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
        fail_body(q, &e);
    if (ok && !q->compression.reason)
        ok = rewrite_body(q, &c);
    str_fini(&kept);
    return ok;
}

bool relay_body_shorten(struct relayed *q) {
    bool chat = json_kind_of(json_get(q->json, "messages")) == JSON_ARRAY;
    return chat ? shorten_messages(q) : shorten_text(q);
}

bool relay_body_make(struct relayed *q) {
    struct rewrite c = {.q = q};
    bool ok = !q->json || q->body.len || !q->r->o.model || rewrite_body(q, &c);
    json_free(q->json);
    q->json = NULL;
    http_memory_set(&q->memory, q->body.cap);
    return ok;
}
