// SPDX-License-Identifier: Apache-2.0
// The convolutions of DFlash2: one before and one after each sublayer, along the rows of a block,
// with kernels that are a common one plus what a projection makes of the sublayer's normed input.
// The context of the target passes through none of them.
#include "models/draft/dflash/impl.h"

enum { BEFORE, AFTER, SIDES };

int dflash_conv_load(struct dflash *d, struct dflash_conv *c, int layer, const char *base,
                     const char *projection, struct err *e) {
    const struct dflash_params *p = &d->params;
    char name[LOAD_NAME];
    int rc = load_float_planes(&d->load, load_name(name, layer, base), p->dim, p->conv_taps, SIDES,
                               &c->base, e);
    return rc ? rc
              : load_weight(&d->load, load_name(name, layer, projection), p->dim,
                            dflash_conv_width(p), &c->own, e);
}

int64_t dflash_conv_width(const struct dflash_params *p) {
    return p->conv_taps ? SIDES * p->conv_taps * (p->dim / p->conv_group) : 0;
}

// side's convolution of `in`, into act_d or, after a sublayer, added to h.
static struct block_conv_args convolution(const struct dflash *d, const struct dflash_conv *c,
                                          int side, int64_t n, int block, const float *in) {
    const struct dflash_params *p = &d->params;
    const int64_t width = dflash_conv_width(p);
    return (struct block_conv_args){.in = in,
                                    .base = c->base + side * p->conv_taps * p->dim,
                                    .own = d->kernels + side * width / SIDES,
                                    .own_stride = width,
                                    .n = n,
                                    .dim = p->dim,
                                    .block = block,
                                    .taps = p->conv_taps,
                                    .group = p->conv_group,
                                    .out = side == AFTER ? d->h : NULL,
                                    .act = side == AFTER ? NULL : d->act_d,
                                    .add = side == AFTER};
}

void dflash_conv_before(struct dflash *d, const struct dflash_conv *left,
                        const struct dflash_conv *c, const float *norm, int64_t n, int block) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    const struct linear_job kernels = {.w = c->own, .out = d->kernels};
    struct block_conv_args conv;
    struct norm_args a = {.in = d->h,
                          .w = norm,
                          .eps = p->eps,
                          .n = n,
                          .k = p->dim,
                          .out = d->sublayer_in,
                          .act = d->act_d};
    if (left) {
        conv = convolution(d, left, AFTER, n, block, d->apart);
        a.conv = &conv;
    }
    ops->norm(d->x, &a);
    ops->linear(d->x, &kernels, 1, d->act_d, n);
    conv = convolution(d, c, BEFORE, n, block, d->sublayer_in);
    ops->block_conv(d->x, &conv);
}

void dflash_conv_after(struct dflash *d, const struct dflash_conv *c, int64_t n, int block) {
    const struct block_conv_args a = convolution(d, c, AFTER, n, block, d->apart);
    exec_ops(d->x)->block_conv(d->x, &a);
}
