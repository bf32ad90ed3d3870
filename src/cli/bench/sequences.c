// SPDX-License-Identifier: Apache-2.0
// `bench --sequences`, as a batch and with --engine; see bench.h. In a batch only passes in which
// all sequences still run count. Batch and engine run in turns, and the fastest of each counts:
// whatever else the machine does makes runs slower, never faster.
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "cli/bench/bench.h"
#include "engine/loop/engine.h"

// Of both.
struct sequences {
    struct bench *b;
    const int32_t *counts; // [n_counts] of --sequences
    size_t n_counts;
    int largest; // of them
    int64_t n_prompt, n_new;
    int32_t **ids; // [largest][n_prompt]
    struct str text;
    struct json_writer json;
};

struct batch_bench {
    struct sequences q;
    int32_t **recording;      // [largest][n_prompt + n_new + 1], of bench_mode_request
    struct sequence **prefix; // [largest] the prompts but for their last token
    struct reply *alone;      // [largest]
    double first_ms[BENCH_MODES];
};

static int read_sequences(struct sequences *q, struct err *e) {
    const struct options *o = &q->b->a->opt;
    uint64_t seed = (uint64_t)options_int(o, OPT_SEED);
    int64_t vocab = model_params_of(session_model(q->b->s))->vocab;
    size_t n;
    const int32_t *lengths = options_list(o, OPT_PROMPT_TOKENS, &n);
    if (n != 1)
        return err_set(e, ERR_USAGE, "--sequences needs one length of --prompt-tokens");
    q->n_prompt = lengths[0];
    q->n_new = options_int(o, OPT_MAX_TOKENS);
    q->counts = options_list(o, OPT_SEQUENCES, &q->n_counts);
    for (size_t i = 0; i < q->n_counts; i++)
        q->largest = max_i32(q->largest, q->counts[i]);
    q->ids = calloc((size_t)q->largest, sizeof *q->ids);
    for (int i = 0; q->ids && i < q->largest; i++) {
        q->ids[i] = calloc((size_t)q->n_prompt, sizeof **q->ids);
        if (!q->ids[i])
            return err_set(e, ERR_MEMORY, "no memory for %d prompts", q->largest);
        bench_random_ids(q->ids[i], q->n_prompt, seed + (uint64_t)i, vocab);
    }
    return q->ids ? 0 : err_set(e, ERR_MEMORY, "no memory for %d prompts", q->largest);
}

// Shows what was measured and frees it. rc: the status so far, returned if bad.
static int end_sequences(struct sequences *q, int rc, struct err *e) {
    if (!rc && !cli_interrupted())
        rc = options_flag(&q->b->a->opt, OPT_JSON) ? cli_print_json(&q->json, e)
                                                   : cli_print(&q->text, e);
    for (int i = 0; q->ids && i < q->largest; i++)
        free(q->ids[i]);
    free(q->ids);
    str_fini(&q->text);
    str_fini(&q->json.out);
    return rc;
}

static int allocate_batch(struct batch_bench *c, struct err *e) {
    size_t n = (size_t)c->q.largest;
    if (c->q.n_new < 2)
        return err_set(e, ERR_USAGE, "--sequences needs at least two new tokens; use -n 128");
    c->recording = calloc(n, sizeof *c->recording);
    c->prefix = calloc(n, sizeof *c->prefix);
    c->alone = calloc(n, sizeof *c->alone);
    bool ok = c->recording && c->prefix && c->alone;
    for (size_t i = 0; ok && i < n; i++) {
        c->recording[i] = calloc((size_t)(c->q.n_prompt + c->q.n_new) + 1, sizeof **c->recording);
        ok = c->recording[i];
    }
    return ok ? 0 : err_set(e, ERR_MEMORY, "no memory for %d sequences", c->q.largest);
}

static void free_batch(struct batch_bench *c) {
    for (int i = 0; i < c->q.largest; i++) {
        if (c->recording)
            free(c->recording[i]);
        if (c->prefix)
            sequence_destroy(c->prefix[i]);
        if (c->alone)
            reply_fini(&c->alone[i]);
    }
    free(c->recording);
    free(c->prefix);
    free(c->alone);
}

static void batch_request(const struct batch_bench *c, int i, struct request *r) {
    decode_request(c->q.b->a, c->q.b->s, r);
    r->prompt = c->q.ids[i];
    r->n_prompt = c->q.n_prompt;
    r->max_tokens = c->q.n_new;
    r->prefix = c->prefix[i];
    r->logit_hash = true;
}

// The reply of sequence i when it has the device to itself.
static int run_alone(struct batch_bench *c, int i, struct err *e) {
    struct bench *b = c->q.b;
    struct request r;
    int rc = 0;
    if (c->q.n_prompt > 1)
        rc = session_prefill(b->s, c->q.ids[i], c->q.n_prompt - 1, &c->prefix[i], e);
    batch_request(c, i, &r);
    bench_mode_request(&b->modes, 0, b->a, b->s, &c->alone[i], c->recording[i], &r);
    return rc ? rc : session_generate(b->s, &r, &c->alone[i], e);
}

static void put_batch_json(struct json_writer *w, const char *mode, int n,
                           const struct generate_cost *k, int different) {
    jw_begin(w, '{');
    jw_key_str(w, "speculate", mode);
    jw_key_int(w, "sequences", n);
    jw_key_int(w, "passes", k->steps);
    jw_key_int(w, "tokens", k->tokens);
    jw_key_int(w, "rows", k->rows);
    jw_key_num(w, "draft_ms", k->ms.draft);
    jw_key_num(w, "verify_ms", k->ms.verify);
    jw_key_num(w, "sample_ms", k->ms.sample);
    jw_key_num(w, "commit_ms", k->ms.commit);
    jw_key_int(w, "different", different);
    jw_end(w, '}');
}

static void add_batch_row(struct batch_bench *c, int mode, int n, const struct generate_cost *k,
                          int different) {
    const struct step_times *m = &k->ms;
    double steps = k->steps ? (double)k->steps : 1, tokens = (double)k->tokens;
    double ms = decode_ms(m), pass = ms / steps;
    const char *name = c->q.b->modes.mode[mode].name;
    if (!(c->first_ms[mode] > 0))
        c->first_ms[mode] = pass;
    str_printf(&c->q.text, "%9d %-15s %7.1f %8.3f %6.2fx %8.3f %8.3f %7.3f %7.3f %6.2f %9.1f  %s\n",
               n, name, (double)k->rows / steps, pass,
               c->first_ms[mode] > 0 ? pass / c->first_ms[mode] : 0, m->draft / steps,
               m->verify / steps, m->sample / steps, m->commit / steps, tokens / steps / n,
               ms > 0 ? tokens * 1000 / ms : 0, different ? "NO" : "yes");
    put_batch_json(&c->q.json, name, n, k, different);
}

// Nodes besides the root that each of n sequences may verify in one pass. A mode that follows
// --budget auto keeps choosing.
static int fixed_budget(const struct bench *b, struct bench_mode *w, int n) {
    int budget = w->budget;
    if (budget < 0)
        budget = decode_budget(b->a, &w->choose);
    return w->choose ? -1 : min_i32(budget, model_max_verify(session_model(b->s)) / n - 1);
}

// One mode with n sequences in each pass, compared with the same alone.
static int run_batch_mode(struct batch_bench *c, int mode, int n, struct err *e) {
    struct bench *b = c->q.b;
    struct bench_modes modes = b->modes;
    struct generate_cost cost;
    struct request *r = calloc((size_t)n, sizeof *r);
    struct reply *y = calloc((size_t)n, sizeof *y);
    int rc = r && y ? 0 : err_set(e, ERR_MEMORY, "no memory for %d requests", n);
    int different = 0;
    struct bench_mode *w = &modes.mode[mode];
    if (!w->choose)
        w->budget = fixed_budget(b, w, n);
    for (int i = 0; !rc && i < n; i++) {
        modes.oracle.seed = b->modes.oracle.seed + (uint64_t)i;
        batch_request(c, i, &r[i]);
        bench_mode_request(&modes, mode, b->a, b->s, &c->alone[i], c->recording[i], &r[i]);
    }
    if (!rc)
        rc = session_generate_many(b->s, r, n, y, &cost, e);
    for (int i = 0; !rc && i < n; i++)
        different += !bench_equal(&y[i], &c->alone[i]);
    if (!rc)
        add_batch_row(c, mode, n, &cost, different);
    b->different += different;
    for (int i = 0; y && i < n; i++)
        reply_fini(&y[i]);
    free(y);
    free(r);
    return rc;
}

static int run_batches(struct batch_bench *c, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < c->q.largest && !cli_interrupted(); i++)
        rc = run_alone(c, i, e);
    for (int w = 0; w < c->q.b->modes.n; w++)
        for (size_t i = 0; !rc && i < c->q.n_counts && !cli_interrupted(); i++)
            rc = run_batch_mode(c, w, c->q.counts[i], e);
    return rc;
}

static void put_batch_notes(struct sequences *q) {
    if (q->b->modes.oracle.on)
        str_printf(&q->text,
                   "oracle: guesses are not the draft's but recordings of plain decoding "
                   "with errors; the draft ran at full cost: %s\n",
                   bench_draft_ran(q->b->s));
    str_printf(&q->text,
               "prompts of %lld tokens; milliseconds a pass, and tok/s, of all sequences; "
               "equal: same tokens and logits as alone\n",
               (long long)q->n_prompt);
}

int bench_batch(struct bench *b, struct err *e) {
    struct batch_bench c = {.q = {.b = b}};
    int rc = read_sequences(&c.q, e);
    if (!rc)
        rc = allocate_batch(&c, e);
    str_printf(&c.q.text, "%9s %-15s %7s %8s %7s %8s %8s %7s %7s %6s %9s  %s\n", "sequences", "how",
               "rows", "pass", "growth", "draft", "verify", "sample", "commit", "AL", "tok/s",
               "equal");
    jw_begin(&c.q.json, '[');
    if (!rc)
        rc = run_batches(&c, e);
    jw_end(&c.q.json, ']');
    put_batch_notes(&c.q);
    free_batch(&c);
    return end_sequences(&c.q, rc, e);
}

struct engine_bench {
    struct sequences q;
    struct engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t signalled;
    bool news; // under the lock
};

// Best times of whole runs, in milliseconds, and what of the engine's was in no pass.
struct engine_times {
    double batch, engine, outside;
    int64_t tokens;
    int different;
};

static void note_engine_news(void *arg) {
    struct engine_bench *c = arg;
    pthread_mutex_lock(&c->lock);
    c->news = true;
    pthread_cond_signal(&c->signalled);
    pthread_mutex_unlock(&c->lock);
}

static void wait_engine_news(struct engine_bench *c) {
    pthread_mutex_lock(&c->lock);
    while (!c->news)
        pthread_cond_wait(&c->signalled, &c->lock);
    c->news = false;
    pthread_mutex_unlock(&c->lock);
}

static void engine_request(const struct engine_bench *c, int mode, int i, struct request *r) {
    const struct bench *b = c->q.b;
    const struct reply none = {0};
    int32_t recording = 0;
    decode_request(b->a, b->s, r);
    r->prompt = c->q.ids[i];
    r->n_prompt = c->q.n_prompt;
    r->max_tokens = c->q.n_new;
    bench_mode_request(&b->modes, mode, b->a, b->s, &none, &recording, r);
    r->ignore_eos = true;
}

static int wait_engine_loaded(struct engine_bench *c, struct err *e) {
    enum engine_state state;
    while ((state = engine_state(c->engine, e)) == ENGINE_LOADING)
        wait_engine_news(c);
    return state == ENGINE_READY ? 0 : e->code;
}

// Waits for one stream; whether it failed.
static int wait_stream_end(struct engine_bench *c, struct stream *s, const struct reply *expected,
                           bool *same, struct err *e) {
    struct stream_end end;
    const int32_t *ids;
    while (!stream_ended(s, &end))
        wait_engine_news(c);
    *same = !end.rc && stream_tokens(s, &ids) == expected->n &&
            memcmp(ids, expected->ids, (size_t)expected->n * sizeof *ids) == 0;
    if (end.rc)
        *e = end.err;
    stream_release(s);
    return end.rc;
}

static int run_engine(struct engine_bench *c, const struct request *r, int n,
                      const struct reply *expected, struct engine_times *t, struct err *e) {
    struct stream **s = calloc((size_t)n, sizeof *s);
    struct stream_options o = {.notify = note_engine_news, .notify_arg = c};
    int rc = s ? 0 : err_set(e, ERR_MEMORY, "no memory for %d streams", n), made = 0;
    double start = clock_ms();
    for (; !rc && made < n; made += !rc) {
        o.r = r[made];
        rc = engine_submit(c->engine, &o, &s[made], e);
    }
    for (int i = 0; i < made; i++) {
        bool same;
        int failed = wait_stream_end(c, s[i], &expected[i], &same, e);
        rc = rc ? rc : failed;
        t->different += !same;
    }
    double ms = clock_ms() - start, outside = ms - engine_stats(c->engine).pass_ms;
    t->engine = fmin(t->engine, ms);
    t->outside = fmin(t->outside, outside / ms);
    free(s);
    return rc;
}

static int run_batch_and_engine(struct engine_bench *c, int mode, int n, struct engine_times *t,
                                struct err *e) {
    struct request *r = calloc((size_t)n, sizeof *r);
    struct reply *y = calloc((size_t)n, sizeof *y);
    struct engine_options o = engine_options_default();
    int rc = r && y ? 0 : err_set(e, ERR_MEMORY, "no memory for %d requests", n);
    *t = (struct engine_times){.batch = INFINITY, .engine = INFINITY, .outside = INFINITY};
    for (int i = 0; !rc && i < n; i++)
        engine_request(c, mode, i, &r[i]);
    int64_t rounds = options_int(&c->q.b->a->opt, OPT_ROUNDS);
    for (int64_t round = 0; !rc && round < rounds && !cli_interrupted(); round++) {
        double start = clock_ms();
        rc = session_generate_many(c->q.b->s, r, n, y, NULL, e);
        t->batch = fmin(t->batch, clock_ms() - start);
        o.open = c->q.b->s;
        o.slots = n;
        o.changed = note_engine_news;
        o.changed_arg = c;
        if (!rc)
            rc = engine_create(&c->engine, &o, e);
        if (!rc)
            rc = wait_engine_loaded(c, e);
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

static void add_engine_row(struct engine_bench *c, int mode, int n, const struct engine_times *t) {
    const char *name = c->q.b->modes.mode[mode].name;
    double batch = (double)t->tokens * 1e3 / t->batch, engine = (double)t->tokens * 1e3 / t->engine;
    str_printf(&c->q.text, "%9d %-15s %10.1f %10.1f %8.3f %7.2f%%  %s\n", n, name, batch, engine,
               engine / batch, 100 * t->outside, t->different ? "NO" : "yes");
    jw_begin(&c->q.json, '{');
    jw_key_int(&c->q.json, "sequences", n);
    jw_key_str(&c->q.json, "speculate", name);
    jw_key_int(&c->q.json, "tokens", t->tokens);
    jw_key_num(&c->q.json, "batch_ms", t->batch);
    jw_key_num(&c->q.json, "engine_ms", t->engine);
    jw_key_num(&c->q.json, "outside", t->outside);
    jw_key_int(&c->q.json, "different", t->different);
    jw_end(&c->q.json, '}');
    c->q.b->different += t->different;
}

static int run_engines(struct engine_bench *c, struct err *e) {
    if (c->q.b->modes.oracle.on)
        return err_set(e, ERR_USAGE, "--engine measures real drafts only; leave --drafter out");
    int rc = 0;
    for (int w = 0; w < c->q.b->modes.n; w++)
        for (size_t i = 0; !rc && i < c->q.n_counts && !cli_interrupted(); i++) {
            struct engine_times t;
            rc = run_batch_and_engine(c, w, c->q.counts[i], &t, e);
            if (!rc)
                add_engine_row(c, w, c->q.counts[i], &t);
        }
    return rc;
}

int bench_engine(struct bench *b, struct err *e) {
    struct engine_bench c = {.q = {.b = b}};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.signalled, NULL);
    int rc = read_sequences(&c.q, e);
    str_printf(&c.q.text, "%9s %-15s %10s %10s %8s %8s  %s\n", "sequences", "how", "batch",
               "engine", "ratio", "outside", "equal");
    jw_begin(&c.q.json, '[');
    if (!rc)
        rc = run_engines(&c, e);
    jw_end(&c.q.json, ']');
    str_printf(&c.q.text,
               "prompts of %lld tokens; tokens a second of all requests, prompts included, the "
               "best of %lld runs in turns; outside: the engine's time that was in no pass\n",
               (long long)c.q.n_prompt, (long long)options_int(&b->a->opt, OPT_ROUNDS));
    pthread_mutex_destroy(&c.lock);
    pthread_cond_destroy(&c.signalled);
    return end_sequences(&c.q, rc, e);
}
