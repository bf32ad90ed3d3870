// SPDX-License-Identifier: Apache-2.0
// The engine thread against requests run alone: whatever joins, is cancelled or shares its prompt,
// tokens and logits are those of session_generate. Faults, full queues, requests that can never fit
// and an engine that is stopped end with their sentence and never hang.
#include "engine/batch/batch.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "engine/loop/scheduler.h"
#include "support/automaton.h"
#include "support/copies.h"
#include "support/faulty.h"
#include "support/wait.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

static int setup(void **state) {
    static const int lengths[] = {1, 31, 33, 64, 95, 130, 199, 240, 65, 2, 128, 70};
    static struct engine_rig f;
    *state = &f;
    return rig_open(&f, "engine", lengths, RIG_MAX, 60);
}

static int teardown(void **state) {
    rig_close(*state);
    return 0;
}

// All at once, with fewer slots than requests.
static void same_as_alone(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream *s[RIG_MAX];
    int64_t tokens = 0, prompt = 0;
    o.slots = 5;
    struct engine *g = rig_engine(f, &o);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < f->n; i++)
            s[i] = rig_submit(f, g, &f->r[i]);
        for (int i = 0; i < f->n; i++) {
            struct stream_end end = rig_end(f, s[i]);
            rig_same(s[i], &end, &f->alone[i]);
            assert_int_equal(end.prompt, f->r[i].n_prompt);
            assert_int_equal(end.cached, 0);
            assert_int_equal(end.steps + end.accepted + 1, end.tokens);
            assert_true(end.queue_ms >= 0 && end.prompt_ms > 0 && end.decode_ms >= 0);
            assert_int_equal(stream_progress(s[i]).phase, STREAM_ENDED);
            assert_int_equal(stream_progress(s[i]).done, f->r[i].n_prompt);
            tokens += end.tokens;
            prompt += end.prompt;
            stream_release(s[i]);
        }
    }
    engine_destroy(g);
    g = rig_engine(f, &o);
    for (int i = 0; i < f->n; i++)
        s[i] = rig_submit(f, g, &f->r[i]);
    for (int i = 0; i < f->n; i++) {
        (void)rig_end(f, s[i]);
        stream_release(s[i]);
    }
    struct engine_stats y = engine_stats(g);
    int64_t passes = 0;
    for (int i = 0; i < ENGINE_ROW_BINS; i++)
        passes += y.rows[i];
    assert_int_equal(y.slots, 5);
    assert_int_equal(y.waiting, 0);
    assert_int_equal(y.failed + y.cancelled, 0);
    engine_destroy(g);
    assert_int_equal(passes, y.passes);
    assert_int_equal(2 * y.tokens, tokens);
    assert_int_equal(2 * y.prompt_tokens, prompt);
}

// One request while another one's prompt is read, its drafts on and off; a cancel in the middle
// ends with what was published by then, and one in the queue with nothing.
static void cancels(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    const int32_t *ids;
    o.slots = 1;
    struct engine *g = rig_engine(f, &o);
    struct request r = f->r[7];
    r.max_tokens = 700;
    struct stream *s = rig_submit(f, g, &r), *queued = rig_submit(f, g, &f->r[1]);
    rig_tokens(f, s, 5);
    assert_int_equal(stream_progress(queued).phase, STREAM_QUEUED);
    assert_int_equal(engine_stats(g).waiting, 1);
    stream_cancel(queued);
    struct stream_end end = rig_end(f, queued);
    assert_int_equal(end.reason, END_CALLER);
    assert_int_equal(end.rc, 0);
    assert_int_equal(stream_tokens(queued, &ids), 0);
    assert_false(stream_ended(s, NULL));
    stream_cancel(s);
    stream_cancel(s);
    end = rig_end(f, s);
    assert_int_equal(end.reason, END_CALLER);
    assert_in_range(stream_tokens(s, &ids), 5, 699);
    assert_memory_equal(ids, f->alone[7].ids, 5 * sizeof *ids);
    stream_release(s);
    stream_release(queued);
    engine_destroy(g);
}

// No pass runs while the session's memory is lent, twice over, and what comes out is the same.
static void lends(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    o.slots = 3;
    struct engine *g = rig_engine(f, &o);
    struct stream *s[RIG_MAX];
    for (int i = 0; i < f->n; i++)
        s[i] = rig_submit(f, g, &f->r[i]);
    for (int turn = 0; turn < 20; turn++) {
        const struct timespec moment = {.tv_nsec = 2000000};
        assert_int_equal(engine_lend(g, NULL), 0);
        assert_int_equal(engine_lend(g, NULL), 0);
        int64_t passes = engine_stats(g).passes;
        assert_int_equal(engine_lend_end(g, NULL), 0);
        nanosleep(&moment, NULL);
        assert_int_equal(engine_stats(g).passes, passes);
        assert_int_equal(engine_lend_end(g, NULL), 0);
        WAIT_UNTIL(engine_stats(g).passes > passes || engine_stats(g).ended == f->n);
    }
    for (int i = 0; i < f->n; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &f->alone[i]);
        stream_release(s[i]);
    }
    engine_destroy(g);
}

// Memory of the CPU that is lent as a GPU's is. Its copies stand at a gate: they come there, and go
// on when the test lets them.
enum { LENT = 1 << 20 };
static struct {
    atomic_bool shut;
    atomic_int there, thread_ends; // copies at the gate; threads that have ended
    bool fails;
    struct slabs slabs;
    void *host; // the copy of what is lent
} gate;

static void gate_pass(void) {
    gate.there++;
    WAIT_UNTIL(!gate.shut);
    gate.there--;
}

static void *lent_take(void *arg, size_t bytes) {
    (void)arg;
    return aligned_alloc(4096, bytes);
}

static void lent_give(void *arg, void *p) {
    (void)arg;
    free(p);
}

static void *lent_host(void *arg, size_t bytes) {
    return gate.host = lent_take(arg, bytes);
}

static void lent_release(void *arg, void *p, size_t bytes) {
    (void)bytes;
    lent_give(arg, p);
}

static bool lent_back(void *arg, void *p, size_t bytes) {
    (void)arg;
    (void)p;
    (void)bytes;
    gate_pass();
    return !gate.fails;
}

static void lent_strip(void *arg, void *p, size_t bytes) {
    (void)arg;
    (void)p;
    (void)bytes;
    gate_pass();
}

static bool lent_copy(void *arg, void *to, const void *from, size_t bytes) {
    (void)arg;
    memcpy(to, from, bytes);
    return true;
}

static int lent_open(struct exec *x, struct parked *k, struct err *e) {
    const struct parked_source from = {.reserve = lent_take,
                                       .release = lent_release,
                                       .back = lent_back,
                                       .strip = lent_strip,
                                       .host_take = lent_host,
                                       .host_give = lent_give,
                                       .save = lent_copy,
                                       .load = lent_copy,
                                       .grain = LENT,
                                       .piece = LENT};
    (void)x;
    (void)e;
    gate.slabs = (struct slabs){.source = {lent_take, lent_give, NULL}};
    parked_init(k, &gate.slabs, &from);
    return slabs_take(&gate.slabs, ARENA_WEIGHTS, LENT) ? 0 : ERR_MEMORY;
}

static void lent_fault(struct exec *x) {
    (void)x;
}

static struct engine *gated_engine(struct engine_rig *f) {
    static struct copy_backend copies;
    struct engine_options o = engine_options_default();
    copies = copies_at_once();
    copies.park_open = lent_open;
    copies.park_fault = lent_fault;
    cpu_copies = &copies;
    gate.shut = gate.fails = false;
    gate.there = gate.thread_ends = 0;
    f->park = LENT;
    o.slots = 3;
    struct engine *g = rig_engine(f, &o);
    f->park = 0;
    cpu_copies = NULL;
    return g;
}

// The exec, and with it what parks, has gone.
static void close_gate(void) {
    gate.slabs.source.take = lent_take;
    gate.slabs.source.give = lent_give;
    slabs_fini(&gate.slabs);
    free(gate.host);
}

static void *lend_and_end(void *arg) {
    struct err e;
    int rc = engine_lend(arg, &e);
    rc = rc ? rc : engine_lend_end(arg, &e);
    gate.thread_ends++;
    return rc ? arg : NULL;
}

static void *lend_end_only(void *arg) {
    (void)engine_lend_end(arg, NULL);
    return NULL;
}

static void *destroy(void *arg) {
    engine_destroy(arg);
    return NULL;
}

// What others do of the engine while copies stand at the gate.
static struct stream *use_engine(struct engine_rig *f, struct engine *g) {
    assert_int_equal(engine_state(g, NULL), ENGINE_READY);
    assert_true(engine_context(g) > 0);
    (void)engine_stats(g);
    return rig_submit(f, g, &f->r[3]);
}

// Copies of what is lent, in both directions, block the rounds only; a second thread that
// lends meanwhile waits for them and lends as well.
static void lends_without_lock(void **state) {
    struct engine_rig *f = *state;
    struct engine *g = gated_engine(f);
    struct stream *s[3];
    pthread_t t[2];
    void *failed[2];
    s[0] = rig_submit(f, g, &f->r[3]);
    gate.shut = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, lend_and_end, g), 0);
    WAIT_UNTIL(gate.there == 1);
    s[1] = use_engine(f, g);
    int64_t passes = engine_stats(g).passes;
    gate.shut = false;
    for (int i = 0; i < 2; i++) {
        WAIT_JOIN(t[i], &failed[i]);
        assert_null(failed[i]);
    }
    assert_true(engine_stats(g).passes >= passes);
    assert_int_equal(engine_lend(g, NULL), 0);
    gate.shut = true;
    assert_int_equal(pthread_create(&t[0], NULL, lend_and_end, g), 0); // without a copy
    WAIT_UNTIL(gate.thread_ends == 3);
    WAIT_JOIN(t[0], NULL);
    passes = engine_stats(g).passes;
    assert_int_equal(pthread_create(&t[0], NULL, lend_end_only, g), 0);
    WAIT_UNTIL(gate.there == 1);
    s[2] = use_engine(f, g);
    assert_int_equal(engine_stats(g).passes, passes); // none before it is back
    gate.shut = false;
    WAIT_JOIN(t[0], NULL);
    for (int i = 0; i < 3; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &f->alone[3]);
        stream_release(s[i]);
    }
    engine_destroy(g);
    close_gate();
}

// An engine that is destroyed while copies stand at the gate, with a request or idle, waits for
// them and for who has lent.
static void destroyed_while_lent(void **state) {
    struct engine_rig *f = *state;
    for (int idle = 0; idle < 2; idle++) {
        struct engine *g = gated_engine(f);
        pthread_t t[2];
        void *failed;
        gate.shut = true;
        assert_int_equal(pthread_create(&t[0], NULL, lend_and_end, g), 0);
        WAIT_UNTIL(gate.there == 1);
        struct stream *s = idle ? NULL : use_engine(f, g);
        assert_int_equal(pthread_create(&t[1], NULL, destroy, g), 0);
        for (int i = 0; i < 10000; i++)
            sched_yield(); // for it to go wrong
        assert_int_equal(pthread_tryjoin_np(t[1], NULL), EBUSY);
        gate.shut = false;
        WAIT_JOIN(t[0], &failed);
        assert_null(failed);
        WAIT_JOIN(t[1], NULL);
        if (s) {
            struct stream_end end = rig_end(f, s);
            if (end.rc)
                assert_int_equal(end.rc, ERR_STATE);
            stream_release(s);
        }
        close_gate();
    }
}

// The device is lost in a round for which a thread that lends waits: the call fails, and nothing is
// parked besides what winds up.
static void lost_before_lending(void **state) {
    struct engine_rig *f = *state;
    struct engine *g = gated_engine(f);
    struct exec *x = model_exec(session_model(engine_session(g)));
    pthread_t t;
    void *failed;
    struct err e;
    faulty_open(x, 40);
    faulty_tells(ERR_DEVICE);
    faulty_holds(gate_pass);
    gate.shut = true;
    struct stream *s = rig_submit(f, g, &f->r[3]);
    WAIT_UNTIL(gate.there == 1); // in the pass
    assert_int_equal(pthread_create(&t, NULL, lend_and_end, g), 0);
    assert_int_equal(engine_state(g, NULL), ENGINE_READY);
    gate.shut = false;
    WAIT_JOIN(t, &failed);
    assert_ptr_equal(failed, g);
    struct stream_end end = rig_end(f, s);
    assert_int_equal(end.rc, ERR_DEVICE);
    stream_release(s);
    RIG_UNTIL(f, engine_state(g, &e) != ENGINE_READY);
    assert_int_equal(engine_state(g, &e), ENGINE_FAILED);
    assert_int_equal(engine_lend(g, &e), ERR_STATE);
    faulty_close();
    engine_destroy(g);
    close_gate();
}

// What was lent does not come back: the engine fails, with the sentence, also without any request.
static void lent_memory_that_is_not_restored_ends_the_engine(void **state) {
    struct engine_rig *f = *state;
    struct engine *g = gated_engine(f);
    struct err e;
    assert_int_equal(engine_lend(g, NULL), 0);
    gate.fails = true;
    assert_int_equal(engine_lend_end(g, &e), ERR_MEMORY);
    RIG_UNTIL(f, engine_state(g, &e) != ENGINE_READY);
    assert_int_equal(engine_state(g, &e), ENGINE_FAILED);
    assert_non_null(strstr(e.text, "do not come back"));
    assert_int_equal(engine_lend(g, &e), ERR_STATE);
    engine_destroy(g);
    close_gate();
}

enum { CHOICES = 5 };

static void run_choices(struct engine_rig *f, struct engine *g, bool cancel_first) {
    struct stream_options so[CHOICES];
    struct stream *s[CHOICES];
    int64_t cached = 0;
    for (int i = 0; i < CHOICES; i++) {
        so[i] = (struct stream_options){.r = f->r[7], .notify = rig_notice, .notify_arg = f};
        so[i].r.how = i % 2 ? SPECULATE_TREE : SPECULATE_OFF;
        so[i].r.sample.temperature = 0.9;
        so[i].r.sample.choice = (uint64_t)i;
    }
    assert_int_equal(engine_submit_choices(g, so, CHOICES, s, NULL), 0);
    if (cancel_first)
        stream_cancel(s[0]);
    for (int i = 0; i < CHOICES; i++) {
        struct stream_end end = rig_end(f, s[i]);
        struct reply want;
        cached += end.cached;
        assert_int_equal(session_generate(f->session, &so[i].r, &want, NULL), 0);
        if (i || !cancel_first)
            rig_same(s[i], &end, &want);
        assert_true(end.cached == 0 || end.cached == f->r[7].n_prompt - 1);
        reply_fini(&want);
        stream_release(s[i]);
    }
    if (cancel_first)
        return;
    assert_int_equal(engine_stats(g).prompt_tokens, f->r[7].n_prompt + CHOICES - 1);
    assert_int_equal(cached, (CHOICES - 1) * (f->r[7].n_prompt - 1));
}

// Choices of one prompt: it is run once but for its last token, also when they do not all have a
// slot at once or the first one is cancelled, and each is what it would be alone.
static void choices(void **state) {
    struct engine_rig *f = *state;
    for (int i = 0; i < 4; i++) {
        struct engine_options o = engine_options_default();
        o.slots = i % 2 ? 6 : 1;
        struct engine *g = rig_engine(f, &o);
        run_choices(f, g, i / 2);
        engine_destroy(g);
    }
}

// A notice that holds the engine thread up while the test has the lock.
static void notice_at_gate(void *arg) {
    struct engine_rig *f = arg;
    pthread_mutex_lock(&f->gate);
    pthread_mutex_unlock(&f->gate);
    rig_notice(f);
}

// Besides a running request, a short prompt is read before a long one that came earlier, and the
// long one takes many passes.
static void short_overtakes(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct request r = f->r[0], l = f->r[0], q = f->r[3];
    int32_t prompt[900];
    for (int i = 0; i < 900; i++)
        prompt[i] = i * 7 % 250;
    o.max_gap_ms = 0.001; // as little as may be
    struct engine *g = rig_engine(f, &o);
    r.max_tokens = 1000;
    struct stream_options so = {.r = r, .notify = notice_at_gate, .notify_arg = f};
    struct stream *runner;
    assert_int_equal(engine_submit(g, &so, &runner, NULL), 0);
    rig_tokens(f, runner, 3);
    pthread_mutex_lock(&f->gate);
    int64_t before = engine_stats(g).passes;
    l.prompt = prompt;
    l.n_prompt = 900;
    l.max_tokens = q.max_tokens = 1;
    struct stream *long_one = rig_submit(f, g, &l), *quick = rig_submit(f, g, &q);
    pthread_mutex_unlock(&f->gate);
    struct stream_end a = rig_end(f, long_one), b = rig_end(f, quick);
    int64_t passes = engine_stats(g).passes - before;
    assert_true(passes >= 900 / SCHEDULE_MIN);
    assert_true(a.queue_ms + a.prompt_ms > 2 * (b.queue_ms + b.prompt_ms));
    stream_release(runner);
    stream_release(long_one);
    stream_release(quick);
    engine_destroy(g);
}

static void refusals(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream_options so = {.r = f->r[0]};
    struct stream *s[4] = {NULL}, *none = NULL;
    struct err e = {0};
    o.slots = 1;
    o.queue = 2;
    o.kv_limit = plan_kv(&f->plan, 512);
    struct engine *g = rig_engine(f, &o);
    assert_int_equal(engine_context(g), 512);
    so.r.n_prompt = 0;
    assert_int_equal(engine_submit(g, &so, &none, &e), ERR_USAGE);
    so.r = f->r[7];
    so.r.max_tokens = 512 - so.r.n_prompt + 1;
    assert_int_equal(engine_submit(g, &so, &none, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than the 512"));
    so.r.max_tokens--;
    assert_int_equal(engine_submit(g, &so, &s[0], &e), 0);
    while (stream_progress(s[0]).phase == STREAM_QUEUED)
        ; // a moment: no notice, as no function was given
    assert_int_equal(engine_submit(g, &so, &s[1], &e), 0);
    struct stream_options two[2] = {so, so};
    assert_int_equal(engine_submit_choices(g, two, 2, s + 2, &e), ERR_LIMIT);
    assert_int_equal(engine_submit(g, &so, &s[2], &e), 0);
    assert_int_equal(engine_submit(g, &so, &s[3], &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "2 requests are waiting"));
    assert_false(stream_ended(s[2], NULL));
    engine_destroy(g); // streams end, and outlive it
    for (int i = 0; i < 3; i++) {
        struct stream_end end;
        assert_true(stream_ended(s[i], &end));
        if (i || end.rc)
            assert_int_equal(end.rc, ERR_STATE);
        stream_cancel(s[i]);
        stream_release(s[i]);
    }
    o.session.model = "/nowhere/at-all.gguf";
    assert_int_equal(engine_create(&g, &o, &e), 0);
    RIG_UNTIL(f, engine_state(g, &e) != ENGINE_LOADING);
    assert_int_equal(engine_state(g, &e), ENGINE_FAILED);
    assert_non_null(strstr(e.text, "/nowhere/at-all.gguf"));
    assert_int_equal(engine_submit(g, &so, &none, &e), ERR_STATE);
    assert_null(engine_session(g));
    engine_destroy(g);
}

// Between rounds: the engine's thread may still be about its states.
static void close_faulty(struct engine *g) {
    assert_int_equal(engine_lend(g, NULL), 0);
    faulty_close();
    assert_int_equal(engine_lend_end(g, NULL), 0);
    engine_destroy(g);
}

// Short requests, what they give alone, and the calls of their `stop`: the tokens of the reply,
// each once.
enum { SHORT_ONES = 4 };
struct short_one {
    struct request r;
    int32_t prompt[RIG_LONGEST];
    struct reply want;
    int64_t called, wrong;
};

static bool listens(void *arg, int32_t id) {
    struct short_one *y = arg;
    y->wrong += y->called >= y->want.n || y->want.ids[y->called] != id;
    y->called++;
    return false;
}

// first: the first token of the prompts.
static void make_short_ones(struct engine_rig *f, struct short_one *y, bool cached, int32_t first,
                            struct constraint *c) {
    for (int i = 0; i < SHORT_ONES; i++, y++) {
        y->r = f->r[i + (cached ? 3 : 1)];
        memcpy(y->prompt, y->r.prompt, (size_t)y->r.n_prompt * sizeof *y->prompt);
        y->prompt[0] = first;
        y->r.prompt = y->prompt;
        y->r.max_tokens = 6;
        y->r.logprobs = i == 1 ? 2 : -1;
        y->r.constraint = i == 2 ? c : NULL;
        y->r.stop = NULL;
        assert_int_equal(session_generate(f->session, &y->r, &y->want, NULL), 0);
        y->r.stop = listens;
        y->r.stop_arg = y;
    }
}

// All of them at once; whether the device has failed at its n-th op.
static bool ask_all(struct engine_rig *f, struct engine *g, struct short_one *y, int n) {
    struct stream *s[SHORT_ONES];
    faulty_next(n);
    for (int i = 0; i < SHORT_ONES; i++) {
        y[i].called = y[i].wrong = 0;
        s[i] = rig_submit(f, g, &y[i].r);
    }
    for (int i = 0; i < SHORT_ONES; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &y[i].want);
        assert_int_equal(y[i].called, y[i].want.n);
        assert_int_equal(y[i].wrong, 0);
        stream_release(s[i]);
    }
    assert_int_equal(engine_state(g, NULL), ENGINE_READY);
    return faulty_hit();
}

// A build that checks is slow, and tries fewer of them.
enum { SPARE = TEST_BRIEF ? 10 : TEST_LONG ? 1 : 3 };

static void run_out_of_memory(struct engine_rig *f, bool cached) {
    static struct short_one y[SHORT_ONES];
    struct engine_options o = engine_options_default();
    int64_t vocab = model_params_of(session_model(f->session))->vocab;
    struct automaton *a;
    assert_int_equal(automaton_create(&a, vocab, false, 3, NULL), 0);
    o.slots = 3;
    o.cache.ram = cached ? 64 << 20 : 0;
    o.cache.grid = 32;
    struct engine *g = rig_engine(f, &o);
    faulty_open(model_exec(session_model(engine_session(g))), -1);
    bool hit = true;
    int n = 0;
    // Not always as many further, or of ops that come again each layer some would never be tried.
    for (int tries = 0; hit; n += (cached ? 23 : 1) * SPARE + (SPARE > 1 && ++tries % 3 == 0)) {
        if (cached || n == 0)
            make_short_ones(f, y, cached, n % 250, a->constraint);
        hit = ask_all(f, g, y, n);
        if (cached) // what was kept meanwhile is right
            ask_all(f, g, y, -1);
        for (int i = 0; i < SHORT_ONES && (cached || !hit); i++)
            reply_fini(&y[i].want);
    }
    assert_true(n > 300);
    assert_true(!cached || engine_stats(g).cache.hits >= n / (23 * SPARE));
    assert_int_equal(engine_stats(g).failed, 0);
    close_faulty(g);
    constraint_drop(a->constraint);
}

// Each op once: the device is out of memory for a moment, whatever it was doing, and every request
// gives what it gives alone, also where states are kept for the next ones.
static void out_of_memory_once(void **state) {
    run_out_of_memory(*state, false);
}

static void out_of_memory_once_cached(void **state) {
    run_out_of_memory(*state, true);
}

// A request that is too much for the device each time it is tried, concurrently with others: it
// ends with the sentence, and they give what they give alone.
static void out_of_memory_always(void **state) {
    enum { TOO_MUCH = 251, OTHERS = 3 };
    struct engine_rig *f = *state;
    for (int at = 0; at < 100; at += 33) { // in the first or a later piece of its prompt
        struct engine_options o = engine_options_default();
        struct request bad = f->r[5];
        struct stream *s[OTHERS];
        int32_t prompt[130];
        memcpy(prompt, bad.prompt, sizeof prompt);
        prompt[at] = TOO_MUCH;
        bad.prompt = prompt;
        o.slots = 4;
        struct engine *g = rig_engine(f, &o);
        faulty_open(model_exec(session_model(engine_session(g))), -1);
        faulty_token(TOO_MUCH);
        for (int i = 0; i < OTHERS; i++)
            s[i] = rig_submit(f, g, &f->r[i + 6]);
        rig_tokens(f, s[0], 2);
        struct stream *culprit = rig_submit(f, g, &bad);
        struct stream_end end = rig_end(f, culprit);
        assert_int_equal(end.rc, ERR_MEMORY);
        assert_non_null(strstr(end.err.text, "a device that is made up"));
        assert_true(faulty_hit());
        stream_release(culprit);
        for (int i = 0; i < OTHERS; i++) {
            end = rig_end(f, s[i]);
            rig_same(s[i], &end, &f->alone[i + 6]);
            stream_release(s[i]);
        }
        assert_int_equal(engine_state(g, NULL), ENGINE_READY);
        assert_int_equal(engine_stats(g).failed, 1);
        close_faulty(g);
    }
}

// States that cannot be put back, however often that is tried: texts that are kept are run anew, in
// spite of the cache.
static void states_that_cannot_be_restored_are_recomputed(void **state) {
    enum { ALL = 2000, ASKED = 3, EACH = 200 };
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    o.slots = 3;
    o.cache.ram = 64 << 20;
    o.cache.grid = 32;
    struct engine *g = rig_engine(f, &o);
    faulty_open(model_exec(session_model(engine_session(g))), -1);
    for (int round = 0; round < 2; round++) {
        struct stream *s[ASKED];
        for (int i = 0; i < ASKED; i++)
            s[i] = rig_submit(f, g, &f->r[i + 4]);
        for (int i = 0; i < ASKED; i++) {
            struct stream_end end = rig_end(f, s[i]);
            rig_same(s[i], &end, &f->alone[i + 4]);
            stream_release(s[i]);
        }
        faulty_uploads(ALL);
    }
    assert_in_range(faulty_uploaded(), 1, ASKED * EACH);
    assert_int_equal(engine_stats(g).failed, 0);
    close_faulty(g);
}

// A draft that fails each time it is called, with a target that works: requests go on without
// it, and soon it is not called any more.
static void draft_fails(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream *s[RIG_MAX];
    o.slots = 3;
    struct engine *g = rig_engine(f, &o);
    faulty_open(model_exec(session_model(engine_session(g))), -1);
    faulty_drafts();
    for (int i = 0; i < f->n; i++) {
        struct request r = f->r[i];
        r.auto_budget = false; // as many guesses as pay may be none
        s[i] = rig_submit(f, g, &r);
    }
    for (int i = 0; i < f->n; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &f->alone[i]);
        stream_release(s[i]);
    }
    assert_in_range(faulty_drafted(), 1, STEP_DRAFT_FAILURES);
    assert_int_equal(engine_stats(g).failed, 0);
    assert_int_equal(engine_state(g, NULL), ENGINE_READY);
    close_faulty(g);
}

// A device that is lost at any of its ops: every request ends with a sentence, whatever it was
// doing, and the engine says that it has failed.
static void faults(void **state) {
    struct engine_rig *f = *state;
    int hits = 0;
    for (int n = 3; n < 4000; n = n * 3 / 2 + 7) {
        struct engine_options o = engine_options_default();
        struct stream_options so = {.notify = rig_notice, .notify_arg = f};
        struct stream *s[4];
        struct err e = {0};
        o.slots = 2;
        struct engine *g = rig_engine(f, &o);
        struct exec *x = model_exec(session_model(engine_session(g)));
        faulty_open(x, n);
        faulty_tells(ERR_DEVICE);
        int failed = 0, taken = 0;
        for (; taken < 4 && !failed; taken++) {
            so.r = f->r[taken + 4];
            failed = engine_submit(g, &so, &s[taken], &e);
        }
        taken -= failed != 0; // it may have failed already
        if (failed)
            assert_non_null(strstr(e.text, "a device that is made up"));
        for (int i = 0; i < taken; i++) {
            struct stream_end end = rig_end(f, s[i]);
            failed += end.rc != 0;
            if (end.rc)
                assert_non_null(strstr(end.err.text, "a device that is made up"));
            else
                rig_same(s[i], &end, &f->alone[i + 4]);
            stream_release(s[i]);
        }
        if (failed) {
            hits++;
            RIG_UNTIL(f, engine_state(g, &e) != ENGINE_READY);
            assert_int_equal(engine_state(g, &e), ENGINE_FAILED);
            assert_non_null(strstr(e.text, "a device that is made up"));
        }
        faulty_close();
        engine_destroy(g);
    }
    assert_true(hits >= 5);
}

// The trees of all steps, in their order, or counted as lost; their paths spell the reply.
static void trees(void **state) {
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream_options so = {.r = f->r[1], .notify = rig_notice, .notify_arg = f, .trees = true};
    struct stream *s;
    const int32_t *ids;
    struct tree_event v;
    int64_t steps = 0, lost = 0, nodes = 0;
    so.r.auto_budget = false;
    so.r.tree.budget = 15;
    struct engine *g = rig_engine(f, &o);
    assert_int_equal(engine_submit(g, &so, &s, NULL), 0);
    struct stream_end end = rig_end(f, s);
    int64_t n = stream_tokens(s, &ids);
    while (stream_tree(s, &v, &lost)) {
        assert_int_equal(v.step, steps + lost);
        assert_int_equal(v.id[0], ids[v.token - 1]);
        assert_int_equal(v.parent[0], -1);
        for (int i = 1; i < v.path; i++) {
            assert_int_equal(v.id[v.on[i]], ids[v.token + i - 1]);
            assert_int_equal(v.parent[v.on[i]], v.on[i - 1]);
        }
        assert_true(v.token + v.path <= n);
        nodes += v.n - 1;
        steps++;
    }
    assert_int_equal(steps + lost, end.steps);
    assert_int_equal(lost, 0);
    assert_int_equal(nodes, end.drafted);
    assert_true(nodes > 100);
    stream_release(s);
    s = rig_submit(f, g, &f->r[1]);
    (void)rig_end(f, s);
    assert_false(stream_tree(s, &v, &lost));
    stream_release(s);
    engine_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_alone),
        cmocka_unit_test(cancels),
        cmocka_unit_test(lends),
        cmocka_unit_test(lends_without_lock),
        cmocka_unit_test(destroyed_while_lent),
        cmocka_unit_test(lost_before_lending),
        cmocka_unit_test(lent_memory_that_is_not_restored_ends_the_engine),
        cmocka_unit_test(choices),
        cmocka_unit_test(short_overtakes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(faults),
        cmocka_unit_test(trees),
        cmocka_unit_test(draft_fails),
        cmocka_unit_test(states_that_cannot_be_restored_are_recomputed),
        cmocka_unit_test(out_of_memory_once),
        cmocka_unit_test(out_of_memory_once_cached),
        cmocka_unit_test(out_of_memory_always),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
