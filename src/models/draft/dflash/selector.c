// SPDX-License-Identifier: Apache-2.0
// The selector of DFlash2 and the Markov head of DSpark (arXiv 2607.05147): how likely a candidate
// is after each candidate of the row before. To a candidate's logit comes a sum over `rank` values:
// the predecessor's row of one codebook, a gate, the candidate's row of another codebook. Gates are
// the block row's own in DFlash2, 1 in a plain Markov head, and in a gated one a sigmoid of what
// the block row and the predecessor give. Only some hundred rows of the codebooks are read for a
// draft, so they stay in the file, and the host does it.
#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/impl.h"

int dflash_codebook_find(const struct dflash *d, const char *what, const char *name, int64_t rank,
                         int64_t rows, const struct tensor **out, struct err *e) {
    const struct tensor *t = dflash_file_find(&d->file, name);
    if (!t)
        return err_set(e, ERR_MISMATCH,
                       "the draft has a %s of rank %lld but no tensor %s; it is damaged, get it "
                       "again",
                       what, (long long)rank, name);
    if (t->ne[0] != rank || t->ne[1] != rows || t->ne[2] != 1)
        return err_set(e, ERR_MISMATCH,
                       "the draft's tensor %s is [%lld, %lld] but [%lld, %lld] is expected; it is "
                       "of another target or damaged",
                       name, (long long)t->ne[0], (long long)t->ne[1], (long long)rank,
                       (long long)rows);
    if (!quant_format(t->type) || !quant_format(t->type)->dequantize)
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft's tensor %s has a type that cannot be computed with; use a file "
                       "in another quantisation",
                       name);
    *out = t;
    return 0;
}

// A gated Markov head: one matrix for a row's hidden state and the token before side by side. The
// device multiplies by the former, with zeros for the latter, which the host does.
static int load_gates(struct dflash *d, int64_t rows, struct err *e) {
    static const char name[] = "markov_gate.weight";
    const int64_t rank = d->params.selector_rank, wide = d->params.dim + rank;
    int rc = load_weight(&d->load, name, wide, rank, &d->selector.gate, e);
    if (!rc)
        rc = load_host_rows(&d->load, name, wide, rank, &d->selector.weights, e);
    if (!rc)
        rc = load_host_floats(&d->load, "markov_gate.bias", rank, &d->selector.bias, e);
    if (!rc)
        rc = load_buffer(&d->load, rows * wide, &d->selector.joined, e);
    return rc ? rc : load_act(&d->load, rows, wide, &d->selector.act_joined, e);
}

int dflash_selector_load(struct dflash *d, int64_t rows, struct err *e) {
    const enum dflash_pairs pairs = d->params.pairs;
    const int64_t rank = d->params.selector_rank;
    const bool selector = pairs == DFLASH_PAIRS_SELECTOR;
    const char *what = selector ? "selector" : "Markov head";
    int rc = selector ? load_weight(&d->load, "selector_hidden.weight", d->params.dim, rank,
                                    &d->selector.gate, e)
                      : 0;
    if (!rc)
        rc = dflash_codebook_find(d, what,
                                  selector ? "selector_predecessor.weight" : "markov_w1.weight",
                                  rank, d->target->params.vocab, &d->selector.predecessor, e);
    if (!rc) // a Markov head's is of the tokens that the draft's head scores
        rc = dflash_codebook_find(
            d, what, selector ? "selector_successor.weight" : "markov_w2.weight", rank,
            selector ? d->target->params.vocab : d->head.rows, &d->selector.successor, e);
    if (!rc && pairs == DFLASH_PAIRS_GATED)
        rc = load_gates(d, rows, e);
    if (!rc && pairs != DFLASH_PAIRS_MARKOV)
        rc = load_buffer(&d->load, rows * rank, &d->selector.device_gates, e);
    if (rc || d->load.dry)
        return rc;
    d->selector.gates = calloc((size_t)(rows * rank), sizeof *d->selector.gates);
    return d->selector.gates ? 0 : err_set(e, ERR_MEMORY, "no memory for a draft's selector");
}

void dflash_selector_fini(struct dflash *d) {
    free(d->selector.gates);
    free(d->selector.rows);
}

// The hidden states of the last draft's rows, normed, beside zeros.
static struct act *join_rows(struct dflash *d) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    const int64_t n = d->drafted, wide = p->dim + p->selector_rank;
    const size_t row = (size_t)p->dim * sizeof(float);
    for (int64_t i = 0; i < n; i++)
        d->index[i] = (int32_t)i;
    ops->norm(
        d->x,
        &(struct norm_args){
            .in = d->wanted, .w = d->out_norm, .eps = p->eps, .n = n, .k = p->dim, .out = d->h});
    ops->copy_rows(d->x, d->selector.joined, (size_t)wide * sizeof(float), d->h, d->index, n, row);
    ops->to_act(d->x, d->selector.joined, n, wide, d->selector.act_joined);
    return d->selector.act_joined;
}

void dflash_select_ahead(struct dflash *d) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    const struct linear_job job = {.w = d->selector.gate, .out = d->selector.device_gates};
    struct act *in = d->act_d;
    if (!p->selector_rank || p->pairs == DFLASH_PAIRS_MARKOV || d->selector.ahead)
        return;
    if (p->pairs == DFLASH_PAIRS_GATED)
        in = join_rows(d);
    else
        ops->norm_to_act(d->x, d->wanted, d->out_norm, p->eps, d->drafted, p->dim, in);
    ops->linear(d->x, &job, 1, in, d->drafted);
    d->selector.ahead = true;
    d->selector.epoch = exec_epoch(d->x);
}

// Brings the gates of all rows of the last draft, as far as the rows decide, to the host, once.
static int bring_gates(struct dflash *d, struct err *e) {
    const int64_t n = d->drafted * d->params.selector_rank;
    if (d->params.pairs == DFLASH_PAIRS_MARKOV || d->selector.ready)
        return 0;
    d->selector.ahead = d->selector.ahead && !exec_epoch_failed(d->x, d->selector.epoch);
    dflash_select_ahead(d);
    exec_ops(d->x)->download(d->x, d->selector.gates, d->selector.device_gates,
                             (size_t)n * sizeof *d->selector.gates);
    int rc = exec_status(d->x, e);
    d->selector.ready = rc == 0;
    return rc;
}

void dflash_codebook_row(const struct tensor *t, int64_t row, float *out) {
    const struct quant_format *f = quant_format(t->type);
    const char *data = t->data;
    f->dequantize(data + row * quant_row_bytes(f, t->ne[0]), out, t->ne[0]);
}

// In eight sums, so that compilers can vectorise it; always the same bits.
float dflash_dot(const float *a, const float *b, int64_t n) {
    float s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

double dflash_log_sum(const float *x, int n) {
    float top = -INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n && isfinite(top); i++)
        sum += exp((double)x[i] - (double)top);
    return isfinite(top) ? (double)top + log(sum) : -INFINITY;
}

// What the lines of one block row are made of.
struct row_scores {
    const float *logp;        // [k] of the candidates
    const float *gate, *succ; // [rank]; [k][rank]
    float temperature;
    int k;
    float *pred, *scratch; // [rank]
};

// Multiplies the row of a token before by its gates; scratch [rank].
static void apply_gates(const struct dflash *d, const float *gate, float *pred, float *scratch) {
    const enum dflash_pairs pairs = d->params.pairs;
    const int64_t rank = d->params.selector_rank, wide = d->params.dim + rank;
    for (int64_t r = 0; pairs == DFLASH_PAIRS_SELECTOR && r < rank; r++)
        pred[r] *= gate[r];
    for (int64_t r = 0; pairs == DFLASH_PAIRS_GATED && r < rank; r++) {
        const float *own = d->selector.weights + r * wide + d->params.dim;
        const float sum = gate[r] + d->selector.bias[r] + dflash_dot(own, pred, rank);
        scratch[r] = 1 / (1 + expf(-sum));
    }
    for (int64_t r = 0; pairs == DFLASH_PAIRS_GATED && r < rank; r++)
        pred[r] *= scratch[r];
}

// What the candidates are worth after a token, into out, which may be their logp. All of them
// together stay as likely as they were.
static void score_line(const struct dflash *d, const struct row_scores *s, int32_t before,
                       float *out) {
    const int64_t rank = d->params.selector_rank;
    const double were = dflash_log_sum(s->logp, s->k);
    dflash_codebook_row(d->selector.predecessor, before, s->pred);
    apply_gates(d, s->gate, s->pred, s->scratch);
    for (int c = 0; c < s->k; c++) {
        const float more = dflash_dot(s->pred, s->succ + c * rank, rank) / s->temperature;
        out[c] = isfinite(s->logp[c]) ? s->logp[c] + more : -INFINITY;
    }
    const double shift = dflash_log_sum(out, s->k) - were;
    for (int c = 0; c < s->k && isfinite(shift); c++)
        out[c] = (float)((double)out[c] - shift);
}

// The line of row i after a token.
static void score_after(struct dflash *d, const struct dflash_selection *s, int i, int32_t before,
                        float *out) {
    const int64_t rank = d->params.selector_rank;
    const int k = s->k;
    const int32_t *ids = s->ids + i * k;
    float *pred = d->selector.rows, *scratch = pred + rank, *succ = scratch + rank;
    const bool by_head = d->params.pairs != DFLASH_PAIRS_SELECTOR;
    const float temperature = s->noise ? s->noise[i].temperature : 0;
    const struct row_scores row = {.logp = s->logp + i * k,
                                   .gate = d->selector.gates + (s->first + i) * rank,
                                   .succ = succ,
                                   .temperature = temperature > 0 ? temperature : 1,
                                   .k = k,
                                   .pred = pred,
                                   .scratch = scratch};
    for (int c = 0; c < k; c++)
        if (ids[c] >= 0)
            dflash_codebook_row(d->selector.successor,
                                by_head ? draft_head_row(&d->head, ids[c]) : ids[c],
                                succ + c * rank);
    score_line(d, &row, before, out);
}

void dflash_select_line(struct dflash *d, const struct dflash_selection *s, int i, int q,
                        float *out) {
    const int32_t before = s->ids[(i - 1) * s->k + q];
    if (before >= 0) {
        score_after(d, s, i, before, out);
        return;
    }
    for (int c = 0; c < s->k; c++)
        out[c] = -INFINITY;
}

int dflash_select(struct dflash *d, const struct dflash_selection *s, struct err *e) {
    const int64_t rank = d->params.selector_rank;
    if (s->first < 0 || s->depth < 1 || s->first + s->depth > d->drafted)
        return err_set(e, ERR_USAGE, "rows %lld to %lld were not drafted", (long long)s->first,
                       (long long)(s->first + s->depth - 1));
    int rc = bring_gates(d, e);
    if (!rc)
        rc = vec_reserve(&d->selector.rows, &d->selector.cap, (s->k + 2) * rank,
                         sizeof *d->selector.rows, e);
    if (!rc)
        score_after(d, s, 0, s->anchor, s->logp);
    return rc;
}
