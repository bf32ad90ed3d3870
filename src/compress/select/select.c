// SPDX-License-Identifier: Apache-2.0
// Selection: chunk means, three queues that take turns by the tokens they have had, and a cut of
// that order at the budget.
#include "compress/select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/select/anchors.h"

enum { SCORED, EDGES, ANCHORS, QUEUES };

// Tokens that a queue gets, in relation to the others'.
static const int64_t weight[QUEUES] = {2, 1, 1};

struct queue {
    int64_t *order; // chunks, the first to be taken first
    int64_t n, cap, next;
    int64_t tokens; // taken from it
};

struct ranking {
    const struct select_input *in;
    const struct select_options *o;
    struct chunks cuts;
    double *mean;  // [chunks] score
    uint8_t *kept; // [chunks]
    struct queue queue[QUEUES];
    int64_t tokens, taken; // in all; of chunks that are kept
    double median;         // of the chunks' scores
    double mass, all_mass; // the same in scores: see mass_of
};

void select_smooth(const float *in, int64_t n, double *out) {
    enum { HALF = SELECT_POOL / 2 };
    for (int64_t i = 0; i < n; i++) {
        int64_t a = i < HALF ? 0 : i - HALF, b = i + HALF < n ? i + HALF : n - 1;
        double sum = 0;
        for (int64_t j = a; j <= b; j++)
            sum += in[j] > 0 && isfinite(in[j]) ? (double)in[j] : 0;
        out[i] = sum / (double)(b - a + 1);
    }
}

// What a chunk holds of the scores: what it has more than the median, times its tokens. Thousands
// of chunks that nothing points at would together outweigh a few that everything points at, if it
// were not for the median. Where many differ a little, as in code, a share of the whole is much.
static double mass_of(const struct ranking *r, int64_t chunk) {
    double above = r->mean[chunk] - r->median;
    if (r->in->text.parts[r->cuts.c[chunk].part].whole ||
        above <= 1e-6 * r->median) // rounding is none
        return 0;
    return above * (double)r->cuts.c[chunk].count;
}

// Means of smoothed scores; smoothing does not reach across parts.
static int score_chunks(struct ranking *r, struct err *e) {
    const struct select_text *t = &r->in->text;
    double *smooth = malloc(((size_t)t->n_tokens + 1) * sizeof *smooth);
    if (!smooth)
        return err_set(e, ERR_MEMORY, "no memory for the scores of %lld tokens",
                       (long long)t->n_tokens);
    const struct chunk *c = r->cuts.c;
    for (int64_t i = 0, end; i < r->cuts.n; i = end) {
        for (end = i + 1; end < r->cuts.n && c[end].part == c[i].part;)
            end++;
        int64_t first = c[i].first, n = c[end - 1].first + c[end - 1].count - first;
        select_smooth(r->in->score + first, n, smooth + first);
    }
    for (int64_t i = 0; i < r->cuts.n; i++) {
        double sum = 0;
        for (int64_t k = c[i].first; k < c[i].first + c[i].count; k++)
            sum += smooth[k];
        r->mean[i] = c[i].count ? sum / (double)c[i].count : 0;
        r->tokens += c[i].count;
    }
    free(smooth);
    return 0;
}

static int better(const void *a, const void *b, void *mean) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    double p = ((const double *)mean)[x], q = ((const double *)mean)[y];
    if (p != q)
        return p > q ? -1 : 1;
    return x < y ? -1 : 1;
}

static void queue_scored(struct ranking *r) {
    struct queue *q = &r->queue[SCORED];
    for (int64_t i = 0; i < r->cuts.n; i++)
        q->order[q->n++] = i;
    qsort_r(q->order, (size_t)q->n, sizeof *q->order, better, r->mean);
    r->median = q->n ? r->mean[q->order[q->n / 2]] : 0;
    for (int64_t i = 0; i < r->cuts.n; i++)
        r->all_mass += mass_of(r, i);
}

// Chunks with tokens among the first `head` and the last `tail`, from both ends inwards, in turns
// that let both come to an end together.
static void queue_edges(struct ranking *r) {
    struct queue *q = &r->queue[EDGES];
    const struct chunk *c = r->cuts.c;
    int64_t lo = 0, hi = r->cuts.n - 1, head = 0, tail = 0;
    while (lo <= hi) {
        bool more_head = head < r->o->head, more_tail = tail < r->o->tail;
        if (!more_head && !more_tail)
            break;
        if (!more_head || (more_tail && tail * r->o->head <= head * r->o->tail)) {
            tail += c[hi].count;
            q->order[q->n++] = hi--;
        } else {
            head += c[lo].count;
            q->order[q->n++] = lo++;
        }
    }
}

static int queue_anchors(struct ranking *r, struct err *e) {
    const struct select_input *in = r->in;
    struct queue *q = &r->queue[ANCHORS];
    if (!r->o->anchors || !in->ids || in->query_end - in->query < ANCHOR_RUN)
        return 0;
    const struct anchor_search s = {in->ids,  in->query,           in->query_end,
                                    &r->cuts, r->o->anchor_radius, r->o->anchor_hits};
    return anchors_find(&s, &q->order, &q->n, &q->cap, e);
}

static void keep(struct ranking *r, int64_t chunk) {
    r->kept[chunk] = 1;
    r->taken += r->cuts.c[chunk].count;
    r->mass += mass_of(r, chunk);
}

// Whole parts, and the best chunk of each other part, so that no message is left without words.
static void keep_always(struct ranking *r) {
    const struct chunk *c = r->cuts.c;
    for (int64_t i = 0, end; i < r->cuts.n; i = end) {
        int64_t best = i;
        for (end = i + 1; end < r->cuts.n && c[end].part == c[i].part; end++)
            best = r->mean[end] > r->mean[best] ? end : best;
        keep(r, best);
    }
}

// The next chunk of q that is not kept; -1: none.
static int64_t peek(const struct ranking *r, struct queue *q) {
    while (q->next < q->n && r->kept[q->order[q->next]])
        q->next++;
    return q->next < q->n ? q->order[q->next] : -1;
}

// The queue whose turn it is; NULL when all are empty.
static struct queue *turn(struct ranking *r, int64_t *chunk) {
    struct queue *best = NULL;
    for (int i = 0; i < QUEUES; i++) {
        struct queue *q = &r->queue[i];
        int64_t next = peek(r, q);
        if (next < 0)
            continue;
        if (best && q->tokens * weight[best - r->queue] >= best->tokens * weight[i])
            continue;
        best = q;
        *chunk = next;
    }
    return best;
}

// Takes chunks while they fit and are wanted.
static void take(struct ranking *r, double *budget) {
    bool by_mass = r->o->budget == SELECT_MASS;
    int64_t size = r->in->size ? r->in->size : r->tokens, chunk = 0;
    double all = (double)r->tokens;
    *budget = floor(all * (by_mass ? r->o->most : select_ratio(r->o, size)));
    for (struct queue *q = turn(r, &chunk); q; q = turn(r, &chunk)) {
        int64_t count = r->cuts.c[chunk].count;
        if ((double)(r->taken + count) > *budget)
            break;
        bool enough = r->all_mass > 0 && r->mass >= r->o->mass * r->all_mass;
        if (by_mass && enough && (double)r->taken >= r->o->least * all)
            break;
        keep(r, chunk);
        q->tokens += count;
    }
}

static int emit(const struct ranking *r, struct selection *out, struct err *e) {
    const struct chunk *c = r->cuts.c;
    out->spans = malloc(((size_t)r->cuts.n + 1) * sizeof *out->spans);
    if (!out->spans)
        return err_set(e, ERR_MEMORY, "no memory for %lld pieces", (long long)r->cuts.n);
    for (int64_t i = 0; i < r->cuts.n; i++) {
        if (!r->kept[i])
            continue;
        struct select_span *last = out->n_spans ? &out->spans[out->n_spans - 1] : NULL;
        if (last && last->part == c[i].part && last->end == c[i].begin)
            last->end = c[i].end;
        else
            out->spans[out->n_spans++] = (struct select_span){c[i].part, c[i].begin, c[i].end};
    }
    out->kept = r->taken;
    return 0;
}

static int reserve(struct ranking *r, struct err *e) {
    size_t n = (size_t)r->cuts.n + 1;
    r->mean = calloc(n, sizeof *r->mean);
    r->kept = calloc(n, 1);
    for (int i = 0; i < ANCHORS; i++)
        r->queue[i].order = calloc(n, sizeof *r->queue[i].order);
    if (r->mean && r->kept && r->queue[SCORED].order && r->queue[EDGES].order)
        return 0;
    return err_set(e, ERR_MEMORY, "no memory for %lld chunks", (long long)r->cuts.n);
}

int select_spans(const struct select_input *in, const struct select_options *o,
                 struct selection *out, struct err *e) {
    struct ranking r = {.in = in, .o = o};
    *out = (struct selection){0};
    int rc = select_options_check(o, e);
    if (!rc)
        rc = chunks_make(&in->text, &r.cuts, e);
    if (!rc)
        rc = reserve(&r, e);
    if (!rc)
        rc = score_chunks(&r, e);
    if (!rc)
        rc = queue_anchors(&r, e);
    if (!rc) {
        queue_scored(&r);
        queue_edges(&r);
        keep_always(&r);
        take(&r, &out->budget);
        rc = emit(&r, out, e);
    }
    for (int i = 0; i < QUEUES; i++)
        free(r.queue[i].order);
    free(r.mean);
    free(r.kept);
    chunks_fini(&r.cuts);
    return rc;
}

void selection_fini(struct selection *s) {
    free(s->spans);
    *s = (struct selection){0};
}
