// SPDX-License-Identifier: Apache-2.0
// The choice of blocks by single rows (struct sparse_rule in attention.h). For each sequence that
// has rows of this kind, means of all whole blocks that its last one sees are made anew from stored
// keys: that is the work of one row's attention, and there is no state to keep. Then rows are
// scored with them, 32 at a time.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"

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
static void choose(const struct choose_run *u, uint32_t *chosen, const float *score, float most,
                   int64_t m, int64_t from, int n) {
    const struct sparse_rule *rule = &u->a->choice->rule;
    for (int64_t b = from; b < from + n; b++)
        if (score[b - from] - most >= u->least || b < rule->sinks || m - b < rule->window)
            chosen[b / 32] |= 1u << b % 32;
}

// One head of rows [row, row + rows): first the largest score of each, then what reaches its share.
static void choose_rows(const struct choose_run *u, struct sparse_scratch *s, int64_t row, int rows,
                        int head) {
    const struct attend_choice *c = u->a->choice;
    int64_t words = c->blocks / 32, all = u->r->pos[row + rows - 1] / SPARSE_BLOCK;
    float most[GROUP_ROWS];
    for (int i = 0; i < rows; i++)
        most[i] = -INFINITY;
    for (int64_t from = 0; from < all; from += SPARSE_SELECT) {
        int n = (int)min_i64(all - from, SPARSE_SELECT);
        score(u, s, row, rows, head, from, n);
        for (int i = 0; i < rows; i++) {
            int mine = (int)min_i64(u->r->pos[row + i] / SPARSE_BLOCK - from, n);
            float top = mine > 0 ? u->cpu->row.max(s->select[i], mine) : most[i];
            most[i] = top > most[i] ? top : most[i];
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
            choose(u, chosen, s->select[i], most[i], m, from, (int)min_i64(m - from, n));
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
