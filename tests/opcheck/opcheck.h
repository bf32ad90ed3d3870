// SPDX-License-Identifier: Apache-2.0
// The harness that walks the op table: every CPU level and every device of this machine against the
// scalar level, and all of them against double-precision transcriptions of the formulas. Ops work
// on memory of the exec under test, between guard bytes; outputs are poisoned before each run. CPU
// levels must give the same bits. A device has an arithmetic of its own, so there the comparison is
// a relative error, sqrt(sum of squared differences / sum of squares), with a bound per op; rule E
// is a matter of bits on both.
#ifndef COPPICE_OPCHECK_H
#define COPPICE_OPCHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "ops/ops.h"

struct check {
    struct exec *spec;  // scalar, one thread
    struct exec *exec;  // the level under test
    struct exec *other; // the same level otherwise: three threads, or the device's other path
    const char *level;
    bool device;      // exec has memory and an arithmetic of its own
    bool brief;       // only shapes that a memory checker or an emulator gets through
    double copy_rate; // bytes a microsecond that a copy moves (read and written); 0: not measured
    void *busy[2];    // of a device: memory to copy to and fro before calls are timed
    struct rng rng;
    int passed, failures;
    int broken;             // guards that were overwritten and inputs that were changed
    const char *absent[40]; // ops that the level lacks, each reported once
    int n_absent;
};

// One level ("scalar", "avx2", "avx512", "cuda", "cuda:small", "cuda:mma", "cuda:wgmma"):
// all families, or the one called `only`. Prints a table. Returns 0, or ERR_UNSUPPORTED and
// ERR_DEVICE when this machine has no such level; counts are added to passed and failed.
struct opcheck_options {
    bool timing; // microseconds instead of checks
    bool brief;  // leave out the long contexts that only devices are given, and the largest state
    int threads; // of a CPU level; 0: all
    const char *only;
    uint64_t seed; // 0: a fixed one
};
int opcheck_level(const char *level, const struct opcheck_options *o, int *passed, int *failed);

// True when the level has the op; otherwise reports its absence as a failure, once.
#define CHECK_HAS(c, op) check_has((c), #op, exec_ops((c)->exec)->op != NULL)
bool check_has(struct check *c, const char *op, bool there);
// True when the level has the forms; otherwise reports the sentence by which it refuses them.
bool check_takes(struct check *c, const struct ops_needs *needs, const char *op);

// Memory of one exec for the time of a check, each piece between guards.
struct buffers {
    struct check *c;
    struct exec *x;
    struct buffer {
        unsigned char *base; // device; guard, bytes, guard
        size_t bytes;
        void *back;       // host memory that buffers_close copies the bytes to, or NULL
        const void *kept; // host memory that must still be the same at buffers_close, or NULL
    } items[512];
    int n;
};
void buffers_open(struct buffers *r, struct check *c, struct exec *x);
// Device copy of host bytes that ops only read; host must stay valid until buffers_close.
void *buffers_in(struct buffers *r, const void *host, size_t bytes);
// Device copy of host bytes, brought back by buffers_close.
void *buffers_io(struct buffers *r, void *host, size_t bytes);
// Device memory that starts as host's bytes (NULL: poison); only buffers_get reads it.
void *buffers_own(struct buffers *r, const void *host, size_t bytes);
void buffers_get(struct buffers *r, void *host, const void *device, size_t bytes);
void buffers_put(struct buffers *r, void *device, const void *host, size_t bytes);
// Brings outputs back, looks at the guards, frees all.
void buffers_close(struct buffers *r);

// The k values of n rows of an activation, as f32 and in the exec's own rounding.
void read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out);

// Host memory between guards, filled with NaN bits.
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
float *random_floats(struct rng *r, int64_t n, float scale); // [n], to be freed
int64_t between(struct rng *r, int64_t lo, int64_t hi);      // inclusive
// Bytes of n values of a type with sane scales.
void fill_quant(struct rng *r, const struct quant_format *f, void *dst, int64_t n);

// A matrix of random values of a type, of one or several experts.
struct matrix {
    struct tensor t;
    const struct quant_format *f;
};
struct matrix matrix_new(struct rng *r, uint32_t type, int64_t k, int64_t m);
void matrix_free(struct matrix *m);
struct weight *matrix_pack(struct exec *x, const struct matrix *m);
struct act *act_new(struct exec *x, int64_t n, int64_t k);
// The types that weights may have.
enum { TYPES = 26 };
extern const uint32_t weight_types[TYPES];
// A length that rows of the type can have: a few blocks.
int64_t random_k(struct rng *r, const struct quant_format *f);

int64_t bit_differences(const float *a, const float *b, int64_t n);
// sqrt(sum (got - want)^2 / sum want^2); infinite when a value is not a number.
double relative_error(const float *got, const float *want, int64_t n);

// Differences of two levels, over several comparisons.
struct tally {
    int64_t differ; // values with other bits
    double error;   // worst relative error of a comparison
};
void tally_add(struct tally *t, const float *want, const float *got, int64_t n);
// Bits on a CPU level, an error of at most `bound` on a device.
void report_tally(struct check *c, const struct tally *t, bool guards, double bound, const char *op,
                  const char *shape);

double now_us(void);

// Microseconds of one call of fn: the best of several runs; on a device, of many calls in a row
// that end with the device's work. turn counts the calls, so that fn can change inputs that
// would otherwise stay in a cache.
typedef void timed_fn(void *arg, int turn);
double time_call(struct check *c, timed_fn *fn, void *arg);

// Prints one line and counts a failure when ok is false.
void report(struct check *c, bool ok, const char *op, const char *shape, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
// One line of a timing: bytes is what one call must move at least.
void report_time(struct check *c, const char *op, const char *shape, double us, double bytes);

// Random forests: chains and trees of one or several sequences.
struct forest {
    struct rows rows;
    int32_t token[1024], parent[1024], seq[1024];
    int64_t pos[1024];
};
enum forest_kind { CHAIN, TREE };
// Appends n rows of one sequence that has `len` committed tokens.
void forest_clear(struct forest *f);
// The layout of pages of a shape that can be stored.
struct kv_layout kv_layout_for(struct kv_shape s);
// The codec itself, or f16 where the checked exec has no kernels for it.
enum kv_codec_id codec_for(const struct check *c, enum kv_codec_id id);
void forest_grow(struct forest *f, struct rng *r, enum forest_kind kind, int seq, int64_t len,
                 int n);
// The row of f whose path (parents) is followed, oldest first, ending in row i. Returns its length.
int forest_path(const struct forest *f, int32_t i, int32_t *path);

#endif
