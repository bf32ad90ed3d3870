// SPDX-License-Identifier: Apache-2.0
// The forms of wide.cuh for heads of 128 and 256 values: what wide.cu and rotated_wide.cu make
// instances of. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_WIDE_FORM_CUH
#define COPPICE_OPS_GPU_ATTEND_WIDE_FORM_CUH

#include "ops/gpu/attend/wide.cuh"

#if !defined(__CUDA_ARCH__) || defined(ATTEND_WIDE)

// CHOICE: pairs choose blocks; only with WHOLE.
template <int D_, int N_, bool WHOLE_, bool CHOICE_ = false, bool ROTATED_ = false>
struct wide_form {
    static constexpr int D = D_, DV = D_, N = N_, T = N / 16, H = N / 2;
    static constexpr bool WHOLE = WHOLE_, CHOICE = CHOICE_, ROTATED = ROTATED_, SAME = false,
                          OUTSIDE = false, COPIED = ROTATED && !WHOLE;
    static constexpr int WARPS = 8, THREADS = WARPS * WARP;
    static constexpr int M = D / 128;                   // tiles of 64 values of a warpgroup
    static constexpr int OWN = (T + WARPS - 1) / WARPS; // tiles of pairs whose sums a warp makes
    static constexpr int STAGES = WHOLE || COPIED ? 1 : 2;
    static constexpr int SAVED = WHOLE ? M * N / 2 - WIDE_LIVE : 0; // folded values of a thread
    static constexpr int TILE = ATTEND_CHUNK * D * 2;
    static constexpr int V = STAGES * TILE, Q = 2 * V, W = Q + N * D * 2;
    static constexpr int CODES = W + N * ATTEND_CHUNK * 2;
    static constexpr int ALL = CODES + (COPIED ? 2 * CODE_BYTES<D> : 0);
    static constexpr int STATE = ALL + SAVED * THREADS * (int)sizeof(float);
    static constexpr int FOLDED = STATE + (int)sizeof(struct state<T>);
    static constexpr int ANY = FOLDED + (WHOLE ? (int)sizeof(struct wide_folded<N>) : 0);
    static constexpr int BYTES = ANY + (CHOICE ? CHOICE_BYTES : 0);

    static __device__ inline unsigned weights(int) {
        return W;
    }

    typedef cut_rows<N> queries;
    typedef cut_rows<ATTEND_CHUNK> keys;
    static_assert(BYTES <= 227 * 1024, "a block's shared memory on sm_90");

    // A thread's columns 8 i + 2 q and + 1 follow each other.
    static __device__ inline int slot(int pair) {
        return pair / 2 % 4 * (N / 4) + pair / 8 * 2 + pair % 2;
    }
};

#else

template <int D, int N, bool WHOLE, bool CHOICE = false, bool ROTATED = false> struct wide_form {
    static constexpr int THREADS = 32, BYTES = 0;
};

#endif

template <class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    attend_launch<F>(g, attend_wide_kernel<F>, u, p);
}

#endif
