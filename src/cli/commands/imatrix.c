// SPDX-License-Identifier: Apache-2.0
// `coppice imatrix`: runs a text through the target piece by piece and writes how large each column
// of what its matrices are multiplied by was: the importance matrix of `quantize --imatrix`.
#include <stdio.h>

#include "base/num.h"
#include "cli/commands/convert.h"
#include "cli/models/decode.h"
#include "ops/observe/importance.h"

struct run {
    struct session *s;
    struct token_list ids;
    int64_t piece, pieces; // tokens of a piece; pieces to run
    int64_t shown;         // for the progress line
};

// Every piece is a text of its own, as long as --piece but the last.
static int run_pieces(struct run *r, struct err *e) {
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
        if (cli_convert_progress(&r->shown, name, i + 1, r->pieces))
            return err_set(e, ERR_STATE, "stopped behind %s; nothing was written", name);
    }
    return 0;
}

static int read_ids(struct run *r, const struct cli_args *a, struct err *e) {
    struct str text = {0};
    int rc = cli_need(a, OPT_FILE, e);
    if (!rc)
        rc = cli_read_text(a, &text, e);
    if (!rc)
        rc = session_encode(r->s, text.data ? text.data : "", text.len, &r->ids, e);
    str_fini(&text);
    if (rc)
        return rc;
    int64_t n = (int64_t)r->ids.count, most = options_int(&a->opt, OPT_PIECES);
    r->piece = options_int(&a->opt, OPT_PIECE);
    r->pieces = ceil_div(n, r->piece);
    if (most && r->pieces > most)
        r->pieces = most;
    if (r->pieces == 0)
        return err_set(e, ERR_USAGE, "'%s' holds no text to take importances from",
                       options_str(&a->opt, OPT_FILE));
    return 0;
}

static int report(const struct run *r, const struct cli_args *a, size_t entries, struct err *e) {
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

static int make(struct run *r, const struct cli_args *a, struct err *e) {
    size_t entries;
    struct gguf_writer *w = NULL; // opened first, so that no hours are spent in vain
    int rc = read_ids(r, a, e);
    if (!rc)
        rc = gguf_writer_open(&w, a->opt.operands[0], e);
    if (!rc)
        rc = run_pieces(r, e);
    if (rc) {
        gguf_writer_abort(w);
        return rc;
    }
    const struct imatrix_sum *sums = importance_sums(model_exec(session_model(r->s)), &entries);
    const struct imatrix_info info = {options_str(&a->opt, OPT_FILE), r->pieces, r->piece};
    rc = imatrix_write(w, sums, entries, &info, e);
    return rc ? rc : report(r, a, entries, e);
}

int cmd_imatrix(const struct cli_args *a, struct err *e) {
    struct run r = {.shown = -1};
    int rc = decode_open(a, false, &r.s, e);
    cli_catch_interrupt();
    if (!rc)
        rc = make(&r, a, e);
    token_list_fini(&r.ids);
    session_close(r.s);
    return rc;
}
