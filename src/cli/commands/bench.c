// SPDX-License-Identifier: Apache-2.0
// `coppice bench`: the modes of decoding side by side on a file of prompts, or on random ids. Every
// mode must give the same tokens from the same logits as plain decoding. Sums are kept per group
// and mode, so that means weigh tokens and passes, not prompts.
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/url/url.h"

static int read_prompts(struct bench *b, struct err *e) {
    const struct options *o = &b->a->opt;
    bool random = options_given(o, OPT_PROMPT_TOKENS);
    if (random == options_given(o, OPT_PROMPTS))
        return err_set(e, ERR_USAGE, "'bench' needs one of --prompts FILE and --prompt-tokens N");
    if (!random && options_given(o, OPT_SEQUENCES))
        return err_set(e, ERR_USAGE, "--sequences needs --prompt-tokens N");
    if (options_flag(o, OPT_ENGINE) && !options_given(o, OPT_SEQUENCES))
        return err_set(e, ERR_USAGE, "--engine needs --sequences LIST, as in --sequences 1,8");
    if (options_given(o, OPT_ROUNDS) && !options_flag(o, OPT_ENGINE))
        return err_set(e, ERR_USAGE, "--rounds needs --engine");
    if (!random)
        return bench_prompts_read(&b->prompts, options_str(o, OPT_PROMPTS), e);
    return 0;
}

static int open_bench(struct bench *b, struct err *e) {
    const struct options *o = &b->a->opt;
    size_t n;
    const int32_t *lengths = options_list(o, OPT_PROMPT_TOKENS, &n);
    int rc = read_prompts(b, e);
    if (!rc)
        rc = decode_open(b->a, false, &b->s, e);
    if (!rc && options_given(o, OPT_PROMPT_TOKENS))
        rc = bench_prompts_random(&b->prompts, lengths, n, (uint64_t)options_int(o, OPT_SEED),
                                  model_params_of(session_model(b->s))->vocab, e);
    if (!rc)
        rc = bench_modes_read(&b->modes, b->a, session_draft(b->s) != NULL, e);
    if (rc)
        return rc;
    b->sums = calloc((size_t)(b->prompts.n_groups + 1) * BENCH_MODES, sizeof *b->sums);
    return b->sums
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for the sums of %d groups", b->prompts.n_groups);
}

static int run_one_by_one(struct bench *b, struct err *e) {
    jw_begin(&b->rows, '[');
    int rc = bench_run_prompts(b, e);
    jw_end(&b->rows, ']');
    if (!rc && b->rows.out.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for the results");
    if (rc || cli_interrupted())
        return rc;
    return options_flag(&b->a->opt, OPT_JSON) ? bench_print_json(b, e) : bench_print_table(b, e);
}

static int run_bench(struct bench *b, struct err *e) {
    int rc = open_bench(b, e);
    if (rc)
        return rc;
    cli_catch_interrupt();
    if (options_flag(&b->a->opt, OPT_ENGINE))
        rc = bench_engine(b, e);
    else
        rc = options_given(&b->a->opt, OPT_SEQUENCES) ? bench_batch(b, e) : run_one_by_one(b, e);
    if (!rc && b->different)
        rc = err_set(e, ERR_STATE, "%lld runs differ from plain decoding; please report this",
                     (long long)b->different);
    return rc;
}

// Options of 'bench score' and 'bench kv' mean nothing to plain decoding and to each other.
static int refuse_options(const struct cli_args *a, const char *what, struct err *e) {
    static const struct {
        int row;
        const char *what;
    } rows[] = {{OPT_PREFILL_DRAFTER, "score"},
                {OPT_PREFILL_KEEP, "score"},
                {OPT_PREFILL_LAYERS, "score"},
                {OPT_PREFILL_SCORE_LAYERS, "score"},
                {OPT_PREFILL_DENSE, "score"},
                {OPT_PREFILL_ALPHA, "score"},
                {OPT_PREFILL_DENSITY, "score"},
                {OPT_FILE, "kv"},
                {OPT_TEXT_WINDOW, "kv"},
                {OPT_WINDOWS, "kv"},
                {OPT_PAIRS, "kv"},
                {OPT_NEEDLES, "kv"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (options_given(&a->opt, rows[i].row) && strcmp(what, rows[i].what) != 0)
            return err_set(e, ERR_USAGE, "--%s is for 'bench %s'", cli_options[rows[i].row].name,
                           rows[i].what);
    return 0;
}

int cmd_bench(const struct cli_args *a, struct err *e) {
    struct bench b = {.a = a};
    const char *what = a->opt.n_operands ? a->opt.operands[0] : "";
    bool score = !strcmp(what, "score"), kv = !strcmp(what, "kv");
    if (what[0] && !score && !kv)
        return err_set(e, ERR_USAGE,
                       "there is no 'bench %.40s'; there are 'bench score' and 'bench kv'", what);
    int rc = refuse_options(a, what, e);
    if (rc || score || kv)
        return rc ? rc : score ? bench_score(a, e) : bench_kv(a, e);
    bool server = bench_url_wanted(a, &rc, e);
    if (rc || server)
        return rc ? rc : bench_url(a, e);
    rc = run_bench(&b, e);
    str_fini(&b.rows.out);
    free(b.sums);
    sequence_destroy(b.prefix);
    session_close(b.s);
    bench_prompts_fini(&b.prompts);
    return rc;
}
