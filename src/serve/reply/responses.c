// SPDX-License-Identifier: Apache-2.0
// Answers of the Responses interface; see responses.h.
#include "serve/reply/responses.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "serve/completion/write.h"
#include "serve/conversation/plain.h"
#include "serve/http/sse.h"
#include "serve/reply/seal.h"

static struct responses_own *own_of(const struct completion *c) {
    return c->own;
}

// An item's own id tells the response and the place in it.
static void put_item_id(const struct completion *c, struct json_writer *w, const char *key,
                        const struct answer_item *it) {
    static const char *const prefixes[] = {
        [ITEM_REASONING] = "rs", [ITEM_TEXT] = "msg", [ITEM_CALL] = "fc"};
    const char *prefix = it->kind == ITEM_CALL && it->custom ? "ctc" : prefixes[it->kind];
    char id[RANDOM_ID + 16];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, c->id + strlen(c->d->id_prefix), it->index);
    jw_key_str(w, key, id);
}

static void put_str(struct json_writer *w, const char *key, const struct str *s) {
    jw_key(w, key);
    jw_str(w, s->data ? s->data : "", s->len);
}

static void put_null(struct json_writer *w, const char *key) {
    jw_key(w, key);
    jw_null(w);
}

static void put_empty_list(struct json_writer *w, const char *key) {
    jw_key(w, key);
    jw_begin(w, '[');
    jw_end(w, ']');
}

// Those of an item's words, as far as they are asked for.
static void put_logprobs(const struct completion *c, struct json_writer *w,
                         const struct answer_item *it) {
    const struct reply *r = c->p.logprobs ? stream_reply(c->choices->stream) : NULL;
    struct answer_logprobs l = {.t = c->s->tokenizer, .top = (int)c->p.top_logprobs};
    if (r) {
        l.ids = r->ids + it->first_token;
        l.n = it->tokens;
        l.at = &r->logprobs;
        l.from = it->first_token;
    }
    jw_key(w, "logprobs");
    answer_logprobs_list(w, &l);
}

// One part of an item's content, with its text or none.
static void put_part(const struct completion *c, struct json_writer *w, const char *type,
                     const struct answer_item *it, bool done) {
    jw_begin(w, '{');
    jw_key_str(w, "type", type);
    if (done)
        put_str(w, "text", &it->text);
    else
        jw_key_str(w, "text", "");
    if (type[0] == 'o') {
        put_empty_list(w, "annotations");
        if (done)
            put_logprobs(c, w, it);
        else
            put_empty_list(w, "logprobs");
    }
    jw_end(w, '}');
}

static const char *part_type(const struct completion *c, const struct answer_item *it) {
    if (it->kind == ITEM_TEXT)
        return "output_text";
    return own_of(c)->summarises ? "summary_text" : "reasoning_text";
}

static void put_reasoning(const struct completion *c, struct json_writer *w,
                          const struct answer_item *it, bool done) {
    bool summary = own_of(c)->summarises;
    for (int i = 0; i < 2; i++) {
        jw_key(w, i ? "content" : "summary");
        jw_begin(w, '[');
        if (done && (i == 0) == summary)
            put_part(c, w, part_type(c, it), it, true);
        jw_end(w, ']');
    }
    if (!done || !own_of(c)->seals) {
        put_null(w, "encrypted_content");
        return;
    }
    struct str sealed = {0};
    reasoning_seal(it->text.data ? it->text.data : "", it->text.len, &sealed);
    put_str(w, "encrypted_content", &sealed);
    w->out.failed |= sealed.failed;
    str_fini(&sealed);
}

// The name of a tool, and that of the group it was declared in.
static void put_name(const struct completion *c, struct json_writer *w,
                     const struct answer_item *it) {
    struct words group, name = {it->name.data ? it->name.data : "", it->name.len};
    if (conversation_part_name(json_get(own_of(c)->echo, "tools"), &name, &group)) {
        jw_key(w, "namespace");
        jw_str(w, group.s, group.n);
    }
    jw_key(w, "name");
    jw_str(w, name.s, name.n);
}

static void put_item(const struct completion *c, struct json_writer *w,
                     const struct answer_item *it, const char *status) {
    bool done = strcmp(status, "in_progress") != 0;
    static const char *const types[] = {
        [ITEM_REASONING] = "reasoning", [ITEM_TEXT] = "message", [ITEM_CALL] = "function_call"};
    const struct str none = {0};
    jw_begin(w, '{');
    put_item_id(c, w, "id", it);
    jw_key_str(w, "type",
               it->kind == ITEM_CALL && it->custom ? "custom_tool_call" : types[it->kind]);
    jw_key_str(w, "status", status);
    if (it->kind == ITEM_REASONING) {
        put_reasoning(c, w, it, done);
    } else if (it->kind == ITEM_TEXT) {
        jw_key_str(w, "role", "assistant");
        jw_key(w, "content");
        jw_begin(w, '[');
        if (done)
            put_part(c, w, "output_text", it, true);
        jw_end(w, ']');
    } else {
        jw_key_str(w, "call_id", it->id);
        put_name(c, w, it);
        put_str(w, it->custom ? "input" : "arguments", done ? &it->text : &none);
    }
    jw_end(w, '}');
}

static bool is_cut(const struct completion *c, const struct choice *k) {
    return k->ended && answer_finish(k->end.reason)[0] == 'l' && !c->gone && !c->p.prewarms;
}

static void put_usage(const struct completion *c, struct json_writer *w) {
    struct answer_totals t = completion_totals(c);
    jw_key(w, "usage");
    jw_begin(w, '{');
    jw_key_int(w, "input_tokens", t.prompt);
    jw_key(w, "input_tokens_details");
    jw_begin(w, '{');
    jw_key_int(w, "cached_tokens", t.cached);
    jw_key_int(w, "cache_write_tokens", 0);
    jw_end(w, '}');
    jw_key_int(w, "output_tokens", t.tokens);
    jw_key(w, "output_tokens_details");
    jw_begin(w, '{');
    jw_key_int(w, "reasoning_tokens", t.reasoning);
    jw_end(w, '}');
    jw_key_int(w, "total_tokens", t.prompt + t.tokens);
    jw_end(w, '}');
    answer_timings(w, &t);
    completion_extra(c, w);
}

struct echo {
    struct json_writer *w;
    bool brief;
};

static int put_echoed(void *arg, const char *key, size_t n, const struct json *v) {
    struct echo *e = arg;
    (void)n;
    if (e->brief && (!strcmp(key, "tools") || !strcmp(key, "instructions")))
        return 0;
    jw_key(e->w, key);
    jw_value(e->w, v);
    return 0;
}

// The codes that the interface knows, so far as clients act on them.
static void put_error(struct json_writer *w, const struct api_error *why) {
    jw_key(w, "error");
    jw_begin(w, '{');
    jw_key_str(w, "code",
               why->code            ? why->code
               : why->status == 429 ? "rate_limit_exceeded"
                                    : "server_error");
    jw_key_str(w, "message", why->text);
    jw_end(w, '}');
}

// The response as far as it is; brief: as a sign of life.
static void put_response(const struct completion *c, struct json_writer *w, const char *status,
                         const struct api_error *why, bool brief) {
    const struct choice *k = c->choices;
    bool done = strcmp(status, "in_progress") != 0, cut = !strcmp(status, "incomplete");
    struct echo e = {w, brief};
    jw_begin(w, '{');
    jw_key_str(w, "id", c->id);
    jw_key_str(w, "object", "response");
    jw_key_int(w, "created_at", c->created);
    jw_key_str(w, "status", status);
    jw_key_bool(w, "background", false);
    if (done && !why)
        jw_key_int(w, "completed_at", (int64_t)time(NULL));
    else
        put_null(w, "completed_at");
    if (why)
        put_error(w, why);
    else
        put_null(w, "error");
    jw_key(w, "incomplete_details");
    if (cut) {
        jw_begin(w, '{');
        jw_key_str(w, "reason", "max_output_tokens");
        jw_end(w, '}');
    } else {
        jw_null(w);
    }
    jw_key_str(w, "model", c->p.model ? c->p.model : c->s->model);
    jw_key(w, "output");
    jw_begin(w, '[');
    for (int i = 0; done && c->prepared && k && i < k->items.n; i++) {
        bool last = i == k->items.n - 1;
        put_item(c, w, &k->items.at[i], (cut || why) && last ? "incomplete" : "completed");
    }
    jw_end(w, ']');
    json_each(own_of(c)->echo, put_echoed, &e);
    if (done && !why)
        put_usage(c, w);
    else
        put_null(w, "usage");
    jw_end(w, '}');
}

static struct json_writer *open_event(struct completion *c, const char *type) {
    struct json_writer *w = &c->s->json;
    jw_begin(w, '{');
    jw_key_str(w, "type", type);
    jw_key_int(w, "sequence_number", own_of(c)->sequence++);
    return w;
}

static void close_event(struct completion *c, const char *type) {
    jw_end(&c->s->json, '}');
    sse_write(&c->s->out, type, &c->s->json);
}

static void put_state(struct completion *c, const char *type, const char *status,
                      const struct api_error *why, bool brief) {
    struct json_writer *w = open_event(c, type);
    jw_key(w, "response");
    put_response(c, w, status, why, brief);
    close_event(c, type);
}

void responses_start(struct completion *c) {
    own_of(c)->sequence = 0;
    put_state(c, "response.created", "in_progress", NULL, false);
    put_state(c, "response.in_progress", "in_progress", NULL, false);
}

void responses_alive(struct completion *c) {
    put_state(c, "response.in_progress", "in_progress", NULL, true);
}

// An event of an item; the place of the part is said where it has parts.
static struct json_writer *open_item_event(struct completion *c, const char *type,
                                           const struct answer_item *it) {
    struct json_writer *w = open_event(c, type);
    put_item_id(c, w, "item_id", it);
    jw_key_int(w, "output_index", it->index);
    if (it->kind != ITEM_CALL)
        jw_key_int(w, !strcmp(part_type(c, it), "summary_text") ? "summary_index" : "content_index",
                   0);
    return w;
}

static void put_whole_item(struct completion *c, const char *type, const struct answer_item *it,
                           const char *status) {
    struct json_writer *w = open_event(c, type);
    jw_key_int(w, "output_index", it->index);
    jw_key(w, "item");
    put_item(c, w, it, status);
    close_event(c, type);
}

static void put_part_event(struct completion *c, const struct answer_item *it, bool done) {
    bool summary = !strcmp(part_type(c, it), "summary_text");
    const char *type = summary ? done ? "response.reasoning_summary_part.done"
                                      : "response.reasoning_summary_part.added"
                       : done  ? "response.content_part.done"
                               : "response.content_part.added";
    struct json_writer *w = open_item_event(c, type, it);
    jw_key(w, "part");
    put_part(c, w, part_type(c, it), it, done);
    close_event(c, type);
}

void responses_item_begin(struct completion *c, struct choice *k, const struct answer_item *it) {
    (void)k;
    put_whole_item(c, "response.output_item.added", it, "in_progress");
    if (it->kind != ITEM_CALL)
        put_part_event(c, it, false);
}

// What the events of an item's text are called, without ".delta" and ".done".
static const char *text_event(const struct completion *c, const struct answer_item *it) {
    if (it->kind == ITEM_CALL)
        return it->custom ? "response.custom_tool_call_input" : "response.function_call_arguments";
    if (it->kind == ITEM_TEXT)
        return "response.output_text";
    return own_of(c)->summarises ? "response.reasoning_summary_text" : "response.reasoning_text";
}

void responses_item_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                          const struct answer_piece *p) {
    char type[64];
    (void)k;
    if (p->text.n == 0)
        return;
    snprintf(type, sizeof type, "%s.delta", text_event(c, it));
    struct json_writer *w = open_item_event(c, type, it);
    jw_key(w, "delta");
    jw_str(w, p->text.s, p->text.n);
    if (it->kind == ITEM_TEXT && p->logprobs) {
        jw_key(w, "logprobs");
        answer_logprobs_list(w, p->logprobs);
    } else if (it->kind == ITEM_TEXT) {
        put_empty_list(w, "logprobs");
    }
    close_event(c, type);
}

void responses_item_end(struct completion *c, struct choice *k, const struct answer_item *it) {
    char type[64];
    snprintf(type, sizeof type, "%s.done", text_event(c, it));
    struct json_writer *w = open_item_event(c, type, it);
    if (it->kind == ITEM_CALL && !it->custom)
        put_name(c, w, it);
    put_str(w, it->kind != ITEM_CALL ? "text" : it->custom ? "input" : "arguments", &it->text);
    if (it->kind == ITEM_TEXT)
        put_logprobs(c, w, it);
    close_event(c, type);
    if (it->kind != ITEM_CALL)
        put_part_event(c, it, true);
    put_whole_item(c, "response.output_item.done", it, is_cut(c, k) ? "incomplete" : "completed");
}

// Keeps the response as it is given to the client.
static void keep(struct completion *c, const char *status) {
    struct json_writer w = {0};
    put_response(c, &w, status, NULL, false);
    if (!w.out.failed && own_of(c)->input.data)
        response_store_put(&c->s->responses, c->id, &w.out, &own_of(c)->input);
    str_fini(&w.out);
}

static const char *status_of(const struct completion *c) {
    return is_cut(c, c->choices) ? "incomplete" : "completed";
}

void responses_end(struct completion *c) {
    const char *status = status_of(c);
    if (own_of(c)->keeps)
        keep(c, status);
    put_state(c, status[0] == 'i' ? "response.incomplete" : "response.completed", status, NULL,
              false);
}

void responses_error(struct completion *c, const struct api_error *why) {
    put_state(c, "response.failed", "failed", why, false);
}

void responses_whole(struct completion *c, struct json_writer *w) {
    const char *status = status_of(c);
    put_response(c, w, status, NULL, false);
    if (own_of(c)->keeps && !w->out.failed && own_of(c)->input.data)
        response_store_put(&c->s->responses, c->id, &w->out, &own_of(c)->input);
}
