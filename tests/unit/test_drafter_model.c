// SPDX-License-Identifier: Apache-2.0
// The drafter of drafts whose guesses depend on the path, over a draft without weights whose
// candidates are a hash of the path: which passes are made, which candidates stand below which
// parent, and that a member's guesses do not depend on others, on how many candidates are wanted
// beside them, or on how deep they go.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "spec/draft/drafter.h"
#include "support/tiny_gguf.h"

enum { DEPTH = 6, MEMBERS = 3, VOCAB = 300, K = 8 };

// The draft of these tests. What it was called with is looked at as it is called.
struct hashed {
    int begun, passes, rows;            // calls of begin and level; rows of all passes
    int no_room;                        // sequences up to that length have none
    int end_at;                         // nothing follows a node of that depth; 0: no end
    int members;                        // of begin
    const struct sequence *of[MEMBERS]; // [members]
    int32_t path[MEMBERS][DEPTH + 1];   // the root, then the nodes so far
    int reached[MEMBERS];               // their depth
    int32_t ids[MEMBERS][TREE_MAX_K];
    float logp[MEMBERS][TREE_MAX_K];
};
static struct hashed hashed;

static int hashed_open(void **self, struct model *target, const struct draft_source *s, bool dry,
                       struct err *e) {
    (void)target, (void)s, (void)dry, (void)e;
    *self = &hashed;
    return 0;
}

static void hashed_destroy(void *self) {
    (void)self;
}

static void hashed_plan(const void *self, struct draft_plan *out) {
    (void)self;
    *out = (struct draft_plan){0};
}

static struct draft_traits hashed_traits(const void *self) {
    (void)self;
    return (struct draft_traits){"hashed", DRAFT_BY_PATH, DEPTH, 1, 1};
}

static void hashed_describe(const void *self, struct str *out) {
    (void)self;
    str_puts(out, "hashes");
}

static int hashed_begin(void *self, const struct draft_level *l, int n, struct err *e) {
    struct hashed *h = self;
    (void)e;
    h->begun++;
    h->members = n;
    for (int i = 0; i < n; i++) {
        assert_int_equal(l[i].depth, 0);
        assert_null(l[i].nodes);
        h->of[i] = l[i].seq;
        h->path[i][0] = l[i].root;
        h->reached[i] = -1;
    }
    return 0;
}

static int member_of(const struct hashed *h, const struct sequence *s) {
    int i = 0;
    while (i < h->members && h->of[i] != s)
        i++;
    assert_true(i < h->members);
    return i;
}

// Distinct tokens with falling log-probabilities, by path and noise.
static void fill_candidates(struct hashed *h, const struct draft_level *l, int i) {
    uint64_t hash = (uint64_t)sequence_len(l->seq) + (l->noise ? 1000 + l->noise->seed : 0);
    for (int d = 0; d <= l->depth; d++)
        hash = rng_mix(hash ^ (uint64_t)h->path[i][d]);
    if (l->noise)
        assert_int_equal(l->noise->pos, sequence_len(l->seq) + 1 + l->depth);
    for (int c = 0; c < TREE_MAX_K; c++) {
        h->ids[i][c] = (int32_t)((hash + (uint64_t)c * 7) % VOCAB);
        h->logp[i][c] = -0.1f * (float)(1 + hash % 5) - (float)c;
    }
}

static int hashed_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                        struct err *e) {
    struct hashed *h = self;
    (void)e;
    h->passes++;
    h->rows += n;
    for (int m = 0; m < n; m++) {
        int i = member_of(h, l[m].seq);
        assert_int_equal(l[m].n, 1);
        assert_int_equal(l[m].depth, h->reached[i] + 1); // level by level
        h->reached[i] = l[m].depth;
        if (l[m].depth) {
            assert_int_equal(l[m].nodes[0].depth, l[m].depth);
            assert_int_equal(l[m].nodes[0].parent, l[m].depth - 1);
            h->path[i][l[m].depth] = l[m].nodes[0].token;
        }
        fill_candidates(h, &l[m], i);
        bool none = sequence_len(l[m].seq) <= h->no_room || (h->end_at && l[m].depth >= h->end_at);
        out[m] = (struct draft_guesses){h->ids[i], h->logp[i], NULL, 1, none ? 0 : l[m].k};
    }
    return 0;
}

static const struct draft_class hashed_class = {.name = "hashed",
                                                .open = hashed_open,
                                                .destroy = hashed_destroy,
                                                .plan = hashed_plan,
                                                .traits = hashed_traits,
                                                .describe = hashed_describe,
                                                .begin = hashed_begin,
                                                .level = hashed_level};

struct fixture {
    struct exec *x;
    struct gguf *file;
    struct model *model;
    struct draft *draft;
    struct sequence *seq[MEMBERS]; // of 1, 2, ... tokens
    struct sample_row noise[MEMBERS][DEPTH];
};

static int grow(struct fixture *f, int i) {
    static const int32_t text[] = {2, 3, 4, 5};
    struct forest rows = {0};
    int rc = model_sequence(f->model, &f->seq[i], NULL);
    if (!rc)
        rc = forest_init(&rows, MEMBERS, NULL);
    if (rc)
        return rc;
    forest_reset(&rows);
    forest_chain(&rows, 0, 0, text, i + 1, true);
    rc = model_forward(f->model, &rows, &f->seq[i], 1, NULL);
    forest_fini(&rows);
    for (int d = 0; d < DEPTH; d++)
        f->noise[i][d] = (struct sample_row){.pos = i + 2 + d, .seed = 5, .temperature = 1};
    return rc;
}

static int setup(void **state) {
    static struct fixture f;
    char path[64];
    struct tiny_shape t = tiny_shape_default();
    struct model_options o = model_options_default();
    struct draft_source none = {0};
    *state = &f;
    o.max_ctx = 64;
    snprintf(path, sizeof path, "/tmp/coppice-drafter-model-%d.gguf", (int)getpid());
    int rc = tiny_target_write(&t, path, NULL);
    if (!rc)
        rc = gguf_open(&f.file, path, NULL);
    unlink(path);
    if (!rc)
        rc = exec_create_cpu(&f.x, "scalar", 1, NULL);
    if (!rc)
        rc = model_load(&f.model, f.x, f.file, &o, NULL);
    if (!rc)
        rc = draft_open_class(&f.draft, &hashed_class, f.model, &none, NULL);
    for (int i = 0; !rc && i < MEMBERS; i++)
        rc = grow(&f, i);
    return rc;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < MEMBERS; i++)
        sequence_destroy(f->seq[i]);
    draft_destroy(f->draft);
    model_destroy(f->model);
    exec_destroy(f->x);
    gguf_close(f->file);
    return 0;
}

static struct drafter *make(const struct fixture *f, int members) {
    struct draft_config c = {
        .model = f->model, .draft = f->draft, .max_k = K, .max_members = members};
    struct drafter *d = NULL;
    assert_int_equal(drafter_create(&d, DRAFT_MODEL, &c, NULL), 0);
    hashed = (struct hashed){0};
    return d;
}

static struct draft_request request(const struct fixture *f, int i, int k, int depth) {
    return (struct draft_request){.seq = f->seq[i], .root = 9 + i, .k = k, .max_depth = depth};
}

static struct proposal ask(struct drafter *d, const struct draft_request *r) {
    struct proposal p = {0}, *all = &p;
    assert_int_equal(drafter_propose(d, r, 1, &all, NULL), 0);
    return p;
}

// Candidates of a depth stand below the best of the one before, and below nothing else.
static void test_candidates(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, 1);
    struct draft_request r = request(f, 0, 3, 32);
    struct proposal p = ask(d, &r);
    assert_int_equal(drafter_max_depth(d), DEPTH);
    assert_int_equal(p.depth, DEPTH);
    assert_int_equal(p.k, 3);
    assert_int_equal(hashed.begun, 1);
    assert_int_equal(hashed.passes, DEPTH);
    struct hashed at = {0};
    at.path[0][0] = r.root;
    for (int depth = 0; depth < p.depth; depth++) {
        struct draft_level l = {.seq = r.seq, .depth = depth};
        fill_candidates(&at, &l, 0);
        assert_memory_equal(p.ids + depth * 3, at.ids[0], 3 * sizeof *p.ids);
        at.path[0][depth + 1] = at.ids[0][0];
        for (int i = 0; i < 9; i++) {
            float shown = !depth ? p.logp[i % 3] : p.pair[(depth - 1) * 9 + i];
            float right = !depth || i < 3 ? at.logp[0][i % 3] : -INFINITY;
            assert_true(shown == right);
        }
        for (int c = 0; depth && c < 3; c++) // nor below what a chain guessed
            assert_true(isinf(p.logp[depth * 3 + c]));
    }
    drafter_destroy(d);
}

// The tree has the best path, with other candidates beside each of its nodes.
static void test_tree(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, 1);
    struct draft_request r = request(f, 1, 2, 32);
    struct proposal p = ask(d, &r);
    struct tree_options o = {.budget = 2 * DEPTH, .k = 2, .max_depth = 32};
    struct ddtree t;
    assert_int_equal(ddtree_build(&t, r.root, &p, &o, NULL), 0);
    assert_int_equal(t.n, 1 + 2 * DEPTH);
    int node = 0;
    for (int depth = 0; depth < DEPTH; depth++) {
        assert_true(ddtree_child(&t, node, p.ids[depth * 2 + 1]) > 0);
        node = ddtree_child(&t, node, p.ids[depth * 2]);
        assert_true(node > 0);
    }
    drafter_destroy(d);
}

// Fewer depths are fewer passes, and the same guesses.
static void test_depth(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, 1);
    struct draft_request r = request(f, 0, 4, 32);
    struct proposal all = ask(d, &r);
    int32_t ids[4 * DEPTH];
    memcpy(ids, all.ids, sizeof ids);
    static const int limits[][3] = {{3, 0, 3}, {32, 2, 2}, {2, 4, 2},
                                    {1, 0, 1}, {0, 3, 0},  {9, 99, 6}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        hashed.passes = 0;
        r.max_depth = limits[i][0];
        r.useful_depth = limits[i][1];
        struct proposal p = ask(d, &r);
        assert_int_equal(p.depth, limits[i][2]);
        assert_int_equal(hashed.passes, limits[i][2]);
        if (p.depth)
            assert_memory_equal(p.ids, ids, (size_t)p.depth * 4 * sizeof *ids);
    }
    drafter_destroy(d);
}

static void check_equal(const struct proposal *p, const struct proposal *q) {
    size_t cells = (size_t)q->depth * (size_t)q->k;
    assert_int_equal(p->depth, q->depth);
    assert_int_equal(p->k, q->k);
    assert_memory_equal(p->ids, q->ids, cells * sizeof *q->ids);
    assert_memory_equal(p->logp, q->logp, cells * sizeof *q->logp);
    if (q->depth > 1)
        assert_memory_equal(p->pair, q->pair,
                            (size_t)((q->depth - 1) * q->k * q->k) * sizeof *q->pair);
}

// Members of one call share passes, and each gets what it gets alone.
static void test_members(void **state) {
    const struct fixture *f = *state;
    struct drafter *many = make(f, MEMBERS), *one = make(f, 1);
    struct draft_request r[MEMBERS];
    struct proposal p[MEMBERS] = {0}, *all[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        r[i] = request(f, i, 2 + 2 * i, 2 + i);
        r[i].noise = i == 1 ? f->noise[i] : NULL;
        all[i] = &p[i];
    }
    for (int without = -1; without < MEMBERS; without++) {
        int most = 0, rows = 0;
        for (int i = 0; i < MEMBERS; i++) {
            r[i].max_depth = i == without ? 0 : 2 + i;
            most = r[i].max_depth > most ? r[i].max_depth : most;
            rows += r[i].max_depth;
            p[i] = (struct proposal){0};
        }
        hashed.passes = hashed.rows = 0;
        assert_int_equal(drafter_propose(many, r, MEMBERS, all, NULL), 0);
        assert_int_equal(hashed.passes, most);
        assert_int_equal(hashed.rows, rows);
        for (int i = 0; i < MEMBERS; i++) {
            struct proposal q = ask(one, &r[i]);
            check_equal(&p[i], &q);
        }
    }
    drafter_destroy(many);
    drafter_destroy(one);
}

// A draft that has no room for a member, or no candidates below a node, ends that member's guesses.
static void test_ends(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, MEMBERS);
    struct draft_request r[2] = {request(f, 0, 2, 32), request(f, 1, 2, 32)};
    struct proposal p[2] = {0}, *all[2] = {&p[0], &p[1]};
    hashed.no_room = 1;
    assert_int_equal(drafter_propose(d, r, 2, all, NULL), 0);
    assert_int_equal(p[0].depth, 0);
    assert_int_equal(p[1].depth, DEPTH);
    hashed.end_at = 2;
    assert_int_equal(drafter_propose(d, r, 2, all, NULL), 0);
    assert_int_equal(p[0].depth, 0);
    assert_int_equal(p[1].depth, 2);
    struct err e = {0};
    assert_int_equal(drafter_propose(d, r, MEMBERS + 1, all, &e), ERR_USAGE);
    drafter_destroy(d);
}

// What is said of a draft through its handle.
static void test_handle(void **state) {
    const struct fixture *f = *state;
    struct str text = {0};
    draft_describe(f->draft, &text);
    assert_string_equal(text.data, "hashes");
    str_fini(&text);
    assert_string_equal(draft_traits(f->draft).name, "hashed");
    assert_null(draft_dflash(f->draft));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates), cmocka_unit_test(test_tree),
        cmocka_unit_test(test_depth),      cmocka_unit_test(test_members),
        cmocka_unit_test(test_ends),       cmocka_unit_test(test_handle),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
