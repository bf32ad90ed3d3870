// SPDX-License-Identifier: Apache-2.0
// What plans say of keys and values is what sequences take, with windows and without: a model that
// is given exactly what its plan needs for a context decodes to the last token of it, and as many
// requests are taken up at once as fill their memory to the end without one having to give way.
#include "engine/generate.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

enum { CONTEXT = 960, ROWS = 512, LONGEST = CONTEXT - 20 };

static const struct {
    enum tiny_form form;
    bool qwen35;
    int draft_window;
} kinds[] = {
    {TINY_FORM_QWEN3, true, 0},   {TINY_FORM_QWEN3, true, 24},   {TINY_FORM_QWEN3, false, 24},
    {TINY_FORM_GEMMA4, false, 0}, {TINY_FORM_GEMMA4, false, 24}, {TINY_FORM_OSS, false, 0},
    {TINY_FORM_OSS, false, 24},   {TINY_FORM_LAGUNA, false, 0},  {TINY_FORM_DEEPSEEK, false, 24}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct session *open_pair(const struct tiny_pair *files, int64_t max_ctx, int64_t memory) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e = {0};
    o.model = files->target;
    o.draft = files->draft;
    o.threads = 2;
    o.make_plan = true;
    o.target.max_ctx = max_ctx;
    o.target.memory_limit = memory;
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    return s;
}

// Texts of several lengths that go on to the end of the context, guessed in all ways, beside the
// same in as much memory as there is.
static void fill(struct session *s, struct session *open) {
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_LOOKUP, SPECULATE_OFF};
    static const int lengths[] = {LONGEST, 513, 130, 1};
    static int32_t prompt[LONGEST];
    struct rng g = {5};
    for (int i = 0; i < LONGEST; i++)
        prompt[i] = i % 200 < 100 ? i % 50 : (int32_t)rng_below(&g, 250);
    for (int i = 0; i < 4; i++) {
        struct request r;
        struct reply a = {0}, b = {0};
        struct err e = {0};
        request_init(&r);
        r.prompt = prompt;
        r.n_prompt = lengths[i];
        r.max_tokens = CONTEXT - lengths[i];
        r.ignore_eos = r.logit_hash = true;
        r.how = ways[i % 3];
        if (session_generate(s, &r, &a, &e))
            fail_msg("%s", e.text);
        assert_int_equal(session_generate(open, &r, &b, &e), 0);
        assert_int_equal(a.n, CONTEXT - lengths[i]);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);
        assert_int_equal(a.hash, b.hash);
        reply_fini(&a);
        reply_fini(&b);
    }
}

static void the_planned_context_is_reached(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct tiny_shape t =
            kinds[i].qwen35 ? tiny_shape_default() : tiny_shape_form(kinds[i].form);
        struct tiny_pair files;
        assert_int_equal(tiny_pair_write_as(&files, "planned", &t, kinds[i].draft_window), 0);
        struct session *open = open_pair(&files, CONTEXT, 0);
        const struct memory_plan *p = session_plan(open);
        int64_t kv = plan_kv(p, CONTEXT), windows = 0, expected = 0;
        for (int k = 0; k < p->kv.n; k++) { // of a window a page of slack and two begun ones
            const struct kv_need *n = &p->kv.of[k];
            int64_t held = n->window ? (n->window + n->late + ROWS + 2 * 64 - 1 + 63) / 64 : 15;
            windows += n->window > 0;
            expected += held * n->page_bytes;
        }
        const bool windowed = kinds[i].draft_window || t.form == TINY_FORM_GEMMA4 ||
                              t.form == TINY_FORM_OSS || t.form == TINY_FORM_LAGUNA;
        assert_int_equal(windows > 0, windowed);
        assert_int_equal(kv, expected);
        struct session *s = open_pair(&files, 0, plan_total(p));
        assert_int_equal(session_plan(s)->context, CONTEXT);
        assert_int_equal(session_kv_limit(s), kv);
        fill(s, open);
        assert_true(session_kv_used(s) <= kv);
        session_close(s);
        session_close(open);
        tiny_pair_remove(&files);
    }
}

enum { PROMPT = 500, NEW = 100, MANY = 5 };

// Counts the streams that run, in the engine thread.
struct crowd {
    struct engine_rig rig;
    struct stream *s[MANY];
    int at_once;
};

static void count(void *arg) {
    struct crowd *c = arg;
    int n = 0;
    pthread_mutex_lock(&c->rig.gate); // open when all are in the queue
    for (int i = 0; i < MANY; i++) {
        enum stream_phase p = stream_progress(c->s[i]).phase;
        n += p == STREAM_READING || p == STREAM_DECODING;
    }
    c->at_once = n > c->at_once ? n : c->at_once;
    pthread_mutex_unlock(&c->rig.gate);
    rig_notice(&c->rig);
}

// pass: pages of a window beside those of three that decode; at_once: texts that fit.
static void as_many_join_as_fit(enum tiny_form form, int pass, int at_once) {
    static const int lengths[MANY] = {PROMPT, PROMPT, PROMPT, PROMPT, PROMPT};
    static struct crowd c;
    struct tiny_shape t = tiny_shape_form(form);
    c = (struct crowd){0};
    assert_int_equal(rig_open_as(&c.rig, "crowd", &t, lengths, MANY, NEW), 0);
    struct engine_options o = engine_options_default();
    o.slots = MANY;
    // Each text takes 600 tokens, 10 pages. A window of 48 has 4 while it decodes: with up to 33
    // tokens reserved, and slack.
    int windows = 0;
    for (int k = 0; k < c.rig.plan.kv.n; k++) {
        const struct kv_need *n = &c.rig.plan.kv.of[k];
        o.kv_limit += n->page_bytes * (n->window ? 3 * 4 + pass : 3 * 10);
        windows += n->window == TINY_WINDOW;
    }
    assert_int_equal(windows, 1);
    struct engine *g = rig_engine(&c.rig, &o);
    pthread_mutex_lock(&c.rig.gate);
    for (int i = 0; i < MANY; i++) {
        struct stream_options so = {.r = c.rig.r[i], .notify = count, .notify_arg = &c};
        so.r.max_tokens = NEW;
        assert_int_equal(engine_submit(g, &so, &c.s[i], NULL), 0);
    }
    pthread_mutex_unlock(&c.rig.gate);
    for (int i = 0; i < MANY; i++) {
        struct stream_end end = rig_end(&c.rig, c.s[i]);
        const int32_t *ids;
        if (end.rc)
            fail_msg("%s", end.err.text);
        assert_int_equal(stream_tokens(c.s[i], &ids), NEW);
        assert_memory_equal(ids, c.rig.alone[i].ids, (size_t)c.rig.alone[i].n * sizeof *ids);
    }
    struct engine_stats y = engine_stats(g);
    assert_int_equal(y.parkings, 0);
    assert_int_equal(y.failed, 0);
    assert_int_equal(c.at_once, at_once);
    engine_destroy(g);
    for (int i = 0; i < MANY; i++)
        stream_release(c.s[i]);
    rig_close(&c.rig);
}

static void as_many_join_as_their_windows_let(void **state) {
    (void)state;
    static const enum tiny_form forms[] = {TINY_FORM_GEMMA4, TINY_FORM_OSS, TINY_FORM_LAGUNA};
    // A pass of 512 rows takes 7 pages more in windows, and 1 for each other prompt.
    for (int i = 0; i < 3; i++) {
        as_many_join_as_fit(forms[i], 7 + 2, 3);
        as_many_join_as_fit(forms[i], 0, 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_planned_context_is_reached),
        cmocka_unit_test(as_many_join_as_their_windows_let),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
