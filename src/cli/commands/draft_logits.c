// SPDX-License-Identifier: Apache-2.0
// `coppice draft-logits`: the marginals of the draft's first block after token ids, as rows of
// log-probabilities. For comparing a draft with another implementation of it.
#include <math.h>
#include <stdlib.h>

#include "cli/models/decode.h"

// row -= logsumexp(row), summed in double.
static void log_softmax(float *row, int64_t n) {
    float max = row[0];
    for (int64_t i = 1; i < n; i++)
        max = row[i] > max ? row[i] : max;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)row[i] - (double)max);
    double norm = (double)max + log(sum);
    for (int64_t i = 0; i < n; i++)
        row[i] = (float)((double)row[i] - norm);
}

// Runs the ids through the target and chooses the anchor.
static int run_target(struct session *s, struct sequence *seq, const struct token_list *ids,
                      int32_t *anchor, struct err *e) {
    struct request r;
    struct reply y;
    request_init(&r);
    r.prompt = ids->ids;
    r.n_prompt = (int64_t)ids->count;
    r.max_tokens = 1;
    r.in_place = seq;
    int rc = session_generate(s, &r, &y, e);
    if (!rc)
        *anchor = y.ids[0];
    reply_fini(&y);
    return rc;
}

static int write_rows(const struct session *s, const char *path, struct err *e) {
    struct model *m = session_model(s);
    const struct ops *ops = exec_ops(model_exec(m));
    int64_t vocab = model_params_of(m)->vocab;
    int n = dflash_params_of(session_draft(s))->block_size - 1;
    float *row = malloc((size_t)vocab * sizeof *row);
    if (!row)
        return err_set(e, ERR_MEMORY, "no memory for a row of %lld logits", (long long)vocab);
    struct raw_file raw;
    int rc = raw_open(&raw, path, e);
    for (int i = 0; i < n && !rc; i++) {
        const float *logits = dflash_logits(session_draft(s), 0, n) + i * vocab;
        ops->download(model_exec(m), row, logits, (size_t)vocab * sizeof *row);
        rc = exec_status(model_exec(m), e);
        log_softmax(row, vocab);
        if (!rc)
            rc = raw_write(&raw, row, vocab, e);
    }
    free(row);
    return raw_close(&raw, rc, e);
}

static int print_summary(const struct cli_args *a, const struct session *s, int32_t anchor,
                         struct err *e) {
    int64_t vocab = model_params_of(session_model(s))->vocab;
    int rows = dflash_params_of(session_draft(s))->block_size - 1;
    if (options_flag(&a->opt, OPT_JSON)) {
        struct json_writer w = {0};
        jw_begin(&w, '{');
        jw_key_int(&w, "anchor", anchor);
        jw_key_int(&w, "rows", rows);
        jw_key_int(&w, "vocab", vocab);
        jw_end(&w, '}');
        return cli_print_json(&w, e);
    }
    struct str out = {0};
    str_printf(&out, "anchor %d; %d rows of %lld log-probabilities in %s\n", anchor, rows,
               (long long)vocab, options_str(&a->opt, OPT_RAW));
    return cli_print(&out, e);
}

static int draft_logits(const struct cli_args *a, struct session *s, struct err *e) {
    struct token_list ids = {0};
    struct sequence *seq = NULL;
    int32_t anchor = 0;
    int rc = decode_prompt(a, s, &ids, e);
    if (!rc && ids.count == 0)
        rc = err_set(e, ERR_USAGE, "--ids is empty; give at least one token");
    if (!rc)
        rc = model_sequence(session_model(s), &seq, e);
    if (!rc)
        rc = run_target(s, seq, &ids, &anchor, e);
    if (!rc)
        rc = dflash_draft(session_draft(s), &seq, &anchor, 1, e);
    if (!rc)
        rc = write_rows(s, options_str(&a->opt, OPT_RAW), e);
    if (!rc)
        rc = print_summary(a, s, anchor, e);
    sequence_destroy(seq);
    token_list_fini(&ids);
    return rc;
}

int cmd_draft_logits(const struct cli_args *a, struct err *e) {
    int rc = cli_need(a, OPT_IDS, e);
    if (!rc)
        rc = cli_need(a, OPT_RAW, e);
    if (rc)
        return rc;
    struct session *s = NULL;
    rc = decode_open(a, true, &s, e);
    if (!rc)
        rc = draft_logits(a, s, e);
    session_close(s);
    return rc;
}
