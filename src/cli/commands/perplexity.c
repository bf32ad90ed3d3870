// SPDX-License-Identifier: Apache-2.0
// `coppice perplexity`: how well the target predicts a text, and with --kl-reference how far its
// distributions are from those of another run or program. The text is cut into windows as
// llama.cpp's tool cuts it: each begins with BOS in the place of its first token where the model
// requires BOS, and only the tokens of its second half count. Windows share passes of the target;
// each token's score is kept by its place, so that sums do not depend on which shared one.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/pool.h"
#include "cli/models/decode.h"
#include "cli/perplexity/reference.h"
#include "cli/perplexity/rows.h"

enum { GROUP_MAX = 16 }; // windows of a pass where their number is left open

struct score {
    double nll, reference_nll, kl;
    bool same_top, whole;
};

struct perplexity {
    const struct cli_args *a;
    struct session *s;
    struct reference_shape shape;
    int32_t *ids; // [windows][window], of the text
    int32_t bos;  // -1: windows begin with their own token
    struct reference reference;
    bool compares, saves, begun; // saved: the file is open
    struct file_new saved;
    struct pool *pool;
    float *logits;       // [slice][vocab]
    uint16_t *row;       // [slice][units], where rows are made
    int64_t *place;      // [rows of a pass] of wanted rows: window * scored + i
    struct score *score; // [windows][scored]
    int64_t wanted;      // of the pass
    int64_t slice;       // the first one whose logits are here
    double begin;        // ms
    int64_t shown;       // tenths, where progress is not redrawn
};

static int64_t scored_of(const struct perplexity *p) {
    return window_scored(p->shape.window);
}

// The token that scored token i of the text is.
static int32_t target_of(const struct perplexity *p, int64_t place) {
    int64_t window = place / scored_of(p), i = place % scored_of(p);
    return p->ids[window * p->shape.window + p->shape.window / 2 + 1 + i];
}

static void score_rows(void *arg, int64_t begin, int64_t end, int worker) {
    struct perplexity *p = arg;
    int64_t vocab = p->shape.vocab, scored = scored_of(p);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *logits = p->logits + i * vocab;
        uint16_t *own = p->row ? p->row + i * row_units(vocab) : NULL;
        int64_t place = p->place[p->slice + i];
        int32_t id = target_of(p, place);
        struct score *y = &p->score[place];
        struct row_sum s = row_sum_of(logits, vocab);
        *y = (struct score){.nll = s.sum - (double)logits[id], .whole = true};
        if (p->compares) {
            const uint16_t *row = reference_row(&p->reference, place / scored, place % scored);
            struct row_difference d = row_compare(&s, logits, vocab, row, own);
            y->reference_nll = -row_reference(row, id);
            y->kl = d.kl;
            y->same_top = d.same_top;
            y->whole = d.whole;
        }
        if (p->saves)
            row_encode(&s, logits, vocab, own);
    }
}

// What went wrong in the slice, if anything did.
static int check_scores(const struct perplexity *p, int64_t n, struct err *e) {
    for (int64_t i = 0; i < n; i++) {
        int64_t place = p->place[p->slice + i], window = place / scored_of(p);
        if (!p->score[place].whole)
            return err_set(e, ERR_FORMAT,
                           "%s: row %lld of window %lld holds no log-probabilities; write the file "
                           "again",
                           options_str(&p->a->opt, OPT_KL_REFERENCE),
                           (long long)(place % scored_of(p)), (long long)window);
        if (!isfinite(p->score[place].nll))
            return err_set(e, ERR_FORMAT,
                           "the model's logits are not finite in window %lld of the text; its file "
                           "may be damaged",
                           (long long)window);
    }
    return 0;
}

// Scores the wanted rows of the last pass, a slice of logits at a time.
static int score_pass(struct perplexity *p, struct err *e) {
    struct model *m = session_model(p->s);
    struct exec *x = model_exec(m);
    int64_t most = model_logits_rows(m), vocab = p->shape.vocab, n;
    int rc = 0;
    for (p->slice = 0; p->slice < p->wanted && !rc; p->slice += n) {
        n = min_i64(most, p->wanted - p->slice);
        exec_ops(x)->download(x, p->logits, model_logits(m, p->slice, n),
                              (size_t)(n * vocab) * sizeof *p->logits);
        rc = exec_status(x, e);
        if (rc)
            return rc;
        pool_run(p->pool, n, 1, score_rows, p);
        rc = check_scores(p, n, e);
        for (int64_t i = 0; i < n && p->saves && !rc; i++) {
            int64_t place = p->place[p->slice + i];
            rc = reference_write(&p->saved, &p->shape, place / scored_of(p), place % scored_of(p),
                                 p->row + i * row_units(vocab), e);
        }
    }
    return rc;
}

// Tokens first .. first + n - 1 of a window as a chain of sequence seq.
static void add_piece(struct perplexity *p, struct forest *f, int64_t window, int32_t seq,
                      int64_t first, int64_t n) {
    const int32_t *ids = p->ids + window * p->shape.window;
    int64_t from = f->n, half = p->shape.window / 2;
    int32_t head = first == 0 && p->bos >= 0 ? p->bos : ids[first];
    int32_t row = forest_chain(f, seq, first, &head, 1, false);
    for (int64_t i = 1; i < n; i++)
        row = forest_add(f, row, ids[first + i], false);
    for (int64_t i = max_i64(first, half); i < first + n; i++)
        p->place[p->wanted++] = window * scored_of(p) + i - half;
    if (first + n > half)
        forest_request_logits(f, from + max_i64(half - first, 0), n - max_i64(half - first, 0));
}

static double nll_mean(const struct perplexity *p, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += p->score[i].nll;
    return sum / (double)n;
}

// One line redrawn on a terminal, else a line per tenth. done: tokens of windows from the first
// on; scored: how many of them have scores.
static void show_progress(struct perplexity *p, int64_t done, int64_t scored) {
    int64_t all = p->shape.windows * (p->shape.window - 1);
    double left = (clock_ms() - p->begin) / (double)done * (double)(all - done) / 1000;
    bool redraw = cli_progress_wanted();
    if (!redraw && 10 * done / all == p->shown)
        return;
    p->shown = 10 * done / all;
    fprintf(stderr, "%s%3d %% of %lld windows", redraw ? "\r" : "", (int)(100 * done / all),
            (long long)p->shape.windows);
    if (scored)
        fprintf(stderr, ", perplexity %.4f", exp(nll_mean(p, scored)));
    fprintf(stderr, ", %d:%02d left%s", (int)(left / 60), (int)left % 60,
            redraw ? done == all ? "   \n" : "   " : "\n");
}

// Windows first .. first + n - 1 side by side, a piece of each in every pass.
static int score_group(struct perplexity *p, struct forest *f, int64_t first, int n,
                       struct err *e) {
    struct model *m = session_model(p->s);
    struct sequence *seq[128] = {0};
    int64_t tokens = p->shape.window - 1; // nothing is predicted after the last one
    int64_t most = max_i64(f->cap / n, 1);
    int rc = 0;
    for (int i = 0; i < n && !rc; i++)
        rc = model_sequence(m, &seq[i], e);
    for (int64_t at = 0, piece; at < tokens && !rc && !cli_interrupted(); at += piece) {
        piece = min_i64(most, tokens - at);
        forest_reset(f);
        p->wanted = 0;
        for (int i = 0; i < n; i++)
            add_piece(p, f, first + i, i, at, piece);
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

static int score_windows(struct perplexity *p, struct err *e) {
    struct model *m = session_model(p->s);
    int64_t all = p->shape.windows, rows = session_chunk(p->s, all * p->shape.window);
    int64_t group = options_int(&p->a->opt, OPT_WINDOWS_A_PASS);
    if (group < 0)
        group = rows / p->shape.window;
    group = max_i64(1, min_i64(min_i64(group, all), min_i64(rows, model_max_seqs(m))));
    struct forest f = {0};
    int rc = forest_init(&f, rows, e);
    p->place = calloc((size_t)rows, sizeof *p->place);
    if (!rc && !p->place)
        rc = err_set(e, ERR_MEMORY, "no memory for a pass of %lld rows", (long long)rows);
    p->begin = clock_ms();
    for (int64_t i = 0; i < all && !rc && !cli_interrupted(); i += group)
        rc = score_group(p, &f, i, (int)min_i64(group, all - i), e);
    if (rc == ERR_MEMORY && group > 1)
        err_prefix(e, "%lld windows in a pass, of which --parallel sets fewer", (long long)group);
    forest_fini(&f);
    return rc;
}

static int take_memory(struct perplexity *p, struct err *e) {
    size_t slice = (size_t)model_logits_rows(session_model(p->s)), vocab = (size_t)p->shape.vocab;
    size_t scores = (size_t)(p->shape.windows * scored_of(p));
    p->logits = malloc(slice * vocab * sizeof *p->logits);
    p->score = malloc(scores * sizeof *p->score);
    if (p->saves || p->compares)
        p->row = malloc(slice * (size_t)row_units(p->shape.vocab) * sizeof *p->row);
    if (!p->logits || !p->score || ((p->saves || p->compares) && !p->row))
        return err_set(e, ERR_MEMORY, "no memory for %zu rows of %zu logits and %zu scores", slice,
                       vocab, scores);
    return pool_create(&p->pool, (int)options_int(&p->a->opt, OPT_THREADS), e);
}

// What the text is called in sentences.
static const char *text_name(const struct perplexity *p) {
    const char *path = options_str(&p->a->opt, OPT_FILE);
    return path ? path : "--ids";
}

// Cuts ids into windows, at most --windows.
static int cut_text(struct perplexity *p, struct token_list *ids, struct err *e) {
    const char *path = text_name(p);
    int64_t n = (int64_t)ids->count, max = options_int(&p->a->opt, OPT_WINDOWS);
    p->shape.windows = n / p->shape.window;
    if (n == 0)
        return err_set(e, ERR_USAGE, "'%s' holds no text; give one of %lld tokens or more", path,
                       (long long)p->shape.window);
    if (p->shape.windows == 0)
        return err_set(e, ERR_USAGE,
                       "'%s' has %lld tokens, less than a window of %lld; give a longer text or a "
                       "smaller -c",
                       path, (long long)n, (long long)p->shape.window);
    if (max && max < p->shape.windows)
        p->shape.windows = max;
    p->ids = ids->ids;
    ids->ids = NULL;
    return 0;
}

// Appends the tokens of -f. Control tokens are not recognised and a line end at the end of the file
// does not count, as in llama.cpp.
static int read_file(struct perplexity *p, struct token_list *ids, struct err *e) {
    const struct tokenizer *t = session_tokenizer(p->s);
    struct str text = {0};
    int rc = cli_read_text(p->a, &text, e);
    if (!rc && !t)
        rc = err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer, and a text cannot be read without",
                     options_str(&p->a->opt, OPT_MODEL));
    text.len -= text.len > 0 && text.data[text.len - 1] == '\n';
    if (!rc && text.len && tokenizer_add_bos(t))
        rc = token_list_push(ids, tokenizer_bos(t), e);
    if (!rc && text.len)
        rc = tokenizer_encode(t, text.data, text.len, false, ids, e);
    str_fini(&text);
    return rc;
}

// The tokens of -f or --ids; those of --ids as they are.
static int read_text(struct perplexity *p, struct err *e) {
    struct token_list ids = {0};
    int rc = options_given(&p->a->opt, OPT_IDS) ? decode_prompt(p->a, p->s, &ids, e)
                                                : read_file(p, &ids, e);
    if (!rc)
        rc = cut_text(p, &ids, e);
    token_list_fini(&ids);
    return rc;
}

// The text of the reference, which that of -f, if there is one, must be.
static int take_reference(struct perplexity *p, struct err *e) {
    const struct reference *r = &p->reference;
    const char *path = options_str(&p->a->opt, OPT_KL_REFERENCE);
    int64_t vocab = model_params_of(session_model(p->s))->vocab;
    int64_t windows = r->shape.windows, max = options_int(&p->a->opt, OPT_WINDOWS);
    if (r->shape.vocab != vocab)
        return err_set(
            e, ERR_MISMATCH,
            "%s has logits of %lld tokens, and the model has %lld; the reference must be "
            "of a model with the same vocabulary",
            path, (long long)r->shape.vocab, (long long)vocab);
    windows = max && max < windows ? max : windows;
    int64_t n = windows * r->shape.window;
    if (p->ids) {
        for (int64_t i = 0; i < n; i++)
            if (p->shape.windows < windows || p->ids[i] != reference_token(r, i))
                return err_set(e, ERR_MISMATCH,
                               "%s is of another text, or of another tokenizer, than '%s'; without "
                               "it the reference's own is read",
                               path, text_name(p));
    } else {
        p->ids = malloc((size_t)n * sizeof *p->ids);
        if (!p->ids)
            return err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
        for (int64_t i = 0; i < n; i++)
            p->ids[i] = reference_token(r, i);
    }
    p->shape.windows = windows;
    return 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Mean of v[n], its standard error, and (sorted is then [n]) its order.
struct spread {
    double mean, error, *sorted;
};

static struct spread spread_of(double *v, int64_t n) {
    struct spread s = {.sorted = v};
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

struct result {
    int64_t n, worst, same_top; // scored tokens; the place with the largest KL
    struct spread nll, kl;
    double reference;
};

static int find_result(const struct perplexity *p, struct result *r, double *v, struct err *e) {
    int64_t n = r->n = p->shape.windows * scored_of(p);
    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for %lld scores", (long long)n);
    double reference = 0, worst = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const struct score *y = &p->score[i];
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

// Value below which that part of the tokens is.
static double quantile(const struct result *r, double part) {
    return r->kl.sorted[(int64_t)(part * (double)(r->n - 1))];
}

static int64_t worst_token(const struct perplexity *p, const struct result *r) {
    return r->worst / scored_of(p) * p->shape.window + p->shape.window / 2 + 1 +
           r->worst % scored_of(p);
}

static int print_text(const struct perplexity *p, const struct result *r, struct err *e) {
    struct str out = {0}, piece = {0};
    double ppl = exp(r->nll.mean);
    str_printf(&out, "perplexity %.4f ± %.5f over %lld tokens in %lld windows of %lld\n", ppl,
               ppl * r->nll.error, (long long)r->n, (long long)p->shape.windows,
               (long long)p->shape.window);
    if (p->compares) {
        int32_t id = target_of(p, r->worst);
        struct json_writer quoted = {0};
        decode_text(p->s, &id, 1, &piece);
        jw_str(&quoted, piece.data ? piece.data : "", piece.len);
        str_printf(&out,
                   "reference  %.4f; perplexity is %.6f times that\n"
                   "KL         mean %.6f ± %.6f, median %.6f, 99 %% %.6f, 99.9 %% %.6f\n"
                   "           max %.6f at token %lld of the text, %s\n"
                   "same top   %.3f %% of tokens\n",
                   r->reference, ppl / r->reference, r->kl.mean, r->kl.error, quantile(r, 0.5),
                   quantile(r, 0.99), quantile(r, 0.999), p->score[r->worst].kl,
                   (long long)worst_token(p, r), quoted.out.data ? quoted.out.data : "",
                   100.0 * (double)r->same_top / (double)r->n);
        str_fini(&quoted.out);
        str_fini(&piece);
    }
    return cli_print(&out, e);
}

static int print_json(const struct perplexity *p, const struct result *r, struct err *e) {
    struct json_writer w = {0};
    double ppl = exp(r->nll.mean);
    jw_begin(&w, '{');
    jw_key_num(&w, "perplexity", ppl);
    jw_key_num(&w, "error", ppl * r->nll.error);
    jw_key_num(&w, "nll", r->nll.mean);
    jw_key_int(&w, "tokens", r->n);
    jw_key_int(&w, "windows", p->shape.windows);
    jw_key_int(&w, "window", p->shape.window);
    if (p->compares) {
        jw_key_num(&w, "reference_perplexity", r->reference);
        jw_key_begin(&w, "kl", '{');
        jw_key_num(&w, "mean", r->kl.mean);
        jw_key_num(&w, "error", r->kl.error);
        jw_key_num(&w, "median", quantile(r, 0.5));
        jw_key_num(&w, "p99", quantile(r, 0.99));
        jw_key_num(&w, "p999", quantile(r, 0.999));
        jw_key_num(&w, "max", p->score[r->worst].kl);
        jw_key_int(&w, "max_token", worst_token(p, r));
        jw_end(&w, '}');
        jw_key_num(&w, "same_top", (double)r->same_top / (double)r->n);
    }
    jw_key_num(&w, "ms", clock_ms() - p->begin);
    decode_json_memory(&w, p->s);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static int print_result(const struct perplexity *p, struct err *e) {
    struct result r = {0};
    double *v = malloc((size_t)(p->shape.windows * scored_of(p)) * 2 * sizeof *v);
    int rc = find_result(p, &r, v, e);
    if (!rc)
        rc = options_flag(&p->a->opt, OPT_JSON) ? print_json(p, &r, e) : print_text(p, &r, e);
    free(v);
    return rc;
}

static int open_model(struct perplexity *p, struct err *e) {
    struct session_options o;
    struct decode_files files = {0};
    int rc = decode_session(p->a, &o, &files, e);
    int64_t group = options_int(&p->a->opt, OPT_WINDOWS_A_PASS);
    o.target.max_ctx = p->shape.window;
    o.target.max_seqs = group < 0 ? GROUP_MAX : (int)group;
    if (!rc)
        rc = session_open(&p->s, &o, e);
    decode_files_fini(&files);
    if (rc)
        return rc;
    decode_show_plan(p->a, p->s);
    const struct tokenizer *t = session_tokenizer(p->s);
    p->bos = t && tokenizer_add_bos(t) ? tokenizer_bos(t) : -1;
    p->shape.vocab = model_params_of(session_model(p->s))->vocab;
    return 0;
}

// What is wrong with the command line and the reference, before a model is loaded.
static int read_options(struct perplexity *p, struct err *e) {
    const struct options *o = &p->a->opt;
    const char *path = options_str(o, OPT_KL_REFERENCE);
    p->compares = path != NULL;
    p->saves = options_given(o, OPT_SAVE_LOGITS);
    p->shape.window = options_int(o, OPT_WINDOW);
    int rc = cli_need(p->a, OPT_MODEL, e);
    if (rc || !p->compares)
        return rc || options_given(o, OPT_IDS) ? rc : cli_need(p->a, OPT_FILE, e);
    if (p->saves)
        return err_set(e, ERR_USAGE,
                       "--kl-reference and --save-logits were both given; choose one");
    rc = reference_open(&p->reference, path, e);
    if (!rc && options_given(o, OPT_WINDOW) && p->shape.window != p->reference.shape.window)
        rc = err_set(e, ERR_MISMATCH, "%s has windows of %lld tokens, not of %lld; leave out -c",
                     path, (long long)p->reference.shape.window, (long long)p->shape.window);
    p->shape.window = p->reference.shape.window;
    return rc;
}

static int run_perplexity(struct perplexity *p, struct err *e) {
    int rc = read_options(p, e);
    if (!rc)
        rc = open_model(p, e);
    if (!rc && (options_given(&p->a->opt, OPT_FILE) || options_given(&p->a->opt, OPT_IDS)))
        rc = read_text(p, e);
    if (!rc && p->compares)
        rc = take_reference(p, e);
    if (!rc)
        rc = take_memory(p, e);
    if (!rc && p->saves) {
        rc = reference_create(&p->saved, options_str(&p->a->opt, OPT_SAVE_LOGITS), &p->shape,
                              p->ids, e);
        p->begun = p->saved.file != NULL;
    }
    cli_catch_interrupt();
    if (!rc)
        rc = score_windows(p, e);
    if (rc || cli_interrupted())
        return rc;
    if (p->saves) {
        p->begun = false;
        rc = file_new_close(&p->saved, e);
    }
    return rc ? rc : print_result(p, e);
}

int cmd_perplexity(const struct cli_args *a, struct err *e) {
    struct perplexity p = {.a = a, .shown = -1};
    int rc = run_perplexity(&p, e);
    if (p.begun)
        file_new_abort(&p.saved);
    pool_destroy(p.pool);
    session_close(p.s);
    reference_close(&p.reference);
    free(p.ids);
    free(p.logits);
    free(p.row);
    free(p.place);
    free(p.score);
    return rc;
}
