// SPDX-License-Identifier: Apache-2.0
// Sparse reading of prompts through the shared library.
#include "unit/test.h"

#include <coppice.h>
#include <stdio.h>
#include <unistd.h>

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
// after the first prompt is read in full, also when it is run again.
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
    o.sparse_prefill = 0;
    o.fa_window = 63;
    refuse_load(&o, "a window of 63 tokens");
    o.kv_pool = 512;
    refuse_load(&o, "give one of them");
    o.fa_window = 0;
    o.kv_pool_policy = "fifo";
    refuse_load(&o, "'fifo' is no policy");
    tiny_pair_remove(&files);
}

// Replies that see a window: another answer than in full, and the same with guesses.
static void test_fa_window(void **state) {
    (void)state;
    enum { LONG = 300, RUNS = 3 };
    struct tiny_pair files;
    struct coppice_error e = {0};
    int32_t ids[LONG];
    uint64_t hash[RUNS];
    for (int i = 0; i < LONG; i++)
        ids[i] = 32 + (i * 61 + i / 7) % 90;
    assert_int_equal(tiny_pair_write(&files, "api_window"), 0);
    for (int i = 0; i < RUNS; i++) {
        const struct coppice_load_options o = {.size = sizeof o,
                                               .model = files.target,
                                               .draft = i == 2 ? files.draft : NULL,
                                               .device = "cpu",
                                               .threads = 1,
                                               .fa_window = i ? 64 : 0,
                                               .max_ctx = LONG + 100};
        const struct coppice_request r = {
            .size = sizeof r, .max_tokens = 80, .ignore_end = 1, .logit_hash = 1};
        struct coppice_result y = {.size = sizeof y};
        struct coppice_model *m;
        struct coppice_sequence *s;
        assert_int_equal(coppice_load(&m, &o, &e), 0);
        assert_int_equal(coppice_sequence_create(&s, m, &e), 0);
        assert_int_equal(coppice_sequence_append(s, ids, LONG, &e), 0);
        assert_int_equal(coppice_generate(s, &r, &y, &e), 0);
        hash[i] = y.logit_hash;
        coppice_sequence_free(s);
        coppice_free(m);
    }
    assert_int_not_equal(hash[0], hash[1]);
    assert_int_equal(hash[1], hash[2]);
    tiny_pair_remove(&files);
}

static int stop_at_once(void *arg, int64_t done, int64_t total) {
    (void)arg;
    (void)total;
    return done > 0;
}

// A part of a prompt, a request that chooses nothing, and the rest are one prompt: whether the
// request was refused, or ended by its caller while the prompt was read.
static void test_nothing_chosen(void **state) {
    (void)state;
    struct tiny_pair files;
    enum { LONG = 960, PART = 700, WAYS = 3 };
    const struct coppice_request good = {
        .size = sizeof good, .max_tokens = 12, .ignore_end = 1, .logit_hash = 1};
    struct coppice_request idle[WAYS] = {good, good, good}; // the first is not made
    char path[64];
    int32_t ids[LONG];
    uint64_t hash[WAYS];
    struct coppice_error e = {0};
    struct coppice_model *m;
    idle[1].top_p = 3;
    idle[2].progress = stop_at_once;
    for (int i = 0; i < LONG; i++)
        ids[i] = 32 + (i * 61 + i / 7) % 90;
    snprintf(path, sizeof path, "/tmp/coppice-api_sparse-%d-point", (int)getpid());
    assert_int_equal(tiny_pair_write(&files, "api_sparse"), 0);
    const struct coppice_load_options o = {.size = sizeof o,
                                           .model = files.target,
                                           .device = "cpu",
                                           .threads = 1,
                                           .sparse_prefill = 0.9,
                                           .max_ctx = LONG + 12};
    assert_int_equal(coppice_load(&m, &o, &e), 0);
    for (int i = 0; i < WAYS; i++) {
        struct coppice_sequence *s;
        struct coppice_checkpoint *c;
        struct coppice_result y = {.size = sizeof y};
        assert_int_equal(coppice_sequence_create(&s, m, &e), 0);
        assert_int_equal(coppice_sequence_append(s, ids, PART, &e), 0);
        if (i)
            assert_int_equal(coppice_generate(s, &idle[i], &y, &e), i == 1 ? COPPICE_ERR_USAGE : 0);
        assert_int_equal(coppice_sequence_length(s), PART);
        assert_int_equal(coppice_checkpoint_create(&c, s, &e), 0);
        assert_int_equal(coppice_checkpoint_save(c, path, &e), 0);
        coppice_checkpoint_free(c);
        assert_int_equal(coppice_sequence_append(s, ids + PART, LONG - PART, &e), 0);
        hash[i] = hash_of(s, &good);
        assert_int_equal(hash[i], hash[0]);
        assert_int_equal(coppice_checkpoint_load(&c, m, path, &e), 0); // and so from a file
        assert_int_equal(coppice_checkpoint_restore(c, s, &e), 0);
        assert_int_equal(coppice_sequence_append(s, ids + PART, LONG - PART, &e), 0);
        assert_int_equal(hash_of(s, &good), hash[0]);
        coppice_checkpoint_free(c);
        coppice_sequence_free(s);
    }
    unlink(path);
    coppice_free(m);
    tiny_pair_remove(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sparse_prefill),
                                       cmocka_unit_test(test_fa_window),
                                       cmocka_unit_test(test_nothing_chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
