// SPDX-License-Identifier: Apache-2.0
// Attention to latents (arXiv 2405.04434 section 2.1) by matrix instructions: keys of 576 values
// whose first 512 are the values, and many query heads on the one kv head. A chunk of keys is
// brought to shared memory once, for scores and for values, and the weights of its pairs take the
// place of the keys' last 64 values, which are no values and not needed any more when weights are
// made. Arithmetic is that of matrix.cuh: up to 64 pairs a block, or 16 where there are few
// or little shared memory; the same bits either way.
#include "ops/gpu/attend/latent.cuh"
#include "ops/gpu/attend/matrix.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

template <bool ROTATED_, int T_, bool WHOLE_, bool CHOICE_ = false, int STAGES_ = T_ == 1 ? 1 : 2>
struct latent_form : latent_places<T_ * 16, STAGES_, ROTATED_> {
    typedef latent_places<T_ * 16, STAGES_, ROTATED_> P;
    static constexpr int T = T_, GROUPS = P::WARPS / 4, N = P::DV / 8 / P::WARPS;
    static constexpr bool WHOLE = WHOLE_, CHOICE = CHOICE_;
    static constexpr int SMALL = WHOLE || CHOICE || T == 1 ? 0 : 2, BLOCKS = STAGES_ == 1 ? 2 : 1;
    static constexpr int ANY = P::STATE + (int)sizeof(struct state<T>);
    static constexpr int BYTES = ANY + (CHOICE ? CHOICE_BYTES : 0);
    static_assert(BYTES <= 227 * 1024, "a block's shared memory on sm_90");

    static __device__ inline int slot(int pair) {
        return pair;
    }
};

#else

template <bool ROTATED, int T, bool WHOLE, bool CHOICE = false, int STAGES = 1> struct latent_form {
    static constexpr int THREADS = 32, BYTES = 0;
};

#endif

template <class F>
static void launch_form(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    attend_launch<F>(g, attend_kernel<F>, u, p);
}

extern "C" int attend_latent_tiles(int shared) {
    return latent_form<false, LATENT_TILES, true, true>::BYTES <= shared ? LATENT_TILES
           : latent_form<false, 1, false, true>::BYTES <= shared         ? 1
                                                                         : 0;
}

template <bool ROTATED>
static void launch_latent(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    typedef latent_form<ROTATED, 1, false, false, 2>
        alone; // on its multiprocessor: the next chunk comes early
    const bool one = p->tiles <= 1 && !p->whole;
    if (u->chosen && p->whole)
        launch_form<latent_form<ROTATED, LATENT_TILES, true, true>>(g, u, p);
    else if (u->chosen && one)
        launch_form<latent_form<ROTATED, 1, false, true>>(g, u, p);
    else if (u->chosen)
        launch_form<latent_form<ROTATED, LATENT_TILES, false, true>>(g, u, p);
    else if (p->whole)
        launch_form<latent_form<ROTATED, LATENT_TILES, true>>(g, u, p);
    else if (one && p->n_items <= g->processors && alone::BYTES <= g->shared)
        launch_form<alone>(g, u, p);
    else if (one)
        launch_form<latent_form<ROTATED, 1, false>>(g, u, p);
    else
        launch_form<latent_form<ROTATED, LATENT_TILES, false>>(g, u, p);
}

extern "C" void attend_latent(struct gpu *g, const struct attend_run *u,
                              const struct attend_plan *p) {
    if (attend_rotated(u))
        launch_latent<true>(g, u, p);
    else
        launch_latent<false>(g, u, p);
}
