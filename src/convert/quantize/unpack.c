// SPDX-License-Identifier: Apache-2.0
// Decodes matrices whose codes and scales lie apart (packed.h), any part of them: E4M3,
// whose largest value is 448 and which has no infinities, and codes of four bits around 8.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "convert/quantize/packed.h"
#include "formats/quant/quant.h"

// Exponent and fraction lie as those of a float do, for a bias of 7 instead of 127; codes without
// an exponent then are subnormal, and the product is exact all the same.
static float e4m3(unsigned code) {
    const uint32_t bits = (code & 0x7F) << 20;
    float v;
    memcpy(&v, &bits, sizeof v);
    v *= 0x1p120f;
    if ((code & 0x7F) == 0x7F)
        v = NAN;
    return code & 0x80 ? -v : v;
}

static float scale_at(const struct tensor *s, int64_t i) {
    float v;
    if (s->type == TYPE_I8) {
        int exponent = ((const unsigned char *)s->data)[i];
        return exponent == 255 ? NAN : ldexpf(1.0f, exponent - 127);
    }
    const struct quant_format *f = quant_format(s->type);
    f->dequantize((const unsigned char *)s->data + quant_row_bytes(f, i), &v, 1);
    return v;
}

// Codes c .. c + n of a row, times their scale.
static void unpack_run(const struct convert_packed *p, const unsigned char *row, int64_t c,
                       int64_t n, float scale, float *dst) {
    for (int64_t i = 0; i < n && !p->int4; i++)
        dst[i] = e4m3(row[c + i]) * scale;
    for (int64_t i = 0; i < n && p->int4; i++, c++)
        dst[i] = (float)((row[c / 2] >> (c % 2 ? 4 : 0) & 15) - 8) * scale;
}

void convert_unpack(const struct tensor *t, int64_t at, int64_t n, float *dst) {
    const struct convert_packed *p = (const struct convert_packed *)(const void *)t;
    int64_t k = t->ne[0], m = t->ne[1];
    while (n > 0) {
        int64_t row = at / k, c = at % k, r = row % m;
        int64_t block = row / m * p->scale_slice + r / p->rows * p->scale_columns + c / p->columns;
        int64_t run = min_i64(min_i64(p->columns - c % p->columns, k - c), n);
        unpack_run(p, p->codes + row * p->row_bytes, c, run, scale_at(p->scale, block), dst);
        at += run;
        dst += run;
        n -= run;
    }
}

int64_t convert_packed_bytes(const struct tensor *t, int64_t n) {
    return ((const struct convert_packed *)(const void *)t)->int4 ? n / 2 : n;
}
