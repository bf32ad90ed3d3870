// SPDX-License-Identifier: Apache-2.0
// See engine.h. Runs of both kinds take turns, and the fastest of each counts: whatever else
// the machine does makes runs slower, never faster.
#include "cli/bench/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "engine/loop/engine.h"

struct engine_bench {
    struct bench *b;
    int64_t n_prompt;
    int32_t **ids; // [most][n_prompt]
    int most;
    struct engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool news; // under the lock
    struct str text;
    struct json_writer json;
};

// Best times of whole runs, in milliseconds, and what of the engine's was in no pass.
struct engine_times {
    double batch, engine, outside;
    int64_t tokens;
    int different;
};

static void notice(void *arg) {
    struct engine_bench *c = arg;
    pthread_mutex_lock(&c->lock);
    c->news = true;
    pthread_cond_signal(&c->told);
    pthread_mutex_unlock(&c->lock);
}

static void wait_news(struct engine_bench *c) {
    pthread_mutex_lock(&c->lock);
    while (!c->news)
        pthread_cond_wait(&c->told, &c->lock);
    c->news = false;
    pthread_mutex_unlock(&c->lock);
}

static int make_prompts(struct engine_bench *c, struct err *e) {
    const struct options *o = &c->b->a->opt;
    uint64_t seed = (uint64_t)options_int(o, OPT_SEED);
    int64_t vocab = model_params_of(session_model(c->b->s))->vocab;
    c->ids = calloc((size_t)c->most, sizeof *c->ids);
    for (int i = 0; c->ids && i < c->most; i++) {
        c->ids[i] = calloc((size_t)c->n_prompt, sizeof **c->ids);
        if (!c->ids[i])
            return err_set(e, ERR_MEMORY, "no memory for %d prompts", c->most);
        bench_random_ids(c->ids[i], c->n_prompt, seed + (uint64_t)i, vocab);
    }
    return c->ids ? 0 : err_set(e, ERR_MEMORY, "no memory for %d prompts", c->most);
}

static void fill_request(const struct engine_bench *c, int mode, int i, struct request *r) {
    const struct bench *b = c->b;
    const struct reply none = {0};
    int32_t recording = 0;
    decode_request(b->a, b->s, r);
    r->prompt = c->ids[i];
    r->n_prompt = c->n_prompt;
    r->max_tokens = options_int(&b->a->opt, OPT_MAX_TOKENS);
    bench_mode_request(&b->modes, mode, b->a, b->s, &none, &recording, r);
    r->ignore_eos = true;
}

static int wait_engine(struct engine_bench *c, struct err *e) {
    enum engine_state state;
    while ((state = engine_state(c->engine, e)) == ENGINE_LOADING)
        wait_news(c);
    return state == ENGINE_READY ? 0 : e->code;
}

// Waits for one stream; whether it failed.
static int finish(struct engine_bench *c, struct stream *s, const struct reply *want, bool *same,
                  struct err *e) {
    struct stream_end end;
    const int32_t *ids;
    while (!stream_ended(s, &end))
        wait_news(c);
    *same = !end.rc && stream_tokens(s, &ids) == want->n &&
            memcmp(ids, want->ids, (size_t)want->n * sizeof *ids) == 0;
    if (end.rc)
        *e = end.err;
    stream_release(s);
    return end.rc;
}

static int run_engine(struct engine_bench *c, const struct request *r, int n,
                      const struct reply *want, struct engine_times *t, struct err *e) {
    struct stream **s = calloc((size_t)n, sizeof *s);
    struct stream_options o = {.notify = notice, .notify_arg = c};
    int rc = s ? 0 : err_set(e, ERR_MEMORY, "no memory for %d streams", n), made = 0;
    double start = clock_ms();
    for (; !rc && made < n; made += !rc) {
        o.r = r[made];
        rc = engine_submit(c->engine, &o, &s[made], e);
    }
    for (int i = 0; i < made; i++) {
        bool same;
        int failed = finish(c, s[i], &want[i], &same, e);
        rc = rc ? rc : failed;
        t->different += !same;
    }
    double ms = clock_ms() - start, outside = ms - engine_stats(c->engine).pass_ms;
    t->engine = fmin(t->engine, ms);
    t->outside = fmin(t->outside, outside / ms);
    free(s);
    return rc;
}

static int run_both(struct engine_bench *c, int mode, int n, struct engine_times *t,
                    struct err *e) {
    struct request *r = calloc((size_t)n, sizeof *r);
    struct reply *y = calloc((size_t)n, sizeof *y);
    struct engine_options o = engine_options_default();
    int rc = r && y ? 0 : err_set(e, ERR_MEMORY, "no memory for %d requests", n);
    *t = (struct engine_times){.batch = INFINITY, .engine = INFINITY, .outside = INFINITY};
    for (int i = 0; !rc && i < n; i++)
        fill_request(c, mode, i, &r[i]);
    int64_t rounds = options_int(&c->b->a->opt, OPT_ROUNDS);
    for (int64_t round = 0; !rc && round < rounds && !cli_interrupted(); round++) {
        double start = clock_ms();
        rc = session_generate_many(c->b->s, r, n, y, NULL, e);
        t->batch = fmin(t->batch, clock_ms() - start);
        o.open = c->b->s;
        o.slots = n;
        o.changed = notice;
        o.changed_arg = c;
        if (!rc)
            rc = engine_create(&c->engine, &o, e);
        if (!rc)
            rc = wait_engine(c, e);
        t->tokens = 0;
        for (int i = 0; i < n; i++)
            t->tokens += y[i].n;
        if (!rc)
            rc = run_engine(c, r, n, y, t, e);
        engine_destroy(c->engine);
        c->engine = NULL;
        for (int i = 0; i < n; i++)
            reply_fini(&y[i]);
    }
    free(r);
    free(y);
    return rc;
}

static void add_row(struct engine_bench *c, int mode, int n, const struct engine_times *t) {
    const char *name = c->b->modes.mode[mode].name;
    double batch = (double)t->tokens * 1e3 / t->batch, engine = (double)t->tokens * 1e3 / t->engine;
    str_printf(&c->text, "%9d %-15s %10.1f %10.1f %8.3f %7.2f%%  %s\n", n, name, batch, engine,
               engine / batch, 100 * t->outside, t->different ? "NO" : "yes");
    jw_begin(&c->json, '{');
    jw_key_int(&c->json, "sequences", n);
    jw_key_str(&c->json, "speculate", name);
    jw_key_int(&c->json, "tokens", t->tokens);
    jw_key_num(&c->json, "batch_ms", t->batch);
    jw_key_num(&c->json, "engine_ms", t->engine);
    jw_key_num(&c->json, "outside", t->outside);
    jw_key_int(&c->json, "different", t->different);
    jw_end(&c->json, '}');
    c->b->different += t->different;
}

static int run_all(struct engine_bench *c, struct err *e) {
    const struct options *o = &c->b->a->opt;
    size_t n_counts, n_lengths;
    const int32_t *counts = options_list(o, OPT_SEQUENCES, &n_counts);
    const int32_t *lengths = options_list(o, OPT_PROMPT_TOKENS, &n_lengths);
    if (n_lengths != 1)
        return err_set(e, ERR_USAGE, "--sequences needs one length of --prompt-tokens");
    if (c->b->modes.oracle.on)
        return err_set(e, ERR_USAGE, "--engine measures real drafts only; leave --drafter out");
    c->n_prompt = lengths[0];
    for (size_t i = 0; i < n_counts; i++)
        c->most = max_i32(c->most, counts[i]);
    int rc = make_prompts(c, e);
    for (int w = 0; w < c->b->modes.n; w++)
        for (size_t i = 0; !rc && i < n_counts && !cli_interrupted(); i++) {
            struct engine_times t;
            rc = run_both(c, w, counts[i], &t, e);
            if (!rc)
                add_row(c, w, counts[i], &t);
        }
    return rc;
}

int bench_engine(struct bench *b, struct err *e) {
    struct engine_bench c = {.b = b};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.told, NULL);
    str_printf(&c.text, "%9s %-15s %10s %10s %8s %8s  %s\n", "sequences", "how", "batch", "engine",
               "ratio", "outside", "equal");
    jw_begin(&c.json, '[');
    int rc = run_all(&c, e);
    jw_end(&c.json, ']');
    str_printf(&c.text,
               "prompts of %lld tokens; tokens a second of all requests, prompts included, the "
               "best of %lld runs in turns; outside: the engine's time that was in no pass\n",
               (long long)c.n_prompt, (long long)options_int(&b->a->opt, OPT_ROUNDS));
    if (!rc && !cli_interrupted())
        rc =
            options_flag(&b->a->opt, OPT_JSON) ? cli_print_json(&c.json, e) : cli_print(&c.text, e);
    for (int i = 0; c.ids && i < c.most; i++)
        free(c.ids[i]);
    free(c.ids);
    str_fini(&c.text);
    str_fini(&c.json.out);
    pthread_mutex_destroy(&c.lock);
    pthread_cond_destroy(&c.told);
    return rc;
}
