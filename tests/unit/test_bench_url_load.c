// SPDX-License-Identifier: Apache-2.0
// What `bench --url` requests: lengths, words, bodies and waits follow from the options and the
// seed.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/bench/url/url.h"

static const struct cli_command command = {.name = "bench", .id = CLI_BENCH};

// The load of these options behind --url; its status is returned.
static int read_load(struct url_load *l, struct cli_args *a, int argc, char **argv) {
    struct err e;
    *a = (struct cli_args){.command = &command};
    *l = (struct url_load){0};
    assert_int_equal(options_parse(&a->opt, &cli_option_set, CLI_BIT(CLI_BENCH), argc, argv, &e),
                     0);
    return url_load_read(l, a, &e);
}

static void release(struct url_load *l, struct cli_args *a) {
    url_load_fini(l);
    options_fini(&a->opt);
}

#define READ(l, a, ...)                                                                            \
    read_load(l, a, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),                       \
              (char *[]){__VA_ARGS__})

static struct json *body_of(const struct url_load *l, int64_t i) {
    struct str out = {0};
    struct json *v = NULL;
    struct err e;
    url_load_body(l, i, &out);
    assert_false(out.failed);
    assert_int_equal(json_parse(&v, out.data, out.len, &e), 0);
    str_fini(&out);
    return v;
}

static int64_t words_of(const char *s) {
    int64_t n = 1;
    for (; *s; s++)
        n += *s == ' ';
    return n;
}

static void test_ranges(void **state) {
    (void)state;
    struct url_load l;
    struct cli_args a;
    assert_int_equal(READ(&l, &a, "--input-tokens", "12", "--output-tokens", "3-400"), 0);
    assert_true(l.in.low == 12 && l.in.high == 12 && l.out.low == 3 && l.out.high == 400);
    release(&l, &a);
    static const char *const bad[] = {"", "0", "-1", "5-", "5-4", "a", "5x", "5-6x", "1-1000001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(READ(&l, &a, "--input-tokens", (char *)(uintptr_t)bad[i]), ERR_USAGE);
        release(&l, &a);
    }
}

static void test_words(void **state) {
    (void)state;
    struct url_load l;
    struct cli_args a;
    assert_int_equal(READ(&l, &a, "--input-tokens", "40-60", "--output-tokens", "7", "--seed", "3",
                          "--temp", "0.5", "--extra", "{\"x\": [1]}", "--ignore-eos"),
                     0);
    l.fixed_tokens = 10;
    l.per_word = 2;
    int64_t min = 100, max = 0;
    for (int64_t i = 0; i < 200; i++) {
        struct json *v = body_of(&l, i), *again = body_of(&l, i), *other = body_of(&l, i + 1);
        const struct json *message = json_at(json_get(v, "messages"), 0);
        const char *text = json_str(json_get(message, "content"), NULL);
        int64_t n = words_of(text);
        min = n < min ? n : min;
        max = n > max ? n : max;
        assert_string_equal(json_str(json_get(message, "role"), NULL), "user");
        assert_string_equal(
            text, json_str(json_get(json_at(json_get(again, "messages"), 0), "content"), NULL));
        assert_string_not_equal(
            text, json_str(json_get(json_at(json_get(other, "messages"), 0), "content"), NULL));
        assert_int_equal(json_int(json_get(v, "max_tokens"), 0), 7);
        assert_int_equal(json_int(json_get(v, "seed"), 0), 3 + i);
        assert_true(json_num(json_get(v, "temperature"), 0) == 0.5);
        assert_true(json_bool(json_get(v, "stream"), false));
        assert_true(json_bool(json_get(v, "ignore_eos"), false));
        assert_int_equal(json_len(json_get(v, "x")), 1);
        assert_int_equal(json_kind_of(json_get(v, "top_p")), JSON_NULL);
        json_free(v);
        json_free(again);
        json_free(other);
    }
    assert_true(min == 15 && max == 25); // (40 - 10) / 2 to (60 - 10) / 2
    release(&l, &a);
}

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/coppice-lengths-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fputs("3 4\n\n5, 6\n7\t8", f);
    fclose(f);
    struct url_load l;
    struct cli_args a;
    assert_int_equal(READ(&l, &a, "--lengths", path, "--endpoint", "completions"), 0);
    assert_int_equal(url_load_size(&l), 3);
    for (int64_t i = 0; i < 6; i++) {
        struct json *v = body_of(&l, i);
        assert_int_equal(words_of(json_str(json_get(v, "prompt"), NULL)), 3 + 2 * (i % 3));
        assert_int_equal(json_int(json_get(v, "max_tokens"), 0), 4 + 2 * (i % 3));
        json_free(v);
    }
    release(&l, &a);
    static const char *const bad[] = {"3\n", "3 4 5\n", "0 4\n", "a b\n", "\n", "3 4x\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        assert_int_equal(READ(&l, &a, "--lengths", path), ERR_FORMAT);
        release(&l, &a);
    }
    f = fopen(path, "w");
    fputs("{\"prompt\":\"Say \\\"a\\\"\\n\",\"max_tokens\":9}\n{\"prompt\":\"b\"}\n", f);
    fclose(f);
    assert_int_equal(READ(&l, &a, "--prompts", path, "-n", "5"), 0);
    struct json *v = body_of(&l, 2);
    const struct json *message = json_at(json_get(v, "messages"), 0);
    assert_string_equal(json_str(json_get(message, "content"), NULL), "Say \"a\"\n");
    assert_int_equal(json_int(json_get(v, "max_tokens"), 0), 5);
    json_free(v);
    release(&l, &a);
    f = fopen(path, "w");
    fputs("ids: 1,2\n", f);
    fclose(f);
    assert_int_equal(READ(&l, &a, "--prompts", path), ERR_USAGE);
    release(&l, &a);
    unlink(path);
}

static void test_choices(void **state) {
    (void)state;
    struct url_load l;
    struct cli_args a;
    assert_int_equal(READ(&l, &a, "--lengths", "x", "--input-tokens", "3"), ERR_USAGE);
    release(&l, &a);
    assert_int_equal(READ(&l, &a, "-n", "3"), ERR_USAGE);
    release(&l, &a);
    assert_int_equal(READ(&l, &a, "--extra", "[]"), ERR_USAGE);
    release(&l, &a);
    assert_int_equal(READ(&l, &a, "--extra", "{"), ERR_FORMAT);
    release(&l, &a);
}

// Waits of a Poisson process: exponential, so mean and deviation are 1000 / rate.
static void test_waits(void **state) {
    (void)state;
    struct url_load l = {.rate = 20, .seed = 5};
    double sum = 0, squares = 0;
    enum { N = 20000 };
    for (int64_t i = 0; i < N; i++) {
        double w = url_load_wait(&l, i);
        assert_true(w > 0);
        sum += w;
        squares += w * w;
    }
    double mean = sum / N;
    assert_float_equal(mean, 50, 1.5);
    assert_float_equal(sqrt(squares / N - mean * mean), 50, 2);
    assert_true(url_load_wait(&(struct url_load){0}, 3) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),  cmocka_unit_test(test_words), cmocka_unit_test(test_files),
        cmocka_unit_test(test_choices), cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
