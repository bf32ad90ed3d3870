// SPDX-License-Identifier: Apache-2.0
// Exponents without a branch within a run of them: compilers make vectors of that.
#include "formats/quant/finite.h"

#include <string.h>

#include "base/num.h"

enum { STRETCH = 4096 }; // values between two looks at what was found

static bool finite_16(const unsigned char *p, int64_t n, uint16_t exponent) {
    for (int64_t from = 0; from < n; from += STRETCH) {
        int64_t some = min_i64(n - from, STRETCH);
        uint16_t bad = 0;
        for (int64_t i = 0; i < some; i++) {
            uint16_t v;
            memcpy(&v, p + 2 * (from + i), sizeof v);
            bad |= (uint16_t)((v & exponent) == exponent);
        }
        if (bad)
            return false;
    }
    return true;
}

bool finite_f16(const void *p, int64_t n) {
    return finite_16(p, n, 0x7c00);
}

bool finite_bf16(const void *p, int64_t n) {
    return finite_16(p, n, 0x7f80);
}

bool finite_f32(const void *p, int64_t n) {
    const uint32_t exponent = 0x7f800000;
    const unsigned char *bytes = p;
    for (int64_t from = 0; from < n; from += STRETCH) {
        int64_t some = min_i64(n - from, STRETCH);
        uint32_t bad = 0;
        for (int64_t i = 0; i < some; i++) {
            uint32_t v;
            memcpy(&v, bytes + 4 * (from + i), sizeof v);
            bad |= (uint32_t)((v & exponent) == exponent);
        }
        if (bad)
            return false;
    }
    return true;
}
