// SPDX-License-Identifier: Apache-2.0
// What the files of the CUDA backend share: the exec, weights and activations in device form, and
// the ops that the table in ops_cuda.c lists. Every op only queues work on one stream; a failed
// launch or copy is kept in `fault` and reported at the next point that waits (cuda_status).
//
// One numeric form for all linear layers (rule E1): weights become fp16 operands, times a power of
// two per row that keeps them in range; activations are fp16, times a power of two per row; the
// products are summed in f32 in one K order by matrix instructions.
#ifndef COPPICE_OPS_CUDA_CUDA_H
#define COPPICE_OPS_CUDA_CUDA_H

#include "ops/cuda/gpu.h"
#include "ops/cuda/linear.h"
#include "ops/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

// Which matrix instructions linear layers use.
enum cuda_path {
    CUDA_PATH_SMALL, // mma.sync m16n8k8: sm_75
    CUDA_PATH_MMA,   // mma.sync m16n8k16: sm_80 and newer
    CUDA_PATH_WGMMA, // wgmma for many rows, mma.sync for few: sm_90a
};

struct gpu_block {
    void *p;
    size_t bytes;
};

// Small host arrays on their way to the device: a pinned ring and its mirror on the device. The
// same bytes staged again, before the ring comes round, are found and not sent again.
struct gpu_stage {
    unsigned char *host, *device; // [STAGE_BYTES]
    size_t used;
    struct stage_entry {
        uint64_t hash;
        size_t offset, bytes;
    } entries[512];
    int n_entries;
};
enum { STAGE_BYTES = 32 << 20 };

struct gpu {
    struct exec base; // first
    int device, sm;   // compute capability as 90 for 9.0
    int processors;   // multiprocessors
    enum cuda_path path;
    gpu_stream stream;
    gpu_error fault;         // the first failure since creation
    const char *fault_where; // the call that failed
    int64_t limit;           // bytes this exec may hold; 0: no limit of our own
    int64_t used, peak;      // bytes held now, at most
    struct gpu_block *blocks;
    int64_t n_blocks, cap_blocks;
    struct gpu_stage stage;
    void *scratch; // room for what lives within one op only
    size_t scratch_bytes;
};

static inline struct gpu *gpu_of(struct exec *x) {
    return (struct gpu *)x;
}

// Keeps the first failure; where: a string that outlives the exec. Returns code == GPU_OK.
bool gpu_check(struct gpu *g, gpu_error code, const char *where);

// Device memory counted against the limit, zeroed; NULL when there is none.
void *gpu_alloc(struct gpu *g, size_t bytes);
void gpu_release(struct gpu *g, void *p);

// Device address of a copy of host bytes, 16-byte aligned, valid for ops queued before the stage
// comes round again; NULL after a fault. At most STAGE_BYTES / 4 at once.
const void *gpu_stage(struct gpu *g, const void *host, size_t bytes);

// At least `bytes` of scratch, contents undefined, for use by ops queued from now until the next
// call; NULL when there is no memory (the fault is set). It only ever grows.
void *gpu_scratch(struct gpu *g, size_t bytes);

// Waits for the stream and reports the fault, if any, as one sentence.
int cuda_status(struct exec *x, struct err *e);

// A matrix [k -> m] in device form (linear.h): tiles, then the rows' exponents, in one allocation.
struct weight {
    int64_t k, m;
    int form; // enum weight_form
    int64_t bytes;
    struct matrix_view view;
};

// Rows for linear layers: x[i][0..k) * 2^exponent as fp16, zeros from k to stride. Ops that make an
// act out of independent pieces write `wide` first and finish rows by cuda_act_finish.
struct act {
    int64_t rows, cap_k; // room
    int64_t k, stride;   // shape of the present contents; stride is k rounded up to 64
    void *x;             // __half [rows][stride]
    float *unscale;      // [rows] 2^-exponent
    float *wide;         // [rows][stride] f32
};

#ifdef __cplusplus
}
#endif

#endif
