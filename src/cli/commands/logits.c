// SPDX-License-Identifier: Apache-2.0
// `coppice logits`: what the target predicts after the last token of a prompt, or after each: the
// highest logits as text or JSON, or whole rows to a file. `coppice draft-logits`: the marginals of
// the draft's first guesses after token ids, as rows of log-probabilities, for comparing a draft
// with another implementation of it.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/models/decode.h"

// A file of float rows, removed again when it could not be finished. Zeroed is closed.
struct raw_file {
    FILE *f;
    const char *path;
};
static int raw_open(struct raw_file *r, const char *path, struct err *e) {
    *r = (struct raw_file){.f = fopen(path, "wb"), .path = path};
    if (!r->f)
        return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

// Little-endian.
static int raw_write(struct raw_file *r, const float *row, int64_t n, struct err *e) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, &row[i], sizeof v);
        const unsigned char bytes[4] = {(unsigned char)v, (unsigned char)(v >> 8),
                                        (unsigned char)(v >> 16), (unsigned char)(v >> 24)};
        if (fwrite(bytes, sizeof bytes, 1, r->f) != 1)
            return err_set(e, ERR_IO, "cannot write %s: %s", r->path, strerror(errno));
    }
    return 0;
}

// rc: the status so far, returned if bad.
static int raw_close(struct raw_file *r, int rc, struct err *e) {
    if (!r->f)
        return rc;
    if (fclose(r->f) != 0 && !rc)
        rc = err_set(e, ERR_IO, "cannot write %s: %s", r->path, strerror(errno));
    if (rc)
        remove(r->path);
    r->f = NULL;
    return rc;
}

struct top {
    int32_t id;
    float logit;
};

struct printer {
    const struct cli_args *a;
    const struct session *s;
    int64_t vocab;
    float *row;      // [vocab]
    struct top *top; // [k]
    int k;
    struct raw_file raw;
    bool json;
    struct json_writer w;
    struct str text;
};

// The k highest of the row, best first, lower id first among equals.
static void find_top_logits(struct printer *r) {
    int n = 0;
    for (int32_t id = 0; id < r->vocab; id++) {
        if (n == r->k && !(r->row[id] > r->top[n - 1].logit))
            continue;
        int at = n < r->k ? n++ : n - 1;
        for (; at > 0 && r->row[id] > r->top[at - 1].logit; at--)
            r->top[at] = r->top[at - 1];
        r->top[at] = (struct top){id, r->row[id]};
    }
}

static void put_top_json(struct printer *r, int64_t pos) {
    jw_begin(&r->w, '{');
    jw_key_int(&r->w, "position", pos);
    jw_key_begin(&r->w, "top", '[');
    for (int i = 0; i < r->k; i++) {
        jw_begin(&r->w, '{');
        jw_key_int(&r->w, "id", r->top[i].id);
        jw_key_num(&r->w, "logit", (double)r->top[i].logit);
        jw_end(&r->w, '}');
    }
    jw_end(&r->w, ']');
    jw_end(&r->w, '}');
}

static void put_top_text(struct printer *r, int64_t pos) {
    for (int i = 0; i < r->k; i++) {
        struct str piece = {0};
        decode_text(r->s, &r->top[i].id, 1, &piece);
        str_printf(&r->text, "%lld\t%d\t%.6g\t", (long long)pos, r->top[i].id,
                   (double)r->top[i].logit);
        struct json_writer quoted = {0};
        jw_str(&quoted, piece.data ? piece.data : "", piece.len);
        str_append(&r->text, quoted.out.data ? quoted.out.data : "", quoted.out.len);
        str_putc(&r->text, '\n');
        str_fini(&quoted.out);
        str_fini(&piece);
    }
}

static int put_logits(struct printer *r, int64_t pos, struct err *e) {
    if (r->raw.f)
        return raw_write(&r->raw, r->row, r->vocab, e);
    find_top_logits(r);
    if (r->json)
        put_top_json(r, pos);
    else
        put_top_text(r, pos);
    return 0;
}

// Runs one piece of the prompt and passes its wanted rows on.
static int run_prompt_piece(struct printer *r, struct forest *f, struct sequence *seq,
                            struct err *e) {
    struct model *m = session_model(r->s);
    const struct ops *ops = exec_ops(model_exec(m));
    int rc = model_forward(m, f, &seq, 1, e);
    for (int32_t i = 0; i < f->n && !rc; i++) {
        int64_t at = model_logits_index(m, i);
        if (at < 0)
            continue;
        ops->download(model_exec(m), r->row, model_logits_at(m, at),
                      (size_t)r->vocab * sizeof *r->row);
        rc = exec_status(model_exec(m), e);
        if (!rc)
            rc = put_logits(r, f->pos[i], e);
    }
    return rc;
}

static int run_logits_prompt(struct printer *r, const struct token_list *prompt, struct err *e) {
    struct model *m = session_model(r->s);
    bool all = options_flag(&r->a->opt, OPT_ALL);
    int64_t piece = model_max_rows(m), n = (int64_t)prompt->count;
    struct forest f = {0};
    struct sequence *seq = NULL;
    int rc = forest_init(&f, piece, e);
    if (!rc)
        rc = model_sequence(m, &seq, e);
    for (int64_t done = 0; done < n && !rc; done += f.n) {
        forest_reset(&f);
        int32_t row = forest_chain(&f, 0, done, &prompt->ids[done], 1, all || done == n - 1);
        for (int64_t i = done + 1; i < n && f.n < piece; i++)
            row = forest_add(&f, row, prompt->ids[i], all || i == n - 1);
        rc = run_prompt_piece(r, &f, seq, e);
    }
    sequence_destroy(seq);
    forest_fini(&f);
    return rc;
}

static int finish_logits(struct printer *r, int rc, struct err *e) {
    rc = raw_close(&r->raw, rc, e);
    if (!rc && r->json && !options_given(&r->a->opt, OPT_RAW)) {
        jw_end(&r->w, ']');
        jw_end(&r->w, '}');
        rc = cli_print_json(&r->w, e);
    } else if (!rc) {
        rc = cli_print(&r->text, e);
    }
    str_fini(&r->w.out);
    str_fini(&r->text);
    free(r->row);
    free(r->top);
    return rc;
}

static int print_logits(const struct cli_args *a, struct session *s, struct err *e) {
    struct printer r = {.a = a, .s = s, .json = options_flag(&a->opt, OPT_JSON)};
    struct token_list prompt = {0};
    r.vocab = model_params_of(session_model(s))->vocab;
    r.k = (int)options_int(&a->opt, OPT_TOP);
    if (r.k > r.vocab)
        r.k = (int)r.vocab;
    int rc = decode_prompt(a, s, &prompt, e);
    if (!rc && prompt.count == 0)
        rc = err_set(e, ERR_USAGE, "the prompt is empty; give at least one token");
    r.row = malloc((size_t)r.vocab * sizeof *r.row);
    r.top = malloc((size_t)r.k * sizeof *r.top);
    if (!rc && (!r.row || !r.top))
        rc = err_set(e, ERR_MEMORY, "no memory for a row of %lld logits", (long long)r.vocab);
    if (!rc && options_given(&a->opt, OPT_RAW))
        rc = raw_open(&r.raw, options_str(&a->opt, OPT_RAW), e);
    if (r.json) {
        jw_begin(&r.w, '{');
        decode_json_ids(&r.w, "ids", prompt.ids, (int64_t)prompt.count);
        jw_key_begin(&r.w, "rows", '[');
    }
    if (!rc)
        rc = run_logits_prompt(&r, &prompt, e);
    token_list_fini(&prompt);
    return finish_logits(&r, rc, e);
}

int cmd_logits(const struct cli_args *a, struct err *e) {
    if (options_given(&a->opt, OPT_RAW) && options_given(&a->opt, OPT_TOP))
        return err_set(e, ERR_USAGE, "--top and --raw were both given; choose one");
    struct session *s = NULL;
    int rc = decode_open(a, false, &s, e);
    if (!rc)
        rc = print_logits(a, s, e);
    session_close(s);
    return rc;
}

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
static int run_draft_anchor(struct session *s, struct sequence *seq, const struct token_list *ids,
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

// Whether it is a DFlash draft whose guesses depend on those before (Domino).
static bool is_corrected(const struct draft *d) {
    return draft_dflash(d) && draft_traits(d).depends == DRAFT_BY_PATH;
}

// Begins a draft after the anchor, for the rows of draft_row.
static int begin_draft(const struct session *s, struct sequence *seq, int32_t anchor,
                       struct err *e) {
    struct dflash *block = draft_dflash(session_draft(s));
    struct path *path = draft_path(session_draft(s));
    if (is_corrected(session_draft(s)))
        return draft_begin(session_draft(s),
                           &(struct draft_level){.seq = seq, .root = anchor, .n = 1, .k = 1}, 1, e);
    if (block)
        return dflash_draft(block, &seq, &anchor, 1, e);
    int rc = path_begin(path, &seq, 1, e);
    if (!rc && !path_ready(path, 0))
        rc = err_set(e, ERR_MEMORY, "no memory for the rows of a draft");
    return rc;
}

// The logits of a head's rows become those of all tokens, -INFINITY of what it lacks.
static void spread(const struct draft_head *h, float *row, int64_t vocab) {
    int64_t at = vocab;
    for (int64_t i = h->rows; h->ids && i-- > 0; row[at] = row[i]) {
        while (--at > h->ids[i])
            row[at] = -INFINITY;
    }
    while (h->ids && at-- > 0)
        row[at] = -INFINITY;
}

// Of a Domino draft the logits after node i of a chain, which has that token.
static int corrected_row(const struct session *s, struct sequence *seq, int i, int32_t token,
                         float *row, struct err *e) {
    struct draft *d = session_draft(s);
    const struct draft_node node = {.parent = i - 1, .token = token, .depth = i};
    const struct draft_level l = {
        .seq = seq, .root = token, .nodes = i ? &node : NULL, .n = 1, .depth = i, .k = 1};
    struct draft_guesses found;
    int rc = draft_run_level(d, &l, 1, &found, e);
    return rc ? rc : dflash_path_logits(draft_dflash(d), 0, 0, row, e);
}

static int32_t best_of(const float *row, int64_t vocab) {
    int32_t best = 0;
    for (int32_t t = 1; t < vocab; t++)
        best = row[t] > row[best] ? t : best;
    return best;
}

// Logits of the draft's row i, where a draft whose guesses depend on those before has *token in it,
// which becomes the best token after it.
static int draft_row(const struct session *s, struct sequence *seq, int i, int32_t *token,
                     float *row, struct err *e) {
    const struct model *m = session_model(s);
    const struct ops *ops = exec_ops(model_exec(m));
    const int64_t vocab = model_params_of(m)->vocab;
    struct dflash *block = draft_dflash(session_draft(s));
    struct path *path = draft_path(session_draft(s));
    const struct path_row next = {.parent = i - 1, .token = *token};
    if (is_corrected(session_draft(s))) {
        int rc = corrected_row(s, seq, i, *token, row, e);
        *token = rc ? 0 : best_of(row, vocab);
        return rc;
    }
    int rc = block ? 0 : path_rows(path, &next, 1, e);
    if (rc)
        return rc;
    const struct draft_head *head = block ? dflash_head(block) : path_head(path);
    const int n = draft_traits(session_draft(s)).max_depth;
    const float *logits = block ? dflash_logits(block, 0, n) : path_logits(path, 0, 1);
    ops->download(model_exec(m), row, logits + (block ? i * head->rows : 0),
                  (size_t)head->rows * sizeof *row);
    rc = exec_status(model_exec(m), e);
    spread(head, row, vocab);
    *token = best_of(row, vocab);
    return rc;
}

static int write_draft_rows(const struct session *s, struct sequence *seq, int32_t anchor,
                            const char *path, struct err *e) {
    const int64_t vocab = model_params_of(session_model(s))->vocab;
    const int n = draft_traits(session_draft(s)).max_depth;
    int32_t token = anchor;
    float *row = malloc((size_t)vocab * sizeof *row);
    if (!row)
        return err_set(e, ERR_MEMORY, "no memory for a row of %lld logits", (long long)vocab);
    struct raw_file raw;
    int rc = raw_open(&raw, path, e);
    for (int i = 0; i < n && !rc; i++) {
        rc = draft_row(s, seq, i, &token, row, e);
        log_softmax(row, vocab);
        if (!rc)
            rc = raw_write(&raw, row, vocab, e);
    }
    free(row);
    return raw_close(&raw, rc, e);
}

static int print_draft_summary(const struct cli_args *a, const struct session *s, int32_t anchor,
                               struct err *e) {
    int64_t vocab = model_params_of(session_model(s))->vocab;
    int rows = draft_traits(session_draft(s)).max_depth;
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
        rc = run_draft_anchor(s, seq, &ids, &anchor, e);
    if (!rc)
        rc = begin_draft(s, seq, anchor, e);
    if (!rc)
        rc = write_draft_rows(s, seq, anchor, options_str(&a->opt, OPT_RAW), e);
    if (!rc)
        rc = print_draft_summary(a, s, anchor, e);
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
