// SPDX-License-Identifier: Apache-2.0
// Recurrent state without a model: rows of random numbers are committed, and a save, a rewind or a
// copy must leave exactly the bits that the direct way leaves.
#include <stdlib.h>

#include "base/rng.h"
#include "state/recurrent.h"
#include "unit/test.h"

enum { LAYERS = 2, ROWS = 160 };

static const struct gdn_shape shape = {.n_k = 1, .n_v = 3, .dk = 32, .dv = 32, .channels = 160};

struct source {
    struct exec *x;
    struct gdn_rows rows[LAYERS];
    float *memory;
};

static void source_init(struct source *s) {
    int64_t k = 32, v = 96, each = shape.channels + k + v + 3;
    struct rng g = {1};
    assert_int_equal(exec_create_cpu(&s->x, "auto", 1, NULL), 0);
    float *p = s->memory = calloc((size_t)(LAYERS * ROWS * each), sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < LAYERS * ROWS * each; i++)
        p[i] = rng_unit(rng_next(&g)) - 0.5f;
    for (int i = 0; i < LAYERS; i++, p += ROWS * each) {
        s->rows[i] = (struct gdn_rows){.u = p,
                                       .k = p + ROWS * shape.channels,
                                       .d = p + ROWS * (shape.channels + k),
                                       .g = p + ROWS * (shape.channels + k + v)};
        for (int64_t j = 0; j < ROWS * 3; j++)
            s->rows[i].g[j] = -0.1f * rng_unit(rng_next(&g));
    }
}

static void source_fini(struct source *s) {
    free(s->memory);
    exec_destroy(s->x);
}

// Commits rows from..to-1, each at the position of its number.
static void commit(struct source *s, struct recurrent *r, int64_t from, int64_t to) {
    int32_t path[ROWS];
    for (int64_t i = from; i < to; i++)
        path[i - from] = (int32_t)i;
    struct gdn_commit_seq seq = {r->layers, from, path, to - from};
    struct gdn_commit_args a = {
        .shape = shape, .n_layers = LAYERS, .seqs = &seq, .n_seqs = 1, .rows = s->rows};
    exec_ops(s->x)->gdn_commit(s->x, &a);
}

static void same(const float *a, const float *b, int64_t n) {
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

// Everything that counts at length len: both bases, the current log rows, the conv inputs.
static void same_state(const struct recurrent *a, const struct recurrent *b, int64_t len) {
    int64_t base = len / 32 > 0 ? (len / 32 - 1) * 32 : 0;
    for (int i = 0; i < LAYERS; i++) {
        const struct gdn_state *p = &a->layers[i], *q = &b->layers[i];
        same(p->s_lo, q->s_lo, 3 * 32 * 32);
        same(p->s_hi, q->s_hi, 3 * 32 * 32);
        same(p->conv, q->conv, 3 * shape.channels);
        same(p->conv_hi, q->conv_hi, 3 * shape.channels);
        for (int64_t t = base; t < len; t++) {
            same(p->log_k + t % 64 * 32, q->log_k + t % 64 * 32, 32);
            same(p->log_d + t % 64 * 96, q->log_d + t % 64 * 96, 96);
            same(p->log_g + t % 64 * 3, q->log_g + t % 64 * 3, 3);
        }
    }
}

static void make(struct source *s, struct recurrent *r) {
    assert_int_equal(recurrent_init(r, s->x, &shape, LAYERS, NULL), 0);
}

static void test_save_restore(void **state) {
    (void)state;
    static const int64_t lengths[] = {32, 33, 63, 64, 70, 96, 127, 128, 159};
    struct source s;
    source_init(&s);
    for (int i = 0; i < 9; i++) {
        int64_t len = lengths[i], h = len / 32 * 32;
        struct recurrent direct, live, other;
        struct recurrent_save save;
        make(&s, &direct);
        make(&s, &live);
        make(&s, &other);
        commit(&s, &direct, 0, h);
        commit(&s, &live, 0, len);
        commit(&s, &other, 0, 45); // whatever was there before goes
        assert_int_equal(recurrent_save_init(&save, &live, len, NULL), 0);
        assert_int_equal(recurrent_restore(&other, &save, h, NULL), 0);
        same_state(&direct, &other, h);
        recurrent_rewind(&live);
        same_state(&direct, &live, h);
        commit(&s, &direct, h, 160);
        commit(&s, &other, h, 160);
        commit(&s, &live, h, 160);
        same_state(&direct, &other, 160);
        same_state(&direct, &live, 160);
        recurrent_save_fini(&save);
        recurrent_fini(&direct);
        recurrent_fini(&live);
        recurrent_fini(&other);
    }
    source_fini(&s);
}

static void test_copy_reset(void **state) {
    (void)state;
    struct source s;
    struct recurrent a, b, zero;
    source_init(&s);
    make(&s, &a);
    make(&s, &b);
    make(&s, &zero);
    commit(&s, &a, 0, 40); // exchanges the bases of a once, of b never
    recurrent_copy(&b, &a);
    same_state(&a, &b, 40);
    commit(&s, &a, 40, 100);
    commit(&s, &b, 40, 100);
    same_state(&a, &b, 100);
    recurrent_reset(&a);
    same_state(&a, &zero, 0);
    commit(&s, &a, 0, 100);
    same_state(&a, &b, 100);
    recurrent_fini(&a);
    recurrent_fini(&b);
    recurrent_fini(&zero);
    source_fini(&s);
}

static void test_sizes(void **state) {
    (void)state;
    // Qwen3.5-27B: two bases, 64 log rows and two sets of conv inputs in each of 48 layers.
    struct gdn_shape big = {.n_k = 16, .n_v = 48, .dk = 128, .dv = 128, .channels = 10240};
    int64_t s = 48 * 128 * 128, row = 16 * 128 + 48 * 128 + 48, conv = 3 * 10240;
    assert_int_equal(recurrent_bytes(&big, 48), 48 * 4 * (2 * s + 64 * row + 2 * conv));
    assert_int_equal(recurrent_save_bytes(&big, 48), 48 * 4 * (s + 32 * row + conv));
    struct recurrent none;
    assert_int_equal(recurrent_init(&none, NULL, &big, 0, NULL), 0);
    recurrent_reset(&none);
    recurrent_rewind(&none);
    recurrent_fini(&none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_restore),
        cmocka_unit_test(test_copy_reset),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
