// SPDX-License-Identifier: Apache-2.0
// Attention by the warpgroup instruction of sm_90a for heads of 128 and 256 values
// (wide.cuh).
#include "ops/gpu/attend/wide_form.cuh"

template <int D>
static void launch_wide(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->chosen)
        launch_form<wide_form<D, 96, true, true>>(g, u, p);
    else if (p->whole)
        launch_form<wide_form<D, 96, true>>(g, u, p);
    else if (p->tiles <= 4)
        launch_form<wide_form<D, 64, false>>(g, u, p);
    else if (p->tiles <= 6)
        launch_form<wide_form<D, 96, false>>(g, u, p);
    else
        launch_form<wide_form<D, 144, false>>(g, u, p);
}

extern "C" int attend_wide_bytes(int head_dim) {
    return head_dim == 128 ? wide_form<128, 144, false>::BYTES : wide_form<256, 144, false>::BYTES;
}

extern "C" void attend_wide(struct gpu *g, const struct attend_run *u,
                            const struct attend_plan *p) {
    const bool codes = u->k.scale_row || u->v.scale_row; // they are copied ahead there
    if (attend_rotated(u) || (codes && !p->whole && !u->chosen))
        attend_wide_rotated(g, u, p);
    else if (u->dk == 128)
        launch_wide<128>(g, u, p);
    else
        launch_wide<256>(g, u, p);
}
