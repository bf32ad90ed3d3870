// SPDX-License-Identifier: Apache-2.0
// Anthropic's interface to the same model: POST /v1/messages, and the prompt of
// POST /v1/messages/count_tokens. Answers are content blocks as server-sent events, or one message
// with them; one choice a request. The writer is of the loop thread only.
#include "serve/api/handlers.h"

#include "serve/completion/prompt.h"
#include "serve/completion/write.h"
#include "serve/conversation/interfaces.h"
#include "serve/http/sse.h"
#include "serve/reply/opaque.h"

// An event's data begins with its own name.
static struct json_writer *open_block_event(struct completion *c, const char *name) {
    struct json_writer *w = &c->s->json;
    jw_begin(w, '{');
    jw_key_str(w, "type", name);
    return w;
}

static void close_block_event(struct completion *c, const char *name) {
    jw_end(&c->s->json, '}');
    sse_write(&c->s->out, name, &c->s->json);
}

// Here the prompt's tokens that were cached do not count as read.
static void put_message_usage(struct completion *c, struct json_writer *w) {
    struct answer_totals t = completion_totals(c);
    jw_key_begin(w, "usage", '{');
    jw_key_int(w, "input_tokens", t.prompt - t.cached);
    jw_key_int(w, "cache_creation_input_tokens", 0);
    jw_key_int(w, "cache_read_input_tokens", t.cached);
    jw_key_int(w, "output_tokens", t.tokens);
    jw_key_begin(w, "output_tokens_details", '{');
    jw_key_int(w, "thinking_tokens", t.reasoning);
    jw_end(w, '}');
    answer_hashes(w, &t);
    jw_end(w, '}');
}

static void open_message(struct completion *c, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key_str(w, "id", c->id);
    jw_key_str(w, "type", "message");
    jw_key_str(w, "role", "assistant");
    jw_key_str(w, "model", c->p.model ? c->p.model : c->s->model);
}

static void put_stop_reason(struct completion *c, struct json_writer *w) {
    const struct choice *k = c->choices;
    const struct stop_set *stops = &c->p.stops;
    const char *reason = "end_turn";
    int found = k->text.found;
    if (found >= 0)
        reason = "stop_sequence";
    else if (k->end.reason == END_LENGTH)
        reason = "max_tokens";
    else if (k->end.reason == END_CONTEXT)
        reason = "model_context_window_exceeded";
    else if (k->items.calls > 0)
        reason = "tool_use";
    jw_key_str(w, "stop_reason", reason);
    jw_key(w, "stop_sequence");
    if (found >= 0)
        jw_str(w, stops->bytes + stops->start[found], (size_t)stops->len[found]);
    else
        jw_null(w);
}

static void blocks_alive(struct completion *c);

static void blocks_start(struct completion *c) {
    struct json_writer *w = open_block_event(c, "message_start");
    jw_key(w, "message");
    open_message(c, w);
    jw_key_begin(w, "content", '[');
    jw_end(w, ']');
    jw_key_null(w, "stop_reason");
    jw_key_null(w, "stop_sequence");
    put_message_usage(c, w);
    jw_end(w, '}');
    close_block_event(c, "message_start");
    blocks_alive(c);
}

// The fields of a block besides its text.
static void put_block_head(struct json_writer *w, const struct answer_item *it) {
    static const char *const types[] = {
        [ITEM_REASONING] = "thinking", [ITEM_TEXT] = "text", [ITEM_CALL] = "tool_use"};
    jw_key_str(w, "type", types[it->kind]);
    if (it->kind != ITEM_CALL)
        return;
    jw_key_str(w, "id", it->id);
    jw_key_text(w, "name", it->name.data, it->name.len);
}

static void blocks_item_begin(struct completion *c, struct choice *k,
                              const struct answer_item *it) {
    (void)k;
    struct json_writer *w = open_block_event(c, "content_block_start");
    jw_key_int(w, "index", it->index);
    jw_key_begin(w, "content_block", '{');
    put_block_head(w, it);
    if (it->kind == ITEM_CALL) {
        jw_key_begin(w, "input", '{');
        jw_end(w, '}');
    } else {
        jw_key_str(w, it->kind == ITEM_TEXT ? "text" : "thinking", "");
    }
    if (it->kind == ITEM_REASONING)
        jw_key_str(w, "signature", "");
    jw_end(w, '}');
    close_block_event(c, "content_block_start");
}

static void put_block_delta(struct completion *c, const struct answer_item *it, const char *type,
                            const char *key, struct answer_text text) {
    struct json_writer *w = open_block_event(c, "content_block_delta");
    jw_key_int(w, "index", it->index);
    jw_key_begin(w, "delta", '{');
    jw_key_str(w, "type", type);
    jw_key_text(w, key, text.s, text.n);
    jw_end(w, '}');
    close_block_event(c, "content_block_delta");
}

// What clients send back with thinking. Where its text goes out, that is read again as it is: the
// signature says which answer the block came in, and nothing depends on it. Else it holds the text.
static void make_signature(const struct completion *c, const struct answer_item *it,
                           struct str *out) {
    if (c->p.omits_thinking)
        opaque_encode(it->text.data ? it->text.data : "", it->text.len, out);
    else
        str_puts(out, c->id);
}

// Of thinking whose text is omitted a delta may only be empty: a keep-alive.
static void put_text_delta(struct completion *c, const struct answer_item *it,
                           struct answer_text text) {
    if (it->kind == ITEM_REASONING && c->p.omits_thinking)
        put_block_delta(c, it, "signature_delta", "signature", text);
    else if (it->kind == ITEM_REASONING)
        put_block_delta(c, it, "thinking_delta", "thinking", text);
    else if (it->kind == ITEM_TEXT)
        put_block_delta(c, it, "text_delta", "text", text);
    else
        put_block_delta(c, it, "input_json_delta", "partial_json", text);
}

static void blocks_item_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                              const struct item_text *p) {
    (void)k;
    if (p->text.n && !(it->kind == ITEM_REASONING && c->p.omits_thinking))
        put_text_delta(c, it, p->text);
}

static void blocks_item_end(struct completion *c, struct choice *k, const struct answer_item *it) {
    (void)k;
    if (it->kind == ITEM_REASONING) {
        struct str s = {0};
        make_signature(c, it, &s);
        put_block_delta(c, it, "signature_delta", "signature", (struct answer_text){s.data, s.len});
        c->s->out.failed |= s.failed;
        str_fini(&s);
    }
    struct json_writer *w = open_block_event(c, "content_block_stop");
    jw_key_int(w, "index", it->index);
    close_block_event(c, "content_block_stop");
}

static void blocks_end(struct completion *c) {
    struct json_writer *w = open_block_event(c, "message_delta");
    struct answer_totals t = completion_totals(c);
    jw_key_begin(w, "delta", '{');
    put_stop_reason(c, w);
    jw_end(w, '}');
    put_message_usage(c, w);
    answer_timings(w, &t);
    completion_extra(c, w);
    close_block_event(c, "message_delta");
    open_block_event(c, "message_stop");
    close_block_event(c, "message_stop");
}

static void blocks_error(struct completion *c, const struct api_error *why) {
    api_error_write(&c->s->json, why, API_ANTHROPIC, c->id);
    sse_write(&c->s->out, "error", &c->s->json);
}

// Some clients do not count pings: within a block an empty delta of it follows.
static void blocks_alive(struct completion *c) {
    const struct answer_item *it = c->prepared ? answer_items_open(&c->choices->items) : NULL;
    open_block_event(c, "ping");
    close_block_event(c, "ping");
    if (it)
        put_text_delta(c, it, (struct answer_text){0});
}

static void put_input(struct json_writer *w, const struct answer_item *it) {
    struct json *input = NULL;
    jw_key(w, "input");
    int rc = it->text.len ? json_parse(&input, it->text.data, it->text.len, NULL) : 0;
    w->out.failed |= rc == ERR_MEMORY;
    if (!rc && json_kind_of(input) == JSON_OBJECT) {
        jw_value(w, input);
    } else {
        jw_begin(w, '{');
        jw_end(w, '}');
    }
    json_free(input);
}

static void put_thinking(struct completion *c, struct json_writer *w,
                         const struct answer_item *it) {
    struct str signature = {0};
    make_signature(c, it, &signature);
    jw_key_text(w, "thinking", it->text.data, c->p.omits_thinking ? 0 : it->text.len);
    jw_key_text(w, "signature", signature.data, signature.len);
    w->out.failed |= signature.failed;
    str_fini(&signature);
}

static void put_block(struct completion *c, struct json_writer *w, const struct answer_item *it) {
    jw_begin(w, '{');
    put_block_head(w, it);
    if (it->kind == ITEM_CALL) {
        put_input(w, it);
    } else if (it->kind == ITEM_REASONING) {
        put_thinking(c, w, it);
    } else {
        jw_key_text(w, "text", it->text.data, it->text.len);
    }
    jw_end(w, '}');
}

static void blocks_whole(struct completion *c, struct json_writer *w) {
    const struct answer_items *items = &c->choices->items;
    struct answer_totals t = completion_totals(c);
    open_message(c, w);
    jw_key_begin(w, "content", '[');
    for (int i = 0; i < items->n; i++)
        put_block(c, w, &items->at[i]);
    jw_end(w, ']');
    put_stop_reason(c, w);
    put_message_usage(c, w);
    answer_timings(w, &t);
    completion_extra(c, w);
    jw_end(w, '}');
}

// Thinking is off in this interface unless the request sets it.
static bool read_messages(struct service *s, struct params *p, const struct json *body,
                          struct conversation *v, struct api_error *x) {
    (void)s;
    if (p->thinking < 0)
        p->thinking = 0;
    if (!conversation_read_messages(v, body, x))
        return false;
    conversation_read_messages_tools(v, body);
    return conversation_know_tools(v, x);
}

const struct dialect api_messages_dialect = {
    .endpoint = ENDPOINT_ANTHROPIC,
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .read = read_messages,
    .prepare = prompt_make,
    .shorten = prompt_shorten,
    .start = blocks_start,
    .item_begin = blocks_item_begin,
    .item_delta = blocks_item_delta,
    .item_end = blocks_item_end,
    .end = blocks_end,
    .error = blocks_error,
    .alive = blocks_alive,
    .whole = blocks_whole,
};
