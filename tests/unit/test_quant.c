// SPDX-License-Identifier: Apache-2.0
// Checks the scalar codecs against exact vectors: a fixed byte stream decoded by every type, and
// fixed inputs encoded to bytes whose hash is known from the reference quantisers.
#include <math.h>
#include <stdio.h>

#include "formats/quant/quant.h"
#include "unit/test.h"

static uint64_t fnv(const void *data, size_t n) {
    const unsigned char *b = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

struct patch {
    int at, n;
    unsigned char bytes[4];
};

struct point {
    int i;
    double y;
};

struct decode_case {
    int type;
    struct patch patch[2];
    double sum, weighted;
    uint64_t hash;
    struct point points[16]; // ends with i = -1
};

static const struct decode_case decode_cases[] = {
    {TYPE_Q4_0,
     {{0, 2, {0x00, 0x38}}},
     -7.5,
     -81.5,
     0x47959953bd281ab5u,
     {{0, -2.5}, {1, 0}, {2, 2.5}, {3, -3}, {15, 3}, {16, 1.5}, {17, -1}, {31, -2}, {-1, 0}}},
    {TYPE_Q4_1,
     {{0, 2, {0x00, 0x38}}, {2, 2, {0x00, 0xbd}}},
     77.5,
     1263,
     0xc6046fcdd4036605u,
     {{0, 5.25}, {1, -.25}, {2, 2.25}, {3, 4.75}, {15, 2.75}, {16, -.75}, {31, 4.25}, {-1, 0}}},
    {TYPE_Q5_0,
     {{0, 2, {0x00, 0x38}}},
     -13.5,
     -338.5,
     0x9b591b22ea3fca25u,
     {{0, 3.5}, {1, 6}, {2, -7.5}, {3, -5}, {15, -7}, {16, 4}, {17, -6.5}, {31, 1}, {-1, 0}}},
    {TYPE_Q5_1,
     {{0, 2, {0x00, 0x38}}, {2, 2, {0x00, 0xbd}}},
     207.5,
     3402,
     0x4330fb8abe25ebdbu,
     {{0, 7.25}, {1, 1.75}, {2, 12.25}, {3, 6.75}, {15, 12.75}, {16, 14.25}, {31, 2.75}, {-1, 0}}},
    {TYPE_Q8_0,
     {{0, 2, {0x00, 0x38}}},
     8,
     424,
     0xf511eff79be1d0abu,
     {{0, -38.5}, {1, 52}, {2, 14.5}, {3, -23}, {15, 39}, {16, 1.5}, {31, -49}, {-1, 0}}},
    {TYPE_IQ4_NL,
     {{0, 2, {0x00, 0x38}}},
     -82.5,
     -660.5,
     0x051bc4e48434fdcbu,
     {{0, -32.5}, {1, .5}, {2, 34.5}, {3, -41.5}, {15, 44.5}, {16, 19}, {31, -24.5}, {-1, 0}}},
    {TYPE_MXFP4,
     {{0, 1, {0x80}}},
     -15,
     -282,
     0x581c35e3bdf92cebu,
     {{0, -8}, {1, 3}, {2, 0}, {3, -6}, {15, -1}, {16, -12}, {17, -3}, {31, -1}, {-1, 0}}},
    {TYPE_NVFP4,
     {{0, 4, {0x38, 0x40, 0x01, 0x7e}}},
     -231.48828125,
     2269.931640625,
     0xe1b7a50ccbfca6cau,
     {{0, -3},
      {1, 1},
      {2, 6},
      {3, -2},
      {15, .5},
      {16, 6},
      {31, -3},
      {32, -.005859375},
      {63, 0},
      {-1, 0}}},
    {TYPE_Q2_K,
     {{80, 2, {0x00, 0x38}}, {82, 2, {0x00, 0x34}}},
     921,
     111736.5,
     0x851688d7a7002472u,
     {{0, 3.5},
      {1, 8},
      {2, 12.5},
      {3, -1},
      {16, 3.25},
      {31, -3.75},
      {32, .25},
      {64, 6.25},
      {96, 5},
      {127, 11.25},
      {128, -3.25},
      {160, 9.75},
      {192, 4.5},
      {224, -.5},
      {255, -3.5},
      {-1, 0}}},
    {TYPE_Q3_K,
     {{108, 2, {0x00, 0x38}}},
     224.5,
     19825.5,
     0xf442b403375a6cceu,
     {{0, -3.5},
      {1, 7},
      {2, -10.5},
      {3, 14},
      {16, 7},
      {31, -28},
      {32, -19},
      {64, 19},
      {96, 10.5},
      {127, 10},
      {128, 21},
      {160, -25},
      {192, 0},
      {224, 26},
      {255, -25.5},
      {-1, 0}}},
    {TYPE_Q4_K,
     {{0, 2, {0x00, 0x38}}, {2, 2, {0x00, 0x34}}},
     25116,
     3414300,
     0xa3ceb14ad32e6e57u,
     {{0, 118.25},
      {1, 190.75},
      {2, 31.25},
      {3, 103.75},
      {16, 118.25},
      {31, 45.75},
      {32, 71.5},
      {63, 62.5},
      {64, 24.75},
      {96, 86},
      {127, 56},
      {128, 7.5},
      {160, 367.25},
      {255, 8.5},
      {-1, 0}}},
    {TYPE_Q5_K,
     {{0, 2, {0x00, 0x38}}, {2, 2, {0x00, 0x34}}},
     54188,
     7238756,
     0x024e0feb11bccf43u,
     {{0, 350.25},
      {1, 190.75},
      {2, 263.25},
      {3, 103.75},
      {16, 350.25},
      {31, 45.75},
      {32, 17.5},
      {63, 8.5},
      {64, 24.75},
      {96, 866},
      {127, 356},
      {128, 47.5},
      {160, 193.25},
      {255, 28.5},
      {-1, 0}}},
    {TYPE_Q6_K,
     {{208, 2, {0x00, 0x38}}},
     2222,
     299280,
     0xe6254f9f63dfbb3eu,
     {{0, -31.5},
      {1, 63},
      {2, 85.5},
      {3, -108},
      {16, 231},
      {31, 924},
      {32, 517.5},
      {63, -240},
      {64, 490},
      {96, 1065},
      {127, -26},
      {128, 276.5},
      {160, 121.5},
      {255, 690},
      {-1, 0}}},
    {TYPE_IQ4_XS,
     {{0, 2, {0x00, 0x38}}},
     -1368.5,
     47640.5,
     0xc7870af317b8879cu,
     {{0, -1508},
      {1, -319},
      {2, 551},
      {3, -1841.5},
      {16, 1638.5},
      {31, 14.5},
      {32, 1612},
      {63, -1069.5},
      {64, -936},
      {96, -676},
      {127, -65},
      {128, 1300},
      {255, -247},
      {-1, 0}}},
};

static void decodes_exact_vectors(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof decode_cases / sizeof *decode_cases; c++) {
        const struct decode_case *k = &decode_cases[c];
        const struct quant_format *f = quant_format((uint32_t)k->type);
        unsigned char b[256];
        float y[256];
        double sum = 0, weighted = 0;
        for (int i = 0; i < 256; i++)
            b[i] = (unsigned char)(181 * i + 73);
        for (int p = 0; p < 2; p++)
            memcpy(b + k->patch[p].at, k->patch[p].bytes, (size_t)k->patch[p].n);
        f->dequantize(b, y, f->block);
        for (int i = 0; i < f->block; i++) {
            sum += (double)y[i];
            weighted += (i + 1) * (double)y[i];
        }
        for (const struct point *p = k->points; p->i >= 0; p++)
            if ((double)y[p->i] != p->y)
                fail_msg("%s: y[%d] is %g, not %g", f->name, p->i, (double)y[p->i], p->y);
        if (sum != k->sum || weighted != k->weighted)
            fail_msg("%s: sums %.17g %.17g", f->name, sum, weighted);
        if (fnv(y, (size_t)f->block * sizeof *y) != k->hash)
            fail_msg("%s: hash of the decoded values differs", f->name);
    }
}

// The Q8 activation types have no stored vector: their layout is checked field by field.
static void decodes_activation_types(void **state) {
    (void)state;
    unsigned char b[292] = {0x00, 0x38, 0xff, 0xff};
    float y[256], d = 0.25f;
    for (int i = 0; i < 32; i++)
        b[4 + i] = (unsigned char)(3 * i - 50);
    quant_format(TYPE_Q8_1)->dequantize(b, y, 32);
    for (int i = 0; i < 32; i++)
        assert_true(y[i] == 0.5f * (float)(3 * i - 50));
    memcpy(b, &d, sizeof d);
    for (int i = 0; i < 256; i++)
        b[4 + i] = (unsigned char)(i ^ 0x80);
    quant_format(TYPE_Q8_K)->dequantize(b, y, 256);
    for (int i = 0; i < 256; i++)
        assert_true(y[i] == 0.25f * (float)(i - 128));
}

static void decodes_plain_types(void **state) {
    (void)state;
    const int8_t a[2] = {-128, 127};
    const int16_t s[2] = {-32768, 32767};
    const int32_t i[2] = {-2147483647 - 1, 77};
    const int64_t l[2] = {-(1ll << 40), 1ll << 52};
    const double d[2] = {0.1, -1e300};
    float y[2];
    quant_format(TYPE_I8)->dequantize(a, y, 2);
    assert_true(y[0] == -128.0f && y[1] == 127.0f);
    quant_format(TYPE_I16)->dequantize(s, y, 2);
    assert_true(y[0] == -32768.0f && y[1] == 32767.0f);
    quant_format(TYPE_I32)->dequantize(i, y, 2);
    assert_true(y[0] == -2147483648.0f && y[1] == 77.0f);
    quant_format(TYPE_I64)->dequantize(l, y, 2);
    assert_true(y[0] == -0x1p40f && y[1] == 0x1p52f);
    quant_format(TYPE_F64)->dequantize(d, y, 2);
    assert_true(y[0] == 0.1f && isinf(y[1]) && y[1] < 0);
}

struct encode_case {
    int type;
    uint64_t hash_a, hash_g;
    double rmse;
};

static const struct encode_case encode_cases[] = {
    {TYPE_Q4_0, 0x27056989f33e2587u, 0xe126c618fa95eaeeu, 0.085707},
    {TYPE_Q4_1, 0x68c6053e0064528cu, 0x502b912c9317d4f7u, 0.079477},
    {TYPE_Q5_0, 0x640a1f01fd9ab016u, 0xeab7532f67e0df89u, 0.042400},
    {TYPE_Q5_1, 0x8bb11cba65bb5719u, 0x10a045ae7a9e7ba7u, 0.038457},
    {TYPE_Q8_0, 0x0998cca2cf7bddfcu, 0x9754140049959c5du, 0.005330},
    {TYPE_Q2_K, 0x1d97df953b2a1ea3u, 0x450a5f564354b553u, 0.297368},
    {TYPE_Q3_K, 0x7fa9494ec1f2a8d0u, 0x9acab15841f80733u, 0.152562},
    {TYPE_Q4_K, 0x139f70597afa10e7u, 0x6205226fccb15992u, 0.072404},
    {TYPE_Q5_K, 0xf6208d8f25e3b42fu, 0x0cbc50b7ef50b815u, 0.036521},
    {TYPE_Q6_K, 0x5a8db7c45da2ed98u, 0xe8ff059beca61867u, 0.018166},
    {TYPE_IQ4_NL, 0xa46c6f1bd4d584dfu, 0xbe69043115dea172u, 0.076109},
    {TYPE_IQ4_XS, 0x533e209cee4d451fu, 0xbfa1fd6605b17e1cu, 0.076613},
    {TYPE_MXFP4, 0x7f7fdd2cc8307e13u, 0xb839e7769e22bf43u, 0.116464},
    {TYPE_NVFP4, 0x771efcc84ae2d983u, 0x8ad4d040cb45497eu, 0.095816},
};

static void fill_a(float *a) {
    for (int i = 0; i < 256; i++)
        a[i] = (float)((i * 7919 + 13) % 2003 - 1001) / 512.0f;
}

static void fill_g(float *g) {
    uint32_t s = 12345;
    for (int i = 0; i < 4096; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++) {
            s = s * 1664525u + 1013904223u;
            sum += (double)(s >> 12) / 1048576.0;
        }
        g[i] = (float)(sum - 6.0);
    }
}

// Root mean square error relative to the standard deviation of x.
static double relative_error(const float *x, const float *y, int n) {
    double mean = 0, var = 0, err = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) {
        var += ((double)x[i] - mean) * ((double)x[i] - mean);
        err += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    }
    return sqrt(err / var);
}

static void encodes_reference_bytes(void **state) {
    (void)state;
    static float a[256], g[4096], y[4096];
    static unsigned char b[4096 * 4];
    fill_a(a);
    fill_g(g);
    for (size_t c = 0; c < sizeof encode_cases / sizeof *encode_cases; c++) {
        const struct encode_case *k = &encode_cases[c];
        const struct quant_format *f = quant_format((uint32_t)k->type);
        f->quantize(a, b, 256);
        if (fnv(b, (size_t)quant_row_bytes(f, 256)) != k->hash_a)
            fail_msg("%s: bytes for input A differ", f->name);
        f->quantize(g, b, 4096);
        if (fnv(b, (size_t)quant_row_bytes(f, 4096)) != k->hash_g)
            fail_msg("%s: bytes for input G differ", f->name);
        f->dequantize(b, y, 4096);
        double rmse = relative_error(g, y, 4096);
        if (fabs(rmse - k->rmse) > 1e-6)
            fail_msg("%s: error %.6f, not %.6f", f->name, rmse, k->rmse);
    }
}

// How far from a constant a block of it with one spike may come back, as a part of it: MXFP4 has no
// code between 6 and 8 times its scale; below three bits one of eight values may get the wrong
// sign, or all get one size.
static float part_of(const struct quant_format *f) {
    bool ternary = f->type == TYPE_TQ1_0 || f->type == TYPE_TQ2_0;
    if (f->by_importance || ternary)
        return 1.6f;
    return f->type == TYPE_MXFP4 || f->type == TYPE_IQ3_S ? 0.5f : 0.15f;
}

// A constant block with one spike. NVFP4 cannot hold values above 6 * 448.
static void round_trip(const struct quant_format *f, float fill, int spike) {
    float x[256], y[256], part = part_of(f);
    if (f->type == TYPE_NVFP4 && fabsf(fill) > 1344.0f)
        return;
    unsigned char b[1024];
    for (int i = 0; i < 256; i++)
        x[i] = i == spike ? -2.0f * fill : fill;
    f->quantize(x, b, 256);
    f->dequantize(b, y, 256);
    for (int i = 0; i < 256; i++)
        if (!(fabsf(y[i] - x[i]) <= part * fabsf(fill) + 1e-6f))
            fail_msg("%s: %g became %g", f->name, (double)x[i], (double)y[i]);
}

// Inputs at the edges: zeros, constants, one spike, subnormals.
static void encodes_edges(void **state) {
    (void)state;
    static const float fills[] = {0.0f, 1.0f, -3.5f, 1e-20f, -1e-42f, 6e-8f, 30000.0f};
    for (int t = 0; quant_format_at(t); t++) {
        for (size_t k = 0; k < sizeof fills / sizeof *fills && quant_format_at(t)->quantize; k++)
            for (int spike = -1; spike < 256; spike += 86)
                round_trip(quant_format_at(t), fills[k], spike);
    }
}

// Weights that are -d, 0 and d come back as they are, with some of them counting for more as well.
static void keeps_ternary_weights(void **state) {
    (void)state;
    float x[256], y[256], v[256];
    unsigned char b[256];
    for (int i = 0; i < 256; i++) {
        x[i] = 0.375f * (float)((i * 7 + i / 11) % 3 - 1);
        v[i] = (float)(1 + i % 13);
    }
    for (int k = 0; k < 4; k++) {
        const struct quant_format *f = quant_format(k & 1 ? TYPE_TQ1_0 : TYPE_TQ2_0);
        if (k & 2)
            f->quantize_weighted(x, v, b, 256);
        else
            f->quantize(x, b, 256);
        f->dequantize(b, y, 256);
        for (int i = 0; i < 256; i++)
            assert_true(y[i] == x[i]);
    }
}

static void half_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00 && (h & 0x3FF)) {
            assert_true(isnan(x));
            assert_int_equal(f32_to_f16(x), (h & 0x8000) | 0x7E00);
        } else {
            assert_int_equal(f32_to_f16(x), h);
        }
    }
    assert_true(f16_to_f32(0x0001) == 0x1p-24f && f16_to_f32(0x03FF) == 1023 * 0x1p-24f);
    assert_true(f16_to_f32(0x7BFF) == 65504.0f && f16_to_f32(0xC000) == -2.0f);
}

static void half_rounds_to_even(void **state) {
    (void)state;
    assert_int_equal(f32_to_f16(1.00048828125f), 0x3c00);
    assert_int_equal(f32_to_f16(1.00146484375f), 0x3c02);
    assert_int_equal(f32_to_f16(65519.9f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(5.96e-8f), 0x0001);
    assert_int_equal(f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(f32_to_f16(0x1.8p-24f), 0x0002);
    assert_int_equal(f32_to_f16(-0x1p-30f), 0x8000);
    assert_int_equal(f32_to_f16(0x1.ffcp-15f), 0x0400); // rounds up into the normal range
}

static void bfloat_rounds_to_even(void **state) {
    (void)state;
    assert_int_equal(f32_to_bf16(1.00390625f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.01171875f), 0x3f82);
    assert_int_equal(f32_to_bf16(3.14159265f), 0x4049);
    assert_int_equal(f32_to_bf16(3.4e38f), 0x7f80);
    assert_int_equal(f32_to_bf16(0x1p-133f), 0x0001); // subnormals are kept
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    for (uint32_t h = 0; h < 65536; h++) {
        if ((h & 0x7F80) != 0x7F80 || !(h & 0x7F))
            assert_int_equal(f32_to_bf16(bf16_to_f32((uint16_t)h)), h);
    }
}

static void has_its_types(void **state) {
    (void)state;
    static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        assert_null(quant_format(removed[i]));
    for (int i = 0; quant_format_at(i); i++) {
        const struct quant_format *f = quant_format_at(i);
        assert_ptr_equal(quant_format((uint32_t)f->type), f);
        assert_ptr_equal(quant_format_by_name(f->name), f);
        assert_true(quant_row_bytes(f, 2 * f->block) == 2 * f->bytes);
        assert_true(f->block == 1 || quant_row_bytes(f, f->block + 1) == -1);
        assert_true(quant_row_bytes(f, INT64_MAX / f->block * f->block) == -1 ||
                    f->bytes <= f->block);
    }
    assert_int_equal(quant_format_by_name("q4_k")->type, TYPE_Q4_K);
    assert_null(quant_format_by_name("Q4_K_M"));
    assert_null(quant_format_at(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_exact_vectors), cmocka_unit_test(decodes_activation_types),
        cmocka_unit_test(decodes_plain_types),   cmocka_unit_test(encodes_reference_bytes),
        cmocka_unit_test(encodes_edges),         cmocka_unit_test(keeps_ternary_weights),
        cmocka_unit_test(half_round_trips),      cmocka_unit_test(half_rounds_to_even),
        cmocka_unit_test(bfloat_rounds_to_even), cmocka_unit_test(has_its_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
