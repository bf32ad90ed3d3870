// SPDX-License-Identifier: Apache-2.0
// JSON: strict reading, exact integers, order of members; writing with escapes and commas.
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/rng.h"

static struct json *parse(const char *text) {
    struct json *v = NULL;
    struct err e = {0};
    if (json_parse(&v, text, strlen(text), &e)) {
        assert_null(v);
        assert_true(e.text[0] != '\0');
    }
    return v;
}

static void values_come_back(void **state) {
    (void)state;
    struct json *v = parse(" {\"i\": 9007199254740993, \"d\": -1.5e3, \"s\": \"a\\u0000b\\u00e9\", "
                           "\"n\": null, \"t\": true, \"a\": [1, [2], {}]} \n");
    assert_non_null(v);
    size_t len = 0;
    assert_int_equal(json_kind_of(v), JSON_OBJECT);
    assert_int_equal(json_len(v), 6);
    assert_true(json_int(json_get(v, "i"), 0) == INT64_C(9007199254740993));
    assert_true(json_num(json_get(v, "d"), 0) == -1500.0);
    assert_memory_equal(json_str(json_get(v, "s"), &len), "a\0b\xC3\xA9", 5);
    assert_int_equal(len, 5);
    assert_int_equal(json_kind_of(json_get(v, "n")), JSON_NULL);
    assert_true(json_bool(json_get(v, "t"), false));
    const struct json *a = json_get(v, "a");
    assert_int_equal(json_len(a), 3);
    assert_int_equal(json_int(json_at(json_at(a, 1), 0), -1), 2);
    assert_null(json_at(a, 3));
    assert_null(json_at(v, 0));
    assert_null(json_get(a, "i"));
    assert_null(json_get(v, "absent"));
    assert_int_equal(json_int(json_get(v, "s"), -7), -7);
    assert_null(json_str(json_get(v, "i"), NULL));
    assert_true(json_bool(NULL, true));
    json_free(v);
}

static void integers_keep_64_bits(void **state) {
    (void)state;
    struct json *v = parse("[9223372036854775807, -9223372036854775808, 9223372036854775808]");
    assert_true(json_int(json_at(v, 0), 0) == INT64_MAX);
    assert_true(json_int(json_at(v, 1), 0) == INT64_MIN);
    assert_int_equal(json_int(json_at(v, 2), -1), -1);
    json_free(v);
    v = parse("17");
    assert_int_equal(json_int(v, 0), 17);
    json_free(v);
}

static int note_key(void *arg, const char *key, size_t len, const struct json *v) {
    str_append(arg, key, len);
    return json_kind_of(v) == JSON_NULL ? 42 : 0;
}

static void members_come_in_file_order(void **state) {
    (void)state;
    struct json *v = parse("{\"z\": 1, \"a\": 2, \"m\": null, \"b\": 3}");
    struct str keys = {0};
    assert_int_equal(json_each(v, note_key, &keys), 42);
    assert_string_equal(keys.data, "zam");
    str_fini(&keys);
    json_free(v);
}

static void broken_text_is_refused(void **state) {
    (void)state;
    static const char *const cases[] = {
        "",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "[1] x",
        "NaN",
        "[Infinity]",
        "[-Infinity]",
        "'a'",
        "[01]",
        "[1 2]",
        "{\"a\" 1}",
        "\"\xFF\"",
        "nul",
        "[1e999]",
        "{a:1}",
        "[1]]",
        "\"abc",
        "// x\n1",
        "[+1]",
        "[.5]",
        "tru",
        "True",
        "[NULL]",
        "[1.]",
        "[1e]",
        "[-]",
        "\"\\x41\"",
        "[\"\\u12\"]",
        "[18446744073709551616]",
        "[-9223372036854775809]",
        "[-01]",
        "[1.e5]",
        "{'a':1}",
        "\"a\nb\"",
        "[00]",
        "[1-2]",
        "[1.2.3]",
        "[/**/1]",
        "[\f1]",
        "[0x1]",
        "\xEF\xBB\xBF[1]",
        "{\"a\\u0000b\" : 1}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *v = parse(cases[i]);
        if (v)
            fail_msg("accepted: %s", cases[i]);
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    char text[402];
    for (int depth = 100; depth <= 200; depth += 100) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        struct json *v = parse(text);
        assert_int_equal(v != NULL, depth == 100);
        json_free(v);
    }
}

static void the_writer_places_commas_and_escapes(void **state) {
    (void)state;
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key(&w, "a\"\\");
    jw_begin(&w, '[');
    jw_int(&w, INT64_MIN);
    jw_num(&w, 0.1);
    jw_num(&w, NAN);
    jw_bool(&w, true);
    jw_null(&w);
    jw_begin(&w, '{');
    jw_end(&w, '}');
    jw_begin(&w, '[');
    jw_end(&w, ']');
    jw_end(&w, ']');
    jw_key(&w, "s");
    jw_str(&w, "\n\x01\xFF/\xC3\xA9", 6);
    jw_end(&w, '}');
    assert_string_equal(w.out.data,
                        "{\"a\\\"\\\\\":[-9223372036854775808,0.1,null,true,null,{},[]],"
                        "\"s\":\"\\n\\u0001\xEF\xBF\xBD/\xC3\xA9\"}");
    struct json *v = parse(w.out.data);
    assert_non_null(v);
    json_free(v);
    str_fini(&w.out);
}

static void doubles_round_trip(void **state) {
    (void)state;
    struct rng r = {11};
    for (int i = 0; i < 5000; i++) {
        uint64_t bits = rng_next(&r);
        double x;
        memcpy(&x, &bits, sizeof x);
        struct json_writer w = {0};
        jw_num(&w, x);
        if (isfinite(x))
            assert_true(strtod(w.out.data, NULL) == x);
        else
            assert_string_equal(w.out.data, "null");
        str_fini(&w.out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(integers_keep_64_bits),
        cmocka_unit_test(members_come_in_file_order),
        cmocka_unit_test(broken_text_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(the_writer_places_commas_and_escapes),
        cmocka_unit_test(doubles_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
