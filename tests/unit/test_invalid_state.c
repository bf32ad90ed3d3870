// SPDX-License-Identifier: Apache-2.0
// Each op of a pass fails once. What was being written is refused from then on, what was there
// before and what only took part goes on as if nothing had been called, and a text whose state is
// lost is run again: its tokens are those of a run without failures.
#include <stdlib.h>

#include "engine/batch/transcript.h"
#include "ops/exec.h"
#include "support/faulty.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { LONG = 300, HELD = 100, MORE = 40 };

static void open_rig(struct tiny_rig *r) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    tiny_rig_open(r, &shape, &d, NULL, "auto", 1);
}

static void answers(struct tiny_rig *r, struct sequence *s, const struct tiny_answer *want) {
    struct tiny_answer got = tiny_rig_ask(r, s);
    assert_memory_equal(&got, want, sizeof got);
}

static int refused(int rc, const struct err *e) {
    return rc == ERR_STATE && strstr(e->text, "run the tokens again") != NULL;
}

// Every use of an invalid sequence.
static void refuses(struct tiny_rig *r, struct sequence *s, const struct checkpoint *good) {
    struct sequence *f = NULL;
    struct checkpoint *c = NULL;
    int32_t next = 5;
    int64_t kept;
    assert_false(sequence_usable(s));
    assert_true(refused(sequence_fork(s, &f, &r->e), &r->e));
    assert_true(refused(sequence_checkpoint(s, &c, &r->e), &r->e));
    assert_true(refused(sequence_restore(s, good, &r->e), &r->e));
    assert_true(refused(sequence_truncate(s, 0, &kept, &r->e), &r->e));
    assert_true(refused(sequence_reserve(s, 1, &r->e), &r->e));
    assert_true(refused(dflash_draft(r->d, &s, &next, 1, &r->e), &r->e));
    for (int prompt = 0; prompt < 2; prompt++) {
        forest_reset(&r->f);
        if (prompt)
            forest_chain(&r->f, 0, sequence_len(s), &next, 1, true);
        else
            forest_root(&r->f, 0, sequence_len(s), next, true);
        assert_true(refused(model_forward(r->m, &r->f, &s, 1, &r->e), &r->e));
    }
    assert_null(f);
    assert_null(c);
}

enum action { PROMPT, DRAFT, TREE, COMMIT, FORK, SAVE, RESTORE, CUT, ACTIONS };

struct scene {
    struct sequence *s, *other; // other: a fork from before
    struct checkpoint *saved;   // from before
    struct sequence *made;
    struct checkpoint *made_save;
};

static void verify_tree(struct tiny_rig *r, struct sequence *s) {
    tiny_rig_tree(r, s, 3, 6, 4);
    assert_int_equal(model_forward(r->m, &r->f, &s, 1, &r->e), 0);
}

static int commit_root(struct tiny_rig *r, struct sequence *s) {
    const int32_t root = 0;
    return model_commit(r->m, &s, &(struct model_path){0, &root, 1}, 1, &r->e);
}

static int act(struct tiny_rig *r, struct scene *c, enum action what, const int32_t *tokens) {
    int32_t next = 9;
    int64_t kept;
    switch (what) {
    case PROMPT:
        forest_reset(&r->f);
        forest_chain(&r->f, 0, sequence_len(c->s), tokens + HELD, MORE, true);
        return model_forward(r->m, &r->f, &c->s, 1, &r->e);
    case DRAFT:
        return dflash_draft(r->d, &c->s, &next, 1, &r->e);
    case TREE:
        verify_tree(r, c->s);
        return 0;
    case COMMIT:
        return commit_root(r, c->s);
    case FORK:
        return sequence_fork(c->s, &c->made, &r->e);
    case SAVE:
        return sequence_checkpoint(c->s, &c->made_save, &r->e);
    case RESTORE:
        return sequence_restore(c->s, c->saved, &r->e);
    default:
        return sequence_truncate(c->s, 96, &kept, &r->e);
    }
}

static bool writes(enum action what) {
    return what != TREE && what != FORK && what != SAVE;
}

// One scene whose n-th op of an action fails; false when the action has no that many ops.
static bool scene(struct tiny_rig *r, enum action what, int n, const int32_t *tokens,
                  const struct tiny_answer *want) {
    struct scene c = {.s = tiny_rig_sequence(r)};
    tiny_rig_prompt(r, c.s, tokens, HELD, 64, NULL, NULL);
    assert_int_equal(sequence_fork(c.s, &c.other, &r->e), 0);
    assert_int_equal(sequence_checkpoint(c.s, &c.saved, &r->e), 0);
    if (what == COMMIT)
        verify_tree(r, c.s);
    assert_int_equal(exec_status(r->x, &r->e), 0);
    faulty_again(n);
    assert_int_equal(act(r, &c, what, tokens), 0);
    bool hit = faulty_hit();
    assert_int_equal(exec_status(r->x, &r->e), hit ? ERR_MEMORY : 0);
    assert_int_equal(exec_status(r->x, &r->e), 0); // said once, remembered for good
    faulty_again(-1);
    if (hit && what == TREE)
        assert_int_equal(commit_root(r, c.s), ERR_STATE);
    if (hit && writes(what))
        refuses(r, c.s, c.saved);
    else if (!writes(what))
        answers(r, c.s, want);
    if (hit && what == FORK)
        refuses(r, c.made, c.saved);
    if (hit && what == SAVE) {
        assert_false(checkpoint_usable(c.made_save));
        assert_true(refused(sequence_restore(c.other, c.made_save, &r->e), &r->e));
    }
    sequence_destroy(c.s);
    sequence_destroy(c.made);
    checkpoint_destroy(c.made_save);
    if (n % 8 == 0) { // what was there before
        c.s = tiny_rig_sequence(r);
        assert_int_equal(sequence_restore(c.s, c.saved, &r->e), 0);
        tiny_rig_prompt(r, c.s, tokens + 96, HELD - 96, 64, NULL, NULL);
        answers(r, c.s, want);
        answers(r, c.other, want);
        sequence_destroy(c.s);
    }
    sequence_destroy(c.other);
    checkpoint_destroy(c.saved);
    return hit;
}

static void test_each_op(void **state) {
    (void)state;
    struct tiny_rig r;
    int32_t tokens[LONG];
    int total = 0;
    open_rig(&r);
    tiny_rig_tokens(&r, 6, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(&r);
    tiny_rig_prompt(&r, s, tokens, HELD, 64, NULL, NULL);
    struct tiny_answer want = tiny_rig_ask(&r, s);
    sequence_destroy(s);
    faulty_open(r.x, -1);
    for (int what = 0; what < ACTIONS; what++) {
        int n = 0;
        while (scene(&r, (enum action)what, n, tokens, &want))
            n++;
        assert_true(n > 0); // there was something that could fail
        total += n;
    }
    assert_true(total > 100);
    faulty_close();
    tiny_rig_close(&r);
}

// A fault outlives any number of epochs without one, and more faults than are remembered invalidate
// what is older than all of those.
static void test_memory_of_faults(void **state) {
    (void)state;
    struct exec *x;
    char c[8];
    assert_int_equal(exec_create_cpu(&x, "scalar", 1, NULL), 0);
    faulty_open(x, -1);
    uint64_t old = exec_epoch(x), bad = 0;
    for (int i = 0; i < 3 * EXEC_FAILED_EPOCHS; i++) {
        assert_int_equal(exec_status(x, NULL), 0);
        uint64_t fine = exec_epoch(x);
        assert_int_equal(exec_status(x, NULL), 0);
        faulty_again(0);
        exec_ops(x)->zero(x, c, sizeof c);
        bad = exec_epoch(x);
        assert_false(exec_epoch_failed(x, bad)); // not yet known
        assert_int_equal(exec_status(x, NULL), ERR_MEMORY);
        assert_true(exec_epoch_failed(x, bad));
        assert_true(exec_failed_since(x, bad));
        assert_true(exec_failed_since(x, fine));
        assert_false(exec_failed_since(x, bad + 1));
        assert_false(exec_epoch_failed(x, fine));
        assert_false(exec_epoch_failed(x, bad + 1));
        assert_int_equal(exec_epoch_failed(x, old), i >= EXEC_FAILED_EPOCHS);
    }
    faulty_close();
    exec_destroy(x);
}

enum { NEW = 24 };

struct good {
    struct session *s;
    int32_t ids[64]; // the text of a run without failures
};

static struct transcript *text_of(const struct good *g, int64_t n) {
    struct transcript *t = NULL;
    assert_int_equal(transcript_create(&t, g->s, NULL), 0);
    assert_int_equal(transcript_append(t, g->ids, n, NULL), 0);
    return t;
}

static int go_on(struct transcript *t, int64_t n, enum speculate how) {
    struct request r;
    struct reply y;
    struct err e;
    request_init(&r);
    r.max_tokens = n;
    r.ignore_eos = true;
    r.how = how;
    int rc = transcript_generate(t, &r, &y, &e);
    reply_fini(&y);
    return rc;
}

static void is_good(const struct good *g, const struct transcript *t) {
    assert_memory_equal(transcript_tokens(t), g->ids, (size_t)transcript_len(t) * sizeof *g->ids);
}

// Two texts, of which one fails and both go on; false when nothing was hit.
static bool two_texts(struct good *g, int n) {
    enum { PROMPT_LEN = 36 };
    struct transcript *t = text_of(g, PROMPT_LEN), *fork = NULL;
    struct snapshot *mark = NULL;
    assert_int_equal(go_on(t, 2, SPECULATE_OFF), 0);
    faulty_again(n);
    int rc = transcript_fork(t, &fork, NULL) || transcript_save(t, &mark, NULL);
    assert_int_equal(rc, 0);
    for (int i = 0; i < 3; i++) {
        rc = go_on(t, 5, i % 2 ? SPECULATE_OFF : SPECULATE_TREE);
        is_good(g, t);
        assert_true(rc == 0 || rc == ERR_MEMORY);
    }
    bool hit = faulty_hit();
    faulty_again(-1);
    assert_int_equal(transcript_restore(t, mark, NULL), 0);
    struct transcript *all[] = {t, fork};
    for (int i = 0; i < 2; i++) {
        int64_t left = PROMPT_LEN + NEW - transcript_len(all[i]);
        assert_int_equal(go_on(all[i], left, i ? SPECULATE_TREE : SPECULATE_OFF), 0);
        assert_int_equal(transcript_len(all[i]), PROMPT_LEN + NEW);
        is_good(g, all[i]);
        transcript_destroy(all[i]);
    }
    snapshot_destroy(mark);
    return hit;
}

static void test_transcripts(void **state) {
    (void)state;
    struct session_options o = session_options_default();
    static struct good g;
    struct tiny_pair files;
    assert_int_equal(tiny_pair_write(&files, "invalid_state"), 0);
    o.model = files.target;
    o.draft = files.draft;
    o.device = "cpu";
    o.threads = 1;
    o.target.max_ctx = 200;
    assert_int_equal(session_open(&g.s, &o, NULL), 0);
    for (int i = 0; i < 36; i++)
        g.ids[i] = 32 + i;
    struct transcript *t = text_of(&g, 36);
    assert_int_equal(go_on(t, NEW, SPECULATE_OFF), 0);
    memcpy(g.ids, transcript_tokens(t), (36 + NEW) * sizeof *g.ids);
    transcript_destroy(t);
    faulty_open(model_exec(session_model(g.s)), -1);
    int n = 0;
    while (two_texts(&g, n))
        n += n < 60 ? 1 : 3;
    assert_true(n > 200);
    faulty_close();
    session_close(g.s);
    tiny_pair_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_faults),
        cmocka_unit_test(test_each_op),
        cmocka_unit_test(test_transcripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
