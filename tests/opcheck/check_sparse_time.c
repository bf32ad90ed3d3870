// SPDX-License-Identifier: Apache-2.0
// Times of block-sparse attention by stage and density, for rows at the end of a text, compared
// with those of the dense op for the same rows and pages.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

struct timed {
    struct exec *x;
    struct sparse_args a;
    struct attend_args dense;
    struct rows rows;
    int stage;
};

static void run_timed(void *arg, int turn) {
    struct timed *t = arg;
    const struct ops *o = exec_ops(t->x);
    (void)turn;
    if (t->stage == 0)
        o->sparse_means(t->x, &t->a);
    if (t->stage == 1)
        o->sparse_select(t->x, &t->a);
    if (t->stage == 2)
        o->sparse_attend(t->x, &t->a);
    if (t->stage == 3)
        o->attend(t->x, &t->dense, &t->rows);
}

// The same rows by the op for any forest, which reads the same pages.
static double time_dense(struct check *c, struct timed *t, unsigned char *pages,
                         const struct kv_layout *l) {
    int64_t n = t->a.n, len = t->a.first, pieces = (len + n) / KV_PAGE;
    unsigned char **page = malloc((size_t)pieces * sizeof *page);
    struct kv_slot *store = malloc((size_t)n * sizeof *store);
    int32_t *parent = malloc((size_t)n * sizeof *parent), *seq = calloc((size_t)n, sizeof *seq);
    int64_t *pos = malloc((size_t)n * sizeof *pos);
    if (!page || !store || !parent || !seq || !pos)
        abort();
    for (int64_t i = 0; i < pieces; i++)
        page[i] = pages + i * l->page_bytes;
    for (int64_t i = 0; i < n; i++) {
        store[i] = (struct kv_slot){page[(len + i) / KV_PAGE], (int32_t)((len + i) % KV_PAGE)};
        parent[i] = (int32_t)i - 1;
        pos[i] = len + i;
    }
    struct kv_view view = {.pages = page, .len = len};
    t->rows = (struct rows){.n = n, .token = seq, .parent = parent, .seq = seq, .pos = pos};
    t->dense = (struct attend_args){
        .shape = {t->a.n_heads, t->a.n_kv, t->a.d, t->a.d, t->a.scale, 0, NULL, ATTEND_PATH, 0},
        .q = t->a.q,
        .layout = l,
        .seqs = &view,
        .store = store,
        .out = t->a.out};
    t->stage = 3;
    double us = time_call(c, run_timed, t);
    report_time(c, "attend, the same rows", "", us,
                (double)(len + n) * (double)l->page_bytes / KV_PAGE);
    free(page);
    free(store);
    free(parent);
    free(seq);
    free(pos);
    return us;
}

enum { DENSITIES = 4 };
static const float densities[DENSITIES] = {0.05f, 0.1f, 0.25f, 1};

// Values of two bytes between 0.5 and 2 (F16: 1.75 and 2), of both signs.
static void fill_image(struct rng *rng, unsigned char *image, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 2) {
        image[i] = (unsigned char)(rng_next(rng) >> 56);
        image[i + 1] = (unsigned char)(0x3F | (rng_next(rng) >> 63) << 7);
    }
}

static void time_shape(struct check *c, int n_heads, int n_kv, int d, int64_t first, int64_t n) {
    const enum kv_codec_id codec = c->device ? KV_F16 : KV_BF16; // as scorers have it
    struct kv_layout l = kv_layout_for((struct kv_shape){1, n_kv, d, d, false, codec, codec});
    int64_t blocks = sparse_blocks(first + n), lists = sparse_query_blocks(first, n) * n_heads;
    size_t bytes = (size_t)(2 * blocks * l.page_bytes);
    unsigned char *image = malloc(bytes);
    float *q = random_floats(&c->rng, n * n_heads * d, 1), *mean;
    struct buffers r;
    struct timed t = {.x = c->exec};
    char shape[64];
    if (!image)
        abort();
    fill_image(&c->rng, image, bytes);
    buffers_open(&r, c, c->exec);
    unsigned char *pages = buffers_in(&r, image, bytes);
    mean = random_floats(&c->rng, blocks * n_kv * d, 1);
    t.a = (struct sparse_args){.n_heads = n_heads,
                               .n_kv = n_kv,
                               .d = d,
                               .scale = 1 / sqrtf((float)d),
                               .first = first,
                               .n = n,
                               .total = first + n};
    t.a.k = sparse_rows_paged(&l, &l.k, 0, NULL, pages);
    t.a.v = sparse_rows_paged(&l, &l.v, 0, NULL, pages);
    t.a.q = buffers_in(&r, q, (size_t)(n * n_heads * d) * sizeof *q);
    t.a.means = buffers_own(&r, mean, (size_t)(blocks * n_kv * d) * sizeof *mean);
    t.a.mass = buffers_own(&r, NULL, (size_t)(lists * blocks) * sizeof(float));
    t.a.list = buffers_own(&r, NULL, (size_t)(lists * blocks) * sizeof(int32_t));
    t.a.count = buffers_own(&r, NULL, (size_t)lists * sizeof(int32_t));
    t.a.out = act_new(c->exec, n, (int64_t)n_heads * d);
    snprintf(shape, sizeof shape, "%d/%d x %d, %lld rows at %lld", n_heads, n_kv, d, (long long)n,
             (long long)first);
    double key = (double)l.page_bytes / KV_PAGE;
    double us = time_call(c, run_timed, &t);
    report_time(c, "sparse_means", shape, us, (double)n * key / 2);
    double spent[DENSITIES], dense;
    for (int i = 0; i < DENSITIES; i++) {
        char name[48];
        t.a.opt.density = densities[i];
        snprintf(name, sizeof name, "sparse_select %.0f %%", 100 * (double)densities[i]);
        t.stage = 1;
        double select = time_call(c, run_timed, &t);
        report_time(c, name, shape, select, 8 * (double)(lists * blocks));
        snprintf(name, sizeof name, "sparse_attend %.0f %%", 100 * (double)densities[i]);
        t.stage = 2;
        double attend = time_call(c, run_timed, &t);
        report_time(c, name, shape, attend, (double)(first + n) * key);
        spent[i] = us + select + attend;
    }
    dense = time_dense(c, &t, pages, &l);
    for (int i = 0; i < DENSITIES; i++)
        printf("time   %-10s %-22s %-34s %10.2f times as fast as attend\n", c->level,
               "sparse, all stages", i ? "" : shape, dense / spent[i]);
    exec_ops(c->exec)->act_destroy(c->exec, t.a.out);
    buffers_close(&r);
    free(image);
    free(q);
    free(mean);
}

void check_sparse_time(struct check *c) {
    if (!check_has_sparse(c) || !strcmp(c->level, "scalar"))
        return;
    int64_t n = c->device ? 4096 : 256;
    time_shape(c, 16, 8, 128, 32768 - n, n);
    time_shape(c, 4, 2, 64, 32768 - n, n);
    if (c->device)
        time_shape(c, 16, 8, 128, 131072 - n, n);
}
