// SPDX-License-Identifier: Apache-2.0
// The last stage of block-sparse attention (ops/args/sparse.h): an item is a query block and a kv
// head, or some of its query heads. Blocks of keys go in ascending order; one that several heads
// have chosen is decoded once, keys by columns, so that scores and weighted values are the same
// small matrix product: up to 128 rows by 64 columns, in registers four rows at a time.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"

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

static const float *query(const struct item *t, int row, int head) {
    const struct sparse_args *a = t->run->a;
    return a->q + ((t->row + row) * a->n_heads + head) * a->d;
}

static float *sums(const struct item *t, int row, int head) {
    const struct sparse_args *a = t->run->a;
    return a->out->x + (t->row + row) * a->out->stride + (int64_t)head * a->d;
}

// How many keys of a block the row sees.
static int visible(const struct item *t, int64_t block, int row) {
    return block < t->m ? SPARSE_BLOCK : t->offset + row + 1;
}

// Pointers to the rows of panels, which are the same for all blocks.
static void place(struct item *t) {
    int d = t->run->a->d;
    for (int p = 0; p < SPARSE_BLOCK / SPARSE_PANEL; p++)
        for (int i = 0; i < d; i++)
            t->k[p][i] = t->s->k + ((int64_t)p * d + i) * SPARSE_PANEL;
    for (int p = 0; p * SPARSE_PANEL < d; p++)
        for (int i = 0; i < SPARSE_BLOCK; i++)
            t->v[p][i] = t->s->v + ((int64_t)p * SPARSE_BLOCK + i) * SPARSE_PANEL;
}

// The keys and values of a block that some row sees. What is behind them in the panels is of an
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

static void scores(const struct item *t, int64_t block, int head) {
    int panels = (visible(t, block, t->rows - 1) - 1) / SPARSE_PANEL + 1;
    for (int p = 0; p < panels; p++)
        for (int row = 0; row < t->rows; row += 4) {
            int rows = min_i32(4, t->rows - row);
            struct weigh4 job = {.v = t->k[p], .n = t->run->a->d, .dim = SPARSE_PANEL};
            if (visible(t, block, row + rows - 1) <= p * SPARSE_PANEL)
                continue;
            for (int i = 0; i < rows; i++) {
                job.acc[i] = t->s->score[row + i] + p * SPARSE_PANEL;
                job.p[i] = query(t, row + i, head);
                memset(job.acc[i], 0, SPARSE_PANEL * sizeof(float));
            }
            products(t, &job, rows);
        }
}

// Scores to weights under the new maximum of each row; keys that a row does not see weigh nothing.
static void renew(const struct item *t, int64_t block, int head) {
    const struct row_kernels *f = &t->run->cpu->row;
    for (int row = 0; row < t->rows; row++) {
        float *p = t->s->score[row];
        float *most = &t->s->most[head - t->head][row], *sum = &t->s->sum[head - t->head][row];
        int n = visible(t, block, row);
        f->scale_mul(p, p, NULL, t->run->a->scale, n);
        float m = f->max(p, n);
        m = m > *most ? m : *most;
        t->s->fade[row] = row_exp(*most - m);
        *sum = *sum * t->s->fade[row] + f->exp_sum(p, p, m, n);
        *most = m;
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
                job.acc[i] = sums(t, row + i, head) + c;
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
            scores(t, block, t->head + h);
            renew(t, block, t->head + h);
            weigh_values(t, block, t->head + h);
        }
    }
}

static void attend_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct attend_run *u = arg;
    const struct sparse_args *a = u->a;
    struct item t = {.run = u, .s = &u->cpu->sparse[worker]};
    int group = a->n_heads / a->n_kv;
    place(&t);
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
                t.s->most[h][row] = -INFINITY;
                t.s->sum[h][row] = 0;
                memset(sums(&t, row, t.head + h), 0, (size_t)a->d * sizeof(float));
            }
        take_blocks(&t);
        for (int h = 0; h < t.heads; h++)
            for (int row = 0; row < t.rows; row++)
                u->cpu->row.gate(sums(&t, row, t.head + h), 1.0f / t.s->sum[h][row], NULL, a->d);
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
