// SPDX-License-Identifier: Apache-2.0
// The tree builder against brute force: for drafters of each kind every prefix that
// spec/tree/ddtree.h says is offered is enumerated and sorted by the order that it states, and the
// first b of them must be the tree, in every field.
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "spec/tree/ddtree.h"
#include "unit/test.h"

enum { MAX_REFS = 60000, SMALL_DEPTH = 5, SMALL_K = 4 };

// A drafter that answers for whole paths, and records how it is called.
struct path_drafter {
    uint64_t seed;
    int levels; // few values make equal scores frequent
    bool hostile;
    const struct proposal *table; // NULL, or it answers from this one, by depth alone
    int calls, called, fail_at;   // fail_at: the call that fails, 0 for none
    int width;
    struct tree_node seen[40 * TREE_MAX_ROWS];
    int32_t ids[TREE_MAX_ROWS * TREE_MAX_K];
    float logp[TREE_MAX_ROWS * TREE_MAX_K];
};

static float hostile_logp(uint64_t h, float lp) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 2.5f};
    return h % 5 ? lp : bad[h / 5 % 4];
}

// The k candidates that it offers after a path.
static void path_candidates(const struct path_drafter *d, const int32_t *path, int depth, int k,
                            int32_t *ids, float *logp) {
    uint64_t h = d->seed;
    for (int i = 0; i < depth; i++)
        h = rng_hash(h, (uint64_t)path[i], 1, 0);
    for (int r = 0; r < k; r++) {
        uint64_t x = rng_hash(h, (uint64_t)r, 2, 0);
        ids[r] = (int32_t)(d->hostile ? x % 7 : (h + 3 * (uint64_t)r) % 7);
        logp[r] = -0.25f * (float)((x >> 20) % (uint64_t)d->levels);
        if (d->hostile)
            logp[r] = hostile_logp(x >> 40, logp[r]);
        if (d->table && r < d->table->k) {
            ids[r] = d->table->ids[depth * d->table->k + r];
            logp[r] = d->table->logp[depth * d->table->k + r];
        } else if (d->table) {
            logp[r] = NAN;
        }
    }
}

static int path_expand(void *arg, const struct tree_node *nodes, int n, int k,
                       struct tree_candidates *out, struct err *e) {
    struct path_drafter *d = arg;
    if (++d->calls == d->fail_at)
        return err_set(e, ERR_DEVICE, "the drafter fails");
    assert_in_range(n, 1, d->width > 0 ? d->width : 1);
    for (int i = 0; i < n; i++) {
        const struct tree_node *x = &nodes[i];
        assert_int_equal(x->depth, nodes[0].depth);
        if (x->depth == 0) {
            assert_int_equal(x->parent, -1);
            assert_int_equal(d->called, 0);
            assert_true(x->score == 0);
        } else { // the path of a node that was requested before, and one token
            assert_in_range(x->parent, 0, d->called - 1);
            const struct tree_node *up = &d->seen[x->parent];
            assert_int_equal(x->depth, up->depth + 1);
            assert_memory_equal(x->path, up->path, (size_t)up->depth * sizeof *x->path);
            assert_true(x->score <= up->score);
        }
        path_candidates(d, x->path, x->depth, k, d->ids + i * k, d->logp + i * k);
        d->seen[d->called++] = *x;
    }
    *out = (struct tree_candidates){d->ids, d->logp, NULL};
    return 0;
}

struct ref {
    double score;
    int depth, rank, seed; // seed: place in the seeded chain, 0 for none
    int32_t token;
    struct ref *parent; // NULL: the root
    int32_t path[8];
    int origin;
};

struct brute {
    const struct proposal *p;
    const struct tree_options *o;
    struct ref *nodes[MAX_REFS];
    int n;
};

struct option_ref {
    int32_t token;
    double step;
    int origin;
};

static int option_order(const void *x, const void *y) {
    const struct option_ref *a = x, *b = y;
    if (a->step != b->step)
        return a->step > b->step ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

static void option_merge(struct option_ref *list, int *n, int32_t token, float logp, int origin) {
    if (isnan(logp) || isinf(logp))
        return;
    double step = logp > 0 ? 0 : (double)logp;
    for (int i = 0; i < *n; i++)
        if (list[i].token == token) {
            list[i].step = list[i].step > step ? list[i].step : step;
            list[i].origin |= origin;
            return;
        }
    list[(*n)++] = (struct option_ref){token, step, origin};
}

// A table of pairs as a drafter has it.
struct pairs {
    const float *at; // [depth - 1][k][k]
    int k;
};

static const float *table_pair(void *arg, int d, int q) {
    const struct pairs *t = arg;
    return t->at + ((ptrdiff_t)d * t->k + q) * t->k;
}

// The log-probabilities of depth + 1 after a path of `depth` tokens.
static const float *row_after(const struct proposal *p, const int32_t *path, int depth) {
    if (p->pair && depth > 0)
        for (int q = 0; q < p->k; q++)
            if (p->ids[(depth - 1) * p->k + q] == path[depth - 1])
                return p->pair(p->pair_arg, depth - 1, q);
    return p->logp + depth * p->k;
}

// All steps that may follow a path of `depth` tokens, sorted.
static int options_below(const struct brute *b, const int32_t *path, int depth,
                         struct option_ref *list) {
    int n = 0;
    const struct proposal *p = b->p;
    if (depth < p->depth && p->expand) {
        int32_t ids[SMALL_K];
        float logp[SMALL_K];
        path_candidates(p->expand_arg, path, depth, b->o->k, ids, logp);
        for (int r = 0; r < b->o->k; r++)
            option_merge(list, &n, ids[r], logp[r], TREE_BY_CANDIDATES);
    } else if (depth < p->depth) {
        const float *row = row_after(p, path, depth);
        for (int r = 0; r < p->k && (p->pair || r < b->o->k); r++)
            option_merge(list, &n, p->ids[depth * p->k + r], row[r], TREE_BY_CANDIDATES);
        qsort(list, (size_t)n, sizeof *list, option_order);
        n = n < b->o->k ? n : b->o->k;
    }
    for (int c = 0; c < p->n_chains; c++) {
        const struct draft_chain *ch = &p->chains[c];
        if (ch->len > depth && memcmp(ch->ids, path, (size_t)depth * sizeof *path) == 0)
            option_merge(list, &n, ch->ids[depth], ch->logp, TREE_BY_CHAIN);
    }
    qsort(list, (size_t)n, sizeof *list, option_order);
    return n;
}

static void offer(struct brute *b, struct ref *parent) {
    static const int32_t none[8] = {0};
    const int32_t *path = parent ? parent->path : none;
    int depth = parent ? parent->depth : 0;
    struct option_ref list[16];
    int n = depth < b->o->max_depth ? options_below(b, path, depth, list) : 0;
    for (int r = 0; r < n; r++) {
        double score = (parent ? parent->score : 0) + list[r].step;
        if (b->o->min_prob > 0 && score < log(b->o->min_prob))
            continue;
        struct ref *node = calloc(1, sizeof *node);
        assert_non_null(node);
        *node = (struct ref){score, depth + 1, r, 0, list[r].token, parent, {0}, list[r].origin};
        memcpy(node->path, path, (size_t)depth * sizeof *path);
        node->path[depth] = node->token;
        bool on_chain = !parent || parent->seed > 0;
        if (b->o->chain_seed && r == 0 && on_chain && depth < b->o->budget)
            node->seed = depth + 1;
        assert_true(b->n < MAX_REFS);
        b->nodes[b->n++] = node;
    }
}

static int ref_order(const struct ref *a, const struct ref *b) {
    if (a == b)
        return 0;
    if (!a || !b)
        return a ? 1 : -1; // the root has index 0
    if (a->seed || b->seed)
        return (a->seed ? a->seed : 1000) - (b->seed ? b->seed : 1000);
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->depth != b->depth)
        return a->depth - b->depth;
    int by_parent = ref_order(a->parent, b->parent);
    return by_parent ? by_parent : a->rank - b->rank;
}

static int ref_compare(const void *x, const void *y) {
    return ref_order(*(struct ref *const *)x, *(struct ref *const *)y);
}

// Depth by depth; of each depth those nodes offer children that the proposal's width admits.
static void enumerate(struct brute *b) {
    int from = 0, to;
    offer(b, NULL);
    for (int depth = 1; from < b->n; depth++, from = to) {
        bool narrow = b->p->expand && b->p->width > 0 && depth < b->p->depth;
        to = b->n;
        qsort(b->nodes + from, (size_t)(to - from), sizeof *b->nodes, ref_compare);
        for (int i = from; i < to && !(narrow && i - from >= b->p->width); i++)
            offer(b, b->nodes[i]);
    }
    qsort(b->nodes, (size_t)b->n, sizeof *b->nodes, ref_compare);
}

// Builds both ways and compares. Returns the number of nodes besides the root.
static int check(const struct proposal *p, const struct tree_options *o) {
    static struct brute b;
    b = (struct brute){.p = p, .o = o};
    enumerate(&b);
    struct ddtree t;
    assert_int_equal(ddtree_build(&t, 77, p, o, NULL), 0);
    int want = b.n < o->budget ? b.n : o->budget;
    assert_int_equal(t.n, 1 + want);
    assert_int_equal(t.token[0], 77);
    assert_int_equal(t.parent[0], -1);
    assert_int_equal(t.depth[0], 0);
    for (int i = 0; i < want; i++) {
        const struct ref *r = b.nodes[i];
        int parent = 0;
        for (int j = 0; r->parent && j < want; j++)
            if (b.nodes[j] == r->parent)
                parent = j + 1;
        assert_int_equal(t.token[i + 1], r->token);
        assert_int_equal(t.parent[i + 1], parent);
        assert_int_equal(t.depth[i + 1], r->depth);
        assert_true(t.score[i + 1] == r->score);
        assert_int_equal(t.origin[i + 1], r->origin);
    }
    for (int i = 0; i < b.n; i++)
        free(b.nodes[i]);
    return want;
}

struct sample {
    int32_t ids[4 * 4], chain[2][5];
    float logp[4 * 4], pair[3 * 4 * 4];
    struct pairs pairs;
    struct path_drafter paths;
    struct proposal p;
};

enum kind { BY_DEPTH, BY_PAIR, BY_PATH, BY_LEVEL, KINDS };

// The log-probabilities of a random drafter of the kind; ids are distinct, and best first where
// candidates depend on the depth alone, unless it is hostile.
static void random_kind(struct sample *s, struct rng *g, int levels, enum kind kind, bool hostile) {
    struct proposal *p = &s->p;
    for (int i = 0; i < p->depth * p->k && hostile; i++) {
        s->ids[i] = (int32_t)rng_below(g, 7);
        s->logp[i] = hostile_logp(rng_below(g, 1000), s->logp[i]);
    }
    for (int i = 0; i < (p->depth - 1) * p->k * p->k; i++) {
        s->pair[i] = -0.25f * (float)rng_below(g, (uint32_t)levels);
        if (hostile)
            s->pair[i] = hostile_logp(rng_below(g, 1000), s->pair[i]);
    }
    s->pairs = (struct pairs){s->pair, p->k};
    if (kind == BY_PAIR) {
        p->pair = table_pair;
        p->pair_arg = &s->pairs;
    }
    if (kind == BY_DEPTH || kind == BY_PAIR)
        return;
    s->paths.seed = rng_below(g, 1 << 30);
    s->paths.levels = levels;
    s->paths.hostile = hostile;
    s->paths.width = kind == BY_LEVEL ? 1 + (int)rng_below(g, 12) : 0;
    p->expand = path_expand;
    p->expand_arg = &s->paths;
    p->width = s->paths.width;
    p->k = 0; // neither is read
    p->ids = NULL;
}

// Sorted candidates with distinct ids; `levels` few values make equal scores frequent.
static void random_proposal(struct sample *s, struct rng *g, int levels) {
    memset(s, 0, sizeof *s);
    s->p = (struct proposal){.depth = (int)rng_below(g, 5),
                             .k = 1 + (int)rng_below(g, 4),
                             .ids = s->ids,
                             .logp = s->logp};
    for (int d = 0; d < s->p.depth; d++) {
        int32_t base = (int32_t)rng_below(g, 5);
        float lp = 0;
        for (int r = 0; r < s->p.k; r++) {
            lp -= 0.25f * (float)rng_below(g, (uint32_t)levels);
            s->ids[d * s->p.k + r] = (base + 3 * r) % 7;
            s->logp[d * s->p.k + r] = lp;
        }
    }
    s->p.n_chains = (int)rng_below(g, 3);
    for (int c = 0; c < s->p.n_chains; c++) {
        for (int d = 0; d < 5; d++)
            s->chain[c][d] =
                rng_below(g, 2) && d < s->p.depth ? s->ids[d * s->p.k] : (int32_t)rng_below(g, 8);
        s->p.chains[c] = (struct draft_chain){s->chain[c], (int)rng_below(g, 6),
                                              -0.25f * (float)rng_below(g, 4)};
    }
}

static void brute_force(enum kind kind, bool hostile) {
    struct rng g = {1 + (uint64_t)kind};
    int sizes[4] = {0};
    static struct sample s;
    for (int i = 0; i < 4000; i++) {
        int levels = i % 2 ? 3 : 40;
        random_proposal(&s, &g, levels);
        random_kind(&s, &g, levels, kind, hostile);
        static const double probs[] = {0, 0, 0, 0.2, 0.01};
        struct tree_options o = {.budget = (int)rng_below(&g, 40),
                                 .k = 1 + (int)rng_below(&g, 4),
                                 .max_depth = (int)rng_below(&g, 6),
                                 .chain_seed = rng_below(&g, 2),
                                 .min_prob = probs[rng_below(&g, 5)]};
        int n = check(&s.p, &o);
        assert_true(!s.paths.width || s.paths.calls <= o.max_depth); // one draft pass a depth
        sizes[n == 0 ? 0 : n < s.p.depth ? 1 : n == s.p.depth ? 2 : 3]++;
    }
    // No tree, fewer nodes than the depth, as many, and more: all must have been met.
    for (int i = 0; i < 4; i++)
        assert_true(sizes[i] > 50);
}

static void test_brute_force(void **state) {
    (void)state;
    for (enum kind kind = 0; kind < KINDS; kind++) {
        brute_force(kind, false);
        brute_force(kind, true);
    }
}

enum { BIG_DEPTH = 34, BIG_K = TREE_MAX_K };

struct large {
    int32_t ids[BIG_DEPTH * BIG_K], chain[3][40];
    float logp[BIG_DEPTH * BIG_K], pair[(BIG_DEPTH - 1) * BIG_K * BIG_K];
    struct proposal p;
};

// Best first, equal ones by id, as every drafter of the kind must give them for one result.
static void random_large(struct large *l, struct rng *g) {
    int depth = 1 + (int)rng_below(g, BIG_DEPTH), k = 1 + (int)rng_below(g, BIG_K);
    l->p = (struct proposal){.depth = depth, .k = k, .ids = l->ids, .logp = l->logp};
    float slope = 0.05f * (float)(1 + rng_below(g, 40));
    for (int d = 0; d < depth; d++) {
        float lp = -slope * (float)rng_below(g, 3);
        for (int r = 0; r < k; r++) {
            lp -= slope * (float)rng_below(g, 3);
            l->ids[d * k + r] = (int32_t)rng_below(g, 40) + 40 * r;
            l->logp[d * k + r] = lp;
        }
    }
    for (int i = 0; i < (depth - 1) * k * k; i++)
        l->pair[i] = l->logp[(i / (k * k) + 1) * k + i % k];
    l->p.n_chains = (int)rng_below(g, 4);
    for (int c = 0; c < l->p.n_chains; c++) {
        for (int d = 0; d < 40; d++)
            l->chain[c][d] =
                d < depth && rng_below(g, 4) ? l->ids[d * k] : (int32_t)rng_below(g, 40);
        l->p.chains[c] = (struct draft_chain){l->chain[c], (int)rng_below(g, 40),
                                              -slope * (float)rng_below(g, 4)};
    }
}

// A drafter whose candidates depend on the depth alone, in the form of each other kind.
static void test_same_in_all_kinds(void **state) {
    (void)state;
    static struct large l;
    static struct path_drafter d;
    struct rng g = {9};
    int64_t nodes = 0, one_by_one = 0, by_level = 0, passes = 0;
    for (int i = 0; i < 1500; i++) {
        random_large(&l, &g);
        struct tree_options o = {.budget = (int)rng_below(&g, TREE_MAX_BUDGET + 1),
                                 .k = 1 + (int)rng_below(&g, BIG_K),
                                 .max_depth = (int)rng_below(&g, TREE_MAX_DEPTH + 1),
                                 .chain_seed = rng_below(&g, 2),
                                 .min_prob = rng_below(&g, 4) ? 0 : 1e-3};
        struct ddtree a, b;
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        assert_int_equal(ddtree_build(&a, 5, &l.p, &o, NULL), 0);
        nodes += a.n - 1;
        struct proposal other = l.p;
        struct pairs pairs = {l.pair, l.p.k};
        other.pair = table_pair;
        other.pair_arg = &pairs;
        assert_int_equal(ddtree_build(&b, 5, &other, &o, NULL), 0);
        assert_memory_equal(&a, &b, sizeof a);
        other.expand = path_expand;
        other.expand_arg = &d;
        for (int level = 0; level < 2; level++) {
            memset(&d, 0, offsetof(struct path_drafter, seen));
            d.levels = 1;
            d.table = &l.p;
            other.width = d.width = level ? TREE_MAX_ROWS : 0;
            assert_int_equal(ddtree_build(&b, 5, &other, &o, NULL), 0);
            assert_memory_equal(&a, &b, sizeof a);
            *(level ? &by_level : &one_by_one) += d.called;
            passes += level ? d.calls : 0;
            assert_true(level || d.called <= o.budget);
        }
    }
    assert_true(nodes > 60000);
    assert_true(one_by_one < nodes);   // the last nodes of a tree are not requested
    assert_true(by_level < 2 * nodes); // more, because deeper ones may push them out
    assert_true(5 * passes < one_by_one);
}

enum { TREES = 5 };

struct together {
    struct sample s[TREES];
    struct path_drafter again[TREES]; // the drafters before their calls
    struct ddtree_build *b[TREES];
    struct tree_options o[TREES];
    int turns, alone;
};

static void begin_trees(struct together *t, struct rng *g, bool one_by_one, bool hostile) {
    for (int i = 0; i < TREES; i++) {
        random_proposal(&t->s[i], g, 9);
        random_kind(&t->s[i], g, 9, i == 0 && one_by_one ? BY_PATH : BY_LEVEL, hostile);
        t->again[i] = t->s[i].paths;
        t->o[i] = (struct tree_options){.budget = (int)rng_below(g, 40),
                                        .k = 1 + (int)rng_below(g, 4),
                                        .max_depth = (int)rng_below(g, 6),
                                        .chain_seed = rng_below(g, 2)};
        ddtree_start(t->b[i], 70 + i, &t->s[i].p, &t->o[i]);
    }
}

// Requests of all trees come before the first answer.
static void grow_trees(struct together *t) {
    int n[TREES], growing = TREES;
    for (int i = 0; i < TREES; i++)
        n[i] = 1;
    for (; growing; t->turns++) {
        const struct tree_node *nodes[TREES];
        struct tree_candidates answer;
        growing = 0;
        for (int i = 0; i < TREES; i++) {
            n[i] = n[i] ? ddtree_level(t->b[i], &nodes[i]) : 0;
            growing += n[i] > 0;
        }
        for (int i = 0; i < TREES; i++) {
            int k = ddtree_candidates(t->b[i]);
            if (!n[i])
                continue;
            assert_int_equal(path_expand(&t->s[i].paths, nodes[i], n[i], k, &answer, NULL), 0);
            ddtree_answer(t->b[i], &answer);
        }
    }
}

static void check_trees(struct together *t) {
    for (int i = 0; i < TREES; i++) {
        struct ddtree got, want;
        memset(&got, 0, sizeof got);
        memset(&want, 0, sizeof want);
        ddtree_finish(t->b[i], &got);
        t->s[i].p.expand_arg = &t->again[i];
        assert_int_equal(ddtree_build(&want, 70 + i, &t->s[i].p, &t->o[i], NULL), 0);
        assert_memory_equal(&got, &want, sizeof got);
        assert_int_equal(t->s[i].paths.called, t->again[i].called);
        t->alone += t->again[i].calls;
    }
}

// Trees that grow together, answered in turns, are those that grow alone.
static void test_together(void **state) {
    (void)state;
    static struct together t;
    struct rng g = {17};
    for (int i = 0; i < TREES; i++) {
        t.b[i] = malloc(ddtree_build_bytes());
        assert_non_null(t.b[i]);
        memset(t.b[i], 0xA5, ddtree_build_bytes());
    }
    for (int round = 0; round < 400; round++) {
        begin_trees(&t, &g, round % 2 == 0, round % 4 == 0);
        grow_trees(&t);
        check_trees(&t);
    }
    assert_true(3 * t.turns < 2 * t.alone);
    for (int i = 0; i < TREES; i++)
        free(t.b[i]);
}

// The first failure of the drafter ends the tree: the root is left, and the sentence is passed on.
static void test_failure(void **state) {
    (void)state;
    static struct path_drafter d;
    struct proposal p = {.depth = 5, .expand = path_expand, .expand_arg = &d};
    struct tree_options o = {.budget = 20, .k = 3, .max_depth = 5};
    for (int width = 0; width < 8; width += 4)
        for (int fail = 1; fail < 4; fail++) {
            struct err e = {0};
            struct ddtree t;
            memset(&d, 0, offsetof(struct path_drafter, seen));
            d.levels = 9;
            d.fail_at = fail;
            p.width = d.width = width;
            assert_int_equal(ddtree_build(&t, 8, &p, &o, &e), ERR_DEVICE);
            assert_string_equal(e.text, "the drafter fails");
            assert_int_equal(d.calls, fail);
            assert_int_equal(t.n, 1);
            assert_int_equal(t.token[0], 8);
            assert_int_equal(t.parent[0], -1);
        }
}

static void test_bad_candidates(void **state) {
    (void)state;
    int32_t ids[] = {4, 4, 9, 2, 5, 5, 5, 1};
    float logp[] = {-1, -0.5f, NAN, INFINITY, 3, -1, -INFINITY, -2};
    struct proposal p = {.depth = 2, .k = 4, .ids = ids, .logp = logp};
    struct tree_options o = {.budget = 20, .k = 4, .max_depth = 32};
    assert_int_equal(check(&p, &o), 3); // 4; 4 5; 4 1
}

static void test_chain(void **state) {
    (void)state;
    int32_t ids[15 * 2];
    float logp[15 * 2];
    for (int d = 0; d < 15; d++) {
        ids[2 * d] = 100 + d;
        ids[2 * d + 1] = 200 + d;
        logp[2 * d] = logp[2 * d + 1] = -1;
    }
    struct proposal p = {.depth = 15, .k = 2, .ids = ids, .logp = logp};
    struct tree_options one = {.budget = 15, .k = 1, .max_depth = 32};
    struct tree_options seeded = {.budget = 15, .k = 2, .max_depth = 32, .chain_seed = true};
    struct ddtree a, b;
    ddtree_build(&a, 5, &p, &one, NULL);
    ddtree_build(&b, 5, &p, &seeded, NULL);
    assert_int_equal(a.n, 16);
    assert_int_equal(b.n, 16);
    for (int i = 1; i < 16; i++) {
        assert_int_equal(a.token[i], 99 + i);
        assert_int_equal(a.parent[i], i - 1);
        assert_int_equal(b.token[i], a.token[i]);
        assert_int_equal(b.parent[i], a.parent[i]);
    }
}

static void test_limits(void **state) {
    (void)state;
    static int32_t ids[40 * TREE_MAX_K];
    static float logp[40 * TREE_MAX_K];
    for (int d = 0; d < 40; d++)
        for (int r = 0; r < TREE_MAX_K; r++) {
            ids[d * TREE_MAX_K + r] = r;
            logp[d * TREE_MAX_K + r] = -0.01f - 0.2f * (float)r;
        }
    struct proposal p = {.depth = 40, .k = TREE_MAX_K, .ids = ids, .logp = logp};
    struct tree_options o = {.budget = 500, .k = 500, .max_depth = 500};
    for (int seed = 0; seed < 2; seed++) {
        o.chain_seed = seed;
        struct ddtree t;
        ddtree_build(&t, 0, &p, &o, NULL);
        assert_int_equal(t.n, TREE_MAX_ROWS);
        int deepest = 0;
        for (int i = 1; i < t.n; i++) {
            assert_in_range(t.parent[i], 0, i - 1);
            assert_int_equal(t.depth[i], t.depth[t.parent[i]] + 1);
            assert_int_equal(ddtree_child(&t, t.parent[i], t.token[i]), i); // distinct siblings
            deepest = t.depth[i] > deepest ? t.depth[i] : deepest;
        }
        assert_int_equal(deepest, TREE_MAX_DEPTH);
        assert_int_equal(ddtree_child(&t, 0, TREE_MAX_K), -1);
    }
    struct ddtree t;
    o.budget = 0;
    ddtree_build(&t, 3, &p, &o, NULL);
    assert_int_equal(t.n, 1);
    o.budget = -3;
    ddtree_build(&t, 3, &p, &o, NULL);
    assert_int_equal(t.n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_same_in_all_kinds),
        cmocka_unit_test(test_failure),     cmocka_unit_test(test_bad_candidates),
        cmocka_unit_test(test_chain),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
