// SPDX-License-Identifier: Apache-2.0
// Attention to latents by the warpgroup instruction of sm_90a (wide.cuh), 64 pairs a block:
// the bits of latent.cu, in less time where there are many pairs.
#include "ops/gpu/attend/latent.cuh"
#include "ops/gpu/attend/wide.cuh"

#if !defined(__CUDA_ARCH__) || defined(ATTEND_WIDE)

template <bool ROTATED_, bool WHOLE_, bool CHOICE_ = false>
struct latent_wide : latent_places<LATENT_TILES * 16, 2, ROTATED_> {
    typedef latent_places<LATENT_TILES * 16, 2, ROTATED_> P;
    static constexpr int N = LATENT_TILES * 16, T = LATENT_TILES, H = N / 2;
    static constexpr int M = P::DV / 128, OWN = 1;
    static constexpr bool WHOLE = WHOLE_, CHOICE = CHOICE_;
    static constexpr int FOLDED = P::STATE + (int)sizeof(struct state<T>);
    static constexpr int ANY = FOLDED + (WHOLE ? (int)sizeof(struct wide_folded<N>) : 0);
    static constexpr int BYTES = ANY + (CHOICE ? CHOICE_BYTES : 0);
    static_assert(BYTES <= 227 * 1024, "a block's shared memory on sm_90");

    // A thread's columns 8 i + 2 q and + 1 follow each other.
    static __device__ inline int slot(int pair) {
        return pair / 2 % 4 * (N / 4) + pair / 8 * 2 + pair % 2;
    }
};

#else

template <bool ROTATED, bool WHOLE, bool CHOICE = false> struct latent_wide {
    static constexpr int THREADS = 32, BYTES = 0;
};

#endif

template <class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    attend_launch<F>(g, attend_wide_kernel<F>, u, p);
}

template <bool ROTATED>
static void launch_wide(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->chosen) // only of whole items
        launch_form<latent_wide<ROTATED, true, true>>(g, u, p);
    else if (p->whole)
        launch_form<latent_wide<ROTATED, true>>(g, u, p);
    else
        launch_form<latent_wide<ROTATED, false>>(g, u, p);
}

extern "C" void attend_latent_wide(struct gpu *g, const struct attend_run *u,
                                   const struct attend_plan *p) {
    if (attend_rotated(u))
        launch_wide<true>(g, u, p);
    else
        launch_wide<false>(g, u, p);
}
