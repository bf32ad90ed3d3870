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
    float *mass; // [blocks]: p_b e^(M_b - max) so far
    float max;   // G so far
};

static const float *query(const struct query_block *q, int64_t row) {
    const struct sparse_args *a = q->run->a;
    return a->q + ((q->row + row) * a->n_heads + q->head) * a->d;
}

static const float *mean(const struct query_block *q, int64_t block) {
    const struct sparse_args *a = q->run->a;
    return a->means + (block * a->n_kv + q->kv) * a->d;
}

// Masses of blocks [from, from + n) under their own maximum each (s->top) join those
// before.
static void gather_queries(struct query_block *q, int64_t from, int n) {
    const struct row_kernels *f = &q->run->cpu->row;
    float *p = q->mass + from, m = f->max(q->s->top, n);
    if (m > q->max) {
        if (from)
            f->scale_mul(q->mass, q->mass, NULL, row_exp(q->max - m), from);
        q->max = m;
    }
    for (int i = 0; i < n; i++)
        p[i] *= row_exp(q->s->top[i] - q->max);
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
        f->mass_rows(&(struct mass_rows){.max = s->top,
                                         .sum = q->mass + from,
                                         .score = score,
                                         .scale = a->scale,
                                         .rows = rows,
                                         .n = n});
    }
    gather_queries(q, from, n);
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
    gather_queries(q, q->m, 1);
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
static int32_t choose_max_blocks(const struct query_block *q, int64_t kept, int32_t *list) {
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

static int32_t choose_blocks(const struct query_block *q, int32_t *list) {
    const struct sparse_args *a = q->run->a;
    const struct sparse_options *o = &a->opt;
    if (o->density > 0)
        return choose_max_blocks(q, sparse_kept(o->density, q->m), list);
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
                                .max = -INFINITY};
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
        a->count[item] = choose_blocks(&q, a->list + item * u->blocks);
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

// The last stage of block-sparse attention (ops/args/sparse.h): an item is a query block and a kv
// head, or some of its query heads. Blocks of keys go in ascending order; one that several heads
// have chosen is decoded once, keys by columns, so that scores and weighted values are the same
// small matrix product: up to 128 rows by 64 columns, in registers four rows at a time.

struct attend_run {
    const struct cpu *cpu;
    const struct sparse_args *a;
    int64_t blocks, first_block;
    int parts; // items that share the query heads of a kv head
};

struct item {
    const struct attend_run *run;
    struct sparse_scratch *s;
    int64_t m, row;   // the query block, its first row of the call
    int rows, offset; // rows, and place of the first within the block
    int kv, head, heads;
    const float *k[SPARSE_BLOCK / SPARSE_PANEL][OPS_KEY_MAX]; // rows of the scratch's panels
    const float *v[OPS_HEAD_MAX / SPARSE_PANEL][SPARSE_BLOCK];
};

static const float *item_query(const struct item *t, int row, int head) {
    const struct sparse_args *a = t->run->a;
    return a->q + ((t->row + row) * a->n_heads + head) * a->d;
}

static float *item_sums(const struct item *t, int row, int head) {
    const struct sparse_args *a = t->run->a;
    return a->out->x + (t->row + row) * a->out->stride + (int64_t)head * a->d;
}

// How many keys of a block the row sees.
static int visible(const struct item *t, int64_t block, int row) {
    return block < t->m ? SPARSE_BLOCK : t->offset + row + 1;
}

// Pointers to the rows of panels, which are the same for all blocks.
static void place_item(struct item *t) {
    int d = t->run->a->d;
    for (int p = 0; p < SPARSE_BLOCK / SPARSE_PANEL; p++)
        for (int i = 0; i < d; i++)
            t->k[p][i] = t->s->k + ((int64_t)p * d + i) * SPARSE_PANEL;
    for (int p = 0; p * SPARSE_PANEL < d; p++)
        for (int i = 0; i < SPARSE_BLOCK; i++)
            t->v[p][i] = t->s->v + ((int64_t)p * SPARSE_BLOCK + i) * SPARSE_PANEL;
}

// The keys and values of a block that some row sees. What is after them in the panels is of an
// earlier block, or zero, and its products are not used.
static void load_block(const struct item *t, int64_t block) {
    const struct attend_run *u = t->run;
    const struct sparse_args *a = u->a;
    int keys = visible(t, block, t->rows - 1);
    int64_t pos = block * SPARSE_BLOCK;
    for (int i = 0; i < keys; i++) {
        cpu_sparse_load(u->cpu, &a->k, pos + i, t->kv, 0, a->d, t->s->rows + i * a->d);
        for (int c = 0; c < a->d; c += SPARSE_PANEL)
            cpu_sparse_load(u->cpu, &a->v, pos + i, t->kv, c, min_i32(SPARSE_PANEL, a->d - c),
                            t->s->v + (c / SPARSE_PANEL * SPARSE_BLOCK + i) * SPARSE_PANEL);
    }
    for (int i = 0; i < keys; i += SPARSE_PANEL)
        u->cpu->row.columns(&(struct columns){.out = t->s->k + i * a->d,
                                              .in = t->s->rows + i * a->d,
                                              .to = SPARSE_PANEL,
                                              .from = a->d,
                                              .rows = min_i32(SPARSE_PANEL, keys - i),
                                              .cols = a->d});
}

// acc = acc * scale + p v for rows [row, row + 4) of those that there are.
static void products(const struct item *t, const struct weigh4 *w, int rows) {
    const struct row_kernels *f = &t->run->cpu->row;
    if (rows == 4) {
        f->weigh4(w);
        return;
    }
    for (int i = 0; i < rows; i++)
        f->weigh(w->acc[i], w->scale[i], w->p[i], w->v, w->n, w->dim);
}

static void score_block_keys(const struct item *t, int64_t block, int head) {
    int panels = (visible(t, block, t->rows - 1) - 1) / SPARSE_PANEL + 1;
    for (int p = 0; p < panels; p++)
        for (int row = 0; row < t->rows; row += 4) {
            int rows = min_i32(4, t->rows - row);
            struct weigh4 job = {.v = t->k[p], .n = t->run->a->d, .dim = SPARSE_PANEL};
            if (visible(t, block, row + rows - 1) <= p * SPARSE_PANEL)
                continue;
            for (int i = 0; i < rows; i++) {
                job.acc[i] = t->s->score[row + i] + p * SPARSE_PANEL;
                job.p[i] = item_query(t, row + i, head);
                memset(job.acc[i], 0, SPARSE_PANEL * sizeof(float));
            }
            products(t, &job, rows);
        }
}

// Scores to weights under the new maximum of each row; keys that a row does not see weigh nothing.
static void renew_maxima(const struct item *t, int64_t block, int head) {
    const struct row_kernels *f = &t->run->cpu->row;
    for (int row = 0; row < t->rows; row++) {
        float *p = t->s->score[row];
        float *maximum = &t->s->max[head - t->head][row], *sum = &t->s->sum[head - t->head][row];
        int n = visible(t, block, row);
        f->scale_mul(p, p, NULL, t->run->a->scale, n);
        float m = f->max(p, n);
        m = m > *maximum ? m : *maximum;
        t->s->fade[row] = row_exp(*maximum - m);
        *sum = *sum * t->s->fade[row] + f->exp_sum(p, p, m, n);
        *maximum = m;
        memset(p + n, 0, (size_t)(SPARSE_BLOCK - n) * sizeof *p);
    }
}

static void weigh_values(const struct item *t, int64_t block, int head) {
    int d = t->run->a->d;
    for (int c = 0; c < d; c += SPARSE_PANEL)
        for (int row = 0; row < t->rows; row += 4) {
            int rows = min_i32(4, t->rows - row);
            struct weigh4 job = {.v = t->v[c / SPARSE_PANEL],
                                 .n = visible(t, block, row + rows - 1),
                                 .dim = min_i32(SPARSE_PANEL, d - c)};
            for (int i = 0; i < rows; i++) {
                job.acc[i] = item_sums(t, row + i, head) + c;
                job.scale[i] = t->s->fade[row + i];
                job.p[i] = t->s->score[row + i];
            }
            products(t, &job, rows);
        }
}

static const int32_t *list_of(const struct item *t, int head, int32_t *count) {
    const struct attend_run *u = t->run;
    int64_t at = (t->m - u->first_block) * u->a->n_heads + head;
    *count = u->a->count[at];
    return u->a->list + at * u->blocks;
}

// All blocks that one of the heads has chosen, in ascending order.
static void take_blocks(const struct item *t) {
    int32_t next[OPS_GROUP_MAX] = {0}, count;
    for (;;) {
        int64_t block = INT64_MAX;
        for (int h = 0; h < t->heads; h++) {
            const int32_t *list = list_of(t, t->head + h, &count);
            if (next[h] < count)
                block = min_i64(block, list[next[h]]);
        }
        if (block == INT64_MAX)
            return;
        load_block(t, block);
        for (int h = 0; h < t->heads; h++) {
            const int32_t *list = list_of(t, t->head + h, &count);
            if (next[h] == count || list[next[h]] != block)
                continue;
            next[h]++;
            score_block_keys(t, block, t->head + h);
            renew_maxima(t, block, t->head + h);
            weigh_values(t, block, t->head + h);
        }
    }
}

static void attend_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct attend_run *u = arg;
    const struct sparse_args *a = u->a;
    struct item t = {.run = u, .s = &u->cpu->sparse[worker]};
    int group = a->n_heads / a->n_kv;
    place_item(&t);
    for (int64_t item = begin; item < end; item++) {
        int64_t per = (int64_t)a->n_kv * u->parts, part = item % u->parts;
        t.m = u->first_block + item / per;
        t.kv = (int)(item % per / u->parts);
        t.head = t.kv * group + (int)(part * group / u->parts);
        t.heads = t.kv * group + (int)((part + 1) * group / u->parts) - t.head;
        int64_t pos = max_i64(t.m * SPARSE_BLOCK, a->first);
        t.row = pos - a->first;
        t.offset = (int)(pos % SPARSE_BLOCK);
        t.rows = (int)(min_i64((t.m + 1) * SPARSE_BLOCK, a->first + a->n) - pos);
        for (int h = 0; h < t.heads; h++)
            for (int row = 0; row < t.rows; row++) {
                t.s->max[h][row] = -INFINITY;
                t.s->sum[h][row] = 0;
                memset(item_sums(&t, row, t.head + h), 0, (size_t)a->d * sizeof(float));
            }
        take_blocks(&t);
        for (int h = 0; h < t.heads; h++)
            for (int row = 0; row < t.rows; row++)
                u->cpu->row.gate(item_sums(&t, row, t.head + h), 1.0f / t.s->sum[h][row], NULL,
                                 a->d);
    }
}

// Items are four rows each.
static void quantise_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct attend_run *u = arg;
    act_finish_rows(u->cpu, u->a->out, 4 * begin, min_i64(4 * end, u->a->n));
}

void cpu_sparse_attend(struct exec *x, const struct sparse_args *a) {
    struct cpu *c = cpu_of(x);
    struct attend_run u = {.cpu = c,
                           .a = a,
                           .blocks = sparse_blocks(a->first + a->n),
                           .first_block = a->first / SPARSE_BLOCK};
    int64_t tiles = sparse_query_blocks(a->first, a->n) * a->n_kv;
    if (tiles == 0)
        return;
    act_shape(a->out, a->n, (int64_t)a->n_heads * a->d);
    int64_t group = a->n_heads / a->n_kv, rows = min_i64(a->n, SPARSE_BLOCK);
    u.parts = (int)min_i64(group, ceil_div(c->base.threads, tiles));
    cpu_run(c, tiles * u.parts, rows * SPARSE_BLOCK * a->d / 8, attend_items, &u);
    cpu_run(c, ceil_div(a->n, 4), a->out->stride, quantise_rows, &u);
}
