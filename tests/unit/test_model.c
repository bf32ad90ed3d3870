// SPDX-License-Identifier: Apache-2.0
// The forward function: one arithmetic however rows are grouped (rule E1), trees against their
// paths run one by one, commit, several sequences in one pass, layer kinds, and refusals.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { VOCAB = 300, LONG = 210 };

static float *rows_new(int64_t n) {
    float *p = calloc((size_t)(n * VOCAB), sizeof *p);
    assert_non_null(p);
    return p;
}

static void same_bits(const float *a, const float *b, int64_t rows) {
    assert_memory_equal(a, b, (size_t)(rows * VOCAB) * sizeof *a);
}

static int32_t best(const float *row) {
    int32_t at = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        at = row[i] > row[at] ? i : at;
    return at;
}

static void check_chunks(const struct tiny_shape *shape, const struct model_options *o) {
    static const int64_t chunks[] = {1, 7, 64, 128};
    struct tiny_rig r;
    int32_t tokens[LONG];
    float *want = rows_new(LONG), *got = rows_new(LONG);
    tiny_rig_open(&r, shape, NULL, o, "auto", 2);
    tiny_rig_tokens(&r, 5, tokens, LONG);
    for (int c = 0; c < 4; c++) {
        struct sequence *s = tiny_rig_sequence(&r);
        tiny_rig_prompt(&r, s, tokens, LONG, chunks[c], c ? got : want, NULL);
        assert_int_equal(sequence_len(s), LONG);
        assert_memory_equal(sequence_tokens(s), tokens, sizeof tokens);
        if (c)
            same_bits(want, got, LONG);
        sequence_destroy(s);
    }
    // 512 rows in one pass are over the rows that may be wanted: the last one must agree.
    struct sequence *s = tiny_rig_sequence(&r);
    tiny_rig_prompt(&r, s, tokens, LONG, 512, NULL, got);
    same_bits(want + (LONG - 1) * VOCAB, got, 1);
    sequence_destroy(s);
    int distinct = 0;
    for (int i = 1; i < LONG; i++)
        distinct += best(want + i * VOCAB) != best(want + (i - 1) * VOCAB);
    assert_true(distinct > LONG / 2);
    free(want);
    free(got);
    tiny_rig_close(&r);
}

static void test_chunks(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    check_chunks(&shape, NULL);
}

static void test_chunks_quantised(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct model_options o = model_options_default();
    o.codec_k = KV_Q8_0;
    shape.type = TYPE_Q8_0;
    shape.tied = true;
    shape.key_heads = 1;
    shape.value_heads = 3;
    check_chunks(&shape, &o);
}

// Every row of a tree equals the last row of its path run one by one from the same state.
static void check_tree(struct tiny_rig *r, struct sequence *s, uint64_t seed, int n) {
    struct sequence *fork;
    float *tree = rows_new(n), *row = rows_new(1);
    tiny_rig_tree(r, s, seed, n, 32);
    int32_t parent[128], token[128], path[64];
    memcpy(parent, r->f.parent, (size_t)n * sizeof *parent);
    memcpy(token, r->f.token, (size_t)n * sizeof *token);
    assert_int_equal(model_forward(r->m, &r->f, &s, 1, &r->e), 0);
    assert_int_equal(model_wanted(r->m), n);
    tiny_rig_logits(r, 0, n, tree);
    for (int i = 0; i < n; i += 3) {
        int len = 0;
        for (int j = i; j >= 0; j = parent[j])
            path[63 - len++] = token[j];
        assert_int_equal(sequence_fork(s, &fork, &r->e), 0);
        tiny_rig_prompt(r, fork, path + 64 - len, len, 1, NULL, row);
        same_bits(tree + i * VOCAB, row, 1);
        sequence_destroy(fork);
    }
    free(tree);
    free(row);
}

static void test_trees(void **state) {
    (void)state;
    static const int lengths[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 130};
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    int32_t tokens[LONG];
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 2);
    tiny_rig_tokens(&r, 6, tokens, LONG);
    for (int i = 0; i < 14; i++) {
        struct sequence *s = tiny_rig_sequence(&r);
        tiny_rig_prompt(&r, s, tokens, lengths[i], 50, NULL, NULL);
        check_tree(&r, s, (uint64_t)i, 8 + 9 * i);
        sequence_destroy(s);
    }
    tiny_rig_close(&r);
}

// A random walk from the root: rows of one path.
static int64_t random_path(const struct forest *f, struct rng *g, int32_t *path) {
    int64_t n = 1;
    path[0] = 0;
    for (int32_t i = 1; i < f->n; i++) {
        if (f->parent[i] == path[n - 1] && rng_below(g, 4))
            path[n++] = i;
    }
    return n;
}

// After many commits of random paths the state must be that of the plain run of the same tokens.
static void test_commit(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct rng g = {3};
    float *want = rows_new(1), *got = rows_new(1);
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    struct sequence *s = tiny_rig_sequence(&r), *plain = tiny_rig_sequence(&r);
    for (int step = 0; sequence_len(s) < 400; step++) {
        int32_t path[64], next = (int32_t)rng_below(&g, VOCAB);
        int64_t before = sequence_len(s);
        tiny_rig_tree(&r, s, (uint64_t)step, 1 + (int)rng_below(&g, 60), 32);
        assert_int_equal(model_forward(r.m, &r.f, &s, 1, &r.e), 0);
        int64_t n = random_path(&r.f, &g, path);
        struct model_path p = {0, path, n};
        assert_int_equal(model_commit(r.m, &s, &p, 1, &r.e), 0);
        assert_int_equal(sequence_len(s), before + n);
        assert_int_equal(model_commit(r.m, &s, &p, 1, &r.e), ERR_STATE); // only once
        tiny_rig_prompt(&r, plain, sequence_tokens(s) + before, n, 512, NULL, NULL);
        tiny_rig_prompt(&r, plain, &next, 1, 1, NULL, want);
        tiny_rig_prompt(&r, s, &next, 1, 1, NULL, got);
        same_bits(want, got, 1);
    }
    sequence_destroy(s);
    sequence_destroy(plain);
    free(want);
    free(got);
    tiny_rig_close(&r);
}

// Three sequences of different lengths in one verification and one prompt pass.
static void test_many(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct sequence *s[3];
    int32_t tokens[LONG];
    float *alone = rows_new(64), *many = rows_new(64);
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 2);
    tiny_rig_tokens(&r, 9, tokens, LONG);
    for (int i = 0; i < 3; i++) {
        s[i] = tiny_rig_sequence(&r);
        tiny_rig_prompt(&r, s[i], tokens + i, 30 + 35 * i, 64, NULL, NULL);
    }
    for (int prompt = 0; prompt < 2; prompt++) {
        forest_reset(&r.f);
        for (int i = 0; i < 3; i++)
            forest_chain(&r.f, i, sequence_len(s[i]), tokens + 7 * i, 10 + i, false);
        memset(r.f.logits_requested, 1, (size_t)r.f.n);
        memset(r.f.prompt, prompt, (size_t)r.f.n);
        assert_int_equal(model_forward(r.m, &r.f, s, 3, &r.e), 0);
        tiny_rig_logits(&r, 0, r.f.n, prompt ? many : alone);
    }
    same_bits(alone, many, 33); // verification and prompt of the same rows
    for (int i = 0, at = 0; i < 3; at += 10 + i, i++) {
        int64_t kept;
        assert_int_equal(sequence_truncate(s[i], 0, &kept, &r.e), 0);
        tiny_rig_prompt(&r, s[i], tokens + i, 30 + 35 * i, 64, NULL, NULL);
        tiny_rig_prompt(&r, s[i], tokens + 7 * i, 10 + i, 3, alone, NULL);
        same_bits(alone, many + at * VOCAB, 10 + i);
        sequence_destroy(s[i]);
    }
    free(alone);
    free(many);
    tiny_rig_close(&r);
}

static void last_logits(const struct tiny_shape *shape, const char *level, int threads,
                        float *row) {
    struct tiny_rig r;
    int32_t tokens[70];
    tiny_rig_open(&r, shape, NULL, NULL, level, threads);
    tiny_rig_tokens(&r, 11, tokens, 70);
    struct sequence *s = tiny_rig_sequence(&r);
    tiny_rig_prompt(&r, s, tokens, 70, 64, NULL, row);
    sequence_destroy(s);
    tiny_rig_close(&r);
}

// Prediction blocks after the backbone and fused projections change nothing; nor do threads.
static void test_variants(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default(), other = shape;
    float *a = rows_new(1), *b = rows_new(1);
    last_logits(&shape, "auto", 1, a);
    last_logits(&shape, "auto", 3, b);
    same_bits(a, b, 1);
    for (int i = 0; i < 4; i++) {
        other.nextn = 1 + i / 3;
        other.nextn_own = i == 1;
        other.nextn_bare = i == 2;
        last_logits(&other, "auto", 1, b);
        same_bits(a, b, 1);
    }
    other = shape;
    other.fused = true;
    last_logits(&other, "auto", 1, b);
    same_bits(a, b, 1);
    other = shape;
    other.seed = 99;
    last_logits(&other, "auto", 1, b);
    assert_memory_not_equal(a, b, VOCAB * sizeof *a);
    free(a);
    free(b);
}

// A prediction block in a file of its own is the block that the target's file has, of full
// attention where the next layer would be a recurrent one, with what the shape says.
static void test_sidecar(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    shape.nextn = 1;
    for (shape.seed = 3; shape.seed < 5; shape.seed++) {
        struct gguf *side, *whole;
        char path[64];
        size_t ours = 0;
        snprintf(path, sizeof path, "/tmp/coppice-sidecar-%d.gguf", (int)getpid());
        tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
        assert_int_equal(tiny_sidecar_write(&shape, path, &r.e), 0);
        assert_int_equal(gguf_open(&side, path, &r.e), 0);
        assert_int_equal(gguf_open(&whole, r.target_path, &r.e), 0);
        for (size_t i = 0; i < gguf_tensor_count(side); i++) {
            const struct tensor *t = gguf_tensor_at(side, i);
            const struct tensor *u = gguf_tensor(whole, t->name);
            assert_non_null(u);
            assert_int_equal(t->bytes, u->bytes);
            assert_memory_equal(t->data, u->data, (size_t)t->bytes);
            ours += strncmp(t->name, "blk.4.", 6) == 0;
        }
        // Two norms, six of attention, three matrices, eh_proj, enorm, hnorm and perhaps the last.
        assert_int_equal(ours, shape.seed == 4 ? 14 : 15);
        assert_int_equal(gguf_tensor_count(side), ours + (shape.seed == 4 ? 0 : 3));
        assert_non_null(gguf_tensor(side, "blk.4.attn_q_norm.weight"));
        assert_true(!gguf_tensor(side, "blk.4.nextn.shared_head_norm.weight") == (shape.seed == 4));
        gguf_close(side);
        gguf_close(whole);
        unlink(path);
        tiny_rig_close(&r);
    }
}

static void expect(struct tiny_rig *r, int code, int want, const char *word) {
    assert_int_equal(code, want);
    if (!strstr(r->e.text, word))
        fail_msg("\"%s\" does not mention %s", r->e.text, word);
}

static int commit(struct tiny_rig *r, struct sequence *s, const int32_t *rows, int64_t n) {
    return model_commit(r->m, &s, &(struct model_path){0, rows, n}, 1, &r->e);
}

// A tree that is one branch.
static void branch(struct tiny_rig *r, int64_t pos, const int32_t *tokens, int n) {
    forest_reset(&r->f);
    int32_t row = forest_root(&r->f, 0, pos, tokens[0], true);
    for (int i = 1; i < n; i++)
        row = forest_add(&r->f, row, tokens[i], true);
}

// Misuse is refused with the sequence unchanged.
static void test_refusals(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    shape.context = 100;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    struct sequence *s = tiny_rig_sequence(&r);
    int32_t tokens[128] = {0}, path[40];
    tiny_rig_prompt(&r, s, tokens, 90, 64, NULL, NULL);
    forest_reset(&r.f);
    forest_chain(&r.f, 0, 90, tokens, 11, true);
    expect(&r, model_forward(r.m, &r.f, &s, 1, &r.e), ERR_LIMIT, "100");
    forest_reset(&r.f);
    forest_root(&r.f, 0, 89, 0, true);
    expect(&r, model_forward(r.m, &r.f, &s, 1, &r.e), ERR_USAGE, "position");
    forest_reset(&r.f);
    forest_root(&r.f, 0, 90, VOCAB, true);
    expect(&r, model_forward(r.m, &r.f, &s, 1, &r.e), ERR_USAGE, "vocabulary");
    branch(&r, 90, tokens, 34);
    expect(&r, model_forward(r.m, &r.f, &s, 1, &r.e), ERR_USAGE, "deep");
    assert_int_equal(commit(&r, s, path, 1), ERR_STATE);
    branch(&r, 90, tokens, 33);
    assert_int_equal(model_forward(r.m, &r.f, &s, 1, &r.e), 0);
    for (int i = 0; i < 40; i++)
        path[i] = i;
    expect(&r, commit(&r, s, path, 11), ERR_LIMIT, "context");
    expect(&r, commit(&r, s, path + 1, 2), ERR_USAGE, "path");
    assert_int_equal(sequence_len(s), 90);
    assert_int_equal(commit(&r, s, path, 10), 0);
    assert_int_equal(sequence_len(s), 100);
    // Cut and put back to the same length, it is not the sequence that was verified.
    struct checkpoint *c;
    int64_t kept;
    assert_int_equal(sequence_truncate(s, 96, &kept, &r.e), 0);
    assert_int_equal(sequence_checkpoint(s, &c, &r.e), 0);
    forest_reset(&r.f);
    forest_root(&r.f, 0, 96, 1, true);
    assert_int_equal(model_forward(r.m, &r.f, &s, 1, &r.e), 0);
    assert_int_equal(sequence_restore(s, c, &r.e), 0);
    assert_int_equal(commit(&r, s, path, 1), ERR_STATE);
    checkpoint_destroy(c);
    forest_reset(&r.f);
    for (int i = 0; i < 129; i++)
        forest_root(&r.f, 0, 96, 1, false);
    expect(&r, model_forward(r.m, &r.f, &s, 1, &r.e), ERR_LIMIT, "128");
    assert_int_equal(sequence_truncate(s, 0, &kept, &r.e), 0);
    struct sequence *twice[2] = {s, s};
    expect(&r, model_forward(r.m, &r.f, twice, 2, &r.e), ERR_USAGE, "twice");
    sequence_destroy(s);
    tiny_rig_close(&r);
}

// The plan predicts what a load counts, and the limit is kept.
static void test_plan(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct model_plan p;
    struct model_params q;
    struct model *m = NULL;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    struct model_options o = model_options_default();
    assert_int_equal(model_plan(&p, &q, NULL, r.g, &o, &r.e), 0);
    assert_int_equal(q.n_layers, 4);
    assert_int_equal(q.n_full, 2);
    assert_int_equal(kv_needs_per_1k(&p.kv), 1024 * 2 * 2 * 64 * 2); // layers, K and V, dims, bytes
    assert_true(p.weights > 4 * 64 * 300 * 2 && p.scratch > 0 && p.checkpoint < p.recurrent);
    o.memory_limit = p.weights + p.scratch + p.recurrent + kv_needs_max(&p.kv, 1024, p.step) - 1;
    assert_int_equal(model_plan(&p, &q, r.x, r.g, &o, &r.e), 0);
    o.memory_limit = p.weights + p.scratch + p.recurrent + kv_needs_max(&p.kv, 1024, p.step) - 1;
    expect(&r, model_load(&m, r.x, r.g, &o, &r.e), ERR_MEMORY, "MiB");
    o.memory_limit++;
    assert_int_equal(model_load(&m, r.x, r.g, &o, &r.e), 0);
    model_destroy(m);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),  cmocka_unit_test(test_chunks_quantised),
        cmocka_unit_test(test_trees),   cmocka_unit_test(test_commit),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_variants),
        cmocka_unit_test(test_sidecar), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
