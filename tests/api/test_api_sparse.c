// SPDX-License-Identifier: Apache-2.0
// Sparse reading of prompts through the shared library.
#include "unit/test.h"

#include <coppice.h>

#include "support/tiny_gguf.h"

static uint64_t hash_of(struct coppice_sequence *s, const struct coppice_request *r) {
    struct coppice_result y = {.size = sizeof y};
    assert_int_equal(coppice_generate(s, r, &y, NULL), 0);
    return y.logit_hash;
}

static void refuse_load(const struct coppice_load_options *o, const char *part) {
    struct coppice_model *m;
    struct coppice_error e = {0};
    assert_int_equal(coppice_load(&m, o, &e), COPPICE_ERR_USAGE);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
}

// Prompts that are read sparsely: 0 is in full, a large alpha gives other logits; what stands
// behind the first prompt is read in full, also when it is run again.
static void test_sparse_prefill(void **state) {
    (void)state;
    struct tiny_pair files;
    enum { LONG = 960, MORE = 90 };
    struct coppice_error e = {0};
    const struct coppice_request r = {
        .size = sizeof r, .max_tokens = 12, .ignore_end = 1, .logit_hash = 1};
    int32_t ids[LONG], then[MORE];
    uint64_t first[2], later[2];
    for (int i = 0; i < LONG; i++)
        ids[i] = 32 + (i * 61 + i / 7) % 90;
    for (int i = 0; i < MORE; i++)
        then[i] = 32 + i * 17 % 90;
    assert_int_equal(tiny_pair_write(&files, "api_sparse"), 0);
    struct coppice_load_options o = {.size = sizeof o,
                                     .model = files.target,
                                     .draft = files.draft,
                                     .device = "cpu",
                                     .threads = 1,
                                     .max_ctx = LONG + 2 * MORE};
    for (int k = 0; k < 2; k++) {
        o.sparse_prefill = k ? 0.9 : 0;
        struct coppice_model *m;
        struct coppice_sequence *s;
        assert_int_equal(coppice_load(&m, &o, &e), 0);
        assert_int_equal(coppice_sequence_create(&s, m, &e), 0);
        assert_int_equal(coppice_sequence_append(s, ids, LONG, &e), 0);
        first[k] = hash_of(s, &r);
        assert_int_equal(coppice_sequence_append(s, then, MORE, NULL), 0);
        later[k] = hash_of(s, &r);
        assert_int_equal(coppice_sequence_cut(s, LONG + 12, NULL), 0);
        assert_int_equal(coppice_sequence_append(s, then, MORE, NULL), 0);
        assert_int_equal(hash_of(s, &r), later[k]);
        coppice_sequence_free(s);
        coppice_free(m);
    }
    assert_int_not_equal(first[0], first[1]);
    assert_int_not_equal(later[0], later[1]);
    o.sparse_prefill = -0.1;
    refuse_load(&o, "sparse_prefill is -0.1");
    o.sparse_prefill = 1.5;
    refuse_load(&o, "not within 0 to 1");
    tiny_pair_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sparse_prefill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
