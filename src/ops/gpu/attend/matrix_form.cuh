// SPDX-License-Identifier: Apache-2.0
// The forms of matrix.cuh for heads of 64, 128 and 256 values: what matrix.cu and rotated_matrix.cu
// make instances of. For .cu files only.
#ifndef COPPICE_OPS_GPU_ATTEND_MATRIX_FORM_CUH
#define COPPICE_OPS_GPU_ATTEND_MATRIX_FORM_CUH

#include "ops/gpu/attend/matrix.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The parameters of an instance and its places in shared memory. CHOICE: pairs choose blocks.
template <int D_, int T_, bool WHOLE_, bool CHOICE_ = false, bool ROTATED_ = false>
struct form : plain_places<D_> {
    static constexpr int D = D_, DV = D_, T = T_;
    static constexpr int WARPS = 8, THREADS = WARPS * WARP;
    static constexpr int GROUPS = WARPS / 4; // of warps whose scores are for the same tiles
    static constexpr int N = D / 8 / WARPS;  // eights of values that a warp makes
    static constexpr bool WHOLE = WHOLE_, CHOICE = CHOICE_, ROTATED = ROTATED_, SAME = false,
                          OUTSIDE = false, COPIED = ROTATED && T == 1 && D >= 128;
    // Tiles of short work.
    static constexpr int SMALL = WHOLE || CHOICE || T == 1 ? 0 : T == 3 ? 1 : 3;
    static constexpr int BLOCKS = !WHOLE && T * D <= 768 ? 2 : 1; // of a multiprocessor
    static constexpr int STAGES = WHOLE || T <= 3 ? 1 : 2;
    static constexpr int SAVED = WHOLE ? (T - LIVE) * N * 4 : 0; // folded values of a thread
    static constexpr int TILE = ATTEND_CHUNK * D * 2;
    static constexpr int V = STAGES * TILE, Q = 2 * V, W = Q + T * 16 * D * 2;
    static constexpr int CODES = W + T * 16 * ATTEND_CHUNK * 2;
    static constexpr int ALL = CODES + (COPIED ? 2 * CODE_BYTES<D> : 0);
    static constexpr int STATE = ALL + SAVED * THREADS * (int)sizeof(float);
    static constexpr int ANY = STATE + (int)sizeof(struct state<T>);
    static constexpr int BYTES = ANY + (CHOICE ? CHOICE_BYTES : 0);
    static __device__ inline unsigned weights(int) {
        return W;
    }
};

#else

template <int D, int T, bool WHOLE, bool CHOICE = false, bool ROTATED = false> struct form {
    static constexpr int BLOCKS = 1, THREADS = 32, BYTES = 0;
};

#endif

template <class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    attend_launch<F>(g, attend_kernel<F>, u, p);
}

#endif
