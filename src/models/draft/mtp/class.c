// SPDX-License-Identifier: Apache-2.0
// The prediction block as a kind of draft: nodes of levels become rows, rows give candidates.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/mtp/impl.h"

_Static_assert((int)MTP_TREE_WIDTH <= (int)MTP_WIDTH &&
                   1 + (int)MTP_TREE_WIDTH * ((int)MTP_MAX_DEPTH - 1) <= (int)MTP_NODES,
               "there is room for the rows of a tree");

static bool takes(const struct gguf *file, const struct gguf *target) {
    (void)target;
    return file && mtp_in_file(file, NULL);
}

static int open_mtp(void **self, struct model *target, const struct draft_source *s, bool dry,
                    struct err *e) {
    const struct mtp_options plain = {.codec_k = target->options.codec_k,
                                      .codec_v = target->options.codec_v};
    struct mtp_options o = s->mtp ? *s->mtp : plain;
    struct mtp *m = NULL;
    o.vocab = s->vocab;
    int rc = mtp_load(&m, target, s->path, &o, dry, e);
    *self = m;
    return rc;
}

static void destroy_mtp(void *self) {
    mtp_destroy(self);
}

static void plan_mtp(const void *self, struct draft_plan *out) {
    mtp_plan_of(self, out);
}

static struct draft_traits mtp_traits(const void *self) {
    return (struct draft_traits){.name = "mtp",
                                 .depends = DRAFT_BY_PATH,
                                 .max_depth = mtp_depth(self),
                                 .trained_depth = 1,
                                 .passes = 1,
                                 .pass_bytes = ((const struct mtp *)self)->pass_bytes,
                                 .width = MTP_TREE_WIDTH};
}

static void describe_mtp(const void *self, struct str *out) {
    const struct mtp *m = self;
    str_printf(out, "mtp block %d %lld wide, %s, depth %d", m->block,
               (long long)m->target->params.dim,
               m->experts          ? "experts"
               : m->attention_only ? "attention only"
                                   : "dense",
               m->options.depth);
    if (m->head.ids)
        str_printf(out, ", %lld of %lld tokens", (long long)m->head.rows,
                   (long long)m->target->params.vocab);
}

static bool knows(const void *self, int32_t token) {
    return draft_head_has(&((const struct mtp *)self)->head, token);
}

static int begin_mtp(void *self, const struct draft_level *l, int n, struct err *e) {
    struct mtp *m = self;
    for (int i = 0; i < n && i < m->target->options.max_seqs; i++)
        m->seqs[i] = l[i].seq;
    return mtp_begin(m, m->seqs, n, e);
}

// Which sequence of begin it is; -1: none.
static int member_of(const struct mtp *m, const struct sequence *s) {
    for (int i = 0; i < m->n_members; i++)
        if (m->seqs[i] == s)
            return i;
    return -1;
}

// Rows of all members that can draft; *k: most candidates that one wants.
static int64_t gather_rows(struct mtp *m, const struct draft_level *l, int n, int *k, bool *noisy) {
    const int64_t max = (int64_t)m->target->options.max_seqs * MTP_WIDTH;
    int64_t count = 0;
    *k = 1;
    *noisy = false;
    for (int i = 0; i < n; i++) {
        const int seq = member_of(m, l[i].seq), nodes = l[i].depth ? l[i].n : 1;
        if (!mtp_ready(m, seq))
            continue;
        *k = max_i32(*k, min_i32(l[i].k, m->max_k));
        for (int j = 0; j < nodes && count < max; j++, count++) {
            m->rows[count] = (struct mtp_row){seq, l[i].depth ? l[i].nodes[j].parent : -1,
                                              l[i].depth ? l[i].nodes[j].token : l[i].root};
            m->noise[count] = l[i].noise ? *l[i].noise : (struct sample_row){0};
            *noisy = *noisy || l[i].noise;
        }
    }
    return count;
}

static int best_candidates(struct mtp *m, int64_t n, int k, bool noisy, struct err *e) {
    const int64_t max = mtp_logits_rows(m);
    for (int64_t at = 0, slice; at < n; at += slice) {
        slice = min_i64(n - at, max);
        struct topk_args top = {.logits = mtp_logits(m, at, slice),
                                .n = slice,
                                .k = k,
                                .noise = noisy ? m->noise + at : NULL,
                                .ids = m->ids + at * k,
                                .logp = m->logp + at * k};
        draft_head_topk(&m->head, m->x, &top);
    }
    return exec_status(m->x, e); // ids that were never written must not become guesses
}

// The first of k candidates of each of a member's rows, side by side.
static void narrow(struct mtp *m, int64_t at, int nodes, int k, int wanted) {
    for (int i = 1; wanted < k && i < nodes; i++) {
        const int64_t to = at * k + (int64_t)i * wanted, from = (at + i) * k;
        memmove(m->ids + to, m->ids + from, (size_t)wanted * sizeof *m->ids);
        memmove(m->logp + to, m->logp + from, (size_t)wanted * sizeof *m->logp);
    }
}

static int level_mtp(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                     struct err *e) {
    struct mtp *m = self;
    int k;
    bool noisy;
    int64_t at = 0, count = gather_rows(m, l, n, &k, &noisy);
    int rc = count ? mtp_rows(m, m->rows, count, e) : 0;
    if (!rc && count)
        rc = best_candidates(m, count, k, noisy, e);
    for (int i = 0; !rc && i < n; i++) {
        out[i] = (struct draft_guesses){.depth = 1};
        if (!mtp_ready(m, member_of(m, l[i].seq)))
            continue;
        const int nodes = l[i].depth ? l[i].n : 1;
        out[i].k = min_i32(l[i].k, m->max_k);
        narrow(m, at, nodes, k, out[i].k);
        out[i].ids = m->ids + at * k;
        out[i].logp = m->logp + at * k;
        at += nodes;
    }
    return rc;
}

const struct draft_class draft_class_mtp = {.name = "mtp",
                                            .takes = takes,
                                            .open = open_mtp,
                                            .destroy = destroy_mtp,
                                            .plan = plan_mtp,
                                            .traits = mtp_traits,
                                            .describe = describe_mtp,
                                            .knows = knows,
                                            .begin = begin_mtp,
                                            .level = level_mtp};
