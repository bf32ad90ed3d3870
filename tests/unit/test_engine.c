// SPDX-License-Identifier: Apache-2.0
// The engine thread against requests run alone: whatever joins, is cancelled, is parked for want of
// memory or shares its prompt, tokens and logits are those of session_generate. Faults, full queues
// and requests that can never fit end with their sentence and never hang.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "support/faulty.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

#define ARRAY(a) (sizeof(a) / sizeof *(a))

enum { CONTEXT = 400, MOST = 12, NEW = 60, LONGEST = 240 };

struct fixture {
    struct tiny_pair files;
    struct session *session;
    int32_t prompt[MOST][LONGEST];
    struct request r[MOST];
    struct reply alone[MOST];
};

// Requests of all ways of guessing whose prompts end around borders of bases and pages.
static void make_requests(struct fixture *f) {
    static const int lengths[] = {1, 31, 33, 64, 95, 130, 199, 240, 65, 2, 128, 70};
    static const enum speculate ways[] = {SPECULATE_OFF, SPECULATE_TREE, SPECULATE_CHAIN,
                                          SPECULATE_LOOKUP};
    struct rng g = {7};
    for (int i = 0; i < MOST; i++) {
        struct request *r = &f->r[i];
        for (int j = 0; j < lengths[i]; j++)
            f->prompt[i][j] = (int32_t)rng_below(&g, 250);
        request_init(r);
        r->prompt = f->prompt[i];
        r->n_prompt = lengths[i];
        r->max_tokens = NEW - 3 * i;
        r->ignore_eos = true;
        r->logit_hash = true;
        r->how = ways[i % 4];
        r->sample.temperature = i % 3 ? 0.3 * (i % 5) : 0;
        r->sample.frequency = i % 5 ? 0 : 0.2;
        r->sample.seed = (uint64_t)i;
    }
}

static int setup(void **state) {
    static struct fixture f;
    struct session_options o = session_options_default();
    *state = &f;
    o.threads = 2;
    o.target.max_ctx = CONTEXT;
    if (tiny_pair_write(&f.files, "engine"))
        return -1;
    o.model = f.files.target;
    o.draft = f.files.draft;
    if (session_open(&f.session, &o, NULL))
        return -1;
    make_requests(&f);
    for (int i = 0; i < MOST; i++)
        if (session_generate(f.session, &f.r[i], &f.alone[i], NULL))
            return -1;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < MOST; i++)
        reply_fini(&f->alone[i]);
    session_close(f->session);
    tiny_pair_remove(&f->files);
    return 0;
}

// The test's thread waits for notices of streams and of the engine.
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t notices;
};

static void waiter_init(struct waiter *w) {
    *w = (struct waiter){0};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

static void waiter_tell(void *arg) {
    struct waiter *w = arg;
    pthread_mutex_lock(&w->lock);
    w->notices++;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

// Waits until there have been more than `seen` notices; how many there have been.
static int64_t waiter_wait(struct waiter *w, int64_t seen) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&w->lock);
    while (w->notices <= seen)
        if (pthread_cond_timedwait(&w->changed, &w->lock, &until))
            fail_msg("nothing has happened for a minute");
    seen = w->notices;
    pthread_mutex_unlock(&w->lock);
    return seen;
}

static struct engine *open_engine(struct fixture *f, struct engine_options *o, struct waiter *w) {
    struct engine *g;
    struct err e = {0};
    int64_t seen = 0;
    o->session.model = f->files.target;
    o->session.draft = f->files.draft;
    o->session.threads = 2;
    o->session.target.max_ctx = CONTEXT;
    o->changed = waiter_tell;
    o->changed_arg = w;
    assert_int_equal(engine_create(&g, o, &e), 0);
    while (engine_state(g, &e) == ENGINE_LOADING)
        seen = waiter_wait(w, seen);
    if (engine_state(g, &e) != ENGINE_READY)
        fail_msg("%s", e.text);
    return g;
}

static struct stream *submit(struct engine *g, const struct request *r, struct waiter *w) {
    struct stream_options o = {.r = *r, .notify = waiter_tell, .notify_arg = w};
    struct stream *s = NULL;
    struct err e = {0};
    if (engine_submit(g, &o, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

static struct stream_end wait_end(struct stream *s, struct waiter *w) {
    struct stream_end end;
    int64_t seen = 0;
    while (!stream_ended(s, &end))
        seen = waiter_wait(w, seen);
    return end;
}

static void check_same(struct stream *s, const struct stream_end *end, const struct reply *want) {
    const int32_t *ids;
    if (end->rc)
        fail_msg("%s", end->err.text);
    assert_int_equal(stream_tokens(s, &ids), want->n);
    assert_memory_equal(ids, want->ids, (size_t)want->n * sizeof *ids);
    assert_int_equal(end->hash, want->hash);
    assert_int_equal(end->reason, want->end);
}

// All at once, with fewer slots than requests.
static void same_as_alone(void **state) {
    struct fixture *f = *state;
    struct engine_options o = engine_options_default();
    struct waiter w;
    struct stream *s[MOST];
    waiter_init(&w);
    o.slots = 5;
    struct engine *g = open_engine(f, &o, &w);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++)
            s[i] = submit(g, &f->r[i], &w);
        for (int i = 0; i < MOST; i++) {
            struct stream_end end = wait_end(s[i], &w);
            check_same(s[i], &end, &f->alone[i]);
            assert_int_equal(end.prompt, f->r[i].n_prompt);
            assert_int_equal(end.cached, 0);
            assert_true(end.queue_ms >= 0 && end.prompt_ms > 0 && end.decode_ms >= 0);
            stream_release(s[i]);
        }
    }
    struct engine_stats y = engine_stats(g);
    assert_int_equal(y.taken, 2 * MOST);
    assert_int_equal(y.waiting, 0);
    assert_int_equal(y.failed + y.cancelled, 0);
    engine_destroy(g);
}

// Cancels and releases at any moment, under so little memory that requests give way to each other.
static void parked_and_cancelled(void **state) {
    struct fixture *f = *state;
    struct engine_options o = engine_options_default();
    struct waiter w;
    struct stream *s[MOST];
    struct rng r = {3};
    waiter_init(&w);
    o.slots = 6;
    struct memory_plan plan;
    struct session_options so = session_options_default();
    so.model = f->files.target;
    so.draft = f->files.draft;
    so.target.max_ctx = CONTEXT;
    assert_int_equal(session_measure(&so, &plan, NULL), 0);
    o.kv_limit = plan_kv(&plan, 320);
    struct engine *g = open_engine(f, &o, &w);
    assert_int_equal(engine_context(g), 320);
    for (int round = 0; round < 20; round++) {
        int64_t seen = 0;
        for (int i = 0; i < MOST; i++) {
            s[i] = submit(g, &f->r[i], &w);
            if (rng_below(&r, 4) == 0)
                seen = waiter_wait(&w, seen);
        }
        for (int i = 0; i < MOST; i++) {
            if (rng_below(&r, 3) == 0) {
                stream_release(s[i]);
                continue;
            }
            struct stream_end end = wait_end(s[i], &w);
            check_same(s[i], &end, &f->alone[i]);
            stream_release(s[i]);
        }
    }
    engine_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_alone),
        cmocka_unit_test(parked_and_cancelled),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
