// SPDX-License-Identifier: Apache-2.0
// `coppice perplexity`: how well the target predicts the windows of a text, and with --kl-reference
// how far its distributions are from those of another run or program.
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/models/decode.h"
#include "cli/perplexity/windows.h"

struct perplexity {
    const struct cli_args *a;
    struct session *s;
    struct windows w;
    struct reference reference;
    bool compares, saves, begun; // begun: saved is open
    struct file_new saved;
};

// What the text is called in sentences.
static const char *text_name(const struct perplexity *p) {
    const char *path = options_str(&p->a->opt, OPT_FILE);
    return path ? path : "--ids";
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
    if (p->w.ids) {
        for (int64_t i = 0; i < n; i++)
            if (p->w.shape.windows < windows || p->w.ids[i] != reference_token(r, i))
                return err_set(e, ERR_MISMATCH,
                               "%s is of another text, or of another tokenizer, than '%s'; without "
                               "it the reference's own is read",
                               path, text_name(p));
    } else {
        p->w.ids = malloc((size_t)n * sizeof *p->w.ids);
        if (!p->w.ids)
            return err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)n);
        for (int64_t i = 0; i < n; i++)
            p->w.ids[i] = reference_token(r, i);
    }
    p->w.shape.windows = windows;
    return 0;
}

// Value below which that part of the tokens is.
static double quantile(const struct windows_result *r, double part) {
    return r->kl.sorted[(int64_t)(part * (double)(r->n - 1))];
}

static int64_t worst_token(const struct perplexity *p, const struct windows_result *r) {
    return r->worst / window_scored(p->w.shape.window) * p->w.shape.window + p->w.shape.window / 2 +
           1 + r->worst % window_scored(p->w.shape.window);
}

static int print_text(const struct perplexity *p, const struct windows_result *r, struct err *e) {
    struct str out = {0}, piece = {0};
    double ppl = exp(r->nll.mean);
    str_printf(&out, "perplexity %.4f ± %.5f over %lld tokens in %lld windows of %lld\n", ppl,
               ppl * r->nll.error, (long long)r->n, (long long)p->w.shape.windows,
               (long long)p->w.shape.window);
    if (p->compares) {
        int32_t id = windows_target(&p->w, r->worst);
        struct json_writer quoted = {0};
        decode_text(p->s, &id, 1, &piece);
        jw_str(&quoted, piece.data ? piece.data : "", piece.len);
        str_printf(&out,
                   "reference  %.4f; perplexity is %.6f times that\n"
                   "KL         mean %.6f ± %.6f, median %.6f, 99 %% %.6f, 99.9 %% %.6f\n"
                   "           max %.6f at token %lld of the text, %s\n"
                   "same top   %.3f %% of tokens\n",
                   r->reference, ppl / r->reference, r->kl.mean, r->kl.error, quantile(r, 0.5),
                   quantile(r, 0.99), quantile(r, 0.999), p->w.score[r->worst].kl,
                   (long long)worst_token(p, r), quoted.out.data ? quoted.out.data : "",
                   100.0 * (double)r->same_top / (double)r->n);
        str_fini(&quoted.out);
        str_fini(&piece);
    }
    return cli_print(&out, e);
}

static int print_json(const struct perplexity *p, const struct windows_result *r, struct err *e) {
    struct json_writer w = {0};
    double ppl = exp(r->nll.mean);
    jw_begin(&w, '{');
    jw_key_num(&w, "perplexity", ppl);
    jw_key_num(&w, "error", ppl * r->nll.error);
    jw_key_num(&w, "nll", r->nll.mean);
    jw_key_int(&w, "tokens", r->n);
    jw_key_int(&w, "windows", p->w.shape.windows);
    jw_key_int(&w, "window", p->w.shape.window);
    if (p->compares) {
        jw_key_num(&w, "reference_perplexity", r->reference);
        jw_key_begin(&w, "kl", '{');
        jw_key_num(&w, "mean", r->kl.mean);
        jw_key_num(&w, "error", r->kl.error);
        jw_key_num(&w, "median", quantile(r, 0.5));
        jw_key_num(&w, "p99", quantile(r, 0.99));
        jw_key_num(&w, "p999", quantile(r, 0.999));
        jw_key_num(&w, "max", p->w.score[r->worst].kl);
        jw_key_int(&w, "max_token", worst_token(p, r));
        jw_end(&w, '}');
        jw_key_num(&w, "same_top", (double)r->same_top / (double)r->n);
    }
    jw_key_num(&w, "ms", clock_ms() - p->w.begin);
    decode_json_memory(&w, p->s);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static int print_result(const struct perplexity *p, struct err *e) {
    struct windows_result r;
    int rc = windows_result(&p->w, &r, e);
    if (!rc)
        rc = options_flag(&p->a->opt, OPT_JSON) ? print_json(p, &r, e) : print_text(p, &r, e);
    free(r.values);
    return rc;
}

static int open_model(struct perplexity *p, struct err *e) {
    struct session_options o;
    struct decode_files files = {0};
    int rc = decode_session(p->a, &o, &files, e);
    int64_t group = options_int(&p->a->opt, OPT_WINDOWS_A_PASS);
    o.target.max_ctx = p->w.shape.window;
    o.target.max_seqs = group < 0 ? WINDOWS_GROUP_MAX : (int)group;
    if (!rc)
        rc = session_open(&p->s, &o, e);
    decode_files_fini(&files);
    if (rc)
        return rc;
    decode_show_plan(p->a, p->s);
    p->w.s = p->s;
    p->w.threads = (int)options_int(&p->a->opt, OPT_THREADS);
    p->w.group = group;
    p->w.shape.vocab = model_params_of(session_model(p->s))->vocab;
    return 0;
}

// What is wrong with the command line and the reference, before a model is loaded.
static int read_options(struct perplexity *p, struct err *e) {
    const struct options *o = &p->a->opt;
    const char *path = options_str(o, OPT_KL_REFERENCE);
    p->compares = path != NULL;
    p->saves = options_given(o, OPT_SAVE_LOGITS);
    p->w.shape.window = options_int(o, OPT_WINDOW);
    int rc = cli_need(p->a, OPT_MODEL, e);
    if (rc || !p->compares)
        return rc || options_given(o, OPT_IDS) ? rc : cli_need(p->a, OPT_FILE, e);
    if (p->saves)
        return err_set(e, ERR_USAGE,
                       "--kl-reference and --save-logits were both given; choose one");
    rc = reference_open(&p->reference, path, e);
    if (!rc && options_given(o, OPT_WINDOW) && p->w.shape.window != p->reference.shape.window)
        rc = err_set(e, ERR_MISMATCH, "%s has windows of %lld tokens, not of %lld; leave out -c",
                     path, (long long)p->reference.shape.window, (long long)p->w.shape.window);
    p->w.shape.window = p->reference.shape.window;
    return rc;
}

static int run_perplexity(struct perplexity *p, struct err *e) {
    int rc = read_options(p, e);
    if (!rc)
        rc = open_model(p, e);
    if (!rc && (options_given(&p->a->opt, OPT_FILE) || options_given(&p->a->opt, OPT_IDS)))
        rc = windows_read(&p->w, p->a, e);
    if (!rc && p->compares)
        rc = take_reference(p, e);
    if (!rc && p->saves) {
        rc = reference_create(&p->saved, options_str(&p->a->opt, OPT_SAVE_LOGITS), &p->w.shape,
                              p->w.ids, e);
        p->begun = p->saved.file != NULL;
    }
    p->w.saved = p->saves ? &p->saved : NULL;
    p->w.compared = p->compares ? &p->reference : NULL;
    p->w.compared_name = options_str(&p->a->opt, OPT_KL_REFERENCE);
    cli_catch_interrupt();
    if (!rc)
        rc = windows_score(&p->w, e);
    if (rc || cli_interrupted())
        return rc;
    if (p->saves) {
        p->begun = false;
        rc = file_new_close(&p->saved, e);
    }
    return rc ? rc : print_result(p, e);
}

int cmd_perplexity(const struct cli_args *a, struct err *e) {
    struct perplexity p = {.a = a};
    int rc = run_perplexity(&p, e);
    if (p.begun)
        file_new_abort(&p.saved);
    session_close(p.s);
    reference_close(&p.reference);
    windows_fini(&p.w);
    return rc;
}
