// SPDX-License-Identifier: Apache-2.0
// The answer of a request for text; see completion_write.h.
#include "serve/completion_write.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "serve/sse.h"

static struct answer_head head_of(const struct completion *c, const char *object) {
    return (struct answer_head){.id = c->id,
                                .object = object,
                                .model = c->p.model ? c->p.model : c->s->model,
                                .created = c->created};
}

static int prompt_of(const struct completion *c, const struct choice *k) {
    return k->index / (c->n_choices / c->n_prompts);
}

struct answer_totals completion_totals(const struct completion *c) {
    struct answer_totals t = {.choices = c->n_choices, .compression = c->compression};
    for (int i = 0; i < c->n_prompts; i++)
        t.prompt += (int64_t)c->prompts[i].tokens.count;
    for (int i = 0; i < c->n_choices; i++) {
        const struct choice *k = &c->choices[i];
        const struct stream_end *e = &k->end;
        if (i == 0 || prompt_of(c, k) != prompt_of(c, k - 1))
            t.cached += e->cached;                  // the others share the prompt of the first one
        t.tokens += k->ended ? e->tokens : k->seen; // cut off: what was taken in
        t.reasoning += k->text.reasoning_tokens;
        t.drafted += e->drafted;
        t.accepted += e->accepted;
        t.steps += e->steps;
        t.queue_ms = t.queue_ms > e->queue_ms ? t.queue_ms : e->queue_ms;
        t.prompt_ms = t.prompt_ms > e->prompt_ms ? t.prompt_ms : e->prompt_ms;
        t.decode_ms = t.decode_ms > e->decode_ms ? t.decode_ms : e->decode_ms;
    }
    return t;
}

// Writes what is in c->s->out as a piece of the stream.
static void send(struct completion *c) {
    struct str *out = &c->s->out;
    if (out->failed) { // the client must not take what is missing for the answer
        exchange_abort(c->x);
        c->x = NULL;
    } else if (out->len) {
        exchange_write(c->x, out->data, out->len);
        c->written = clock_ms();
    }
    str_clear(out);
    out->failed = false;
}

static void open_chunk(struct completion *c, struct json_writer *w) {
    struct answer_head h = head_of(c, c->d->chunk_object);
    answer_open(w, &h);
    jw_key(w, "choices");
    jw_begin(w, '[');
}

static void put_chunk(struct completion *c, const struct answer_choice *a) {
    struct json_writer *w = &c->s->json;
    open_chunk(c, w);
    c->d->chunk(w, a);
    jw_end(w, ']');
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

void completion_write_begin(struct completion *c) {
    exchange_header(c->x, "Cache-Control", "no-cache");
    exchange_header(c->x, "X-Accel-Buffering", "no"); // nginx would hold events back
    exchange_begin(c->x, 200, SSE_TYPE);
    c->streaming = true;
    c->written = clock_ms();
    for (int i = 0; i < c->n_choices && c->d->roles; i++) {
        struct answer_choice a = {.index = i, .role = true, .content = {"", 0}};
        put_chunk(c, &a);
    }
    send(c);
}

void completion_write_alive(struct completion *c) {
    struct answer_choice a = {0};
    for (int i = 0; i < c->n_choices; i++)
        if (!c->choices[i].ended) {
            a.index = i;
            break;
        }
    put_chunk(c, &a);
    send(c);
}

// The server's own part of the last chunk and of whole answers.
static void put_extra(struct completion *c, struct json_writer *w) {
    char hash[17];
    if (!c->p.logit_hash && !c->p.token_ids)
        return;
    jw_key(w, "coppice");
    jw_begin(w, '{');
    if (c->p.logit_hash) {
        jw_key(w, "logit_hash");
        jw_begin(w, '[');
        for (int i = 0; i < c->n_choices; i++) {
            snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->choices[i].end.hash);
            jw_cstr(w, hash);
        }
        jw_end(w, ']');
    }
    if (c->p.token_ids) {
        jw_key(w, "token_ids");
        jw_begin(w, '[');
        for (int i = 0; i < c->n_choices; i++) {
            const int32_t *ids = NULL;
            int64_t n = stream_tokens(c->choices[i].stream, &ids);
            jw_begin(w, '[');
            for (int64_t t = 0; t < n; t++)
                jw_int(w, ids[t]);
            jw_end(w, ']');
        }
        jw_end(w, ']');
    }
    jw_end(w, '}');
}

// Log-probabilities of tokens that have not been shown, and before them those of an echoed prompt.
// Returns how many spans there are.
static int logprobs_of(const struct completion *c, struct choice *k, bool echo,
                       struct answer_logprobs span[2]) {
    const struct reply *r = stream_reply(k->stream);
    int n = 0;
    if (!c->p.logprobs)
        return 0;
    struct answer_logprobs one = {.t = c->s->tokenizer, .top = (int)c->p.top_logprobs};
    if (echo) {
        const struct token_list *l = &c->prompts[prompt_of(c, k)].tokens;
        one.ids = l->ids;
        one.n = (int64_t)l->count;
        one.at = &r->prompt_logprobs;
        one.from = -1;
        span[n++] = one;
        k->offset = answer_logprobs_chars(&one);
    }
    one.ids = r->ids + k->shown;
    one.n = k->seen - k->shown;
    one.at = &r->logprobs;
    one.from = k->shown;
    one.offset = k->offset;
    if (one.n > 0) {
        span[n++] = one;
        if (c->d->endpoint == ENDPOINT_COMPLETIONS)
            k->offset += answer_logprobs_chars(&one);
        k->shown = k->seen;
    }
    return n;
}

// The prompt's own text in front of a completion's.
static void put_prompt(struct completion *c, const struct choice *k, struct str *out) {
    const struct token_list *l = &c->prompts[prompt_of(c, k)].tokens;
    const struct tokenizer *t = c->s->tokenizer;
    size_t from = out->len;
    for (size_t i = 0; t && i < l->count; i++)
        tokenizer_decode(t, l->ids[i], false, out);
    if (t && tokenizer_blank_first(t) && out->len > from && out->data[from] == ' ') {
        memmove(out->data + from, out->data + from + 1, out->len - from);
        out->len--;
    }
}

// What there is to write of a choice, which lives until its text is cleared.
struct piece {
    struct answer_choice a;
    struct answer_logprobs span[2];
    struct str echoed; // prompt and text
};

static void take_piece(struct completion *c, struct choice *k, struct piece *p) {
    struct str *reasoning = &k->text.out[REPLY_REASONING], *content = &k->text.out[REPLY_CONTENT];
    bool echo = c->p.echo && !k->echoed;
    *p = (struct piece){.a = {.index = k->index}};
    p->a.n_logprobs = logprobs_of(c, k, echo, p->span);
    p->a.logprobs = p->a.n_logprobs ? p->span : NULL;
    if (reasoning->len)
        p->a.reasoning = (struct answer_text){reasoning->data, reasoning->len};
    if (content->len)
        p->a.content = (struct answer_text){content->data, content->len};
    if (echo) {
        k->echoed = true;
        put_prompt(c, k, &p->echoed);
        if (content->len)
            str_append(&p->echoed, content->data, content->len);
        p->a.content = (struct answer_text){p->echoed.data, p->echoed.len};
    }
    c->s->out.failed |= p->echoed.failed || reply_text_failed(&k->text);
}

static void drop_piece(struct choice *k, struct piece *p) {
    str_clear(&k->text.out[REPLY_REASONING]);
    str_clear(&k->text.out[REPLY_CONTENT]);
    str_fini(&p->echoed);
}

static void put_finish(struct completion *c, const struct choice *k) {
    struct json_writer *w = &c->s->json;
    struct answer_choice a = {.index = k->index, .finish = answer_finish(k->end.reason)};
    open_chunk(c, w);
    c->d->chunk(w, &a);
    jw_end(w, ']');
    if (c->open == 0) {
        struct answer_totals t = completion_totals(c);
        answer_timings(w, &t);
        put_extra(c, w);
    }
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

void completion_write_chunk(struct completion *c, struct choice *k) {
    struct piece p;
    take_piece(c, k, &p);
    if (p.a.reasoning.s || p.a.content.s || p.a.logprobs)
        put_chunk(c, &p.a);
    drop_piece(k, &p);
    if (k->ended)
        put_finish(c, k);
    send(c);
}

static void end_stream(struct completion *c) {
    struct json_writer *w = &c->s->json;
    if (c->p.include_usage) {
        struct answer_totals t = completion_totals(c);
        open_chunk(c, w);
        jw_end(w, ']');
        answer_usage(w, &t);
        answer_timings(w, &t);
        jw_end(w, '}');
        sse_write(&c->s->out, NULL, w);
    }
    sse_done(&c->s->out);
    send(c);
    if (c->x)
        exchange_end(c->x);
    c->x = NULL;
}

static void end_whole(struct completion *c) {
    struct json_writer w = {0};
    struct answer_head h = head_of(c, c->d->object);
    struct answer_totals t = completion_totals(c);
    answer_open(&w, &h);
    jw_key(&w, "choices");
    jw_begin(&w, '[');
    for (int i = 0; i < c->n_choices; i++) {
        struct choice *k = &c->choices[i];
        struct piece p;
        take_piece(c, k, &p);
        p.a.role = c->d->roles;
        p.a.finish = answer_finish(k->end.reason);
        c->d->whole(&w, &p.a);
        drop_piece(k, &p);
    }
    jw_end(&w, ']');
    answer_usage(&w, &t);
    answer_timings(&w, &t);
    put_extra(c, &w);
    jw_end(&w, '}');
    w.out.failed |= c->s->out.failed;
    c->s->out.failed = false;
    service_json(c->x, 200, &w);
    c->x = NULL;
}

void completion_write_end(struct completion *c) {
    if (c->streaming)
        end_stream(c);
    else
        end_whole(c);
}

void completion_write_error(struct completion *c, const struct api_error *why) {
    if (!c->streaming) {
        service_refuse(c->x, why);
    } else {
        api_error_write(&c->s->json, why, API_OPENAI, NULL);
        sse_write(&c->s->out, NULL, &c->s->json);
        send(c);
        if (c->x)
            exchange_end(c->x);
    }
    c->x = NULL;
}
