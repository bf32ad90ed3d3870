// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions for heads of 64, 128 and 256 values and K and V of at most 16
// bits a value (matrix.cuh).
//
// Queries become fp16 times a power of two of their own; BF16 and Q8_0 keys become the nearest
// fp16 (BF16 exactly, but for the least magnitudes; beyond 65504 they end there). Weights of a
// chunk are fp16, up to 1024; they are summed by a matrix instruction too, over a column of ones. A
// pair's operations do not depend on where it lies, and a hidden key adds zeros, so rule E2 holds
// as attend_plan.h says.
#include "ops/gpu/attend/matrix.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The parameters of an instance and its places in shared memory. CHOICE: pairs choose blocks.
template <int D_, int T_, bool WHOLE_, bool CHOICE_ = false> struct form : plain_places<D_> {
    static constexpr int D = D_, DV = D_, T = T_;
    static constexpr int WARPS = 8, THREADS = WARPS * WARP;
    static constexpr int GROUPS = WARPS / 4; // of warps whose scores are for the same tiles
    static constexpr int N = D / 8 / WARPS;  // eights of values that a warp makes
    static constexpr bool WHOLE = WHOLE_, CHOICE = CHOICE_, SAME = false, OUTSIDE = false;
    // Tiles of short work.
    static constexpr int SMALL = WHOLE || CHOICE || T == 1 ? 0 : T == 3 ? 1 : 3;
    static constexpr int BLOCKS = !WHOLE && T * D <= 768 ? 2 : 1; // of a multiprocessor
    static constexpr int STAGES = WHOLE || T <= 3 ? 1 : 2;
    static constexpr int SAVED = WHOLE ? (T - LIVE) * N * 4 : 0; // folded values of a thread
    static constexpr int TILE = ATTEND_CHUNK * D * 2;
    static constexpr int V = STAGES * TILE, Q = 2 * V, W = Q + T * 16 * D * 2;
    static constexpr int ALL = W + T * 16 * ATTEND_CHUNK * 2;
    static constexpr int STATE = ALL + SAVED * THREADS * (int)sizeof(float);
    static constexpr int ANY = STATE + (int)sizeof(struct state<T>);
    static constexpr int BYTES = ANY + (CHOICE ? CHOICE_BYTES : 0);
    static __device__ inline unsigned weights(int) {
        return W;
    }
};

#else

template <int D, int T, bool WHOLE, bool CHOICE = false> struct form {
    static constexpr int BLOCKS = 1, THREADS = 32, BYTES = 0;
};

#endif

template <class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    attend_launch<F>(g, attend_kernel<F>, u, p);
}

template <int D>
static void launch_matrix(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->chosen && p->whole)
        launch_form<form<D, 6, true, true>>(g, u, p);
    else if (u->chosen)
        launch_form<form<D, 3, false, true>>(g, u, p);
    else if (p->whole)
        launch_form<form<D, 6, true>>(g, u, p);
    else if (p->tiles <= 1)
        launch_form<form<D, 1, false>>(g, u, p);
    else if (p->tiles <= 3)
        launch_form<form<D, 3, false>>(g, u, p);
    else if (p->tiles <= 6)
        launch_form<form<D, 6, false>>(g, u, p);
    else
        launch_form<form<D, 9, false>>(g, u, p);
}

// What pairs that choose take too, where they may be so many.
template <int D> static int bytes_of(int tiles, bool whole) {
    if (whole)
        return form<D, 6, true, true>::BYTES;
    return tiles <= 1   ? form<D, 1, false>::BYTES
           : tiles <= 3 ? form<D, 3, false, true>::BYTES
           : tiles <= 6 ? form<D, 6, false>::BYTES
                        : form<D, 9, false>::BYTES;
}

extern "C" int attend_matrix_bytes(int head_dim, int tiles, bool whole) {
    return head_dim == 64    ? bytes_of<64>(tiles, whole)
           : head_dim == 128 ? bytes_of<128>(tiles, whole)
                             : bytes_of<256>(tiles, whole);
}

extern "C" void attend_matrix(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p) {
    if (u->dk == 64)
        launch_matrix<64>(g, u, p);
    else if (u->dk == 128)
        launch_matrix<128>(g, u, p);
    else
        launch_matrix<256>(g, u, p);
}
