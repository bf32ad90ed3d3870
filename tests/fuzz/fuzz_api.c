// SPDX-License-Identifier: Apache-2.0
// Bodies of requests: the first byte says of which path, the rest is the body. What is refused gets
// a sentence and a status; what is taken keeps to the limits. Stop strings are then looked for in
// the body itself, and strings of it are written as events, which must come apart again.
#include "fuzz.h"

#include <string.h>

#include "serve/conversation/interfaces.h"
#include "serve/conversation/plain.h"
#include "serve/http/sse.h"
#include "serve/reply/answer.h"
#include "serve/request/body.h"
#include "serve/request_log.h"
#include "support/conversation_words.h"

void fuzz_setup(void) {
}

static void check_refusal(const struct api_error *x, bool fragile) {
    FUZZ_CHECK(x->status == 400 || (fragile && x->status == 503));
    FUZZ_CHECK(x->text[0] && !strchr(x->text, '\n'));
}

static void check_limits(const struct params *p, const struct params_limits *l) {
    struct err e = {0};
    struct sample_params s = p->sample;
    s.bias = p->bias;
    s.n_bias = p->n_bias;
    FUZZ_CHECK(sample_params_check(&s, l->vocab, &e) == 0);
    FUZZ_CHECK(p->n >= 1 && p->n <= l->slots && p->max_tokens >= -1);
    FUZZ_CHECK(p->top_logprobs >= -1 && p->top_logprobs <= PARAMS_MAX_LOGPROBS);
    FUZZ_CHECK(p->logprobs == (p->top_logprobs >= 0));
    FUZZ_CHECK(p->stops.n <= STOP_MAX_STRINGS && p->stops.n_bytes <= STOP_MAX_BYTES);
    FUZZ_CHECK(!p->model || strlen(p->model) <= PARAMS_MAX_MODEL);
}

// In one piece and byte by byte the text ends at the same place.
static void match(const struct params *p, const char *text, size_t n) {
    struct stop_match a = {0}, b = {0};
    struct str one = {0}, many = {0};
    struct err e = {0};
    if (!stop_match_init(&a, &p->stops, &e) && !stop_match_init(&b, &p->stops, &e)) {
        bool stopped = stop_match_push(&a, text, n, &one);
        stop_match_end(&a, &one);
        bool again = false;
        for (size_t i = 0; i < n && !again; i++)
            again = stop_match_push(&b, text + i, 1, &many);
        stop_match_end(&b, &many);
        bool failed = one.failed || many.failed || a.held.failed || b.held.failed;
        FUZZ_CHECK(failed || (stopped == again && a.found == b.found && one.len == many.len));
        FUZZ_CHECK(failed || !one.len || !memcmp(one.data, many.data, one.len));
    }
    stop_match_fini(&a);
    stop_match_fini(&b);
    str_fini(&one);
    str_fini(&many);
}

// An event is one line of JSON after "data: ".
static void check_event(const struct str *out, bool fragile) {
    struct json *v = NULL;
    struct err e = {0};
    const char *end = strstr(out->data, "\n\n");
    FUZZ_CHECK(!strncmp(out->data, "data: ", 6) && end && end + 2 == out->data + out->len);
    FUZZ_CHECK(!memchr(out->data, '\n', (size_t)(end - out->data)));
    int rc = json_parse(&v, out->data + 6, (size_t)(end - out->data - 6), &e);
    FUZZ_CHECK(rc == 0 || (fragile && rc == ERR_MEMORY));
    json_free(v);
}

static void write_answer(const struct params *p, const char *text, size_t n, bool fragile) {
    struct json_writer w = {0};
    struct str out = {0};
    struct answer_choice c = {.reasoning = {text, n}, .content = {text, n}, .finish = "stop"};
    jw_begin(&w, '{');
    jw_key_str(&w, "model", p->model ? p->model : "");
    jw_key(&w, "choices");
    jw_begin(&w, '[');
    answer_delta(&w, &c);
    answer_message(&w, &c);
    answer_completion(&w, &c);
    jw_end(&w, ']');
    jw_end(&w, '}');
    sse_write(&out, NULL, &w);
    FUZZ_CHECK(fragile || !out.failed);
    if (!out.failed)
        check_event(&out, fragile);
    str_clear(&out);
    out.failed = false;
    struct request_record r = {.id = "x",
                               .method = "POST",
                               .path = "/",
                               .peer = "p",
                               .end = "stop",
                               .prompt = text,
                               .prompt_len = n};
    request_log_line(&out, &r, p->stream);
    FUZZ_CHECK(out.failed || strchr(out.data, '\n') == out.data + out.len - 1);
    str_fini(&w.out);
    str_fini(&out);
}

// Bodies as conversations, and back.
static bool read_turns(struct conversation *v, const struct json *body, struct api_error *x) {
    if (!conversation_read_messages(v, body, x))
        return false;
    conversation_read_messages_tools(v, body);
    return true;
}

static void write_turns(const struct conversation *v, struct json_writer *w) {
    conversation_write_messages(v, w);
    conversation_write_messages_tools(v, w);
}

static bool read_items(struct conversation *v, const struct json *body, struct api_error *x) {
    conversation_read_tools(v, json_get(body, "tools"), json_get(body, "tool_choice"),
                            json_get(body, "parallel_tool_calls"), false);
    return conversation_read_responses(v, json_get(body, "input"), x);
}

static void write_items(const struct conversation *v, struct json_writer *w) {
    jw_key(w, "tools");
    conversation_write_responses_tools(v, w);
    jw_key(w, "tool_choice");
    conversation_write_responses_choice(v, w);
    if (v->parallel)
        jw_key_bool(w, "parallel_tool_calls", v->parallel > 0);
    jw_key(w, "input");
    conversation_write_responses(v, w);
}

typedef bool read_fn(struct conversation *v, const struct json *body, struct api_error *x);
typedef void write_fn(const struct conversation *v, struct json_writer *w);

// What bodies become is a conversation that is the same when it is written and read again, and that
// chats can say.
static bool survives(const struct json *body, read_fn *read, write_fn *write, struct api_error *x) {
    static const struct json_rules rules = {.depth = 512, .big_integers = true};
    struct conversation v = {0}, again = {0};
    struct json_writer w = {0};
    struct json *back = NULL;
    struct str where = {0};
    struct err e = {0};
    bool ok = read(&v, body, x);
    if (ok) {
        jw_begin(&w, '{');
        write(&v, &w);
        jw_end(&w, '}');
    }
    if (ok && !v.failed && !w.out.failed &&
        !json_parse_with(&back, w.out.data, w.out.len, &rules, &e)) {
        struct api_error none = {0};
        bool same = read(&again, back, &none);
        if (!again.failed && !conversation_differs(&v, &again, &where, &e))
            FUZZ_CHECK(same && where.len == 0);
    }
    ok = ok && conversation_plain(&v, x);
    conversation_fini(&again);
    conversation_fini(&v);
    json_free(back);
    str_fini(&where);
    str_fini(&w.out);
    return ok;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    static const enum endpoint endpoints[] = {
        ENDPOINT_CHAT,       ENDPOINT_COMPLETIONS, ENDPOINT_TEMPLATE, ENDPOINT_TOKENIZE,
        ENDPOINT_DETOKENIZE, ENDPOINT_ANTHROPIC,   ENDPOINT_RESPONSES};
    struct params_limits l = {.vocab = 1000, .slots = 8, .has_draft = size & 1};
    struct params p = {0};
    struct api_error x = {0};
    struct json *body = NULL;
    struct conversation chat = {0};
    if (size == 0)
        return;
    enum endpoint endpoint = endpoints[data[0] % 7];
    const char *text = (const char *)data + 1;
    sample_params_init(&l.sample);
    bool ok = body_parse(text, size - 1, &body, &x) && body_read(&p, body, endpoint, &l, &x) &&
              (!(endpoint & ENDPOINT_MESSAGES) || conversation_read_chat_body(&chat, &p, &x)) &&
              (endpoint != ENDPOINT_ANTHROPIC || survives(body, read_turns, write_turns, &x)) &&
              (endpoint != ENDPOINT_RESPONSES || survives(body, read_items, write_items, &x));
    if (ok) {
        check_limits(&p, &l);
        match(&p, text, size - 1);
        write_answer(&p, text, size - 1, fragile);
    } else {
        check_refusal(&x, fragile);
    }
    conversation_fini(&chat);
    params_fini(&p);
    json_free(body);
}
