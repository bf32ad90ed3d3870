// SPDX-License-Identifier: Apache-2.0
// Rule E (docs/exactness.md) with the prefix cache: random conversations that go on, are edited,
// forked and cancelled, several of them in the same passes, with drafting and without, together
// with a cache that is ample or that must drop most of what it keeps, whose copies are done at once
// or late. Every answer must be what the same prompt gives alone without a cache: tokens and the
// bits of the sampled logits. test_cached [--cases N] [--only CASE]
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/num.h"
#include "base/rng.h"
#include "engine/batch/batch.h"
#include "engine/loop/engine.h"
#include "support/copies.h"
#include "support/temp_folder.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

static const char *const why_names[] = {"off",      "hit",     "new",   "changed", "evicted",
                                        "settings", "between", "failed"}; // by enum cache_why

enum {
    CONTEXT = 768,
    TALKS = 5,    // conversations
    ROUNDS = 6,   // of an engine; a case has two
    TOGETHER = 4, // requests of a round at most
    NEW = 40,
    LONGEST = CONTEXT - NEW - 1,
    PLACES = 8,
    EACH = 8, // property cases that count as one of these
    KINDS = 13,
};

static const char folder[] = "cache"; // of the cache's files

// A text so far, and where its turns begin.
struct talk {
    int32_t ids[CONTEXT];
    int64_t n;
    int64_t places[PLACES];
    int n_places;
};

enum { ANSWERS, HITS, CACHED, CANCELLED, EVICTED, DRAFTED, WRITTEN, LOADED, REMOVED, COUNTS };
static const struct {
    const char *name;
    double min; // a case
} counts[COUNTS] = {{"answers compared", 15},
                    {"prompts found in the cache", 5},
                    {"tokens that were not run", 500},
                    {"answers cancelled", 0.5},
                    {"entries dropped for others", 3},
                    {"guesses that became tokens", 30},
                    {"files written", 10},
                    {"files read", 1},
                    {"files removed for others", 1}};

struct shot {
    struct talk *t;
    struct request r;
    struct stream *s;
    struct reply want;
    int32_t recording[CONTEXT + NEW]; // prompt and reply, for oracles
    bool cancels;
};

static void note_place(struct talk *t) {
    if (t->n_places < PLACES && t->n > (t->n_places ? t->places[t->n_places - 1] : 0))
        t->places[t->n_places++] = t->n;
}

static void cut(struct talk *t, int64_t n) {
    t->n = n;
    while (t->n_places && t->places[t->n_places - 1] > n)
        t->n_places--;
}

static void say(struct talk *t, int64_t n, struct rng *g) {
    note_place(t);
    for (int64_t i = 0; i < n && t->n < LONGEST; i++, t->n++)
        t->ids[t->n] =
            t->n > 20 && rng_below(g, 2) ? t->ids[t->n - 17] : (int32_t)rng_below(g, 250);
}

// The next turn of a conversation: mostly it goes on, sometimes it was edited or parts from
// another.
static void next_turn(struct talk *all, struct talk *t, struct rng *g) {
    uint32_t how = rng_below(g, 10);
    if (t->n > LONGEST - 80 || how == 0)
        cut(t, rng_below(g, 60));
    else if (how == 1)
        cut(t, rng_below(g, (uint32_t)t->n + 1));
    else if (how == 2)
        *t = all[rng_below(g, TALKS)];
    else if (how == 3 && t->n)
        t->ids[rng_below(g, (uint32_t)t->n)] = (int32_t)rng_below(g, 250);
    if (how == 4 && t->n)
        return; // called again
    say(t, 1 + rng_below(g, how & 1 ? 150 : 30), g);
}

static void pick_request(struct shot *h, struct rng *g) {
    struct request *r = &h->r;
    request_init(r);
    r->prompt = h->t->ids;
    r->n_prompt = h->t->n;
    r->max_tokens = rng_below(g, 8) ? 1 + rng_below(g, NEW) : 0;
    r->ignore_eos = true;
    r->logit_hash = true;
    r->sample.temperature = rng_below(g, 2) ? 0 : 0.7;
    r->sample.seed = rng_next(g);
    h->cancels = rng_below(g, 8) == 0;
}

static int open_engine(struct engine **out, const struct engine_options *o, struct err *e) {
    int rc = engine_create(out, o, e);
    WAIT_UNTIL(rc || engine_state(*out, NULL) != ENGINE_LOADING);
    return rc || engine_state(*out, e) == ENGINE_READY ? rc : ERR_STATE;
}

// Hands a request over, with some way of guessing.
static int submit(struct engine *g, struct shot *h, struct rng *r, struct err *e) {
    static const enum speculate ways[] = {SPECULATE_OFF,   SPECULATE_TREE,   SPECULATE_ORACLE,
                                          SPECULATE_CHAIN, SPECULATE_LOOKUP, SPECULATE_ORACLE};
    struct stream_options o = {.r = h->r, .positions = {h->t->places, h->t->n_places}};
    size_t prompt = (size_t)h->r.n_prompt, n = (size_t)h->want.n;
    memcpy(h->recording, h->r.prompt, prompt * sizeof *h->recording);
    if (n)
        memcpy(h->recording + prompt, h->want.ids, n * sizeof *h->recording);
    o.r.how = ways[rng_below(r, 6)];
    o.r.oracle = (struct draft_config){.recording = h->recording,
                                       .n_recording = (int64_t)(prompt + n),
                                       .error_rate = 0.1,
                                       .with_draft = rng_below(r, 2)};
    o.r.auto_budget = rng_below(r, 2); // as many as pay may be none
    o.r.tree.budget = 22;
    return engine_submit(g, &o, &h->s, e);
}

static int compare(const struct shot *h, const struct stream_end *end, struct err *e) {
    const int32_t *ids;
    int64_t n = stream_tokens(h->s, &ids);
    size_t bytes = (size_t)n * sizeof *ids;
    bool part = end->reason == END_CALLER && h->cancels;
    if (end->rc)
        return err_set(e, end->rc, "an answer has failed: %s", end->err.text);
    if (n > h->want.n || (n && memcmp(ids, h->want.ids, bytes) != 0) ||
        (!part && (n != h->want.n || end->hash != h->want.hash)))
        return err_set(e, ERR_STATE,
                       "a prompt of %lld tokens, %lld of them cached (%s), has another answer than "
                       "without the cache",
                       (long long)end->prompt, (long long)end->cached, why_names[end->cache.why]);
    if (end->cached > end->cache.common || end->cached >= end->prompt)
        return err_set(e, ERR_STATE, "%lld cached of %lld common ones", (long long)end->cached,
                       (long long)end->cache.common);
    return 0;
}

// Whether it has ended; it is cancelled where it is to be.
static bool look_at_end(struct shot *h, struct stream_end *end) {
    const int32_t *ids;
    if (h->cancels && stream_tokens(h->s, &ids) > 2)
        stream_cancel(h->s);
    return stream_ended(h->s, end);
}

// Several conversations go on at a time.
static int run_round(struct engine *g, struct session *alone, struct talk *talks, struct rng *r,
                     int64_t count[COUNTS], struct err *e) {
    struct shot shots[TOGETHER] = {0};
    int n = 1 + (int)rng_below(r, TOGETHER), rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        struct shot *h = &shots[i];
        h->t = &talks[(rng_below(r, 3) + (uint32_t)i) % TALKS];
        for (int j = 0; j < i; j++)
            if (shots[j].t == h->t) // it waits for its answer
                h->t = &talks[(h->t - talks + 1) % TALKS], j = -1;
        next_turn(talks, h->t, r);
        pick_request(h, r);
        rc = session_generate(alone, &h->r, &h->want, e);
    }
    for (int i = 0; i < n && !rc; i++)
        rc = submit(g, &shots[i], r, e);
    for (int i = 0; i < n; i++) {
        struct shot *h = &shots[i];
        struct stream_end end;
        if (h->s) {
            WAIT_UNTIL(look_at_end(h, &end));
            rc = rc ? rc : compare(h, &end, e);
            stream_release(h->s);
            count[ANSWERS]++;
            count[HITS] += end.cached > 0;
            count[CACHED] += end.cached;
            count[CANCELLED] += end.reason == END_CALLER;
            count[DRAFTED] += end.accepted;
        }
        for (int64_t j = 0; !rc && rng_below(r, 4) && j < h->want.n && h->t->n < LONGEST; j++)
            h->t->ids[h->t->n++] = h->want.ids[j];
        reply_fini(&h->want);
    }
    return rc;
}

static void pick_engine(struct engine_options *o, const struct memory_plan *plan, struct rng *g) {
    static const int64_t rams[] = {64 << 20, 64 << 20, 3 << 20, 1 << 20};
    static const int chunks[] = {0, 7, 64};
    o->slots = 2 + (int)rng_below(g, 4);
    o->kv_limit = rng_below(g, 2) ? plan_kv(plan, CONTEXT) : 0;
    o->session.chunk = chunks[rng_below(g, 3)];
    o->cache.ram = rams[rng_below(g, 4)];
    o->cache.grid = rng_below(g, 2) ? 64 : 0;
    o->cache.dir = rng_below(g, 3) ? folder : NULL;
    o->cache.disk = rng_below(g, 2) ? 64 << 20 : 4 << 20;
}

// One life of an engine: what it has left in the folder is the next one's.
static int run_life(struct session *alone, const struct engine_options *o, struct talk *talks,
                    struct rng *g, int64_t total[COUNTS], struct err *e) {
    struct engine *engine = NULL;
    int rc = open_engine(&engine, o, e);
    for (int i = 0; i < ROUNDS && !rc; i++)
        rc = run_round(engine, alone, talks, g, total, e);
    if (engine) {
        struct cache_stats s = engine_stats(engine).cache;
        total[EVICTED] += s.evicted;
        total[WRITTEN] += s.written;
        total[LOADED] += s.loaded;
        total[REMOVED] += s.removed;
        if (!rc && (s.bytes > s.limit || s.disk_bytes > s.disk_limit || s.failed))
            rc = err_set(e, ERR_STATE,
                         "the cache holds %lld of %lld bytes, and %lld of %lld on the disk; %lld "
                         "jobs failed",
                         (long long)s.bytes, (long long)s.limit, (long long)s.disk_bytes,
                         (long long)s.disk_limit, (long long)s.failed);
    }
    engine_destroy(engine);
    return rc;
}

static int run_case(int number, struct session *alone, const struct engine_options *files,
                    int64_t total[COUNTS], struct err *e) {
    static struct talk talks[TALKS];
    struct rng g = {rng_mix((uint64_t)number + 77)};
    struct engine_options o = *files;
    memset(talks, 0, sizeof talks);
    pick_engine(&o, session_plan(alone), &g);
    struct late_copies how = {.seed = (uint64_t)number, .chance = 1 + rng_below(&g, 40)};
    struct copy_backend late = copies_late(&how);
    cpu_copies = rng_below(&g, 2) ? &late : NULL;
    int rc = 0;
    for (int life = 0; life < 2 && !rc; life++)
        rc = run_life(alone, &o, talks, &g, total, e);
    temp_folder_remove(folder);
    cpu_copies = NULL;
    return rc;
}

// Model pairs: recurrent layers or none, a draft with a window, other codecs, sparse reading,
// windows of the target next to layers without, keys and values in one, experts; replies that see a
// window, with recurrent layers and without, and the same with pages that are chosen.
struct kind {
    struct tiny_pair files;
    struct session_options o;
    struct session *alone;
};

static struct tiny_shape shape_of(int i) {
    if (i >= 9)
        return i % 2 ? tiny_shape_default() : tiny_shape_plain();
    static const enum tiny_form forms[KINDS] = {[4] = TINY_FORM_GEMMA4,
                                                [5] = TINY_FORM_OSS,
                                                [6] = TINY_FORM_LAGUNA,
                                                [7] = TINY_FORM_DEEPSEEK,
                                                [8] = TINY_FORM_GEMMA3};
    struct tiny_shape t = i % 2 || i >= 4 ? tiny_shape_plain() : tiny_shape_default();
    if (i < 4)
        return t;
    t.form = forms[i];
    t.heads = 4;
    t.kv_heads = 2;
    if (t.form == TINY_FORM_LAGUNA || t.form == TINY_FORM_DEEPSEEK)
        t.rope_dims = t.head_dim / 2;
    if (t.form != TINY_FORM_GEMMA4 && t.form != TINY_FORM_GEMMA3)
        tiny_shape_experts(&t);
    return t;
}

static int open_kind(struct kind *k, int i, struct err *e) {
    struct tiny_shape t = shape_of(i);
    struct tiny_draft_shape d = tiny_draft_default(&t);
    d.laguna = t.form == TINY_FORM_LAGUNA;
    d.yarn = t.form == TINY_FORM_DEEPSEEK || t.form == TINY_FORM_OSS;
    d.biased = t.form == TINY_FORM_OSS;
    snprintf(k->files.target, sizeof k->files.target, "%d.gguf", i);
    snprintf(k->files.draft, sizeof k->files.draft, "%d-draft.gguf", i);
    d.window = i == 2 ? 96 : 0;
    int rc = tiny_target_write(&t, k->files.target, e);
    if (!rc)
        rc = tiny_draft_write(&t, &d, k->files.draft, e);
    k->o = session_options_default();
    k->o.model = k->files.target;
    k->o.draft = k->files.draft;
    k->o.threads = 2;
    k->o.target.max_ctx = CONTEXT;
    k->o.make_plan = true;
    if (i >= 2 && i % 3 != 1)
        k->o.target.codec_k = k->o.target.codec_v = KV_Q8_0;
    if (i == 3)
        k->o.target.sparse =
            (struct sparse_rule){.on = true, .alpha = 0.9F, .sinks = 1, .window = 2};
    if (i >= 9)
        k->o.target.view = (struct view_rule){.window = KV_PAGE, .chosen = i >= 11 ? 2 : 0};
    return rc ? rc : session_open(&k->alone, &k->o, e);
}

static int report(const int64_t total[COUNTS], int cases) {
    int rare = 0;
    for (int i = 0; i < COUNTS; i++) {
        bool few = (double)total[i] < floor(counts[i].min * cases);
        printf("  %-36s %8lld (at least %g)%s\n", counts[i].name, (long long)total[i],
               floor(counts[i].min * cases), few ? " too few" : "");
        rare += few && cases >= KINDS;
    }
    return rare;
}

int main(int argc, char **argv) {
    static struct kind kinds[KINDS];
    int64_t total[COUNTS] = {0};
    struct err e = {0};
    int cases = PROPERTY_CASES / EACH > KINDS ? PROPERTY_CASES / EACH : KINDS, only = -1, rc = 0,
        done = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--cases"))
            cases = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = atoi(argv[i + 1]);
    }
    rc = temp_folder_enter("cached", &e);
    for (int i = 0; i < KINDS && !rc; i++)
        rc = open_kind(&kinds[i], i, &e);
    for (int i = only >= 0 ? only : 0; i < (only >= 0 ? only + 1 : cases) && !rc; i++, done++) {
        struct kind *k = &kinds[i % KINDS];
        struct engine_options o = engine_options_default();
        o.session = k->o;
        rc = run_case(i, k->alone, &o, total, &e);
        if (rc)
            printf("case %d: %s\n", i, e.text);
    }
    if (rc && !done)
        printf("%s\n", e.text);
    printf("%d cases\n", done);
    int rare = report(total, done);
    for (int i = 0; i < KINDS; i++) {
        session_close(kinds[i].alone);
        tiny_pair_remove(&kinds[i].files);
    }
    return rc || rare ? 1 : 0;
}
