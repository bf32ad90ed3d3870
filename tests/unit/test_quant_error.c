// SPDX-License-Identifier: Apache-2.0
// The error that our encoders leave, tensor by tensor, against what ggml's quantisers leave on the
// same tensors (tests/fixtures/quant/errors.tsv, made by tools/oracle/quant_errors.py): at most
// 1.03 times as much for every type, with and without importances.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

#define FIXTURE SOURCE_ROOT "/tests/fixtures/quant/errors.tsv"
#define MODEL   SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

enum { ROWS = 16, COLUMNS = 1024, MODEL_ROWS = 64, MAX_COUNT = MODEL_ROWS * COLUMNS };
static const double LIMIT = 1.03;

struct matrix {
    char name[64];
    int64_t rows, columns;
    float *x; // [rows][columns]
};

static double uniform(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 12) / 1048576.0;
}

static double normal(uint32_t *state) {
    double sum = 0;
    for (int k = 0; k < 12; k++)
        sum += uniform(state);
    return sum - 6.0;
}

static const char *const seeded[] = {"normal",  "small",   "uniform", "cubed",
                                     "outlier", "shifted", "sparse",  "columns"};
enum { SEEDED = sizeof seeded / sizeof *seeded };

// Value i of the seeded tensor of that number.
static double seeded_value(int kind, uint32_t *state, int i) {
    double x = kind == 2 ? uniform(state) : normal(state);
    switch (kind) {
    case 1:
        return x * 0.015625;
    case 2:
        return x - 0.5;
    case 3:
        return x * x * x;
    case 4:
        return x * (i % 97 == 0 ? 1.0 : 0.0625);
    case 5:
        return x * 0.125 + 0.25;
    case 6:
        return uniform(state) < 0.3 ? x : 0.0;
    case 7:
        return x * (1 + i % COLUMNS % 17);
    default:
        return x;
    }
}

static bool fill_seeded(struct matrix *m) {
    for (int k = 0; k < SEEDED; k++) {
        uint32_t state = 1000u + (uint32_t)k;
        if (strcmp(seeded[k], m->name))
            continue;
        m->rows = ROWS;
        m->columns = COLUMNS;
        for (int i = 0; i < ROWS * COLUMNS; i++)
            m->x[i] = (float)seeded_value(k, &state, i);
        return true;
    }
    return false;
}

static void fill_from_model(struct matrix *m, const struct gguf *g) {
    char name[80];
    snprintf(name, sizeof name, "%s.weight", m->name);
    const struct tensor *t = gguf_tensor(g, name);
    if (!t || t->ne[0] > COLUMNS || t->ne[1] < MODEL_ROWS)
        fail_msg("the model has no tensor '%s' of %d rows", name, MODEL_ROWS);
    m->rows = MODEL_ROWS;
    m->columns = t->ne[0];
    quant_format(t->type)->dequantize(t->data, m->x, m->rows * m->columns);
}

static void fill_importances(float *v, int64_t n) {
    uint32_t state = 777;
    for (int64_t i = 0; i < n; i++) {
        double x = normal(&state);
        v[i] = (float)(x * x * (x * x) + 0.0625);
    }
}

// Root mean square of what encoding and decoding changes, each column counted by v (NULL: alike).
static double error_of(const struct quant_format *f, const struct matrix *m, const float *v) {
    double sum = 0, weight = 0;
    float *y = malloc((size_t)m->columns * sizeof *y);
    unsigned char *b = malloc((size_t)quant_row_bytes(f, m->columns));
    assert_true(y && b);
    for (int64_t r = 0; r < m->rows; r++) {
        const float *x = m->x + r * m->columns;
        if (v)
            f->quantize_weighted(x, v, b, m->columns);
        else
            f->quantize(x, b, m->columns);
        f->dequantize(b, y, m->columns);
        for (int64_t i = 0; i < m->columns; i++) {
            double error = (double)x[i] - (double)y[i], w = v ? (double)v[i] : 1.0;
            sum += w * error * error;
            weight += w;
        }
    }
    free(y);
    free(b);
    return sqrt(sum / weight);
}

// Under a sanitizer every fourth line: each type with importances and without, on five tensors.
enum { EVERY = TEST_BRIEF && !TEST_LONG ? 4 : 1 };

static void leaves_no_more_error_than_ggml(void **state) {
    (void)state;
    char name[64], type[16], how[16];
    double theirs, worst = 0;
    int lines = 0;
    static float values[MAX_COUNT], v[COLUMNS];
    struct matrix m = {.x = values};
    struct gguf *g = NULL;
    struct err e = {0};
    FILE *file = fopen(FIXTURE, "r");
    assert_non_null(file);
    assert_int_equal(gguf_open(&g, MODEL, &e), 0);
    while (fscanf(file, "%63s %15s %15s %lf", name, type, how, &theirs) == 4) {
        if (lines++ % EVERY)
            continue;
        bool weighted = !strcmp(how, "weighted");
        const struct quant_format *f = quant_format_by_name(type);
        if (strcmp(name, m.name)) {
            snprintf(m.name, sizeof m.name, "%s", name);
            if (!fill_seeded(&m))
                fill_from_model(&m, g);
            fill_importances(v, m.columns);
        }
        assert_true(f && f->quantize && (!weighted || f->quantize_weighted));
        double ours = error_of(f, &m, weighted ? v : NULL);
        if (!(ours <= LIMIT * theirs))
            fail_msg("%s %s %s: error %.9g, more than %g times %.9g", name, type, how, ours, LIMIT,
                     theirs);
        worst = ours / theirs > worst ? ours / theirs : worst;
    }
    print_message("%d errors, at most %.4f times those of ggml\n", lines, worst);
    assert_int_equal(lines, 700);
    fclose(file);
    gguf_close(g);
}

// Weights where they matter: the weighted error must be less than that of plain encoding.
static void importances_help(void **state) {
    (void)state;
    static float values[MAX_COUNT], v[COLUMNS];
    struct matrix m = {.name = "normal", .x = values};
    assert_true(fill_seeded(&m));
    fill_importances(v, m.columns);
    for (int i = 0; quant_format_at(i); i++) {
        const struct quant_format *f = quant_format_at(i);
        unsigned char plain[COLUMNS], weighted[COLUMNS];
        float y[COLUMNS];
        double error[2] = {0};
        if (!f->quantize_weighted)
            continue;
        f->quantize(m.x, plain, COLUMNS);
        f->quantize_weighted(m.x, v, weighted, COLUMNS);
        for (int k = 0; k < 2; k++) {
            f->dequantize(k ? weighted : plain, y, COLUMNS);
            for (int c = 0; c < COLUMNS; c++) {
                double d = (double)m.x[c] - (double)y[c];
                error[k] += (double)v[c] * d * d;
            }
        }
        if (!(error[1] < error[0]))
            fail_msg("%s: importances made the error %g of %g", f->name, error[1], error[0]);
    }
}

// Columns that nothing is known about, whole groups or single ones, count as ordinary ones.
static void takes_odd_importances(void **state) {
    (void)state;
    static float values[MAX_COUNT], v[COLUMNS];
    struct matrix m = {.name = "normal", .x = values};
    assert_true(fill_seeded(&m));
    m.rows = 1;
    for (int i = 0; quant_format_at(i); i++) {
        const struct quant_format *f = quant_format_at(i);
        if (!f->quantize_weighted)
            continue;
        double plain = error_of(f, &m, NULL);
        unsigned char b[COLUMNS];
        float y[COLUMNS];
        memset(v, 0, sizeof v);
        for (int tiny = 0; tiny < 2; tiny++) {
            double sum = 0;
            f->quantize_weighted(m.x, v, b, COLUMNS);
            f->dequantize(b, y, COLUMNS);
            for (int c = 0; c < COLUMNS; c++)
                sum += ((double)m.x[c] - (double)y[c]) * ((double)m.x[c] - (double)y[c]);
            if (!(sqrt(sum / (double)COLUMNS) < 1.15 * plain))
                fail_msg("%s: error %g without importances, %g with flat ones", f->name, plain,
                         sqrt(sum / (double)COLUMNS));
            for (int c = 0; c < COLUMNS; c++)
                v[c] = 1e-6f;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_no_more_error_than_ggml),
        cmocka_unit_test(importances_help),
        cmocka_unit_test(takes_odd_importances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
