// SPDX-License-Identifier: Apache-2.0
// `bench score`; see bench.h. Each length is scored once to warm up and then REPEATS times; the
// best counts, and all are in the JSON. Ops are timed in one more run, whose sum is larger than a
// plain run's.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "cli/bench/bench.h"
#include "cli/models/compression.h"
#include "cli/models/decode.h"
#include "ops/exec.h"
#include "ops/observe/timing.h"

enum { REPEATS = 3, CHUNK = 32 };

struct score_bench {
    const struct cli_args *a;
    struct session *s; // NULL: the scorer alone
    struct runtime *runtime;
    struct exec *x;
    struct gguf *g;
    struct score_options options;
    struct scorer *scorer;
    int64_t vocab;
    double keep;
    double copy_rate; // bytes a millisecond; 0: ops are not timed
    int32_t *ids;
    float *score;
    struct str text;
    struct json_writer json;
};

static int check_score_options(const struct cli_args *a, struct err *e) {
    static const int needed[] = {OPT_PREFILL_DRAFTER, OPT_PROMPT_TOKENS};
    static const int others[] = {OPT_PROMPTS, OPT_SEQUENCES, OPT_ENGINE, OPT_ROUNDS,
                                 OPT_MODES,   OPT_DRAFTER,   OPT_DRAFT,  OPT_URL};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!options_given(&a->opt, needed[i]))
            return err_set(e, ERR_USAGE, "'bench score' needs --%s", cli_options[needed[i]].name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(&a->opt, others[i]))
            return err_set(e, ERR_USAGE, "--%s has no meaning for 'bench score'",
                           cli_options[others[i]].name);
    return 0;
}

// The target with its device, or the device alone.
static int open_device(struct score_bench *b, struct err *e) {
    const struct options *o = &b->a->opt;
    struct device_options d = compression_device(o);
    d.timing = true;
    struct runtime_device *device;
    if (options_given(o, OPT_MODEL)) {
        int rc = decode_open(b->a, false, &b->s, e);
        b->x = rc ? NULL : model_exec(session_model(b->s));
        return rc;
    }
    int rc = runtime_create(&b->runtime, e);
    if (!rc)
        rc = runtime_device(b->runtime, &d, &device, e);
    if (rc)
        return rc;
    b->x = runtime_exec(device);
    b->copy_rate = timing_copy_rate(b->x);
    exec_trim(b->x); // whose buffers are no part of what a scorer takes
    return 0;
}

static int open_scorer(struct score_bench *b, struct err *e) {
    const char *path = options_str(&b->a->opt, OPT_PREFILL_DRAFTER);
    int rc = gguf_open(&b->g, path, e);
    if (!rc)
        rc = score_open(&b->scorer, b->x, b->g, &b->options, e);
    if (rc)
        return err_prefix(e, "scorer %.200s", path);
    b->vocab = gguf_tensor(b->g, "token_embd.weight")->ne[1];
    if (b->s)
        b->vocab = min_i64(b->vocab, model_params_of(session_model(b->s))->vocab);
    return 0;
}

struct ranked {
    float score;
    int64_t chunk;
};

static int by_score(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

// Keeps the last `query` of n ids, and of those before them the chunks of 32 with the highest mean
// scores, in order, until there are `count` ids or no more chunks. Returns how many there are then,
// or ERR_MEMORY.
static int64_t keep_ids(const float *score, int32_t *ids, int64_t n, int64_t query, int64_t count,
                        struct err *e) {
    int64_t chunks = ceil_div(n - query, CHUNK), left = count - query, kept = 0;
    struct ranked *r = calloc((size_t)chunks + 1, sizeof *r);
    bool *in = calloc((size_t)chunks + 1, sizeof *in);
    for (int64_t c = 0; r && c < chunks; c++) {
        int64_t end = min_i64((c + 1) * CHUNK, n - query);
        r[c].chunk = c;
        for (int64_t i = c * CHUNK; i < end; i++)
            r[c].score += score[i] / (float)(end - c * CHUNK);
    }
    if (r && in) {
        qsort(r, (size_t)chunks, sizeof *r, by_score);
        for (int64_t i = 0; i < chunks && left > 0; i++, left -= CHUNK)
            in[r[i].chunk] = true;
        for (int64_t i = 0; i < n; i++)
            if (i >= n - query || in[i / CHUNK])
                ids[kept++] = ids[i];
    }
    int rc = r && in ? 0 : err_set(e, ERR_MEMORY, "no memory for %lld chunks", (long long)chunks);
    free(r);
    free(in);
    return rc ? rc : kept;
}

static int64_t queries_of(int64_t n) {
    return min_i64(SCORE_QUERIES, (n + 1) / 2);
}

static int score_once(struct score_bench *b, int64_t n, double *ms, struct err *e) {
    const struct score_call call = {b->ids, n, n - queries_of(n), b->score};
    double start = clock_ms();
    int rc = b->scorer->kind->score(b->scorer, &call, e);
    *ms = clock_ms() - start;
    return rc;
}

struct first {
    double start, ms;
};

static int see_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct first *f = arg;
    (void)ids;
    if (f->ms <= 0 && n > 0)
        f->ms = clock_ms() - f->start;
    return cli_interrupted();
}

// From the ids to the target's first token: scores, what they keep, and reading that.
static int first_token(struct score_bench *b, int64_t n, double *scored, double *ms, int64_t *kept,
                       struct err *e) {
    struct first f = {.start = clock_ms()};
    struct reply y = {0};
    struct request r;
    int rc = score_once(b, n, scored, e);
    if (rc)
        return rc;
    *kept = keep_ids(b->score, b->ids, n, queries_of(n), (int64_t)(b->keep * (double)n), e);
    if (*kept < 0)
        return (int)*kept;
    decode_request(b->a, b->s, &r);
    r.prompt = b->ids;
    r.n_prompt = *kept;
    r.max_tokens = 1;
    r.how = SPECULATE_OFF;
    r.tokens = see_tokens;
    r.tokens_arg = &f;
    rc = session_generate(b->s, &r, &y, e);
    reply_fini(&y);
    *ms = f.ms;
    return rc;
}

static int by_ms(const void *a, const void *b) {
    const struct timing_row *x = a, *y = b;
    return x->ms < y->ms ? 1 : -(x->ms > y->ms);
}

// One more run with every op timed.
static int profile_scorer(struct score_bench *b, int64_t n, struct err *e) {
    double ms;
    int rows;
    timing_clear(b->x);
    timing_section(b->x, "score");
    timing_switch(b->x, true);
    int rc = score_once(b, n, &ms, e);
    timing_switch(b->x, false);
    const struct timing_row *found = timing_rows(b->x, &rows);
    struct timing_row *sorted = rc ? NULL : calloc((size_t)rows + 1, sizeof *sorted);
    if (!sorted)
        return rc ? rc : err_set(e, ERR_MEMORY, "no memory for %d ops", rows);
    memcpy(sorted, found, (size_t)rows * sizeof *sorted);
    qsort(sorted, (size_t)rows, sizeof *sorted, by_ms);
    jw_key_begin(&b->json, "ops", '[');
    for (int i = 0; i < rows; i++) {
        str_printf(&b->text, "    %-44s %7lld calls %10.2f ms\n", sorted[i].op,
                   (long long)sorted[i].calls, sorted[i].ms);
        jw_begin(&b->json, '{');
        jw_key_str(&b->json, "op", sorted[i].op);
        jw_key_int(&b->json, "calls", sorted[i].calls);
        jw_key_num(&b->json, "ms", sorted[i].ms);
        jw_key_num(&b->json, "floor_ms", b->copy_rate > 0 ? sorted[i].bytes / b->copy_rate : 0);
        jw_end(&b->json, '}');
    }
    jw_end(&b->json, ']');
    free(sorted);
    return 0;
}

static int score_length(struct score_bench *b, int64_t n, struct err *e) {
    double best = 0, best_first = 0, scored = 0, first = 0;
    int64_t kept = n;
    struct score_plan plan;
    int rc = score_plan_of(&plan, b->x, b->g, &b->options, n, e);
    jw_begin(&b->json, '{');
    jw_key_int(&b->json, "tokens", n);
    jw_key_begin(&b->json, "score_ms", '[');
    for (int i = 0; i <= REPEATS && !rc && !cli_interrupted(); i++) {
        bench_random_ids(b->ids, n, (uint64_t)options_int(&b->a->opt, OPT_SEED), b->vocab);
        rc = b->s ? first_token(b, n, &scored, &first, &kept, e) : score_once(b, n, &scored, e);
        if (i > 0)
            jw_num(&b->json, scored);
        best = i == 1 ? scored : fmin(best, scored);
        best_first = i == 1 ? first : fmin(best_first, first);
    }
    jw_end(&b->json, ']');
    if (!rc) {
        str_printf(&b->text, "%9lld tokens: %10.1f ms, %.2f GB\n", (long long)n, best,
                   (double)(plan.total + plan.own) / 1e9);
        jw_key_int(&b->json, "bytes", plan.total + plan.own);
    }
    if (!rc && b->s) {
        str_printf(&b->text, "    %lld kept, first token after %.1f ms\n", (long long)kept,
                   best_first);
        jw_key_int(&b->json, "kept", kept);
        jw_key_num(&b->json, "first_ms", best_first);
    }
    if (!rc && b->copy_rate > 0 && !cli_interrupted())
        rc = profile_scorer(b, n, e);
    jw_end(&b->json, '}');
    return rc ? err_prefix(e, "%lld tokens", (long long)n) : 0;
}

static void put_arenas(struct json_writer *w, const struct exec_memory *m) {
    static const char *const names[EXEC_ARENAS] = {[ARENA_WORK] = "work",
                                                   [ARENA_WEIGHTS] = "weights",
                                                   [ARENA_STATES] = "states",
                                                   [ARENA_PAGES] = "pages",
                                                   [ARENA_SLOTS] = "slots"};
    jw_key_begin(w, "arenas", '{');
    for (int i = 0; i < EXEC_ARENAS; i++) {
        jw_key_begin(w, names[i], '{');
        jw_key_int(w, "held_bytes", m->arena[i].held);
        jw_key_int(w, "used_bytes", m->arena[i].used);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

static int score_lengths(struct score_bench *b, struct err *e) {
    size_t lengths;
    int64_t longest = 0;
    const int32_t *list = options_list(&b->a->opt, OPT_PROMPT_TOKENS, &lengths);
    for (size_t i = 0; i < lengths; i++)
        longest = max_i64(longest, list[i]);
    b->ids = calloc((size_t)longest + 1, sizeof *b->ids);
    b->score = calloc((size_t)longest + 1, sizeof *b->score);
    int rc = b->ids && b->score
                 ? 0
                 : err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)longest);
    jw_begin(&b->json, '{');
    jw_key_str(&b->json, "device", exec_label(b->x));
    jw_key_begin(&b->json, "lengths", '[');
    for (size_t i = 0; i < lengths && !rc && !cli_interrupted(); i++)
        rc = score_length(b, list[i], e);
    jw_end(&b->json, ']');
    struct exec_memory m;
    exec_memory_of(b->x, &m);
    jw_key_int(&b->json, "peak_bytes", m.peak);
    put_arenas(&b->json, &m);
    jw_end(&b->json, '}');
    return rc;
}

static int run_score_bench(struct score_bench *b, struct err *e) {
    const struct options *o = &b->a->opt;
    b->keep = options_given(o, OPT_PREFILL_KEEP) ? options_float(o, OPT_PREFILL_KEEP) : 0.05;
    int rc = check_score_options(b->a, e);
    if (!rc)
        rc = compression_scorer_options(o, &b->options, e);
    if (!rc)
        rc = open_device(b, e);
    if (!rc)
        rc = open_scorer(b, e);
    cli_catch_interrupt();
    if (!rc)
        rc = score_lengths(b, e);
    if (rc || cli_interrupted())
        return rc;
    return options_flag(o, OPT_JSON) ? cli_print_json(&b->json, e) : cli_print(&b->text, e);
}

int bench_score(const struct cli_args *a, struct err *e) {
    struct score_bench b = {.a = a};
    int rc = run_score_bench(&b, e);
    if (b.scorer)
        b.scorer->kind->destroy(b.scorer);
    if (b.g)
        gguf_close(b.g);
    session_close(b.s);
    runtime_destroy(b.runtime);
    free(b.ids);
    free(b.score);
    str_fini(&b.text);
    str_fini(&b.json.out);
    return rc;
}
