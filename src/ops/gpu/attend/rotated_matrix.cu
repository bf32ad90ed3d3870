// SPDX-License-Identifier: Apache-2.0
// Instances of matrix.cu where K or V has a codec that is stored rotated, or for a single tile one
// with scales. There are fewer: a block of three tiles takes one, too, where there is no room for
// the codes of a chunk, and one of as many as plans have takes all above three.
#include "ops/gpu/attend/matrix_form.cuh"

extern "C" bool attend_matrix_copies(const struct gpu *g, const struct attend_run *u,
                                     const struct attend_plan *p) {
    const int bytes = u->dk == 256 ? form<256, 1, false, false, true>::BYTES
                                   : form<128, 1, false, false, true>::BYTES;
    return (u->k.scale_row || u->v.scale_row) && u->dk >= 128 && p->tiles == 1 && !p->whole &&
           !u->chosen && 2 * bytes <= g->shared; // two blocks of a multiprocessor
}

template <int D, int MOST>
static void launch_matrix(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->chosen && p->whole)
        launch_form<form<D, 6, true, true, true>>(g, u, p);
    else if (u->chosen)
        launch_form<form<D, 3, false, true, true>>(g, u, p);
    else if (p->whole)
        launch_form<form<D, 6, true, false, true>>(g, u, p);
    else if (attend_matrix_copies(g, u, p))
        launch_form < form<D<128 ? 128 : D, 1, false, false, true>>(g, u, p);
    else if (p->tiles <= 3)
        launch_form<form<D, 3, false, false, true>>(g, u, p);
    else
        launch_form<form<D, MOST, false, false, true>>(g, u, p);
}

extern "C" void attend_matrix_rotated(struct gpu *g, const struct attend_run *u,
                                      const struct attend_plan *p) {
    if (u->dk == 64)
        launch_matrix<64, 6>(g, u, p);
    else if (u->dk == 128)
        launch_matrix<128, 6>(g, u, p);
    else
        launch_matrix<256, 9>(g, u, p);
}
