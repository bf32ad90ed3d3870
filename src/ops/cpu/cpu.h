// SPDX-License-Identifier: Apache-2.0
// What the files of the CPU backend share: the exec, its scratch memory and the ops that the
// table in ops_cpu.c lists. Scratch has fixed bounds and is reserved at creation (the system gives
// the memory when it is touched), so no op allocates.
#ifndef COPPICE_OPS_CPU_CPU_H
#define COPPICE_OPS_CPU_CPU_H

#include "base/pool.h"
#include "ops/cpu/simd/row/row.h"
#include "ops/exec.h"
#include "ops/ops_list.h"

enum {
    ROPE_ROWS = 64,    // rows whose angles are prepared at a time
    ROPE_SLOTS = 1024, // cached positions
    ROPE_KINDS = 4,    // cached embeddings: several bases of a target, one of its draft
};

// Cosines and sines of one position: cs[i] = cos of pair i, cs[pairs + i] = sin.
struct rope_slot {
    int64_t pos;
    uint64_t id; // of the embedding; 0: empty
    float cs[OPS_KEY_MAX];
};

// Angles of position 1, which all positions are multiples of.
struct rope_steps {
    uint64_t id; // never used twice; 0: empty
    struct rope rope;
    float factors[OPS_KEY_MAX / 2]; // what rope.factors points to
    double angle[OPS_KEY_MAX / 2];
};

// The keys and values that one row sees in one chunk: slots [begin, end), in position order.
struct keys {
    const float *k[KV_PAGE], *v[KV_PAGE];
    int begin, end;
};

// Four (row, head) pairs that follow each other, and the slots whose keys all four see.
struct quad {
    int row[4], head[4];
    int begin, end;
};

// A query row of a tile and one of its heads, counted from the tile's first ones.
struct attend_pair {
    int row, head;
};

enum { SPARSE_SELECT = 256 }; // means of blocks that are scored together

enum { ATTEND_STEP = 16 }; // keys that stay in the nearest cache while all rows and heads use them

// One worker's scratch for attention: ATTEND_STEP committed keys or values, and those of rows in
// flight, as rows of head_dim floats.
struct attend_scratch {
    float page[ATTEND_STEP * OPS_KEY_MAX];
    float row_k[ROWS * KV_PAGE * OPS_KEY_MAX], row_v[ROWS * KV_PAGE * OPS_HEAD_MAX];
    float score[ROWS][OPS_GROUP_MAX][KV_PAGE];
    struct keys keys[ROWS];
    struct quad quad[ROWS * OPS_GROUP_MAX / 4];
    struct attend_pair pair[ROWS * OPS_GROUP_MAX];
    // Running softmax of a (row, head): maximum, sum, and what the last chunk made of the old sum.
    float max[ROWS][OPS_GROUP_MAX], sum[ROWS][OPS_GROUP_MAX], fade[ROWS][OPS_GROUP_MAX];
};

enum {
    GDN_BATCH = DELTA_ROWS, // rows that share what is read and copied of a state and its log
    GDN_HEADS = 4,          // value heads of one key head that share key products
    GDN_OWN = GDN_BLOCK + 1,
    GDN_LOG = GDN_RING + GDN_BLOCK, // positions from a sequence's oldest base to its deepest row
};

enum { SPARSE_PANEL = 64 }; // keys, or values of a head, that lie side by side

// One worker's scratch for block-sparse attention: a block of keys by columns, [panel of keys][d]
// [SPARSE_PANEL], and of values, [panel of values][SPARSE_BLOCK][SPARSE_PANEL].
struct sparse_scratch {
    float k[SPARSE_BLOCK * OPS_KEY_MAX], v[SPARSE_BLOCK * OPS_HEAD_MAX];
    float rows[SPARSE_BLOCK * OPS_KEY_MAX]; // of a block, as they come
    float score[SPARSE_BLOCK][SPARSE_BLOCK];
    float max[OPS_GROUP_MAX][SPARSE_BLOCK], sum[OPS_GROUP_MAX][SPARSE_BLOCK];
    float fade[SPARSE_BLOCK];
    float select[2 * DELTA_ROWS + 1][SPARSE_SELECT], top[SPARSE_SELECT];
};

// Log decays of one value head, summed from a base and negated.
struct gdn_decays {
    float ring[2][GDN_RING];       // committed positions, from the older and the newer base
    float own[GDN_BATCH][GDN_OWN]; // of each row: its ancestors in flight, last itself
};

// One worker's scratch for Gated DeltaNet: products of keys by position since the oldest base;
// keys, queries and coefficients of the ring as delta_read needs them, and of ancestors in flight.
struct gdn_scratch {
    float kk[GDN_BATCH][GDN_LOG], kq[GDN_BATCH][GDN_LOG];
    float x[GDN_BATCH][2][DELTA_X], panel[DELTA_X * 32];
    float ck[GDN_BATCH][GDN_OWN], cq[GDN_BATCH][GDN_OWN];
    struct gdn_decays decays[GDN_HEADS];
};

struct cpu {
    struct exec base; // first
    struct pool *pool;
    struct row_kernels row;
    struct page_slab *pages;      // of weights (ops/cpu/pages.h)
    struct slabs kv;              // keys and values of sequences, in large pages as well
    struct rope_slot *rope;       // [ROPE_SLOTS]
    float (*angles)[OPS_KEY_MAX]; // [ROPE_ROWS]
    struct rope_steps steps[ROPE_KINDS];
    uint64_t rope_ids;
    struct attend_scratch *attend; // [threads]
    struct gdn_scratch *gdn;       // [threads]
    struct sparse_scratch *sparse; // [threads]
    struct moe_scratch *moe;       // NULL until a weight of experts is made
};

// The CPU part of an exec that this backend made.
static inline struct cpu *cpu_of(struct exec *x) {
    return (struct cpu *)x;
}

// Runs fn over [0, n): inline when n * cost (roughly nanoseconds an item) is not worth a wake-up.
void cpu_run(struct cpu *c, int64_t n, int64_t cost, pool_fn *fn, void *arg);

// Zeroed memory aligned to 64 bytes, or NULL. Free with free().
void *cpu_alloc(size_t bytes);

// Reads a row of a weight of this type.
row_load_fn *cpu_loader(const struct cpu *c, uint32_t type);

// Sets the shape of an activation before its rows are written.
void act_shape(struct act *a, int64_t n, int64_t k);
// Codes and padding of rows [begin, end), whose k values are in place; fastest for four or more.
void act_finish_rows(const struct cpu *c, struct act *a, int64_t begin, int64_t end);

// The ops, cpu_linear and so on (ops.h).
#define X(result, name, parameters, arguments) result cpu_##name parameters;
OPS_OPERANDS(X)
OPS_COMPUTING(X)
#undef X

int64_t cpu_weight_bytes(const struct exec *x, const struct tensor *t);

// n outputs of an activation of g and u.
void cpu_activate_row(const struct row_kernels *k, enum activation a, float *out, const float *g,
                      const float *u, int64_t n);

// One part of a matrix product, by the kernel that suits its number of rows.
void cpu_linear_part(const struct row_kernels *k, const struct linear_part *p);
extern const struct host_rows cpu_host_rows; // (moe/ops.c)
// Scratch for the ops of experts with rows of up to k values.
int cpu_moe_reserve(struct exec *x, int64_t k, struct err *e);
void cpu_moe_release(struct exec *x);
struct act *cpu_moe_rows(const struct cpu *c, int worker); // ROWS rows of what is reserved

// Means and choices of rows that choose blocks; a->choice is there.
void cpu_attend_choose(struct cpu *c, const struct attend_args *a, const struct rows *r);
// Values [at, at + n) of a head row, n a multiple of the codec's block, as f32.
void cpu_sparse_load(const struct cpu *c, const struct sparse_rows *s, int64_t pos, int head,
                     int at, int n, float *out);

// What head_topk does with one row without noise, k >= 0; returns the log of the sum of e^logit.
float cpu_row_topk(const struct row_kernels *r, const float *logits, int64_t vocab, int k,
                   int32_t *ids, float *logp);

#endif
