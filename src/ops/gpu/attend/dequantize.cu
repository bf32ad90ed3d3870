// SPDX-License-Identifier: Apache-2.0
// Keys and values of a layer as halves, for prompts: an item of a whole plan reads all keys that
// its rows see, and a prompt has many items, so that codes would become halves many times. Here
// they become halves once, in scratch memory, by the functions with which the kernels would do it,
// so that these read them like stored F16 and give the same bits.
//
// A text's chunk becomes a page: keys [kv head][slot][D], then values. Tables say where it is, in
// place of those of the plan.
#include "base/num.h"
#include "ops/gpu/attend/tile.cuh"

enum { THREADS = 128 };

// Where things are in scratch memory.
struct fp16_pages {
    unsigned char *data;
    int64_t page; // bytes
    unsigned char **pages;
    struct kv_slot *store;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Rows of D halves, one after the other.
template <int D> struct flat_rows {
    static constexpr int PITCH = D * 2;
    static __device__ inline int at(int row, int piece) {
        return row * PITCH + piece * 16;
    }
};

// Writes down where key number 64 * chunk + i is now.
static __device__ inline void tell_place(const struct attend_run *u, const struct fp16_pages *to,
                                         const struct attend_text *x, int chunk,
                                         unsigned char *page) {
    const int i = threadIdx.x, at = chunk * ATTEND_CHUNK + i;
    if (at >= x->len && at - x->len < x->n_path)
        to->store[attend_entry(&u->path[x->path + at - x->len])] = {page, i};
    else if (i == 0 && at < x->len)
        to->pages[x->pages + chunk] = page;
}

// A chunk's rows of D halves at `to`; all threads.
template <int D>
static __device__ inline void make_rows(const struct attend_run *u, const struct attend_keys *keys,
                                        bool value, int kv, bool whole, unsigned char *to) {
    enum { PIECES = D / 8, STEP = THREADS / PIECES };
    const struct kv_plane *p = value ? &u->v : &u->k;
    const int codec = value ? u->codec_v : u->codec_k, thread = (int)threadIdx.x;
    const struct stored_rows stored = {u, keys, value, kv};
    if (codec == KV_F16) {
        for (int slot = thread / PIECES; slot < ATTEND_CHUNK; slot += STEP) {
            const struct kv_row from = stored.template at<KV_F16, D>(slot);
            const int at = thread % PIECES;
            *(uint4 *)(to + flat_rows<D>::at(slot, at)) =
                from.codes ? ((const uint4 *)from.codes)[at] : make_uint4(0, 0, 0, 0);
        }
    } else if (codec == KV_BF16) {
        load_codes<KV_BF16, flat_rows<D>, D, THREADS, 2>(stored, to, thread);
    } else if (whole) {
        unsigned char *page = (unsigned char *)keys->page[0];
        const struct copied_rows rows = {page + p->codes + kv * ATTEND_CHUNK * (int)p->code_row,
                                         page + p->scales + kv * ATTEND_CHUNK * (int)p->scale_row};
        load_scaled<flat_rows<D>, D, THREADS, 8>(codec, rows, to, thread);
    } else {
        load_scaled<flat_rows<D>, D, THREADS, 1>(codec, stored, to, thread);
    }
}

// Block (chunk of a text, kv head and whether values, text).
template <int D>
static __global__ void __launch_bounds__(THREADS)
    dequantize(const __grid_constant__ struct attend_run u,
               const __grid_constant__ struct fp16_pages to) {
    __shared__ struct attend_keys keys;
    const struct attend_text x = attend_entry(&u.texts[blockIdx.z]);
    const int chunk = x.chunk + (int)blockIdx.x, kv = (int)blockIdx.y / 2, i = threadIdx.x;
    const bool value = blockIdx.y % 2;
    gpu_await();
    gpu_let_next();
    if (chunk >= x.end)
        return;
    unsigned char *page = to.data + (x.before + (int64_t)blockIdx.x) * to.page;
    if (i < ATTEND_CHUNK) {
        struct attend_item t = {};
        t.pages = x.pages;
        t.len = x.len;
        t.path = x.path;
        t.n_path = x.n_path;
        attend_note(&u, attend_look(&u, &t, chunk, i), &keys, i);
        if (blockIdx.y == 0)
            tell_place(&u, &to, &x, chunk, page);
    }
    __syncthreads();
    const bool here =
        i >= ATTEND_CHUNK || (keys.page[0] && keys.page[i] == keys.page[0] && keys.slot[i] == i);
    const bool whole = __syncthreads_and(here);
    make_rows<D>(&u, &keys, value, kv, whole,
                 page + (value * u.n_kv + kv) * (int64_t)(ATTEND_CHUNK * D * 2));
}
#else
template <int D>
static __global__ void dequantize(const __grid_constant__ struct attend_run u,
                                  const __grid_constant__ struct fp16_pages to) {
    (void)u, (void)to;
    gpu_await();
}
#endif

// Bytes of tables for that many pages of sequences and rows.
static size_t table_bytes(int64_t pages, int64_t rows) {
    return (size_t)round_up(pages, 2) * sizeof(unsigned char *) +
           (size_t)rows * sizeof(struct kv_slot);
}

extern "C" size_t attend_dequantize_bytes(const struct exec_limits *l) {
    const int64_t pages = ceil_div(l->context, KV_PAGE) + 2 * l->seqs;
    return l->fp16_kv ? (size_t)l->fp16_kv + table_bytes(pages, l->rows) : 0;
}

extern "C" void attend_dequantize(struct gpu *g, struct attend_run *u,
                                  const struct attend_plan *p) {
    const bool scales = u->k.scale_row || u->v.scale_row;
    const int64_t half = (int64_t)u->n_kv * ATTEND_CHUNK * u->dk * 2;
    const size_t before = attend_long_bytes(u->dk);
    const size_t data = (size_t)(p->text_chunks * 2 * half);
    const size_t bytes = before + data + table_bytes(p->n_pages, p->end);
    if (!scales || bytes > gpu_scratch_there(g))
        return;
    unsigned char *at = (unsigned char *)gpu_scratch(g, bytes);
    if (!at)
        return;
    struct fp16_pages to = {at + before, 2 * half, (unsigned char **)(at + before + data), NULL};
    to.store = (struct kv_slot *)(to.pages + round_up(p->n_pages, 2));
    const dim3 grid((unsigned)p->longest_text, (unsigned)(2 * u->n_kv), (unsigned)p->n_texts);
    const struct gpu_said says = {g, "attend", attend_says(u)};
    if (u->dk == 64)
        gpu_launch_saying(says, dequantize<64>, grid, THREADS, 0, *u, to);
    else if (u->dk == 128)
        gpu_launch_saying(says, dequantize<128>, grid, THREADS, 0, *u, to);
    else
        gpu_launch_saying(says, dequantize<256>, grid, THREADS, 0, *u, to);
    u->pages = to.pages;
    u->store = to.store;
    u->some_page = to.data;
    u->codec_k = u->codec_v = KV_F16;
    u->k = u->v = {};
    u->k.code_row = u->v.code_row = u->dk * 2;
    u->v.codes = half;
    u->layer = 0;
    u->ahead = false;
}
