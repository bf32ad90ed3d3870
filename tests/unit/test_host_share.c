// SPDX-License-Identifier: Apache-2.0
// Sessions and engines whose keys and values do not fit the device: with host memory for them a
// plan's context is reached, requests that were refused are answered, and answers are those of a
// device that holds everything.
#include <stdio.h>

#include "engine/batch/batch.h"
#include "unit/engine_rig.h"
#include "unit/test.h"

enum { CONTEXT = 960, ROWS = 64, HOST = 64 << 20, PROMPT = 480, NEW = 120 };

// Eight layers of attention: four pages are staged by the memory of one.
static struct tiny_shape shape(void) {
    struct tiny_shape t = tiny_shape_plain();
    t.layers = 8;
    return t;
}

static struct session_options options_for(const struct tiny_pair *files, int64_t host) {
    struct session_options o = session_options_default();
    o.model = files->target;
    o.draft = files->draft;
    o.threads = 2;
    o.make_plan = true;
    o.target.max_rows = o.target.max_verify = ROWS;
    o.chunk = ROWS;
    o.kv_host = host;
    return o;
}

static struct session *open_with(const struct session_options *o) {
    struct session *s = NULL;
    struct err e = {0};
    if (session_open(&s, o, &e))
        fail_msg("%s", e.text);
    return s;
}

static void same_answers(struct session *a, struct session *b) {
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_LOOKUP, SPECULATE_OFF};
    static const int lengths[] = {CONTEXT - 20, 513, 1};
    static int32_t prompt[CONTEXT];
    struct rng g = {5};
    for (int i = 0; i < CONTEXT; i++)
        prompt[i] = i % 200 < 100 ? i % 50 : (int32_t)rng_below(&g, 250);
    for (int i = 0; i < 3; i++) {
        struct request r;
        struct reply x = {0}, y = {0};
        struct err e = {0};
        request_init(&r);
        r.prompt = prompt;
        r.n_prompt = lengths[i];
        r.max_tokens = CONTEXT - lengths[i];
        r.ignore_eos = r.logit_hash = true;
        r.how = ways[i];
        if (session_generate(a, &r, &x, &e) || session_generate(b, &r, &y, &e))
            fail_msg("%s", e.text);
        assert_int_equal(x.n, CONTEXT - lengths[i]);
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
        assert_int_equal(x.hash, y.hash);
        reply_fini(&x);
        reply_fini(&y);
    }
}

static void the_planned_context_is_reached(void **state) {
    (void)state;
    const struct tiny_shape t = shape();
    struct tiny_pair files;
    struct memory_plan p;
    struct err e = {0};
    assert_int_equal(tiny_pair_write_as(&files, "share", &t, 0), 0);
    struct session_options o = options_for(&files, 0);
    o.target.max_ctx = CONTEXT;
    struct session *open = open_with(&o);
    const int64_t page = session_plan(open)->kv.of[0].page_bytes;
    assert_int_equal(session_plan(open)->kv.of[0].staged, 4);
    o.kv_host = HOST;
    assert_int_equal(session_measure(&o, &p, &e), 0); // there is room: nothing has to move
    assert_int_equal(kv_needs_hosted(&p.kv, CONTEXT, p.step), 0);
    assert_int_equal(plan_total(&p), plan_total(session_plan(open)));
    o.target.memory_limit = plan_total(&p) - 9 * page;
    assert_int_equal(session_measure(&o, &p, &e), 0);
    // Of 15 pages that of a pass and two more are on the device; the others take three for staging.
    assert_int_equal(kv_needs_hosted(&p.kv, CONTEXT, p.step), 12 * page);
    assert_int_equal(plan_kv(&p, CONTEXT), plan_kv(session_plan(open), CONTEXT) - 9 * page);
    struct str line = {0};
    plan_print(&p, &line);
    assert_non_null(
        strstr(line.data, "of its keys and values are in host memory, so that it fits"));
    str_fini(&line);
    o.target.max_ctx = 0;
    o.target.memory_limit = plan_total(&p);
    struct session *s = open_with(&o);
    assert_int_equal(session_plan(s)->context, CONTEXT);
    same_answers(s, open);
    assert_true(session_kv_host(s).given_up > 0);
    session_close(s);
    o.kv_host = 0;
    o.target.max_ctx = CONTEXT;
    assert_int_equal(session_open(&s, &o, &e), ERR_MEMORY);
    session_close(open);
    tiny_pair_remove(&files);
}

static void host_memory_is_checked(void **state) {
    (void)state;
    static const struct {
        int64_t host;
        const char *words;
    } bad[] = {{100, "less than a single page"}, {(int64_t)1 << 50, "machine's memory"}};
    const struct tiny_shape t = shape();
    struct tiny_pair files;
    assert_int_equal(tiny_pair_write_as(&files, "share", &t, 0), 0);
    for (int i = 0; i < 2; i++) {
        struct session_options o = options_for(&files, bad[i].host);
        struct session *s;
        struct err e = {0};
        assert_int_equal(session_open(&s, &o, &e), ERR_LIMIT);
        assert_non_null(strstr(e.text, bad[i].words));
    }
    tiny_pair_remove(&files);
}

// Three texts on a device that holds less than one of them, and later what they leave.
static void an_engine_answers_beyond_its_device(void **state) {
    (void)state;
    static const int lengths[] = {PROMPT, 300, 77};
    struct engine_rig f = {0};
    const struct tiny_shape t = shape();
    rig_open_as(&f, "share", &t, lengths, 3, NEW);
    f.chunk = ROWS;
    const int64_t whole = plan_kv(&f.plan, PROMPT + NEW);
    struct engine_options o = {.slots = 3, .kv_limit = whole * 3 / 4, .cache.host = HOST};
    o.session.target.max_rows = ROWS;
    struct engine *g = rig_engine(&f, &o);
    struct stream *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = rig_submit(&f, g, &f.r[i]);
    for (int i = 0; i < 3; i++) {
        struct stream_end end = rig_end(&f, s[i]);
        rig_same(s[i], &end, &f.alone[i]);
        stream_release(s[i]);
    }
    struct engine_stats stats = engine_stats(g);
    assert_true(stats.kv_host.given_up > 0);
    assert_int_equal(stats.kv_host.limit, HOST);
    assert_int_equal(stats.parkings, 0);
    engine_destroy(g);
    rig_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_planned_context_is_reached),
                                       cmocka_unit_test(host_memory_is_checked),
                                       cmocka_unit_test(an_engine_answers_beyond_its_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
