// SPDX-License-Identifier: Apache-2.0
// Softmax attention of a forest. A work item is (up to 16 rows, one kv head or some of its query
// heads). For every chunk of 64 absolute positions, in order, the committed keys and values are
// decoded once for the item and the rows' own ancestors once per distinct row; then each (row,
// head) pair takes its visible keys in position order and merges them into its running softmax
// (maximum, sum, weighted values). A single row of few heads reads them in their stored form. Which
// keys a pair sees, and in which groups, depends on its own position alone (rule E2).
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"
#include "ops/kv/rotate.h"

struct attend_run {
    const struct cpu *cpu;
    const struct attend_args *a;
    const struct rows *r;
    kv_decode_fn *load_k, *load_v;
    int64_t tile; // rows of an item, at most ROWS
    int cuts;     // items that share the query heads of a tile
};

// The rows of one item: r->seq is the same for all of them.
struct tile {
    const struct attend_run *run;
    struct attend_scratch *s;
    int64_t begin, end; // rows
    int kv;             // kv head
    int head, heads;    // its query heads in this item
    const struct kv_view *view;
    int64_t run_start[ROWS];    // first row of the unbroken chain that ends in the row
    int32_t key[ROWS][KV_PAGE]; // rows whose keys are decoded for this chunk, by tile row and slot
    int used[ROWS][KV_PAGE];    // and where in row_k
    int decoded;
    bool choosing;       // some row sees chosen blocks only
    int pairs;           // (row, head) pairs of s->pair that take part in this chunk
    int quads;           // of s->quad: the first of these
    unsigned char *page; // of this chunk, and its slots with committed positions
    int page_begin, page_end;
    unsigned char *next_page; // NULL: no committed positions follow
};

// First position that row i may see.
static int64_t first_visible(const struct attend_run *u, int64_t i) {
    return u->a->shape.window > 0 ? max_i64(0, u->r->pos[i] - u->a->shape.window + 1) : 0;
}

static const float *query(const struct tile *t, int at, int h) {
    const struct attend_args *a = t->run->a;
    return a->q + ((t->begin - a->first + at) * a->shape.n_heads + t->head + h) * a->shape.dk;
}

static float *sums(const struct tile *t, int at, int h) {
    const struct attend_args *a = t->run->a;
    return a->out->x + (t->begin - a->first + at) * a->out->stride +
           (int64_t)(t->head + h) * a->shape.dv;
}

// Whether a pair sees the chunk's block at all.
static bool takes_part(const struct tile *t, int at, int h, int64_t block) {
    const struct attend_run *u = t->run;
    const struct attend_choice *c = u->a->choice;
    int64_t row = t->begin + at;
    if (!t->choosing || u->r->pos[row] >= c->end[u->r->seq[row]])
        return true;
    const uint32_t *chosen =
        c->chosen + (row * u->a->shape.n_heads + t->head + h) * (c->blocks / 32);
    return chosen[block / 32] >> block % 32 & 1;
}

// Collects the pairs of the tile that see a block and makes them into quads; the last one to three
// stay single.
static void make_quads(struct tile *t, int64_t block) {
    struct attend_scratch *s = t->s;
    int rows = (int)(t->end - t->begin);
    t->pairs = 0;
    for (int p = 0; p < rows * t->heads; p++)
        if (takes_part(t, p / t->heads, p % t->heads, block))
            s->pair[t->pairs++] = (struct attend_pair){p / t->heads, p % t->heads};
    t->quads = t->pairs / 4;
    for (int p = 0; p < t->quads * 4; p++) {
        s->quad[p / 4].row[p % 4] = s->pair[p].row;
        s->quad[p / 4].head[p % 4] = s->pair[p].head;
    }
}

// The slots of this chunk that the rows of a quad share: those that all see, up to the first where
// two of them see different keys.
static void share(const struct tile *t, struct quad *q) {
    const struct keys *first = &t->s->keys[q->row[0]];
    q->begin = first->begin;
    q->end = first->end;
    for (int i = 1; i < 4; i++) {
        const struct keys *keys = &t->s->keys[q->row[i]];
        if (q->row[i] == q->row[i - 1])
            continue;
        q->begin = max_i32(q->begin, keys->begin);
        int end = min_i32(q->end, keys->end);
        int slot = min_i32(end, max_i32(q->begin, t->page_end));
        while (slot < end && keys->k[slot] == first->k[slot])
            slot++;
        q->end = max_i32(slot, q->begin);
    }
}

// Scores of slots [from, to) of one pair.
static void score_pair(const struct tile *t, int at, int h, int from, int to) {
    const struct keys *keys = &t->s->keys[at];
    from = max_i32(from, keys->begin);
    to = min_i32(to, keys->end);
    if (from < to)
        t->run->cpu->row.dots(t->s->score[at][h] + from, query(t, at, h), keys->k + from, to - from,
                              t->run->a->shape.dk);
}

static void score_quad(const struct tile *t, const struct quad *q, int from, int to) {
    int begin = max_i32(from, q->begin), end = min_i32(to, q->end);
    struct delta_dots job = {.k = t->s->keys[q->row[0]].k + begin,
                             .n_x = 4,
                             .n = end - begin,
                             .dim = t->run->a->shape.dk};
    for (int i = 0; i < 4; i++) {
        job.out[i] = t->s->score[q->row[i]][q->head[i]] + begin;
        job.x[i] = query(t, q->row[i], q->head[i]);
    }
    if (begin < end)
        t->run->cpu->row.delta.dots(&job);
    for (int i = 0; i < 4; i++) {
        score_pair(t, q->row[i], q->head[i], from, begin < end ? begin : to);
        if (begin < end)
            score_pair(t, q->row[i], q->head[i], end, to);
    }
}

// Values of slots [from, to) into the sums of one pair; the first of the chunk also fade.
static void weigh_pair(const struct tile *t, int at, int h, int from, int to) {
    const struct keys *keys = &t->s->keys[at];
    from = max_i32(from, keys->begin);
    to = min_i32(to, keys->end);
    if (from < to)
        t->run->cpu->row.weigh(sums(t, at, h), from > keys->begin ? 1.0f : t->s->fade[at][h],
                               t->s->score[at][h] + from, keys->v + from, to - from,
                               t->run->a->shape.dv);
}

static void weigh_quad(const struct tile *t, const struct quad *q, int from, int to) {
    int begin = max_i32(from, q->begin), end = min_i32(to, q->end);
    struct weigh4 job = {
        .v = t->s->keys[q->row[0]].v + begin, .n = end - begin, .dim = t->run->a->shape.dv};
    for (int i = 0; i < 4; i++) {
        int at = q->row[i], h = q->head[i];
        weigh_pair(t, at, h, from, begin < end ? begin : to);
        job.acc[i] = sums(t, at, h);
        job.scale[i] = begin > t->s->keys[at].begin ? 1.0f : t->s->fade[at][h];
        job.p[i] = t->s->score[at][h] + begin;
    }
    if (begin >= end)
        return;
    t->run->cpu->row.weigh4(&job);
    for (int i = 0; i < 4; i++)
        weigh_pair(t, q->row[i], q->head[i], end, to);
}

// cap(x) = soft_cap tanh(x / soft_cap); all levels take this one.
static void cap_scores(float *x, float soft_cap, int n) {
    for (int i = 0; i < n; i++)
        x[i] = soft_cap * row_tanh(x[i] / soft_cap);
}

// Scores to weights under the new maximum of one (row, head).
static void renew(const struct tile *t, int at, int h) {
    const struct row_kernels *f = &t->run->cpu->row;
    const struct keys *keys = &t->s->keys[at];
    int n = keys->end - keys->begin;
    float *p = t->s->score[at][h] + keys->begin;
    float *maximum = &t->s->max[at][h], *sum = &t->s->sum[at][h];
    f->scale_mul(p, p, NULL, t->run->a->shape.scale, n);
    if (t->run->a->shape.soft_cap > 0)
        cap_scores(p, t->run->a->shape.soft_cap, n);
    float m = f->max(p, n);
    m = m > *maximum ? m : *maximum;
    t->s->fade[at][h] = row_exp(*maximum - m);
    *sum = *sum * t->s->fade[at][h] + f->exp_sum(p, p, m, n);
    *maximum = m;
}

// Decodes the committed keys, or values, of slots [from, from + ATTEND_STEP) of this chunk.
static void load_step(const struct tile *t, int from, bool values) {
    const struct attend_run *u = t->run;
    const struct kv_layout *l = u->a->layout;
    int end = min_i32(t->page_end, from + ATTEND_STEP);
    for (int slot = max_i32(t->page_begin, from); slot < end; slot++) {
        int dim = values ? u->a->shape.dv : u->a->shape.dk;
        float *out = t->s->page + slot % ATTEND_STEP * dim;
        struct kv_row row = kv_row_at(l, values ? &l->v : &l->k, t->page, u->a->layer, t->kv, slot);
        (values ? u->load_v : u->load_k)(row.codes, row.scales, out, dim);
    }
}

// Pairs of a single row that read keys and values in their stored form: for more of them, decoding
// each once is less work.
enum { STORED_PAIRS = 8 };

static bool reads_stored(const struct tile *t) {
    const struct attend_shape *shape = &t->run->a->shape;
    return t->run->cpu->row.stored_dots && t->end - t->begin == 1 && t->pairs <= STORED_PAIRS &&
           shape->dk % 16 == 0 && shape->dv % 16 == 0;
}

// The committed keys, or values, of slots [from, from + n) of this chunk. What is requested
// meanwhile are those of the next one.
static struct stored_rows stored_rows_at(const struct tile *t, int from, int n, bool values) {
    const struct attend_args *a = t->run->a;
    const struct kv_layout *l = a->layout;
    const struct kv_plane *plane = values ? &l->v : &l->k;
    unsigned char *next = t->next_page;
    struct kv_row row = kv_row_at(l, plane, t->page, a->layer, t->kv, from);
    return (struct stored_rows){.codec = values ? l->s.codec_v : l->s.codec_k,
                                .codes = row.codes,
                                .scales = row.scales,
                                .code_row = plane->code_row,
                                .scale_row = plane->scale_row,
                                .n = n,
                                .dim = values ? a->shape.dv : a->shape.dk,
                                .next = next ? kv_row_at(l, plane, next, a->layer, t->kv, 0).codes
                                             : NULL};
}

// take_keys for a single row: committed keys as they are stored, then its ancestors.
static void take_stored_keys(const struct tile *t) {
    struct attend_scratch *s = t->s;
    const struct keys *keys = &s->keys[0];
    const struct row_kernels *f = &t->run->cpu->row;
    int from = keys->begin, end = max_i32(from, min_i32(keys->end, t->page_end));
    struct stored_dots k;
    struct stored_weigh v;
    if (from >= keys->end)
        return;
    if (from < end) {
        k.k = stored_rows_at(t, from, end - from, false);
        v.v = stored_rows_at(t, from, end - from, true);
    }
    for (int p = 0; p < t->pairs; p += 4) {
        k.n_x = min_i32(4, t->pairs - p);
        for (int i = 0; i < k.n_x; i++) {
            k.x[i] = query(t, 0, s->pair[p + i].head);
            k.out[i] = s->score[0][s->pair[p + i].head] + from;
        }
        if (from < end)
            f->stored_dots(&k);
    }
    for (int p = 0; p < t->pairs; p++) {
        score_pair(t, 0, s->pair[p].head, end, KV_PAGE);
        renew(t, 0, s->pair[p].head);
    }
    for (int p = 0; p < t->pairs; p += 4) {
        v.n_x = min_i32(4, t->pairs - p);
        for (int i = 0; i < v.n_x; i++) {
            int h = s->pair[p + i].head;
            v.p[i] = s->score[0][h] + from;
            v.acc[i] = sums(t, 0, h);
            v.scale[i] = s->fade[0][h];
        }
        if (from < end)
            f->stored_weigh(&v);
    }
    for (int p = 0; p < t->pairs; p++)
        weigh_pair(t, 0, s->pair[p].head, end, KV_PAGE);
}

// The collected keys of every row into the running softmax of its heads.
static void take_keys(const struct tile *t) {
    struct attend_scratch *s = t->s;
    if (reads_stored(t)) {
        take_stored_keys(t);
        return;
    }
    for (int i = 0; i < t->quads; i++)
        share(t, &s->quad[i]);
    for (int from = 0; from < KV_PAGE; from += ATTEND_STEP) {
        load_step(t, from, false);
        for (int i = 0; i < t->quads; i++)
            score_quad(t, &s->quad[i], from, from + ATTEND_STEP);
        for (int p = t->quads * 4; p < t->pairs; p++)
            score_pair(t, s->pair[p].row, s->pair[p].head, from, from + ATTEND_STEP);
    }
    for (int p = 0; p < t->pairs; p++)
        if (s->keys[s->pair[p].row].begin < s->keys[s->pair[p].row].end)
            renew(t, s->pair[p].row, s->pair[p].head);
    for (int from = 0; from < KV_PAGE; from += ATTEND_STEP) {
        load_step(t, from, true);
        for (int i = 0; i < t->quads; i++)
            weigh_quad(t, &s->quad[i], from, from + ATTEND_STEP);
        for (int p = t->quads * 4; p < t->pairs; p++)
            weigh_pair(t, s->pair[p].row, s->pair[p].head, from, from + ATTEND_STEP);
    }
}

static void start_rows(struct tile *t) {
    const struct attend_args *a = t->run->a;
    const struct rows *r = t->run->r;
    size_t bytes = (size_t)t->heads * (size_t)a->shape.dv * sizeof(float);
    for (int64_t i = t->begin; i < t->end; i++) {
        int64_t at = i - t->begin, s = i;
        memset(sums(t, (int)at, 0), 0, bytes);
        for (int h = 0; h < t->heads; h++) {
            t->s->max[at][h] = -INFINITY;
            t->s->sum[at][h] = 0;
        }
        if (at > 0 && r->parent[i] == i - 1)
            s = t->run_start[at - 1];
        while (r->parent[s] >= 0 && r->parent[s] == s - 1)
            s--;
        t->run_start[at] = s;
        // Where load_step puts what is committed, keys and values one after the other.
        for (int slot = 0; slot < KV_PAGE; slot++) {
            t->s->keys[at].k[slot] = t->s->page + slot % ATTEND_STEP * a->shape.dk;
            t->s->keys[at].v[slot] = t->s->page + slot % ATTEND_STEP * a->shape.dv;
        }
    }
}

// What the weighted values of a (row, head) are multiplied by: 1 / sum of the weights. A sink is a
// last score without a value: it may raise the maximum, under which everything before fades.
static float divisor(const struct tile *t, int at, int h) {
    const float *sinks = t->run->a->shape.sinks;
    float sum = t->s->sum[at][h], max = t->s->max[at][h];
    if (!sinks)
        return 1.0f / sum;
    float sink = sinks[t->head + h], m = sink > max ? sink : max, fade = row_exp(max - m);
    return fade / (sum * fade + row_exp(sink - m));
}

// The head's output times s, and its gate.
static void gate_head(const struct tile *t, float *x, float s, const float *gate) {
    const struct attend_args *a = t->run->a;
    const struct row_kernels *f = &t->run->cpu->row;
    float by[OPS_HEAD_MAX];
    int dim = a->shape.dv;
    if (!gate || (!a->gate_softplus && !a->gate_single)) {
        f->gate(x, s, gate, dim);
        return;
    }
    if (a->gate_softplus)
        f->softplus(by, gate, a->gate_single ? 1 : dim);
    else
        by[0] = row_sigmoid(gate[0]);
    for (int i = 1; a->gate_single && i < dim; i++)
        by[i] = by[0];
    f->scale_mul(x, x, by, s, dim);
}

static void finish_rows(const struct tile *t) {
    const struct attend_args *a = t->run->a;
    for (int64_t i = t->begin; i < t->end; i++)
        for (int h = 0; h < t->heads; h++) {
            int64_t head = (int64_t)t->head + h;
            const float *g =
                a->gate ? a->gate + ((i - a->first) * a->shape.n_heads + head) * a->gate_stride
                        : NULL;
            int at = (int)(i - t->begin);
            if (a->layout->rotate_v)
                kv_rotate_back(sums(t, at, h), a->shape.dv, a->layout->rotate_v);
            gate_head(t, sums(t, at, h), divisor(t, at, h), g);
        }
}

static void load_row(const struct tile *t, int64_t row, int at) {
    const struct attend_run *u = t->run;
    const struct kv_layout *l = u->a->layout;
    const struct kv_slot *s = &u->a->store[row];
    struct kv_row k = kv_row_at(l, &l->k, s->page, u->a->layer, t->kv, s->slot);
    struct kv_row v = kv_row_at(l, &l->v, s->page, u->a->layer, t->kv, s->slot);
    u->load_k(k.codes, k.scales, t->s->row_k + at * u->a->shape.dk, u->a->shape.dk);
    u->load_v(v.codes, v.scales, t->s->row_v + at * u->a->shape.dv, u->a->shape.dv);
}

// The ancestor (or self) of row i at a position that is not committed.
static int64_t ancestor(const struct tile *t, int64_t i, int64_t pos) {
    const struct rows *r = t->run->r;
    int64_t start = t->run_start[i - t->begin], row = i;
    while (pos < r->pos[start]) {
        row = start = r->parent[start];
        while (r->parent[start] == start - 1 && start > 0 && pos < r->pos[start])
            start--;
    }
    return row - (r->pos[row] - pos);
}

// Where the decoded key of `row` is; decodes it unless an earlier row of the tile has it.
static int decoded_row(struct tile *t, int at, int slot, int64_t row) {
    for (int b = at - 1; b >= 0; b--)
        if (t->key[b][slot] == row)
            return t->used[b][slot];
    load_row(t, row, t->decoded);
    return t->decoded++;
}

// The keys of row i within positions [lo, hi) of one page, in order.
static void collect(struct tile *t, int64_t i, int64_t lo, int64_t hi) {
    const struct attend_shape *shape = &t->run->a->shape;
    int at = (int)(i - t->begin);
    struct keys *keys = &t->s->keys[at];
    int64_t own = max_i64(lo, t->view->len); // those before are committed
    int64_t row = hi > own ? ancestor(t, i, hi - 1) : -1;
    keys->begin = (int)(lo % KV_PAGE);
    keys->end = keys->begin + (int)(hi - lo);
    for (int64_t p = hi - 1; p >= own; p--) {
        int slot = (int)(p % KV_PAGE);
        t->key[at][slot] = (int32_t)row;
        t->used[at][slot] = decoded_row(t, at, slot, row);
        keys->k[slot] = t->s->row_k + t->used[at][slot] * shape->dk;
        keys->v[slot] = t->s->row_v + t->used[at][slot] * shape->dv;
        row = t->run->r->parent[row];
    }
}

// Committed keys, and along the ancestors with ATTEND_PATH.
static void take_chunks(struct tile *t) {
    const struct attend_run *u = t->run;
    bool path = u->a->shape.mask == ATTEND_PATH;
    int64_t first = INT64_MAX, last = 0;
    for (int64_t i = t->begin; i < t->end; i++) {
        first = min_i64(first, first_visible(u, i));
        last = max_i64(last, path ? u->r->pos[i] + 1 : t->view->len);
    }
    for (int64_t c = first / KV_PAGE * KV_PAGE; c < last; c += KV_PAGE) {
        int64_t stop = min_i64(c + KV_PAGE, t->view->len);
        if (t->choosing)
            make_quads(t, c / SPARSE_BLOCK);
        if (t->pairs == 0)
            continue;
        t->page_begin = (int)(max_i64(c, first) - c);
        t->page_end = stop > c ? (int)(stop - c) : 0;
        t->page = stop > c ? t->view->pages[c / KV_PAGE] : NULL;
        t->next_page = stop < t->view->len ? t->view->pages[c / KV_PAGE + 1] : NULL;
        memset(t->key, -1, (size_t)(t->end - t->begin) * sizeof t->key[0]);
        t->decoded = 0;
        for (int64_t i = t->begin; i < t->end; i++) {
            int64_t lo = max_i64(c, first_visible(u, i));
            int64_t hi = min_i64(c + KV_PAGE, path ? u->r->pos[i] + 1 : t->view->len);
            t->s->keys[i - t->begin].begin = t->s->keys[i - t->begin].end = 0;
            if (lo < hi)
                collect(t, i, lo, hi);
        }
        take_keys(t);
    }
}

// Those of n decoded rows that row i sees through the window.
static void collect_block(const struct tile *t, int64_t i, const int64_t *list, int n) {
    const struct rows *r = t->run->r;
    struct keys *keys = &t->s->keys[i - t->begin];
    const struct attend_shape *shape = &t->run->a->shape;
    int64_t window = shape->window;
    keys->begin = keys->end = 0;
    for (int j = 0; j < n; j++) {
        int64_t away = r->pos[i] - r->pos[list[j]];
        if (window > 0 && (away >= window || -away >= window))
            continue;
        keys->k[keys->end] = t->s->row_k + j * shape->dk;
        keys->v[keys->end++] = t->s->row_v + j * shape->dv;
    }
}

// ATTEND_BLOCK: every row of the sequence, 64 at a time in row order.
static void take_block(struct tile *t) {
    const struct rows *r = t->run->r;
    int64_t row = 0;
    t->page_begin = t->page_end = 0;
    while (row < r->n) {
        int64_t list[KV_PAGE];
        int n = 0;
        for (; row < r->n && n < KV_PAGE; row++)
            if (r->seq[row] == r->seq[t->begin]) {
                load_row(t, row, n);
                list[n++] = row;
            }
        for (int64_t i = t->begin; i < t->end; i++)
            collect_block(t, i, list, n);
        take_keys(t);
    }
}

// Whether some row of the tile sees chosen blocks only.
static bool chooses(const struct tile *t) {
    const struct attend_choice *c = t->run->a->choice;
    bool any = false;
    for (int64_t i = t->begin; c && i < t->end; i++)
        any = any || t->run->r->pos[i] < c->end[t->run->r->seq[i]];
    return any;
}

// The heads of one kv head of rows that belong to one sequence.
static void attend_tile(struct tile *t) {
    start_rows(t);
    t->choosing = chooses(t);
    make_quads(t, 0);
    take_chunks(t);
    if (t->run->a->shape.mask == ATTEND_BLOCK)
        take_block(t);
    finish_rows(t);
}

// Items are (rows of a tile, some of the query heads).
static void attend_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct attend_run *u = arg;
    const struct rows *r = u->r;
    struct tile t = {.run = u, .s = &u->cpu->attend[worker]};
    int heads = u->a->shape.n_heads, group = heads / u->a->shape.n_kv;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = u->a->first + item / u->cuts * u->tile, stop = min_i64(row + u->tile, r->n);
        int cut = (int)(item % u->cuts), last = (cut + 1) * heads / u->cuts;
        while (row < stop) {
            t.begin = row++;
            while (row < stop && r->seq[row] == r->seq[t.begin])
                row++;
            t.end = row;
            t.view = &u->a->seqs[r->seq[t.begin]];
            for (t.head = cut * heads / u->cuts; t.head < last; t.head += t.heads) {
                t.kv = t.head / group;
                t.heads = min_i32(last, (t.kv + 1) * group) - t.head;
                attend_tile(&t);
            }
        }
    }
}

// Items are four rows each.
static void quantise_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct attend_run *u = arg;
    act_finish_rows(u->cpu, u->a->out, 4 * begin, min_i64(4 * end, u->r->n - u->a->first));
}

// A guess in nanoseconds for one item: decoding its keys, and using them for rows and heads.
static int64_t item_cost(const struct attend_run *u) {
    const struct attend_args *a = u->a;
    int64_t keys = 0, heads = ceil_div(a->shape.n_heads, u->cuts);
    for (int64_t i = a->first; i < a->first + u->tile; i++)
        keys += a->shape.window > 0 ? min_i64(a->shape.window, u->r->pos[i] + 1) : u->r->pos[i] + 1;
    int64_t dim = (a->shape.dk + a->shape.dv) / 2;
    return keys * heads * dim / 16 + keys / u->tile * dim / 8;
}

void cpu_attend(struct exec *x, const struct attend_args *a, const struct rows *r) {
    struct cpu *c = cpu_of(x);
    struct attend_run u = {.cpu = c, .a = a, .r = r};
    const int64_t n = r->n - a->first;
    if (n == 0)
        return;
    u.load_k = c->row.kv_load[a->layout->s.codec_k];
    u.load_v = c->row.kv_load[a->layout->s.codec_v];
    act_shape(a->out, n, (int64_t)a->shape.n_heads * a->shape.dv);
    if (a->choice)
        cpu_attend_choose(c, a, r);
    // Something for every thread: smaller tiles first, then fewer heads; where the last items would
    // leave threads without work, heads are shared out evenly.
    int threads = c->base.threads, n_kv = a->shape.n_kv;
    int64_t group = a->shape.n_heads / n_kv, tiles = ceil_div(threads, n_kv);
    u.tile = min_i64(ceil_div(n, tiles), ROWS);
    tiles = ceil_div(n, u.tile);
    u.cuts = n_kv * (int)min_i64(group, ceil_div(threads, tiles * n_kv));
    if (tiles * u.cuts % threads != 0 && tiles * u.cuts < 4 * threads)
        u.cuts = min_i32(a->shape.n_heads, threads);
    cpu_run(c, tiles * u.cuts, item_cost(&u), attend_items, &u);
    cpu_run(c, ceil_div(n, 4), a->out->stride, quantise_rows, &u);
}

// The choice of blocks by single rows (struct sparse_rule in ops/attention.h). For each sequence
// that has rows of this kind, means of all whole blocks that its last one sees are made anew from
// stored keys: that is the work of one row's attention, and there is no state to keep. Then rows
// are scored with them, 32 at a time.

enum { GROUP_ROWS = 2 * DELTA_ROWS };

struct choose_run {
    struct cpu *cpu;
    const struct attend_args *a;
    const struct rows *r;
    int64_t begin, end; // rows that choose, all of one sequence
    int64_t first;      // row of the sequence's first position that is not committed
    float least;        // ln alpha
};

// K of one position and head as f32.
static void load_key(const struct choose_run *u, int64_t pos, int head, float *out) {
    const struct attend_args *a = u->a;
    const struct kv_layout *l = a->layout;
    const struct kv_view *view = &a->seqs[u->r->seq[u->begin]];
    unsigned char *page;
    int slot = (int)(pos % KV_PAGE);
    if (pos < view->len) {
        page = view->pages[pos / KV_PAGE];
    } else {
        page = a->store[u->first + pos - view->len].page;
        slot = a->store[u->first + pos - view->len].slot;
    }
    struct kv_row row = kv_row_at(l, &l->k, page, a->layer, head, slot);
    u->cpu->row.kv_load[l->s.codec_k](row.codes, row.scales, out, a->shape.dk);
}

// Items are (block, kv head).
static void mean_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct choose_run *u = arg;
    const struct attend_shape *s = &u->a->shape;
    float *rows = u->cpu->sparse[worker].rows, ones[SPARSE_BLOCK];
    const float *row[SPARSE_BLOCK];
    for (int i = 0; i < SPARSE_BLOCK; i++) {
        ones[i] = 1;
        row[i] = rows + i * s->dk;
    }
    for (int64_t item = begin; item < end; item++) {
        float *mean = u->a->choice->means + item * s->dk;
        for (int i = 0; i < SPARSE_BLOCK; i++)
            load_key(u, item / s->n_kv * SPARSE_BLOCK + i, (int)(item % s->n_kv), rows + i * s->dk);
        memset(mean, 0, (size_t)s->dk * sizeof *mean);
        u->cpu->row.weigh(mean, 1, ones, row, SPARSE_BLOCK, s->dk);
        u->cpu->row.scale_mul(mean, mean, NULL, 1.0f / SPARSE_BLOCK, s->dk);
    }
}

// Scores of blocks [from, from + n) for rows [row, row + rows), as they come from the products.
static void score(const struct choose_run *u, struct sparse_scratch *s, int64_t row, int rows,
                  int head, int64_t from, int n) {
    const struct attend_shape *shape = &u->a->shape;
    const float *k[SPARSE_SELECT];
    struct delta_dots job = {.k = k, .n_x = rows + rows % 2, .n = n, .dim = shape->dk};
    int kv = head / (shape->n_heads / shape->n_kv);
    for (int i = 0; i < n; i++)
        k[i] = u->a->choice->means + ((from + i) * shape->n_kv + kv) * shape->dk;
    for (int i = 0; i < job.n_x; i++) {
        job.x[i] = u->a->q + ((row + min_i32(i, rows - 1)) * shape->n_heads + head) * shape->dk;
        job.out[i] = s->select[i];
    }
    u->cpu->row.delta.dots(&job);
    for (int i = 0; i < rows; i++)
        u->cpu->row.scale_mul(s->select[i], s->select[i], NULL, shape->scale, n);
}

// Bits of blocks [from, from + n) for one row of block m.
static void choose(const struct choose_run *u, uint32_t *chosen, const float *score, float max,
                   int64_t m, int64_t from, int n) {
    const struct sparse_rule *rule = &u->a->choice->rule;
    for (int64_t b = from; b < from + n; b++)
        if (score[b - from] - max >= u->least || b < rule->sinks || m - b < rule->window)
            chosen[b / 32] |= 1u << b % 32;
}

// One head of rows [row, row + rows): first the largest score of each, then what reaches its share.
static void choose_rows(const struct choose_run *u, struct sparse_scratch *s, int64_t row, int rows,
                        int head) {
    const struct attend_choice *c = u->a->choice;
    int64_t words = c->blocks / 32, all = u->r->pos[row + rows - 1] / SPARSE_BLOCK;
    float maximum[GROUP_ROWS];
    for (int i = 0; i < rows; i++)
        maximum[i] = -INFINITY;
    for (int64_t from = 0; from < all; from += SPARSE_SELECT) {
        int n = (int)min_i64(all - from, SPARSE_SELECT);
        score(u, s, row, rows, head, from, n);
        for (int i = 0; i < rows; i++) {
            int mine = (int)min_i64(u->r->pos[row + i] / SPARSE_BLOCK - from, n);
            float top = mine > 0 ? u->cpu->row.max(s->select[i], mine) : maximum[i];
            maximum[i] = top > maximum[i] ? top : maximum[i];
        }
    }
    for (int i = 0; i < rows; i++) {
        uint32_t *chosen = c->chosen + ((row + i) * u->a->shape.n_heads + head) * words;
        int64_t own = u->r->pos[row + i] / SPARSE_BLOCK;
        memset(chosen, 0, (size_t)words * sizeof *chosen);
        chosen[own / 32] |= 1u << own % 32;
    }
    for (int64_t from = 0; from < all; from += SPARSE_SELECT) {
        int n = (int)min_i64(all - from, SPARSE_SELECT);
        if (all > SPARSE_SELECT)
            score(u, s, row, rows, head, from, n);
        for (int i = 0; i < rows; i++) {
            int64_t m = u->r->pos[row + i] / SPARSE_BLOCK;
            uint32_t *chosen = c->chosen + ((row + i) * u->a->shape.n_heads + head) * words;
            choose(u, chosen, s->select[i], maximum[i], m, from, (int)min_i64(m - from, n));
        }
    }
}

// Items are (32 rows, head).
static void choose_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct choose_run *u = arg;
    int heads = u->a->shape.n_heads;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = u->begin + item / heads * GROUP_ROWS;
        choose_rows(u, &u->cpu->sparse[worker], row, (int)min_i64(u->end - row, GROUP_ROWS),
                    (int)(item % heads));
    }
}

static void choose_run(struct choose_run *u) {
    const struct attend_shape *s = &u->a->shape;
    int64_t blocks = u->r->pos[u->end - 1] / SPARSE_BLOCK;
    cpu_run(u->cpu, blocks * s->n_kv, SPARSE_BLOCK * s->dk / 8, mean_items, u);
    cpu_run(u->cpu, ceil_div(u->end - u->begin, GROUP_ROWS) * s->n_heads,
            GROUP_ROWS * blocks * s->dk / 32, choose_items, u);
}

void cpu_attend_choose(struct cpu *c, const struct attend_args *a, const struct rows *r) {
    float alpha = a->choice->rule.alpha;
    struct choose_run u = {
        .cpu = c, .a = a, .r = r, .least = alpha > 0 ? row_log(alpha) : -INFINITY};
    for (int64_t i = 0, stop; i < r->n; i = stop) {
        u.begin = u.end = u.first = i;
        for (stop = i; stop < r->n && r->seq[stop] == r->seq[i]; stop++)
            if (r->pos[stop] < a->choice->end[r->seq[i]])
                u.end = stop + 1;
        if (u.end > u.begin)
            choose_run(&u);
    }
}

// Attention mass of keys. A work item is eight queries: for each head the scores of a tile of keys,
// which stay in the nearest cache while all eight use them, then each query's softmax over its row.
// The norm of keys costs one factor a key, since its weights are put into the queries.

enum { QUERIES = 8, KEYS = 64 };

struct mass_run {
    const struct row_kernels *row;
    const struct key_mass_args *a;
};

static float inverse_rms(const struct mass_run *u, const float *x) {
    return 1.0f / sqrtf(u->row->sum_sq(x, u->a->d) / (float)u->a->d + u->a->eps);
}

// Keys that query t sees.
static int64_t visible(const struct key_mass_args *a, int64_t t) {
    return a->n - a->n_q + t + 1;
}

// The normed query times the weights of the keys' norm and the scale.
static void make_query(const struct mass_run *u, int64_t t, int head, float *out) {
    const struct key_mass_args *a = u->a;
    const float *q = a->q + (t * a->n_heads + head) * a->d;
    u->row->scale_mul(out, q, a->q_norm, inverse_rms(u, q), a->d);
    u->row->scale_mul(out, out, a->k_norm, a->scale, a->d);
}

// Scores of queries t .. end - 1 of a head, in their rows of work.
static void score_keys(const struct mass_run *u, int64_t t, int64_t end, int head) {
    const struct key_mass_args *a = u->a;
    float q[QUERIES][OPS_KEY_MAX];
    int kv = head / (a->n_heads / a->n_kv);
    for (int64_t i = t; i < end; i++)
        make_query(u, i, head, q[i - t]);
    int64_t last = visible(a, end - 1);
    for (int64_t j = 0; j < last; j += KEYS) {
        const float *k[KEYS];
        float inverse[KEYS];
        int n = (int)(last - j < KEYS ? last - j : KEYS);
        for (int i = 0; i < n; i++) {
            k[i] = a->k + ((j + i) * a->n_kv + kv) * a->d;
            inverse[i] = inverse_rms(u, k[i]);
        }
        for (int64_t i = t; i < end; i++) {
            float *out = a->work + i * a->n + j;
            int seen = (int)(visible(a, i) - j < n ? visible(a, i) - j : n);
            u->row->dots(out, q[i - t], k, seen, a->d);
            for (int s = 0; s < seen; s++)
                out[s] *= inverse[s];
        }
    }
}

// The mass of query t from the scores of a head in its row of work.
static void add_shares(const struct mass_run *u, int64_t t) {
    float *p = u->a->work + t * u->a->n, *mass = u->a->mass + t * u->a->n;
    int64_t n = visible(u->a, t);
    float share = 1.0f / u->row->exp_sum(p, p, u->row->max(p, n), n);
    for (int64_t j = 0; j < n; j++)
        mass[j] = mass[j] > p[j] * share ? mass[j] : p[j] * share;
}

static void mass_items(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct mass_run *u = arg;
    const struct key_mass_args *a = u->a;
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item * QUERIES, stop = t + QUERIES < a->n_q ? t + QUERIES : a->n_q;
        for (int head = 0; head < a->n_heads; head++) {
            score_keys(u, t, stop, head);
            for (int64_t i = t; i < stop; i++)
                add_shares(u, i);
        }
    }
}

void cpu_key_mass(struct exec *x, const struct key_mass_args *a) {
    struct mass_run u = {&cpu_of(x)->row, a};
    int64_t cost = a->n * a->n_heads * a->d / 4;
    cpu_run(cpu_of(x), (a->n_q + QUERIES - 1) / QUERIES, cost, mass_items, &u);
}
