// SPDX-License-Identifier: Apache-2.0
// The first stages of block-sparse attention (ops/args/sparse.h): means of key blocks, and the
// blocks that each block of queries chooses for each head. Scores are taken for 32 rows and some
// hundred blocks at a time, so that scratch does not grow with the text.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"

enum { GROUP_ROWS = 2 * DELTA_ROWS };

struct sparse_run {
    const struct cpu *cpu;
    const struct sparse_args *a;
    int64_t blocks, first_block; // key blocks; the first query block, and of whole key blocks
};

void cpu_sparse_load(const struct cpu *c, const struct sparse_rows *s, int64_t pos, int head,
                     int at, int n, float *out) {
    const struct kv_codec *codec = kv_codec_of(s->codec);
    int64_t slot = pos % KV_PAGE, block = at / codec->block;
    const unsigned char *piece =
        s->pages ? s->pages[pos / KV_PAGE] : s->data + pos / KV_PAGE * s->piece;
    const unsigned char *codes = piece + s->codes + slot * s->code_slot + head * s->code_head;
    const unsigned char *scales = piece + s->scales + slot * s->scale_slot + head * s->scale_head;
    c->row.kv_load[s->codec](codes + block * codec->code_bytes, scales + block * codec->scale_bytes,
                             out, n);
}

// Items are (block, kv head).
static void mean_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct sparse_run *u = arg;
    const struct sparse_args *a = u->a;
    const struct row_kernels *f = &u->cpu->row;
    float *rows = u->cpu->sparse[worker].rows, ones[SPARSE_BLOCK];
    const float *row[SPARSE_BLOCK];
    for (int i = 0; i < SPARSE_BLOCK; i++) {
        ones[i] = 1;
        row[i] = rows + i * a->d;
    }
    for (int64_t item = begin; item < end; item++) {
        int64_t block = u->first_block + item / a->n_kv;
        int head = (int)(item % a->n_kv);
        float *mean = a->means + (block * a->n_kv + head) * a->d;
        for (int i = 0; i < SPARSE_BLOCK; i++)
            cpu_sparse_load(u->cpu, &a->k, block * SPARSE_BLOCK + i, head, 0, a->d,
                            rows + i * a->d);
        memset(mean, 0, (size_t)a->d * sizeof *mean);
        f->weigh(mean, 1, ones, row, SPARSE_BLOCK, a->d);
        f->scale_mul(mean, mean, NULL, 1.0f / SPARSE_BLOCK, a->d);
    }
}

void cpu_sparse_means(struct exec *x, const struct sparse_args *a) {
    struct sparse_run u = {.cpu = cpu_of(x), .a = a, .first_block = a->first / SPARSE_BLOCK};
    int64_t whole = (a->first + a->n) / SPARSE_BLOCK - u.first_block;
    cpu_run(cpu_of(x), whole * a->n_kv, SPARSE_BLOCK * a->d / 8, mean_items, &u);
}

// The rows of one query block and head.
struct query_block {
    const struct sparse_run *run;
    struct sparse_scratch *s;
    int64_t m;         // the block
    int64_t row, rows; // of the call
    int head, kv;
    float *mass; // [blocks]: p_b e^(M_b - most) so far
    float most;  // G so far
};

static const float *query(const struct query_block *q, int64_t row) {
    const struct sparse_args *a = q->run->a;
    return a->q + ((q->row + row) * a->n_heads + q->head) * a->d;
}

static const float *mean(const struct query_block *q, int64_t block) {
    const struct sparse_args *a = q->run->a;
    return a->means + (block * a->n_kv + q->kv) * a->d;
}

// Masses of blocks [from, from + n) under their own maximum each (s->top) join those before.
static void join(struct query_block *q, int64_t from, int n) {
    const struct row_kernels *f = &q->run->cpu->row;
    float *p = q->mass + from, m = f->max(q->s->top, n);
    if (m > q->most) {
        if (from)
            f->scale_mul(q->mass, q->mass, NULL, row_exp(q->most - m), from);
        q->most = m;
    }
    for (int i = 0; i < n; i++)
        p[i] *= row_exp(q->s->top[i] - q->most);
}

// Blocks [from, from + n), all of them before the query block, for all rows.
static void score_blocks(struct query_block *q, int64_t from, int n) {
    const struct sparse_args *a = q->run->a;
    const struct row_kernels *f = &q->run->cpu->row;
    struct sparse_scratch *s = q->s;
    const float *k[SPARSE_SELECT], *score[GROUP_ROWS];
    for (int i = 0; i < n; i++) {
        k[i] = mean(q, from + i);
        q->mass[from + i] = 0;
        s->top[i] = -INFINITY;
    }
    for (int64_t row = 0; row < q->rows; row += GROUP_ROWS) {
        int rows = (int)min_i64(q->rows - row, GROUP_ROWS);
        struct delta_dots job = {.k = k, .n_x = rows + rows % 2, .n = n, .dim = a->d};
        for (int i = 0; i < job.n_x; i++) {
            job.x[i] = query(q, row + min_i32(i, rows - 1));
            job.out[i] = s->select[i];
        }
        for (int i = 0; i < rows; i++)
            score[i] = s->select[i];
        f->delta.dots(&job);
        f->mass_rows(&(struct mass_rows){.most = s->top,
                                         .sum = q->mass + from,
                                         .score = score,
                                         .scale = a->scale,
                                         .rows = rows,
                                         .n = n});
    }
    join(q, from, n);
}

// The query block itself: by its last row, if that is here.
static void score_own(struct query_block *q) {
    const struct sparse_args *a = q->run->a;
    q->mass[q->m] = 0;
    if (a->first + a->n < (q->m + 1) * SPARSE_BLOCK)
        return;
    const float *k = mean(q, q->m);
    q->run->cpu->row.dots(q->s->top, query(q, q->rows - 1), &k, 1, a->d);
    q->s->top[0] *= a->scale;
    q->mass[q->m] = 1;
    join(q, q->m, 1);
}

// The kth largest of n masses, 1 <= k <= n: the largest value that k of them reach. Masses are not
// negative, so their bits are in the order of their values.
static float kth_largest(const float *mass, int64_t n, int64_t k) {
    uint32_t bits = 0;
    float value = 0;
    for (int bit = 30; bit >= 0; bit--) {
        uint32_t next = bits | 1u << bit;
        int64_t count = 0;
        float least;
        memcpy(&least, &next, 4);
        for (int64_t i = 0; i < n; i++)
            count += mass[i] >= least;
        if (count < k)
            continue;
        bits = next;
        value = least;
    }
    return value;
}

// The own block and the `kept` - 1 others of the largest mass.
static int32_t choose_many(const struct query_block *q, int64_t kept, int32_t *list) {
    int32_t n = 0;
    int64_t above = 0;
    float least = kept > 1 ? kth_largest(q->mass, q->m, kept - 1) : INFINITY;
    for (int64_t b = 0; b < q->m; b++)
        above += q->mass[b] > least;
    int64_t equal = kept - 1 - above;
    for (int64_t b = 0; b < q->m; b++)
        if (q->mass[b] > least || (q->mass[b] == least && equal-- > 0))
            list[n++] = (int32_t)b;
    list[n++] = (int32_t)q->m;
    return n;
}

static int32_t choose(const struct query_block *q, int32_t *list) {
    const struct sparse_args *a = q->run->a;
    const struct sparse_options *o = &a->opt;
    if (o->density > 0)
        return choose_many(q, sparse_kept(o->density, q->m), list);
    float least = o->alpha * q->run->cpu->row.max(q->mass, q->m + 1);
    bool full = q->m >= sparse_blocks(a->total) - o->last_full;
    int32_t n = 0;
    for (int64_t b = 0; b <= q->m; b++)
        if (full || b == q->m || b < o->sinks || q->m - b < o->window || q->mass[b] >= least)
            list[n++] = (int32_t)b;
    return n;
}

// Items are (query block, head).
static void select_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct sparse_run *u = arg;
    const struct sparse_args *a = u->a;
    const struct row_kernels *f = &u->cpu->row;
    for (int64_t item = begin; item < end; item++) {
        struct query_block q = {.run = u,
                                .s = &u->cpu->sparse[worker],
                                .m = u->first_block + item / a->n_heads,
                                .head = (int)(item % a->n_heads),
                                .mass = a->mass + item * u->blocks,
                                .most = -INFINITY};
        q.kv = q.head / (a->n_heads / a->n_kv);
        q.row = max_i64(q.m * SPARSE_BLOCK, a->first) - a->first;
        q.rows = min_i64((q.m + 1) * SPARSE_BLOCK - a->first, a->n) - q.row;
        for (int64_t b = 0; b < q.m; b += SPARSE_SELECT)
            score_blocks(&q, b, (int)min_i64(q.m - b, SPARSE_SELECT));
        score_own(&q);
        float sum = 1e-9f;
        for (int64_t b = 0; b <= q.m; b++)
            sum += q.mass[b];
        f->scale_mul(q.mass, q.mass, NULL, 1.0f / sum, q.m + 1);
        a->count[item] = choose(&q, a->list + item * u->blocks);
    }
}

void cpu_sparse_select(struct exec *x, const struct sparse_args *a) {
    struct sparse_run u = {.cpu = cpu_of(x),
                           .a = a,
                           .blocks = sparse_blocks(a->first + a->n),
                           .first_block = a->first / SPARSE_BLOCK};
    int64_t items = sparse_query_blocks(a->first, a->n) * a->n_heads;
    cpu_run(cpu_of(x), items, SPARSE_BLOCK * u.blocks * a->d / 32, select_items, &u);
}
