// SPDX-License-Identifier: Apache-2.0
// Rule E (docs/exactness.md) through the engine thread: several threads submit requests with random
// sampling, biases, stops, log-probabilities and choices, with drafting or without, watch what is
// published, and cancel some at any moment. Every answer must be what the request gives alone,
// decoded plainly: tokens, the bits of the sampled logits, log-probabilities, the reason of the
// end; of a cancelled one, its beginning. What happened is counted and must not be rare.
// test_served [--cases N] [--only CASE]
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "engine/loop/engine.h"
#include "support/automaton.h"
#include "support/temp_folder.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

enum {
    CONTEXT = 400, // more than a prompt and a reply
    SHORT = 230,   // so that it is what ends some
    KINDS = 7,
    ASKS = 16,   // requests of a case
    CHOICES = 3, // answers to one, at most
    NEW = 200,
    LONGEST = 150,
    BIASES = 8,
    ENDS = 3, // tokens that end an answer
    THREADS = 4,
    ROUNDS = 4,   // of each thread
    TOGETHER = 3, // requests of a thread at a time
    EACH = 20,    // property cases that count as one of these
};

// Two tokens in a row that end a reply, and what was called.
struct stop {
    int32_t pair[2]; // [1] < 0: none
    int32_t called[NEW + 1];
    int64_t n;
};

static bool is_stop(void *arg, int32_t id) {
    struct stop *s = arg;
    bool follows = s->n && s->called[s->n - 1] == s->pair[0];
    if (s->n <= NEW)
        s->called[s->n++] = id;
    return follows && id == s->pair[1];
}

// One request with what it points at, and what it gives alone.
struct ask {
    struct request r;
    int32_t prompt[LONGEST];
    struct logit_bias bias[BIASES];
    int32_t ends[ENDS];
    int32_t pair[2];
    struct automaton *automaton; // NULL: anything goes; of all choices
    int choices;
    struct reply alone[CHOICES];
    int32_t recording[CHOICES][LONGEST + NEW]; // prompt and reply, for oracles
};

enum {
    ENDED,
    CANCELLED,
    STOPPED,
    FULL,
    DRAFTED,
    BIASED,
    ENDS_OWN,
    ENDS_LATE,
    LOGPROBS,
    PROMPTS,
    MANY,
    HELD,
    PARKED,
    MOVED,
    COUNTS
};
static const struct {
    const char *name;
    double min; // a case
} counts[COUNTS] = {{"answers compared to their end", 20},
                    {"answers cancelled", 3},
                    {"answers that a stop of two tokens ended", 1},
                    {"answers that the end of the context ended", 0.5},
                    {"guesses that became tokens", 200},
                    {"answers with biases", 5},
                    {"answers that a token of their own ended", 0.5},
                    {"answers that would have ended so before their least length", 0.5},
                    {"log-probabilities compared while others were chosen", 100},
                    {"answers with log-probabilities of the prompt", 2},
                    {"choices beside others of their prompt", 5},
                    {"answers held to an automaton", 3},
                    {"times that a member was parked", 0.2},
                    {"parked states moved to host memory", 0.05}};

struct scene {
    struct engine *g;
    struct ask ask[ASKS];
    pthread_mutex_t lock; // of what follows
    int64_t count[COUNTS];
    char failure[256]; // the first one; empty: none
};

static void fail(struct scene *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&c->lock);
    if (!c->failure[0])
        vsnprintf(c->failure, sizeof c->failure, format, args);
    pthread_mutex_unlock(&c->lock);
    va_end(args);
}

static void note(struct scene *c, int what, int64_t n) {
    pthread_mutex_lock(&c->lock);
    c->count[what] += n;
    pthread_mutex_unlock(&c->lock);
}

static void pick_sampling(struct ask *a, struct rng *g) {
    static const double temperatures[] = {0, 0.4, 0.9, 1.3};
    static const float biases[] = {-INFINITY, -100, -2, 3, 6};
    struct sample_params *p = &a->r.sample;
    p->temperature = temperatures[rng_below(g, 4)];
    p->seed = rng_next(g);
    p->top_k = rng_below(g, 3) ? 0 : 4 + rng_below(g, 40);
    p->top_p = rng_below(g, 3) ? 1 : 0.85;
    p->min_p = rng_below(g, 3) ? 0 : 0.04;
    p->repeat = rng_below(g, 3) ? 1 : 1.2;
    p->frequency = rng_below(g, 3) ? 0 : 0.3;
    p->presence = rng_below(g, 3) ? 0 : 0.2;
    if (rng_below(g, 2))
        return;
    p->n_bias = 1 + rng_below(g, BIASES);
    p->bias = a->bias;
    for (int i = 0; i < p->n_bias; i++)
        a->bias[i] =
            (struct logit_bias){i * 31 + (int32_t)rng_below(g, 31), biases[rng_below(g, 5)]};
}

static void pick_ask(struct ask *a, struct rng *g) {
    *a = (struct ask){.pair = {-1, -1}};
    request_init(&a->r);
    a->r.prompt = a->prompt;
    a->r.n_prompt = 1 + rng_below(g, rng_below(g, 2) ? LONGEST : 30);
    for (int64_t i = 0; i < a->r.n_prompt; i++)
        a->prompt[i] = i > 20 && rng_below(g, 2) ? a->prompt[i - 17] : (int32_t)rng_below(g, 250);
    a->r.max_tokens = rng_below(g, 2) ? 1 + rng_below(g, NEW / 4) : NEW - rng_below(g, 40);
    a->r.ignore_eos = rng_below(g, 4) > 0;
    a->r.logit_hash = true;
    a->r.logprobs = rng_below(g, 2) ? (int)rng_below(g, 8) : -1;
    a->r.prompt_logprobs = rng_below(g, 4) == 0;
    a->choices = rng_below(g, 3) ? 1 : 2 + (int)rng_below(g, CHOICES - 1);
    pick_sampling(a, g);
}

// Tokens of a reply that from now on end it, at times not before some length. True: one of them
// came before that.
static bool pick_ends(struct ask *a, const struct reply *whole, struct rng *g) {
    if (whole->n < 4 || rng_below(g, 3))
        return false;
    int64_t at = rng_below(g, (uint32_t)whole->n);
    for (int i = 0; i < ENDS; i++)
        a->ends[i] = i ? (int32_t)rng_below(g, 250) : whole->ids[at];
    a->r.stop_ids = a->ends;
    a->r.n_stop_ids = ENDS;
    if (rng_below(g, 2))
        a->r.min_tokens = at + 1 + rng_below(g, 10);
    return a->r.min_tokens > 0;
}

static bool ended_itself(const struct ask *a, const struct reply *y) {
    bool is = false;
    for (int k = 0; k < a->r.n_stop_ids && y->n > 0; k++)
        is |= y->ids[y->n - 1] == a->ends[k];
    return is;
}

// Whether a reply ends at its first end, and at none among its first tokens that it may do without.
static bool ends_well(const struct ask *a, const struct reply *y) {
    for (int64_t i = 0; i < y->n; i++)
        for (int k = 0; k < a->r.n_stop_ids; k++)
            if (y->ids[i] == a->ends[k] &&
                (i + 1 < y->n || y->end != END_STOP || (i < a->r.min_tokens && !a->automaton)))
                return false;
    return true;
}

// The replies of the request alone, each choice for itself; sometimes with a stop that
// lies in the first one.
static int run_alone(struct ask *a, struct session *s, struct rng *g, int64_t *late,
                     struct err *e) {
    struct stop stop = {.pair = {-1, -1}};
    struct reply whole = {0};
    int rc = rng_below(g, 4)
                 ? 0
                 : automaton_create(&a->automaton, model_params_of(session_model(s))->vocab, false,
                                    rng_next(g), e);
    a->r.constraint = a->automaton ? a->automaton->constraint : NULL;
    if (!rc)
        rc = session_generate(s, &a->r, &whole, e);
    if (!rc && whole.n > 1 && rng_below(g, 3) == 0) {
        int64_t at = 1 + rng_below(g, (uint32_t)whole.n - 1);
        memcpy(a->pair, &whole.ids[at - 1], sizeof a->pair);
    }
    if (!rc)
        *late += pick_ends(a, &whole, g);
    reply_fini(&whole);
    for (int i = 0; !rc && i < a->choices; i++) {
        struct request r = a->r;
        stop.n = 0;
        memcpy(stop.pair, a->pair, sizeof stop.pair);
        r.stop = is_stop;
        r.stop_arg = &stop;
        r.sample.choice = (uint64_t)i;
        rc = session_generate(s, &r, &a->alone[i], e);
        if (!rc && !ends_well(a, &a->alone[i]))
            rc = err_set(e, ERR_STATE, "an answer does not end where it has to");
        memcpy(a->recording[i], a->prompt, (size_t)r.n_prompt * sizeof *a->prompt);
        if (!rc)
            memcpy(a->recording[i] + r.n_prompt, a->alone[i].ids,
                   (size_t)a->alone[i].n * sizeof *a->prompt);
    }
    return rc;
}

// A thread waits for notices of all its streams.
struct caller {
    struct scene *c;
    struct rng rng;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t notices;
};

static void tell(void *arg) {
    struct caller *k = arg;
    pthread_mutex_lock(&k->lock);
    k->notices++;
    pthread_cond_signal(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static int64_t notices_of(struct caller *k) {
    pthread_mutex_lock(&k->lock);
    int64_t n = k->notices;
    pthread_mutex_unlock(&k->lock);
    return n;
}

static bool wait_for(struct caller *k, int64_t seen) {
    struct timespec until;
    bool late = false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    pthread_mutex_lock(&k->lock);
    while (k->notices <= seen && !late)
        late = pthread_cond_timedwait(&k->changed, &k->lock, &until) != 0;
    pthread_mutex_unlock(&k->lock);
    if (late)
        fail(k->c, "nothing has happened for two minutes");
    return !late;
}

// One answer that a caller waits for.
struct shot {
    const struct ask *ask;
    const struct reply *want;
    struct stream *s;
    struct stop stop;
    int64_t cancel; // once there are so many tokens; beyond all: never
    int64_t seen;   // tokens compared so far
    bool cancelled;
};

static bool same_logprobs(const struct logprobs *a, const struct logprobs *b, int64_t from,
                          int64_t to) {
    for (int64_t i = from; i < to; i++) {
        struct token_logprobs p = logprobs_at(a, i), q = logprobs_at(b, i);
        if (p.n != q.n || memcmp(&p.chosen, &q.chosen, sizeof p.chosen) != 0 ||
            memcmp(p.ids, q.ids, (size_t)p.n * sizeof *p.ids) != 0 ||
            memcmp(p.logp, q.logp, (size_t)p.n * sizeof *p.logp) != 0)
            return false;
    }
    return true;
}

// Compares what has been published since the last time.
static void follow(struct caller *k, struct shot *t) {
    const struct reply *y = stream_reply(t->s), *want = t->want;
    const int32_t *ids;
    int64_t n = stream_tokens(t->s, &ids);
    if (n > want->n || (n && memcmp(ids, want->ids, (size_t)n * sizeof *ids) != 0))
        fail(k->c, "after %lld tokens an answer is another than alone", (long long)n);
    else if (t->ask->r.logprobs >= 0 && !same_logprobs(&y->logprobs, &want->logprobs, t->seen, n))
        fail(k->c, "a log-probability among tokens %lld to %lld is another than alone",
             (long long)t->seen, (long long)n);
    if (t->ask->r.logprobs >= 0)
        note(k->c, LOGPROBS, n - t->seen);
    t->seen = n;
}

static void compare_end(struct caller *k, const struct shot *t, const struct stream_end *end) {
    const struct reply *y = stream_reply(t->s), *want = t->want;
    if (end->rc)
        fail(k->c, "an answer has failed: %s", end->err.text);
    else if (t->cancelled && end->reason == END_CALLER)
        note(k->c, CANCELLED, 1);
    else if (end->tokens != want->n || end->reason != want->end || end->hash != want->hash)
        fail(k->c, "%lld tokens, end %s, hash %016llx; alone %lld tokens, end %s, hash %016llx",
             (long long)end->tokens, end_reason_name(end->reason), (unsigned long long)end->hash,
             (long long)want->n, end_reason_name(want->end), (unsigned long long)want->hash);
    else if (t->stop.n != end->tokens ||
             memcmp(t->stop.called, y->ids, (size_t)end->tokens * sizeof *y->ids) != 0)
        fail(k->c, "the stop was asked %lld times for %lld tokens, or for others",
             (long long)t->stop.n, (long long)end->tokens);
    else if (t->ask->r.prompt_logprobs &&
             !same_logprobs(&y->prompt_logprobs, &want->prompt_logprobs, 0, t->ask->r.n_prompt - 1))
        fail(k->c, "a log-probability of a prompt is another than alone");
    else
        note(k->c, ENDED, 1);
    note(k->c, STOPPED,
         end->reason == END_STOP && end->tokens > 1 && t->stop.pair[1] >= 0 &&
             t->stop.called[t->stop.n - 1] == t->stop.pair[1]);
    note(k->c, FULL, end->reason == END_CONTEXT && end->accepted > 0);
    note(k->c, DRAFTED, end->accepted);
    note(k->c, BIASED, t->ask->r.sample.n_bias > 0);
    note(k->c, ENDS_OWN, end->reason == END_STOP && ended_itself(t->ask, want));
    note(k->c, PROMPTS, t->ask->r.prompt_logprobs);
}

// Looks at one answer; whether it goes on.
static bool look(struct caller *k, struct shot *t) {
    struct stream_end end;
    bool ended = stream_ended(t->s, &end);
    follow(k, t);
    if (!ended && t->seen < t->cancel)
        return true;
    if (!ended && !t->cancelled && rng_below(&k->rng, 2)) {
        stream_cancel(t->s);
        t->cancelled = true;
        return true;
    }
    if (!ended && t->cancelled)
        return true;
    if (ended)
        compare_end(k, t, &end);
    else
        note(k->c, CANCELLED, 1); // by its release
    stream_release(t->s);
    t->s = NULL;
    return false;
}

// Submits all choices of one request. Returns how many there are.
static int submit(struct caller *k, struct shot *t) {
    static const enum speculate ways[] = {SPECULATE_OFF,   SPECULATE_TREE,   SPECULATE_ORACLE,
                                          SPECULATE_CHAIN, SPECULATE_LOOKUP, SPECULATE_ORACLE};
    const struct ask *a = &k->c->ask[rng_below(&k->rng, ASKS)];
    struct stream_options o[CHOICES];
    struct stream *s[CHOICES];
    struct err e = {0};
    for (int i = 0; i < a->choices; i++) {
        bool cancels = rng_below(&k->rng, 5) == 0;
        t[i] = (struct shot){.ask = a, .want = &a->alone[i]};
        t[i].cancel = cancels ? (int64_t)rng_below(&k->rng, NEW / 4) : NEW + 1;
        memcpy(t[i].stop.pair, a->pair, sizeof a->pair);
        o[i] = (struct stream_options){.r = a->r, .notify = tell, .notify_arg = k};
        o[i].r.how = ways[rng_below(&k->rng, 6)];
        o[i].r.oracle = (struct draft_config){.recording = a->recording[i],
                                              .n_recording = a->r.n_prompt + a->alone[i].n,
                                              .error_rate = 0.1,
                                              .with_draft = rng_below(&k->rng, 2)};
        o[i].r.auto_budget = rng_below(&k->rng, 2);
        o[i].r.tree.budget = 22;
        o[i].r.stop = is_stop;
        o[i].r.stop_arg = &t[i].stop;
        o[i].r.sample.choice = (uint64_t)i;
    }
    if (engine_submit_choices(k->c->g, o, a->choices, s, &e)) {
        fail(k->c, "%s", e.text);
        return 0;
    }
    for (int i = 0; i < a->choices; i++)
        t[i].s = s[i];
    note(k->c, MANY, a->choices > 1 ? a->choices : 0);
    note(k->c, HELD, a->automaton ? a->choices : 0);
    return a->choices;
}

static void nap(struct rng *g) {
    struct timespec t = {0, (long)rng_below(g, 2000000)};
    nanosleep(&t, NULL);
}

static void *call(void *arg) {
    struct caller *k = arg;
    static _Thread_local struct shot shots[TOGETHER * CHOICES];
    for (int round = 0; round < ROUNDS; round++) {
        int n = 0, left = 1;
        for (int i = 0; i < TOGETHER; i++, nap(&k->rng))
            n += submit(k, shots + n);
        for (bool well = true; left && well;) {
            int64_t seen = notices_of(k);
            left = 0;
            for (int i = 0; i < n; i++)
                left += shots[i].s && look(k, &shots[i]);
            well = !left || wait_for(k, seen);
        }
        for (int i = 0; i < n; i++)
            stream_release(shots[i].s);
    }
    return NULL;
}

// Wide or narrow, with memory for all or for one, and prompts in pieces of any size.
static void pick_engine(struct engine_options *o, const struct memory_plan *plan, struct rng *g) {
    static const int slots[] = {16, 16, 5, 3}, chunks[] = {0, 7, 64};
    o->slots = slots[rng_below(g, 4)];
    o->kv_limit = rng_below(g, 4) ? plan_kv(plan, LONGEST + NEW) : 0;
    o->max_gap_ms = rng_below(g, 2) ? 1 : 0;
    o->session.chunk = chunks[rng_below(g, 3)];
    o->cache.host = o->session.chunk == 7 ? 0 : 4 * o->kv_limit; // nothing is kept but for them
    o->session.threads = 1 + (int)rng_below(g, 2);
}

static int run_threads(struct scene *c, struct rng *g) {
    struct caller k[THREADS];
    int n = 0;
    for (; n < THREADS; n++) {
        k[n] = (struct caller){.c = c, .rng = {rng_next(g)}};
        pthread_mutex_init(&k[n].lock, NULL);
        pthread_cond_init(&k[n].changed, NULL);
        if (pthread_create(&k[n].thread, NULL, call, &k[n]))
            break;
    }
    for (int i = 0; i < n; i++)
        WAIT_JOIN(k[i].thread, NULL);
    return n == THREADS ? 0 : ERR_MEMORY;
}

static int open_engine(struct engine **out, const struct engine_options *o, struct err *e) {
    int rc = engine_create(out, o, e);
    WAIT_UNTIL(rc || engine_state(*out, NULL) != ENGINE_LOADING);
    return rc || engine_state(*out, e) == ENGINE_READY ? rc : ERR_STATE;
}

// alone: the session that plain replies come from.
static int run_case(int number, struct session *alone, const struct engine_options *files,
                    int64_t total[COUNTS], struct err *e) {
    static struct scene c;
    struct rng g = {rng_mix((uint64_t)number)};
    struct engine_options o = *files;
    struct memory_plan plan;
    int rc = session_measure(&o.session, &plan, e);
    c = (struct scene){.g = NULL};
    pthread_mutex_init(&c.lock, NULL);
    for (int i = 0; i < ASKS && !rc; i++) {
        pick_ask(&c.ask[i], &g);
        rc = run_alone(&c.ask[i], alone, &g, &c.count[ENDS_LATE], e);
    }
    pick_engine(&o, &plan, &g);
    if (!rc)
        rc = open_engine(&c.g, &o, e);
    if (!rc && run_threads(&c, &g))
        rc = err_set(e, ERR_MEMORY, "no threads for the callers");
    if (c.g)
        c.count[PARKED] = engine_stats(c.g).parkings;
    if (c.g)
        c.count[MOVED] = engine_stats(c.g).cache.holds;
    engine_destroy(c.g);
    if (!rc && c.failure[0])
        rc = err_set(e, ERR_STATE, "%s", c.failure);
    for (int i = 0; i < ASKS; i++) {
        struct automaton *a = c.ask[i].automaton;
        for (int j = 0; j < CHOICES; j++)
            reply_fini(&c.ask[i].alone[j]);
        if (a && a->live && !rc)
            rc = err_set(e, ERR_STATE, "%lld states were not dropped", (long long)a->live);
        constraint_drop(a ? a->constraint : NULL);
    }
    for (int i = 0; i < COUNTS; i++)
        total[i] += c.count[i];
    pthread_mutex_destroy(&c.lock);
    return rc;
}

static int report(const int64_t total[COUNTS], int cases) {
    int rare = 0;
    for (int i = 0; i < COUNTS; i++) {
        bool few = (double)total[i] < floor(counts[i].min * cases);
        printf("  %-54s %8lld (at least %g)%s\n", counts[i].name, (long long)total[i],
               counts[i].min * cases, few ? "  TOO FEW" : "");
        rare += few;
    }
    return rare;
}

// Model pairs: recurrent layers, without experts and with them; windows next to layers without, in
// a context that ends before some replies do; the first two again, where replies see a window of
// the text in layers without one of their own, and the third, where they see a page besides that is
// chosen.
struct kind {
    struct tiny_pair files;
    struct engine_options o;
    struct session *alone;
};

static int open_kind(struct kind *k, int number, struct err *e) {
    const int i = number % 4;
    const bool windows = i % 2;
    struct tiny_shape t = windows ? tiny_shape_plain() : tiny_shape_default();
    if (windows) {
        t.form = i == 1 ? TINY_FORM_GEMMA4 : TINY_FORM_OSS;
        t.heads = 4;
        t.kv_heads = 2;
    }
    if (i >= 2)
        tiny_shape_experts(&t);
    struct tiny_draft_shape d = tiny_draft_default(&t);
    d.yarn = d.biased = t.form == TINY_FORM_OSS;
    snprintf(k->files.target, sizeof k->files.target, "%d.gguf", number);
    snprintf(k->files.draft, sizeof k->files.draft, "%d-draft.gguf", number);
    int rc = tiny_target_write(&t, k->files.target, e);
    if (!rc)
        rc = tiny_draft_write(&t, &d, k->files.draft, e);
    k->o = engine_options_default();
    k->o.session.model = k->files.target;
    k->o.session.threads = 2;
    k->o.session.target.max_ctx = windows ? SHORT : CONTEXT;
    if (i >= 2)
        k->o.session.target.codec_k = k->o.session.target.codec_v = KV_Q8_0;
    if (number >= 4)
        k->o.session.target.view = (struct view_rule){.window = KV_PAGE, .chosen = number == 6};
    if (!rc)
        rc = session_open(&k->alone, &k->o.session, e);
    k->o.session.draft = k->files.draft;
    return rc;
}

int main(int argc, char **argv) {
    static struct kind kinds[KINDS];
    struct err e = {0};
    int64_t total[COUNTS] = {0};
    int cases = PROPERTY_CASES / EACH > KINDS ? PROPERTY_CASES / EACH : KINDS, only = -1,
        failed = 0, rc = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--cases"))
            cases = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = atoi(argv[i + 1]);
    }
    rc = temp_folder_enter("served", &e);
    for (int i = 0; i < KINDS && !rc; i++)
        rc = open_kind(&kinds[i], i, &e);
    for (int i = 0; i < cases && !rc; i++) {
        const struct kind *k = &kinds[i % KINDS];
        if (only >= 0 && i != only)
            continue;
        if (!run_case(i, k->alone, &k->o, total, &e))
            continue;
        fprintf(stderr, "case %d: %s\n", i, e.text);
        failed++;
    }
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    for (int i = 0; i < KINDS; i++) {
        session_close(kinds[i].alone);
        tiny_pair_remove(&kinds[i].files);
    }
    return rc || failed || (only < 0 && report(total, cases));
}
