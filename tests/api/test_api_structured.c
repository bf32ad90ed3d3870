// SPDX-License-Identifier: Apache-2.0
// Structured output through the public interface.
#include "unit/test.h"

#include "support/tiny_gguf.h"
#include <coppice.h>

enum { N_PROMPT = 40 };

struct fixture {
    struct tiny_pair files;
    struct coppice_model *m;
    struct coppice_sequence *s; // of the prompt
};

static int setup(void **state) {
    static struct fixture f;
    int32_t prompt[N_PROMPT];
    *state = &f;
    if (tiny_pair_write(&f.files, "api-structured"))
        return -1;
    struct coppice_load_options o = {.size = sizeof o,
                                     .model = f.files.target,
                                     .draft = f.files.draft,
                                     .device = "cpu",
                                     .threads = 1,
                                     .max_ctx = 200};
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 32 + (i * 37 + i / 5) % 90;
    if (coppice_load(&f.m, &o, NULL) || coppice_sequence_create(&f.s, f.m, NULL))
        return -1;
    return coppice_sequence_append(f.s, prompt, N_PROMPT, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    coppice_sequence_free(f->s);
    coppice_free(f->m);
    tiny_pair_remove(&f->files);
    return 0;
}

// What is held to a regular expression is the same text however it is guessed.
static void test_structured(void **state) {
    struct fixture *f = *state;
    struct coppice_request r = {.size = sizeof r, .max_tokens = 30, .logit_hash = 1};
    struct coppice_result first = {0};
    r.temperature = 0.7;
    r.regex = "[ab]{2}xyz[cd]{2}";
    for (int how = COPPICE_SPECULATE_TREE; how <= COPPICE_SPECULATE_OFF; how++) {
        char text[32];
        struct coppice_sequence *s;
        struct coppice_result y = {.size = sizeof y};
        r.speculate = how;
        assert_int_equal(coppice_sequence_fork(f->s, &s, NULL), 0);
        assert_int_equal(coppice_generate(s, &r, &y, NULL), 0);
        if (!first.tokens)
            first = y;
        assert_int_equal(y.end, COPPICE_END_STOP);
        assert_int_equal(y.tokens, first.tokens);
        assert_int_equal(y.logit_hash, first.logit_hash);
        coppice_detokenize(f->m, coppice_sequence_tokens(s) + N_PROMPT, y.tokens, 0, text, 32,
                           NULL);
        assert_int_equal(strlen(text), 7);
        assert_int_equal(strspn(text, "ab"), 2);
        assert_memory_equal(text + 2, "xyz", 3);
        assert_int_equal(strspn(text + 5, "cd"), 2);
        coppice_sequence_free(s);
    }
}

static void test_refusals(void **state) {
    struct fixture *f = *state;
    struct coppice_request r = {.size = sizeof r, .max_tokens = 5, .regex = "a(b"};
    struct coppice_error e;
    assert_int_equal(coppice_generate(f->s, &r, NULL, &e), COPPICE_ERR_FORMAT);
    assert_memory_equal(e.text, "regex: ", 7);
    r.grammar = "root ::= \"a\"";
    assert_int_equal(coppice_generate(f->s, &r, NULL, &e), COPPICE_ERR_USAGE);
    assert_non_null(strstr(e.text, "both"));
    assert_int_equal(coppice_sequence_length(f->s), N_PROMPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structured),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
