// SPDX-License-Identifier: Apache-2.0
// `bench kv`; see bench.h. The model is loaded once with f16, whose rows of logits over the text go
// to a file for as long as the program runs, and then once for each pair, whose rows are compared
// with these; never are two of them loaded. What is counted besides (guesses, facts found, times)
// is counted the same way for all. A pair that the model or the device does not have is said so in
// its row and the others go on.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "cli/bench/bench.h"
#include "cli/bench/kv_costs.h"
#include "cli/chat/dialog.h"
#include "cli/perplexity/windows.h"
#include "cli/scratch.h"

enum { BUDGET = 22, ANSWER_TOKENS = 64, STEPS = 16 };

struct kv_bench {
    const struct cli_args *a;
    struct kv_costs costs;
    int pair; // that is being measured
    struct session *s;
    struct windows w;
    struct scratch scratch;
    struct str path; // of the rows of f16
    struct reference reference;
    struct file_new saved;
    struct bench_prompts prompts, cases;
};

static struct kv_cost *row_of(struct kv_bench *b) {
    return &b->costs.row[b->pair];
}

// Options that other ways of measuring have.
static int check_options(const struct cli_args *a, struct err *e) {
    static const int others[] = {OPT_KV_TYPE, OPT_KV_TYPE_K,      OPT_KV_TYPE_V, OPT_SEQUENCES,
                                 OPT_ENGINE,  OPT_ROUNDS,         OPT_MODES,     OPT_DRAFTER,
                                 OPT_URL,     OPT_SPARSE_PREFILL, OPT_FA_WINDOW};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(&a->opt, others[i]))
            return err_set(e, ERR_USAGE, "--%s has no meaning for 'bench kv'",
                           cli_options[others[i]].name);
    if (!options_given(&a->opt, OPT_FILE))
        return err_set(e, ERR_USAGE, "'bench kv' needs -f FILE, a text to compare over");
    if (options_given(&a->opt, OPT_DRAFT) != options_given(&a->opt, OPT_PROMPTS))
        return err_set(e, ERR_USAGE,
                       "'bench kv' needs -d and --prompts together: prompts for the guesses of a "
                       "draft to be counted over");
    return cli_need(a, OPT_MODEL, e);
}

static int read_cases(struct kv_bench *b, struct err *e) {
    const char *path = options_str(&b->a->opt, OPT_NEEDLES);
    int rc = path ? bench_prompts_read(&b->cases, path, e) : 0;
    for (size_t i = 0; i < b->cases.n && !rc; i++)
        if (!b->cases.prompts[i].n_needles)
            rc = err_set(e, ERR_FORMAT,
                         "%s: prompt %s has no needles; bench/niah.py --out FILE writes prompts "
                         "with some",
                         path, b->cases.prompts[i].id);
    return rc;
}

static int open_session(struct kv_bench *b, struct err *e) {
    struct session_options o;
    struct decode_files files = {0};
    int rc = decode_session(b->a, &o, &files, e);
    o.target.codec_k = row_of(b)->k;
    o.target.codec_v = row_of(b)->v;
    o.target.max_seqs = 1;
    if (!rc)
        rc = session_open(&b->s, &o, e);
    decode_files_fini(&files);
    if (rc)
        return rc;
    if (b->w.shape.window > model_max_ctx(session_model(b->s)))
        return err_set(e, ERR_USAGE,
                       "a window of %lld tokens is longer than the context of %lld; give a smaller "
                       "--window or a larger --max-ctx",
                       (long long)b->w.shape.window, (long long)model_max_ctx(session_model(b->s)));
    if (options_given(&b->a->opt, OPT_DRAFT) && !session_draft(b->s))
        return err_set(e, ERR_USAGE, "-d gives no draft; name one, or leave out --prompts");
    return 0;
}

// The text, read by the first session.
static int begin_text(struct kv_bench *b, struct err *e) {
    b->w.shape.vocab = model_params_of(session_model(b->s))->vocab;
    int rc = windows_read(&b->w, b->a, e);
    if (!rc)
        rc = scratch_open(&b->scratch, e);
    str_printf(&b->path, "%s/f16", b->scratch.path);
    if (!rc && b->path.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for a path");
    if (!rc)
        rc = reference_create(&b->saved, b->path.data, &b->w.shape, b->w.ids, e);
    b->w.saved = b->saved.file ? &b->saved : NULL;
    return rc;
}

// What was written becomes what the others are compared with.
static int end_reference(struct kv_bench *b, struct err *e) {
    b->w.saved = NULL;
    int rc = file_new_close(&b->saved, e);
    if (!rc)
        rc = reference_open(&b->reference, b->path.data, e);
    b->w.compared = &b->reference;
    b->w.compared_name = b->path.data;
    return rc;
}

static int measure_text(struct kv_bench *b, struct err *e) {
    struct kv_cost *row = row_of(b);
    struct windows_result r;
    char label[64];
    snprintf(label, sizeof label, "%s: ", row->name);
    b->w.s = b->s;
    b->w.label = label;
    int rc = b->pair == 0 ? begin_text(b, e) : 0;
    if (!rc)
        rc = windows_score(&b->w, e);
    b->w.label = NULL;
    if (rc || cli_interrupted())
        return rc;
    if (b->pair == 0)
        rc = end_reference(b, e);
    if (!rc)
        rc = windows_result(&b->w, &r, e);
    if (rc)
        return rc;
    row->nll = r.nll.mean;
    row->nll_error = r.nll.error;
    row->kl = r.kl.mean;
    row->kl_error = r.kl.error;
    row->kl_99 = r.kl.sorted[(int64_t)(0.99 * (double)(r.n - 1))];
    row->kl_max = r.kl.sorted[r.n - 1];
    row->same_top = b->pair ? (double)r.same_top / (double)r.n : 1;
    b->costs.scored = r.n;
    b->costs.windows = b->w.shape.windows;
    free(r.values);
    return 0;
}

// How many guesses of a tree are accepted. Its size is fixed where it would follow the clock.
static int measure_draft(struct kv_bench *b, struct err *e) {
    struct bench run = {.a = b->a, .s = b->s, .prompts = b->prompts};
    struct bench_mode tree = {.how = SPECULATE_TREE, .budget = b->costs.budget, .error_rate = -1};
    snprintf(tree.name, sizeof tree.name, "tree:%d", tree.budget);
    run.modes = (struct bench_modes){
        .n = 2, .mode = {{.name = "off", .how = SPECULATE_OFF, .budget = -1}, tree}};
    run.sums = calloc((size_t)(b->prompts.n_groups + 1) * BENCH_MODES, sizeof *run.sums);
    int rc = run.sums ? 0 : err_set(e, ERR_MEMORY, "no memory for the sums of a draft");
    jw_begin(&run.rows, '[');
    if (!rc)
        rc = bench_run_prompts(&run, e);
    if (!rc) {
        const struct bench_sums *t = &run.sums[b->prompts.n_groups * BENCH_MODES + 1];
        row_of(b)->steps = t->steps;
        row_of(b)->committed = t->committed;
        row_of(b)->drafted = t->drafted;
        row_of(b)->different = run.different;
    }
    sequence_destroy(run.prefix);
    str_fini(&run.rows.out);
    free(run.sums);
    return rc;
}

// A case as a user's message, or as it is where the file has no chat template.
static int encode_case(struct kv_bench *b, const struct bench_prompt *p, struct token_list *ids,
                       struct err *e) {
    struct dialog d = {0};
    struct chat_text x = {0};
    struct str text = {0};
    token_list_bound(ids, model_max_ctx(session_model(b->s)));
    int rc = dialog_open(&d, b->a, b->s, e);
    if (rc == ERR_UNSUPPORTED && d.t) {
        rc = session_encode(b->s, p->text, p->len, ids, e);
        b->costs.plain_text = true;
    } else if (!rc) {
        str_append(&text, p->text, p->len);
        rc = dialog_say(&d, CONVERSATION_USER, &text, NULL, e);
        if (!rc)
            rc = dialog_render(&d, &x, e);
        if (!rc)
            rc = chat_encode(d.t, &x, ids, e);
    }
    str_fini(&text);
    chat_text_fini(&x);
    dialog_close(&d);
    return rc;
}

static int see_interrupt(void *arg, int64_t done, int64_t total) {
    (void)arg, (void)done, (void)total;
    return cli_interrupted();
}

static int ask_case(struct kv_bench *b, const struct bench_prompt *p, struct err *e) {
    struct token_list ids = {0};
    struct str answer = {0};
    struct reply y = {0};
    struct request r;
    decode_request(b->a, b->s, &r);
    int64_t limit = p->max_tokens ? p->max_tokens : ANSWER_TOKENS * (int64_t)p->n_needles;
    bool limited = options_given(&b->a->opt, OPT_MAX_TOKENS);
    int rc = encode_case(b, p, &ids, e);
    r.prompt = ids.ids;
    r.n_prompt = (int64_t)ids.count;
    r.max_tokens = limited ? min_i64(limit, r.max_tokens) : limit;
    r.progress = see_interrupt;
    if (!rc)
        rc = session_generate(b->s, &r, &y, e);
    decode_text(b->s, y.ids, y.n, &answer);
    if (!rc && answer.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for an answer");
    for (size_t i = 0; i < p->n_needles && !rc; i++)
        row_of(b)->found += answer.len && strstr(answer.data, p->needles[i]);
    row_of(b)->sought += (int64_t)p->n_needles;
    row_of(b)->case_tokens = max_i64(row_of(b)->case_tokens, r.n_prompt);
    reply_fini(&y);
    str_fini(&answer);
    token_list_fini(&ids);
    return rc ? err_prefix(e, "prompt %s", p->id) : 0;
}

static int measure_needles(struct kv_bench *b, struct err *e) {
    int rc = 0;
    model_recall_begin(session_model(b->s));
    for (size_t i = 0; i < b->cases.n && !rc && !cli_interrupted(); i++) {
        if (cli_progress_wanted())
            fprintf(stderr, "\r%s: text %zu of %zu with needles", row_of(b)->name, i + 1,
                    b->cases.n);
        rc = ask_case(b, &b->cases.prompts[i], e);
    }
    if (b->cases.n && cli_progress_wanted())
        fputc('\n', stderr);
    row_of(b)->recall = model_recall_of(session_model(b->s));
    return rc;
}

struct step_clock {
    double last, best; // ms
};

static int see_step(void *arg, const int32_t *ids, int64_t n) {
    struct step_clock *c = arg;
    double now = clock_ms();
    (void)ids, (void)n;
    if (c->last > 0)
        c->best = fmin(c->best, now - c->last);
    c->last = now;
    return cli_interrupted();
}

// The shortest of some steps after n random ids; `prefix` grows, where it is not longer already.
static int measure_step(struct kv_bench *b, int64_t n, struct sequence **prefix, double *ms,
                        struct err *e) {
    struct step_clock clock = {.best = INFINITY};
    struct reply y = {0};
    struct request r;
    int32_t *ids = calloc((size_t)n + 1, sizeof *ids);
    if (!ids)
        return err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
    if (*prefix && sequence_len(*prefix) > n) {
        sequence_destroy(*prefix);
        *prefix = NULL;
    }
    bench_random_ids(ids, n + 1, (uint64_t)options_int(&b->a->opt, OPT_SEED), b->w.shape.vocab);
    int rc = session_prefill(b->s, ids, n, prefix, e);
    decode_request(b->a, b->s, &r);
    r.prompt = ids;
    r.n_prompt = n + 1;
    r.max_tokens = STEPS;
    r.ignore_eos = true;
    r.how = SPECULATE_OFF;
    r.prefix = *prefix;
    r.tokens = see_step;
    r.tokens_arg = &clock;
    if (!rc)
        rc = session_generate(b->s, &r, &y, e);
    *ms = clock.best;
    reply_fini(&y);
    free(ids);
    return rc;
}

static int measure_steps(struct kv_bench *b, struct err *e) {
    struct sequence *prefix = NULL;
    int rc = 0;
    for (int i = 0; i < b->costs.n_lengths && !rc && !cli_interrupted(); i++) {
        if (cli_progress_wanted())
            fprintf(stderr, "\r%s: steps after %d tokens", row_of(b)->name, b->costs.length[i]);
        rc = measure_step(b, b->costs.length[i], &prefix, &row_of(b)->step_ms[i], e);
    }
    if (b->costs.n_lengths && cli_progress_wanted())
        fputc('\n', stderr);
    sequence_destroy(prefix);
    return rc;
}

static int measure_pair(struct kv_bench *b, struct err *e) {
    int rc = open_session(b, e);
    if (rc == ERR_UNSUPPORTED && b->pair) { // of this model or device, which has f16
        row_of(b)->lacking = *e;
        rc = 0;
    } else {
        if (!rc)
            rc = measure_text(b, e);
        if (!rc && b->prompts.n && !cli_interrupted())
            rc = measure_draft(b, e);
        if (!rc && !cli_interrupted())
            rc = measure_needles(b, e);
        if (!rc && !cli_interrupted())
            rc = measure_steps(b, e);
    }
    if (!rc && b->pair == 0)
        kv_costs_device(&b->costs, b->s);
    session_close(b->s);
    b->s = NULL;
    return rc ? err_prefix(e, "%s", row_of(b)->name) : 0;
}

static int run(struct kv_bench *b, struct err *e) {
    const struct options *o = &b->a->opt;
    bool choose;
    int rc = check_options(b->a, e);
    if (!rc)
        rc = kv_costs_read(&b->costs, b->a, e);
    if (!rc && options_given(o, OPT_PROMPTS))
        rc = bench_prompts_read(&b->prompts, options_str(o, OPT_PROMPTS), e);
    if (!rc)
        rc = read_cases(b, e);
    b->costs.budget = decode_budget(b->a, &choose);
    b->costs.budget = choose ? BUDGET : b->costs.budget;
    b->costs.window = b->w.shape.window = options_int(o, OPT_TEXT_WINDOW);
    b->w.threads = (int)options_int(o, OPT_THREADS);
    b->w.group = -1;
    b->w.quiet = true;
    cli_catch_interrupt();
    for (; b->pair < b->costs.n && !rc && !cli_interrupted(); b->pair++) {
        rc = measure_pair(b, e);
        if (!rc && !cli_interrupted())
            kv_costs_progress(&b->costs, b->pair);
    }
    return rc || cli_interrupted() ? rc : kv_costs_print(&b->costs, b->a, e);
}

int bench_kv(const struct cli_args *a, struct err *e) {
    struct kv_bench b = {.a = a};
    int rc = run(&b, e);
    if (b.saved.file)
        file_new_abort(&b.saved);
    reference_close(&b.reference);
    scratch_close(&b.scratch);
    windows_fini(&b.w);
    bench_prompts_fini(&b.prompts);
    bench_prompts_fini(&b.cases);
    str_fini(&b.path);
    kv_costs_fini(&b.costs);
    return rc;
}
