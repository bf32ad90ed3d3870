// SPDX-License-Identifier: Apache-2.0
// How blocks of long.cu get keys and values: a warpgroup of each finds the keys of a chunk and
// fills a ring of stages with halves, by the copy engine where F16 rows lie side by side in a page,
// else by copies of all its threads, or from codes. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_LONG_BRING_CUH
#define COPPICE_OPS_GPU_ATTEND_LONG_BRING_CUH

#include "ops/gpu/attend/block.cuh"
#include "ops/gpu/matrix/bulk_copy.cuh"
#include "ops/gpu/runtime/gpu_map.h"

enum { BRINGERS = 128, MAKERS = 256 };                 // threads
enum { MOST_BLOCKS = 256, FOLDED = LONG_PAIRS * 256 }; // with places for folded values; of a block

// How the copy engine finds a chunk's keys or values: as ATTEND_CHUNK rows of D halves, somewhere
// among MAP_ROWS rows from `low` on. low: NULL if it cannot.
struct long_map {
    gpu_tile_map tiles;
    const unsigned char *low;
};
enum { MAP_ROWS = 1 << 30, MAP_WIDE = 2 }; // of a row's length: places need not be whole rows

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Keys of a stage. whole: they are the chunk's 64 positions, side by side in one page. mapped: the
// copy engine finds them, too.
struct long_keys {
    struct attend_keys keys;
    int32_t whole, mapped;
};

// A block's pairs.
struct long_state {
    float scale[LONG_PAIRS];   // takes scores to units of log 2
    int32_t place[LONG_PAIRS]; // row * heads + head
    int32_t first[LONG_PAIRS], last[LONG_PAIRS], split[LONG_PAIRS];
};

// SCALED: K or V has a codec with scales.
template <int D_, bool SCALED_> struct long_form {
    static constexpr bool SCALED = SCALED_;
    static constexpr int D = D_, T = LONG_TILES, PANELS = D / 128;
    static constexpr int WARPS = 8;                 // that have pairs; four more bring
    static constexpr int STAGES = D == 128 ? 4 : 2; // of keys, and of values
    // Registers of threads that bring, and of the others: together as many as at the launch.
    static constexpr int BRING = SCALED ? 56 : 40, MAKE = SCALED ? 224 : 232;
    static constexpr int TILE = ATTEND_CHUNK * D * 2;
    static constexpr int KEPT = D == 128 ? 0 : 7; // fours of a lane's folded values in the block
    static constexpr int Q = 0, K = LONG_PAIRS * D * 2, V = K + STAGES * TILE;
    static constexpr int FOURS = V + STAGES * TILE;
    static constexpr int STATE = FOURS + KEPT * MAKERS * 16;
    static constexpr int KEYS = STATE + (int)sizeof(struct long_state);
    static constexpr int BARS = (KEYS + STAGES * (int)sizeof(struct long_keys) + 7) / 8 * 8;
    static constexpr int BYTES = BARS + 4 * STAGES * 8; // full K, full V, empty K, empty V
    static_assert(BYTES <= 227 * 1024, "a block's shared memory on sm_90");

    typedef cut_rows<LONG_PAIRS> queries;
    typedef cut_rows<ATTEND_CHUNK> keys;
    static __device__ inline int slot(int pair) {
        return pair;
    }
};

// Item number i of the launch: those of the longest rows first, heads side by side.
static __device__ __forceinline__ struct work long_work(const struct attend_run *u, int items,
                                                        int i, unsigned char *memory) {
    const int kv = i % u->n_kv;
    return {attend_entry(&u->items[items - 1 - i / u->n_kv]), kv, memory};
}

// A key that is looked up over two chunks, so that nothing waits for a table: first its row, or its
// page if it is committed, then where the row is stored.
struct long_look {
    struct attend_found f;
    int32_t row;
    bool path; // not committed
};

static __device__ __forceinline__ struct long_look
look_first(const struct attend_run *u, const struct attend_item *t, int chunk, int i) {
    const int at = chunk * ATTEND_CHUNK + i;
    struct long_look l = {{NULL, i, at}, 0, false};
    if (chunk >= t->end || i >= ATTEND_CHUNK)
        return l;
    if (at < t->len) {
        l.f.page = attend_entry(&u->pages[t->pages + chunk]);
    } else if (at - t->len < t->n_path) {
        l.path = true;
        l.row = attend_entry(&u->path[t->path + at - t->len]);
    }
    return l;
}

static __device__ __forceinline__ struct attend_found look_then(const struct attend_run *u,
                                                                const struct long_look &l) {
    struct attend_found f = l.f;
    if (l.path) {
        const struct kv_slot slot = attend_entry(&u->store[l.row]);
        f.page = slot.page;
        f.slot = slot.slot;
        f.pos = attend_entry(&u->rows[l.row].pos);
    }
    return f;
}

// Notes the keys of a stage; all threads that bring.
template <class F>
static __device__ __forceinline__ void long_note(const struct attend_run *u, struct attend_found f,
                                                 struct long_keys *k, const unsigned char *low,
                                                 int chunk, int i) {
    if (i < ATTEND_CHUNK)
        attend_note(u, f, &k->keys, i);
    lanes_meet<BRINGERS>(2);
    const unsigned char *page = k->keys.page[0];
    const bool here = i >= ATTEND_CHUNK || (page && k->keys.page[i] == page && f.slot == i &&
                                            f.pos == chunk * ATTEND_CHUNK + i);
    const bool whole = lanes_all<2, BRINGERS>(here);
    if (i == 0) {
        const int64_t at = page - low;
        k->whole = whole;
        k->mapped = whole && low && at >= 0 && at < (int64_t)(MAP_ROWS - 1) * F::D * 2;
    }
    lanes_meet<BRINGERS>(2);
}

// The keys or values of a stage that the copy engine does not find on their way to `tile`.
template <class F>
static __device__ __forceinline__ void long_copy(const struct attend_run *u,
                                                 const struct long_keys *k, bool value, int kv,
                                                 unsigned tile, int i) {
    constexpr int PIECES = F::D / 8, STEP = BRINGERS / PIECES;
    const int at = i % PIECES;
#pragma unroll 1
    for (int slot = i / PIECES; slot < ATTEND_CHUNK; slot += STEP) {
        struct kv_row from = attend_key(u, &k->keys, slot, value, kv);
        copy_or_zero(tile + (unsigned)F::keys::at(slot, at),
                     from.codes ? from.codes + at * 16 : NULL);
    }
}

// Codes of a stage as halves at `tile`: of rows that lie side by side many at once.
template <class F>
static __device__ __forceinline__ void long_scaled(const struct attend_run *u,
                                                   const struct long_keys *k, bool value, int kv,
                                                   unsigned char *tile, int i) {
    const struct kv_plane *p = value ? &u->v : &u->k;
    const int codec = value ? u->codec_v : u->codec_k;
    unsigned char *page = (unsigned char *)k->keys.page[0] + p->codes;
    if (k->whole) {
        const struct copied_rows rows = {page + kv * ATTEND_CHUNK * (int)p->code_row,
                                         page + (p->scales - p->codes) +
                                             kv * ATTEND_CHUNK * (int)p->scale_row};
        load_scaled<typename F::keys, F::D, BRINGERS, 8>(codec, rows, tile, i);
    } else {
        load_scaled<typename F::keys, F::D, BRINGERS, 1>(codec, stored_rows{u, &k->keys, value, kv},
                                                         tile, i);
    }
}

// The same by the copy engine, from `from` on; one thread.
template <class F>
static __device__ __forceinline__ void
long_fetch(const struct long_map *map, const unsigned char *from, unsigned tile, unsigned bar) {
    const int64_t at = from - map->low;
    const int row = (int)(at / (F::D * 2)), x = (int)(at % (F::D * 2)) / 2;
    tile_copy(tile, &map->tiles, x, row, 0, bar);
}

// Barriers of a stage: of its keys or values, that they are there or that their place is free.
template <class F> static __device__ __forceinline__ unsigned full_at(unsigned base, int tile) {
    return base + F::BARS + (unsigned)(tile % 2 * F::STAGES + tile / 2 % F::STAGES) * 8;
}
template <class F> static __device__ __forceinline__ unsigned empty_at(unsigned base, int tile) {
    return full_at<F>(base, tile) + 2 * F::STAGES * 8;
}

template <class F> static __device__ __forceinline__ void long_free(unsigned base, int tile) {
    barrier_wait(empty_at<F>(base, tile), (unsigned)(tile / 2 / F::STAGES & 1) ^ 1);
}

// A tile on its way to its place, which is free. All threads that bring arrive at its barrier.
template <class F>
static __device__ __forceinline__ void
long_start(const struct attend_run *u, const struct long_map *map, const struct long_keys *k,
           int kv, unsigned char *memory, int tile, int i) {
    const bool value = tile % 2;
    const int at = (value ? F::V : F::K) + tile / 2 % F::STAGES * F::TILE;
    const unsigned base = shared_address(memory), to = base + (unsigned)at;
    const unsigned full = full_at<F>(base, tile);
    if (F::SCALED && has_codes(u, value)) {
        long_scaled<F>(u, k, value, kv, memory + at, i);
        show_shared();
    } else if (!k->mapped) {
        long_copy<F>(u, k, value, kv, to, i);
        copies_close();
        copies_wait<0>();
        show_shared();
    } else if (i == 0) {
        barrier_expect(full, F::TILE);
        long_fetch<F>(
            map, k->keys.page[0] + (value ? u->v.codes : u->k.codes) + kv * ATTEND_CHUNK * F::D * 2,
            to, full);
        return;
    }
    barrier_arrive(full);
}

// Brings keys (even tiles) and values (odd ones) of all items of this block.
template <class F>
static __device__ __forceinline__ void long_bring(const struct attend_run *u,
                                                  const struct long_map *map, int items,
                                                  unsigned char *memory) {
    const int i = (int)threadIdx.x - MAKERS;
    const unsigned base = shared_address(memory);
    int tile = 0;
    for (int at = blockIdx.x; at < items * u->n_kv; at += (int)gridDim.x) {
        const struct work b = long_work(u, items, at, memory);
        struct attend_found now = look_then(u, look_first(u, &b.t, b.t.chunk, i));
        struct long_look next = look_first(u, &b.t, b.t.chunk + 1, i);
#pragma unroll 1
        for (int chunk = b.t.chunk; chunk < b.t.end; chunk++, tile += 2) {
            struct long_keys *k = (struct long_keys *)(memory + F::KEYS) + tile / 2 % F::STAGES;
            long_free<F>(base, tile);
            long_note<F>(u, now, k, map->low, chunk, i);
            now = look_then(u, next);
            next = look_first(u, &b.t, chunk + 2, i);
            long_start<F>(u, map, k, b.kv, memory, tile, i);
            long_free<F>(base, tile + 1);
            long_start<F>(u, map, k, b.kv, memory, tile + 1, i);
        }
    }
}

#endif

#endif
