// SPDX-License-Identifier: Apache-2.0
// Options: every spelling, every kind with its range, sentences for what is wrong, help and manual.
#include "test.h"

#include "base/options.h"

enum { QUIET, JSON, COUNT, TEMP, LIMIT, NAME, HOW, IDS, OTHER, ROWS };
enum { HERE = 1, THERE = 2 };

static const struct option table[ROWS] = {
    [QUIET] = {"quiet", 'q', OPTION_FLAG, .groups = HERE, .help = "say less"},
    [JSON] = {"json", 'j', OPTION_FLAG, .groups = HERE | THERE, .help = "print JSON"},
    [COUNT] = {"count", 'n', OPTION_INT, "N", "3", -5, 100, .groups = HERE, .help = "how many"},
    [TEMP] = {"temp", 0, OPTION_FLOAT, "T", .lo = 0, .hi = 2, .groups = HERE, .help = "how hot"},
    [LIMIT] = {"limit", 0, OPTION_SIZE, "BYTES", "64K", 1, 1e18, .groups = HERE, .help = "bound"},
    [NAME] = {"name", 'x', OPTION_STRING, "TEXT", .groups = HERE, .help = "a name_with *marks*"},
    [HOW] = {"how", 0, OPTION_CHOICE, "HOW", "b", .choices = "a|b|long", .groups = HERE,
             .help = "a sentence that is long enough to need more than the one line it begins on"},
    [IDS] = {"ids", 0, OPTION_LIST, "LIST", .lo = 0, .hi = 9, .groups = HERE, .help = "ids"},
    [OTHER] = {"other", 'o', OPTION_FLAG, .groups = THERE, .help = "not here"},
};

static struct err e;

static int parse(struct options *o, int argc, const char *const *args) {
    char *argv[16];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)(uintptr_t)args[i];
    e = (struct err){0};
    const struct option_set set = {.table = table, .count = ROWS};
    return options_parse(o, &set, HERE, argc, argv, &e);
}

#define PARSE(o, ...)                                                                              \
    parse(o, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                        \
          (const char *const[]){__VA_ARGS__})

static void every_spelling_works(void **state) {
    (void)state;
    struct options o;
    assert_int_equal(PARSE(&o, "in", "-qjn", "7", "--name=a=b", "--how", "LONG", "-", "--", "-q"),
                     0);
    assert_true(options_flag(&o, QUIET));
    assert_true(options_flag(&o, JSON));
    assert_int_equal(options_int(&o, COUNT), 7);
    assert_string_equal(options_str(&o, NAME), "a=b");
    assert_int_equal(options_int(&o, HOW), 2);
    assert_string_equal(options_str(&o, HOW), "long");
    assert_int_equal(o.n_operands, 3);
    assert_string_equal(o.operands[0], "in");
    assert_string_equal(o.operands[1], "-");
    assert_string_equal(o.operands[2], "-q");
    options_fini(&o);
    assert_int_equal(PARSE(&o, "-n-4", "-xq", "--name", "--json", "--count=-5"), 0);
    assert_int_equal(options_int(&o, COUNT), -5);
    assert_string_equal(options_str(&o, NAME), "--json");
    assert_false(options_flag(&o, JSON));
    assert_false(options_flag(&o, QUIET));
    options_fini(&o);
}

static void defaults_hold(void **state) {
    (void)state;
    struct options o;
    assert_int_equal(parse(&o, 0, NULL), 0);
    size_t n = 9;
    assert_int_equal(options_int(&o, COUNT), 3);
    assert_false(options_given(&o, COUNT));
    assert_int_equal(options_int(&o, LIMIT), 65536);
    assert_int_equal(options_int(&o, HOW), 1);
    assert_null(options_str(&o, NAME));
    assert_true(options_float(&o, TEMP) == 0.0);
    options_list(&o, IDS, &n);
    assert_int_equal(n, 0);
    options_fini(&o);
}

static void kinds_are_read(void **state) {
    (void)state;
    struct options o;
    assert_int_equal(PARSE(&o, "--temp", "1.25e0", "--limit=3g", "--ids", "1,0, 9"), 0);
    assert_true(options_float(&o, TEMP) == 1.25);
    assert_true(options_int(&o, LIMIT) == INT64_C(3) << 30);
    size_t n;
    const int32_t *ids = options_list(&o, IDS, &n);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0] * 100 + ids[1] * 10 + ids[2], 109);
    assert_true(options_given(&o, IDS));
    options_fini(&o);
}

static void wrong_values_get_a_sentence(void **state) {
    (void)state;
    static const struct {
        const char *arg, *says;
    } cases[] = {
        {"--count=101", "option '--count' takes an integer from -5 to 100, not '101'"},
        {"--count=1x", "'1x'"},
        {"--count=", "''"},
        {"--count=99999999999999999999", "not '99999999999999999999'"},
        {"--temp=nan", "a number from 0 to 2, not 'nan'"},
        {"--temp=2.5", "'2.5'"},
        {"--limit=0", "a size from 1 to 1000000000000000000, not"},
        {"--limit=9999999T", "'9999999T'"},
        {"--limit=1KB", "'1KB'"},
        {"--how=lon", "one of a|b|long, not 'lon'"},
        {"--how=", "one of"},
        {"--ids=1,,2", "integers separated by commas from 0 to 9, not '1,,2'"},
        {"--ids=1,10", "'1,10'"},
        {"--ids=1,", "'1,'"},
        {"--json=yes", "option '--json' takes no value, but has 'yes'"},
        {"-n", "option '--count' needs a value N"},
        {"--name", "option '--name' needs a value TEXT"},
        {"--cuont=3", "unknown option '--cuont'; did you mean '--count'?"},
        {"-count", "unknown option '-count'; did you mean '--count'?"},
        {"--zzzzzzzz", "unknown option '--zzzzzzzz'; see --help for the list"},
        {"-qz", "unknown option '-z'"},
        {"--other", "option '--other' does not belong to this subcommand"},
        {"-o", "unknown option '-o'"},
        {"--=3", "unknown option '--'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options o;
        assert_int_equal(parse(&o, 1, &cases[i].arg), ERR_USAGE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%s gave: %s", cases[i].arg, e.text);
        options_fini(&o);
    }
}

static int parse_known(struct options *o, int argc, const char *const *args) {
    static const struct option_alias aliases[] = {
        {"-nx", COUNT, NULL, NULL, NULL, HERE},
        {"--number", COUNT, NULL, NULL, NULL, HERE},
        {"--name", COUNT, NULL, NULL, NULL, HERE}, // an option's own name goes first
        {"--kind", HOW, NULL, "first=a|second=long|b", NULL, HERE},
        {"--long-way", HOW, "long", NULL, NULL, HERE},
        {"--hush", QUIET, "", NULL, NULL, HERE},
        {"-fa", OPTION_NONE, NULL, "on|off", "it is always so", HERE},
        {"--layers", OPTION_NONE, NULL, "", "there are none", HERE},
        {"--jump", OPTION_NONE, NULL, NULL, NULL, HERE},
        {"--there", COUNT, NULL, NULL, NULL, THERE},
    };
    static const struct option_set set = {table, ROWS, aliases, sizeof aliases / sizeof *aliases};
    char *argv[16];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)(uintptr_t)args[i];
    e = (struct err){0};
    return options_parse(o, &set, HERE, argc, argv, &e);
}

#define KNOWN(o, ...)                                                                              \
    parse_known(o, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                  \
                (const char *const[]){__VA_ARGS__})

static void other_spellings_are_known(void **state) {
    (void)state;
    struct options o;
    assert_int_equal(KNOWN(&o, "-nx", "7", "--kind", "second", "--hush", "--name", "text"), 0);
    assert_int_equal(options_int(&o, COUNT), 7);
    assert_true(options_given(&o, COUNT));
    assert_string_equal(options_str(&o, HOW), "long");
    assert_true(options_flag(&o, QUIET));
    assert_string_equal(options_str(&o, NAME), "text");
    assert_int_equal(o.n_used, 3);
    assert_null(o.used[0]->note);
    options_fini(&o);
    assert_int_equal(KNOWN(&o, "--number=9", "--kind=b", "--long-way", "-n8"), 0);
    assert_int_equal(options_int(&o, COUNT), 8); // the last one counts
    assert_int_equal(options_int(&o, HOW), 2);
    options_fini(&o);
    // Without an effect: with the value that may follow, and no other.
    assert_int_equal(
        KNOWN(&o, "-fa", "on", "-fa", "in", "--layers", "99", "--layers=3", "--jump", "--", "-fa"),
        0);
    assert_int_equal(o.n_operands, 2);
    assert_string_equal(o.operands[0], "in");
    assert_string_equal(o.operands[1], "-fa");
    assert_int_equal(o.n_used, 5);
    assert_string_equal(o.used[0]->note, "it is always so");
    options_fini(&o);
    // A value that looks like one is a value.
    assert_int_equal(KNOWN(&o, "--name", "-fa", "-x", "--hush"), 0);
    assert_string_equal(options_str(&o, NAME), "--hush");
    assert_int_equal(o.n_used, 0);
    options_fini(&o);
}

static void other_spellings_are_checked(void **state) {
    (void)state;
    struct options o;
    assert_int_equal(KNOWN(&o, "--kind", "third"), ERR_USAGE);
    assert_string_equal(e.text,
                        "option '--kind' takes one of first=a|second=long|b here, not 'third'");
    options_fini(&o);
    assert_int_equal(KNOWN(&o, "--kind", "a"), ERR_USAGE); // only as it is spelt elsewhere
    options_fini(&o);
    assert_int_equal(KNOWN(&o, "--number", "many"), ERR_USAGE);
    assert_non_null(strstr(e.text, "'many'"));
    options_fini(&o);
    assert_int_equal(KNOWN(&o, "-nx"), ERR_USAGE);
    assert_string_equal(e.text, "option '-nx' needs a value after it");
    options_fini(&o);
    assert_int_equal(KNOWN(&o, "--there", "1"), ERR_USAGE);
    options_fini(&o);
}

static void distances_are_right(void **state) {
    (void)state;
    assert_int_equal(options_distance("", "abc"), 3);
    assert_int_equal(options_distance("budget", "bugdet"), 1);
    assert_int_equal(options_distance("budget", "bugdte"), 2);
    assert_int_equal(options_distance("ab", "ba"), 1);
    assert_int_equal(options_distance("kitten", "sitting"), 3);
    struct options o;
    assert_int_equal(PARSE(&o, "--tmep", "1"), ERR_USAGE);
    assert_non_null(strstr(e.text, "did you mean '--temp'?"));
    options_fini(&o);
    assert_int_equal(PARSE(&o, "--othre"), ERR_USAGE);
    assert_null(strstr(e.text, "did you mean"));
    options_fini(&o);
}

static void help_and_manual_show_the_rows(void **state) {
    (void)state;
    struct str s = {0};
    options_help(&s, table, ROWS, HERE);
    assert_false(s.failed);
    assert_non_null(
        strstr(s.data, "  -n, --count N             how many; -5 to 100 (default 3)\n"));
    assert_null(strstr(s.data, "other"));
    for (char *line = s.data, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        assert_in_range(end - line, 1, 80);
    }
    str_clear(&s);
    options_manual(&s, table, ROWS, HERE);
    assert_non_null(strstr(s.data, "*-x*, *--name* _TEXT_\n\ta name\\_with \\*marks\\*.\n\n"));
    str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_works),
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(kinds_are_read),
        cmocka_unit_test(wrong_values_get_a_sentence),
        cmocka_unit_test(other_spellings_are_known),
        cmocka_unit_test(other_spellings_are_checked),
        cmocka_unit_test(distances_are_right),
        cmocka_unit_test(help_and_manual_show_the_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
