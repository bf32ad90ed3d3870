// SPDX-License-Identifier: Apache-2.0
// Cutting a text into windows and scoring them; see windows.h.
#include "cli/perplexity/windows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/pool.h"
#include "cli/models/decode.h"
#include "cli/perplexity/rows.h"

// What a run needs besides the scores.
struct window_pass {
    struct forest f;
    struct pool *pool;
    int32_t bos;    // -1: windows begin with their own token
    float *logits;  // [slice][vocab]
    uint16_t *row;  // [slice][units], where rows are made
    int64_t *place; // [rows of a pass] of wanted rows: window * scored + i
    int64_t wanted; // of the pass
    int64_t slice;  // the first one whose logits are here
};

static int64_t scored_of(const struct windows *p) {
    return window_scored(p->shape.window);
}

int32_t windows_target(const struct windows *p, int64_t place) {
    int64_t window = place / scored_of(p), i = place % scored_of(p);
    return p->ids[window * p->shape.window + p->shape.window / 2 + 1 + i];
}

static void score_rows(void *arg, int64_t begin, int64_t end, int worker) {
    struct windows *p = arg;
    struct window_pass *pass = p->pass;
    int64_t vocab = p->shape.vocab, scored = scored_of(p);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *logits = pass->logits + i * vocab;
        uint16_t *own = pass->row ? pass->row + i * row_units(vocab) : NULL;
        int64_t place = pass->place[pass->slice + i];
        int32_t id = windows_target(p, place);
        struct window_score *y = &p->score[place];
        struct row_sum s = row_sum_of(logits, vocab);
        *y = (struct window_score){.nll = s.sum - (double)logits[id], .whole = true};
        if (p->compared) {
            const uint16_t *row = reference_row(p->compared, place / scored, place % scored);
            struct row_difference d = row_compare(&s, logits, vocab, row, own);
            y->reference_nll = -row_reference(row, id);
            y->kl = d.kl;
            y->same_top = d.same_top;
            y->whole = d.whole;
        }
        if (p->saved)
            row_encode(&s, logits, vocab, own);
    }
}

// What went wrong in the slice, if anything did.
static int check_scores(const struct windows *p, int64_t n, struct err *e) {
    for (int64_t i = 0; i < n; i++) {
        int64_t place = p->pass->place[p->pass->slice + i], window = place / scored_of(p);
        if (!p->score[place].whole)
            return err_set(e, ERR_FORMAT,
                           "%s: row %lld of window %lld holds no log-probabilities; write the file "
                           "again",
                           p->compared_name, (long long)(place % scored_of(p)), (long long)window);
        if (!isfinite(p->score[place].nll))
            return err_set(e, ERR_FORMAT,
                           "the model's logits are not finite in window %lld of the text; its file "
                           "may be damaged",
                           (long long)window);
    }
    return 0;
}

// Scores the wanted rows of the last pass, a slice of logits at a time.
static int score_pass(struct windows *p, struct err *e) {
    struct window_pass *pass = p->pass;
    struct model *m = session_model(p->s);
    struct exec *x = model_exec(m);
    int64_t most = model_logits_rows(m), vocab = p->shape.vocab, n;
    int rc = 0;
    for (pass->slice = 0; pass->slice < pass->wanted && !rc; pass->slice += n) {
        n = min_i64(most, pass->wanted - pass->slice);
        exec_ops(x)->download(x, pass->logits, model_logits(m, pass->slice, n),
                              (size_t)(n * vocab) * sizeof *pass->logits);
        rc = exec_status(x, e);
        if (rc)
            return rc;
        pool_run(pass->pool, n, 1, score_rows, p);
        rc = check_scores(p, n, e);
        for (int64_t i = 0; i < n && p->saved && !rc; i++) {
            int64_t place = pass->place[pass->slice + i];
            rc = reference_write(p->saved, &p->shape, place / scored_of(p), place % scored_of(p),
                                 pass->row + i * row_units(vocab), e);
        }
    }
    return rc;
}

// Tokens first .. first + n - 1 of a window as a chain of sequence seq.
static void add_piece(struct windows *p, int64_t window, int32_t seq, int64_t first, int64_t n) {
    struct window_pass *pass = p->pass;
    struct forest *f = &pass->f;
    const int32_t *ids = p->ids + window * p->shape.window;
    int64_t from = f->n, half = p->shape.window / 2;
    int32_t head = first == 0 && pass->bos >= 0 ? pass->bos : ids[first];
    int32_t row = forest_chain(f, seq, first, &head, 1, false);
    for (int64_t i = 1; i < n; i++)
        row = forest_add(f, row, ids[first + i], false);
    for (int64_t i = max_i64(first, half); i < first + n; i++)
        pass->place[pass->wanted++] = window * scored_of(p) + i - half;
    if (first + n > half)
        forest_request_logits(f, from + max_i64(half - first, 0), n - max_i64(half - first, 0));
}

static double nll_mean(const struct windows *p, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += p->score[i].nll;
    return sum / (double)n;
}

// One line redrawn on a terminal, else a line per tenth. done: tokens of windows from the first
// on; scored: how many of them have scores.
static void show_progress(struct windows *p, int64_t done, int64_t scored) {
    int64_t all = p->shape.windows * (p->shape.window - 1);
    double left = (clock_ms() - p->begin) / (double)done * (double)(all - done) / 1000;
    bool redraw = cli_progress_wanted();
    if (!redraw && (p->quiet || 10 * done / all == p->shown))
        return;
    p->shown = 10 * done / all;
    fprintf(stderr, "%s%s%3d %% of %lld windows", redraw ? "\r" : "", p->label ? p->label : "",
            (int)(100 * done / all), (long long)p->shape.windows);
    if (scored)
        fprintf(stderr, ", perplexity %.4f", exp(nll_mean(p, scored)));
    fprintf(stderr, ", %d:%02d left%s", (int)(left / 60), (int)left % 60,
            redraw ? done == all ? "   \n" : "   " : "\n");
}

// Windows first .. first + n - 1 side by side, a piece of each in every pass.
static int score_group(struct windows *p, int64_t first, int n, struct err *e) {
    struct model *m = session_model(p->s);
    struct forest *f = &p->pass->f;
    struct sequence *seq[128] = {0};
    int64_t tokens = p->shape.window - 1; // nothing is predicted after the last one
    int64_t most = max_i64(f->cap / n, 1);
    int rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        rc = model_sequence(m, &seq[i], e);
        if (!rc) // all of it is a prompt
            rc = sequence_sparse(seq[i], INT64_MAX, e);
    }
    for (int64_t at = 0, piece; at < tokens && !rc && !cli_interrupted(); at += piece) {
        piece = min_i64(most, tokens - at);
        forest_reset(f);
        p->pass->wanted = 0;
        for (int i = 0; i < n; i++)
            add_piece(p, first + i, i, at, piece);
        rc = model_forward(m, f, seq, n, e);
        if (!rc)
            rc = score_pass(p, e);
        if (!rc)
            show_progress(p, first * tokens + n * (at + piece),
                          (at + piece == tokens ? first + n : first) * scored_of(p));
    }
    for (int i = 0; i < n; i++)
        sequence_destroy(seq[i]);
    return rc;
}

static int take_memory(struct windows *p, int64_t rows, struct err *e) {
    struct window_pass *pass = p->pass;
    size_t slice = (size_t)model_logits_rows(session_model(p->s)), vocab = (size_t)p->shape.vocab;
    size_t scores = (size_t)(p->shape.windows * scored_of(p));
    bool rows_wanted = p->saved || p->compared;
    pass->logits = malloc(slice * vocab * sizeof *pass->logits);
    if (!p->score)
        p->score = malloc(scores * sizeof *p->score);
    if (rows_wanted)
        pass->row = malloc(slice * (size_t)row_units(p->shape.vocab) * sizeof *pass->row);
    if (!pass->logits || !p->score || (rows_wanted && !pass->row))
        return err_set(e, ERR_MEMORY, "no memory for %zu rows of %zu logits and %zu scores", slice,
                       vocab, scores);
    pass->place = calloc((size_t)rows, sizeof *pass->place);
    if (!pass->place)
        return err_set(e, ERR_MEMORY, "no memory for a pass of %lld rows", (long long)rows);
    int rc = forest_init(&pass->f, rows, e);
    return rc ? rc : pool_create(&pass->pool, p->threads, e);
}

int windows_score(struct windows *p, struct err *e) {
    struct model *m = session_model(p->s);
    const struct tokenizer *t = session_tokenizer(p->s);
    struct window_pass pass = {.bos = t && tokenizer_add_bos(t) ? tokenizer_bos(t) : -1};
    int64_t all = p->shape.windows, rows = session_chunk(p->s, all * p->shape.window);
    int64_t group = p->group < 0 ? rows / p->shape.window : p->group;
    group = max_i64(1, min_i64(min_i64(group, all), min_i64(rows, model_max_seqs(m))));
    p->pass = &pass;
    p->begin = clock_ms();
    p->shown = -1;
    int rc = take_memory(p, rows, e);
    for (int64_t i = 0; i < all && !rc && !cli_interrupted(); i += group)
        rc = score_group(p, i, (int)min_i64(group, all - i), e);
    if (rc == ERR_MEMORY && group > 1)
        err_prefix(e, "%lld windows in a pass, of which --parallel sets fewer", (long long)group);
    p->pass = NULL;
    forest_fini(&pass.f);
    pool_destroy(pass.pool);
    free(pass.logits);
    free(pass.row);
    free(pass.place);
    return rc;
}

void windows_fini(struct windows *p) {
    free(p->ids);
    free(p->score);
    *p = (struct windows){0};
}

// Cuts ids into windows, at most --windows. path: what the text is called.
static int cut_text(struct windows *p, const struct cli_args *a, const char *path,
                    struct token_list *ids, struct err *e) {
    int64_t n = (int64_t)ids->count, max = options_int(&a->opt, OPT_WINDOWS);
    p->shape.windows = n / p->shape.window;
    if (n == 0)
        return err_set(e, ERR_USAGE, "'%s' holds no text; give one of %lld tokens or more", path,
                       (long long)p->shape.window);
    if (p->shape.windows == 0)
        return err_set(e, ERR_USAGE,
                       "'%s' has %lld tokens, less than a window of %lld; give a longer text or a "
                       "smaller %s",
                       path, (long long)n, (long long)p->shape.window,
                       a->command->id == CLI_BENCH ? "--window" : "-c");
    if (max && max < p->shape.windows)
        p->shape.windows = max;
    p->ids = ids->ids;
    ids->ids = NULL;
    return 0;
}

// Appends the tokens of -f, as llama.cpp reads a text.
static int read_file(const struct windows *p, const struct cli_args *a, struct token_list *ids,
                     struct err *e) {
    const struct tokenizer *t = session_tokenizer(p->s);
    struct str text = {0};
    int rc = cli_read_text(a, &text, e);
    if (!rc && !t)
        rc = err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer, and a text cannot be read without",
                     options_str(&a->opt, OPT_MODEL));
    text.len -= text.len > 0 && text.data[text.len - 1] == '\n';
    if (!rc && text.len && tokenizer_add_bos(t))
        rc = token_list_push(ids, tokenizer_bos(t), e);
    if (!rc && text.len)
        rc = tokenizer_encode(t, text.data, text.len, false, ids, e);
    str_fini(&text);
    return rc;
}

int windows_read(struct windows *p, const struct cli_args *a, struct err *e) {
    struct token_list ids = {0};
    bool given = options_given(&a->opt, OPT_IDS);
    int rc = given ? decode_prompt(a, p->s, &ids, e) : read_file(p, a, &ids, e);
    if (!rc)
        rc = cut_text(p, a, given ? "--ids" : options_str(&a->opt, OPT_FILE), &ids, e);
    token_list_fini(&ids);
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static struct window_spread spread_of(double *v, int64_t n) {
    struct window_spread s = {.sorted = v};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += v[i];
    s.mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (v[i] - s.mean) * (v[i] - s.mean);
    s.error = n > 1 ? sqrt(squares / (double)n / (double)(n - 1)) : 0;
    qsort(v, (size_t)n, sizeof *v, by_value);
    return s;
}

int windows_result(const struct windows *p, struct windows_result *r, struct err *e) {
    int64_t n = p->shape.windows * scored_of(p);
    double *v = malloc((size_t)n * 2 * sizeof *v);
    *r = (struct windows_result){.n = n, .values = v};
    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for %lld scores", (long long)n);
    double reference = 0, worst = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const struct window_score *y = &p->score[i];
        v[i] = y->nll;
        v[n + i] = y->kl;
        reference += y->reference_nll;
        r->same_top += y->same_top;
        if (y->kl > worst) {
            worst = y->kl;
            r->worst = i;
        }
    }
    r->nll = spread_of(v, n);
    r->kl = spread_of(v + n, n);
    r->reference = exp(reference / (double)n);
    return 0;
}
