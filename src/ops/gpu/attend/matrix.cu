// SPDX-License-Identifier: Apache-2.0
// Attention by matrix instructions for heads of 64, 128 and 256 values and K and V of at most 16
// bits a value (matrix.cuh).
//
// Queries become fp16 times a power of two of their own; keys and values become the nearest fp16
// (kv/halves.cuh; BF16 exactly, but for the least magnitudes; beyond 65504 they end there). Weights
// of a chunk are fp16, up to 1024; they are summed by a matrix instruction too, over a column of
// ones. A pair's operations do not depend on where it lies, and a hidden key adds zeros, so rule E2
// holds as attend_plan.h says.
#include "ops/gpu/attend/matrix_form.cuh"

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
    if (attend_rotated(u) || attend_matrix_copies(g, u, p))
        attend_matrix_rotated(g, u, p);
    else if (u->dk == 64)
        launch_matrix<64>(g, u, p);
    else if (u->dk == 128)
        launch_matrix<128>(g, u, p);
    else
        launch_matrix<256>(g, u, p);
}
