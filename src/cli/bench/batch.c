// SPDX-License-Identifier: Apache-2.0
// Sequences side by side; see batch.h. Only passes in which all sequences still run count.
#include "cli/bench/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

struct batch_bench {
    struct bench *b;
    const int32_t *counts; // [n_counts] of --sequences
    size_t n_counts;
    int most; // the largest of them
    int64_t n_prompt, n_new;
    int32_t **ids;            // [most][n_prompt]
    int32_t **recording;      // [most][n_prompt + n_new + 1], of bench_mode_request
    struct sequence **prefix; // [most] the prompts but for their last token
    struct reply *alone;      // [most]
    double first_ms[BENCH_MODES];
    struct str text;
    struct json_writer json;
};

static int allocate(struct batch_bench *c, struct err *e) {
    size_t n = (size_t)c->most;
    c->ids = calloc(n, sizeof *c->ids);
    c->recording = calloc(n, sizeof *c->recording);
    c->prefix = calloc(n, sizeof *c->prefix);
    c->alone = calloc(n, sizeof *c->alone);
    bool ok = c->ids && c->recording && c->prefix && c->alone;
    for (size_t i = 0; ok && i < n; i++) {
        c->ids[i] = calloc((size_t)c->n_prompt, sizeof **c->ids);
        c->recording[i] = calloc((size_t)(c->n_prompt + c->n_new) + 1, sizeof **c->recording);
        ok = c->ids[i] && c->recording[i];
    }
    return ok ? 0 : err_set(e, ERR_MEMORY, "no memory for %d sequences", c->most);
}

static void release(struct batch_bench *c) {
    for (int i = 0; i < c->most; i++) {
        if (c->ids)
            free(c->ids[i]);
        if (c->recording)
            free(c->recording[i]);
        if (c->prefix)
            sequence_destroy(c->prefix[i]);
        if (c->alone)
            reply_fini(&c->alone[i]);
    }
    free(c->ids);
    free(c->recording);
    free(c->prefix);
    free(c->alone);
    str_fini(&c->text);
    str_fini(&c->json.out);
}

static int read_options(struct batch_bench *c, struct err *e) {
    const struct options *o = &c->b->a->opt;
    size_t n;
    const int32_t *lengths = options_list(o, OPT_PROMPT_TOKENS, &n);
    if (n != 1)
        return err_set(e, ERR_USAGE, "--sequences needs one length of --prompt-tokens");
    c->n_prompt = lengths[0];
    c->n_new = options_int(o, OPT_MAX_TOKENS);
    if (c->n_new < 2)
        return err_set(e, ERR_USAGE, "--sequences needs at least two new tokens; use -n 128");
    c->counts = options_list(o, OPT_SEQUENCES, &c->n_counts);
    for (size_t i = 0; i < c->n_counts; i++)
        c->most = max_i32(c->most, c->counts[i]);
    return 0;
}

static void base_request(const struct batch_bench *c, int i, struct request *r) {
    decode_request(c->b->a, c->b->s, r);
    r->prompt = c->ids[i];
    r->n_prompt = c->n_prompt;
    r->max_tokens = c->n_new;
    r->prefix = c->prefix[i];
    r->logit_hash = true;
}

// Sequence i's prompt, and its reply when it has the device to itself.
static int run_alone(struct batch_bench *c, int i, struct err *e) {
    struct bench *b = c->b;
    struct request r;
    uint64_t seed = (uint64_t)options_int(&b->a->opt, OPT_SEED) + (uint64_t)i;
    bench_random_ids(c->ids[i], c->n_prompt, seed, model_params_of(session_model(b->s))->vocab);
    int rc = 0;
    if (c->n_prompt > 1)
        rc = session_prefill(b->s, c->ids[i], c->n_prompt - 1, &c->prefix[i], e);
    base_request(c, i, &r);
    bench_mode_request(&b->modes, 0, b->a, b->s, &c->alone[i], c->recording[i], &r);
    return rc ? rc : session_generate(b->s, &r, &c->alone[i], e);
}

static bool same(const struct reply *a, const struct reply *b) {
    return a->n == b->n && a->hash == b->hash && a->end == b->end &&
           memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
}

static void json_row(struct json_writer *w, const char *mode, int n, const struct generate_cost *k,
                     int different) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"sequences", n},
                   {"passes", (double)k->steps},
                   {"tokens", (double)k->tokens},
                   {"rows", (double)k->rows},
                   {"draft_ms", k->ms.draft},
                   {"verify_ms", k->ms.verify},
                   {"sample_ms", k->ms.sample},
                   {"commit_ms", k->ms.commit},
                   {"different", different}};
    jw_begin(w, '{');
    jw_key_str(w, "speculate", mode);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        jw_key_num(w, numbers[i].name, numbers[i].value);
    }
    jw_end(w, '}');
}

static void add_row(struct batch_bench *c, int mode, int n, const struct generate_cost *k,
                    int different) {
    const struct step_times *m = &k->ms;
    double steps = k->steps ? (double)k->steps : 1, tokens = (double)k->tokens;
    double ms = m->draft + m->verify + m->sample + m->commit, pass = ms / steps;
    const char *name = c->b->modes.mode[mode].name;
    if (!(c->first_ms[mode] > 0))
        c->first_ms[mode] = pass;
    str_printf(&c->text, "%9d %-15s %7.1f %8.3f %6.2fx %8.3f %8.3f %7.3f %7.3f %6.2f %9.1f  %s\n",
               n, name, (double)k->rows / steps, pass,
               c->first_ms[mode] > 0 ? pass / c->first_ms[mode] : 0, m->draft / steps,
               m->verify / steps, m->sample / steps, m->commit / steps, tokens / steps / n,
               ms > 0 ? tokens * 1000 / ms : 0, different ? "NO" : "yes");
    json_row(&c->json, name, n, k, different);
}

// Nodes beside the root that each of n sequences may verify in one pass. A mode that follows
// --budget auto keeps choosing.
static int fixed_budget(const struct bench *b, struct bench_mode *w, int n) {
    int budget = w->budget;
    if (budget < 0)
        budget = decode_budget(b->a, &w->choose, NULL);
    return w->choose ? -1 : min_i32(budget, model_max_verify(session_model(b->s)) / n - 1);
}

// One mode with n sequences in each pass, compared with the same alone.
static int run_mode(struct batch_bench *c, int mode, int n, struct err *e) {
    struct bench *b = c->b;
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
        base_request(c, i, &r[i]);
        bench_mode_request(&modes, mode, b->a, b->s, &c->alone[i], c->recording[i], &r[i]);
    }
    if (!rc)
        rc = session_generate_many(b->s, r, n, y, &cost, e);
    for (int i = 0; !rc && i < n; i++)
        different += !same(&y[i], &c->alone[i]);
    if (!rc)
        add_row(c, mode, n, &cost, different);
    b->different += different;
    for (int i = 0; y && i < n; i++)
        reply_fini(&y[i]);
    free(y);
    free(r);
    return rc;
}

static int run_all(struct batch_bench *c, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < c->most && !cli_interrupted(); i++)
        rc = run_alone(c, i, e);
    for (int w = 0; w < c->b->modes.n; w++)
        for (size_t i = 0; !rc && i < c->n_counts && !cli_interrupted(); i++)
            rc = run_mode(c, w, c->counts[i], e);
    return rc;
}

static int print(struct batch_bench *c, struct err *e) {
    struct bench *b = c->b;
    if (options_flag(&b->a->opt, OPT_JSON))
        return cli_print_json(&c->json, e);
    if (b->modes.oracle.on)
        str_printf(&c->text,
                   "oracle: guesses are not the draft's but recordings of plain decoding "
                   "with errors; the draft ran at full cost: %s\n",
                   session_draft(b->s) ? "yes" : "no draft");
    str_printf(&c->text,
               "prompts of %lld tokens; milliseconds a pass, and tok/s, of all sequences; "
               "equal: same tokens and logits as alone\n",
               (long long)c->n_prompt);
    return cli_print(&c->text, e);
}

int bench_batch(struct bench *b, struct err *e) {
    struct batch_bench c = {.b = b};
    int rc = read_options(&c, e);
    if (!rc)
        rc = allocate(&c, e);
    str_printf(&c.text, "%9s %-15s %7s %8s %7s %8s %8s %7s %7s %6s %9s  %s\n", "sequences", "how",
               "rows", "pass", "growth", "draft", "verify", "sample", "commit", "AL", "tok/s",
               "equal");
    jw_begin(&c.json, '[');
    if (!rc)
        rc = run_all(&c, e);
    jw_end(&c.json, ']');
    if (!rc && !cli_interrupted())
        rc = print(&c, e);
    release(&c);
    return rc;
}
