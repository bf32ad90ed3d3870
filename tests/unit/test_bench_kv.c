// SPDX-License-Identifier: Apache-2.0
// Pairs of codecs of `bench kv` from its options, and its table: a pair that cannot be measured
// keeps its row, and its reason stands below.
#include "test.h"

#include "cli/bench/kv_costs.h"

static const struct cli_command command = {.name = "bench", .id = CLI_BENCH};

static int read_costs(struct kv_costs *r, struct cli_args *a, int argc, char **argv,
                      struct err *e) {
    *a = (struct cli_args){.command = &command};
    *r = (struct kv_costs){0};
    assert_int_equal(options_parse(&a->opt, &cli_option_set, CLI_BIT(CLI_BENCH), argc, argv, e), 0);
    return kv_costs_read(r, a, e);
}

#define READ(r, a, e, ...)                                                                         \
    read_costs(r, a, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),                      \
               (char *[]){__VA_ARGS__}, e)

static void release(struct kv_costs *r, struct cli_args *a) {
    kv_costs_fini(r);
    options_fini(&a->opt);
}

static void test_pairs(void **state) {
    (void)state;
    struct kv_costs r;
    struct cli_args a;
    struct err e;
    assert_int_equal(READ(&r, &a, &e, "kv", "--prompt-tokens", "7,9"), 0);
    assert_true(r.n == 13 && r.n_lengths == 2 && r.length[1] == 9);
    assert_string_equal(r.row[0].name, "f16/f16");
    assert_string_equal(r.row[1].name, "q8_0/q8_0");
    release(&r, &a);
    assert_int_equal(READ(&r, &a, &e, "kv", "--pairs", "TQ3_0/bf16,tq3_0/bf16,f16,bf16/tq3_0"), 0);
    assert_int_equal(r.n, 3);
    assert_true(r.row[1].k == KV_TQ3_0 && r.row[1].v == KV_BF16);
    assert_string_equal(r.row[2].name, "bf16/tq3_0");
    release(&r, &a);
    static const char *const bad[] = {
        "", "q8_0,", "q8_0/", "/q8_0", "f16/f16/f16", "auto", "q8_0 , q4_0", "q8_00000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(READ(&r, &a, &e, "kv", "--pairs", (char *)(uintptr_t)bad[i]), ERR_USAGE);
        assert_non_null(strstr(e.text, "--pairs"));
        release(&r, &a);
    }
}

// All pairs that there are have room.
static void test_all_pairs(void **state) {
    (void)state;
    struct kv_costs r;
    struct cli_args a;
    struct err e;
    struct str list = {0};
    for (int k = 0; k < KV_CODEC_COUNT; k++)
        for (int v = 0; v < KV_CODEC_COUNT; v++)
            str_printf(&list, "%s%s/%s", list.len ? "," : "", kv_codec_of(k)->name,
                       kv_codec_of(v)->name);
    assert_int_equal(READ(&r, &a, &e, "kv", "--pairs", list.data), 0);
    assert_int_equal(r.n, KV_CODEC_COUNT * KV_CODEC_COUNT);
    release(&r, &a);
    str_fini(&list);
}

static int count(const char *s, char c) {
    int n = 0;
    for (; *s && *s != '\n'; s++)
        n += *s == c;
    return n;
}

static void test_table(void **state) {
    (void)state;
    struct kv_costs r;
    struct cli_args a;
    struct err e;
    struct str out = {0};
    assert_int_equal(READ(&r, &a, &e, "kv", "--pairs", "q4_0/q8_0,q8_0", "--prompt-tokens", "9"),
                     0);
    r.row[0].nll = 2;
    r.row[0].steps = 10;
    r.row[0].committed = 25;
    r.row[0].drafted = 60;
    r.row[0].sought = 4;
    r.row[0].found = 3;
    r.row[2] = (struct kv_cost){.k = KV_Q8_0,
                                .v = KV_Q8_0,
                                .name = "q8_0/q8_0",
                                .nll = 2.5,
                                .kl = 0.25,
                                .same_top = 0.5,
                                .sought = 4};
    err_set(&r.row[1].lacking, ERR_UNSUPPORTED, "this device has other codecs");
    kv_costs_text(&r, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.data, "|  2.500 |  25.00 % |     3/4 |"));
    assert_non_null(strstr(out.data, "| q8_0/q8_0   |  8.50 | 0.250000 "));
    assert_non_null(strstr(out.data, "|    12.1825 |     1.6487 |  50.00 % |"));
    assert_non_null(strstr(out.data, "\nq4_0/q8_0: this device has other codecs\n"));
    const char *line = out.data;
    for (int i = 0; i < 5; i++, line = strchr(line, '\n') + 1)
        assert_int_equal(count(line, '|'), 11);
    release(&r, &a);
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
