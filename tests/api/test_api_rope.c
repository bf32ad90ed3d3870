// SPDX-License-Identifier: Apache-2.0
// Rotary positions for longer contexts through the shared library: the context grows, each field
// counts, what makes no sense is refused, and programs made before there were such fields go on.
#include "unit/test.h"

#include <coppice.h>
#include <math.h>

#include "support/tiny_gguf.h"

enum { PROMPT = 90, NEW = 8 };

static struct tiny_pair files;

static int write_files(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    return tiny_pair_write_as(&files, "api_rope", &t, 0);
}

static int remove_files(void **state) {
    (void)state;
    tiny_pair_remove(&files);
    return 0;
}

static struct coppice_load_options options(void) {
    return (struct coppice_load_options){.size = sizeof(struct coppice_load_options),
                                         .model = files.target,
                                         .draft = files.draft,
                                         .device = "cpu",
                                         .threads = 1};
}

// Over the logits of a reply to a prompt.
static uint64_t hash_of(struct coppice_load_options o) {
    const struct coppice_request r = {
        .size = sizeof r, .max_tokens = NEW, .ignore_end = 1, .logit_hash = 1};
    struct coppice_result y = {.size = sizeof y};
    struct coppice_error e = {0};
    struct coppice_model *m;
    struct coppice_sequence *s;
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 32 + (i * 61 + i / 7) % 90;
    o.max_ctx = PROMPT + NEW;
    if (coppice_load(&m, &o, &e))
        fail_msg("%s", e.text);
    assert_int_equal(coppice_sequence_create(&s, m, &e), 0);
    assert_int_equal(coppice_sequence_append(s, ids, PROMPT, &e), 0);
    assert_int_equal(coppice_generate(s, &r, &y, &e), 0);
    coppice_sequence_free(s);
    coppice_free(m);
    return y.logit_hash;
}

static void contexts_grow(void **state) {
    (void)state;
    struct coppice_load_options o = options();
    struct coppice_plan plan = {.size = sizeof plan}, longer = plan;
    struct coppice_info info = {.size = sizeof info};
    struct coppice_error e = {0};
    struct coppice_model *m;
    assert_int_equal(coppice_plan(&o, &plan, &e), 0);
    assert_true(plan.trained_ctx > 0);
    assert_int_equal(plan.max_ctx, plan.trained_ctx);
    o.rope_scale = 2;
    assert_int_equal(coppice_plan(&o, &longer, &e), 0);
    assert_int_equal(longer.trained_ctx, 2 * plan.trained_ctx);
    assert_int_equal(longer.max_ctx, 2 * plan.trained_ctx);
    o.rope_scaling = "yarn";
    o.rope_scale = 4;
    o.yarn_orig_ctx = plan.trained_ctx / 2;
    assert_int_equal(coppice_plan(&o, &longer, &e), 0);
    assert_int_equal(longer.trained_ctx, 2 * plan.trained_ctx);
    o.max_ctx = 64;
    assert_int_equal(coppice_load(&m, &o, &e), 0);
    coppice_info(m, &info);
    assert_int_equal(info.max_ctx, 64);
    assert_int_equal(info.trained_ctx, 2 * plan.trained_ctx);
    coppice_free(m);
}

static void each_field_counts(void **state) {
    (void)state;
    enum { WAYS = 9 };
    struct coppice_load_options o[WAYS];
    uint64_t hash[WAYS];
    for (int i = 0; i < WAYS; i++) {
        o[i] = options();
        o[i].rope_scaling = i > 2 ? "yarn" : NULL;
        o[i].rope_scale = i > 2 ? 4 : 0;
        o[i].yarn_orig_ctx = i > 3 ? 64 : 0;
    }
    o[1].rope_scale = 4;
    o[2].rope_freq_base = 500;
    o[5].yarn_ext_factor = 0.5;
    o[6].yarn_attn_factor = 1.5;
    o[7].yarn_beta_slow = 3;
    o[8].yarn_beta_fast = 4;
    for (int i = 0; i < WAYS; i++) {
        hash[i] = hash_of(o[i]);
        for (int j = 0; j < i; j++)
            if (hash[i] == hash[j])
                fail_msg("settings %d and %d give the same logits", i, j);
    }
    o[0].rope_scaling = "none";
    assert_int_equal(hash_of(o[0]), hash[0]); // as the file, which has no scaling
    o[1].rope_scaling = "linear";
    assert_int_equal(hash_of(o[1]), hash[1]); // as a factor alone
    o[5].yarn_ext_factor = -1;                // all pairs are slowed alike
    assert_int_equal(hash_of(o[5]), hash[1]);
    o[0] = options();
    o[0].size = offsetof(struct coppice_load_options, rope_scaling);
    o[0].rope_scale = 4; // beyond the size
    assert_int_equal(hash_of(o[0]), hash[0]);
}

static void refuse(struct coppice_load_options o, const char *part) {
    struct coppice_plan plan = {.size = sizeof plan};
    struct coppice_error e = {0};
    assert_int_equal(coppice_plan(&o, &plan, &e), COPPICE_ERR_USAGE);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
}

static void senseless_fields(void **state) {
    (void)state;
    const struct coppice_load_options none = options();
    struct coppice_load_options o = none;
    o.rope_scaling = "ntk";
    refuse(o, "rope_scaling is 'ntk' and must be none, linear or yarn");
    o.rope_scaling = "yarn";
    refuse(o, "give one with --rope-scale");
    o = none;
    o.rope_scale = -2;
    refuse(o, "rope_scale is -2, neither 0 nor within 0.001 to 1000");
    o.rope_scale = (double)NAN;
    refuse(o, "rope_scale is");
    o = none;
    o.rope_freq_base = 1;
    refuse(o, "rope_freq_base is 1,");
    o = none;
    o.yarn_orig_ctx = -1;
    refuse(o, "yarn_orig_ctx is -1,");
    o = none;
    o.yarn_ext_factor = 2;
    refuse(o, "yarn_ext_factor is 2,");
    o = none;
    o.yarn_attn_factor = -1;
    refuse(o, "yarn_attn_factor is -1,");
    o = none;
    o.yarn_beta_slow = 1e7;
    refuse(o, "yarn_beta_slow is 1e+07,");
    o = none;
    o.yarn_beta_fast = -1;
    refuse(o, "yarn_beta_fast is -1,");
    o.yarn_beta_fast = 16;
    refuse(o, "add --rope-scaling yarn");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(contexts_grow),
                                       cmocka_unit_test(each_field_counts),
                                       cmocka_unit_test(senseless_fields)};
    return cmocka_run_group_tests(tests, write_files, remove_files);
}
