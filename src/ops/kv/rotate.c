// SPDX-License-Identifier: Apache-2.0
// Sums and differences at distances 1, 2, 4 and so on, then the scale; signs before, or after on
// the way back. The transform without signs would gather what all values of a group share in one.
#include "ops/kv/rotate.h"

static const uint32_t signs[KV_ROTATE_MAX / 32] = KV_ROTATE_SIGNS;

static void flip(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = signs[i / 32] >> i % 32 & 1 ? -x[i] : x[i];
}

static void transform(float *x, int n) {
    static const float scales[] = KV_ROTATE_SCALES;
    int log2 = 0;
    for (int h = 1; h < n; h *= 2, log2++)
        for (int i = 0; i < n; i += 2 * h)
            for (int j = i; j < i + h; j++) {
                float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
    for (int i = 0; i < n; i++)
        x[i] *= scales[log2];
}

int kv_rotate_group(int a, int b) {
    int both = a | b, lowest = both & -both;
    return lowest < KV_ROTATE_MAX ? lowest : KV_ROTATE_MAX;
}

void kv_rotate(float *x, int64_t n, int group) {
    for (int64_t at = 0; at < n; at += group) {
        flip(x + at, group);
        transform(x + at, group);
    }
}

void kv_rotate_back(float *x, int64_t n, int group) {
    for (int64_t at = 0; at < n; at += group) {
        transform(x + at, group);
        flip(x + at, group);
    }
}
