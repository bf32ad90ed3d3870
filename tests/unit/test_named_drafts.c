// SPDX-License-Identifier: Apache-2.0
// Lists of drafts: how they are read, what is refused, and which become the session's.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/session/named_drafts.h"
#include "unit/test.h"

static void test_reads(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n;
        bool find;
        const char *last; // item
    } list[] = {{NULL, 0, false, NULL},
                {"", 0, false, NULL},
                {"none", 0, false, NULL},
                {"auto", 0, true, NULL},
                {"a.gguf", 1, false, "a.gguf"},
                {"auto,a.gguf", 1, true, "a.gguf"},
                {"a.gguf,auto", 1, true, "a.gguf"},
                {"a,b,c", 3, false, "c"},
                {"a,auto,o/r:Q8_0", 2, true, "o/r:Q8_0"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct named_drafts l;
        struct err e;
        assert_int_equal(named_drafts_read(&l, list[i].text, &e), 0);
        assert_int_equal(l.n, list[i].n);
        assert_int_equal(l.find, list[i].find);
        if (list[i].last)
            assert_string_equal(l.item[l.n - 1], list[i].last);
        named_drafts_fini(&l);
    }
}

static void test_refuses(void **state) {
    (void)state;
    static const char *const list[][2] = {
        {"a,,b", "an empty name"},      {"a,", "an empty name"},
        {",a", "an empty name"},        {"a,none", "none beside"},
        {"a,b,a", "names one twice"},   {"auto,auto", "names one twice"},
        {"a,b,c,d", "more than three"}, {"auto,a,b,c", "more than three"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct named_drafts l;
        struct err e;
        assert_int_equal(named_drafts_read(&l, list[i][0], &e), ERR_USAGE);
        assert_non_null(strstr(e.text, list[i][0]));
        if (!strstr(e.text, list[i][1]))
            fail_msg("%s: %s", list[i][0], e.text);
        assert_null(l.text);
    }
}

// A file whose name has a comma is that file.
static void test_commas(void **state) {
    (void)state;
    char dir[] = "/tmp/coppice-named-XXXXXX", path[64];
    struct named_drafts l;
    struct err e;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/a,b.gguf", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(named_drafts_read(&l, path, &e), 0);
    assert_true(l.n == 1 && !l.find);
    assert_string_equal(l.item[0], path);

    // What was found is the very file that is named: it is one draft, and a named one.
    char again[80];
    (void)snprintf(again, sizeof again, "%s/../%s/a,b.gguf", dir, strrchr(dir, '/') + 1);
    struct session_options o = session_options_default();
    o.draft = again;
    o.draft_optional = true;
    named_drafts_use(&l, &o);
    assert_true(o.draft == again && !o.draft_optional && o.n_further == 0);
    named_drafts_fini(&l);
    unlink(path);
    rmdir(dir);
}

static void test_use(void **state) {
    (void)state;
    struct named_drafts l;
    struct err e;
    struct session_options o = session_options_default();
    assert_int_equal(named_drafts_read(&l, "auto,a,b", &e), 0);
    o.draft = DRAFT_OF_TARGET; // as found
    o.draft_optional = true;
    named_drafts_use(&l, &o);
    assert_true(o.draft == DRAFT_OF_TARGET && o.draft_optional && o.n_further == 2);
    assert_string_equal(o.further[0], "a");
    assert_string_equal(o.further[1], "b");
    o.draft = NULL; // nothing was found
    o.draft_optional = true;
    named_drafts_use(&l, &o);
    assert_string_equal(o.draft, "a");
    assert_true(!o.draft_optional && o.n_further == 1);
    assert_string_equal(o.further[0], "b");
    named_drafts_fini(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads), cmocka_unit_test(test_refuses),
                                       cmocka_unit_test(test_commas), cmocka_unit_test(test_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
