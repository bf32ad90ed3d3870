// SPDX-License-Identifier: Apache-2.0
// `coppice convert`, `quantize`, `imatrix` and `synth`: GGUF files from HuggingFace folders, from
// other GGUF files, from what a text did in a model, and from random numbers.
#include <stdarg.h>
#include <stdio.h>

#include "base/num.h"
#include "cli/models/decode.h"
#include "convert/convert.h"
#include "convert/synth/synth.h"
#include "formats/quant/quant.h"
#include "ops/observe/importance.h"

static const char *recipe_name(int i) {
    return convert_recipe_at(i) ? convert_recipe_at(i)->name : NULL;
}

// ERR_USAGE with a list of all names that there are.
static int refuse_name(const char *name, const char *what, const char *(*name_at)(int),
                       struct err *e) {
    struct str known = {0};
    for (int i = 0; name_at(i); i++)
        str_printf(&known, "%s%s", i ? ", " : "", name_at(i));
    int rc = err_set(e, ERR_USAGE, "'%.40s' is no %s; choose one of %s", name, what,
                     known.data ? known.data : name_at(0));
    str_fini(&known);
    return rc;
}

static int find_recipe(const char *name, const struct convert_recipe **out, struct err *e) {
    *out = convert_recipe(name);
    return *out ? 0 : refuse_name(name, "type that can be written", recipe_name, e);
}

// Progress on standard error: one line redrawn on a terminal, else a line per tenth. arg: int64_t
// that begins as -1. Stops the conversion after ctrl-C.
static int show_progress(void *arg, const char *name, int64_t done, int64_t total) {
    bool redraw = cli_progress_wanted();
    int64_t *shown = arg, percent = total ? 100 * done / total : 100;
    if (cli_interrupted())
        return 1;
    if (redraw)
        fprintf(stderr, "\r%3d %% %-40.40s", (int)percent, name);
    else if (percent / 10 != *shown / 10 || done == total)
        fprintf(stderr, "%3d %% %s\n", (int)percent, name);
    if (redraw && done == total)
        fputc('\n', stderr);
    *shown = percent;
    return 0;
}

static void __attribute__((format(printf, 1, 2))) print_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("coppice convert: note: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int cmd_convert(const struct cli_args *a, struct err *e) {
    const char *dir = a->opt.operands[0], *out = a->opt.operands[1];
    int64_t shown = -1;
    bool only = options_flag(&a->opt, OPT_MTP), none = options_flag(&a->opt, OPT_NO_MTP);
    if (only && none)
        return err_set(e, ERR_USAGE,
                       "--mtp writes the prediction block alone and --no-mtp leaves it out: give "
                       "one of the two");
    struct convert_options o = {.mtp = only   ? CONVERT_MTP_ONLY
                                       : none ? CONVERT_MTP_DROP
                                              : CONVERT_MTP_KEEP,
                                .note = print_note,
                                .target_dir = options_str(&a->opt, OPT_TARGET_DIR),
                                .threads = (int)options_int(&a->opt, OPT_THREADS),
                                .split_size = options_int(&a->opt, OPT_SPLIT_SIZE),
                                .progress = show_progress,
                                .progress_arg = &shown};
    int rc = find_recipe(options_str(&a->opt, OPT_TYPE), &o.recipe, e);
    cli_catch_interrupt();
    return rc ? rc : convert_hf(dir, out, &o, e);
}

enum { MAX_TYPES = 64 };

// What was written, what of it is of other types than TYPE says, and, on standard error, a warning
// where errors of an earlier quantisation stay.
static int print_report(const char *out, const struct convert_report *r, struct err *e) {
    struct str text = {0};
    str_printf(&text, "%s: %.1f MB from %.1f MB; %lld of %lld tensors were encoded anew\n", out,
               (double)r->out_bytes / 1e6, (double)r->in_bytes / 1e6, (long long)r->matrices,
               (long long)r->tensors);
    if (r->fallbacks) {
        str_printf(&text,
                   "%lld tensors have rows that are no multiple of their type's block and got "
                   "another type, %.1f MB in place of %.1f MB:",
                   (long long)r->fallbacks, (double)r->bytes / 1e6, (double)r->wanted_bytes / 1e6);
        for (int i = 0; i < r->n_kinds; i++)
            str_printf(&text, "%s %lld %s in place of %s", i ? "," : "", (long long)r->kind[i].n,
                       quant_format(r->kind[i].got)->name, quant_format(r->kind[i].wanted)->name);
        str_putc(&text, '\n');
    }
    if (r->unweighted)
        str_printf(&text,
                   "%lld matrices of the block that predicts further tokens have no importances, "
                   "since texts do not run through it: they were encoded without, those whose type "
                   "needs some as Q8_0\n",
                   (long long)r->unweighted);
    if (r->requantized)
        fprintf(stderr,
                "coppice quantize: warning: %lld tensors were quantised already, and the errors of "
                "that stay; F16, BF16 or F32 files give a better result\n",
                (long long)r->requantized);
    return cli_print(&text, e);
}

int cmd_quantize(const struct cli_args *a, struct err *e) {
    const char *const *operand = a->opt.operands;
    int64_t shown = -1;
    const char *imatrix = options_str(&a->opt, OPT_IMATRIX);
    const char *types = options_str(&a->opt, OPT_TENSOR_TYPES);
    struct imatrix *m = NULL;
    struct convert_override overrides[MAX_TYPES];
    struct convert_report report = {0};
    struct convert_options o = {.pure = options_flag(&a->opt, OPT_PURE),
                                .requantize = options_flag(&a->opt, OPT_ALLOW_REQUANTIZE),
                                .report = &report,
                                .threads = (int)options_int(&a->opt, OPT_THREADS),
                                .split_size = options_int(&a->opt, OPT_SPLIT_SIZE),
                                .progress = show_progress,
                                .progress_arg = &shown};
    int rc = find_recipe(operand[2], &o.recipe, e);
    o.overrides = overrides;
    if (!rc && types)
        rc = convert_overrides(types, overrides, MAX_TYPES, &o.n_overrides, e);
    if (!rc && imatrix)
        rc = imatrix_open(&m, imatrix, e);
    o.imatrix = m;
    cli_catch_interrupt();
    if (!rc)
        rc = convert_quantize(operand[0], operand[1], &o, e);
    imatrix_close(m);
    return rc ? rc : print_report(operand[1], &report, e);
}

struct imatrix_run {
    struct session *s;
    struct token_list ids;
    int64_t piece, pieces; // tokens of a piece; pieces to run
    int64_t shown;         // for the progress line
};

// Every piece is a text of its own, as long as --piece but the last.
static int run_pieces(struct imatrix_run *r, struct err *e) {
    int64_t n = (int64_t)r->ids.count;
    for (int64_t i = 0; i < r->pieces; i++) {
        struct sequence *seq = NULL;
        char name[32];
        int64_t at = i * r->piece, left = min_i64(n - at, r->piece);
        int rc = session_prefill(r->s, r->ids.ids + at, left, &seq, e);
        sequence_destroy(seq);
        if (rc)
            return rc;
        snprintf(name, sizeof name, "piece %lld", (long long)i + 1);
        if (show_progress(&r->shown, name, i + 1, r->pieces))
            return err_set(e, ERR_STATE, "stopped after %s; nothing was written", name);
    }
    return 0;
}

// What the text is called.
static const char *imatrix_text(const struct cli_args *a) {
    const char *path = options_str(&a->opt, OPT_FILE);
    return path ? path : "--ids";
}

static int read_imatrix_text(struct imatrix_run *r, const struct cli_args *a, struct err *e) {
    int rc = options_given(&a->opt, OPT_IDS) ? 0 : cli_need(a, OPT_FILE, e);
    if (!rc)
        rc = decode_prompt(a, r->s, &r->ids, e);
    if (rc)
        return rc;
    int64_t n = (int64_t)r->ids.count, max = options_int(&a->opt, OPT_PIECES);
    r->piece = options_int(&a->opt, OPT_PIECE);
    r->pieces = ceil_div(n, r->piece);
    if (max && r->pieces > max)
        r->pieces = max;
    if (r->pieces == 0)
        return err_set(e, ERR_USAGE, "'%s' holds no text to take importances from",
                       imatrix_text(a));
    return 0;
}

static int print_imatrix(const struct imatrix_run *r, const struct cli_args *a, size_t entries,
                         struct err *e) {
    int64_t n = (int64_t)r->ids.count, all = r->pieces * r->piece;
    n = min_i64(n, all);
    if (options_flag(&a->opt, OPT_JSON)) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key_int(&w, "tokens", n);
        jw_key_int(&w, "pieces", r->pieces);
        jw_key_int(&w, "entries", (int64_t)entries);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    struct str line = {0};
    str_printf(&line, "importances of %zu matrices over %lld tokens in %lld pieces\n", entries,
               (long long)n, (long long)r->pieces);
    return cli_print(&line, e);
}

static int write_imatrix(struct imatrix_run *r, const struct cli_args *a, struct err *e) {
    size_t entries;
    struct gguf_writer *w = NULL; // opened first, so that no hours are spent in vain
    int rc = read_imatrix_text(r, a, e);
    if (!rc)
        rc = gguf_writer_open(&w, a->opt.operands[0], e);
    if (!rc)
        rc = run_pieces(r, e);
    if (rc) {
        gguf_writer_abort(w);
        return rc;
    }
    const struct imatrix_sum *sums = importance_sums(model_exec(session_model(r->s)), &entries);
    const struct imatrix_info info = {imatrix_text(a), r->pieces, r->piece};
    rc = imatrix_write(w, sums, entries, &info, e);
    return rc ? rc : print_imatrix(r, a, entries, e);
}

int cmd_imatrix(const struct cli_args *a, struct err *e) {
    struct imatrix_run r = {.shown = -1};
    int rc = decode_open(a, false, &r.s, e);
    cli_catch_interrupt();
    if (!rc)
        rc = write_imatrix(&r, a, e);
    token_list_fini(&r.ids);
    session_close(r.s);
    return rc;
}

static int find_shape(const char *name, const struct synth_shape **out, struct err *e) {
    *out = synth_shape(name);
    return *out ? 0 : refuse_name(name, "shape that is known", synth_shape_name, e);
}

int cmd_synth(const struct cli_args *a, struct err *e) {
    int64_t shown = -1;
    struct synth_options o = {.seed = (uint64_t)options_int(&a->opt, OPT_SEED),
                              .threads = (int)options_int(&a->opt, OPT_THREADS),
                              .layers = (int)options_int(&a->opt, OPT_LAYERS),
                              .progress = show_progress,
                              .progress_arg = &shown};
    int rc = cli_need(a, OPT_SHAPE, e);
    if (!rc)
        rc = find_shape(options_str(&a->opt, OPT_SHAPE), &o.shape, e);
    if (!rc)
        rc = find_recipe(options_str(&a->opt, OPT_QUANT), &o.recipe, e);
    if (rc)
        return rc;
    cli_catch_interrupt();
    return synth_write(a->opt.operands[0], &o, e);
}
