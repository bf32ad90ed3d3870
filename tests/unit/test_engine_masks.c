// SPDX-License-Identifier: Apache-2.0
// The engine thread with masks that take many steps: they have them in slices and in turns, and
// what requests say is what they say alone.
#include <stdatomic.h>
#include <stdlib.h>

#include "models/model.h"
#include "ops/exec.h"
#include "spec/constraint/constraint.h"
#include "support/wait.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

static int setup(void **state) {
    static const int lengths[] = {1, 31, 33, 64, 95, 130, 199, 240, 65, 2, 128, 70};
    static struct engine_rig f;
    *state = &f;
    return rig_open(&f, "engine-masks", lengths, RIG_MAX, 60);
}

static int teardown(void **state) {
    rig_close(*state);
    return 0;
}

// Constraints that allow everything, with masks of many steps for each token; the first one notes
// how many steps all of them take between two of its tokens.
enum { SLOW_STEPS = 3 << 20, SLOW_BETWEEN = 2 << 20 };

struct slow_masks {
    atomic_bool submitted; // all of them
    int64_t work;          // of all
    int64_t seen, max;     // at the first one's last token, -1: none; between two of these
};

struct slow_mask {
    struct slow_masks *all;
    bool first;
    bool at_once;  // all steps of a mask are taken in one call, or none is kept
    int64_t steps; // of a mask
    int64_t later; // more of one after a token
    int64_t work, allowed;
};

struct constraint_state {
    int64_t left; // steps that its mask still takes
};

static void slow_destroy(void *self) {
    (void)self;
}

static int slow_begin(void *self, struct constraint_state **out, struct err *e) {
    const struct slow_mask *m = self;
    struct constraint_state *s = malloc(sizeof *s);
    (void)e;
    WAIT_UNTIL(atomic_load(&m->all->submitted)); // so that they run side by side
    assert_non_null(s);
    s->left = m->steps;
    *out = s;
    return 0;
}

static int slow_next(void *self, struct constraint_state *from, int32_t token,
                     struct constraint_state **out, struct err *e) {
    struct slow_mask *m = self;
    struct slow_masks *all = m->all;
    (void)from, (void)token;
    if (m->first && all->seen >= 0 && all->work - all->seen > all->max)
        all->max = all->work - all->seen;
    if (m->first)
        all->seen = all->work;
    (void)slow_begin(self, out, e);
    (*out)->left += m->later;
    return 0;
}

static void slow_drop(void *self, struct constraint_state *s) {
    (void)self;
    free(s);
}

static bool slow_allows(void *self, struct constraint_state *s, int32_t token) {
    (void)self, (void)s, (void)token;
    return true;
}

static int slow_look(void *self, struct constraint_state *s, struct constraint_view *out,
                     struct err *e) {
    struct slow_mask *m = self;
    int64_t can = m->allowed > m->work ? m->allowed - m->work : 0;
    int64_t steps = s->left < can ? s->left : can;
    s->left -= m->at_once && steps < s->left ? 0 : steps;
    m->work += steps;
    m->all->work += steps;
    *out = (struct constraint_view){.only = -1};
    return s->left ? err_set(e, ERR_UNFINISHED, "the mask takes more steps") : 0;
}

static enum constraint_hint slow_hint(void *self, struct constraint_state *s, int32_t *token) {
    (void)self, (void)s, (void)token;
    return CONSTRAINT_NO_HINT;
}

static int64_t slow_work(void *self) {
    return ((struct slow_mask *)self)->work;
}

static void slow_allow(void *self, int64_t steps) {
    struct slow_mask *m = self;
    m->allowed = steps < INT64_MAX - m->work ? m->work + steps : INT64_MAX;
}

static struct stream *ask_slowly(struct engine_rig *f, struct engine *g, const struct request *of,
                                 struct slow_mask *m) {
    static const struct constraint_class class = {"slow",    slow_destroy, slow_begin, slow_next,
                                                  slow_drop, slow_allows,  slow_look,  slow_hint,
                                                  slow_work, slow_allow};
    int64_t vocab = model_params_of(session_model(f->session))->vocab;
    struct request r = *of;
    assert_int_equal(constraint_create(&r.constraint, &class, m, vocab, NULL), 0);
    struct stream *s = rig_submit(f, g, &r);
    constraint_drop(r.constraint); // the stream keeps it
    return s;
}

// The first n requests of the rig with masks, all but the first one's of that many steps. Returns
// the most steps between two tokens of that one.
static int64_t run_slow_masks(struct engine_rig *f, int n, int64_t steps, bool at_once) {
    struct engine_options o = engine_options_default();
    struct stream *s[RIG_MAX];
    struct slow_mask masks[RIG_MAX];
    struct slow_masks all = {.seen = -1};
    o.slots = RIG_MAX;
    struct engine *g = rig_engine(f, &o);
    for (int i = 0; i < n; i++) {
        masks[i] = (struct slow_mask){.all = &all,
                                      .first = i == 0,
                                      .at_once = at_once,
                                      .steps = i ? steps : 0,
                                      .allowed = INT64_MAX};
        s[i] = ask_slowly(f, g, &f->r[i], &masks[i]);
    }
    atomic_store(&all.submitted, true);
    for (int i = 0; i < n; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &f->alone[i]);
        stream_release(s[i]);
    }
    engine_destroy(g);
    return all.max;
}

// Members whose masks take much work get it in slices and in turns, concurrently with a member that
// goes on, and what they say is what they say alone.
static void slow_masks_take_turns(void **state) {
    struct engine_rig *f = *state;
    assert_in_range(run_slow_masks(f, f->n, SLOW_STEPS, false), SLOW_STEPS / 4, SLOW_BETWEEN);
}

// A mask of which slices keep nothing is made all the same, whatever it takes.
static void slow_masks_at_once(void **state) {
    enum { STEPS = 3 * CONSTRAINT_STEPS };
    assert_in_range(run_slow_masks(*state, 3, STEPS, true), STEPS / 4, 2 * STEPS);
}

// Requests with slow masks that come one after another do not keep the turn from one that is here.
static void slow_masks_of_newcomers(void **state) {
    enum { NEW = 30, STEPS = 1 << 20 };
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream *s[1 + NEW];
    struct slow_mask masks[1 + NEW];
    struct slow_masks all = {0};
    o.slots = 3;
    struct engine *g = rig_engine(f, &o);
    for (int i = 0; i <= NEW; i++) {
        struct request r = f->r[0];
        if (i)
            r.n_prompt = r.max_tokens = 1;
        masks[i] = (struct slow_mask){
            .all = &all, .first = i == 0, .steps = i ? STEPS : SLOW_STEPS, .allowed = INT64_MAX};
        s[i] = ask_slowly(f, g, &r, &masks[i]);
    }
    atomic_store(&all.submitted, true);
    for (int i = 0; i <= NEW; i++) {
        struct stream_end end = rig_end(f, s[i]);
        assert_int_equal(end.rc, 0);
        if (i == 0)
            rig_same(s[i], &end, &f->alone[i]);
        stream_release(s[i]);
    }
    engine_destroy(g);
    assert_in_range(all.max, SLOW_STEPS, 4 * SLOW_STEPS);
}

static int count_piece(void *arg, int64_t done, int64_t n) {
    (void)done, (void)n;
    ++*(int *)arg;
    return 0;
}

// A member that waits for its mask keeps its pace during a prompt, which is read in small pieces.
static void a_mask_is_not_late_for_a_prompt(void **state) {
    enum { LONG = 7 };
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct slow_masks all = {.seen = -1, .submitted = true};
    struct slow_mask mask = {.all = &all, .later = INT64_C(1) << 50, .allowed = INT64_MAX};
    struct request r = f->r[LONG];
    int pieces = 0;
    o.slots = 2;
    o.max_gap_ms = 1e-6;
    struct engine *g = rig_engine(f, &o);
    r.progress = count_piece;
    r.progress_arg = &pieces;
    for (int i = 0; i < 4; i++) { // so that it is known what passes take
        struct stream *s = rig_submit(f, g, &f->r[LONG - 1]);
        (void)rig_end(f, s);
        stream_release(s);
    }
    struct stream *slow = ask_slowly(f, g, &f->r[0], &mask);
    rig_tokens(f, slow, 1);
    struct stream *s = rig_submit(f, g, &r);
    rig_tokens(f, s, 1);
    stream_release(slow);
    struct stream_end end = rig_end(f, s);
    rig_same(s, &end, &f->alone[LONG]);
    stream_release(s);
    engine_destroy(g);
    assert_true(pieces >= 7); // of 240 tokens, 32 each
}

// On a device masks are made while it computes, as far as a pass allows. Where one takes more,
// those of some passes to come are made before.
static void slow_masks_in_a_pass(void **state) {
    enum { STEPS = 60000 }; // more than one of nine may take in a pass
    struct engine_rig *f = *state;
    struct engine_options o = engine_options_default();
    struct stream *s[RIG_MAX];
    struct slow_mask masks[RIG_MAX];
    struct slow_masks all = {.seen = -1};
    int64_t tokens = 0, again = 0;
    o.slots = RIG_MAX;
    struct engine *g = rig_engine(f, &o);
    struct exec *x = model_exec(session_model(engine_session(g)));
    static struct ops batched; // until the engine is gone
    batched = *exec_ops(x);
    batched.sample_batched = true;
    x->ops = &batched;
    for (int i = 0; i < f->n; i++) {
        masks[i] =
            (struct slow_mask){.all = &all, .at_once = true, .steps = STEPS, .allowed = INT64_MAX};
        s[i] = ask_slowly(f, g, &f->r[i], &masks[i]);
    }
    atomic_store(&all.submitted, true);
    for (int i = 0; i < f->n; i++) {
        struct stream_end end = rig_end(f, s[i]);
        rig_same(s[i], &end, &f->alone[i]);
        tokens += end.tokens;
        again += end.recomputed;
        stream_release(s[i]);
    }
    engine_destroy(g);
    assert_true(again > 0); // some 16 rows each time
    assert_true(again < 4 * tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_masks_take_turns),           cmocka_unit_test(slow_masks_at_once),
        cmocka_unit_test(slow_masks_of_newcomers),         cmocka_unit_test(slow_masks_in_a_pass),
        cmocka_unit_test(a_mask_is_not_late_for_a_prompt),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
