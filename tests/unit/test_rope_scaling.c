// SPDX-License-Identifier: Apache-2.0
// Angles of files and of options against those of transformers (tests/fixtures/rope_scaling.json,
// written by tools/oracle/rope_fixtures.py), what options do in the place of a file, and what a
// draft takes over.
#include "unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "formats/gguf/gguf.h"
#include "models/params.h"

static const char key_of[] = "m.rope.scaling.";

static double number_of(const struct json *scaling, const char *key) {
    return json_num(json_get(scaling, key), 0);
}

static void check_angles(const struct json *one, const struct rope *r, const char *way) {
    const struct json *want = json_get(one, "angles");
    const double magnitude = json_num(json_get(one, "magnitude"), 0);
    double angle[OPS_HEAD_MAX / 2];
    assert_int_equal(json_len(want), r->dims / 2);
    rope_angles(r, angle);
    for (int i = 0; i < r->dims / 2; i++) {
        double w = json_num(json_at(want, (size_t)i), 0);
        if (!(fabs(angle[i] / w - 1) < 2e-6))
            fail_msg("%s, %s: pair %d turns %.9g, not %.9g", way,
                     json_str(json_get(one, "name"), NULL), i, angle[i], w);
    }
    const double got = r->magnitude > 0 ? (double)r->magnitude : 1;
    if (!(fabs(got / magnitude - 1) < 2e-6))
        fail_msg("%s: cosines times %.9g, not %.9g", way, got, magnitude);
}

static struct model_params params_of(const struct json *one) {
    const double head = json_num(json_get(one, "head"), 0);
    return (struct model_params){.arch = "m",
                                 .context = json_int(json_get(one, "context"), 0),
                                 .rope = {.dims = (int)(head * json_num(json_get(one, "part"), 1)),
                                          .base = (float)json_num(json_get(one, "theta"), 0)}};
}

// A file with the keys of a configuration.
static struct gguf *file_of(const struct json *scaling, const char *path) {
    static const char *const keys[][2] = {{"factor", "factor"},
                                          {"beta_fast", "yarn_beta_fast"},
                                          {"beta_slow", "yarn_beta_slow"},
                                          {"attention_factor", "yarn_attn_factor"}};
    const char *type = json_str(json_get(scaling, "rope_type"), NULL);
    const int64_t trained = (int64_t)number_of(scaling, "original_max_position_embeddings");
    struct gguf_writer *w;
    struct gguf *g;
    struct err e;
    char key[64];
    assert_int_equal(gguf_writer_open(&w, path, &e), 0);
    gguf_put_str(w, "m.rope.scaling.type", type, strlen(type));
    if (trained)
        gguf_put_int(w, "m.rope.scaling.original_context_length", GGUF_U32, trained);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s%s", key_of, keys[i][1]);
        if (json_get(scaling, keys[i][0]))
            gguf_put_f32(w, key, (float)number_of(scaling, keys[i][0]));
    }
    if (json_get(scaling, "truncate"))
        gguf_put_bool(w, "m.rope.scaling.yarn_truncate", false);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    return g;
}

static void check_file(const struct json *one, const char *path) {
    struct model_params p = params_of(one);
    struct gguf *g = file_of(json_get(one, "scaling"), path);
    struct err e;
    assert_int_equal(rope_scaling_read(&p, g, &e), 0);
    check_angles(one, &p.rope, "file");
    gguf_close(g);
}

// The same by options over a file that has none of it; whether the ramp is rounded has no option.
static void check_options(const struct json *one) {
    const struct json *scaling = json_get(one, "scaling");
    const bool yarn = !strcmp(json_str(json_get(scaling, "rope_type"), NULL), "yarn");
    const double factor = number_of(scaling, "factor"), own = 1 + 0.1 * log(factor),
                 trained = number_of(scaling, "original_max_position_embeddings");
    const struct rope_options o = {.scaling = yarn ? ROPE_YARN : ROPE_LINEAR,
                                   .factor = (float)factor,
                                   .trained = (int64_t)trained,
                                   .magnitude =
                                       (float)(number_of(scaling, "attention_factor") / own),
                                   .beta_fast = (float)number_of(scaling, "beta_fast"),
                                   .beta_slow = (float)number_of(scaling, "beta_slow")};
    struct model_params p = params_of(one);
    const int64_t context = p.context;
    struct err e;
    p.rope.exact_ramp = json_get(scaling, "truncate") != NULL;
    assert_int_equal(rope_scaling_apply(&p.rope, &p.context, &o, &e), 0);
    check_angles(one, &p.rope, "options");
    assert_int_equal(p.context, (int64_t)(factor * (yarn ? trained : (double)context)));
}

static void test_transformers(void **state) {
    (void)state;
    char path[] = "/tmp/coppice-scaling-XXXXXX";
    struct str text = {0};
    struct json *cases;
    struct err e;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_read(&text, TEST_DATA "/fixtures/rope_scaling.json", 1 << 20, &e), 0);
    assert_int_equal(json_parse(&cases, text.data, text.len, &e), 0);
    assert_true(json_len(cases) >= 11);
    for (size_t i = 0; i < json_len(cases); i++) {
        check_file(json_at(cases, i), path);
        check_options(json_at(cases, i));
    }
    json_free(cases);
    str_fini(&text);
    unlink(path);
}

static const struct rope plain = {.dims = 64, .base = 1e6f};
static const struct rope slow = {.dims = 64, .base = 1e6f, .factor = 8};
static const struct rope yarn = {.dims = 64,
                                 .base = 1e6f,
                                 .factor = 4,
                                 .ramp = 1,
                                 .beta_fast = 32,
                                 .beta_slow = 1,
                                 .trained = 1000,
                                 .magnitude = 1.1386294f};

// What options make of a file: of a context of 8000 tokens, which its own scaling has reached.
static void test_options(void **state) {
    (void)state;
    static const struct {
        const struct rope *file;
        struct rope_options o;
        float factor, magnitude, base;
        int64_t trained, context;
    } rows[] = {
        {&plain, {.factor = 4}, 4, 0, 1e6f, 0, 32000},
        {&plain, {.base = 5e6f}, 0, 0, 5e6f, 0, 8000},
        {&plain, {.scaling = ROPE_YARN, .factor = 4}, 4, 1.1386294f, 1e6f, 8000, 32000},
        {&plain, {.scaling = ROPE_UNSCALED}, 0, 0, 1e6f, 0, 8000},
        {&slow, {.factor = 16}, 16, 0, 1e6f, 0, 16000},
        {&slow, {.scaling = ROPE_UNSCALED}, 0, 0, 1e6f, 0, 1000},
        {&slow, {.scaling = ROPE_YARN}, 8, 1.2079442f, 1e6f, 1000, 8000},
        {&yarn, {.scaling = ROPE_UNSCALED}, 0, 0, 1e6f, 0, 1000},
        {&yarn, {.scaling = ROPE_LINEAR}, 4, 0, 1e6f, 0, 4000},
        {&yarn, {.factor = 16}, 16, 1.2772589f, 1e6f, 1000, 16000},
        {&yarn, {.magnitude = 2}, 4, 2.2772589f, 1e6f, 1000, 4000},
        {&yarn, {.has_ramp = true}, 4, 1, 1e6f, 1000, 4000},
        {&yarn, {.trained = 2000}, 4, 1.1386294f, 1e6f, 2000, 8000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rope r = *rows[i].file;
        int64_t context = 8000;
        struct err e;
        assert_int_equal(rope_scaling_apply(&r, &context, &rows[i].o, &e), 0);
        if (r.factor != rows[i].factor || fabsf(r.magnitude - rows[i].magnitude) > 1e-6f ||
            r.base != rows[i].base || r.trained != rows[i].trained || context != rows[i].context)
            fail_msg("row %zu: factor %g, magnitude %.8g, base %g, trained %lld, context %lld", i,
                     (double)r.factor, (double)r.magnitude, (double)r.base, (long long)r.trained,
                     (long long)context);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const struct rope *file;
        struct rope_options o;
        const char *part;
    } rows[] = {
        {&plain, {.scaling = ROPE_YARN}, "--rope-scaling yarn has no factor"},
        {&plain, {.scaling = ROPE_LINEAR, .factor = 1}, "--rope-scaling linear has no factor"},
        {&plain, {.scaling = ROPE_UNSCALED, .factor = 2}, "give one of them"},
        {&plain, {.trained = 5}, "add --rope-scaling yarn"},
        {&slow, {.beta_fast = 5}, "add --rope-scaling yarn"},
        {&yarn, {.scaling = ROPE_LINEAR, .has_ramp = true}, "add --rope-scaling yarn"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rope r = *rows[i].file;
        int64_t context = 8000;
        struct err e = {0};
        assert_int_equal(rope_scaling_apply(&r, &context, &rows[i].o, &e), ERR_USAGE);
        if (!strstr(e.text, rows[i].part))
            fail_msg("row %zu: %s", i, e.text);
    }
}

static void test_draft(void **state) {
    (void)state;
    struct model_params target = {.context = 4000, .rope = yarn};
    struct rope r = plain;
    struct err e;
    assert_int_equal(rope_scaling_follow(&r, &target, &e), 0);
    assert_true(rope_same(&r, &plain)); // its own file, as the target's
    target.rope_options.factor = 4;
    assert_int_equal(rope_scaling_follow(&r, &target, &e), 0);
    assert_true(rope_same(&r, &yarn));
    target.rope_options = (struct rope_options){.beta_fast = 64};
    target.rope.beta_fast = 64;
    r = plain;
    assert_int_equal(rope_scaling_follow(&r, &target, &e), 0);
    assert_true(rope_same(&r, &target.rope));
    target = (struct model_params){
        .context = 4000, .rope = plain, .rope_options = {.scaling = ROPE_UNSCALED}};
    r = yarn;
    assert_int_equal(rope_scaling_follow(&r, &target, &e), 0);
    assert_true(r.factor == 0 && r.magnitude == 0);
}

static void test_print(void **state) {
    (void)state;
    struct str s = {0};
    rope_options_print(&(struct rope_options){0}, &s);
    assert_int_equal(s.len, 0);
    rope_options_print(
        &(struct rope_options){
            .scaling = ROPE_YARN, .factor = 2.5f, .trained = 4096, .has_ramp = true},
        &s);
    assert_string_equal(
        s.data, "--rope-scaling yarn --rope-scale 2.5 --yarn-orig-ctx 4096 --yarn-ext-factor 0");
    str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformers), cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_draft),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
