// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit values in shared memory and the matrix instructions that read them, for the
// attention kernels. A tile has rows of D halves whose 16-byte pieces are exchanged by
// piece ^ (row % 8), so that eight rows of one piece lie in different banks; for wgmma its rows are
// cut into columns of 64 halves. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_TILE_CUH
#define COPPICE_OPS_GPU_ATTEND_TILE_CUH

#include "ops/gpu/attend/attend.cuh"
#include "ops/gpu/kv/halves.cuh"
#include "ops/gpu/matrix/async_copy.cuh"
#include "ops/gpu/matrix/ldmatrix.cuh"
#include "ops/gpu/matrix/mma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Where pieces of a tile lie: rows of D halves as they are, or in columns of 64 halves, the ROWS
// rows of a column one after the other. PITCH: from a row to the next; COLUMN: to the next 64
// halves.
template <int D> struct whole_rows {
    static constexpr int PITCH = D * 2, COLUMN = 128;
    static __device__ inline int at(int row, int piece) {
        return row * PITCH + (piece ^ row % 8) * 16;
    }
};
template <int ROWS> struct cut_rows {
    static constexpr int PITCH = 128, COLUMN = ROWS * PITCH;
    static __device__ inline int at(int row, int piece) {
        return (piece / 8 * ROWS + row) * PITCH + (piece % 8 ^ row % 8) * 16;
    }
};

template <int D> static __device__ inline unsigned piece_at(unsigned base, int row, int piece) {
    return base + (unsigned)(row * D * 2 + (piece ^ row % 8) * 16);
}

// 16 bytes; zeros where from is NULL.
static __device__ inline void copy_or_zero(unsigned to, const void *from) {
    copy_piece_if(to, from ? from : "", from);
}

// Bytes of a row of D values.
template <int CODEC, int D> struct row_bytes;
#define KV_ROW_BYTES(id, name, type, block, code, scale, rotates)                                  \
    template <int D> struct row_bytes<id, D> {                                                     \
        enum { CODES = D / block * code, SCALES = D / block * scale };                             \
    };
KV_CODECS(KV_ROW_BYTES)
#undef KV_ROW_BYTES

// Rows of a chunk where they are stored. SOME: there may be slots without one.
struct stored_rows {
    static constexpr bool SOME = true;
    const struct attend_run *u;
    const struct attend_keys *keys;
    bool value;
    int kv;
    template <int CODEC, int D> __device__ __forceinline__ struct kv_row at(int slot) const {
        return attend_key(u, keys, slot, value, kv);
    }
};

// Rows that follow each other: of a page, or codes of a chunk in shared memory, as copy_codes
// brings them, zeros where there is no key.
struct copied_rows {
    static constexpr bool SOME = false;
    unsigned char *codes, *scales;
    template <int CODEC, int D> __device__ __forceinline__ struct kv_row at(int slot) const {
        typedef row_bytes<CODEC, D> bytes;
        return {codes + slot * bytes::CODES, scales + slot * bytes::SCALES};
    }
};

// Codecs with scales have at most 8.5 bits a value, and rows of eights of bytes from 128 values on.
template <int D> static constexpr int CODE_BYTES = ATTEND_CHUNK * (D + D / 16);

static __device__ inline bool has_codes(const struct attend_run *u, bool value) {
    return (value ? u->v : u->k).scale_row > 0;
}

static __device__ inline struct copied_rows copied_at(const struct attend_run *u, bool value,
                                                      unsigned char *place) {
    return {place, place + ATTEND_CHUNK * (value ? u->v : u->k).code_row};
}

// Asynchronous copies of a chunk's codes and scales to CODE_BYTES at `place`; of a codec that has
// scales. The caller closes them.
template <int D, int THREADS>
static __device__ inline void copy_codes(const struct attend_run *u, const struct attend_item *t,
                                         const struct attend_keys *keys, int chunk, bool value,
                                         int kv, unsigned char *place) {
    const struct kv_plane *p = value ? &u->v : &u->k;
    const struct copied_rows to = copied_at(u, value, place);
    const int code_row = (int)p->code_row, scale_row = (int)p->scale_row;
    const unsigned codes = shared_address(to.codes), scales = shared_address(to.scales);
    if ((chunk + 1) * ATTEND_CHUNK <= t->len && keys->page[0]) {
        const unsigned char *from = keys->page[0] + p->codes + kv * ATTEND_CHUNK * code_row;
#pragma unroll 4
        for (int i = threadIdx.x; i < ATTEND_CHUNK / 16 * code_row; i += THREADS)
            copy_piece(codes + (unsigned)i * 16, from + i * 16);
        from = keys->page[0] + p->scales + kv * ATTEND_CHUNK * scale_row;
        for (int i = threadIdx.x; i < ATTEND_CHUNK / 16 * scale_row; i += THREADS)
            copy_piece(scales + (unsigned)i * 16, from + i * 16);
        return;
    }
    for (int slot = threadIdx.x / 8; slot < ATTEND_CHUNK; slot += THREADS / 8) {
        const struct kv_row from = attend_key(u, keys, slot, value, kv);
        const void *none = u->items; // may be read
        for (int i = threadIdx.x % 8 * 8; i < code_row; i += 64)
            copy_eight_if(codes + (unsigned)(slot * code_row + i),
                          from.codes ? from.codes + i : none, from.codes);
        for (int i = threadIdx.x % 8 * 8; i < scale_row; i += 64)
            copy_eight_if(scales + (unsigned)(slot * scale_row + i),
                          from.codes ? from.scales + i : none, from.codes);
    }
}

// Two pieces, number `at` of their rows, of BATCH rows that are STEP apart, a multiple of eight.
// Reads stand before what they become, since the compiler cannot know that tiles are elsewhere.
template <int CODEC, class PLACES, int D, int STEP, int BATCH, class ROWS>
static __device__ __forceinline__ void load_pieces(const ROWS &rows, unsigned char *tile, int slot,
                                                   int at) {
    typedef kv_halves<CODEC> halves;
    static_assert(STEP % 8 == 0, "rows of a batch exchange pieces alike");
    const int first = halves::first(at);
    unsigned char *one = tile + PLACES::at(slot, first);
    unsigned char *other = tile + PLACES::at(slot, first + halves::APART);
    halves x[BATCH] = {};
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const struct kv_row from = rows.template at<CODEC, D>(slot + i * STEP);
        if (!ROWS::SOME || from.codes)
            x[i].read(from, at);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        uint4 two[2];
        x[i].make(two);
        *(uint4 *)(one + i * STEP * PLACES::PITCH) = two[0];
        *(uint4 *)(other + i * STEP * PLACES::PITCH) = two[1];
    }
}

// Rows of a chunk whose codec is not F16, by THREADS threads of which this is number `thread`: each
// has two pieces of up to MOST rows at once, and with D values that are no power of two the same
// place of each LANES * 16 values.
template <int CODEC, class PLACES, int D, int THREADS, int MOST, class ROWS>
static __device__ inline void load_codes(const ROWS &rows, unsigned char *tile, int thread) {
    constexpr int TWOS = D / 16, LANES = TWOS & -TWOS, STEP = THREADS / LANES;
    constexpr int AT_ONCE = kv_halves<CODEC>::AT_ONCE, MAY = AT_ONCE < MOST ? AT_ONCE : MOST;
    constexpr int BATCH = STEP * MAY > ATTEND_CHUNK ? ATTEND_CHUNK / STEP : MAY;
    static_assert(ATTEND_CHUNK % (STEP * BATCH) == 0, "a chunk is whole batches");
#pragma unroll 1
    for (int slot = thread / LANES; slot < ATTEND_CHUNK; slot += STEP * BATCH)
#pragma unroll(BATCH == 1 ? 3 : 1)
        for (int at = thread % LANES; at < TWOS; at += LANES)
            load_pieces<CODEC, PLACES, D, STEP, BATCH>(rows, tile, slot, at);
}

// The same of any codec but F16: for the kernels' instances where K or V has one that is stored
// rotated. Those have instances of their own because all this code takes registers.
template <class PLACES, int D, int THREADS>
static __device__ inline void load_coded(int codec, const struct stored_rows &rows,
                                         unsigned char *tile) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        load_codes<id, PLACES, D, THREADS, 2>(rows, tile, threadIdx.x);                            \
        break;
        KV_HALVES_CODECS(KV_CASE)
#undef KV_CASE
    }
}

// The same of codecs that have scales.
template <class PLACES, int D, int THREADS, int BATCH, class ROWS>
static __device__ inline void load_scaled(int codec, const ROWS &rows, unsigned char *tile,
                                          int thread) {
    switch (codec) {
#define KV_CASE(id)                                                                                \
    case id:                                                                                       \
        load_codes<id, PLACES, D, THREADS, BATCH>(rows, tile, thread);                             \
        break;
        KV_CASE(KV_Q8_0)
        CUDA_KV_ROTATED(KV_CASE)
#undef KV_CASE
    }
}

// Where a chunk's halves go, and where its codes are that have been copied; NULL: none have.
struct chunk_place {
    unsigned char *tile, *codes;
};

// The keys or values of a chunk, by all THREADS threads, in places of PLACES; F16 by asynchronous
// copies, which the caller closes. Committed keys lie one after the other. ROTATED: K or V has a
// codec that is stored rotated. COPIED: codes of those that have scales are at to.codes.
template <bool ROTATED, bool COPIED, class PLACES, int D, int THREADS>
static __device__ inline void load_chunk(const struct attend_run *u, const struct attend_item *t,
                                         const struct attend_keys *keys, int chunk, bool value,
                                         int kv, const struct chunk_place &to) {
    unsigned char *const tile = to.tile;
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    int codec = value ? u->codec_v : u->codec_k;
    unsigned base = shared_address(tile);
    int slot = threadIdx.x / PIECES, at = threadIdx.x % PIECES;
    static_assert(STEP % 8 == 0, "a thread's pieces all lie in the same column");
    if (codec == KV_F16 && (chunk + 1) * ATTEND_CHUNK <= t->len && keys->page[0]) {
        const unsigned char *from = keys->page[0] + (value ? u->v.codes : u->k.codes) +
                                    (kv * ATTEND_CHUNK + slot) * D * 2 + at * 16;
        unsigned place = base + (unsigned)PLACES::at(slot, at);
#pragma unroll
        for (int i = 0; i < ATTEND_CHUNK / STEP; i++)
            copy_piece(place + (unsigned)(i * STEP * PLACES::PITCH), from + i * STEP * D * 2);
        return;
    }
    const struct stored_rows rows = {u, keys, value, kv};
    if (COPIED && has_codes(u, value)) {
        load_scaled<PLACES, D, THREADS, 4>(codec, copied_at(u, value, to.codes), tile, threadIdx.x);
        return;
    }
    if (COPIED && codec == KV_BF16) {
        load_codes<KV_BF16, PLACES, D, THREADS, 2>(rows, tile, threadIdx.x);
        return;
    }
    if (ROTATED && !COPIED && codec != KV_F16) {
        load_coded<PLACES, D, THREADS>(codec, rows, tile);
        return;
    }
    if (!ROTATED && codec == KV_Q8_0) {
        load_codes<KV_Q8_0, PLACES, D, THREADS, 2>(rows, tile, threadIdx.x);
        return;
    }
    for (; slot < ATTEND_CHUNK; slot += STEP) {
        struct kv_row from = attend_key(u, keys, slot, value, kv);
        if (ROTATED || codec == KV_F16) {
            copy_or_zero(base + (unsigned)PLACES::at(slot, at),
                         from.codes ? from.codes + at * 16 : NULL);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (from.codes)
            kv_load8_as_is(codec, from, at, x);
        *(uint4 *)(tile + PLACES::at(slot, at)) = pack_eight(x);
    }
}

#endif

#endif
