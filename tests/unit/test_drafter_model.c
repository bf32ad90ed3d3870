// SPDX-License-Identifier: Apache-2.0
// The drafter of drafts whose guesses depend on the path, over a draft without weights whose
// candidates are a hash of the path: the tree is that of these candidates, in a pass a depth over
// the nodes that it requests, and a member's guesses do not depend on others or on how deep they
// go.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "spec/draft/drafter.h"
#include "support/tiny_gguf.h"

enum { DEPTH = 6, WIDTH = 3, NODES = 1 + WIDTH * DEPTH, MEMBERS = 3, VOCAB = 300, K = 8 };

// The draft of these tests. What it was called with is looked at as it is called.
struct hashed {
    int begun, passes, rows;                 // calls of begin and level; rows of all passes
    int no_room;                             // sequences up to that length have none
    int end_at;                              // nothing follows a node of that depth; 0: no end
    int members;                             // of begin
    const struct sequence *of[MEMBERS];      // [members]
    int reached[MEMBERS];                    // the depth of the newest level
    int nodes[MEMBERS];                      // rows so far,
    int32_t path[MEMBERS][NODES][DEPTH + 1]; // the root and the tokens to each
    int32_t ids[MEMBERS][WIDTH * TREE_MAX_K];
    float logp[MEMBERS][WIDTH * TREE_MAX_K];
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
    return (struct draft_traits){.name = "hashed",
                                 .depends = DRAFT_BY_PATH,
                                 .max_depth = DEPTH,
                                 .trained_depth = 1,
                                 .passes = 1,
                                 .width = WIDTH};
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
        h->reached[i] = -1;
        h->nodes[i] = 0;
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

// Distinct tokens with falling log-probabilities, by path and noise: k of them.
static void fill_candidates(const struct draft_level *l, const int32_t *path, int k, int32_t *ids,
                            float *logp) {
    uint64_t hash = (uint64_t)sequence_len(l->seq) + (l->noise ? 1000 + l->noise->seed : 0);
    for (int d = 0; d <= l->depth; d++)
        hash = rng_mix(hash ^ (uint64_t)path[d]);
    if (l->noise)
        assert_int_equal(l->noise->pos, sequence_len(l->seq) + 1 + l->depth);
    for (int c = 0; c < k; c++) {
        ids[c] = (int32_t)((hash + (uint64_t)c * 7) % VOCAB);
        logp[c] = -0.1f * (float)(1 + hash % 5) - 0.3f * (float)c;
    }
}

// Enters a level's nodes, level by level, each below one of the level before.
static void enter_nodes(struct hashed *h, const struct draft_level *l, int i) {
    assert_in_range(l->n, 1, l->depth ? WIDTH : 1);
    assert_int_equal(l->depth, h->reached[i] + 1);
    h->reached[i] = l->depth;
    for (int j = 0; j < l->n; j++) {
        int32_t *path = h->path[i][h->nodes[i]++];
        path[0] = l->root;
        if (!l->depth)
            continue;
        assert_in_range(h->nodes[i], 1, NODES);
        assert_int_equal(l->nodes[j].depth, l->depth);
        assert_in_range(l->nodes[j].parent, 0, h->nodes[i] - 2);
        assert_in_range(l->nodes[j].token, 0, VOCAB - 1);
        memcpy(path, h->path[i][l->nodes[j].parent], (size_t)l->depth * sizeof *path);
        path[l->depth] = l->nodes[j].token;
    }
}

static int hashed_level(void *self, const struct draft_level *l, int n, struct draft_guesses *out,
                        struct err *e) {
    struct hashed *h = self;
    (void)e;
    h->passes++;
    for (int m = 0; m < n; m++) {
        int i = member_of(h, l[m].seq), first = h->nodes[i];
        h->rows += l[m].n;
        enter_nodes(h, &l[m], i);
        for (int j = 0; j < l[m].n; j++)
            fill_candidates(&l[m], h->path[i][first + j], l[m].k, h->ids[i] + j * l[m].k,
                            h->logp[i] + j * l[m].k);
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

static struct ddtree grow_tree(const struct draft_request *r, const struct proposal *p,
                               int budget) {
    struct tree_options o = {.budget = budget, .k = r->k, .max_depth = 32};
    struct ddtree t;
    memset(&t, 0, sizeof t);
    assert_int_equal(ddtree_build(&t, r->root, p, &o, NULL), 0);
    return t;
}

// The candidates of a path, as a drafter of the tests' own.
static int plainly(void *arg, const struct tree_node *nodes, int n, int k,
                   struct tree_candidates *out, struct err *e) {
    static int32_t ids[WIDTH * TREE_MAX_K];
    static float logp[WIDTH * TREE_MAX_K];
    const struct draft_request *r = arg;
    (void)e;
    for (int i = 0; i < n; i++) {
        int32_t path[DEPTH + 1] = {r->root};
        const int depth = nodes[i].depth;
        struct draft_level l = {
            .seq = r->seq, .depth = depth, .noise = r->noise ? &r->noise[depth] : NULL};
        memcpy(path + 1, nodes[i].path, (size_t)depth * sizeof *path);
        fill_candidates(&l, path, k, ids + i * k, logp + i * k);
    }
    *out = (struct tree_candidates){ids, logp, NULL};
    return 0;
}

static struct ddtree tree_of(const struct draft_request *r, int depth, int width, int budget) {
    struct draft_request own = *r;
    struct proposal p = {.depth = depth, .expand = plainly, .expand_arg = &own, .width = width};
    return grow_tree(r, &p, budget);
}

static void same_tree(const struct ddtree *a, const struct ddtree *b) {
    assert_true(a->n > 1);
    assert_memory_equal(a, b, sizeof *a);
}

// The tree is that of the candidates by path, in a pass a depth, of the nodes that it requests.
static void test_tree(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, 1);
    assert_int_equal(drafter_max_depth(d), DEPTH);
    assert_true(drafter_by_path(d));
    for (int k = 1; k <= 4; k++)
        for (int budget = 1; budget < 60; budget += 7) {
            struct draft_request r = request(f, 1, k, 32);
            r.noise = budget % 2 ? f->noise[1] : NULL;
            hashed.passes = hashed.rows = hashed.begun = 0;
            struct proposal p = ask(d, &r);
            struct ddtree t = grow_tree(&r, &p, budget), want = tree_of(&r, DEPTH, WIDTH, budget);
            same_tree(&t, &want);
            assert_int_equal(hashed.begun, 1);
            assert_in_range(hashed.passes, 1, DEPTH);
            assert_in_range(hashed.rows, hashed.passes, 1 + WIDTH * (hashed.passes - 1));
            if (k == 1)
                assert_int_equal(hashed.rows, budget < DEPTH ? budget : DEPTH);
        }
    drafter_destroy(d);
}

// Fewer depths are fewer passes, and the same guesses.
static void test_depth(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, 1);
    struct draft_request r = request(f, 0, 4, 32);
    static const int limits[][3] = {{3, 0, 3}, {32, 2, 2}, {2, 4, 2},
                                    {1, 0, 1}, {0, 3, 0},  {9, 99, 6}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        hashed.passes = hashed.begun = 0;
        r.max_depth = limits[i][0];
        r.useful_depth = limits[i][1];
        struct proposal p = ask(d, &r);
        struct ddtree t = grow_tree(&r, &p, 30);
        assert_int_equal(p.depth, limits[i][2]);
        assert_int_equal(hashed.passes, limits[i][2]);
        assert_int_equal(hashed.begun, limits[i][2] > 0);
        assert_true(p.depth || t.n == 1);
        struct ddtree want = tree_of(&r, limits[i][2], WIDTH, 30);
        assert_memory_equal(&t, &want, sizeof t);
    }
    drafter_destroy(d);
}

// All trees of a call, level by level.
static void grow_together(const struct draft_request *r, const struct proposal *p, int budget,
                          struct ddtree *out) {
    struct ddtree_build *b[MEMBERS];
    struct tree_question q[MEMBERS];
    int of[MEMBERS], left = 1;
    for (int i = 0; i < MEMBERS; i++) {
        struct tree_options o = {.budget = budget, .k = r[i].k, .max_depth = 32};
        b[i] = malloc(ddtree_build_bytes());
        assert_non_null(b[i]);
        ddtree_start(b[i], r[i].root, &p[i], &o);
    }
    while (left) {
        left = 0;
        for (int i = 0; i < MEMBERS; i++) {
            const struct tree_node *nodes;
            int n = ddtree_level(b[i], &nodes);
            if (!n)
                continue;
            of[left] = i;
            q[left++] =
                (struct tree_question){p[i].expand_arg, nodes, n, ddtree_candidates(b[i]), {0}};
        }
        if (left)
            assert_int_equal(p[of[0]].expand_many(q, left, NULL), 0);
        for (int i = 0; i < left; i++)
            ddtree_answer(b[of[i]], &q[i].answer);
    }
    for (int i = 0; i < MEMBERS; i++) {
        memset(&out[i], 0, sizeof out[i]);
        ddtree_finish(b[i], &out[i]);
        free(b[i]);
    }
}

// Members of one call share passes, and each gets what it gets alone.
static void test_members(void **state) {
    const struct fixture *f = *state;
    struct drafter *many = make(f, MEMBERS), *one = make(f, 1);
    struct draft_request r[MEMBERS];
    struct proposal *all[MEMBERS], p[MEMBERS];
    struct ddtree t[MEMBERS];
    for (int without = -1; without < MEMBERS; without++) {
        int most = 0, rows = 0;
        for (int i = 0; i < MEMBERS; i++) {
            r[i] = request(f, i, 2 + i, i == without ? 0 : 2 + i);
            r[i].noise = i == 1 ? f->noise[i] : NULL;
            most = r[i].max_depth > most ? r[i].max_depth : most;
            p[i] = (struct proposal){0};
            all[i] = &p[i];
        }
        hashed.passes = hashed.rows = 0;
        assert_int_equal(drafter_propose(many, r, MEMBERS, all, NULL), 0);
        grow_together(r, p, 25, t);
        assert_int_equal(hashed.passes, most);
        rows = hashed.rows;
        hashed.rows = 0;
        for (int i = 0; i < MEMBERS; i++) {
            struct proposal q = ask(one, &r[i]);
            struct ddtree alone = grow_tree(&r[i], &q, 25);
            assert_memory_equal(&t[i], &alone, sizeof alone);
            assert_true(i == without || alone.n > 2);
        }
        assert_int_equal(rows, hashed.rows);
    }
    drafter_destroy(many);
    drafter_destroy(one);
}

// A draft that has no room for a member, or no candidates below a node, ends that member's guesses;
// more candidates than there are are filled up, and a chain's token that nobody has harms no pass.
static void test_ends(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, MEMBERS);
    struct draft_request r = request(f, 0, 2, 32);
    struct proposal p = ask(d, &r);
    hashed.no_room = 1;
    assert_int_equal(grow_tree(&r, &p, 20).n, 1);
    r = request(f, 1, 2, 32);
    hashed.end_at = 2;
    p = ask(d, &r);
    struct ddtree t = grow_tree(&r, &p, 20), want = tree_of(&r, 2, WIDTH, 20);
    same_tree(&t, &want);
    hashed.end_at = 0;
    r.k = 2 * K; // of which the drafter gives K
    p = ask(d, &r);
    t = grow_tree(&r, &p, 60);
    int first = 0;
    for (int i = 1; i < t.n; i++)
        first += t.parent[i] == 0;
    assert_in_range(first, 1, K);
    static const int32_t odd[] = {1 << 30, 4};
    r.k = 1;
    p = ask(d, &r);
    p.n_chains = 1;
    p.chains[0] = (struct draft_chain){odd, 2, -0.01f};
    t = grow_tree(&r, &p, 20);
    assert_true(ddtree_child(&t, 0, 1 << 30) > 0);
    struct err e = {0};
    struct proposal *all[MEMBERS + 1] = {0};
    assert_int_equal(drafter_propose(d, &r, MEMBERS + 1, all, &e), ERR_USAGE);
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
        cmocka_unit_test(test_tree), cmocka_unit_test(test_depth),  cmocka_unit_test(test_members),
        cmocka_unit_test(test_ends), cmocka_unit_test(test_handle),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
