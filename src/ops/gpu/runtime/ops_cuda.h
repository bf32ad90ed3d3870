// SPDX-License-Identifier: Apache-2.0
// The ops of the CUDA backend, and what its families have for each other. Internal to this folder.
#ifndef COPPICE_OPS_GPU_RUNTIME_OPS_CUDA_H
#define COPPICE_OPS_GPU_RUNTIME_OPS_CUDA_H

#include "ops/gpu/runtime/cuda.h"
#include "ops/ops_list.h"

#ifdef __cplusplus
extern "C" {
#endif

// The ops, cuda_linear and so on (ops.h).
#define X(result, name, parameters, arguments) result cuda_##name parameters;
OPS_OPERANDS(X)
OPS_COMPUTING(X)
OPS_TRIED(X)
#undef X

extern const struct ops cuda_table;           // (table.c)
extern const struct copy_backend cuda_copies; // (copy.c)
extern const struct host_rows cuda_host_rows; // (moe/host_rows.cu)

// Parking (ops/exec.h), for the table of copies (park.c).
int cuda_park_open(struct exec *x, struct parked *k, struct err *e);
void cuda_park_fault(struct exec *x);

enum { ACT_ALIGN = 64 }; // values; rows of an act are padded with zeros to it

// Activations (memory.c, act.cu).
int64_t cuda_act_bytes(const struct exec *x, int64_t n, int64_t k);
void cuda_act_read(struct exec *x, const struct act *a, int64_t n, float *out);
// Sets the shape of a before its rows are written.
void cuda_act_shape(struct act *a, int64_t n, int64_t k);
// Rows of a->wide (k values each) to fp16 with a power of two per row; writes the padding.
void cuda_act_finish(struct exec *x, struct act *a, int64_t n);
// The same at the next gpu_flush, unless ops/gpu/linear/few/few.cu comes first (act_take), whose
// kernel makes fp16 of what it reads: the op before has left the peaks of up to PEAK_ROWS rows; or
// ops/gpu/moe/few.cu, with up to PEAKS entries.
enum { PEAK_ROWS = 8, PEAKS = 512 };
void act_defer(struct gpu *g, struct act *a, int64_t n);
// Whether these n rows of fp16 are deferred; then they are the caller's to make.
bool act_take(struct gpu *g, const void *x, int64_t n, struct act *a);
void act_flush(struct gpu *g); // queues what is deferred
// The same without peaks, for heads.cu alone, which makes its own fp16 of each head's values.
void act_defer_plain(struct gpu *g, struct act *a, int64_t n);
bool act_take_plain(struct gpu *g, const void *x, int64_t n, struct act *a);

size_t gpu_scratch_of(const struct gpu *g, const struct exec_limits *l);
// What passes within limits request as scratch, by family, and what else each keeps (reserve.c):
// its bytes, and taking them. False: no memory.
size_t linear_scratch(const struct gpu *g, const struct exec_limits *l);
size_t attend_scratch(const struct exec_limits *l);
size_t gdn_scratch(const struct gpu *g, const struct exec_limits *l);
size_t sample_scratch(const struct exec_limits *l);
size_t sparse_scratch(const struct exec_limits *l);
size_t mass_scratch(const struct exec_limits *l);
size_t moe_scratch(const struct gpu *g, const struct exec_limits *l);
size_t linear_kept(void);
bool linear_reserve(struct gpu *g);
size_t attend_kept(const struct exec_limits *l);
bool attend_reserve(struct gpu *g, const struct exec_limits *l);
int64_t cuda_own_bytes(const struct exec *x, const struct exec_limits *l);
int cuda_reserve(struct exec *x, const struct exec_limits *l, struct err *e);

// Weights and linear layers (ops/gpu/linear: form/weight.c, form/repack.cu, linear.cu, finish.cu).
void linear_flush(struct gpu *g);   // queues what is deferred (ops/gpu/linear/finish.cu)
void linear_release(struct gpu *g); // and what is held
enum {
    UNPACKED_BYTES = 384 << 20,    // of weights that are unpacked at once, in scratch memory,
    UNPACKED_MMA_BYTES = 64 << 20, // and on the path mma
};
int64_t cuda_weight_bytes(const struct exec *x, const struct tensor *t);
// The parts of making one: its shape and sizes (false: linear layers cannot read it), and its way
// into w->data and the exponents, which are set (false: no memory for pieces).
bool cuda_weight_layout(const struct tensor *t, struct weight *w);
bool cuda_weight_stream(struct gpu *g, struct weight *w, const struct tensor *t);
int cuda_refuse_type(const struct tensor *t, struct err *e);
void cuda_loader_close(struct gpu *g);
// Makes the tiles of rows first .. first + count of w (first is a multiple of 16) from the file's
// rows, which are in device memory as the grid of a type with a codebook is.
void cuda_repack(struct gpu *g, struct weight *w, const unsigned char *rows, int64_t row_bytes,
                 int64_t first, int64_t count, const void *grid);

// Experts (moe/).
void moe_flush(struct gpu *g); // queues what is deferred (ops/gpu/moe/sum.cu)
size_t moe_kept(void);
bool moe_reserve(struct gpu *g);

// The codecs of keys and values that kernels read and write (ops/gpu/kv/stored.cuh). Those
// of block-sparse attention take what is not rotated only.
#define CUDA_KV_AS_IS(X)   X(KV_F16) X(KV_F32) X(KV_BF16) X(KV_Q8_0)
#define CUDA_KV_ROTATED(X) X(KV_Q5_1) X(KV_Q5_0) X(KV_Q4_1) X(KV_Q4_0) X(KV_TQ3_0)
#define CUDA_KV_CODECS(X)  CUDA_KV_AS_IS(X) CUDA_KV_ROTATED(X)

// What calls of attention request and there is no kernel for, in words; NULL: nothing.
const char *cuda_qk_lacks(const struct qk_args *a);
const char *cuda_attend_lacks(const struct attend_args *a);
const char *cuda_sparse_lacks(const struct sparse_args *a);

#ifdef __cplusplus
}
#endif

#endif
