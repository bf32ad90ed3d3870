// SPDX-License-Identifier: Apache-2.0
// Planes of a KV page: rows of every pair of codecs are apart, aligned, within the page and fill
// it; V may be a part of K; what cannot be stored is refused by a sentence.
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "ops/kv/layout.h"
#include "ops/kv/rotate.h"

enum { LAYERS = 2, HEADS = 3 };

// Marks the bytes of a row, which no write may have marked before.
static void mark(unsigned char *seen, const unsigned char *page, const unsigned char *row,
                 int64_t bytes, int64_t page_bytes) {
    int64_t at = row - page;
    assert_true(bytes == 0 || (at >= 0 && at + bytes <= page_bytes));
    for (int64_t i = 0; i < bytes; i++) {
        assert_int_equal(seen[at + i], 0);
        seen[at + i] = 1;
    }
}

static void check_rows(const struct kv_layout *l) {
    unsigned char *page = aligned_alloc(64, (size_t)(l->page_bytes + 63) / 64 * 64);
    unsigned char *seen = calloc(1, (size_t)l->page_bytes);
    assert_non_null(page);
    assert_non_null(seen);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int value = 0; value < (l->s.v_in_k ? 1 : 2); value++)
            for (int at = 0; at < HEADS * KV_PAGE; at++) {
                const struct kv_plane *p = value ? &l->v : &l->k;
                struct kv_row r = kv_row_at(l, p, page, layer, at / KV_PAGE, at % KV_PAGE);
                assert_int_equal((uintptr_t)r.codes % (p->code_row % 16 ? 2 : 16), 0);
                mark(seen, page, r.codes, p->code_row, l->page_bytes);
                mark(seen, page, r.scales, p->scale_row, l->page_bytes);
            }
    for (int64_t i = 0; i < l->page_bytes; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(l->page_bytes, LAYERS * HEADS * KV_PAGE * kv_layout_row(l));
    free(page);
    free(seen);
}

static void test_planes(void **state) {
    (void)state;
    static const int dims[][2] = {{64, 64}, {96, 32}, {32, 256}, {192, 128}, {576, 512}};
    for (int i = 0; i < KV_CODEC_COUNT * KV_CODEC_COUNT; i++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
            struct kv_shape s = {LAYERS,
                                 HEADS,
                                 dims[d][0],
                                 dims[d][1],
                                 false,
                                 (enum kv_codec_id)(i % KV_CODEC_COUNT),
                                 (enum kv_codec_id)(i / KV_CODEC_COUNT)};
            struct kv_layout l;
            assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
            assert_int_equal(l.page_bytes, LAYERS * HEADS * KV_PAGE *
                                               (kv_codec_bytes(s.codec_k, s.dk) +
                                                kv_codec_bytes(s.codec_v, s.dv)));
            check_rows(&l);
            bool k = kv_codec_of(s.codec_k)->rotates != KV_AS_IS;
            bool v = kv_codec_of(s.codec_v)->rotates == KV_ROTATES_BOTH;
            assert_int_equal(l.rotate_k, k ? kv_rotate_group(s.dk, 0) : 0);
            assert_int_equal(l.rotate_v, v ? kv_rotate_group(s.dv, 0) : 0);
        }
}

static void test_view(void **state) {
    (void)state;
    struct kv_shape s = {LAYERS, HEADS, 576, 512, true, KV_Q8_0, KV_Q8_0};
    struct kv_layout l;
    assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
    assert_memory_equal(&l.k, &l.v, sizeof l.k);
    assert_int_equal(kv_layout_row(&l), 612);
    assert_int_equal(l.rotate_k + l.rotate_v, 0);
    check_rows(&l);
    // Values are read out of rotated keys, so both are rotated by the same groups.
    s.codec_k = s.codec_v = KV_Q4_0;
    assert_int_equal(kv_layout_init(&l, &s, NULL), 0);
    assert_int_equal(l.rotate_k, 64);
    assert_int_equal(l.rotate_v, 64);
}

static void refuse(struct kv_shape s, const char *part) {
    struct kv_layout l;
    struct err e;
    assert_int_equal(kv_layout_init(&l, &s, &e), ERR_UNSUPPORTED);
    if (!strstr(e.text, part))
        fail_msg("'%s' lacks '%s'", e.text, part);
}

static void test_refusals(void **state) {
    (void)state;
    refuse((struct kv_shape){1, 1, 80, 64, false, KV_Q8_0, KV_F16}, "heads of 80 values");
    refuse((struct kv_shape){1, 1, 64, 48, false, KV_F16, KV_Q8_0}, "q8_0, which has blocks of 32");
    refuse((struct kv_shape){1, 1, 0, 64, false, KV_F16, KV_F16}, "heads of 0 values");
    refuse((struct kv_shape){1, 1, 64, 64, false, KV_F16, KV_CODEC_COUNT}, "not as codec");
    refuse((struct kv_shape){1, 1, 64, 96, true, KV_F16, KV_F16}, "96 values as f16");
    refuse((struct kv_shape){1, 1, 64, 64, true, KV_F16, KV_F32}, "64 values as f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
