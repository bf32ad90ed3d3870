// SPDX-License-Identifier: Apache-2.0
// What the files of the CUDA backend share: the exec, weights and activations in device form, and
// the ops that the table in ops_cuda.c lists. Every op only queues work on one stream; a failed
// launch or copy is kept in `fault` and reported at the next point that waits (cuda_status).
//
// One numeric form for all linear layers (rule E1): weights become fp16 operands, times a power of
// two per row that keeps them in range; activations are fp16, times a power of two per row; the
// products are summed in f32 in one K order by matrix instructions.
#ifndef COPPICE_OPS_GPU_RUNTIME_CUDA_H
#define COPPICE_OPS_GPU_RUNTIME_CUDA_H

#include "base/ranges.h"
#include "ops/exec.h"
#include "ops/gpu/linear/linear.h"
#include "ops/gpu/runtime/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// Device memory is taken in slabs and handed out in blocks, since the driver rounds every
// allocation of its own up to megabytes. Empty slabs are kept until memory is short.
struct gpu_slab {
    unsigned char *base;
    struct ranges ranges;
};

struct gpu_block {
    void *p;
    size_t bytes;
    int64_t slab; // index
};

// Small host arrays on their way to the device: a pinned ring and its mirror on the device. The
// same bytes staged again soon, before the ring comes round, are found and not sent again.
struct gpu_stage {
    unsigned char *host, *device; // [STAGE_BYTES]
    size_t used;
    struct stage_entry {
        uint64_t hash;
        size_t offset, bytes;
    } entries[512]; // the newest
    int n_entries;  // since the ring came round
};
enum { STAGE_BYTES = 32 << 20 };

// Two pinned pieces, and their places on the device, that weights stream through while they load.
struct gpu_loader {
    unsigned char *host[2], *device[2]; // [bytes]
    size_t bytes;
    gpu_event sent[2]; // the piece may be filled again
};

// Launches that tell the next one what it may read before gpu_await (past the first-level cache):
// all but what they write, since the ones in front of them have ended by then.
enum gpu_last {
    LAST_OTHER,
    LAST_COMMIT, // writes recurrent state
    LAST_AHEAD,  // lets the next one begin before it waits itself: only weights may be read then
    LAST_GDN,    // writes rows of deltas and outputs of the delta rule only
    LAST_STORE,  // writes rotated queries, and K and V at last_store only
};

struct gpu {
    struct exec base; // first
    int device, sm;   // compute capability as 90 for 9.0
    int processors;   // multiprocessors
    char name[64];    // of the GPU
    enum cuda_path path;
    bool clusters;         // the device and the machine code in use have clusters of blocks
    bool overlaps;         // launches may begin early: the machine code in use waits in gpu_await
    void *map_maker;       // gpu_map_maker, or NULL
    struct vendor *vendor; // its products for prompts (vendor.c); NULL: only ours
    gpu_stream stream;
    gpu_error fault;         // the first failure since creation
    const char *fault_where; // the call that failed
    int64_t limit;           // bytes this exec may hold; 0: no limit of our own
    int64_t used, peak;      // bytes of slabs held now, at most
    bool separate;           // a slab of its own for every block
    struct gpu_slab *slabs;
    int64_t n_slabs, cap_slabs;
    struct gpu_block *blocks;
    int64_t n_blocks, cap_blocks;
    struct gpu_stage stage;
    gpu_event marks[EXEC_MARKS]; // NULL until used
    struct gpu_loader loader;
    int shared;             // bytes of shared memory that a block may have
    enum gpu_last last;     // what the newest launch is
    const void *last_store; // with LAST_STORE: the staged places of its rows
    unsigned *tickets;      // [n_tickets] zeros between launches: parts that have arrived
    int64_t n_tickets;
    unsigned *row_state; // [row_state_rows][2] zeros between launches: of rows that blocks share
    int64_t row_state_rows;
    uint32_t allowed_attend; // attention kernels that may use all their shared memory already
    // Linear kernels that may use all their shared memory already, for many rows and for few: bits.
    uint32_t allowed[WEIGHT_FORMS], allowed_stream[WEIGHT_FORMS];
    uint32_t allowed_few;                  // the same of linear_few.cuh
    void (*flush)(struct gpu *g);          // see gpu_flush
    struct linear_deferred *deferred_sums; // of parts that nobody has added up yet,
    bool sums_deferred;                    // if so
    struct act *deferred_act;              // its rows are still f32 in `wide` (act_defer),
    int64_t deferred_rows;                 // that many of them
    unsigned long long *peaks;             // [PEAK_ROWS] largest magnitudes of such rows (act.cuh)
    uint32_t epoch;                        // of the newest peaks
    bool peaked;                           // a linear_few_start of this op has left peaks
    void *scratch;                         // room for what lives within one op only
    size_t scratch_bytes;
    struct act *acts; // all of them; they share `wide`
    float *wide;
    size_t wide_bytes;
};

static inline struct gpu *gpu_of(struct exec *x) {
    return (struct gpu *)x;
}

// Keeps the first failure; where: a string that outlives the exec. Returns code == GPU_OK.
bool gpu_check(struct gpu *g, gpu_error code, const char *where);

// Device memory counted against the limit, zeroed by the stream and aligned to 512 bytes; NULL when
// there is none. What is queued on the stream may still use memory that is released.
void *gpu_alloc(struct gpu *g, size_t bytes);
void gpu_release(struct gpu *g, void *p);
void gpu_memory_fini(struct gpu *g); // gives everything back to the device

// Device address of a copy of host bytes, 16-byte aligned, valid for ops queued before the stage
// comes round again; NULL after a fault. At most STAGE_BYTES / 4 at once.
const void *gpu_stage(struct gpu *g, const void *host, size_t bytes);

// At least `bytes` of scratch, contents undefined, for use by ops queued from now until the next
// call; NULL when there is no memory (the fault is set). It only ever grows.
void *gpu_scratch(struct gpu *g, size_t bytes);

// Queues what ops have deferred: the end of linear layers (linear_finish.cu) and of an act.
// Whatever reads or writes device memory comes through here first: gpu_queue, gpu_scratch, copies,
// waits.
void gpu_flush(struct gpu *g);

// Waits for the stream and reports the fault, if any, as one sentence. A lack of scratch memory is
// forgotten then, since only what was queued so far is spoilt; other faults stay.
int cuda_status(struct exec *x, struct err *e);

// Time marks (exec.h).
void cuda_mark(struct exec *x, int i);
double cuda_between(struct exec *x, int a, int b);
void cuda_marks_fini(struct gpu *g);

// Runs one small kernel and waits: whether this program has kernels for the GPU. *code: the
// architecture that they were compiled for, as 900 for 9.0.
gpu_error gpu_probe(struct gpu *g, int *code);

// A matrix [k -> m] in device form (linear.h): tiles, then the rows' exponents, in one allocation.
struct weight {
    int64_t k, m;
    int form;            // enum weight_form
    int64_t bytes;       // of data
    unsigned char *data; // owned; view points into it
    struct matrix_view view;
};

// Rows for linear layers: x[i][0..k) * 2^exponent as fp16, zeros from k to stride. Ops that make an
// act out of independent pieces write `wide` first and finish rows by cuda_act_finish; that room is
// one for all acts of an exec, so nothing may be left in it for a later op.
struct act {
    struct act *next;
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
