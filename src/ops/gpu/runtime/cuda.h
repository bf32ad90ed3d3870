// SPDX-License-Identifier: Apache-2.0
// What the files of the CUDA backend share: the exec, weights and activations in device form, and
// the ops that the table in table.c lists. Every op only queues work on one stream; a failed
// launch or copy is kept in `fault` and reported at the next point that waits (exec_status).
//
// One numeric form for all linear layers (rule E1): weights become fp16 operands, times a power of
// two per row that keeps them in range; activations are fp16, times a power of two per row; the
// products are summed in f32 in one K order by matrix instructions.
#ifndef COPPICE_OPS_GPU_RUNTIME_CUDA_H
#define COPPICE_OPS_GPU_RUNTIME_CUDA_H

#include "base/memory/slabs.h"
#include "ops/exec.h"
#include "ops/gpu/linear/operands.h"
#include "ops/gpu/runtime/gpu.h"
#include "ops/gpu/runtime/gpu_map.h"

#ifdef __cplusplus
extern "C" {
#endif

// Small host arrays on their way to the device: a pinned buffer and its mirror on the device. The
// same bytes staged again in one turn are found and not sent again. A turn ends when a new op finds
// less than STAGE_OP left: the buffer is then used from its beginning again.
struct gpu_stage {
    unsigned char *host, *device; // [STAGE_BYTES]
    size_t used;
    struct stage_entry {
        uint64_t hash;
        size_t offset, bytes;
    } entries[512]; // the newest
    int n_entries;  // of this turn
    uint64_t turn;  // places are valid as long as it stays the same
};
enum { STAGE_BYTES = 32 << 20, STAGE_OP = 16 << 20 };

// Few words that launches leave for the host in its own memory, after the stage's: a wait for the
// stream sees them, where a copy down would take as long as the wait itself.
enum { ANSWER_WORDS = 8192, ANSWER_BYTES = ANSWER_WORDS * (int)sizeof(int32_t) };

// Two pinned pieces, and their places on the device, that weights stream through while they load.
struct gpu_loader {
    unsigned char *host[2], *device[2]; // [bytes]
    size_t bytes;
    gpu_event sent[2]; // the piece may be filled again
};

// Memory that ops work with in the place of something else: while it is open it comes from memory
// that is held already, in the order that it is requested, and without being cleared (moe/lend.c).
struct gpu_suballoc {
    unsigned char *at, *end;
    bool open, failed;
    size_t wide; // f32 rows of the largest act so far; these acts have none of their own yet
    // Scratch of ops for as long as memory is lent for passes of more rows, in the place of the
    // usual one if it is more.
    void *scratch;
    size_t scratch_bytes;
};

struct gpu {
    struct exec base; // first
    int device, sm;   // compute capability as 90 for 9.0
    int processors;   // multiprocessors
    char name[64];    // of the GPU
    enum cuda_path path;
    bool clusters; // the device and the machine code in use have clusters of blocks
    bool overlaps; // launches may begin early: the machine code in use waits in gpu_await
    struct launch_order order;
    gpu_event rows_sent;         // NULL until used: rows that the host waits for (host_rows.cu)
    struct expert_store *stores; // of experts (moe/store.h), the newest first
    void *map_maker;             // see gpu_maps
    gpu_stream stream;
    gpu_error fault;         // the first failure since creation
    const char *fault_where; // the call that failed
    struct slabs memory;     // empty slabs are kept until memory is short or exec_trim
    struct gpu_stage stage;
    gpu_event marks[EXEC_MARKS]; // NULL until used
    struct gpu_loader loader;
    int shared;        // bytes of shared memory that a block may have
    unsigned *tickets; // [n_tickets] zeros between launches: parts that have arrived
    int64_t n_tickets;
    unsigned *row_state; // [row_state_rows][2] zeros between launches: of rows that blocks share
    int64_t row_state_rows;
    const void *allowed[512]; // kernels that may use their shared memory already, by hash; or NULL
    void (*flush)(struct gpu *g, bool held); // see gpu_flush
    struct linear_deferred *deferred_sums;   // of parts that are not added up yet,
    bool sums_deferred;                      // if so
    struct linear_left *held_sums;    // of one job, which a launch after the next ones takes,
    bool sums_held;                   // if so (linear_hold)
    struct moe_sum *deferred_combine; // of a layer of experts (ops/gpu/moe/sum.h), likewise,
    bool combine_deferred;            // if so
    unsigned long long *route_words;  // logits on their way (ops/gpu/moe/router.cu)
    struct act *deferred_act;         // its rows are still f32 in `wide` (act_defer),
    int64_t deferred_rows;            // that many of them,
    bool deferred_plain;              // whose peaks are not kept (act_defer_plain)
    unsigned long long *peaks;        // [PEAKS] largest magnitudes of such rows (act.cuh)
    uint32_t epoch;                   // of the newest peaks
    bool peaked;                      // a linear_few_start of this op has left peaks
    void *scratch;                    // what exists within one op only
    size_t scratch_bytes;
    struct gpu_suballoc suballoc;
    struct attend_cache *plans; // plans of attention (ops/gpu/attend/cache.c)
    struct act *acts;           // all of them; they share `wide`
    float *wide;
    size_t wide_bytes;
    int64_t fail_alloc, fail_queue; // the n-th from now (queue: launch, copy) fails; 0: none does
};

static inline struct gpu *gpu_of(struct exec *x) {
    return (struct gpu *)x;
}

// The exec's GPU part at the begin of whatever callers can reach; makes its device the thread's.
struct gpu *gpu_enter(struct exec *x);

// What makes maps for the copy engine (gpu_map.h); NULL where nothing does.
static inline void *gpu_maps(struct gpu *g) {
    g->map_maker = g->map_maker ? g->map_maker : gpu_map_maker();
    return g->map_maker;
}

// Where the answers are: pinned, and at the same address for the device; one launch's until it has
// been waited for.
static inline int32_t *gpu_answers(const struct gpu *g) {
    return (int32_t *)(void *)(g->stage.host + STAGE_BYTES);
}

// Whether the next launch may read such kinds of memory early, if no op has deferred anything.
static inline bool gpu_may_read(const struct gpu *g, unsigned kinds) {
    const struct launch_says s = {kinds, 0, false, NULL, false};
    return launch_order_may(&g->order, &s);
}

static inline bool gpu_falls(int64_t *left) {
    return *left > 0 && --*left == 0;
}

// Keeps the first failure; where: outlives the exec. Returns code == GPU_OK.
bool gpu_check(struct gpu *g, gpu_error code, const char *where);

// Device memory counted against the limit, zeroed by the stream and aligned to 512 bytes; NULL when
// there is none. What is queued on the stream may still use memory that is released. gpu_alloc: of
// the arena of what ops work with.
void *gpu_alloc_in(struct gpu *g, enum exec_arena arena, size_t bytes);
void *gpu_alloc(struct gpu *g, size_t bytes);
void gpu_release(struct gpu *g, void *p);
void gpu_memory_init(struct gpu *g); // g->memory, whose limit and separate are set
void gpu_memory_fini(struct gpu *g); // gives everything back to the device

// Opens g->suballoc on a piece of device memory. End: gives the acts that were made in between
// their f32 rows, out of that piece or, with own, those that all acts share; false: it was too
// small.
void gpu_suballoc_open(struct gpu *g, unsigned char *at, int64_t bytes);
bool gpu_suballoc_end(struct gpu *g, bool own);

// The plain memory ops (ops.h).
void gpu_upload(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_download(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_copy(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_clear(struct gpu *g, void *dst, size_t bytes);

// Device address of a copy of host bytes, 16-byte aligned, valid for launches queued in this turn
// of the stage, that is at least until this op ends; NULL after a fault. An op may stage STAGE_OP
// bytes.
const void *gpu_stage(struct gpu *g, const void *host, size_t bytes);
// Begins a new turn unless `bytes` are left; no staged place may be needed any more.
void gpu_stage_reserve(struct gpu *g, size_t bytes);

// At least `bytes` of scratch, contents undefined, for use by ops queued from now until the next
// call; NULL when there is no memory (the fault is set). It only ever grows, and within the limits
// of a model that is open it does not (reserve.c).
void *gpu_scratch(struct gpu *g, size_t bytes);
bool gpu_scratch_reserve(struct gpu *g, size_t bytes); // now; false: no memory, and no fault
// Bytes that gpu_scratch gives without taking memory.
static inline size_t gpu_scratch_there(const struct gpu *g) {
    const size_t lent = g->suballoc.scratch_bytes;
    return lent > g->scratch_bytes ? lent : g->scratch_bytes;
}

// Queues what ops have deferred: the end of linear layers (ops/gpu/linear/finish.cu) and of an act.
// Whatever reads or writes device memory comes through here first: gpu_queue, gpu_scratch, copies,
// waits.
void gpu_flush(struct gpu *g);
void gpu_flush_deferred(struct gpu *g); // but for sums that are held (linear_hold)

// Runs one small kernel and waits: whether this program has kernels for the GPU. *code: the
// architecture that they were compiled for, as 900 for 9.0.
gpu_error gpu_probe(struct gpu *g, int *code);

#ifdef __cplusplus
}
#endif

#endif
