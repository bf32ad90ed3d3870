// SPDX-License-Identifier: Apache-2.0
// Lines of server-sent events and their data, however the bytes are cut.
#include "serve/http/sse.h"
#include "test.h"

// Lines with a bar after each, data marked.
static int collect(void *arg, const char *line, size_t n, struct err *e) {
    const char *data = sse_data(line, n);
    (void)e;
    if (data)
        str_putc(arg, '=');
    str_append(arg, data ? data : line, data ? (size_t)(line + n - data) : n);
    str_putc(arg, '|');
    return 0;
}

static void test_lines(void **state) {
    (void)state;
    static const struct {
        const char *text, *lines;
    } cases[] = {
        {"data: a\n\ndata: b\n\n", "=a||=b||"},
        {"data: a\r\n\r\ndata: b\r\n\r\n", "=a||=b||"},
        {"data: a\r\rdata: b\r\r", "=a||=b||"},
        {"\r\n\n\r\r\n", "||||"},
        {": note\nevent: x\ndata:a\ndata:  b\n\n", ": note|event: x|=a|= b||"},
        {"data\n\n", "=||"},
        {"data:\n\n", "=||"},
        {"data: cut off", ""},
        {"database: x\n\ndata: y\n\n", "database: x||=y||"},
    };
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].text;
        size_t n = strlen(text);
        for (size_t cut = 0; cut <= n; cut++) {
            struct sse_reader r = {0};
            struct str out = {0};
            assert_int_equal(sse_read(&r, text, cut, collect, &out, &e), 0);
            assert_int_equal(sse_read(&r, text + cut, n - cut, collect, &out, &e), 0);
            assert_string_equal(out.data ? out.data : "", cases[i].lines);
            str_fini(&out);
            sse_reader_fini(&r);
        }
    }
}

static void test_long_line(void **state) {
    (void)state;
    struct sse_reader r = {0};
    struct str out = {0};
    struct err e;
    static char part[1 << 20];
    int rc = 0;
    memset(part, 'a', sizeof part);
    for (int i = 0; i < 80 && !rc; i++)
        rc = sse_read(&r, part, sizeof part, collect, &out, &e);
    assert_int_equal(rc, ERR_LIMIT);
    sse_reader_fini(&r);
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_long_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
