// SPDX-License-Identifier: Apache-2.0
// Instances of wide.cu where K or V has a codec that is stored rotated; there are fewer of them.
#include "ops/gpu/attend/wide_form.cuh"

template <int D>
static void launch_wide(struct gpu *g, const struct attend_run *u, const struct attend_plan *p) {
    if (u->chosen)
        launch_form<wide_form<D, 96, true, true, true>>(g, u, p);
    else if (p->whole)
        launch_form<wide_form<D, 96, true, false, true>>(g, u, p);
    else if (p->tiles <= 6)
        launch_form<wide_form<D, 96, false, false, true>>(g, u, p);
    else
        launch_form<wide_form<D, 144, false, false, true>>(g, u, p);
}

extern "C" void attend_wide_rotated(struct gpu *g, const struct attend_run *u,
                                    const struct attend_plan *p) {
    if (u->dk == 128)
        launch_wide<128>(g, u, p);
    else
        launch_wide<256>(g, u, p);
}
