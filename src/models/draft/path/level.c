// SPDX-License-Identifier: Apache-2.0
// Levels of a draft: nodes become rows, rows give candidates.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/path/impl.h"

_Static_assert((int)PATH_TREE_WIDTH <= (int)PATH_WIDTH &&
                   1 + (int)PATH_TREE_WIDTH * ((int)PATH_MAX_DEPTH - 1) <= (int)PATH_NODES,
               "there is room for the rows of a tree");

int path_level_begin(void *self, const struct draft_level *l, int n, struct err *e) {
    struct path *d = self;
    for (int i = 0; i < n && i < d->target->options.max_seqs; i++)
        d->seqs[i] = l[i].seq;
    return path_begin(d, d->seqs, n, e);
}

// Which sequence of begin it is; -1: none.
static int member_of(const struct path *d, const struct sequence *s) {
    for (int i = 0; i < d->n_members; i++)
        if (d->seqs[i] == s)
            return i;
    return -1;
}

// Rows of all members that can draft; *k: most candidates that one wants.
static int64_t gather_rows(struct path *d, const struct draft_level *l, int n, int *k,
                           bool *noisy) {
    const int64_t max = (int64_t)d->target->options.max_seqs * PATH_WIDTH;
    int64_t count = 0;
    *k = 1;
    *noisy = false;
    for (int i = 0; i < n; i++) {
        const int seq = member_of(d, l[i].seq), nodes = l[i].depth ? l[i].n : 1;
        if (!path_ready(d, seq))
            continue;
        *k = max_i32(*k, min_i32(l[i].k, d->max_k));
        for (int j = 0; j < nodes && count < max; j++, count++) {
            d->rows[count] = (struct path_row){seq, l[i].depth ? l[i].nodes[j].parent : -1,
                                               l[i].depth ? l[i].nodes[j].token : l[i].root};
            d->noise[count] = l[i].noise ? *l[i].noise : (struct sample_row){0};
            *noisy = *noisy || l[i].noise;
        }
    }
    return count;
}

static int best_candidates(struct path *d, int64_t n, int k, bool noisy, struct err *e) {
    const int64_t max = path_logits_rows(d);
    for (int64_t at = 0, slice; at < n; at += slice) {
        slice = min_i64(n - at, max);
        struct topk_args top = {.logits = path_logits(d, at, slice),
                                .n = slice,
                                .k = k,
                                .noise = noisy ? d->noise + at : NULL,
                                .ids = d->ids + at * k,
                                .logp = d->logp + at * k};
        draft_head_topk(&d->head, d->x, &top);
    }
    return exec_status(d->x, e); // ids that were never written must not become guesses
}

// The first of k candidates of each of a member's rows, side by side.
static void narrow(struct path *d, int64_t at, int nodes, int k, int wanted) {
    for (int i = 1; wanted < k && i < nodes; i++) {
        const int64_t to = at * k + (int64_t)i * wanted, from = (at + i) * k;
        memmove(d->ids + to, d->ids + from, (size_t)wanted * sizeof *d->ids);
        memmove(d->logp + to, d->logp + from, (size_t)wanted * sizeof *d->logp);
    }
}

// Of candidates by a score with the noise of the target's own draw: their chances. The draw is
// known but for the error of the draft's logits, so the best is likelier than its share of the sum,
// by how far it is ahead: a scale of 2 gave the longest accept lengths over blocks of many errors
// (docs/models.md). Normalised over the k.
static void chances(float *logp, int k) {
    enum { SCALE = 2 };
    const double best = (double)logp[0];
    double sum = 0;
    for (int i = 0; i < k; i++)
        sum += exp(SCALE * ((double)logp[i] - best));
    for (int i = 0; isfinite(best) && i < k; i++)
        logp[i] = (float)(SCALE * ((double)logp[i] - best) - log(sum));
}

int path_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
               struct err *e) {
    struct path *d = self;
    int k;
    bool noisy;
    int64_t at = 0, count = gather_rows(d, l, n, &k, &noisy);
    int rc = count ? path_rows(d, d->rows, count, e) : 0;
    if (!rc && count)
        rc = best_candidates(d, count, k, noisy, e);
    for (int i = 0; !rc && i < n; i++) {
        out[i] = (struct draft_guesses){.depth = 1};
        if (!path_ready(d, member_of(d, l[i].seq)))
            continue;
        const int nodes = l[i].depth ? l[i].n : 1;
        out[i].k = min_i32(l[i].k, d->max_k);
        narrow(d, at, nodes, k, out[i].k);
        for (int j = 0; l[i].noise && l[i].noise->temperature > 0 && j < nodes; j++)
            chances(d->logp + at * k + (int64_t)j * out[i].k, out[i].k);
        out[i].ids = d->ids + at * k;
        out[i].logp = d->logp + at * k;
        at += nodes;
    }
    return rc;
}
