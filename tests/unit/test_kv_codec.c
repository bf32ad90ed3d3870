// SPDX-License-Identifier: Apache-2.0
// The table of KV codecs: every row is whole, rounds as its element type does, and is found by its
// name; its error is bounded on plain data and on data with outliers; numbers that are none are
// found in its pages; what is no codec is refused by a sentence that names those that exist.
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "ops/kv/codec.h"
#include "ops/kv/rotate.h"

enum { N = 192 };

static void test_rows(void **state) {
    (void)state;
    assert_null(kv_codec_of(KV_CODEC_COUNT));
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        const struct kv_codec *c = kv_codec_of((enum kv_codec_id)i);
        const struct quant_format *f = quant_format(c->type);
        enum kv_codec_id found = KV_CODEC_COUNT;
        struct err e;
        if (f) {
            assert_int_equal(c->block, f->block);
            assert_int_equal(c->code_bytes + c->scale_bytes, f->bytes);
            assert_int_equal(kv_codec_bytes((enum kv_codec_id)i, N), quant_row_bytes(f, N));
        }
        assert_int_equal(kv_codec_by_name(c->name, "x", &found, &e), 0);
        assert_int_equal(found, i);
        assert_int_equal(kv_codec_check(found, &e), 0);
    }
}

// The values of a codec are those of its element type, to the bit.
static void test_rounding(void **state) {
    (void)state;
    float x[N], want[N], got[N];
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        const struct kv_codec *c = kv_codec_of((enum kv_codec_id)i);
        const struct quant_format *f = quant_format(c->type);
        unsigned char row[4 * N], codes[4 * N], scales[N];
        if (!f)
            continue;
        for (int j = 0; j < N; j++)
            x[j] = j / 32 == 2 ? 0 : 8 * rng_unit(rng_hash(5, (uint64_t)i, (uint64_t)j, 0)) - 4;
        f->quantize(x, row, N);
        f->dequantize(row, want, N);
        memset(codes, 0xA5, sizeof codes);
        memset(scales, 0xA5, sizeof scales);
        c->encode(x, codes, scales, N);
        c->decode(codes, scales, got, N);
        assert_memory_equal(want, got, sizeof want);
        size_t n = (size_t)(N / c->block * c->code_bytes),
               m = (size_t)(N / c->block * c->scale_bytes);
        assert_int_equal(m < sizeof scales ? scales[m] : 0xA5, 0xA5);
        assert_int_equal(n < sizeof codes ? codes[n] : 0xA5, 0xA5);
    }
}

// A normal number.
static float normal(uint64_t *at) {
    float u = rng_unit(rng_hash(9, *at, 0, 0)), v = rng_unit(rng_hash(9, *at, 1, 0));
    ++*at;
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

enum { DIM = 128, ROWS = 64 };

// The error of rows of DIM values that are stored and read back, over their size: root of the ratio
// of squares. Every 29th value is `outlier` times as large.
static double error_of(enum kv_codec_id id, float outlier, bool rotated) {
    const struct kv_codec *c = kv_codec_of(id);
    double off = 0, all = 0;
    uint64_t at = 1;
    for (int r = 0; r < ROWS; r++) {
        float x[DIM], y[DIM];
        unsigned char codes[4 * DIM], scales[DIM];
        for (int i = 0; i < DIM; i++)
            x[i] = normal(&at) * (i % 29 == 7 ? outlier : 1);
        memcpy(y, x, sizeof y);
        if (rotated)
            kv_rotate(y, DIM, DIM);
        c->encode(y, codes, scales, DIM);
        c->decode(codes, scales, y, DIM);
        if (rotated)
            kv_rotate_back(y, DIM, DIM);
        for (int i = 0; i < DIM; i++) {
            off += pow((double)y[i] - (double)x[i], 2);
            all += pow((double)x[i], 2);
        }
    }
    return sqrt(off / all);
}

static void test_error(void **state) {
    (void)state;
    static const struct {
        enum kv_codec_id id;
        double normal; // the largest error on normal numbers
    } bound[] = {{KV_F16, 0.0003}, {KV_BF16, 0.002}, {KV_F32, 0},
                 {KV_Q8_0, 0.006}, {KV_Q5_1, 0.042}, {KV_Q5_0, 0.045},
                 {KV_Q4_1, 0.085}, {KV_Q4_0, 0.092}, {KV_TQ3_0, 0.185}};
    assert_int_equal(sizeof bound / sizeof *bound, KV_CODEC_COUNT);
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        double e = error_of(bound[i].id, 1, false), r = error_of(bound[i].id, 1, true);
        bool rotates = kv_codec_of(bound[i].id)->rotates != KV_AS_IS;
        print_message("%-6s normal %.4f, rotated %.4f; outliers %.4f, rotated %.4f\n",
                      kv_codec_of(bound[i].id)->name, e, r, error_of(bound[i].id, 20, false),
                      error_of(bound[i].id, 20, true));
        assert_true(e <= bound[i].normal);
        assert_true(!rotates || r < 1.05 * bound[i].normal);
    }
}

// What is small beside outliers is what a rotation keeps: scores of queries that do not look at
// the outliers alone.
static void test_rotation_helps(void **state) {
    (void)state;
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        enum kv_codec_id id = (enum kv_codec_id)i;
        if (kv_codec_of(id)->rotates == KV_AS_IS)
            continue;
        double plain = error_of(id, 20, false), rotated = error_of(id, 20, true);
        if (!(rotated < 0.9 * plain))
            fail_msg("%s: %.4f rotated, %.4f as it is", kv_codec_of(id)->name, rotated, plain);
    }
}

// One number that is none, in each place where a codec has numbers.
static void test_finite(void **state) {
    (void)state;
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        const struct kv_codec *c = kv_codec_of((enum kv_codec_id)i);
        unsigned char codes[4 * N], scales[N];
        float x[N];
        uint64_t at = 7;
        for (int j = 0; j < N; j++)
            x[j] = normal(&at);
        c->encode(x, codes, scales, N);
        assert_true(c->finite(codes, scales, N));
        // Codes of blocks may be anything; all numbers of a row are looked at.
        int found = 0, size = N / c->block * (c->scale_bytes ? c->scale_bytes : c->code_bytes);
        unsigned char *p = c->scale_bytes ? scales : codes;
        for (int j = 0; j + 1 < size; j += 2) {
            unsigned char kept[2] = {p[j], p[j + 1]};
            p[j] = 0x80, p[j + 1] = 0x7f; // of f32, bf16 the upper half
            bool bad = !c->finite(codes, scales, N);
            c->decode(codes, scales, x, N);
            bool none = false;
            for (int v = 0; v < N; v++)
                none = none || !isfinite(x[v]);
            assert_int_equal(bad, none);
            found += bad;
            p[j] = kept[0], p[j + 1] = kept[1];
        }
        assert_true(found >= N / c->block);
        if (c->scale_bytes) {
            memset(codes, 0xFF, sizeof codes);
            assert_true(c->finite(codes, scales, N));
        }
    }
}

static void test_refusals(void **state) {
    (void)state;
    enum kv_codec_id id = KV_BF16;
    struct err e;
    assert_int_equal(kv_codec_by_name("q4", "--kv-type-v", &id, &e), ERR_USAGE);
    assert_string_equal(
        e.text, "--kv-type-v is f16, f32, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or tq3_0, not 'q4'");
    assert_int_equal(id, KV_BF16);
    assert_int_equal(kv_codec_by_name("Q4_0", "--kv-type", &id, &e), 0);
    assert_int_equal(id, KV_Q4_0);
    assert_int_equal(kv_codec_check((enum kv_codec_id)77, &e), ERR_UNSUPPORTED);
    assert_non_null(
        strstr(e.text, "f16, f32, bf16, q8_0, q5_1, q5_0, q4_1, q4_0 or tq3_0, not as codec 77"));
    assert_string_equal(KV_CODEC_CHOICES, "f16|f32|bf16|q8_0|q5_1|q5_0|q4_1|q4_0|tq3_0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),   cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_error),  cmocka_unit_test(test_rotation_helps),
        cmocka_unit_test(test_finite), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
