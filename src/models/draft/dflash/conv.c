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

static void convolve(struct dflash *d, const struct dflash_conv *c, int side, int64_t n, int block,
                     const float *in, float *out) {
    const struct dflash_params *p = &d->params;
    const int64_t width = dflash_conv_width(p);
    exec_ops(d->x)->block_conv(
        d->x, &(struct block_conv_args){.in = in,
                                        .base = c->base + side * p->conv_taps * p->dim,
                                        .own = d->kernels + side * width / SIDES,
                                        .own_stride = width,
                                        .n = n,
                                        .dim = p->dim,
                                        .block = block,
                                        .taps = p->conv_taps,
                                        .group = p->conv_group,
                                        .out = out,
                                        .add = side == AFTER});
}

void dflash_conv_before(struct dflash *d, const struct dflash_conv *c, const float *norm, int64_t n,
                        int block) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    const struct linear_job kernels = {.w = c->own, .out = d->kernels};
    ops->norm(d->x,
              &(struct norm_args){
                  .in = d->h, .w = norm, .eps = p->eps, .n = n, .k = p->dim, .out = d->apart});
    ops->to_act(d->x, d->apart, n, p->dim, d->act_d);
    ops->linear(d->x, &kernels, 1, d->act_d, n);
    convolve(d, c, BEFORE, n, block, d->apart, d->convolved);
    ops->to_act(d->x, d->convolved, n, p->dim, d->act_d);
}

void dflash_conv_after(struct dflash *d, const struct dflash_conv *c, int64_t n, int block) {
    convolve(d, c, AFTER, n, block, d->apart, d->h);
}
