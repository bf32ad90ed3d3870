// SPDX-License-Identifier: Apache-2.0
// Prompt compression through the shared library, with a random tiny scorer: pieces of the texts in
// order, whole last turns, the same spans as the engine's own, and every kind of misuse.
#include "unit/test.h"

#include <coppice_compress.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compress/compress.h"
#include "support/tiny_gguf.h"

struct fixture {
    char scorer[64];
    struct coppice_compressor *c;
    char text[6000];
    struct coppice_text messages[2];
    struct coppice_error e;
};

static struct coppice_compressor_options options_of(const struct fixture *f) {
    return (struct coppice_compressor_options){.size = sizeof(struct coppice_compressor_options),
                                               .scorer = f->scorer,
                                               .device = "cpu",
                                               .threads = 1};
}

static int setup(void **state) {
    static struct fixture f;
    const struct tiny_shape shape = tiny_shape_plain();
    snprintf(f.scorer, sizeof f.scorer, "/tmp/test_api_compress.%d.gguf", (int)getpid());
    if (tiny_target_write(&shape, f.scorer, NULL))
        return -1;
    for (unsigned i = 0, at = 0; i < 130; i++)
        at += (unsigned)snprintf(f.text + at, sizeof f.text - at,
                                 "Line %u says that the sky is so blue.\n", i);
    f.messages[0] = (struct coppice_text){"user", f.text, strlen(f.text)};
    f.messages[1] = (struct coppice_text){"user", "What says line 77?", 18};
    *state = &f;
    const struct coppice_compressor_options o = options_of(&f);
    return coppice_compressor_open(&f.c, &o, &f.e);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    coppice_compressor_close(f->c);
    return remove(f->scorer);
}

static struct coppice_compress_options keep(double ratio) {
    return (struct coppice_compress_options){.size = sizeof(struct coppice_compress_options),
                                             .keep = ratio};
}

static void test_spans(void **state) {
    struct fixture *f = *state;
    const struct coppice_compress_options o = keep(0.2);
    struct coppice_compression out = {.size = sizeof out};
    assert_int_equal(coppice_compress(f->c, f->messages, 2, &o, &out, &f->e), 0);
    assert_null(out.reason);
    assert_true(out.to > 0 && out.to <= 0.2 * (double)out.from && out.n_spans > 2);
    for (int64_t i = 1; i < out.n_spans; i++) {
        const struct coppice_span *s = &out.spans[i];
        assert_true(s->begin < s->end && s->end <= f->messages[s->message].bytes);
        assert_true(s->message > s[-1].message || s->begin > s[-1].end);
    }
    assert_int_equal(out.spans[out.n_spans - 1].message, 1);
    assert_int_equal(out.spans[out.n_spans - 1].end, 18);
    assert_int_equal(out.spans[out.n_spans - 1].begin, 0);
}

static void test_as_engine(void **state) {
    struct fixture *f = *state;
    struct compressor *c;
    const struct score_options so = score_options_default();
    assert_int_equal(compressor_open(&c, NULL, f->scorer, &so, NULL), 0);
    const struct compress_part parts[2] = {{f->messages[0].text, f->messages[0].bytes},
                                           {f->messages[1].text, f->messages[1].bytes}};
    const struct compress_message m[2] = {{"user", &parts[0], 1}, {"user", &parts[1], 1}};
    const struct compress_options o = compress_options_default();
    struct compress_result r;
    struct coppice_compression out = {.size = sizeof out};
    assert_int_equal(compress_messages(c, &(struct compress_conversation){m, 2}, &o, &r, NULL), 0);
    assert_int_equal(coppice_compress(f->c, f->messages, 2, NULL, &out, &f->e), 0);
    assert_int_equal(out.n_spans, r.n_spans);
    assert_int_equal(out.from, r.from);
    assert_int_equal(out.to, r.to);
    for (int64_t i = 0; i < r.n_spans; i++) {
        assert_int_equal(out.spans[i].begin, r.spans[i].begin);
        assert_int_equal(out.spans[i].end, r.spans[i].end);
    }
    compress_result_fini(&r);
    compressor_close(c);
}

static void test_unchanged(void **state) {
    struct fixture *f = *state;
    const struct coppice_text hello = {"user", "Hello", 5};
    struct coppice_compression out = {.size = sizeof out};
    assert_int_equal(coppice_compress(f->c, &hello, 1, NULL, &out, &f->e), 0);
    assert_non_null(out.reason);
    assert_int_equal(out.n_spans, 1);
    assert_int_equal(out.from, out.to);
}

static void refuse(struct fixture *f, struct coppice_compress_options o, const char *words) {
    struct coppice_compression out = {.size = sizeof out};
    assert_int_equal(coppice_compress(f->c, f->messages, 2, &o, &out, &f->e), COPPICE_ERR_USAGE);
    if (!strstr(f->e.text, words))
        fail_msg("'%s' does not say '%s'", f->e.text, words);
}

static void test_refused(void **state) {
    struct fixture *f = *state;
    struct coppice_compress_options o = keep(1.5);
    refuse(f, o, "at most 1");
    refuse(f, keep(-1), "above 0");
    o = keep(0.1);
    o.mass = 0.5;
    refuse(f, o, "set one of them");
    o = keep(0);
    o.curve = "10:0.5,10:0.2";
    refuse(f, o, "rise from point");
    o = keep(0.1);
    o.continued = 7;
    refuse(f, o, "number 7");
    o = keep(0.1);
    o.size = 0;
    refuse(f, o, "size");
    struct coppice_compression out = {.size = sizeof out};
    const struct coppice_text none = {NULL, "a", 1},
                              broken = {"user", "\xFF is no text at all.", 20};
    assert_int_equal(coppice_compress(f->c, &none, 1, NULL, &out, &f->e), COPPICE_ERR_USAGE);
    assert_int_equal(coppice_compress(f->c, &broken, 1, NULL, &out, &f->e), COPPICE_ERR_FORMAT);
    struct coppice_compressor *c;
    struct coppice_compressor_options open = options_of(f);
    open.scorer = "/tmp/there-is-no-such-scorer.gguf";
    assert_int_equal(coppice_compressor_open(&c, &open, &f->e), COPPICE_ERR_IO);
    assert_null(c);
    open.scorer = NULL;
    assert_int_equal(coppice_compressor_open(&c, &open, &f->e), COPPICE_ERR_USAGE);
    open = options_of(f);
    open.layers = -1;
    assert_int_equal(coppice_compressor_open(&c, &open, &f->e), COPPICE_ERR_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_as_engine),
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
