// SPDX-License-Identifier: Apache-2.0
// The harness that walks the op table: every level of this machine against the scalar level, and
// the scalar level against double-precision transcriptions of the formulas. Outputs lie between
// guard bytes and are poisoned before each run; every op is expected to give the same bits at
// every level, so "worst" is a count of differing bits unless a check says otherwise.
#ifndef COPPICE_OPCHECK_H
#define COPPICE_OPCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "formats/quant.h"
#include "ops/ops.h"

struct check {
    struct exec *spec; // scalar, one thread
    struct exec *exec; // the level under test
    const char *level;
    bool time;
    struct rng rng;
    int failures;
};

// Memory between guards, filled with NaN bits.
struct guarded {
    float *p;
    int64_t n;
};
struct guarded guarded_new(int64_t n);
void guarded_poison(struct guarded *g);
// Frees and returns false when a guard was overwritten or (all written) poison is left.
bool guarded_free(struct guarded *g);

float unit_random(struct rng *r); // in [-1, 1)
void fill_random(struct rng *r, float *x, int64_t n, float scale);
int64_t between(struct rng *r, int64_t lo, int64_t hi); // inclusive
// Bytes of n values of a type with sane scales.
void fill_quant(struct rng *r, const struct quant_format *f, void *dst, int64_t n);

int64_t bit_differences(const float *a, const float *b, int64_t n);
double now_us(void);

// Prints one line and counts a failure when ok is false.
void report(struct check *c, bool ok, const char *op, const char *shape, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

// Random forests: chains and trees of one or several sequences.
struct forest {
    struct rows rows;
    int32_t token[1024], parent[1024], seq[1024];
    int64_t pos[1024];
};
enum forest_kind { CHAIN, TREE };
// Appends n rows of one sequence that has `len` committed tokens.
void forest_clear(struct forest *f);
void forest_add(struct forest *f, struct rng *r, enum forest_kind kind, int seq, int64_t len,
                int n);
// The row of f whose path (parents) is followed, oldest first, ending in row i. Returns its length.
int forest_path(const struct forest *f, int32_t i, int32_t *path);

// One function a family; level checks compare c->exec with c->spec, the others with doubles.
void check_linear(struct check *c);
void check_linear_rule(struct check *c); // rule E1
void check_linear_double(struct check *c);
void check_linear_time(struct check *c);
void check_rows(struct check *c);
void check_rows_rule(struct check *c);
void check_rows_double(struct check *c);
void check_attend(struct check *c);
void check_attend_rule(struct check *c);
void check_attend_double(struct check *c);
void check_attend_time(struct check *c);
void check_gdn(struct check *c);
void check_gdn_rule(struct check *c);
void check_gdn_double(struct check *c);
void check_gdn_time(struct check *c);
void check_sample(struct check *c);
void check_sample_rule(struct check *c);
void check_sample_double(struct check *c);
void check_sample_time(struct check *c);

#endif
