// SPDX-License-Identifier: Apache-2.0
// Trees of members that grow together, level by level: one call of the drafter for all of a level,
// and the same trees, nodes requested and choices as each alone, with masks and without, of one
// drafter and of several. Errors of all drafters that were called are the step's, those of some
// only leave out what these guess.
#include <stdlib.h>

#include "base/rng.h"
#include "spec/constraint/masks.h"
#include "spec/step/step.h"
#include "support/automaton.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { MEMBERS = 4, DEPTH = 5, WIDTH = 3, STEPS = 20, PROMPT = 6 };

// A drafter whose candidates are a hash of root and path; it is several drafters' self, which
// differ in whether trees may grow together.
struct paths {
    bool together, flat; // flat: candidates depend on the depth alone, in a table
    uint64_t salt;
    int proposed; // calls of propose; fail_propose: all of these fail
    bool fail_propose;
    int calls, questions, nodes, fail_at; // calls of a level; 0: none fails
    struct own {
        struct paths *of;
        int32_t root;
        int32_t ids[WIDTH * TREE_MAX_K];
        float logp[WIDTH * TREE_MAX_K];
    } own[MEMBERS];
};

static int paths_create(void **self, const struct draft_config *c, struct err *e) {
    (void)e;
    *self = (void *)(uintptr_t)c->recording; // borrowed
    return 0;
}

static void paths_destroy(void *self) {
    (void)self;
}

static int paths_max_depth(const void *self) {
    (void)self;
    return DEPTH;
}

static bool paths_by_path(const void *self) {
    return ((const struct paths *)self)->together;
}

static void fill(const struct own *o, int at, int k, uint64_t h, int32_t *ids, float *logp) {
    for (int r = 0; r < k; r++) {
        ids[at + r] = (int32_t)((h + 7 * (uint64_t)r) % TINY_VOCAB);
        logp[at + r] = -0.3f - 0.4f * (float)r - (float)((h + o->of->salt) % 3);
    }
}

static void answer(struct tree_question *q) {
    struct own *o = q->arg;
    assert_in_range(q->n, 1, WIDTH);
    for (int i = 0; i < q->n; i++) {
        uint64_t h = (uint64_t)o->root + o->of->salt;
        for (int d = 0; d < q->nodes[i].depth; d++)
            h = rng_hash(h, (uint64_t)q->nodes[i].path[d], 1, 0);
        assert_int_equal(q->nodes[i].depth, q->nodes[0].depth);
        fill(o, i * q->k, q->k, h, o->ids, o->logp);
    }
    o->of->nodes += q->n;
    q->answer = (struct tree_candidates){o->ids, o->logp, NULL};
}

static int paths_expand_many(struct tree_question *q, int n, struct err *e) {
    struct paths *p = ((struct own *)q[0].arg)->of;
    if (++p->calls == p->fail_at)
        return err_set(e, ERR_DEVICE, "the level fails");
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(q[i].arg, q[j].arg);
        answer(&q[i]);
    }
    p->questions += n;
    return 0;
}

static int paths_expand(void *arg, const struct tree_node *nodes, int n, int k,
                        struct tree_candidates *out, struct err *e) {
    struct tree_question q = {arg, nodes, n, k, {0}};
    int rc = paths_expand_many(&q, 1, e);
    *out = q.answer;
    return rc;
}

static int paths_propose(void *self, const struct draft_request *r, int n,
                         struct proposal *const *out, struct err *e) {
    struct paths *p = self;
    p->proposed++;
    if (p->fail_propose)
        return err_set(e, ERR_MEMORY, "the draft fails");
    for (int i = 0; i < n; i++) {
        p->own[i].of = p;
        p->own[i].root = r[i].root;
        out[i]->depth = DEPTH;
        if (p->flat) {
            out[i]->k = WIDTH;
            out[i]->ids = p->own[i].ids;
            out[i]->logp = p->own[i].logp;
            for (int d = 0; d < DEPTH; d++)
                fill(&p->own[i], d * WIDTH, WIDTH, (uint64_t)r[i].root * 5 + (uint64_t)d,
                     p->own[i].ids, p->own[i].logp);
            continue;
        }
        out[i]->expand = paths_expand;
        out[i]->expand_arg = &p->own[i];
        out[i]->expand_many = paths_expand_many;
        out[i]->width = WIDTH;
    }
    return 0;
}

static const struct drafter_class paths_class = {.name = "paths",
                                                 .create = paths_create,
                                                 .destroy = paths_destroy,
                                                 .max_depth = paths_max_depth,
                                                 .propose = paths_propose,
                                                 .shared = true,
                                                 .by_path = paths_by_path};

static int setup(void **state) {
    static struct tiny_rig rig;
    const struct tiny_shape shape = tiny_shape_default();
    const struct model_options o = model_options_default();
    tiny_rig_open(&rig, &shape, NULL, &o, "auto", 1);
    *state = &rig;
    return 0;
}

static int teardown(void **state) {
    tiny_rig_close(*state);
    return 0;
}

// What members saw: the trees of each of their steps, and what was chosen.
struct seen {
    struct ddtree tree[MEMBERS][STEPS];
    struct walk walk[MEMBERS][STEPS];
};

enum { DRAFTS = 3 }; // two that depend on the path, one that does not

struct team {
    struct paths paths, more[DRAFTS - 1];
    struct drafter *drafter[DRAFTS];
    struct step *step;
    struct member m[MEMBERS];
    struct automaton *automaton[MEMBERS];
    int32_t prompt[MEMBERS][PROMPT];
};

// Members first .. first + n - 1: sizes of trees differ, the odd ones have masks, one of which
// allows few tokens or one at times.
// drafts: 1, or DRAFTS, of which members ask some or all.
static void open_team(struct team *t, const struct tiny_rig *f, bool together, int first, int n,
                      int drafts) {
    struct step_config s = {.model = f->m, .max_members = MEMBERS};
    struct member *in[MEMBERS];
    memset(t, 0, sizeof *t);
    t->paths.together = t->more[0].together = together;
    t->more[0].salt = 100;
    t->more[1].flat = true;
    for (int i = 0; i < drafts; i++) {
        const struct paths *p = i ? &t->more[i - 1] : &t->paths;
        struct draft_config d = {.recording = (const int32_t *)(const void *)p,
                                 .max_members = MEMBERS};
        assert_int_equal(drafter_create_class(&t->drafter[i], &paths_class, &d, NULL), 0);
        s.drafts[s.n_drafts++] = t->drafter[i];
    }
    assert_int_equal(step_create(&t->step, &s, NULL), 0);
    for (int i = 0; i < n; i++) {
        const int who = first + i;
        struct member *m = &t->m[i];
        struct member_config c = {.drafts = drafts == 1 ? 1 : who == 3 ? 7 : 7u ^ 1u << who};
        c.tree =
            (struct tree_options){.budget = 4 + 5 * who, .k = 1 + who, .max_depth = TREE_MAX_DEPTH};
        sample_params_init(&c.sample);
        c.sample.temperature = 0;
        if (who % 2)
            assert_int_equal(
                automaton_create(&t->automaton[i], TINY_VOCAB, false, (uint64_t)who * 31, NULL), 0);
        c.constraint = who % 2 ? t->automaton[i]->constraint : NULL;
        assert_int_equal(member_init(m, f->m, &c, NULL), 0);
        assert_int_equal(model_sequence(f->m, &m->seq, NULL), 0);
        for (int j = 0; j < PROMPT; j++)
            t->prompt[i][j] = 11 * who + j;
        m->phase = MEMBER_PROMPT;
        m->piece = t->prompt[i];
        m->n_piece = PROMPT;
        m->choose = true;
        m->limits = (struct walk_limits){.tokens_left = 500, .context_left = 500};
        in[i] = m;
    }
    assert_int_equal(step_run(t->step, in, n, NULL), 0);
    for (int i = 0; i < n; i++) {
        t->m[i].phase = MEMBER_DECODE;
        t->m[i].root = t->m[i].walk.chosen[0];
    }
}

static void close_team(struct team *t, int n) {
    for (int i = 0; i < n; i++) {
        member_fini(&t->m[i]);
        sequence_destroy(t->m[i].seq);
        if (t->automaton[i])
            constraint_drop(t->automaton[i]->constraint);
    }
    step_destroy(t->step);
    for (int i = 0; i < DRAFTS; i++)
        drafter_destroy(t->drafter[i]);
}

static void run_team(struct team *t, int first, int n, struct seen *out) {
    struct member *in[MEMBERS];
    for (int i = 0; i < n; i++)
        in[i] = &t->m[i];
    for (int s = 0; s < STEPS; s++) {
        assert_int_equal(step_run(t->step, in, n, NULL), 0);
        for (int i = 0; i < n; i++) {
            struct member *m = &t->m[i];
            assert_int_equal(m->rc, 0);
            memcpy(&out->tree[first + i][s], &m->tree, sizeof m->tree);
            memcpy(&out->walk[first + i][s], &m->walk, sizeof m->walk);
            m->root = m->walk.chosen[m->walk.count - 1];
        }
    }
}

static void same_tree(const struct ddtree *a, const struct ddtree *b) {
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->token[i], b->token[i]);
        assert_int_equal(a->parent[i], b->parent[i]);
        assert_int_equal(a->depth[i], b->depth[i]);
        assert_int_equal(a->origin[i], b->origin[i]);
        assert_true(a->score[i] == b->score[i]);
    }
}

static void same_as_alone(const struct tiny_rig *rig, int drafts) {
    static struct team t;
    static struct seen all, one[2];
    int calls[2] = {0}, questions = 0, nodes[3] = {0}, rows = 0;
    open_team(&t, rig, true, 0, MEMBERS, drafts);
    run_team(&t, 0, MEMBERS, &all);
    calls[0] = t.paths.calls;
    questions = t.paths.questions;
    nodes[0] = t.paths.nodes;
    close_team(&t, MEMBERS);
    for (int together = 0; together < 2; together++)
        for (int i = 0; i < MEMBERS; i++) {
            open_team(&t, rig, together, i, 1, drafts);
            run_team(&t, i, 1, &one[together]);
            calls[1] += together ? t.paths.calls : 0;
            nodes[1 + together] += t.paths.nodes;
            close_team(&t, 1);
        }
    for (int together = 0; together < 2; together++)
        for (int i = 0; i < MEMBERS; i++)
            for (int s = 0; s < STEPS; s++) {
                same_tree(&all.tree[i][s], &one[together].tree[i][s]);
                rows += all.tree[i][s].n;
                assert_int_equal(all.walk[i][s].count, one[together].walk[i][s].count);
                assert_int_equal(all.walk[i][s].chosen[0], one[together].walk[i][s].chosen[0]);
            }
    assert_true(rows > 2 * 2 * MEMBERS * STEPS); // there are guesses
    assert_int_equal(questions, calls[1]);
    assert_true(calls[0] <= DEPTH * STEPS && 3 * calls[0] < 2 * calls[1]);
    assert_int_equal(nodes[0], nodes[1]);
    assert_int_equal(nodes[0], nodes[2]);
    for (int i = 0; i < MEMBERS; i++) {
        unsigned all_of = 0, mixed = 0;
        for (int s = 0; s < STEPS; s++)
            for (int r = 1; r < all.tree[i][s].n; r++) {
                unsigned by = tree_drafts(all.tree[i][s].origin[r]);
                all_of |= by;
                mixed += (by & (by - 1)) != 0;
            }
        assert_int_equal(all_of, drafts == 1 ? 1 : i == 3 ? 7 : 7u ^ 1u << i);
        assert_true(drafts == 1 ? mixed == 0 : i == 3 ? mixed > 0 : true);
    }
}

static void test_same_as_alone(void **state) {
    same_as_alone(*state, 1);
    same_as_alone(*state, DRAFTS);
}

// To its next step; returns the drafts of its tree's guesses.
static unsigned go_on(struct member *m) {
    unsigned by = 0;
    assert_int_equal(m->rc, 0);
    assert_true(m->tree.n > 1);
    for (int r = 1; r < m->tree.n; r++)
        by |= tree_drafts(m->tree.origin[r]);
    m->root = m->walk.chosen[m->walk.count - 1];
    return by;
}

// A draft that fails, at once or at a level, is left out: the trees have guesses of the others, and
// after some such steps it is not called any more. Where all fail it is the step's failure.
static void test_some_fail(void **state) {
    static struct team t;
    struct member *in[MEMBERS];
    struct err e = {0};
    for (int level = 0; level < 2; level++) {
        int proposed = 0;
        open_team(&t, *state, true, 0, MEMBERS, DRAFTS);
        for (int i = 0; i < MEMBERS; i++)
            in[i] = &t.m[i];
        for (int s = 0; s < STEP_DRAFT_FAILURES + 2; s++) {
            unsigned by = 0;
            t.more[0].fail_propose = !level;
            t.more[0].fail_at = level ? t.more[0].calls + 1 : 0;
            assert_int_equal(step_run(t.step, in, MEMBERS, &e), 0);
            for (int i = 0; i < MEMBERS; i++)
                by |= go_on(&t.m[i]);
            assert_int_equal(by, 5);
            proposed = s == STEP_DRAFT_FAILURES - 1 ? t.more[0].proposed : proposed;
        }
        assert_int_equal(t.more[0].proposed, proposed);
        t.paths.fail_propose = t.more[1].fail_propose = true;
        int64_t len = sequence_len(t.m[0].seq);
        assert_int_equal(step_run(t.step, in, MEMBERS, &e), ERR_MEMORY);
        assert_string_equal(e.text, "the draft fails");
        assert_int_equal(sequence_len(t.m[0].seq), len);
        close_team(&t, MEMBERS);
    }
}

// The step fails whose level fails; nobody's state has changed, and after some such failures in a
// row the drafter is not called any more.
static void test_failures(void **state) {
    static struct team t;
    struct member *in[MEMBERS];
    struct err e = {0};
    open_team(&t, *state, true, 0, MEMBERS, 1);
    for (int i = 0; i < MEMBERS; i++)
        in[i] = &t.m[i];
    for (int i = 0; i < STEP_DRAFT_FAILURES; i++) {
        t.paths.fail_at = t.paths.calls + 2;
        assert_int_equal(step_run(t.step, in, MEMBERS, &e), ERR_DEVICE);
        assert_string_equal(e.text, "the level fails");
        for (int j = 0; j < MEMBERS; j++)
            assert_int_equal(sequence_len(t.m[j].seq), PROMPT);
    }
    int calls = t.paths.calls;
    assert_int_equal(step_run(t.step, in, MEMBERS, &e), 0);
    assert_int_equal(t.paths.calls, calls);
    assert_int_equal(sequence_len(t.m[0].seq), PROMPT + 1);
    close_team(&t, MEMBERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_alone),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_some_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
