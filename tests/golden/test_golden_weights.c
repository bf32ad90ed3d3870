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

#define BOTH(name)                                                                                 \
    cmocka_unit_test_prestate(test_probes, name),                                                  \
        cmocka_unit_test_prestate(test_rows_are_finite, name)

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH("r1_tied"),       BOTH("r2_untied"),   BOTH("r3_untied"),
        BOTH("r3_slow"),       BOTH("r3_tied"),     BOTH("draft_mixed2"),
        BOTH("draft_mixed4"),  BOTH("draft_full"),  BOTH("draft_noncausal"),
        BOTH("draft_causal"),  BOTH("q3_untied"),   BOTH("q3_tied"),
        BOTH("q3_yarn"),       BOTH("draft_q3"),    BOTH("l3_bands"),
        BOTH("l2_bias"),       BOTH("q2_untied"),   BOTH("g4_dense"),
        BOTH("g4_own"),        BOTH("oss"),         BOTH("q3moe"),
        BOTH("r3moe"),         BOTH("r1moe"),       BOTH("draft_q3moe"),
        BOTH("glm_norms"),     BOTH("glm_air"),     BOTH("draft_r3moe"),
        BOTH("draft_ds3"),     BOTH("draft_oss"),   BOTH("draft_l3"),
        BOTH("ds3"),           BOTH("ds3_yarn"),    BOTH("ds2"),
        BOTH("ds2_groups"),    BOTH("g4_moe"),      BOTH("laguna_xs"),
        BOTH("draft2_r2"),     BOTH("draft2_g4"),   BOTH("domino_r2"),
        BOTH("domino_q3"),     BOTH("domino_g4"),   BOTH("mtp_r1_tied"),
        BOTH("dspark_q3"),     BOTH("dspark_r2"),   BOTH("dspark_g4"),
        BOTH("mtp_r3_untied"), BOTH("mtp_r3moe"),   BOTH("mtp_r1moe"),
        BOTH("mtp_glm_norms"), BOTH("mtp_glm_air"), BOTH("mtp_ds3"),
        BOTH("laguna_m"),      BOTH("g3_small"),    BOTH("g3_large"),
        BOTH("ds3_wide"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
