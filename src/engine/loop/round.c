// SPDX-License-Identifier: Apache-2.0
// One round of the engine: who ends, who joins, who takes part in the pass with how much, and what
// is published of it. A pass that fails, but for a lost device, is blamed on no member yet: each of
// its members goes on alone for some steps, from its text where its state was invalid, and the one
// that fails alone, with the device's status read before and after, ends with the error. Passes of
// those that are alone take turns with passes of the others.
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "engine/loop/impl.h"

// Steps that constraints count (spec/constraint/constraint.h), some 25 ns each on the engine's
// thread, of all members together between two passes: of those whose masks take much, of the
// others, and within the pass, for their guesses. And of a mask that takes much.
enum {
    MASK_ROUND = CONSTRAINT_STEPS >> 2,
    MASK_LIGHT_ROUND = MASK_ROUND / 2,
    MASK_GUESSES = MASK_ROUND / 4,
    MASK_LIGHT = MASK_ROUND / 16,
    MASK_SLICES = 8, // that a mask may have before they become longer
};

// Statistics: passes, the steps of members, the ends of streams, for engine_stats and the trace,
// and the means that the next pass is planned by.

static const double RECENT = 0.2; // weight of the newest step in means

static void move_mean(double *mean, double value) {
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
    g->now.kv_host = session_kv_host(g->session);
    g->now.pages = session_kv_pages(g->session) - g->now.kv_host.pages;
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

static void count_end(struct engine *g, const struct stream *s, enum end_reason reason,
                      const struct err *e) {
    g->now.ended++;
    g->now.failed += e != NULL;
    g->now.cancelled += !e && reason == END_CALLER;
    if (s->joined > 0) {
        g->now.cached_tokens += atomic_load(&s->done) - s->reply.fed;
        g->now.recomputed += s->reply.recomputed;
    }
    trace_end(g, s, reason, e);
    publish_stats(g);
}

static int rows_bin(int64_t rows) {
    int i = 0;
    while (i < ENGINE_ROW_BINS - 1 && ((int64_t)1 << i) < rows)
        i++;
    return i;
}

// Counts of a member's step.
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
    guess_counts_add(&g->now.guesses, m, session_drafts(g->session));
    g->now.accept[min_i32(m->walk.count, ENGINE_ACCEPT_BINS - 1)]++;
    stream_keep_tree(s, m);
    if (s->stepped > 0 && now - s->stepped > g->now.gap_ms)
        g->now.gap_ms = now - s->stepped;
    s->stepped = now;
}

// The slices of a pass together.
static struct trace_pass sum_slices(struct engine *g, double start, double ms) {
    struct trace_pass p = {.start = start,
                           .ms = ms,
                           .draft_ms = batch_times(g->batch).draft,
                           .members = g->n_slices,
                           .waiting = g->trace ? queue_waiting(g->queue) : 0};
    for (int i = 0; i < g->n_slices; i++) {
        const struct member *m = job_member(g->slices[i].job);
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

// Counts the pass of g->slices between two times of clock_ms.
static void count_pass(struct engine *g, double start, double now) {
    struct trace_pass p = sum_slices(g, start, now - start);
    g->now.passes++;
    g->now.pass_rows += p.rows;
    g->now.rows[rows_bin(p.rows)]++;
    g->now.pass_ms += p.ms;
    if (p.decoding) {
        move_mean(&g->guesses, (double)p.guesses / p.decoding);
        move_mean(&g->draft_ms, p.draft_ms);
    }
    if (p.prompt)
        g->limit_rows = max_i64(g->limit_rows, p.rows);
    if (p.decoding == p.members)
        move_mean(&g->step_ms, p.ms);
    for (int i = 0; i < g->n_slices; i++)
        count_step(g, g->slice_of[i], now);
    trace_pass(g->trace, &p);
    publish_stats(g);
}

// Ends a stream that is in no list any more.
static void end_stream(struct engine *g, struct stream *s, enum end_reason reason,
                       const struct err *e) {
    struct group *p = s->group;
    if (p && s->joined == 0)
        p->waiting--;
    if (p && p->first == s)
        p->first = NULL;
    if (p && p->waiting == 0)
        room_drop_prefix(p);
    group_drop(p);
    count_end(g, s, reason, e);
    stream_finish(s, reason, e);
    stream_drop(s);
}

// Ends a member, whose reply stays.
static void leave_batch(struct engine *g, struct stream *s, enum end_reason reason,
                        const struct err *e) {
    int i = 0;
    while (g->members[i] != s)
        i++;
    g->n_members--;
    memmove(g->members + i, g->members + i + 1,
            (size_t)(g->n_members - i) * sizeof(struct stream *));
    if (!e)
        cached_keep(g, s);
    room_leave(g, s);
    struct sequence *seq = batch_take(g->batch, s->job);
    s->job = NULL;
    end_stream(g, s, reason, e);
    room_free_sequence(g, seq);
    publish_stats(g); // without its pages
}

// Takes the stream at *at out of the waiting ones, of which `before` is the one before it.
static struct stream *unlink_waiting(struct engine *g, struct stream **at, struct stream *before) {
    struct stream *s = *at;
    *at = s->next;
    if (!s->next)
        g->waiting.last = before;
    s->next = NULL;
    queue_leave(g->queue, s);
    return s;
}

void engine_end_all(struct engine *g, const struct err *e) {
    while (g->n_members)
        leave_batch(g, g->members[g->n_members - 1], END_NONE, e);
    while (g->waiting.first)
        end_stream(g, unlink_waiting(g, &g->waiting.first, NULL), END_NONE, e);
    room_drop_spares(g);
}

static void end_cancelled(struct engine *g) {
    struct stream *before = NULL;
    for (int i = g->n_members - 1; i >= 0; i--)
        if (atomic_load(&g->members[i]->cancelled))
            leave_batch(g, g->members[i], END_CALLER, NULL);
    for (struct stream **at = &g->waiting.first; *at;) {
        if (atomic_load(&(*at)->cancelled)) {
            end_stream(g, unlink_waiting(g, at, before), END_CALLER, NULL);
            continue;
        }
        before = *at;
        at = &(*at)->next;
    }
}

// Whether it should wait for another one of its group that reads their prompt.
static bool waits_for_first(const struct stream *s) {
    return s->group && s->group->first && !s->group->prefix;
}

static int join_batch(struct engine *g, struct stream *s, struct err *e) {
    struct group *p = s->group;
    struct request r = s->o.r;
    if (p && p->prefix && !sequence_usable(p->prefix))
        room_drop_prefix(p); // another one reads the prompt again
    struct sequence *prefix = p ? p->prefix : NULL;
    bool last = prefix && p->waiting == 1; // it goes on from the prefix itself, not from a copy
    struct sequence *own = last ? prefix : prefix ? NULL : room_take_free_sequence(g);
    r.prefix = last ? NULL : prefix;
    if (r.prefix)
        room_for_fork(g);
    if (!prefix)
        cached_begin(g, s, &own);
    set_checkpoint_positions(g, s, &r, own ? sequence_len(own) : 0);
    r.in_place = own;
    r.stop = r.stop ? stream_stops : NULL;
    r.stop_arg = s;
    int rc = batch_join(g->batch, &r, &s->reply, &s->job, e);
    if (rc && own && !last)
        room_free_sequence(g, own);
    if (rc) {
        reply_fini(&s->reply);
        return rc;
    }
    if (own)
        job_exchange(s->job, own);
    if (last)
        p->prefix = NULL;
    s->mask_took = MASK_LIGHT; // nothing is known of its first one
    s->mask_last = g->masks;   // who is here already comes before it
    s->joined = clock_ms();
    atomic_store(&s->done, sequence_len(job_sequence(s->job)));
    if (p)
        p->waiting--;
    if (p && !prefix)
        p->first = s;
    g->members[g->n_members++] = s;
    g->stalled = false;
    g->now.taken++;
    stream_publish(s, STREAM_READING);
    return 0;
}

static bool somebody_decodes(const struct engine *g) {
    for (int i = 0; i < g->n_members; i++)
        if (!g->members[i]->parked && job_decodes(g->members[i]->job))
            return true;
    return false;
}

// Takes up waiting streams in their order while there are slots and memory. A first state for a
// slot takes some milliseconds to make: where others wait for their next token, that many take as
// many rounds as they need, though not so many that a pass would lack prompts.
static void admit(struct engine *g) {
    enum { LONG_MS = 40 };
    struct stream *before = NULL;
    const bool in_time = somebody_decodes(g);
    const double start = clock_ms();
    for (struct stream **at = &g->waiting.first; *at && g->n_members < g->o.slots;) {
        struct err e = {0};
        struct stream *s = *at;
        if (waits_for_first(s)) {
            before = s;
            at = &s->next;
            continue;
        }
        if (!room_to_join(g, s) || (in_time && clock_ms() - start > LONG_MS))
            return;
        if (!cached_ready(g, s)) {
            g->stalled = g->n_members == 0;
            before = s;
            at = &s->next;
            continue;
        }
        int rc = join_batch(g, s, &e);
        if (rc == ERR_MEMORY && g->n_members)
            return; // when a member has left
        (void)unlink_waiting(g, at, before);
        if (rc)
            end_stream(g, s, END_NONE, &e);
    }
}

// Tokens of a prompt that may be run before something else has to happen: the first of a group
// stops before the last one, for the others to go on from there.
static int64_t prompt_left(const struct stream *s) {
    const struct group *p = s->group;
    int64_t left = job_left(s->job);
    return left - (p && p->first == s && p->waiting > 0);
}

static void add_slice(struct engine *g, struct stream *s, int64_t rows) {
    g->slice_of[g->n_slices] = s;
    g->slices[g->n_slices++] = (struct pass_slice){s->job, rows};
}

// Rows of a pass that prompts leave to the trees of those that decode, the slices so far.
static int64_t tree_rows(const struct engine *g, int64_t rows) {
    enum { EACH = 15 };
    int64_t sum = 0;
    for (int i = 0; i < g->n_slices; i++)
        sum += min_i32(job_member(g->slices[i].job)->c.tree.budget, EACH);
    return min_i64(sum, rows / 2);
}

// Whose turn it is to be alone: the one that had its last one the longest ago; NULL: all others.
static struct stream *next_isolated(struct engine *g) {
    struct stream *next = NULL;
    bool others = false;
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        if (s->parked)
            continue;
        others = others || !s->isolated;
        if (s->isolated && (!next || s->isolated_last < next->isolated_last))
            next = s;
    }
    g->together = next && others && !g->together;
    if (!next || g->together)
        return NULL;
    next->isolated_last = ++g->isolated;
    return next;
}

static bool takes_part(const struct stream *s, const struct stream *isolated) {
    return !s->parked && (isolated ? s == isolated : !s->isolated);
}

// A device computes while masks are made, so those that are likely to take little are left for
// then; one that takes more all the same is made before a later pass.
static bool masks_first(const struct engine *g, const struct stream *s) {
    const struct exec *x = model_exec(session_model(g->session));
    return job_constrained(s->job) && (!exec_ops(x)->sample_batched || s->mask_took >= MASK_LIGHT);
}

// Works on the mask that the next token of a member is chosen by; returns what it has taken.
static int64_t prepare_masks(struct stream *s, int64_t steps) {
    int64_t before = job_mask_work(s->job);
    s->mask_waits = job_prepare_masks(s->job, steps) == ERR_UNFINISHED;
    return job_mask_work(s->job) - before;
}

// Steps of a member's next slice, which would be a whole round's. They become more until its mask
// is made or the constraint has given up: slices may keep less than they do again.
static int64_t mask_slice(const struct stream *s) {
    enum { DOUBLED = 5 };
    return (int64_t)MASK_ROUND << min_i32(s->mask_slices / MASK_SLICES, DOUBLED);
}

// Whose turn it is of those that wait, if they had their last one before that many turns.
static struct stream *next_masked(const struct engine *g, int64_t until) {
    struct stream *next = NULL;
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        if (s->mask_waits && s->mask_last <= until && (!next || s->mask_last < next->mask_last))
            next = s;
    }
    return next;
}

// The masks that members need in the pass are made before it, as far as MASK_ROUND goes; members
// whose masks are unfinished wait for a later one. Those that took little the last time, and first
// ones, come first, the others have turns: no member, and no number of them, makes others wait for
// more than these steps.
static void share_masks(struct engine *g, const struct stream *isolated) {
    int64_t room = MASK_ROUND, until = g->masks;
    int64_t light = min_i64(MASK_LIGHT, MASK_LIGHT_ROUND / max_i32(g->n_members, 1));
    struct stream *next;
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        s->mask_waits = takes_part(s, isolated) && masks_first(g, s);
        job_allow_masks(s->job, s->mask_waits ? INT64_MAX : light, MASK_GUESSES / g->n_members);
        if (s->mask_waits && s->mask_took <= MASK_LIGHT)
            prepare_masks(s, light);
    }
    while (room > 0 && (next = next_masked(g, until))) {
        bool whole = room == MASK_ROUND;
        room -= min_i64(prepare_masks(next, whole ? mask_slice(next) : room), room);
        if (!next->mask_waits || whole) // else it is the first in the next round
            next->mask_last = ++g->masks;
        next->mask_slices = next->mask_waits ? next->mask_slices + whole : 0;
        if (next->mask_waits)
            return;
    }
}

// Tokens of a prompt that may be run in this pass: the last one, after which a token is chosen,
// when the mask is there.
static int64_t prompt_left_now(const struct stream *s) {
    int64_t n = prompt_left(s);
    return s->mask_waits && n == job_left(s->job) ? n - 1 : n;
}

// Puts the next pass together. isolated: NULL, or whose it is.
static void plan_pass(struct engine *g, const struct stream *isolated) {
    enum { FEW = 4 }; // of many prompts that wait, those that are likely to share a pass
    double now = clock_ms();
    int prompts = 0, decoding, masked = 0; // members that decode, and those that will with a mask
    g->n_slices = 0;
    share_masks(g, isolated);
    double masks_ms = clock_ms() - now;
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        if (!takes_part(s, isolated) || !job_decodes(s->job))
            continue;
        masked += s->mask_waits;
        if (!s->mask_waits)
            add_slice(g, s, 1);
    }
    decoding = g->n_slices;
    for (int i = 0; i < g->n_members; i++) {
        const struct stream *s = g->members[i];
        bool reads = takes_part(s, isolated) && !job_decodes(s->job);
        g->prompts[i] = (struct prompt_slice){.left = reads ? prompt_left_now(s) : 0,
                                              .waited_ms = now - s->submitted};
        prompts += g->prompts[i].left > 0;
    }
    if (!prompts)
        return;
    int64_t room = batch_piece_rows(g->batch, decoding);
    struct pass_frame f = {.price = session_prompt_price(g->session),
                           .decoding = decoding + masked, // which keep their pace, too
                           .guesses = g->guesses * decoding,
                           .other_ms = g->draft_ms + masks_ms,
                           .prompts = min_i32(prompts, FEW),
                           .max = room - tree_rows(g, room),
                           .known = g->limit_rows,
                           .tile = exec_ops(model_exec(session_model(g->session)))->rows_tile,
                           .gap_ms = schedule_gap(g->o.max_gap_ms, g->step_ms)};
    int64_t rows = schedule_rows(&f);
    int taken = schedule_prompts(g->prompts, g->n_members, rows, schedule_token_ms(&f, rows));
    for (int order = 0; order < taken; order++)
        for (int i = 0; i < g->n_members; i++)
            if (g->prompts[i].rows && g->prompts[i].order == order)
                add_slice(g, g->members[i], g->prompts[i].rows);
}

// What its masks have taken for this pass is expected of the next one; and of one that was too much
// within a pass, that some more will be.
static void count_masks(struct stream *s) {
    enum { MORE = 16 };
    int64_t before = s->mask_seen;
    if (job_unfinished(s->job))
        s->mask_took = max_i64(s->mask_took, (int64_t)MORE * MASK_LIGHT);
    if (job_unfinished(s->job) || !job_decodes(s->job))
        return;
    s->mask_seen = job_mask_work(s->job);
    s->mask_took = max_i64(s->mask_seen - before, s->mask_took / 2);
}

static void publish_member(struct engine *g, struct stream *s, double now) {
    struct err e = {0};
    int64_t fed = sequence_len(job_sequence(s->job));
    int rc = job_failed(s->job, &e);
    if (s->reply.n && !(s->chosen > 0))
        s->chosen = s->stepped = now;
    atomic_store(&s->done, max_i64(atomic_load(&s->done), min_i64(fed, s->o.r.n_prompt)));
    if (job_ended(s->job))
        leave_batch(g, s, s->reply.end, rc ? &e : NULL);
    else
        stream_publish(s, job_decodes(s->job) ? STREAM_DECODING : STREAM_READING);
}

// A pass that it took part in has failed, or its state was invalid otherwise: it goes on alone for
// some steps, more after each failure, and without the draft, which may be what fails.
static void isolate_member(struct stream *s) {
    enum { LIMIT = 4 };
    job_undraft(s->job);
    s->isolated = 1 << (2 * min_i32(s->faults++, LIMIT));
}

// The state of a member is invalid: its text is run again.
static void restart_member(struct engine *g, struct stream *s) {
    struct err e = {0};
    isolate_member(s);
    s->stepped = 0;
    if (job_drop(s->job, &e))
        leave_batch(g, s, END_NONE, &e);
    else
        cached_again(g, s);
}

static bool is_invalid(const struct stream *s) {
    return !sequence_usable(job_sequence(s->job));
}

static void recover_invalid(struct engine *g) {
    for (int i = g->n_members - 1; i >= 0; i--)
        if (is_invalid(g->members[i]))
            restart_member(g, g->members[i]);
}

// Reserves what the pass needs; those that cannot have it end.
static void reserve_pass(struct engine *g) {
    struct err e = {0};
    struct stream *failed;
    while ((failed = room_reserve(g, &e)))
        if (is_invalid(failed))
            restart_member(g, failed);
        else
            leave_batch(g, failed, END_NONE, &e);
}

// The progress of a member that is not repeated.
static int64_t progress_of(const struct stream *s) {
    return s->reply.fed + s->reply.steps;
}

// The members of the pass have failed together, or the only one of it, which may have been alone.
static void pass_failed(struct engine *g, const struct stream *isolated, const struct err *e) {
    struct err note;
    err_set(&note, e->code, "a pass of %d requests failed (%s); %s", g->n_slices, e->text,
            isolated ? "this request ends" : "each goes on alone for some steps");
    if (g->o.session.note)
        g->o.session.note(g->o.session.note_arg, note.text);
    for (int i = 0; i < g->n_slices; i++) {
        struct stream *s = g->slice_of[i];
        if (s == isolated)
            leave_batch(g, s, END_NONE, e);
        else if (job_ended(s->job)) // it could not be put back
            publish_member(g, s, clock_ms());
        else if (!is_invalid(s)) // else it is when it begins again
            isolate_member(s);
    }
}

// What was queued after a pass of one member alone is its own, too.
static int end_isolated_pass(struct engine *g, struct stream *s, int64_t before, struct err *e) {
    int i = 0;
    int rc = exec_status(model_exec(session_model(g->session)), e);
    while (i < g->n_members && g->members[i] != s)
        i++;
    if (i == g->n_members) // it has ended
        return rc == ERR_DEVICE ? rc : 0;
    if (!rc)
        s->isolated -= progress_of(s) > before;
    else if (rc != ERR_DEVICE)
        leave_batch(g, s, END_NONE, e);
    return rc == ERR_DEVICE ? rc : 0;
}

static int run_pass(struct engine *g, struct stream *isolated, struct err *e) {
    int stepped;
    int64_t before = isolated ? progress_of(isolated) : 0;
    double start = clock_ms();
    int rc = batch_pass(g->batch, g->slices, g->n_slices, &stepped, e);
    if (rc == ERR_DEVICE)
        return rc;
    if (rc) {
        pass_failed(g, isolated, e);
        return 0;
    }
    double now = clock_ms();
    count_pass(g, start, now);
    for (int i = 0; i < g->n_slices; i++) {
        count_masks(g->slice_of[i]);
        publish_member(g, g->slice_of[i], now);
    }
    return isolated ? end_isolated_pass(g, isolated, before, e) : 0;
}

static const struct stream *oldest_member(const struct engine *g) {
    for (int i = 0; i < g->n_members; i++)
        if (!g->members[i]->parked)
            return g->members[i];
    return NULL;
}

int engine_round(struct engine *g, struct err *e) {
    g->stalled = false;
    if (g->cache)
        cache_poll(g->cache);
    end_cancelled(g);
    recover_invalid(g);
    room_keep_prefix(g);
    room_resume(g);
    admit(g);
    struct stream *isolated = next_isolated(g);
    if (isolated) { // what failed so far is not its failure
        int rc = exec_status(model_exec(session_model(g->session)), e);
        if (rc)
            return rc == ERR_DEVICE ? rc : 0;
    }
    // No member could have what the pass needs: then the oldest has it, whatever the order.
    plan_pass(g, g->stuck && !isolated ? oldest_member(g) : isolated);
    int planned = g->n_slices;
    reserve_pass(g);
    g->stuck = planned && !g->n_slices;
    return g->n_slices ? run_pass(g, isolated, e) : 0;
}
