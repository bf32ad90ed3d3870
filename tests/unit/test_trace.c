// SPDX-License-Identifier: Apache-2.0
// Traces: after every write the file is whole JSON with what has happened so far; a folder that is
// not there and a device that is full are reported.
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "engine/loop/trace.h"
#include "unit/test.h"

// The events so far.
static size_t events_of(const char *path, struct json **root) {
    struct str text = {0};
    struct err e;
    assert_int_equal(file_read(&text, path, 1 << 20, &e), 0);
    if (json_parse(root, text.data, text.len, &e))
        fail_msg("%s", e.text);
    str_fini(&text);
    return json_len(json_get(*root, "traceEvents"));
}

static void the_trace_is_always_valid_json(void **state) {
    (void)state;
    char path[64];
    struct trace *t;
    struct json *root;
    struct err e;
    snprintf(path, sizeof path, "/tmp/coppice-trace-%d.json", (int)getpid());
    assert_int_equal(trace_open(&t, path, &e), 0);
    size_t named = events_of(path, &root);
    json_free(root);
    double now = clock_ms();
    for (int i = 0; i < 50; i++) {
        struct trace_pass p = {.start = now + i, .ms = 0.75, .members = 3, .decoding = i % 4};
        trace_pass(t, &p);
        assert_int_equal(events_of(path, &root), named + (size_t)i + 1);
        const struct json *last = json_at(json_get(root, "traceEvents"), named + (size_t)i);
        assert_int_equal(json_int(json_get(last, "dur"), 0), 750);
        assert_string_equal(json_str(json_get(last, "name"), NULL), i % 4 == 0  ? "prompt"
                                                                    : i % 4 < 3 ? "mixed"
                                                                                : "decode");
        assert_int_equal(json_int(json_get(json_get(last, "args"), "pieces"), -1), 3 - i % 4);
        json_free(root);
    }
    struct trace_request r = {.number = 9,
                              .submitted = now,
                              .joined = now + 1,
                              .chosen = now + 2,
                              .ended = now + 5,
                              .tokens = 7,
                              .reason = "stop"};
    trace_request(t, &r);
    assert_int_equal(events_of(path, &root), named + 50 + 8);
    json_free(root);
    assert_int_equal(trace_failed(t, &e), 0);
    trace_close(t);
    assert_int_equal(events_of(path, &root), named + 50 + 8);
    json_free(root);
    unlink(path);
}

static void failures_are_reported(void **state) {
    (void)state;
    struct trace *t = NULL;
    struct err e = {0};
    assert_int_equal(trace_open(&t, "/nowhere/trace.json", &e), ERR_IO);
    assert_non_null(strstr(e.text, "/nowhere/trace.json"));
    assert_int_equal(trace_open(&t, "/dev/full", &e), ERR_IO);
    assert_non_null(strstr(e.text, "/dev/full"));
    trace_pass(NULL, &(struct trace_pass){0});
    trace_request(NULL, &(struct trace_request){0});
    assert_int_equal(trace_failed(NULL, &e), 0);
    trace_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trace_is_always_valid_json),
        cmocka_unit_test(failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
