// SPDX-License-Identifier: Apache-2.0
// See engine_rig.h.
#include "unit/engine_rig.h"

#include <time.h>

#include "engine/batch/batch.h"
#include "support/wait.h"
#include "unit/test.h"

static void make_requests(struct engine_rig *f, const int *lengths, int n, int64_t max_tokens) {
    static const enum speculate ways[] = {SPECULATE_OFF, SPECULATE_TREE, SPECULATE_CHAIN,
                                          SPECULATE_LOOKUP};
    struct rng g = {7};
    f->n = n;
    for (int i = 0; i < n; i++) {
        struct request *r = &f->r[i];
        for (int j = 0; j < lengths[i]; j++)
            f->prompt[i][j] = (int32_t)rng_below(&g, 250);
        request_init(r);
        r->prompt = f->prompt[i];
        r->n_prompt = lengths[i];
        r->max_tokens = max_tokens - 3 * i; // they end one after another
        r->ignore_eos = true;
        r->logit_hash = true;
        r->how = ways[i % 4];
        r->sample.temperature = i % 3 ? 0.3 * (i % 5) : 0;
        r->sample.frequency = i % 5 ? 0 : 0.2;
        r->sample.seed = (uint64_t)i;
    }
}

static struct session_options options_of(const struct engine_rig *f) {
    struct session_options o = session_options_default();
    o.model = f->files.target;
    o.draft = f->files.draft;
    o.threads = 2;
    o.target.max_ctx = RIG_CONTEXT;
    o.make_plan = true;
    o.park = f->park;
    return o;
}

int rig_open(struct engine_rig *f, const char *name, const int *lengths, int n,
             int64_t max_tokens) {
    struct tiny_shape t = tiny_shape_default();
    return rig_open_as(f, name, &t, lengths, n, max_tokens);
}

int rig_open_as(struct engine_rig *f, const char *name, const struct tiny_shape *t,
                const int *lengths, int n, int64_t max_tokens) {
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->gate, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (tiny_pair_write_as(&f->files, name, t, 0))
        return -1;
    struct session_options o = options_of(f);
    if (session_open(&f->session, &o, NULL))
        return -1;
    f->plan = *session_plan(f->session);
    make_requests(f, lengths, n, max_tokens);
    for (int i = 0; i < n; i++)
        if (session_generate(f->session, &f->r[i], &f->alone[i], NULL))
            return -1;
    return 0;
}

void rig_close(struct engine_rig *f) {
    for (int i = 0; i < f->n; i++)
        reply_fini(&f->alone[i]);
    session_close(f->session);
    tiny_pair_remove(&f->files);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->gate);
    pthread_cond_destroy(&f->changed);
}

void rig_notice(void *arg) {
    struct engine_rig *f = arg;
    pthread_mutex_lock(&f->lock);
    f->notices++;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

int64_t rig_wait(struct engine_rig *f, int64_t seen, const char *what, const char *file, int line) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE / 1000;
    pthread_mutex_lock(&f->lock);
    while (f->notices <= seen)
        if (pthread_cond_timedwait(&f->changed, &f->lock, &until))
            wait_fail(what, file, line);
    seen = f->notices;
    pthread_mutex_unlock(&f->lock);
    return seen;
}

struct engine *rig_engine(struct engine_rig *f, struct engine_options *o) {
    struct engine *g;
    struct err e = {0};
    o->session = options_of(f);
    o->session.runtime = f->runtime;
    o->session.chunk = f->chunk;
    o->changed = rig_notice;
    o->changed_arg = f;
    assert_int_equal(engine_create(&g, o, &e), 0);
    RIG_UNTIL(f, engine_state(g, &e) != ENGINE_LOADING);
    if (engine_state(g, &e) != ENGINE_READY)
        fail_msg("%s", e.text);
    return g;
}

struct stream *rig_submit(struct engine_rig *f, struct engine *g, const struct request *r) {
    struct stream_options o = {.r = *r, .notify = rig_notice, .notify_arg = f};
    struct stream *s = NULL;
    struct err e = {0};
    if (engine_submit(g, &o, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

struct stream_end rig_end(struct engine_rig *f, struct stream *s) {
    struct stream_end end;
    RIG_UNTIL(f, stream_ended(s, &end));
    return end;
}

void rig_tokens(struct engine_rig *f, struct stream *s, int64_t n) {
    const int32_t *ids;
    RIG_UNTIL(f, stream_tokens(s, &ids) >= n || stream_ended(s, NULL));
}

void rig_same(struct stream *s, const struct stream_end *end, const struct reply *want) {
    const int32_t *ids;
    if (end->rc)
        fail_msg("%s", end->err.text);
    assert_int_equal(stream_tokens(s, &ids), want->n);
    assert_memory_equal(ids, want->ids, (size_t)want->n * sizeof *ids);
    assert_int_equal(end->hash, want->hash);
    assert_int_equal(end->reason, want->end);
}
