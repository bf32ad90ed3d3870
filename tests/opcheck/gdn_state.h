// SPDX-License-Identifier: Apache-2.0
// The state of a recurrent layer in one piece of memory, for the checks of gdn.
#ifndef COPPICE_OPCHECK_GDN_STATE_H
#define COPPICE_OPCHECK_GDN_STATE_H

#include "ops/args/args.h"

// Values of a state of this shape.
static inline int64_t gdn_state_floats(const struct gdn_shape *s) {
    return 2ll * s->n_v * s->dk * s->dv + (int64_t)GDN_RING * (s->n_k * s->dk + s->n_v * s->dv) +
           GDN_RING * s->n_v + 2ll * (GDN_CONV - 1) * s->channels;
}

// The state whose parts lie one after the other from p on.
static inline struct gdn_state gdn_state_in(const struct gdn_shape *s, float *p) {
    struct gdn_state st = {.s_lo = p};
    st.s_hi = p += s->n_v * s->dk * s->dv;
    st.log_k = p += s->n_v * s->dk * s->dv;
    st.log_d = p += GDN_RING * s->n_k * s->dk;
    st.log_g = p += GDN_RING * s->n_v * s->dv;
    st.conv = p += GDN_RING * s->n_v;
    st.conv_hi = p + (GDN_CONV - 1) * s->channels;
    return st;
}

#endif
