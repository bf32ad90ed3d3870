// SPDX-License-Identifier: Apache-2.0
// What the engine counts: its passes, the steps of its members, the ends of its streams, for
// engine_stats and the trace, and the means that the next pass is planned by.
#include "base/clock.h"
#include "base/num.h"
#include "engine/loop/impl.h"

static const double RECENT = 0.2; // weight of the newest step in means

static void mean_to(double *mean, double value) {
    *mean += (*mean > 0 ? RECENT : 1) * (value - *mean);
}

// Makes the counts visible.
static void publish_stats(struct engine *g) {
    g->now.slots = g->o.slots;
    g->now.running = g->now.parked = g->now.reading = 0;
    for (int i = 0; i < g->n_members; i++) {
        const struct stream *s = g->members[i];
        g->now.parked += s->parked;
        g->now.running += !s->parked;
        g->now.reading += !s->parked && !job_decodes(s->job);
    }
    g->now.page_bytes_used = session_kv_used(g->session);
    g->now.page_bytes_limit = session_kv_limit(g->session);
    g->now.experts = session_experts(g->session);
    if (g->cache)
        g->now.cache = cache_stats(g->cache);
    pthread_mutex_lock(&g->lock);
    g->stats = g->now;
    pthread_mutex_unlock(&g->lock);
}

static void trace_end(struct engine *g, const struct stream *s, enum end_reason reason,
                      const struct err *e) {
    double now = clock_ms(), chosen = s->chosen > 0 ? s->chosen : now;
    struct trace_request r = {.number = g->now.ended,
                              .submitted = s->submitted,
                              .joined = s->joined > 0 ? s->joined : now,
                              .chosen = chosen,
                              .ended = now,
                              .prompt = s->o.r.n_prompt,
                              .cached = s->joined > 0 ? atomic_load(&s->done) - s->reply.fed : 0,
                              .tokens = s->reply.n,
                              .reason = e ? "error" : end_reason_name(reason)};
    trace_request(g->trace, &r);
}

void tally_end(struct engine *g, const struct stream *s, enum end_reason reason,
               const struct err *e) {
    g->now.ended++;
    g->now.failed += e != NULL;
    g->now.cancelled += !e && reason == END_CALLER;
    if (s->joined > 0) {
        g->now.cached_tokens += atomic_load(&s->done) - s->reply.fed;
        g->now.again += s->reply.again;
    }
    trace_end(g, s, reason, e);
    publish_stats(g);
}

static int bin_of(int64_t rows) {
    int i = 0;
    while (i < ENGINE_ROW_BINS - 1 && ((int64_t)1 << i) < rows)
        i++;
    return i;
}

// What a member's step was, for the counts.
static void count_step(struct engine *g, struct stream *s, double now) {
    const struct member *m = job_member(s->job);
    if (m->rc)
        return;
    g->now.tokens += s->reply.n - atomic_load(&s->published);
    if (m->phase == MEMBER_PROMPT) {
        g->now.prompt_tokens += m->n_piece;
        return;
    }
    g->now.drafted += m->tree.n - 1;
    g->now.accepted += m->walk.count - 1;
    g->now.accept[min_i32(m->walk.count, ENGINE_ACCEPT_BINS - 1)]++;
    stream_keep_tree(s, m);
    if (s->stepped > 0 && now - s->stepped > g->now.gap_ms)
        g->now.gap_ms = now - s->stepped;
    s->stepped = now;
}

// The turns of a pass together.
static struct trace_pass sum_of(struct engine *g, double start, double ms) {
    struct trace_pass p = {.start = start,
                           .ms = ms,
                           .draft_ms = batch_times(g->batch).draft,
                           .members = g->n_turns,
                           .waiting = g->trace ? queue_waiting(g->queue) : 0};
    for (int i = 0; i < g->n_turns; i++) {
        const struct member *m = job_member(g->turns[i].job);
        bool piece = m->phase == MEMBER_PROMPT;
        p.prompt += piece ? m->n_piece : 0;
        p.rows += piece ? m->n_piece : m->tree.n;
        p.guesses += piece ? 0 : m->tree.n - 1;
        p.decoding += !piece;
        p.taken += m->walk.count;
    }
    for (int i = 0; i < g->n_members; i++)
        p.parked += g->members[i]->parked;
    return p;
}

void tally_pass(struct engine *g, double start, double now) {
    struct trace_pass p = sum_of(g, start, now - start);
    g->now.passes++;
    g->now.pass_rows += p.rows;
    g->now.rows[bin_of(p.rows)]++;
    g->now.pass_ms += p.ms;
    if (p.decoding) {
        mean_to(&g->guesses, (double)p.guesses / p.decoding);
        mean_to(&g->draft_ms, p.draft_ms);
    }
    if (p.prompt)
        g->most_rows = max_i64(g->most_rows, p.rows);
    if (p.decoding == p.members)
        mean_to(&g->step_ms, p.ms);
    for (int i = 0; i < g->n_turns; i++)
        count_step(g, g->turn_of[i], now);
    trace_pass(g->trace, &p);
    publish_stats(g);
}
