// SPDX-License-Identifier: Apache-2.0
// Types of codebooks: the codebooks by sums and hashes of their values, and a block of each type,
// the stream 181 k + 73 with a scale of 0.5, by the sum, the weighted sum and a hash of what it
// decodes to. The numbers are those that the established decoder gives.
#include "unit/test.h"

#include <stdio.h>

#include "formats/quant/grid.h"
#include "formats/quant/quant.h"

static uint64_t fnv(uint64_t h, const void *data, size_t n) {
    const unsigned char *b = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}
#define FNV 0xCBF29CE484222325u

struct book {
    const uint16_t *entry;
    int entries, values;
    int8_t of[8];
    int64_t sum, weighted;
    uint64_t hash;
};

static void test_codebooks(void **state) {
    (void)state;
    const struct book books[] = {
        {quant_grid_iq2_xxs, 256, 8, {8, 25, 43}, 38611, 42100955, 0xbb4ee025b5ac6e8e},
        {quant_grid_iq2_xs, 512, 8, {8, 25, 43}, 81582, 182044374, 0xc9b1ee61e79909bd},
        {quant_grid_iq2_s, 1024, 8, {8, 25, 43}, 167589, 720245922, 0x123edd38a3b62b90},
        {quant_grid_iq3_xxs,
         256,
         4,
         {4, 12, 20, 28, 36, 44, 52, 62},
         25592,
         14912868,
         0xdfa5dc83d6a155d5},
        {quant_grid_iq3_s,
         512,
         4,
         {1, 3, 5, 7, 9, 11, 13, 15},
         12748,
         14404362,
         0xfa37020c25b44829},
        {quant_grid_iq1, 2048, 8, {-1, 0, 1}, -15, 10703429, 0x6703ed863501ae2e},
    };
    for (size_t b = 0; b < sizeof books / sizeof *books; b++) {
        const struct book *k = &books[b];
        int bits = 16 / k->values == 2 ? 2 : 3;
        int64_t sum = 0, weighted = 0, at = 0;
        uint64_t hash = FNV;
        for (int e = 0; e < k->entries; e++)
            for (int i = 0; i < k->values; i++) {
                int8_t v = k->of[k->entry[e] >> bits * i & (bits == 2 ? 3 : 7)];
                sum += v;
                weighted += ++at * v;
                hash = fnv(hash, &v, 1);
            }
        assert_int_equal(sum, k->sum);
        assert_int_equal(weighted, k->weighted);
        assert_true(hash == k->hash);
    }
}

static const struct vector {
    int type, scale_at; // -1: in the top nibbles of four words
    double sum, weighted;
    uint64_t hash;
    float first[4], last;
} vectors[] = {
    {TYPE_IQ1_S, 0, 35, -6005, 0x77b38b50cfb54686, {.0625f, .0625f, -.4375f, .5625f}, 5.6875f},
    {TYPE_IQ1_M,
     -1,
     -14,
     -777,
     0x1a10048992e53daa,
     {-.1875f, -.1875f, -1.6875f, 1.3125f},
     -7.3125f},
    {TYPE_IQ2_XXS,
     0,
     -733.6875,
     -93407.5625,
     0x4572afafd3694bab,
     {-10.5f, -10.5f, -10.5f, 56.4375f},
     3.5f},
    {TYPE_IQ2_XS,
     0,
     160.1875,
     17951.8125,
     0x0ff7abb96d052c4a,
     {3.5f, 3.5f, -18.8125f, 3.5f},
     -14.5f},
    {TYPE_IQ2_S,
     0,
     81.0625,
     7252.375,
     0x3f7cce70e3829b39,
     {-11.5f, -11.5f, 35.9375f, 11.5f},
     45.6875f},
    {TYPE_IQ3_XXS, 0, -899.5, -86148.25, 0x55f42887ae225a33, {-23.25f, -16.5f, 1.5f, 13.5f}, 40.5f},
    {TYPE_IQ3_S, 0, -116, -2268, 0x1d06c5cd95d933ca, {-11.5f, -57.5f, 103.5f, -126.5f}, -38.5f},
    {TYPE_TQ1_0, 52, -1, -70.5, 0xc0b196e494f1e5d5, {-.5f, .5f, .5f, 0}, -.5f},
    {TYPE_TQ2_0, 64, 63.5, 7970, 0x1dcb45522aefb4d8, {0, .5f, 1, -.5f}, 1},
};

static void make_block(const struct vector *v, unsigned char *b) {
    const struct quant_format *f = quant_format((uint32_t)v->type);
    for (int k = 0; k < f->bytes; k++)
        b[k] = (unsigned char)(181 * k + 73);
    if (v->scale_at >= 0) { // 0.5
        b[v->scale_at] = 0;
        b[v->scale_at + 1] = 0x38;
        return;
    }
    static const unsigned char high[4] = {0, 0, 0x80, 0x30};
    for (int i = 0; i < 4; i++)
        b[49 + 2 * i] = (unsigned char)((b[49 + 2 * i] & 15) | high[i]);
}

static void test_blocks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *v = &vectors[i];
        const struct quant_format *f = quant_format((uint32_t)v->type);
        unsigned char b[2 * 128];
        float y[512];
        double sum = 0, weighted = 0;
        make_block(v, b);
        memcpy(b + f->bytes, b, (size_t)f->bytes);
        f->dequantize(b, y, 512);
        for (int j = 0; j < 256; j++) {
            sum += (double)y[j];
            weighted += (j + 1) * (double)y[j];
        }
        if (sum != v->sum || weighted != v->weighted || fnv(FNV, y, 256 * sizeof *y) != v->hash)
            fail_msg("%s: %g, %g", f->name, sum, weighted);
        assert_memory_equal(y, v->first, sizeof v->first);
        assert_true(y[255] == v->last);
        assert_memory_equal(y + 256, y, 256 * sizeof *y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codebooks),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
