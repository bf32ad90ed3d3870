// SPDX-License-Identifier: Apache-2.0
// Counts and log lines of requests for text; see write.h.
#include "serve/completion/write.h"

#include <string.h>

#include "base/clock.h"
#include "serve/completion/prompt.h"

void record_tokens(struct choice *k, int64_t n) {
    struct metrics *m = &k->c->s->metrics;
    double now = clock_ms();
    if (k->newest_ms == 0)
        histogram_add(&m->first, (now - k->c->arrived) / 1e3, 1);
    else
        histogram_add(&m->between, (now - k->newest_ms) / 1e3 / (double)n, (uint64_t)n);
    k->newest_ms = now;
}

// A token as a quoted text, or its end.
static void quote_token(struct str *out, const struct tokenizer *t, int32_t id) {
    struct json_writer w = {0};
    if (id < 0) {
        str_puts(out, "the end");
        return;
    }
    answer_token(&w, t, id);
    str_puts(out, w.out.data ? w.out.data : "");
    str_fini(&w.out);
}

// Whether a token is the mark that opens a block of reasoning.
static bool opens_reasoning(const struct completion *c, int32_t id) {
    const char *mark = reasoning_opening(c->family);
    struct str s = {0};
    if (!mark || id < 0)
        return false;
    tokenizer_decode(c->s->tokenizer, id, true, &s);
    bool opens = s.len && s.len <= strlen(mark) && !memcmp(s.data, mark, s.len);
    str_fini(&s);
    return opens;
}

static const char *explain_change(const struct completion *c, const struct cache_report *r) {
    int64_t system =
        c->prompts->n_positions ? c->prompts->positions[0] : 0; // with the tools; 0: not known
    if (opens_reasoning(c, r->there) && !opens_reasoning(c, r->here))
        return "the template left the reasoning of an earlier answer out";
    if (r->common < system)
        return "the system message or the tools have changed";
    return "an earlier message was edited, or another conversation begins alike";
}

// "cache: ...", how many tokens of the first prompt the prefix cache had, the first that differs
// from the nearest text that is known, and which rule made it so; nothing where there is nothing to
// explain. Tokens are quoted only with --log-prompts: one is of another request.
static void note_cache(const struct completion *c, struct str *out) {
    if (!c->n_choices || !c->choices[0].ended)
        return;
    const struct cache_report *r = &c->choices[0].end.cache;
    long long common = (long long)r->common;
    switch (r->why) {
    case CACHE_OFF:
    case CACHE_HIT:
        return;
    case CACHE_NEW:
        str_puts(out, "cache: no text that is kept begins like this one");
        return;
    case CACHE_CHANGED:
        str_printf(out, "cache: token %lld is ", common);
        if (c->s->o->log_prompts) {
            quote_token(out, c->s->tokenizer, r->here);
            str_puts(out, " and was ");
            quote_token(out, c->s->tokenizer, r->there);
        } else {
            str_puts(out, "another one than in the nearest text that is kept");
        }
        str_printf(out, ": %s", explain_change(c, r));
        return;
    case CACHE_EVICTED:
        str_printf(out,
                   "cache: %lld tokens are known, and their state was dropped for others; a larger "
                   "--cache-ram keeps more",
                   common);
        return;
    case CACHE_SETTINGS:
        str_printf(out,
                   "cache: the state of %lld tokens was made by another rule (--sparse-prefill, "
                   "--fa-window, --kv-pool), or is of a reply",
                   common);
        return;
    case CACHE_BETWEEN:
        str_printf(out, "cache: %lld tokens are known, and no state was kept nearer to them",
                   common);
        return;
    case CACHE_FAILED:
        str_printf(out, "cache: the state of %lld tokens could not be put back", common);
        return;
    }
}

static enum metrics_end classify_end(const struct completion *c, const struct api_error *why) {
    if (why && why->status)
        return c->choices && c->choices[0].stream ? METRICS_FAILED : METRICS_REFUSED;
    if (c->disconnected)
        return METRICS_CANCELLED;
    return answer_finish(c->choices[0].end.reason)[0] == 'l' ? METRICS_LENGTH : METRICS_STOP;
}

void record_end(struct completion *c, const struct api_error *why) {
    struct str note = {0};
    static const char *const names[] = {"stop", "length", "cancelled", "error", "refused"};
    struct metrics *m = &c->s->metrics;
    enum metrics_end end = classify_end(c, why);
    struct refusal_note refusal;
    bool failed = why && why->status;
    struct request_record r = {.id = c->id,
                               .method = "POST",
                               .path = c->d->path,
                               .peer = c->peer,
                               .status = failed ? why->status : 200,
                               .end = end == METRICS_REFUSED ? NULL : names[end],
                               .totals = completion_totals(c),
                               .total_ms = clock_ms() - c->arrived,
                               .prompt = c->rendered.data,
                               .prompt_len = c->rendered.len};
    if (failed)
        r.error = request_log_refusal(&refusal, why, c->s->o->log_prompts);
    note_cache(c, &note);
    r.cache = note.data;
    m->ends[end]++;
    metrics_add_compression(m, &c->compression);
    if (c->compression.adapted > 0)
        prompt_note_answer(c->s, c->p.session, &r.totals);
    if (end != METRICS_REFUSED) {
        histogram_add(&m->queue, r.totals.queue_ms / 1e3, 1);
        histogram_add(&m->whole, r.total_ms / 1e3, 1);
    }
    request_log_write(&c->s->o->log, &r);
    completion_keep(c, why);
    str_fini(&note);
}
