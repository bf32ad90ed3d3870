// SPDX-License-Identifier: Apache-2.0
// The formula weights of the golden models are the same bits in C as in Python, and every fixture
// is well formed. Without this a wrong weight would look like a wrong model.
#include <math.h>

#include "golden/golden.h"
#include "golden/tiny_store.h"
#include "unit/test.h"

static void test_probes(void **state) {
    struct golden g;
    struct err e = {0};
    if (golden_load(&g, TEST_DATA "/golden/data", *state, &e) != 0)
        fail_msg("%s", e.text);
    struct tiny_seed from = tiny_seed_of(&g.target);
    if (g.has_draft)
        from = (struct tiny_seed){.seed = g.draft.seed, .plain_norms = true};
    assert_in_range(g.n_probes, 4, GOLDEN_MAX_PROBES);
    for (int i = 0; i < g.n_probes; i++) {
        const struct golden_probe *p = &g.probes[i];
        float v = tiny_weight(&from, p->name, p->last, p->index);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (bits != p->bits)
            fail_msg("%s[%lld] is %a, bits %08x instead of %08x", p->name, (long long)p->index,
                     (double)v, bits, p->bits);
    }
    golden_fini(&g);
}

static void test_rows_are_finite(void **state) {
    struct golden g;
    struct err e = {0};
    if (golden_load(&g, TEST_DATA "/golden/data", *state, &e) != 0)
        fail_msg("%s", e.text);
    int64_t n = golden_rows_per_index(&g) * g.n_index * (g.target.vocab + g.top * g.top);
    assert_true(n > 0);
    for (int64_t i = 0; i < n; i++)
        assert_true(isfinite(g.rows[i]));
    golden_fini(&g);
}

int main(void) {
    static const char *const names[] = {
        "r1_tied",       "r2_untied",    "r3_untied",  "r3_slow",         "r3_tied",
        "draft_mixed2",  "draft_mixed4", "draft_full", "draft_noncausal", "draft_causal",
        "q3_untied",     "q3_tied",      "q3_yarn",    "draft_q3",        "l3_bands",
        "l2_bias",       "q2_untied",    "g4_dense",   "g4_own",          "oss",
        "q3moe",         "r3moe",        "r1moe",      "draft_q3moe",     "glm_norms",
        "glm_air",       "draft_r3moe",  "draft_ds3",  "draft_oss",       "draft_l3",
        "ds3",           "ds3_yarn",     "ds2",        "ds2_groups",      "g4_moe",
        "laguna_xs",     "draft2_r2",    "draft2_g4",  "domino_r2",       "domino_q3",
        "domino_g4",     "mtp_r1_tied",  "dspark_q3",  "dspark_r2",       "dspark_g4",
        "mtp_r3_untied", "mtp_r3moe",    "mtp_r1moe",  "mtp_glm_norms",   "mtp_glm_air",
        "mtp_ds3",       "laguna_m",     "g3_small",   "g3_large",        "ds3_wide",
        "r1_yarn",       "l2_linear",    "l2_yarn",    "dspark_spec_g4",  "dspark_spec_q3"};
    enum { NAMES = sizeof names / sizeof *names };
    struct CMUnitTest tests[2 * NAMES];
    for (size_t i = 0; i < NAMES; i++) {
        tests[2 * i] = (struct CMUnitTest)cmocka_unit_test_prestate(test_probes, (void *)names[i]);
        tests[2 * i + 1] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_rows_are_finite, (void *)names[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
