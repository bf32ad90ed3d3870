// SPDX-License-Identifier: Apache-2.0
// Targets of all architectures against HuggingFace transformers: one prompt of 200 tokens as one
// pass, token by token, in ragged pieces, after truncate, checkpoint, restore and fork, and by
// verified trees. Logits agree with the stored ones to 1e-4, and every way gives the same bits
// (rule E).
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "golden/rig.h"
#include "golden/variants.h"
#include "unit/test.h"

static const double TOLERANCE = 1e-4;

struct bench {
    struct rig r;
    float *first; // [n_ids][vocab] logits of the one-pass prefill
    float *rows;  // the same of the way under test
};

static int64_t count(const struct bench *b) {
    return (int64_t)b->r.g.n_ids * b->r.g.target.vocab;
}

// Worst relative error of the stored positions from `from` on.
static double worst_error(const struct bench *b, int from) {
    const struct golden *g = &b->r.g;
    int64_t v = g->target.vocab;
    double worst = 0;
    for (int i = 0; i < g->n_index; i++) {
        if (g->index[i] < from)
            continue;
        double e = golden_error(b->rows + g->index[i] * v, g->rows + i * v, v);
        if (!(e <= TOLERANCE))
            fail_msg("position %d: relative error %.2e", g->index[i], e);
        worst = e > worst ? e : worst;
    }
    return worst;
}

// Rows from `from` on match the golden file, and are the prefill's to the bit.
static void compare(const struct bench *b, int from, const char *way) {
    int64_t v = b->r.g.target.vocab;
    printf("%-24s worst relative error %.2e\n", way, worst_error(b, from));
    for (int i = from; i < b->r.g.n_ids; i++)
        if (memcmp(b->rows + i * v, b->first + i * v, (size_t)v * sizeof *b->rows) != 0)
            fail_msg("%s: position %d differs from the prefill in some bit", way, i);
}

static void clear(struct bench *b) {
    memset(b->rows, 0, (size_t)count(b) * sizeof *b->rows);
}

static void bench_init(struct bench *b, const char *name) {
    printf("%s\n", name);
    rig_init(&b->r, name);
    b->first = calloc((size_t)count(b), sizeof *b->first);
    b->rows = calloc((size_t)count(b), sizeof *b->rows);
    assert_true(b->first && b->rows);
    struct sequence *s = rig_sequence(&b->r);
    rig_prompt(&b->r, s, 0, b->r.g.n_ids, b->first);
    memcpy(b->rows, b->first, (size_t)count(b) * sizeof *b->rows);
    compare(b, 0, "prefill");
    sequence_destroy(s);
}

static void bench_fini(struct bench *b) {
    free(b->first);
    free(b->rows);
    rig_fini(&b->r);
}

static void in_pieces(struct bench *b, const int *sizes, int n, const char *way) {
    struct sequence *s = rig_sequence(&b->r);
    int at = 0;
    clear(b);
    for (int i = 0; at < b->r.g.n_ids; i++) {
        int size = i < n ? sizes[i] : sizes[n - 1];
        int to = at + size < b->r.g.n_ids ? at + size : b->r.g.n_ids;
        rig_prompt(&b->r, s, at, to, b->rows);
        at = to;
    }
    compare(b, 0, way);
    sequence_destroy(s);
}

static void after_truncate(struct bench *b, int len, int to, int want) {
    struct sequence *s = rig_sequence(&b->r);
    struct err e = {0};
    int64_t kept = -1;
    rig_shift_ids(&b->r, want, 1);
    rig_prompt(&b->r, s, 0, len, NULL);
    rig_shift_ids(&b->r, want, -1);
    assert_int_equal(sequence_truncate(s, to, &kept, &e), 0);
    assert_int_equal(kept, want);
    clear(b);
    rig_prompt(&b->r, s, want, want + 3, b->rows);
    rig_prompt(&b->r, s, want + 3, b->r.g.n_ids, b->rows);
    compare(b, want, "after truncate");
    sequence_destroy(s);
}

// resume: where a checkpoint of 75 tokens goes on.
static void after_restore(struct bench *b, int resume) {
    struct sequence *s = rig_sequence(&b->r), *copy = NULL;
    struct checkpoint *c = NULL;
    struct err e = {0};
    rig_prompt(&b->r, s, 0, 75, NULL);
    assert_int_equal(sequence_checkpoint(s, &c, &e), 0);
    assert_int_equal(checkpoint_len(c), resume);
    assert_int_equal(sequence_fork(s, &copy, &e), 0);
    rig_shift_ids(&b->r, 75, 1); // must not disturb the copy or the checkpoint
    rig_prompt(&b->r, s, 75, b->r.g.n_ids, NULL);
    rig_shift_ids(&b->r, 75, -1);
    clear(b);
    rig_prompt(&b->r, copy, 75, b->r.g.n_ids, b->rows);
    compare(b, 75, "after fork");
    assert_int_equal(sequence_restore(s, c, &e), 0);
    clear(b);
    rig_prompt(&b->r, s, resume, resume + 1, b->rows);
    rig_prompt(&b->r, s, resume + 1, b->r.g.n_ids, b->rows);
    compare(b, resume, "after restore");
    checkpoint_destroy(c);
    sequence_destroy(copy);
    sequence_destroy(s);
}

// A tree whose path of `depth` true tokens has a wrong sibling chain next to every node.
static int build_tree(struct rig *r, int at, int depth, int32_t *path) {
    int32_t node = forest_root(&r->f, 0, at, r->g.ids[at], true);
    int n = 0;
    path[n++] = node;
    while (n < depth) {
        int32_t token = r->g.ids[at + n];
        int32_t wrong = forest_add(&r->f, node, (token + 1) % r->g.target.vocab, true);
        node = forest_add(&r->f, node, token, true);
        (void)forest_add(&r->f, wrong, token, true);
        path[n++] = node;
    }
    return n;
}

static void by_trees(struct bench *b) {
    struct rig *r = &b->r;
    struct sequence *s = rig_sequence(r);
    struct err e = {0};
    int64_t v = r->g.target.vocab;
    int at = 20;
    rig_prompt(r, s, 0, at, NULL);
    clear(b);
    for (int step = 0; at < r->g.n_ids; step++) {
        int32_t path[32];
        int depth = r->g.n_ids - at < 20 ? r->g.n_ids - at : 20;
        forest_reset(&r->f);
        int n = build_tree(r, at, depth, path);
        int keep = 1 + step * 7 % n; // 1, 8, 15, 2, ...
        if (model_forward(r->m, &r->f, &s, 1, &e) != 0)
            fail_msg("%s", e.text);
        assert_int_equal(sequence_len(s), at);
        for (int i = 0; i < n; i++)
            rig_download(r, b->rows + (at + i) * v,
                         model_logits_at(r->m, model_logits_index(r->m, path[i])), 1);
        if (model_commit(r->m, &s, &(struct model_path){0, path, keep}, 1, &e) != 0)
            fail_msg("%s", e.text);
        at += keep;
        assert_int_equal(sequence_len(s), at);
    }
    compare(b, 20, "by verified trees");
    sequence_destroy(s);
}

// Files that say the same in other words give the same bits.
static void as_variant(struct bench *b, enum variant v, const char *way) {
    struct rig *r = &b->r, other = *r;
    struct err e = {0};
    char path[128];
    (void)snprintf(path, sizeof path, "%s/variant.gguf", r->files.dir);
    if (variant_write(v, r->files.gguf, path, &e) != 0)
        fail_msg("%s", e.text);
    rig_load(&other, path);
    struct sequence *s = rig_sequence(&other);
    clear(b);
    rig_prompt(&other, s, 0, r->g.n_ids, b->rows);
    compare(b, 0, way);
    sequence_destroy(s);
    rig_unload(&other);
    (void)unlink(path);
}

static void basic_ways(struct bench *b) {
    static const int ones[] = {1};
    static const int ragged[] = {1, 2, 3, 5, 64, 1000};
    in_pieces(b, ones, 1, "token by token");
    in_pieces(b, ragged, 6, "ragged pieces");
}

static void test_basic(void **state) {
    struct bench b;
    bench_init(&b, *state);
    basic_ways(&b);
    bench_fini(&b);
}

static void hybrid_ways(struct bench *b) {
    basic_ways(b);
    after_truncate(b, 120, 101, 96);
    after_truncate(b, 97, 96, 96);
    after_truncate(b, 50, 31, 0);
    after_restore(b, 64);
    by_trees(b);
}

static void test_hybrid(void **state) {
    struct bench b;
    bench_init(&b, *state);
    hybrid_ways(&b);
    bench_fini(&b);
}

static void test_all_ways(void **state) {
    struct bench b;
    bench_init(&b, *state);
    hybrid_ways(&b);
    as_variant(&b, VARIANT_MTP, "with a next-token block");
    as_variant(&b, VARIANT_OLD_KEYS, "with older keys");
    bench_fini(&b);
}

// Without recurrent layers a sequence goes back to any length.
static void test_plain(void **state) {
    struct bench b;
    bench_init(&b, *state);
    basic_ways(&b);
    after_truncate(&b, 120, 101, 101);
    after_truncate(&b, 50, 1, 1);
    after_restore(&b, 75);
    by_trees(&b);
    bench_fini(&b);
}

// Latent attention; older files have keys and values of heads in one matrix.
static void test_latent(void **state) {
    struct bench b;
    bench_init(&b, *state);
    basic_ways(&b);
    after_truncate(&b, 120, 101, 101);
    after_restore(&b, 75);
    by_trees(&b);
    as_variant(&b, VARIANT_KV_B, "with one matrix for heads");
    bench_fini(&b);
}

// The scalar level gives the bits of the fastest.
static void test_scalar(void **state) {
    static const int sevens[] = {7};
    struct bench b, scalar;
    struct err e = {0};
    bench_init(&b, *state);
    scalar = b;
    if (exec_create_cpu(&scalar.r.x, "scalar", 2, &e) != 0)
        fail_msg("%s", e.text);
    rig_load(&scalar.r, b.r.files.gguf);
    in_pieces(&scalar, sevens, 1, "scalar, pieces of seven");
    rig_unload(&scalar.r);
    exec_destroy(scalar.r.x);
    bench_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_basic, "r1_tied"),
        cmocka_unit_test_prestate(test_basic, "r2_untied"),
        cmocka_unit_test_prestate(test_basic, "r3_untied"),
        cmocka_unit_test_prestate(test_all_ways, "r3_slow"),
        cmocka_unit_test_prestate(test_basic, "r3_tied"),
        cmocka_unit_test_prestate(test_scalar, "r3_slow"),
        cmocka_unit_test_prestate(test_plain, "q3_untied"),
        cmocka_unit_test_prestate(test_plain, "q3_tied"),
        cmocka_unit_test_prestate(test_basic, "q3_yarn"),
        cmocka_unit_test_prestate(test_basic, "r1_yarn"),
        cmocka_unit_test_prestate(test_basic, "l2_linear"),
        cmocka_unit_test_prestate(test_basic, "l2_yarn"),
        cmocka_unit_test_prestate(test_scalar, "q3_untied"),
        cmocka_unit_test_prestate(test_plain, "l3_bands"),
        cmocka_unit_test_prestate(test_basic, "l2_bias"),
        cmocka_unit_test_prestate(test_plain, "q2_untied"),
        cmocka_unit_test_prestate(test_scalar, "l3_bands"),
        cmocka_unit_test_prestate(test_plain, "g4_dense"),
        cmocka_unit_test_prestate(test_plain, "g4_own"),
        cmocka_unit_test_prestate(test_scalar, "g4_own"),
        cmocka_unit_test_prestate(test_plain, "g3_small"),
        cmocka_unit_test_prestate(test_plain, "g3_large"),
        cmocka_unit_test_prestate(test_scalar, "g3_large"),
        cmocka_unit_test_prestate(test_plain, "q3moe"),
        cmocka_unit_test_prestate(test_plain, "oss"),
        cmocka_unit_test_prestate(test_basic, "r3moe"),
        cmocka_unit_test_prestate(test_hybrid, "r1moe"),
        cmocka_unit_test_prestate(test_scalar, "q3moe"),
        cmocka_unit_test_prestate(test_plain, "glm_norms"),
        cmocka_unit_test_prestate(test_basic, "glm_air"),
        cmocka_unit_test_prestate(test_plain, "g4_moe"),
        cmocka_unit_test_prestate(test_latent, "ds3"),
        cmocka_unit_test_prestate(test_latent, "ds3_wide"),
        cmocka_unit_test_prestate(test_basic, "ds3_yarn"),
        cmocka_unit_test_prestate(test_basic, "ds2"),
        cmocka_unit_test_prestate(test_basic, "ds2_groups"),
        cmocka_unit_test_prestate(test_scalar, "ds3"),
        cmocka_unit_test_prestate(test_plain, "laguna_xs"),
        cmocka_unit_test_prestate(test_plain, "laguna_m"),
        cmocka_unit_test_prestate(test_scalar, "laguna_xs"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
