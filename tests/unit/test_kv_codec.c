// SPDX-License-Identifier: Apache-2.0
// The table of KV codecs: every row is whole, rounds as its element type does, and is found by its
// name; what is no codec is refused by a sentence that names those that exist.
#include "test.h"

#include <string.h>

#include "base/rng.h"
#include "ops/kv/codec.h"

enum { N = 192 };

static void test_rows(void **state) {
    (void)state;
    assert_null(kv_codec_of(KV_CODEC_COUNT));
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        const struct kv_codec *c = kv_codec_of((enum kv_codec_id)i);
        const struct quant_format *f = quant_format(c->type);
        enum kv_codec_id found = KV_CODEC_COUNT;
        struct err e;
        assert_int_equal(c->block, f->block);
        assert_int_equal(c->code_bytes + c->scale_bytes, f->bytes);
        assert_int_equal(kv_codec_bytes((enum kv_codec_id)i, N), quant_row_bytes(f, N));
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

static void test_refusals(void **state) {
    (void)state;
    enum kv_codec_id id = KV_BF16;
    struct err e;
    assert_int_equal(kv_codec_by_name("q4", "--kv-type-v", &id, &e), ERR_USAGE);
    assert_string_equal(e.text, "--kv-type-v is f16, f32, bf16 or q8_0, not 'q4'");
    assert_int_equal(id, KV_BF16);
    assert_int_equal(kv_codec_check((enum kv_codec_id)77, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "f16, f32, bf16 or q8_0, not as codec 77"));
    assert_string_equal(KV_CODEC_CHOICES, "f16|f32|bf16|q8_0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
