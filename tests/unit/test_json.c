// SPDX-License-Identifier: Apache-2.0
// JSON: strict reading, exact integers, order of members; writing with escapes and commas.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json/json.h"
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

static int parse_by(struct json **v, const char *text, struct json_rules rules, struct err *e) {
    *e = (struct err){0};
    return json_parse_with(v, text, strlen(text), &rules, e);
}

static void errors_say_where(void **state) {
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"{\n \"a\": nope}", "wrong at byte 8 (line 2): here should be a value"},
        {"[1,\n2\n3]", "wrong at byte 6 (line 3): array value separator ',' expected"},
        {"{\"a\":1 \"b\"", "wrong at byte 7 (line 1): object value separator ',' expected"},
        {"{\"a\" 1}", "wrong at byte 5 (line 1): object property name separator ':' expected"},
        {"{a:1}", "wrong at byte 1 (line 1): quoted object property name expected"},
        {"[1] x", "wrong at byte 4 (line 1): unexpected character"},
        {"[\"ab\xFF\"]", "wrong at byte 4 (line 1): this is not UTF-8"},
        {"[\"ab\\q\"]", "wrong at byte 5 (line 1): invalid string sequence"},
        {"[NaN]", "wrong at byte 1 (line 1): here should be a value"},
        {"[-Infinity]", "wrong at byte 1 (line 1): this is no number"},
        {"[1e999]", "wrong at byte 1 (line 1): the number is too large"},
        {"[18446744073709551616]", "wrong at byte 1 (line 1): the integer needs more than 64 bits"},
        {"[1, {\"a\":", "ends after 9 bytes in the middle of a value"},
        {"[\"abc", "ends after 5 bytes"},
        {"", "ends after 0 bytes"},
        {" nul", "wrong at byte 1 (line 1): here should be a value"},
        {"[1,", "ends after 3 bytes"},
        {"[\"a\tb\"]", "wrong at byte 3 (line 1): a string holds a control character"},
        {"[\"\xC0\xAF\"]", "wrong at byte 2 (line 1): "},
        {"[\"\xED\xA0\x80\"]", "wrong at byte 2 (line 1): "},
        {"[\"\xF4\x90\x80\x80\"]", "wrong at byte 2 (line 1): "},
        {"[\"\xE2\x82\"]", "wrong at byte 2 (line 1): "},
        {"{\"\\u0000\":1}", "wrong at byte 1 (line 1): a key holds the character U+0000"},
        {"{\"a\":\"b\":1}", "wrong at byte 8 (line 1): object value separator ',' expected"},
        {"{\"a\":}", "wrong at byte 5 (line 1): unexpected character"},
        {":1", "wrong at byte 0 (line 1): unexpected character"},
        {"[1]]", "wrong at byte 3 (line 1): unexpected character"},
        // Of several wrong places the first one is reported.
        {"[1 2, NaN]", "wrong at byte 3 (line 1): array value separator"},
        {"[1e999, 1 2]", "wrong at byte 1 (line 1): the number is too large"},
        // Places after numbers that json-c gets otherwise.
        {"[-0,\n-0,1e-000 2]", "wrong at byte 15 (line 2): array value separator"},
        {"[\"\\ud836\\udc00\",\n-0 2]", "wrong at byte 20 (line 2): array value separator"},
        {"[\"\\ud836\\udc00\\q\"]", "wrong at byte 15 (line 1): invalid string sequence"},
        {"[\"\\ud836\\udc00\", NaN]", "wrong at byte 17 (line 1): here should be a value"},
        {"{\"\\ud836\\udc00\\u0000\":1}", "wrong at byte 1 (line 1): a key holds"},
        {"[\"\\ud836\\udc00", "ends after 14 bytes"},
        {"[-0 -0, NaN]", "wrong at byte 4 (line 1): array value separator"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *v;
        struct err e;
        assert_int_equal(parse_by(&v, cases[i].text, (struct json_rules){0}, &e), ERR_FORMAT);
        assert_null(v);
        if (!strstr(e.text, cases[i].said))
            fail_msg("%s\n%s", cases[i].text, e.text);
    }
}

static void keys_that_come_twice(void **state) {
    (void)state;
    static const char text[] = "{\"a\": 1, \"b\": 2, \"c\": {}, \"\\u0062\": {\"b\": 3}, \"a\": 4}";
    struct json_writer w = {0};
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, text, (struct json_rules){.unique_keys = true}, &e), ERR_FORMAT);
    assert_non_null(
        strstr(e.text, "the key 'a' comes twice in the JSON object that ends at byte 5"));
    // Without the rule the last one counts, in the first one's place.
    assert_int_equal(parse_by(&v, text, (struct json_rules){0}, &e), 0);
    jw_value(&w, v);
    assert_string_equal(w.out.data, "{\"a\":4,\"b\":{\"b\":3},\"c\":{}}");
    assert_int_equal(json_len(v), 3);
    assert_int_equal(json_int(json_get(v, "a"), 0), 4);
    str_fini(&w.out);
    json_free(v);
}

static void values_are_written_as_they_were(void **state) {
    (void)state;
    static const char text[] =
        "{\"z\":[1.0,1e-7,-0,0.10,1E+2,18446744073709551615,-9223372036854775808],\"a\":[[],{},"
        "\"\"],"
        "\"q\":\"\\\"\\\\/\\u0001\\n\xC3\xA9\xF0\x9F\x98\x80\",\"t\":[true,false,null]}";
    struct json_writer w = {0};
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, text, (struct json_rules){.unique_keys = true}, &e), 0);
    jw_value(&w, v);
    assert_string_equal(w.out.data, text);
    assert_string_equal(json_number_text(json_at(json_get(v, "z"), 0)), "1.0");
    assert_null(json_number_text(json_get(v, "q")));
    assert_null(json_number_text(NULL));
    str_fini(&w.out);
    json_free(v);
}

// What json-c gets in place of numbers that it would not keep is gone again.
static void marks_of_numbers_are_cut(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\":[-0,[1e-000,-0e-000,1E-000,2.5e-0000,1e-00],0,[[-0]]],\"b\":"
        "12345678901234567890123,"
        "\"c\":{\"d\":-9223372036854775809,\"e\":-0.0,\"f\":100000,\"g\":1e000}}";
    struct json_writer w = {0};
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, text, (struct json_rules){.big_integers = true}, &e), 0);
    jw_value(&w, v);
    assert_string_equal(w.out.data, text);
    const struct json *a = json_get(v, "a"), *c = json_get(v, "c");
    assert_int_equal(json_kind_of(json_at(a, 0)), JSON_INT);
    assert_int_equal(json_int(json_at(a, 0), 7), 0);
    assert_true(signbit(json_num(json_at(a, 0), 7)));
    assert_int_equal(json_kind_of(json_at(json_at(a, 1), 0)), JSON_DOUBLE);
    assert_true(json_num(json_at(json_at(a, 1), 3), 7) == 2.5);
    assert_true(json_num(json_get(v, "b"), 7) == 12345678901234567890123.0);
    assert_int_equal(json_kind_of(json_get(c, "e")), JSON_DOUBLE);
    assert_int_equal(json_int(json_get(c, "d"), -7), -7);
    str_fini(&w.out);
    json_free(v);
    // Also where the last of equal keys counts.
    assert_int_equal(parse_by(&v, "{\"a\":-0,\"b\":1,\"a\":-0}", (struct json_rules){0}, &e), 0);
    assert_string_equal(json_number_text(json_get(v, "a")), "-0");
    json_free(v);
    assert_int_equal(parse_by(&v, "-0", (struct json_rules){0}, &e), 0);
    assert_string_equal(json_number_text(v), "-0");
    json_free(v);
}

static void escapes_become_characters(void **state) {
    (void)state;
    struct json *v =
        parse("[\"\\uD83D\\uDE00\\u00e9\\u20AC\\/\\b\", \"\\uD83Dx\\uDE00\", \"\\u0000\"]");
    size_t len;
    assert_string_equal(json_str(json_at(v, 0), &len), "\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC/\b");
    assert_string_equal(json_str(json_at(v, 1), &len), "\xEF\xBF\xBDx\xEF\xBF\xBD");
    assert_memory_equal(json_str(json_at(v, 2), &len), "\0", 2);
    assert_int_equal(len, 1);
    json_free(v);
}

static size_t write_utf8_4(uint32_t code, char *text) {
    for (int i = 3; i > 0; i--, code >>= 6)
        text[i] = (char)(0x80 | (code & 0x3F));
    text[0] = (char)(0xF0 | code);
    return 4;
}

static void pairs_of_escapes_are_every_character(void **state) {
    (void)state;
    struct str text = {0}, want = {0};
    char one[16];
    size_t len;
    for (uint32_t code = 0x10000; code < 0x110000; code++) {
        int n = snprintf(one, sizeof one, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10),
                         0xDC00 + (code & 0x3FF));
        str_append(&text, code == 0x10000 ? "\"" : "", code == 0x10000);
        str_append(&text, one, (size_t)n);
        str_append(&want, one, write_utf8_4(code, one));
    }
    str_append(&text, "\"", 2);
    struct json *v = parse(text.data);
    const char *got = json_str(v, &len);
    assert_int_equal(len, want.len);
    assert_memory_equal(got, want.data, len);
    json_free(v);
    str_fini(&text);
    str_fini(&want);
}

// json-c takes U+1D800 to U+1DFFF and those of the same last bits for halves of pairs.
static void pairs_that_look_like_halves(void **state) {
    (void)state;
    static const char text[] =
        "{\"\\uD836\\uDC00\" : 1, \"\\ud836\\uDC01\\\\ud836\": "
        "\"\\uD836\\uD836\\uDFFF\\\"\\uD836\", "
        "\"\\uD8F6\\uDC00\": [-0, \"\\uD836\\uDC00\\uDC00\", \"\\uD836x\\uDC00\"]}";
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, text, (struct json_rules){.unique_keys = true}, &e), 0);
    assert_int_equal(json_int(json_get(v, "\xF0\x9D\xA0\x80"), 0), 1);
    assert_string_equal(json_str(json_get(v, "\xF0\x9D\xA0\x81\\ud836"), NULL),
                        "\xEF\xBF\xBD\xF0\x9D\xAF\xBF\"\xEF\xBF\xBD");
    const struct json *list = json_get(v, "\xF1\x8D\xA0\x80");
    assert_string_equal(json_number_text(json_at(list, 0)), "-0");
    assert_string_equal(json_str(json_at(list, 1), NULL), "\xF0\x9D\xA0\x80\xEF\xBF\xBD");
    assert_string_equal(json_str(json_at(list, 2), NULL), "\xEF\xBF\xBDx\xEF\xBF\xBD");
    json_free(v);
    static const char twice[] = "{\"\\ud836\\udc00\":1,\"\xF0\x9D\xA0\x80\":2}";
    assert_int_equal(parse_by(&v, twice, (struct json_rules){.unique_keys = true}, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "the key '\xF0\x9D\xA0\x80' comes twice"));
}

static void large_integers_by_rule(void **state) {
    (void)state;
    static const char text[] = "[123456789012345678901234567890]";
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, text, (struct json_rules){0}, &e), ERR_FORMAT);
    assert_int_equal(parse_by(&v, text, (struct json_rules){.big_integers = true}, &e), 0);
    assert_int_equal(json_kind_of(json_at(v, 0)), JSON_INT);
    assert_int_equal(json_int(json_at(v, 0), -7), -7);
    assert_true(json_num(json_at(v, 0), 0) > 1.2e29);
    assert_string_equal(json_number_text(json_at(v, 0)), "123456789012345678901234567890");
    json_free(v);
}

static void numbers_of_values_are_bounded(void **state) {
    (void)state;
    struct json *v;
    struct err e;
    assert_int_equal(parse_by(&v, "[1, {\"a\": 2}, 3]", (struct json_rules){.values = 5}, &e), 0);
    json_free(v);
    assert_int_equal(parse_by(&v, "[1, {\"a\": 2}, 3]", (struct json_rules){.values = 4}, &e),
                     ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 4 values"));
    assert_int_equal(parse_by(&v, "[{}, {\"a\": {}}]", (struct json_rules){.objects = 3}, &e), 0);
    json_free(v);
    assert_int_equal(parse_by(&v, "[{}, {\"a\": {}}]", (struct json_rules){.objects = 2}, &e),
                     ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 2 objects"));
}

static void members_of_large_objects_are_found(void **state) {
    (void)state;
    enum { N = 5000 };
    struct json_writer w = {0};
    char key[32];
    jw_begin(&w, '{');
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%d", i * 7919 % N);
        jw_key(&w, key);
        jw_int(&w, i);
    }
    jw_end(&w, '}');
    struct json *v = parse(w.out.data);
    assert_int_equal(json_len(v), N);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "k%d", i * 7919 % N);
        assert_int_equal(json_int(json_get(v, key), -1), i);
    }
    assert_null(json_get(v, "k"));
    assert_null(json_get(v, "k5000"));
    str_fini(&w.out);
    json_free(v);
}

static void write_one_of_each(struct json_writer *w, const struct json *read) {
    jw_begin(w, '{');
    jw_key_int(w, "int", INT64_MIN);
    jw_key_num(w, "num", 2.5e-7);
    jw_key_text(w, "text", "a\0\"\xFF\xC3\xA9", 6);
    jw_key_bool(w, "no", false);
    jw_key_begin(w, "list", '[');
    jw_null(w);
    jw_value(w, read);
    jw_begin(w, '{');
    jw_end(w, '}');
    jw_value(w, NULL);
    jw_end(w, ']');
    jw_key_str(w, "text", "twice");
    jw_key_value(w, "all", read);
    jw_end(w, '}');
}

static void documents_are_built_as_texts_are_read(void **state) {
    (void)state;
    struct json *read = parse("{\"n\":[-0,1.50,1e3],\"s\":\"\\u00e9\"}"), *built;
    struct json_builder b = {0}, deep = {0};
    struct json_writer text = {0}, tree = {.builder = &b}, again = {0}, first = {0};
    struct err e = {0};
    write_one_of_each(&text, read);
    write_one_of_each(&tree, read);
    assert_int_equal(json_built(&b, &built, "a test", &e), 0);
    assert_int_equal(tree.out.len, 0);
    json_free(read); // what was shared stays
    struct json *parsed = parse(text.out.data);
    jw_value(&first, parsed);
    jw_value(&again, built);
    assert_string_equal(again.out.data, first.out.data);
    json_free(parsed);
    json_free(built);
    str_fini(&text.out);
    str_fini(&first.out);
    str_fini(&again.out);
    tree.builder = &deep;
    for (int i = 0; i < 40; i++)
        jw_begin(&tree, '[');
    jw_cstr(&tree, "deep");
    for (int i = 0; i < 40; i++)
        jw_end(&tree, ']');
    assert_int_equal(json_built(&deep, &built, "a test", &e), ERR_MEMORY);
    assert_null(built);
    assert_string_equal(e.text, "no memory for a test");
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
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(keys_that_come_twice),
        cmocka_unit_test(values_are_written_as_they_were),
        cmocka_unit_test(marks_of_numbers_are_cut),
        cmocka_unit_test(escapes_become_characters),
        cmocka_unit_test(pairs_of_escapes_are_every_character),
        cmocka_unit_test(pairs_that_look_like_halves),
        cmocka_unit_test(large_integers_by_rule),
        cmocka_unit_test(numbers_of_values_are_bounded),
        cmocka_unit_test(members_of_large_objects_are_found),
        cmocka_unit_test(documents_are_built_as_texts_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
