// SPDX-License-Identifier: Apache-2.0
// Selection: chunk means, three queues that take turns by the tokens they have had, and a cut of
// that order at the budget.
#include "compress/select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/vec.h"
#include "compress/select/chunks.h"

enum { ANCHOR_RUN = 4, ANCHOR_QUERY = 96 };

struct anchor_search {
    const int32_t *ids;        // [end]
    int64_t query, end;        // the query: tokens query .. end - 1, of which the last 96 count
    const struct chunks *cuts; // of the same tokens
    int radius, hits;          // 0: by the number of chunks
};

// Anchors: the runs of the query go into a small hash table, one walk over the text counts them and
// keeps their first places.

enum { HITS_MAX = 32, SLOTS = 256 };

struct run {
    const int32_t *ids; // [ANCHOR_RUN]; NULL: an empty slot
    int64_t count;
    int64_t place[HITS_MAX]; // first tokens
};

static struct run *find_run(struct run *table, const int32_t *ids) {
    uint64_t h = rng_hash(4, (uint64_t)ids[0] << 32 | (uint32_t)ids[1],
                          (uint64_t)ids[2] << 32 | (uint32_t)ids[3], 0);
    struct run *r = &table[h % SLOTS];
    while (r->ids && memcmp(r->ids, ids, ANCHOR_RUN * sizeof *ids))
        r = r == &table[SLOTS - 1] ? table : r + 1;
    return r;
}

static void count_places(struct run *table, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i + ANCHOR_RUN <= n; i++) {
        struct run *r = find_run(table, ids + i);
        if (!r->ids)
            continue;
        if (r->count < HITS_MAX)
            r->place[r->count] = i;
        r->count++;
    }
}

static int64_t chunk_of(const struct chunks *c, int64_t token) {
    int64_t lo = 0, hi = c->n - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (c->c[mid].first <= token)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

struct queue {
    int64_t *order; // chunks, the first to be taken first
    int64_t n, cap, next;
    int64_t tokens; // taken from it
};

static int push_chunk(struct queue *q, int64_t chunk, struct err *e) {
    int rc = vec_reserve(&q->order, &q->cap, q->n + 1, sizeof *q->order, e);
    if (!rc)
        q->order[q->n++] = chunk;
    return rc;
}

// The chunks at distance d from each place of r.
static int push_ring(const struct chunks *c, const struct run *r, int64_t d, struct queue *q,
                     struct err *e) {
    int rc = 0;
    for (int64_t i = 0; i < r->count && !rc; i++) {
        int64_t begin = chunk_of(c, r->place[i]), end = chunk_of(c, r->place[i] + ANCHOR_RUN - 1);
        if (d == 0) {
            for (int64_t k = begin; k <= end && !rc; k++)
                rc = push_chunk(q, k, e);
            continue;
        }
        if (begin - d >= 0)
            rc = push_chunk(q, begin - d, e);
        if (!rc && end + d < c->n)
            rc = push_chunk(q, end + d, e);
    }
    return rc;
}

static int by_count(const void *a, const void *b) {
    const struct run *x = *(const struct run *const *)a, *y = *(const struct run *const *)b;
    if (x->count != y->count)
        return x->count < y->count ? -1 : 1;
    return x->ids < y->ids ? -1 : x->ids > y->ids;
}

// The runs that say something, those with the fewest places first.
static int useful(struct run *table, int hits, const struct run **list) {
    int n = 0;
    for (int i = 0; i < SLOTS; i++)
        if (table[i].ids && table[i].count && table[i].count <= hits)
            list[n++] = &table[i];
    qsort(list, (size_t)n, sizeof *list, by_count);
    return n;
}

// Appends to q the chunks of anchors, runs with the fewest places first:
// all places themselves, then those at a distance of 1, and so on. A chunk may come twice. A run
// counts when it stands at `hits` places or fewer.
static int anchors_find(const struct anchor_search *s, struct queue *q, struct err *e) {
    int64_t all = s->cuts->n;
    int radius = s->radius ? s->radius : all < 1024 ? 2 : all < 2048 ? 4 : 8;
    int hits = s->hits ? s->hits : all < 1024 ? 8 : all < 2048 ? 16 : HITS_MAX;
    if (hits > HITS_MAX)
        hits = HITS_MAX;
    struct run *table = calloc(SLOTS, sizeof *table);
    if (!table)
        return err_set(e, ERR_MEMORY, "no memory to look for the query's words");
    int64_t first = s->end - s->query > ANCHOR_QUERY ? s->end - ANCHOR_QUERY : s->query;
    for (int64_t i = first; i + ANCHOR_RUN <= s->end; i++)
        find_run(table, s->ids + i)->ids = s->ids + i;
    count_places(table, s->ids, s->query);
    const struct run *list[SLOTS];
    int runs = useful(table, hits, list), rc = 0;
    for (int64_t d = 0; d <= radius && !rc; d++)
        for (int i = 0; i < runs && !rc; i++)
            rc = push_ring(s->cuts, list[i], d, q, e);
    free(table);
    return rc;
}

// Options of selection: defaults, checks, curves.

struct select_options select_options_default(void) {
    return (struct select_options){
        .budget = SELECT_MASS,
        .mass = 0.9,
        .least = 0.02,
        .most = 0.5,
        .keep = 0.05,
        .head = 256,
        .tail = 768,
        .anchors = true,
    };
}

static int check_share(double v, const char *what, struct err *e) {
    if (v > 0 && v <= 1) // false of what is no number
        return 0;
    return err_set(e, ERR_USAGE,
                   "%s is %g, but it is a share of the prompt: above 0, at most 1 (0.05 keeps a "
                   "twentieth)",
                   what, v);
}

static int check_curve(const struct select_options *o, struct err *e) {
    if (o->n_points < 1 || o->n_points > SELECT_POINTS)
        return err_set(e, ERR_USAGE, "a curve of keep ratios has 1 to %d points, not %d",
                       SELECT_POINTS, o->n_points);
    for (int i = 0; i < o->n_points; i++) {
        const struct select_point *p = &o->curve[i];
        if (!(p->tokens >= 0) || !isfinite(p->tokens))
            return err_set(e, ERR_USAGE, "point %d of the curve is at %g tokens", i + 1, p->tokens);
        int rc = check_share(p->keep, "a keep ratio of the curve", e);
        if (rc)
            return rc;
        if (i && p->tokens <= p[-1].tokens)
            return err_set(e, ERR_USAGE,
                           "the curve has a point at %.0f tokens after one at %.0f; lengths must "
                           "rise from point to point",
                           p->tokens, p[-1].tokens);
    }
    return 0;
}

int select_options_check(const struct select_options *o, struct err *e) {
    int rc = 0;
    if (o->head < 0 || o->tail < 0 || o->anchor_radius < 0 || o->anchor_hits < 0)
        return err_set(e, ERR_USAGE,
                       "head, tail and the radius and hits of anchors cannot be negative");
    if (o->budget == SELECT_RATIO)
        return check_share(o->keep, "the keep ratio", e);
    if (o->budget == SELECT_CURVE)
        return check_curve(o, e);
    if (o->budget != SELECT_MASS)
        return err_set(e, ERR_USAGE, "there is no budget number %d", (int)o->budget);
    rc = check_share(o->mass, "the mass of scores to keep", e);
    if (!rc)
        rc = check_share(o->least, "the least share to keep", e);
    if (!rc)
        rc = check_share(o->most, "the largest share to keep", e);
    if (!rc && o->least > o->most)
        rc = err_set(e, ERR_USAGE, "the least share to keep, %g, is more than the largest, %g",
                     o->least, o->most);
    return rc;
}

// One number at s; what follows it in *end, which is s if there is none.
static double read_number(const char *s, char **end) {
    *end = (char *)s;
    return *s == '.' || (*s >= '0' && *s <= '9') ? strtod(s, end) : NAN;
}

static int read_point(const char **at, struct select_point *p, struct err *e) {
    const char *s = *at;
    char *end;
    p->tokens = read_number(s, &end);
    bool good = end > s && *end == ':';
    if (good) {
        s = end + 1;
        p->keep = read_number(s, &end);
        good = end > s && (*end == '\0' || strchr(" ,\t\n", *end));
    }
    if (!good)
        return err_set(e, ERR_USAGE,
                       "'%.40s' is no point of a curve; write TOKENS:RATIO, as in 40000:0.2", *at);
    *at = end;
    return 0;
}

int select_curve_read(struct select_options *o, const char *text, size_t n, struct err *e) {
    struct select_options made = *o;
    made.budget = SELECT_CURVE;
    made.n_points = 0;
    char *copy = strndup(text, n);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for a curve");
    const char *at = copy;
    int rc = strlen(copy) < n ? err_set(e, ERR_USAGE, "a curve has a NUL in it") : 0;
    while (!rc && *(at += strspn(at, " ,\t\n"))) {
        if (made.n_points == SELECT_POINTS)
            rc = err_set(e, ERR_USAGE, "a curve has at most %d points", SELECT_POINTS);
        else
            rc = read_point(&at, &made.curve[made.n_points++], e);
    }
    free(copy);
    if (!rc)
        rc = check_curve(&made, e);
    if (!rc)
        *o = made;
    return rc;
}

double select_ratio(const struct select_options *o, int64_t tokens) {
    if (o->budget != SELECT_CURVE)
        return o->keep;
    const struct select_point *p = o->curve;
    double at = (double)tokens;
    if (at <= p[0].tokens)
        return p[0].keep;
    for (int i = 1; i < o->n_points; i++)
        if (at < p[i].tokens)
            return p[i - 1].keep + (p[i].keep - p[i - 1].keep) * (at - p[i - 1].tokens) /
                                       (p[i].tokens - p[i - 1].tokens);
    return p[o->n_points - 1].keep;
}

enum { SCORED, EDGES, ANCHORS, QUEUES };

// Tokens that a queue gets, in relation to the others'.
static const int64_t weight[QUEUES] = {2, 1, 1};

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

// The score mass of a chunk: its score above the median, times its tokens. Thousands
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
    return anchors_find(&s, q, e);
}

static void keep_chunk(struct ranking *r, int64_t chunk) {
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
        keep_chunk(r, best);
    }
}

// The next chunk of q that is not kept; -1: none.
static int64_t peek_queue(const struct ranking *r, struct queue *q) {
    while (q->next < q->n && r->kept[q->order[q->next]])
        q->next++;
    return q->next < q->n ? q->order[q->next] : -1;
}

// The queue whose turn it is; NULL when all are empty.
static struct queue *next_queue(struct ranking *r, int64_t *chunk) {
    struct queue *best = NULL;
    for (int i = 0; i < QUEUES; i++) {
        struct queue *q = &r->queue[i];
        int64_t next = peek_queue(r, q);
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
static void take_chunks(struct ranking *r, double *budget) {
    bool by_mass = r->o->budget == SELECT_MASS;
    int64_t size = r->in->size ? r->in->size : r->tokens, chunk = 0;
    double all = (double)r->tokens;
    *budget = floor(all * (by_mass ? r->o->most : select_ratio(r->o, size)));
    for (struct queue *q = next_queue(r, &chunk); q; q = next_queue(r, &chunk)) {
        int64_t count = r->cuts.c[chunk].count;
        if ((double)(r->taken + count) > *budget)
            break;
        bool enough = r->all_mass > 0 && r->mass >= r->o->mass * r->all_mass;
        if (by_mass && enough && (double)r->taken >= r->o->least * all)
            break;
        keep_chunk(r, chunk);
        q->tokens += count;
    }
}

static int write_spans(const struct ranking *r, struct selection *out, struct err *e) {
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

static int reserve_chunks(struct ranking *r, struct err *e) {
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
        rc = reserve_chunks(&r, e);
    if (!rc)
        rc = score_chunks(&r, e);
    if (!rc)
        rc = queue_anchors(&r, e);
    if (!rc) {
        queue_scored(&r);
        queue_edges(&r);
        keep_always(&r);
        take_chunks(&r, &out->budget);
        rc = write_spans(&r, out, e);
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
