// SPDX-License-Identifier: Apache-2.0
// Importance matrices of both formats: every entry of an accepted file is found by its name, and
// its values are means of squares. And what they are for: a row of floats is encoded by importances
// and decodes to finite numbers.
#include "fuzz.h"

#include <math.h>
#include <string.h>

#include "formats/imatrix.h"
#include "formats/quant/quant.h"

enum { ROW = 256 };

void fuzz_setup(void) {
}

// A row and its importances from the bytes of the input; importances below 1 as `quantize` has
// them.
static void fill_row(const uint8_t *data, size_t size, float *x, float *v) {
    for (size_t i = 0; i < ROW; i++) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4 && size; k++)
            bits = bits << 8 | data[(4 * i + k) % size];
        memcpy(&x[i], &bits, sizeof bits);
        x[i] = fabsf(x[i]) <= 65504.0f ? x[i] : (float)(bits & 255);
        v[i] = ldexpf((float)(bits >> 8 & 255), -8 - (int)(bits & 127));
    }
}

static void encode_as(const struct quant_format *f, const float *x, const float *v, bool weighted) {
    float y[ROW];
    unsigned char b[ROW * 4];
    if (weighted)
        f->quantize_weighted(x, v, b, ROW);
    else
        f->quantize(x, b, ROW);
    f->dequantize(b, y, ROW);
    for (int k = 0; k < ROW; k++)
        FUZZ_CHECK(isfinite(y[k]));
}

// In the type that the last byte chooses.
static void encode(const uint8_t *data, size_t size) {
    float x[ROW], v[ROW];
    const struct quant_format *f = quant_format_at(size ? data[size - 1] & 63 : 0);
    if (!f || !f->dequantize || !f->quantize)
        return;
    fill_row(data, size, x, v);
    encode_as(f, x, v, false);
    if (f->quantize_weighted)
        encode_as(f, x, v, true);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct imatrix *m = NULL;
    struct err e = {0};
    struct fuzz_file f;
    fuzz_file_open(&f, data, size);
    int rc = imatrix_open(&m, f.path, &e);
    fuzz_file_close(&f);
    fuzz_result(rc, &e, fragile);
    if (!fragile)
        encode(data, size);
    if (rc)
        return;
    FUZZ_CHECK(imatrix_count(m) > 0 && imatrix_chunks(m) >= 0);
    for (size_t i = 0; i < imatrix_count(m); i++) {
        const struct imatrix_entry *entry = imatrix_at(m, i);
        FUZZ_CHECK(imatrix_find(m, entry->name) == entry && entry->count > 0);
        for (int64_t k = 0; k < entry->count; k++)
            FUZZ_CHECK(isfinite(entry->v[k]) && entry->v[k] >= 0);
    }
    imatrix_close(m);
}
