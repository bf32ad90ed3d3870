// SPDX-License-Identifier: Apache-2.0
// The answer of a request for text; see write.h.
#include "serve/completion/write.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "serve/http/sse.h"

static int prompt_index(const struct completion *c, const struct choice *k) {
    return k->index / (c->n_choices / c->n_prompts);
}

struct answer_totals completion_totals(const struct completion *c) {
    if (!c->prepared)
        return (struct answer_totals){0};
    struct answer_totals t = {.choices = c->n_choices,
                              .compression = c->compression,
                              .tool_format = c->tools.format,
                              .speculate = speculate_name(c->p.how),
                              .view = c->s->view,
                              .drafts = c->s->drafts};
    for (int i = 0; i < c->n_prompts; i++)
        t.prompt += (int64_t)c->prompts[i].tokens.count;
    for (int i = 0; i < c->n_choices; i++) {
        const struct choice *k = &c->choices[i];
        const struct stream_end *e = &k->end;
        if (i == 0 || prompt_index(c, k) != prompt_index(c, k - 1))
            t.cached += e->cached;                  // the others share the prompt of the first one
        t.tokens += k->ended ? e->tokens : k->seen; // cut off: what was taken in
        t.reasoning += k->text.reasoning_tokens;
        t.drafted += e->drafted;
        t.accepted += e->accepted;
        guess_counts_join(&t.guesses, &e->guesses);
        t.steps += e->steps;
        t.queue_ms = t.queue_ms > e->queue_ms ? t.queue_ms : e->queue_ms;
        t.prompt_ms = t.prompt_ms > e->prompt_ms ? t.prompt_ms : e->prompt_ms;
        t.decode_ms = t.decode_ms > e->decode_ms ? t.decode_ms : e->decode_ms;
        if (c->hashes)
            c->hashes[i] = e->hash;
    }
    if (c->open == 0)
        t.hashes = c->hashes;
    return t;
}

// Writes what is in c->s->out to the stream.
static void send_answer(struct completion *c) {
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

// Before the head of an answer goes out.
static void name_ignored(const struct completion *c) {
    if (c->p.ignored.len && !c->p.ignored.failed)
        exchange_header(c->x, PARAMS_IGNORED_HEADER, c->p.ignored.data);
}

void completion_write_begin(struct completion *c) {
    name_ignored(c);
    exchange_header(c->x, "Cache-Control", "no-cache");
    exchange_header(c->x, "X-Accel-Buffering", "no"); // nginx would hold events back
    exchange_begin(c->x, 200, SSE_TYPE);
    c->streaming = true;
    c->written = clock_ms();
    if (c->d->start)
        c->d->start(c);
    send_answer(c);
}

void completion_write_alive(struct completion *c) {
    if (c->d->alive)
        c->d->alive(c);
    send_answer(c);
}

int completion_logprobs(const struct completion *c, struct choice *k, bool echo,
                        struct answer_logprobs span[2]) {
    const struct reply *r = stream_reply(k->stream);
    int n = 0;
    if (!c->p.logprobs)
        return 0;
    struct answer_logprobs one = {.t = c->s->tokenizer, .top = (int)c->p.top_logprobs};
    if (echo) {
        const struct token_list *l = &c->prompts[prompt_index(c, k)].tokens;
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

void completion_extra(const struct completion *c, struct json_writer *w) {
    if (!c->p.logit_hash && !c->p.token_ids)
        return;
    const struct answer_totals totals = completion_totals(c);
    jw_key_begin(w, "coppice", '{');
    answer_hashes(w, &totals);
    if (c->p.token_ids) {
        jw_key_begin(w, "token_ids", '[');
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

// The prompt's own text in front of a completion's.
static void put_prompt(struct completion *c, const struct choice *k, struct str *out) {
    const struct token_list *l = &c->prompts[prompt_index(c, k)].tokens;
    const struct tokenizer *t = c->s->tokenizer;
    size_t from = out->len;
    for (size_t i = 0; t && i < l->count; i++)
        tokenizer_decode(t, l->ids[i], false, out);
    if (t && tokenizer_blank_first(t) && out->len > from && out->data[from] == ' ') {
        memmove(out->data + from, out->data + from + 1, out->len - from);
        out->len--;
    }
}

static void end_item(struct completion *c, struct choice *k) {
    struct answer_item *it = answer_items_open(&k->items);
    if (!it)
        return;
    it->open = false;
    if (c->streaming && c->d->item_end)
        c->d->item_end(c, k, it);
}

// A new item after the open one; tool: of a call.
static struct answer_item *begin_item(struct completion *c, struct choice *k,
                                      enum answer_item_kind kind, const struct tool *tool) {
    end_item(c, k);
    struct answer_item *it = answer_items_begin(&k->items, kind);
    if (it && tool) {
        str_append(&it->name, tool->name, tool->n);
        it->custom = tool->freeform;
        random_id(it->id, c->d->endpoint == ENDPOINT_ANTHROPIC ? "toolu_" : "call_");
        k->items.failed |= it->name.failed;
    }
    if (it && c->streaming && c->d->item_begin)
        c->d->item_begin(c, k, it);
    return it;
}

// The tokens that new words came of.
static void find_tokens(struct completion *c, struct choice *k, struct answer_item *it,
                        const struct item_text *p, struct answer_logprobs *out) {
    const struct reply *r = stream_reply(k->stream);
    const struct tokenizer *t = c->s->tokenizer;
    int64_t range[2];
    *out = (struct answer_logprobs){.t = t, .top = (int)c->p.top_logprobs};
    const struct match_tokens all = {t, r->ids, k->seen};
    if (!token_match_find(&k->match, &all, p->text.s, p->text.n, range, &c->s->out.failed))
        return;
    it->first_token = it->tokens ? it->first_token : range[0];
    it->tokens = range[1] - it->first_token;
    out->ids = r->ids + range[0];
    out->n = range[1] - range[0];
    out->at = &r->logprobs;
    out->from = range[0];
}

static void put_item_text(struct completion *c, struct choice *k, struct answer_item *it,
                          const struct item_text *p) {
    struct answer_logprobs own;
    struct item_text with = *p;
    if (!it)
        return;
    if (c->d->endpoint == ENDPOINT_RESPONSES && c->p.logprobs && it->kind != ITEM_CALL) {
        find_tokens(c, k, it, p, &own);
        with.logprobs = &own;
        with.n_logprobs = 1;
        p = &with;
    }
    bool encoded = it->kind == ITEM_REASONING && c->p.omits_thinking; // whole, at its end
    if ((c->d->keeps_text || !c->streaming || encoded) && p->text.n)
        str_append(&it->text, p->text.s, p->text.n);
    c->s->out.failed |= it->text.failed;
    if (c->streaming && c->d->item_delta)
        c->d->item_delta(c, k, it, p);
}

// The open item where it is of this kind, else a new one after it.
static struct answer_item *open_item_of(struct completion *c, struct choice *k,
                                        enum answer_item_kind kind) {
    struct answer_item *it = answer_items_open(&k->items);
    return it && it->kind == kind ? it : begin_item(c, k, kind, NULL);
}

// The new part of the reply; last: log-probabilities of all that is new.
static void put_reply_delta(struct completion *c, struct choice *k, const struct reply_delta *r,
                            const struct item_text *last) {
    static const enum answer_item_kind kinds[] = {ITEM_REASONING, ITEM_TEXT, ITEM_CALL};
    struct item_text p = {.logprobs = last->logprobs, .n_logprobs = last->n_logprobs};
    struct answer_item *it = r->tool && r->begins ? begin_item(c, k, ITEM_CALL, r->tool)
                                                  : open_item_of(c, k, kinds[r->part]);
    if (r->begins && r->from > k->match.at) { // words after a call are none of its own
        k->match.at = r->from;
        k->match.bytes = 0;
    }
    if (r->n)
        p.text = (struct answer_text){k->text.deltas.text.data + r->at, r->n};
    if (p.text.n || p.logprobs)
        put_item_text(c, k, it, &p);
    if (it && r->ends)
        it->broken = it->kind == ITEM_CALL && !r->whole;
    if (r->ends)
        end_item(c, k);
}

// The prompt in front of a completion.
static void put_echo(struct completion *c, struct choice *k) {
    struct str prompt = {0};
    k->echoed = true;
    put_prompt(c, k, &prompt);
    struct item_text p = {.text = {prompt.data, prompt.len}};
    put_item_text(c, k, open_item_of(c, k, ITEM_TEXT), &p);
    c->s->out.failed |= prompt.failed;
    str_fini(&prompt);
}

// Moves what has come into the items, and to the client where the answer is streamed.
static void write_new_items(struct completion *c, struct choice *k) {
    struct reply_deltas *r = &k->text.deltas;
    struct answer_logprobs span[2];
    struct item_text last = {0};
    const struct item_text none = {0};
    bool echo = c->p.echo && !k->echoed;
    // A whole answer writes them itself; items of Responses find those of their own words.
    if (c->streaming && c->d->endpoint != ENDPOINT_RESPONSES)
        last.n_logprobs = completion_logprobs(c, k, echo, span);
    last.logprobs = last.n_logprobs ? span : NULL;
    if (echo)
        put_echo(c, k);
    for (int i = 0; i < r->n; i++)
        put_reply_delta(c, k, &r->list[i], i == r->n - 1 ? &last : &none);
    if (r->n == 0 && last.logprobs) {
        struct answer_item *it = answer_items_open(&k->items);
        bool thinks = k->text.at == REPLY_REASONING;
        put_item_text(c, k, it ? it : open_item_of(c, k, thinks ? ITEM_REASONING : ITEM_TEXT),
                      &last);
    }
    reply_deltas_clear(r);
    if (k->ended)
        end_item(c, k);
    c->s->out.failed |= k->items.failed || reply_text_failed(&k->text);
}

void completion_write_chunk(struct completion *c, struct choice *k) {
    write_new_items(c, k);
    if (k->ended && c->d->finish)
        c->d->finish(c, k);
    send_answer(c);
}

static void end_streamed_answer(struct completion *c) {
    if (c->d->end)
        c->d->end(c);
    send_answer(c);
    if (c->x)
        exchange_end(c->x);
    c->x = NULL;
}

static void end_whole_answer(struct completion *c) {
    struct json_writer w = {0};
    for (int i = 0; i < c->n_choices; i++)
        write_new_items(c, &c->choices[i]);
    c->d->whole(c, &w);
    w.out.failed |= c->s->out.failed;
    c->s->out.failed = false;
    name_ignored(c);
    service_json(c->x, 200, &w);
    c->x = NULL;
}

void completion_write_end(struct completion *c) {
    if (c->streaming)
        end_streamed_answer(c);
    else
        end_whole_answer(c);
}

void completion_write_error(struct completion *c, const struct api_error *why) {
    if (!c->streaming) {
        service_refuse_named(c->x, why, c->id);
    } else {
        c->d->error(c, why);
        send_answer(c);
        if (c->x)
            exchange_end(c->x);
    }
    c->x = NULL;
}
