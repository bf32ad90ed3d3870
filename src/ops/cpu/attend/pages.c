// SPDX-License-Identifier: Apache-2.0
// Which pages matter to a query (ops/args/pages.h): bounds of the keys of pages, and of scores with
// them. Written once for all levels, over rows that each level decodes in its own way to the same
// bits.
#include "base/num.h"
#include "ops/cpu/cpu.h"

struct bounds_run {
    const struct cpu *cpu;
    const struct key_bounds_args *a;
};

// Items are (page, kv head).
static void bound_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct bounds_run *u = arg;
    const struct kv_layout *l = u->a->layout;
    kv_decode_fn *load = u->cpu->row.kv_load[l->s.codec_k];
    float key[OPS_KEY_MAX];
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        unsigned char *page = u->a->pages[item / l->s.n_heads];
        float *min = u->a->out + item * 2 * l->s.dk, *max = min + l->s.dk;
        for (int slot = 0; slot < KV_PAGE; slot++) {
            struct kv_row row =
                kv_row_at(l, &l->k, page, u->a->layer, (int)(item % l->s.n_heads), slot);
            load(row.codes, row.scales, key, l->s.dk);
            for (int d = 0; d < l->s.dk; d++) {
                min[d] = slot && min[d] < key[d] ? min[d] : key[d];
                max[d] = slot && max[d] > key[d] ? max[d] : key[d];
            }
        }
    }
}

void cpu_key_bounds(struct exec *x, const struct key_bounds_args *a) {
    const struct bounds_run u = {cpu_of(x), a};
    cpu_run(cpu_of(x), a->n * a->layout->s.n_heads, KV_PAGE * a->layout->s.dk / 4, bound_items,
            (void *)&u);
}

static float score(const float *q, const float *min, const float *max, int dk) {
    float lane[TILE] = {0};
    for (int d = 0; d < dk; d += TILE)
        for (int i = 0; i < min_i32(TILE, dk - d); i++) {
            const float low = q[d + i] * min[d + i], high = q[d + i] * max[d + i];
            lane[i] += low > high ? low : high;
        }
    return row_fold(lane);
}

// Items are pages.
static void score_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct page_scores_args *a = arg;
    (void)worker;
    for (int64_t page = begin; page < end; page++)
        for (int h = 0; h < a->n_heads; h++) {
            const int kv = h / (a->n_heads / a->n_kv);
            const float *min = a->bounds + (page * a->n_kv + kv) * 2 * a->dk;
            a->out[h * a->stride + page] =
                a->scale * score(a->q + (int64_t)h * a->dk, min, min + a->dk, a->dk);
        }
}

void cpu_page_scores(struct exec *x, const struct page_scores_args *a) {
    cpu_run(cpu_of(x), a->n, (int64_t)a->n_heads * a->dk / 2, score_items, (void *)a);
}
