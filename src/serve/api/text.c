// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back, and conversations to text, without generating: POST /v1/tokenize,
// /v1/detokenize, /apply-template, /v1/messages/count_tokens, /v1/responses/input_tokens; and kept
// responses, which may be long: GET /v1/responses/{id}. Each is done by a text worker.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "serve/api/handlers.h"
#include "serve/api/kept.h"
#include "serve/completion/prompt.h"
#include "serve/http/sse.h"
#include "serve/request/body.h"

// One request on its way through a worker.
struct text_task {
    struct service *s;
    struct exchange *x;         // NULL: given back; loop thread
    atomic_bool disconnected;   // likewise, for other threads
    struct cancel_check client; // reads it
    enum endpoint endpoint;
    text_work *work;        // fills out from p, or error
    struct str text;        // the body, until it has been read
    size_t bytes;           // by which it waits for a worker
    struct str rest, query; // of a kept response
    const char *type;       // of the answer; NULL: JSON
    struct http_task done;
    struct http_memory memory; // its memory, and of what is made of it
    struct json *body;         // until the work is done
    struct params p;
    struct str ignored; // p's
    struct json_writer out;
    struct api_error error;
};

static void free_task(struct text_task *t) {
    str_fini(&t->text);
    str_fini(&t->ignored);
    str_fini(&t->rest);
    str_fini(&t->query);
    str_fini(&t->out.out);
    http_memory_release(&t->memory);
    free(t);
}

static void reply_typed(struct text_task *t) {
    exchange_header(t->x, "Cache-Control", "no-cache");
    exchange_reply(t->x, 200, t->type, t->out.out.data ? t->out.out.data : "", t->out.out.len);
}

static void on_done(void *arg) {
    struct text_task *t = arg;
    if (t->x && t->ignored.len && !t->error.status)
        exchange_header(t->x, PARAMS_IGNORED_HEADER, t->ignored.data);
    if (t->x && t->error.status)
        service_refuse(t->x, &t->error);
    else if (t->x && t->type)
        reply_typed(t);
    else if (t->x)
        service_json(t->x, 200, &t->out);
    free_task(t);
}

static void run_task(void *arg);

// Text worker. What its body makes of it; false: a worker for longer work goes on.
static bool run_task_body(struct text_task *t) {
    struct err e = {0};
    if (!t->body && !(body_take(&t->text, &t->memory, &t->body, &t->error) &&
                      body_read(&t->p, t->body, t->endpoint, &t->s->limits, &t->error)))
        return true;
    size_t referred =
        t->endpoint == ENDPOINT_INPUT_TOKENS ? api_responses_referred(t->s, t->body) : 0;
    if (referred > t->bytes) {
        t->bytes = referred;
        if (!workers_run(t->s->workers, referred, run_task, t, &e))
            return false;
        api_refuse_full(&t->error, &e);
        return true;
    }
    t->p.client = &t->client;
    t->work(t);
    return true;
}

// Text worker.
static void run_task(void *arg) {
    struct text_task *t = arg;
    if (!atomic_load(&t->disconnected)) {
        if (!t->endpoint)
            t->work(t);
        else if (!run_task_body(t))
            return;
    }
    t->ignored = t->p.ignored;
    t->p.ignored = (struct str){0};
    params_fini(&t->p);
    json_free(t->body);
    t->body = NULL;
    http_memory_set(&t->memory, t->out.out.cap);
    t->done = (struct http_task){.fn = on_done, .arg = t};
    if (http_post_task(t->s->http, &t->done)) // the loop has ended, and the exchange with it
        free_task(t);
}

static void on_task_disconnect(void *arg) {
    struct text_task *t = arg;
    exchange_abort(t->x);
    t->x = NULL;
    atomic_store(&t->disconnected, true);
}

static void on_task_cut(void *arg) {
    struct text_task *t = arg;
    struct api_error why;
    api_fail(&why, 503, "shutting_down", "the server is shutting down");
    service_refuse(t->x, &why);
    t->x = NULL;
    atomic_store(&t->disconnected, true);
}

static bool is_task_disconnected(const void *arg) {
    const struct text_task *t = arg;
    return atomic_load(&t->disconnected);
}

// rest: of the path of a kept response, whose endpoint is 0; NULL: the body tells all.
static void start_task_of(struct service *s, struct exchange *x, enum endpoint endpoint,
                          text_work *work, const char *rest) {
    static const struct exchange_hooks hooks = {.disconnected = on_task_disconnect,
                                                .cut = on_task_cut};
    struct api_error why = {0};
    struct err e = {0};
    struct text_task *t = NULL;
    if (!service_ready(s, &why)) {
        service_refuse(x, &why);
        return;
    }
    t = calloc(1, sizeof *t);
    if (t) {
        *t = (struct text_task){.s = s, .x = x, .endpoint = endpoint, .work = work};
        t->client = (struct cancel_check){is_task_disconnected, t};
        exchange_take_body(x, &t->text, &t->memory);
        exchange_watch(x, &hooks, t);
        t->bytes = rest ? api_response_size(s, rest) : t->text.len;
        str_puts(&t->rest, rest ? rest : "");
        str_puts(&t->query, exchange_query(x));
    }
    if (!t) {
        api_fail(&why, 503, NULL, "no memory for the request");
    } else if (workers_run(s->workers, t->bytes, run_task, t, &e)) {
        api_refuse_full(&why, &e);
    } else {
        return;
    }
    service_refuse(x, &why);
    if (t)
        free_task(t);
}

void text_start(struct service *s, struct exchange *x, enum endpoint endpoint, text_work *work) {
    start_task_of(s, x, endpoint, work, NULL);
}

static bool has_tokenizer(struct text_task *t) {
    if (!t->s->tokenizer)
        api_fail(&t->error, 400, NULL, "the model's file has no tokenizer");
    return t->s->tokenizer != NULL;
}

// For the tokens of a text that no context bounds.
static struct token_list bounded_tokens(const struct text_task *t) {
    enum { LIMIT = 1 << 21 };
    return (struct token_list){.max = LIMIT, .cancel = &t->client};
}

static void put_token_pieces(struct text_task *t, const struct token_list *l) {
    for (size_t i = 0; i < l->count; i++) {
        jw_begin(&t->out, '{');
        jw_key_int(&t->out, "id", l->ids[i]);
        jw_key(&t->out, "piece");
        answer_token(&t->out, t->s->tokenizer, l->ids[i]);
        jw_end(&t->out, '}');
    }
}

static void put_tokens(struct text_task *t, const struct token_list *l) {
    struct json_writer *w = &t->out;
    jw_begin(w, '{');
    jw_key_begin(w, "tokens", '[');
    if (t->p.with_pieces)
        put_token_pieces(t, l);
    for (size_t i = 0; i < l->count && !t->p.with_pieces; i++)
        jw_int(w, l->ids[i]);
    jw_end(w, ']');
    jw_key_int(w, "count", (int64_t)l->count);
    jw_key_int(w, "max_model_len", t->s->n_ctx);
    jw_end(w, '}');
}

void text_tokenize(struct text_task *t) {
    struct token_list l = bounded_tokens(t);
    struct err e = {0};
    size_t n;
    const char *s = json_str(t->p.text, &n);
    int rc = 0;
    if (!has_tokenizer(t))
        return;
    if (t->p.add_special && tokenizer_add_bos(t->s->tokenizer))
        rc = token_list_push(&l, tokenizer_bos(t->s->tokenizer), &e);
    if (!rc)
        rc = tokenizer_encode(t->s->tokenizer, s, n, !t->p.no_special, &l, &e);
    if (rc)
        api_error_of(&t->error, &e);
    else
        put_tokens(t, &l);
    token_list_fini(&l);
}

void text_detokenize(struct text_task *t) {
    struct token_list l = {0};
    struct str s = {0};
    if (has_tokenizer(t) &&
        api_token_ids(t->p.tokens, t->s->limits.vocab, "tokens", &l, &t->error)) {
        for (size_t i = 0; i < l.count; i++)
            tokenizer_decode(t->s->tokenizer, l.ids[i], true, &s);
        if (tokenizer_blank_first(t->s->tokenizer) && s.len && s.data[0] == ' ')
            memmove(s.data, s.data + 1, s.len--);
        jw_begin(&t->out, '{');
        jw_key_text(&t->out, "content", s.data, s.len);
        jw_key_text(&t->out, "prompt", s.data, s.len); // vLLM's name for it
        jw_end(&t->out, '}');
        t->out.out.failed |= s.failed;
    }
    str_fini(&s);
    token_list_fini(&l);
}

// The prompt of a body, as an interface reads it. False with t->error filled.
static bool render_prompt(struct text_task *t, const struct dialect *d, struct chat_text *out) {
    struct conversation v = {0};
    bool ok = d->read(t->s, &t->p, t->body, &v, &t->error) &&
              prompt_render(t->s, &t->p, &v, out, &t->error);
    conversation_fini(&v);
    return ok;
}

void text_apply_template(struct text_task *t) {
    struct chat_text text = {0};
    if (render_prompt(t, &api_chat_dialect, &text)) {
        jw_begin(&t->out, '{');
        jw_key_text(&t->out, "prompt", text.text.data, text.text.len);
        jw_end(&t->out, '}');
    }
    chat_text_fini(&text);
}

// object: what the answer calls itself, or NULL.
static void count_prompt(struct text_task *t, const struct dialect *d, const char *object) {
    struct chat_text text = {0};
    struct token_list l = bounded_tokens(t);
    struct err e = {0};
    if (has_tokenizer(t) && render_prompt(t, d, &text)) {
        if (chat_encode(t->s->tokenizer, &text, &l, &e)) {
            api_error_of(&t->error, &e);
        } else {
            jw_begin(&t->out, '{');
            if (object)
                jw_key_str(&t->out, "object", object);
            jw_key_int(&t->out, "input_tokens", (int64_t)l.count);
            jw_end(&t->out, '}');
        }
    }
    token_list_fini(&l);
    chat_text_fini(&text);
}

void text_count_tokens(struct text_task *t) {
    count_prompt(t, &api_messages_dialect, NULL);
}

void text_input_tokens(struct text_task *t) {
    count_prompt(t, &api_responses_dialect, "response.input_tokens");
}

static void kept_response(struct text_task *t) {
    const struct response_view v = {t->rest.data, t->query.data};
    if (t->rest.failed || t->query.failed)
        api_fail(&t->error, 503, NULL, "no memory for the request");
    else if (t->bytes > WORKERS_SHORT && http_crowded(t->s->http))
        api_fail(&t->error, 503, NULL,
                 "what is kept and sent takes too much memory at the moment; try again later");
    else if (api_response_write(t->s, &v, &t->out.out, &t->error))
        t->type = response_view_streams(&v) ? SSE_TYPE : NULL;
}

void api_response_get(struct service *s, struct exchange *x, const char *rest) {
    start_task_of(s, x, 0, kept_response, rest);
}
