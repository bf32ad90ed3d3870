// SPDX-License-Identifier: Apache-2.0
// The memory plan: the longest context is exactly the longest that fits, sums are whole pages, and
// a refusal names what is missing and advice that would indeed have worked.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/session/plan.h"

static const int64_t MIB = 1 << 20;

// About a 27B pair: 80 MiB of keys and values for 1,024 tokens, 16 MiB of them with a window, of
// which a sequence holds 4,096 tokens at most.
static struct memory_plan pair(void) {
    return (struct memory_plan){.weights = 16000 * MIB,
                                .draft = 1800 * MIB,
                                .scratch = 500 * MIB,
                                .state = 400 * MIB,
                                .kv = {2, {{4 * MIB, 34 * MIB / 16, 0, 64}, {MIB, MIB, 3393, 64}}},
                                .step = 512,
                                .trained = 262144};
}

static void counts_pages_and_windows(void **state) {
    (void)state;
    struct memory_plan p = pair();
    assert_int_equal(plan_kv(&p, 0), 0);
    assert_int_equal(plan_kv(&p, 1), 5 * MIB);
    assert_int_equal(plan_kv(&p, 64), 5 * MIB);
    assert_int_equal(plan_kv(&p, 65), 10 * MIB);
    assert_int_equal(plan_kv(&p, 4096), 4 * 80 * MIB);
    assert_int_equal(plan_kv(&p, 8192), (8 * 64 + 4 * 16) * MIB);
}

// Real shapes: F16 keys and values, all of the memory for them, and passes of 8,192 rows.
static void windows_leave_room_for_long_contexts(void **state) {
    (void)state;
    static const struct {
        int full[3], windowed[3]; // layers, kv heads, length of a head
        int64_t window, gib, trained, longest, as_if_full;
    } models[] = {{{12, 8, 64}, {12, 8, 64}, 128, 2, 131072, 78912, 43648},       // gpt-oss-20b
                  {{18, 8, 64}, {18, 8, 64}, 128, 4, 131072, 108032, 58240},      // gpt-oss-120b
                  {{10, 4, 512}, {50, 16, 256}, 1024, 16, 262144, 116224, 19008}, // Gemma 4 31B
                  {{5, 2, 512}, {25, 8, 256}, 1024, 8, 262144, 262144, 38080},    // 26B-A4B
                  {{10, 8, 128}, {30, 8, 128}, 512, 4, 131072, 78336, 26176}};    // Laguna XS.2
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct memory_plan p = {.step = 8192, .trained = models[i].trained};
        for (int k = 0; k < 2; k++) {
            const int *of = k ? models[i].windowed : models[i].full;
            struct kv_shape shape = {of[0], of[1], of[2], of[2], false, KV_F16, KV_F16};
            struct kv_layout l;
            assert_int_equal(kv_layout_init(&l, &shape, NULL), 0);
            kv_needs_add(&p.kv, &l, k ? models[i].window : 0, 0);
        }
        p.available = models[i].gib << 30;
        assert_int_equal(plan_longest(&p), models[i].longest);
        p.kv.of[1].window = 0;
        assert_int_equal(plan_longest(&p), models[i].as_if_full);
    }
}

// The 27B pair of docs/performance.md under 24 GiB, with as much workspace as passes of 3,072 rows
// take or more: 256K tokens in 4 and in 3.5 bits, and as f16 with 16 GiB of host memory.
static void a_card_of_24_gib_holds_256k(void **state) {
    (void)state;
    static const struct {
        enum kv_codec_id codec;
        int64_t host;
        bool fits;
    } plans[] = {{KV_Q4_0, 0, true},  {KV_TQ3_0, 0, true},      {KV_F16, 0, false},
                 {KV_Q8_0, 0, false}, {KV_Q8_0, 8 << 10, true}, {KV_F16, 16 << 10, true}};
    static const int groups[3][4] = {{16, 4, 256, 0}, {4, 8, 128, 2048}, {1, 8, 128, 0}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct memory_plan p = {.weights = 16548253824,
                                .draft = 1838539968,
                                .state = 415039488 + 6553600,
                                .scratch = 1024 * MIB,
                                .step = 3072,
                                .slabs = true,
                                .available = 24 * 1024 * MIB,
                                .trained = 262144,
                                .kv_host = plans[i].host * MIB};
        for (int k = 0; k < 3; k++) {
            const int *of = groups[k];
            const struct kv_shape s = {of[0], of[1],          of[2],         of[2],
                                       false, plans[i].codec, plans[i].codec};
            struct kv_layout l;
            assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
            kv_needs_add(&p.kv, &l, of[3], k ? 64 : 0);
        }
        p.kv.of[0].staged = 8;
        assert_int_equal(plan_longest(&p) == 262144, plans[i].fits);
        assert_int_equal(plan_fit_context(&p, 262144, NULL) == 0, plans[i].fits);
        // What is in host memory is neither more than may be, nor less than what makes it fit.
        assert_true(kv_needs_hosted(&p.kv, 262144, p.step) <= p.kv_host);
        assert_int_equal(kv_needs_hosted(&p.kv, 262144, p.step) > 0,
                         plans[i].fits && plans[i].host > 0);
    }
}

static void unknown_memory_takes_the_trained_context(void **state) {
    (void)state;
    struct memory_plan p = pair();
    struct err e = {0};
    assert_int_equal(plan_fit_context(&p, 0, &e), 0);
    assert_int_equal(p.context, p.trained);
    assert_int_equal(plan_fit_context(&p, 100, &e), 0);
    assert_int_equal(p.context, 100);
}

static void finds_the_longest_context(void **state) {
    (void)state;
    struct rng r = {3};
    struct err e = {0};
    for (int i = 0; i < 2000; i++) {
        struct memory_plan p = pair();
        p.kv.of[1].window = rng_below(&r, 2) ? 1 + rng_below(&r, 8192) : 0;
        p.available = (18000 + (int64_t)rng_below(&r, 20000)) * MIB + rng_below(&r, 1 << 20);
        int64_t n = plan_longest(&p);
        p.context = n + 64;
        assert_true(n == p.trained || n == 0 || plan_total(&p) > p.available);
        p.context = n;
        assert_true(n == 0 || plan_total(&p) <= p.available);
        int rc = plan_fit_context(&p, 0, &e);
        assert_int_equal(rc, n ? 0 : ERR_MEMORY);
        assert_true(!n || p.context == n);
    }
}

// The number after `word` in the sentence, -1 without it.
static long number_after(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at ? strtol(at + strlen(word), NULL, 10) : -1;
}

static void advice_would_have_worked(void **state) {
    (void)state;
    struct rng r = {4};
    int shorter = 0, q8 = 0, both = 0, none = 0;
    for (int i = 0; i < 3000; i++) {
        struct memory_plan p = pair();
        struct err e = {0};
        int64_t wanted = 1 + rng_below(&r, 100000);
        p.available = (18000 + (int64_t)rng_below(&r, 6000)) * MIB;
        if (plan_fit_context(&p, wanted, &e) == 0)
            continue;
        assert_int_equal(e.code, ERR_MEMORY);
        long ctx = number_after(e.text, "--max-ctx ");
        bool small_kv = strstr(e.text, "q8_0") != NULL;
        struct memory_plan other = p;
        if (ctx > 0 && !(small_kv && strstr(e.text, "with --max-ctx"))) {
            other.context = ctx;
            assert_true(ctx < wanted && plan_total(&other) <= p.available);
            shorter++;
        }
        other = p;
        if (small_kv)
            other.kv = kv_needs_q8(&p.kv);
        other.context = strstr(e.text, "with --max-ctx") ? ctx : wanted;
        assert_true(!small_kv || plan_total(&other) <= p.available);
        q8 += small_kv;
        both += strstr(e.text, "with --max-ctx") != NULL;
        none += ctx < 0;
        assert_non_null(strstr(e.text, "too little"));
    }
    assert_true(shorter > 20 && q8 > 20 && both > 0 && none > 20);
}

static void prints_one_line(void **state) {
    (void)state;
    struct memory_plan p = pair();
    struct str text = {0};
    p.available = 24576 * MIB;
    p.context = 32768;
    plan_print(&p, &text);
    assert_string_equal(
        text.data,
        "weights 15.62 GiB, draft 1.76 GiB, KV per 1K tokens 64.00 MiB, KV within windows 64.00 "
        "MiB, state "
        "400.00 MiB, workspace 500.00 MiB; 20.32 GiB with a context of 32768 tokens, "
        "keys as f16 and values as f16, which leaves 3.68 GiB free");
    p.rows = 768;
    p.usual_rows = 768;
    str_clear(&text);
    plan_print(&p, &text);
    assert_null(strstr(text.data, "rows"));
    p.usual_rows = 3072;
    str_clear(&text);
    plan_print(&p, &text);
    assert_non_null(
        strstr(text.data, "; passes of prompts have 768 rows in place of 3072, so that it fits"));
    assert_null(strstr(text.data, "fp16"));
    p.usual_fp16_kv = 256 * MIB;
    str_clear(&text);
    plan_print(&p, &text);
    assert_non_null(strstr(text.data, "; there is no room of 256.00 MiB for keys and values of a "
                                      "layer as fp16, which long prompts are faster with"));
    str_fini(&text);
}

static void the_plan_names_the_cpu(void **state) {
    (void)state;
    struct memory_plan p = pair();
    struct str text = {0};
    p.context = 4096;
    p.expert_layers = 40;
    p.cpu_layers = 12;
    p.cpu_experts = 5 * 1024 * MIB;
    plan_print(&p, &text);
    assert_non_null(strstr(text.data, "; the experts of 12 of 40 layers, 5.00 GiB, are the CPU's"));
    assert_null(strstr(text.data, "GB/s"));
    p.rates = (struct expert_rates){.bus = 54, .cpu = 160.4};
    plan_print(&p, &text);
    assert_non_null(
        strstr(text.data, "; this CPU reads experts at 160 GB/s and the bus brings 54"));
    assert_int_equal(plan_host_experts(&p), p.cpu_experts);
    p.experts = 7000 * MIB;
    p.resident = 6000 * MIB;
    assert_int_equal(plan_host_experts(&p), p.cpu_experts + p.experts);
    str_fini(&text);
}

// Slots take what is left besides the context, and no more; what is requested a layer is exact.
static void gives_experts_up(void **state) {
    (void)state;
    struct rng r = {9};
    struct err e = {0};
    int refused = 0;
    for (int i = 0; i < 300; i++) {
        struct memory_plan p = pair();
        for (int k = 0; k < 40; k++)
            expert_classes_add(&p.slots, 256, 1900000, &e);
        p.experts = p.resident = expert_classes_all(&p.slots);
        p.weights = 2000 * MIB + p.experts;
        p.available = (5000 + (int64_t)rng_below(&r, 15000)) * MIB;
        int64_t wanted = rng_below(&r, 2) ? 4096 : 0;
        int rc = plan_fewer_experts(&p, wanted, 0, &e);
        refused += rc == ERR_MEMORY;
        if (rc)
            continue;
        assert_int_equal(plan_fit_context(&p, wanted, &e), 0);
        assert_true(plan_total(&p) <= p.available);
        assert_true(p.context >= (wanted ? wanted : 16384));
        assert_true(p.resident == expert_classes_held(&p.slots) && p.resident <= p.experts);
        struct str text = {0};
        plan_print(&p, &text);
        assert_int_equal(!!strstr(text.data, "are resident"), p.resident < p.experts);
        str_fini(&text);
    }
    assert_in_range(refused, 1, 200);
    struct memory_plan p = pair();
    expert_classes_add(&p.slots, 256, 1900000, &e);
    expert_classes_add(&p.slots, 256, 1900000, &e);
    p.experts = p.resident = expert_classes_all(&p.slots);
    assert_int_equal(plan_fewer_experts(&p, 0, 128, &e), 0);
    assert_int_equal(p.slots.c[0].slots, 256);
    assert_int_equal(plan_fewer_experts(&p, 0, 127, &e), ERR_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_experts_up),
        cmocka_unit_test(counts_pages_and_windows),
        cmocka_unit_test(windows_leave_room_for_long_contexts),
        cmocka_unit_test(a_card_of_24_gib_holds_256k),
        cmocka_unit_test(unknown_memory_takes_the_trained_context),
        cmocka_unit_test(finds_the_longest_context),
        cmocka_unit_test(advice_would_have_worked),
        cmocka_unit_test(the_plan_names_the_cpu),
        cmocka_unit_test(prints_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
