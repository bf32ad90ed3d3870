// SPDX-License-Identifier: Apache-2.0
// tokenizer.model that is cut short or damaged anywhere: converted or refused with a sentence,
// never a crash; and the settings that cannot be said in a GGUF file.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "convert/convert.h"
#include "formats/gguf/gguf.h"

#define FOLDER SOURCE_ROOT "/tests/fixtures/convert/llama2"

static char dir[] = "/tmp/coppice-pieces-XXXXXX";
static char model[64], out[64];
static const char *const links[] = {"config.json", "tokenizer_config.json", "added_tokens.json",
                                    "model.safetensors"};
enum { LINKS = sizeof links / sizeof *links };

static int set_up(void **state) {
    (void)state;
    char from[256], to[96];
    if (!mkdtemp(dir))
        return -1;
    snprintf(model, sizeof model, "%s/tokenizer.model", dir);
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    for (int i = 0; i < LINKS; i++) {
        snprintf(from, sizeof from, FOLDER "/%s", links[i]);
        snprintf(to, sizeof to, "%s/%s", dir, links[i]);
        if (symlink(from, to))
            return -1;
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char path[96];
    for (int i = 0; i < LINKS; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, links[i]);
        unlink(path);
    }
    unlink(model);
    unlink(out);
    return rmdir(dir);
}

static int convert(const char *bytes, size_t n, struct err *e) {
    struct convert_options o = {.recipe = convert_recipe("F16"), .threads = 1};
    FILE *f = fopen(model, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    *e = (struct err){0};
    int rc = convert_hf(dir, out, &o, e);
    assert_true(rc == 0 || e->text[0] != '\0');
    return rc;
}

static void read_model(struct str *s) {
    struct err e = {0};
    if (file_read(s, FOLDER "/tokenizer.model", 1 << 20, &e))
        fail_msg("%s", e.text);
}

static void test_cut(void **state) {
    (void)state;
    struct str whole = {0};
    struct err e;
    read_model(&whole);
    assert_int_equal(convert(whole.data, whole.len, &e), 0);
    // Pieces come before the settings, so that a file cut inside lacks those at least.
    for (size_t n = 1; n < whole.len - 600; n += 61)
        assert_int_not_equal(convert(whole.data, n, &e), 0);
    str_fini(&whole);
}

// A user-defined piece of n blanks.
static void append_blanks(struct str *s, int n) {
    static const char rest[] = "\x15\0\0\0\0\x18\x04"; // its score, its type
    const char head[] = {0x0A, (char)(2 + 3 * n + (int)sizeof rest - 1), 0x0A, (char)(3 * n)};
    str_append(s, head, sizeof head);
    for (int i = 0; i < n; i++)
        str_puts(s, "\xE2\x96\x81");
    str_append(s, rest, sizeof rest - 1);
}

// Vocabularies have user-defined pieces as they stand in texts. Of the four the first three get
// other texts by the JSON files.
static void test_user_defined(void **state) {
    (void)state;
    struct str all = {0};
    struct gguf *g;
    struct err e;
    bool found = false;
    size_t n;
    read_model(&all);
    for (int i = 2; i <= 5; i++)
        append_blanks(&all, i);
    assert_int_equal(convert(all.data, all.len, &e), 0);
    assert_int_equal(gguf_open(&g, out, &e), 0);
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.tokens");
    assert_true(kv && kv->elem == GGUF_STRING);
    const unsigned char *at = kv->bytes;
    for (uint64_t i = 0; i < kv->count; i++) {
        const char *text = gguf_array_str(&at, &n);
        found |= n == 5 && !memcmp(text, "     ", 5);
    }
    assert_true(found);
    gguf_close(g);
    str_fini(&all);
}

static void test_damaged(void **state) {
    (void)state;
    struct str whole = {0}, copy = {0};
    struct rng r = {3};
    struct err e;
    int refused = 0;
    read_model(&whole);
    for (int i = 0; i < 200; i++) {
        str_clear(&copy);
        str_append(&copy, whole.data, whole.len);
        for (uint32_t k = 1 + rng_below(&r, 4); k > 0; k--)
            copy.data[rng_below(&r, (uint32_t)copy.len)] = (char)rng_below(&r, 256);
        refused += convert(copy.data, copy.len, &e) != 0;
    }
    assert_true(refused > 20);
    str_fini(&whole);
    str_fini(&copy);
}

// A message of one piece and its settings, written by hand.
static void test_settings(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"\x0A\x08\x0A\x01"
         "a"
         "\x15\0\0\0\0"
         "\x12\x02\x18\x02",
         14, NULL},
        {"\x0A\x08\x0A\x01"
         "a"
         "\x15\0\0\0\0"
         "\x12\x02\x18\x01",
         14, "not made by pairs"},
        {"\x0A\x08\x0A\x01"
         "a"
         "\x15\0\0\0\0"
         "\x12\x02\x18\x02\x1A\x03\x12\x01"
         "x",
         19, "a table for normalising"},
        {"\x0A\x08\x0A\x01"
         "a"
         "\x15\0\0\0\0",
         10, "is damaged"},
        {"\x0A\x08\x0A\x01\xFF\x15\0\0\0\0\x12\x02\x18\x02", 14, "is damaged"},
        {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 10, "is damaged"},
        {"\x0A\x03\x0A\x01"
         "a\x0A\x03\x0A\x01"
         "a\x12\x02\x18\x02",
         14, "has the ids 0 and 1"},
    };
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = convert(cases[i].bytes, cases[i].n, &e);
        if ((rc == 0) != !cases[i].part || (rc && !strstr(e.text, cases[i].part)))
            fail_msg("case %zu: %d \"%s\"", i, rc, e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user_defined),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
