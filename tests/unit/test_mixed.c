// SPDX-License-Identifier: Apache-2.0
// Mixed passes: pieces of prompts of some sequences, trees of others and single rows, in one forest
// and each alone, must give the same bits, and so must commits of several sequences in one go, and
// drafts afterwards. Then slices of logits of every width, and commits that fail.
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "ops/exec.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { VOCAB = 300, SEQS = 6, ROWS = 256, TREES = 48, SLICE = 20 };

// What one sequence does in a pass.
struct part {
    int32_t first; // row
    int n;         // 0: nothing
    bool chain;
    int32_t token[ROWS], parent[ROWS]; // within the part
    int32_t path[64];                  // rows of the pass to be committed, of a tree
    int64_t len;
};

struct mix {
    struct tiny_rig r;
    struct rng g;
    struct sequence *mixed[SEQS], *alone[SEQS];
    struct part part[SEQS];
    int order[SEQS];
    int64_t limit; // a sequence starts anew beyond it
    float *got, *want;
    // What happened.
    int one_commit, layerwise, together, bases, pages, commits, restarts;
};

static int below(struct mix *m, int n) {
    return (int)rng_below(&m->g, (uint32_t)n);
}

static void open_mix(struct mix *m, uint64_t seed, int threads, bool draft) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct model_options o = model_options_default();
    *m = (struct mix){.g = {rng_mix(seed)}, .limit = 400};
    o.max_rows = ROWS;
    o.max_verify = TREES;
    o.max_logits = SLICE;
    tiny_rig_open(&m->r, &shape, draft ? &d : NULL, &o, "auto", threads);
    m->got = calloc((size_t)ROWS * VOCAB, sizeof *m->got);
    m->want = calloc((size_t)ROWS * VOCAB, sizeof *m->want);
    assert_true(m->got && m->want);
    for (int i = 0; i < SEQS; i++) {
        m->mixed[i] = tiny_rig_sequence(&m->r);
        m->alone[i] = tiny_rig_sequence(&m->r);
    }
}

static void close_mix(struct mix *m) {
    for (int i = 0; i < SEQS; i++) {
        sequence_destroy(m->mixed[i]);
        sequence_destroy(m->alone[i]);
    }
    free(m->got);
    free(m->want);
    tiny_rig_close(&m->r);
}

static void shuffle(struct mix *m) {
    for (int i = 0; i < SEQS; i++)
        m->order[i] = i;
    for (int i = SEQS; i-- > 1;) {
        int j = below(m, i + 1), t = m->order[i];
        m->order[i] = m->order[j];
        m->order[j] = t;
    }
}

// A chain, mostly short, or a tree, mostly deep; `room` rows at most.
static void make_part(struct mix *m, struct part *p, int room, int trees) {
    int kind = below(m, 8);
    int max = kind == 0 ? 0 : kind == 1 ? 100 : kind < 4 ? 32 : kind == 4 ? 1 : 20;
    p->chain = kind < 5;
    max = max < room ? max : room;
    if (!p->chain && max > trees)
        max = trees;
    p->n = max < 1 ? 0 : 1 + below(m, max);
    for (int i = 0; i < p->n; i++) {
        p->token[i] = below(m, VOCAB);
        p->parent[i] = p->chain || below(m, 4) ? i - 1 : below(m, i + 1) - 1;
    }
}

static void random_parts(struct mix *m) {
    int rows = 0, trees = 0, n = 0;
    do {
        for (int i = 0; i < SEQS; i++) {
            struct part *p = &m->part[i];
            make_part(m, p, ROWS - rows, TREES - trees);
            rows += p->n;
            trees += p->chain ? 0 : p->n;
            n += p->n > 0;
        }
    } while (n == 0);
    shuffle(m);
}

// Adds the rows of one part to the forest, as rows of sequence `seq`. All are wanted.
static void plant(struct mix *m, struct part *p, int32_t seq, int64_t pos) {
    struct forest *f = &m->r.f;
    p->first = (int32_t)f->n;
    if (p->chain && p->n)
        assert_int_equal(forest_chain(f, seq, pos, p->token, p->n, false), p->first + p->n - 1);
    for (int i = 0; !p->chain && i < p->n; i++) {
        int32_t row = p->parent[i] < 0 ? forest_root(f, seq, pos, p->token[i], true)
                                       : forest_add(f, p->first + p->parent[i], p->token[i], true);
        assert_int_equal(row, p->first + i);
    }
    memset(f->logits_requested + p->first, 1, (size_t)p->n);
}

static void choose_path(struct mix *m, struct part *p) {
    int32_t last = -1;
    p->len = 0;
    for (int i = 0; !p->chain && i < p->n; i++) {
        if (p->parent[i] == last && (last < 0 ? p->len == 0 && below(m, 2) : below(m, 4) > 0))
            p->path[p->len++] = p->first + (last = i);
    }
}

static void count(struct mix *m, int64_t rows, int trees, bool longer) {
    bool layerwise = longer || rows > TREES;
    m->one_commit += !layerwise;
    m->layerwise += layerwise;
    m->together += layerwise && trees > 0;
}

static void forward_mixed(struct mix *m) {
    bool longer = false;
    int trees = 0;
    forest_reset(&m->r.f);
    for (int i = 0; i < SEQS; i++) {
        int s = m->order[i];
        struct part *p = &m->part[s];
        int64_t len = sequence_len(m->mixed[s]);
        plant(m, p, s, len);
        longer = longer || (p->chain && p->n > 32);
        trees += p->chain ? 0 : p->n;
        m->bases += p->chain && p->n && len / 32 != (len + p->n) / 32;
        m->pages += p->chain && p->n && len / 64 != (len + p->n) / 64;
    }
    count(m, m->r.f.n, trees, longer);
    assert_int_equal(model_forward(m->r.m, &m->r.f, m->mixed, SEQS, &m->r.e), 0);
    assert_int_equal(model_wanted(m->r.m), m->r.f.n);
    tiny_rig_logits(&m->r, 0, m->r.f.n, m->got);
}

// All trees in one or two calls.
static void commit_mixed(struct mix *m) {
    struct model_path paths[SEQS];
    int n = 0, first;
    for (int s = 0; s < SEQS; s++) {
        choose_path(m, &m->part[s]);
        if (m->part[s].len)
            paths[n++] = (struct model_path){s, m->part[s].path, m->part[s].len};
    }
    first = n > 1 && below(m, 2) ? 1 : n;
    if (n)
        assert_int_equal(model_commit(m->r.m, m->mixed, paths, first, &m->r.e), 0);
    if (first < n)
        assert_int_equal(model_commit(m->r.m, m->mixed, paths + first, n - first, &m->r.e), 0);
    m->commits += n > 1;
}

// The same part in a pass of its own.
static void run_alone(struct mix *m, int s) {
    struct part *p = &m->part[s];
    struct tiny_rig *r = &m->r;
    int32_t first = p->first;
    const float *got = m->got + (int64_t)first * VOCAB;
    if (p->chain) {
        tiny_rig_prompt(r, m->alone[s], p->token, p->n, 1 + below(m, 100), m->want, NULL);
    } else {
        forest_reset(&r->f);
        plant(m, p, 0, sequence_len(m->alone[s]));
        assert_int_equal(model_forward(r->m, &r->f, &m->alone[s], 1, &r->e), 0);
        tiny_rig_logits(r, 0, p->n, m->want);
        for (int64_t i = 0; i < p->len; i++)
            p->path[i] -= first;
        struct model_path path = {0, p->path, p->len};
        if (p->len)
            assert_int_equal(model_commit(r->m, &m->alone[s], &path, 1, &r->e), 0);
    }
    assert_memory_equal(m->want, got, (size_t)p->n * VOCAB * sizeof *got);
    int64_t len = sequence_len(m->alone[s]);
    assert_int_equal(sequence_len(m->mixed[s]), len);
    if (len)
        assert_memory_equal(sequence_tokens(m->mixed[s]), sequence_tokens(m->alone[s]),
                            (size_t)len * sizeof(int32_t));
}

static void restart(struct mix *m, int s) {
    int64_t kept;
    if (sequence_len(m->mixed[s]) < m->limit)
        return;
    assert_int_equal(sequence_truncate(m->mixed[s], 0, &kept, &m->r.e), 0);
    assert_int_equal(sequence_truncate(m->alone[s], 0, &kept, &m->r.e), 0);
    m->restarts++;
}

// The draft of one sequence, which has the features of its rows by now.
static void compare_drafts(struct mix *m, int s) {
    enum { DRAFTED = 7 };
    int32_t anchor = 3;
    assert_int_equal(dflash_draft(m->r.d, &m->mixed[s], &anchor, 1, &m->r.e), 0);
    tiny_rig_draft_logits(&m->r, 0, DRAFTED, m->got);
    assert_int_equal(dflash_draft(m->r.d, &m->alone[s], &anchor, 1, &m->r.e), 0);
    tiny_rig_draft_logits(&m->r, 0, DRAFTED, m->want);
    assert_memory_equal(m->want, m->got, DRAFTED * VOCAB * sizeof *m->got);
}

static void run_pass(struct mix *m) {
    random_parts(m);
    forward_mixed(m);
    commit_mixed(m);
    for (int s = 0; s < SEQS; s++) {
        if (m->part[s].n)
            run_alone(m, s);
        restart(m, s);
    }
    if (m->r.d)
        compare_drafts(m, below(m, SEQS));
}

static void test_mixed(void **state) {
    (void)state;
    struct mix m;
    for (uint64_t seed = 0; seed < 2; seed++) {
        open_mix(&m, seed, 1 + (int)seed, seed == 1);
        for (int pass = 0; pass < 60; pass++)
            run_pass(&m);
        assert_true(m.one_commit > 2 && m.layerwise > 20 && m.together > 20 && m.bases > 30);
        assert_true(m.pages > 15 && m.commits > 15 && m.restarts > 2);
        close_mix(&m);
    }
}

// A chain so long that the draft takes its features where they are, after a tree of another one.
static void test_long_chain(void **state) {
    (void)state;
    struct mix m;
    open_mix(&m, 8, 1, true);
    for (int i = 0; i < SEQS; i++)
        m.order[i] = i;
    m.part[0] = (struct part){.n = 9};
    m.part[1] = (struct part){.n = 230, .chain = true};
    tiny_rig_tokens(&m.r, 1, m.part[0].token, 9);
    tiny_rig_tokens(&m.r, 2, m.part[1].token, 230);
    for (int i = 0; i < 9; i++)
        m.part[0].parent[i] = i / 2 - 1;
    forward_mixed(&m);
    commit_mixed(&m);
    for (int s = 0; s < 2; s++) {
        run_alone(&m, s);
        compare_drafts(&m, s);
    }
    close_mix(&m);
}

static void check_slice(struct mix *m, int64_t at, int64_t width) {
    const float *logits = model_logits(m->r.m, at, width);
    assert_non_null(logits);
    assert_ptr_equal(model_logits(m->r.m, at + width - 1, 1), logits + (width - 1) * VOCAB);
    assert_memory_equal(logits, m->want + at * VOCAB, (size_t)width * VOCAB * sizeof *logits);
}

// A row's logits do not depend on the slice that they were computed in.
static void test_slices(void **state) {
    enum { N = 45 };
    (void)state;
    struct mix m;
    open_mix(&m, 9, 2, false);
    struct model *model = m.r.m;
    struct part *p = &m.part[0];
    *p = (struct part){.n = N, .chain = true};
    tiny_rig_tokens(&m.r, 3, p->token, N);
    forest_reset(&m.r.f);
    plant(&m, p, 0, 0);
    for (int i = 0; i < N; i += 4)
        m.r.f.logits_requested[i] = 0; // not all rows side by side
    assert_int_equal(model_forward(model, &m.r.f, m.mixed, 1, &m.r.e), 0);
    int64_t wanted = model_wanted(model);
    assert_int_equal(model_logits_rows(model), SLICE);
    assert_int_equal(wanted, 33);
    assert_int_equal(model_logits_index(model, 4), -1);
    assert_int_equal(model_logits_index(model, 5), 3);
    tiny_rig_logits(&m.r, 0, wanted, m.want);
    for (int64_t width = 1; width <= SLICE; width++) {
        for (int64_t at = 0; at + width <= wanted; at += 1 + below(&m, 7))
            check_slice(&m, at, width);
    }
    assert_null(model_logits(model, 0, SLICE + 1));
    assert_null(model_logits(model, wanted - 1, 2));
    assert_null(model_logits(model, -1, 1));
    assert_null(model_logits(model, 0, 0));
    assert_null(model_logits_at(model, wanted));
    close_mix(&m);
}

static void refused(struct mix *m, const struct model_path *paths, int n, int code,
                    const char *words) {
    int64_t len[2] = {sequence_len(m->mixed[0]), sequence_len(m->mixed[1])};
    int64_t used = kv_pool_used(m->mixed[0]->spec.groups[0].pool);
    assert_int_equal(model_commit(m->r.m, m->mixed, paths, n, &m->r.e), code);
    if (!strstr(m->r.e.text, words))
        fail_msg("\"%s\" does not say: %s", m->r.e.text, words);
    for (int s = 0; s < 2; s++)
        assert_int_equal(sequence_len(m->mixed[s]), len[s]);
    assert_int_equal(kv_pool_used(m->mixed[0]->spec.groups[0].pool), used);
}

static void *(*real_alloc)(struct exec *x, enum exec_arena arena, size_t bytes);
static int left; // allocations that go well
static void *few_allocs(struct exec *x, enum exec_arena arena, size_t bytes) {
    return left-- > 0 ? real_alloc(x, arena, bytes) : NULL;
}

// A commit that fails for one of its sequences changes none, and can be made good.
static void test_failures(void **state) {
    (void)state;
    struct mix m;
    int32_t tokens[1024];
    open_mix(&m, 4, 1, false);
    tiny_rig_tokens(&m.r, 6, tokens, 1024);
    const int lens[3] = {60, 128, 1020};
    for (int s = 0; s < 3; s++) {
        tiny_rig_prompt(&m.r, m.mixed[s], tokens, lens[s], ROWS, NULL, NULL);
        tiny_rig_prompt(&m.r, m.alone[s], tokens, lens[s], ROWS, NULL, NULL);
        m.part[s] = (struct part){.n = 10, .chain = s == 3};
        for (int i = 0; i < 10; i++) {
            m.part[s].token[i] = tokens[i + s];
            m.part[s].parent[i] = i - 1;
        }
    }
    m.part[3] = m.part[0];
    m.part[3].chain = true;
    forest_reset(&m.r.f);
    for (int s = 0; s < 4; s++) {
        plant(&m, &m.part[s], s, sequence_len(m.mixed[s]));
        for (int i = 0; i < 10; i++)
            m.part[s].path[i] = m.part[s].first + i;
    }
    assert_int_equal(model_forward(m.r.m, &m.r.f, m.mixed, 4, &m.r.e), 0);
    struct model_path path[4];
    for (int s = 0; s < 4; s++)
        path[s] = (struct model_path){s, m.part[s].path, 10};
    const struct model_path twice[2] = {path[0], path[0]},
                            wrong[2] = {path[0], {1, path[0].rows, 2}};
    // Both sequences need a page, and there is none or one.
    real_alloc = m.r.x->alloc_in;
    m.r.x->alloc_in = few_allocs;
    for (int some = 0; some < 2; some++) {
        left = some;
        refused(&m, path, 2, ERR_MEMORY, "memory");
    }
    m.r.x->alloc_in = real_alloc;
    refused(&m, path, 3, ERR_LIMIT, "context of 1024");
    refused(&m, &path[3], 1, ERR_STATE, "sequence 3 cannot be committed"); // has been already
    refused(&m, twice, 2, ERR_USAGE, "two paths of sequence 0");
    refused(&m, wrong, 2, ERR_USAGE, "does not continue the path");
    refused(&m, path, 0, ERR_USAGE, "no path");
    assert_int_equal(model_commit(m.r.m, m.mixed, path, 2, &m.r.e), 0);
    refused(&m, path, 1, ERR_STATE, "sequence 0 cannot be committed");
    for (int s = 0; s < 2; s++) {
        int32_t next = 7;
        tiny_rig_prompt(&m.r, m.alone[s], m.part[s].token, 10, 10, NULL, NULL);
        tiny_rig_prompt(&m.r, m.alone[s], &next, 1, 1, NULL, m.want);
        tiny_rig_prompt(&m.r, m.mixed[s], &next, 1, 1, NULL, m.got);
        assert_memory_equal(m.want, m.got, VOCAB * sizeof *m.got);
    }
    close_mix(&m);
}

// What a pass takes at most: rows in all, rows of trees.
static void test_limits(void **state) {
    (void)state;
    struct mix m;
    static const int32_t tokens[ROWS] = {0};
    struct forest f;
    open_mix(&m, 5, 1, false);
    assert_int_equal(forest_init(&f, ROWS + 1, &m.r.e), 0);
    forest_chain(&f, 0, 0, tokens, ROWS - TREES, false);
    for (int i = 0; i < TREES; i++)
        forest_root(&f, 1, 0, 3, true);
    forest_chain(&f, 2, 0, tokens, 1, false);
    assert_int_equal(model_forward(m.r.m, &f, m.mixed, 3, &m.r.e), ERR_LIMIT);
    assert_non_null(strstr(m.r.e.text, "257 rows is over the limit of 256"));
    f.n--;
    assert_int_equal(model_forward(m.r.m, &f, m.mixed, 3, &m.r.e), 0);
    assert_int_equal(sequence_len(m.mixed[0]), ROWS - TREES);
    assert_int_equal(sequence_len(m.mixed[1]), 0);
    forest_reset(&f);
    for (int i = 0; i <= TREES; i++)
        forest_root(&f, 1, 0, 3, true);
    assert_int_equal(model_forward(m.r.m, &f, m.mixed, 3, &m.r.e), ERR_LIMIT);
    assert_non_null(strstr(m.r.e.text, "trees of 49 rows"));
    forest_fini(&f);
    close_mix(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),  cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
