// SPDX-License-Identifier: Apache-2.0
// Grammars as constraints of replies, with the bundled model's tokens: masks agree with what is
// allowed token by token, hints are true, and a grammar begins after a marker and ends again. And
// the store of constraints, by what they were made of.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "engine/session/structured.h"

#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

struct fixture {
    struct tokenizer *t;
    struct grammar_vocab *v;
    int vocab;
};

static int setup(void **state) {
    static struct fixture f;
    struct gguf *g;
    *state = &f;
    if (gguf_open(&g, MODEL, NULL))
        return -1;
    int rc = tokenizer_create(&f.t, g, NULL);
    gguf_close(g);
    f.vocab = rc ? 0 : tokenizer_size(f.t) + 5; // a model may have more tokens
    return rc ? rc : grammar_vocab_of(&f.v, f.t, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    grammar_vocab_destroy(f->v);
    tokenizer_destroy(f->t);
    return 0;
}

static struct grammar *gbnf(const char *text) {
    struct grammar *g;
    struct err e = {0};
    if (grammar_from_gbnf(&g, text, strlen(text), NULL, &e))
        fail_msg("%s", e.text);
    return g;
}

static bool bit(const struct constraint_view *v, int32_t token) {
    return !v->allow || (v->allow[token / 32] >> (token % 32) & 1);
}

// A text as it is written, one state after the other.
struct writer {
    const struct fixture *f;
    struct constraint *c;
    struct constraint_state *s;
};

static struct writer begin(const struct fixture *f, struct constraint *c) {
    struct writer w = {f, c, NULL};
    assert_int_equal(c->class->begin(c->self, &w.s, NULL), 0);
    return w;
}

static void end(struct writer *w) {
    w->c->class->drop(w->c->self, w->s);
    constraint_drop(w->c);
}

static struct constraint_view look(struct writer *w) {
    struct constraint_view v;
    struct err e = {0};
    if (w->c->class->look(w->c->self, w->s, &v, &e))
        fail_msg("%s", e.text);
    return v;
}

static void put(struct writer *w, int32_t token) {
    struct constraint_state *to = NULL;
    struct err e = {0};
    if (w->c->class->next(w->c->self, w->s, token, &to, &e))
        fail_msg("%s", e.text);
    w->c->class->drop(w->c->self, w->s);
    w->s = to;
}

// Writes a text token by token; false where a token is not allowed.
static bool put_text(struct writer *w, const char *text) {
    struct token_list ids = {0};
    bool all = true;
    assert_int_equal(tokenizer_encode(w->f->t, text, strlen(text), true, &ids, NULL), 0);
    for (size_t i = 0; i < ids.count && all; i++) {
        struct constraint_view v = look(w);
        all = bit(&v, ids.ids[i]);
        if (all)
            put(w, ids.ids[i]);
    }
    token_list_fini(&ids);
    return all;
}

static bool may_end(struct writer *w) {
    struct constraint_view v = look(w);
    return bit(&v, tokenizer_eos(w->f->t));
}

static struct constraint *make(const struct fixture *f, struct grammar_constraint c) {
    struct constraint *out = NULL;
    struct err e = {0};
    c.tokenizer = f->t;
    c.vocab = f->v;
    c.model_vocab = f->vocab;
    if (grammar_constraint_create(&out, &c, &e))
        fail_msg("%s", e.text);
    return out;
}

// A random token among those that the mask of the newest state allows. What is said of single
// tokens before (early) and after the mask must agree with it, and so must the hint.
static int32_t check_state(struct writer *w, bool early, struct rng *r, int hints[3]) {
    const struct constraint_class *k = w->c->class;
    const struct fixture *f = w->f;
    bool before[64];
    int32_t token = -1, count = 0, pick = -1;
    for (int i = 0; early && i < 64; i++)
        before[i] = k->allows(w->c->self, w->s, i * 60);
    enum constraint_hint h = k->hint(w->c->self, w->s, &token);
    struct constraint_view v = look(w);
    for (int i = 0; early && i < 64; i++)
        assert_int_equal(before[i], bit(&v, i * 60));
    for (int32_t id = 0; id < f->vocab; id++) {
        assert_int_equal(bit(&v, id), k->allows(w->c->self, w->s, id));
        if (bit(&v, id) && rng_below(r, (uint32_t)++count) == 0)
            pick = id;
    }
    assert_int_equal(v.only, count == 1 ? pick : -1);
    assert_int_equal(h == CONSTRAINT_ONLY, count == 1);
    assert_true(h == CONSTRAINT_NO_HINT || bit(&v, token));
    assert_true(count > 0 && !v.none);
    hints[h]++;
    return pick;
}

// On random ways through a grammar that has forced stretches.
static void test_masks(void **state) {
    const struct fixture *f = *state;
    struct grammar *g =
        gbnf("root ::= \"{\\\"name\\\": \\\"\" [a-zé]{1,12} \"\\\", \\\"n\\\": \" [0-9]+ \"}\"");
    struct rng r = {7};
    int hints[3] = {0};
    for (int text = 0; text < 20; text++) {
        struct writer w = begin(f, make(f, (struct grammar_constraint){.whole = g}));
        for (int i = 0; i < 60; i++) {
            int32_t token = check_state(&w, rng_below(&r, 2), &r, hints);
            if (tokenizer_is_eog(f->t, token))
                break;
            put(&w, token);
        }
        end(&w);
    }
    assert_true(hints[CONSTRAINT_ONLY] > 5 && hints[CONSTRAINT_LIKELY] > 5);
    grammar_unref(g);
}

static void test_whole(void **state) {
    const struct fixture *f = *state;
    struct grammar *g = gbnf("root ::= \"yes\" | \"no\"");
    struct writer w = begin(f, make(f, (struct grammar_constraint){.whole = g}));
    assert_false(may_end(&w));
    assert_false(put_text(&w, "maybe"));
    assert_true(put_text(&w, "yes"));
    assert_true(may_end(&w));
    assert_false(put_text(&w, " and"));
    put(&w, tokenizer_eos(f->t)); // after the end anything goes
    assert_true(put_text(&w, "and so on"));
    end(&w);
    grammar_unref(g);
}

// Free text, a call that must be right, free text again, another call.
static void test_lazy(void **state) {
    const struct fixture *f = *state;
    struct grammar *g = gbnf("root ::= \"{\\\"n\\\": \" [0-9]+ \"}</call>\"");
    struct grammar_trigger t = {"<call>", 6, g, false, false};
    struct grammar_constraint o = {.triggers = &t, .n_triggers = 1};
    struct writer w = begin(f, make(f, o));
    assert_true(put_text(&w, "I call <cal"));
    assert_null(look(&w).allow);
    assert_true(may_end(&w));
    assert_true(put_text(&w, "l>"));
    assert_non_null(look(&w).allow);
    assert_false(may_end(&w));
    assert_false(put_text(&w, "nothing"));
    assert_true(put_text(&w, "\n{\"n\": 12"));
    assert_false(may_end(&w));
    assert_true(put_text(&w, "}</call>"));
    assert_null(look(&w).allow);
    assert_true(put_text(&w, " and again: <call>{\"n\": 1}</call>."));
    assert_true(may_end(&w));
    end(&w);
    o.required = true;
    w = begin(f, make(f, o));
    assert_true(put_text(&w, "Well, "));
    assert_false(may_end(&w));
    assert_true(put_text(&w, "<call>{\"n\": 1}</call>"));
    assert_true(may_end(&w));
    end(&w);
    grammar_unref(g);
}

// A marker that counts only at the beginning.
static void test_first(void **state) {
    const struct fixture *f = *state;
    struct grammar *g = gbnf("root ::= [0-9]+ \"}\"");
    struct grammar_trigger t = {"{\"n\":", 5, g, false, true};
    struct grammar_constraint o = {.triggers = &t, .n_triggers = 1};
    static const char *const free[] = {"a {\"n\":", "\n.{\"n\":",
                                       "a text that is longer than what is kept of it, so that its "
                                       "beginning is gone, and then {\"n\":"};
    for (size_t i = 0; i < 3; i++) {
        struct writer w = begin(f, make(f, o));
        assert_true(put_text(&w, free[i]));
        assert_true(put_text(&w, "x"));
        end(&w);
    }
    struct writer w = begin(f, make(f, o));
    assert_true(put_text(&w, " \n{\"n\":"));
    assert_false(put_text(&w, "x"));
    assert_true(put_text(&w, "12}"));
    assert_true(put_text(&w, "{\"n\":x"));
    end(&w);
    grammar_unref(g);
}

// A reply may begin with a block of free text, or not.
static void test_block(void **state) {
    const struct fixture *f = *state;
    struct grammar *g = gbnf("root ::= [0-9]+");
    struct grammar_trigger t = {"<|im_start|>", 12, g, true, false};
    struct grammar_constraint o = {
        .whole = g, .opening = "<|im_start|>", .triggers = &t, .n_triggers = 1, .required = true};
    struct writer w = begin(f, make(f, o));
    assert_false(put_text(&w, "hm"));
    assert_true(put_text(&w, "12"));
    assert_true(may_end(&w));
    assert_false(put_text(&w, "<|im_start|>"));
    end(&w);
    w = begin(f, make(f, o));
    assert_true(put_text(&w, "<|im_start|>let me see"));
    assert_false(may_end(&w));
    assert_true(put_text(&w, "<|im_start|>\n"));
    assert_false(put_text(&w, "hm"));
    assert_true(put_text(&w, "12"));
    assert_true(may_end(&w));
    end(&w);
    grammar_unref(g);
}

static void test_refusals(void **state) {
    const struct fixture *f = *state;
    struct grammar *g = gbnf("root ::= \"a\"");
    struct grammar_trigger t = {"", 0, g, false, false};
    struct grammar_constraint o = {.tokenizer = f->t, .vocab = f->v, .model_vocab = f->vocab};
    struct constraint *c;
    struct err e = {0};
    assert_int_equal(grammar_constraint_create(&c, &o, &e), ERR_USAGE);
    o.triggers = &t;
    o.n_triggers = 1;
    assert_int_equal(grammar_constraint_create(&c, &o, &e), ERR_USAGE);
    o.n_triggers = 0;
    o.whole = g;
    o.model_vocab = 7;
    assert_int_equal(grammar_constraint_create(&c, &o, &e), ERR_MISMATCH);
    grammar_unref(g);
}

static void test_store(void **state) {
    const struct fixture *f = *state;
    struct structured_store *s;
    struct constraint *a, *b, *c;
    struct err e = {0};
    struct structured w = {.form = STRUCTURED_REGEX, .text = "[ab]+", .n = 5};
    assert_int_equal(structured_store_create(&s, f->t, f->vocab, &e), 0);
    assert_int_equal(structured_make(s, &w, &a, &e), 0);
    assert_int_equal(structured_make(s, &w, &b, &e), 0);
    w.inside = true;
    w.closing = "</think>";
    assert_int_equal(structured_make(s, &w, &c, &e), 0);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    w = (struct structured){.form = STRUCTURED_REGEX, .text = "([ab]", .n = 5};
    constraint_drop(b);
    constraint_drop(c);
    assert_int_not_equal(structured_make(s, &w, &b, &e), 0);
    assert_null(b);
    for (int i = 0; i < 2 * STRUCTURED_KEPT; i++) { // old ones are forgotten, not while in use
        char text[16];
        w.n = (size_t)snprintf(text, sizeof text, "a{%d}", i + 1);
        w.text = text;
        assert_int_equal(structured_make(s, &w, &b, &e), 0);
        constraint_drop(b);
    }
    struct writer k = begin(f, a);
    assert_true(put_text(&k, "ab"));
    end(&k);
    structured_store_destroy(s);
    assert_int_equal(structured_store_create(&s, NULL, f->vocab, &e), 0);
    w = (struct structured){.form = STRUCTURED_REGEX, .text = "a", .n = 1};
    assert_int_equal(structured_make(s, &w, &b, &e), ERR_UNSUPPORTED);
    structured_store_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks), cmocka_unit_test(test_whole), cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_first), cmocka_unit_test(test_block), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
