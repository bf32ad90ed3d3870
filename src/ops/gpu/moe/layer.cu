// SPDX-License-Identifier: Apache-2.0
// A layer of experts of few rows in three launches: the router; gate and up; down, whose weighed
// sum waits for the norm behind it (sum.h). A shared expert that is like the others is one more
// entry of each row in the last two. The bits are those of the ops one by one.
#include "ops/gpu/moe/moe.h"

static bool same_shape(const struct weight *a, const struct weight *b) {
    return a->form == b->form && a->k == b->k && a->m == b->m;
}

// Whether the shared expert has a gate.
static bool gated(const struct moe_layer_args *a) {
    return a->n_in > 1;
}

// Whether its result joins the others' sum: in the end, times its gate or one.
static bool sums_meet(const struct moe_layer_args *a) {
    const moe_shared_args *s = a->shared;
    if (!s)
        return false;
    if (!gated(a))
        return s->sum.in && s->down.add && s->down.out == a->sum.out && s->down.w->m == a->sum.m;
    return s->sum.add && s->sum.used == 1 && s->sum.out == a->sum.out && s->sum.m == a->sum.m;
}

// Whether the shared expert can go with the others.
static bool joins(const struct moe_layer_args *a) {
    const moe_shared_args *s = a->shared;
    return s && same_shape(s->both.gate, a->both.gate) && same_shape(s->both.up, a->both.up) &&
           same_shape(s->down.w, a->down.w) && s->both.activation == a->both.activation &&
           !s->both.gate_bias && !s->both.up_bias && !s->down.bias && s->down.add != gated(a) &&
           sums_meet(a);
}

static void set_matrix(struct moe_matrix *m, const struct weight *w, const float *bias) {
    m->w = w->view;
    m->step = w->step;
    m->bias = bias;
}

static struct moe_call_args call_of(const struct moe_layer_args *a, const struct weight *w,
                                    int64_t beside) {
    const struct moe_list *l = &a->down.list;
    struct moe_call_args c = {};
    c.form = w->form;
    c.experts = (int)w->experts;
    c.ids = l->ids;
    c.listed = l->n * l->used;
    c.entries = c.listed + beside;
    c.distinct = l->n == 1;
    return c;
}

static struct moe_call_args gate_up_of(const struct moe_layer_args *a, bool joined) {
    const struct gate_up *w = &a->both;
    const int64_t m = w->gate->m;
    struct moe_call_args c = call_of(a, w->gate, joined ? a->down.list.n : 0);
    set_matrix(&c.matrix[0], w->gate, w->gate_bias);
    set_matrix(&c.matrix[1], w->up, w->up_bias);
    if (joined) {
        set_matrix(&c.shared[0], a->shared->both.gate, NULL);
        set_matrix(&c.shared[1], a->shared->both.up, NULL);
    }
    c.pair = true;
    c.activation = w->activation;
    c.parts = linear_parts(w->gate->k, 2 * m);
    c.sharers = a->down.list.used;
    c.x = (const __half *)a->x->x;
    c.stride = a->x->stride;
    c.unscale = a->x->unscale;
    c.out = a->mid->wide;
    c.out_stride = a->mid->stride;
    c.shared_out = c.out + c.listed * c.out_stride;
    return c;
}

// Its rows are what gate_up_of left, f32.
static struct moe_call_args down_of(const struct moe_layer_args *a, bool joined) {
    const struct weight *w = a->down.w;
    struct moe_call_args c = call_of(a, w, joined ? a->down.list.n : 0);
    set_matrix(&c.matrix[0], w, a->down.bias);
    if (joined) {
        set_matrix(&c.shared[0], a->shared->down.w, NULL);
        c.shared_out = gated(a) ? a->shared->down.out : (float *)a->shared->sum.in;
    }
    c.parts = linear_parts(w->k, w->m);
    c.sharers = 1;
    c.shared_row = c.listed;
    c.stride = a->mid->stride;
    c.out = a->down.out;
    c.out_stride = w->m;
    return c;
}

static void run_router(struct exec *x, const struct moe_layer_args *a) {
    if (moe_router_launch(gpu_of(x), a))
        return;
    cuda_linear(x, a->in, a->n_in, a->router_in, a->route.n);
    cuda_moe_route(x, &a->route);
    if (a->n_in > 1)
        cuda_moe_route(x, &a->shared->gate);
}

// The sum, and what is left of the shared expert.
static void finish(struct exec *x, const struct moe_layer_args *a, bool joined) {
    const moe_shared_args *s = a->shared;
    const bool meet = sums_meet(a) && (gated(a) || joined);
    struct moe_sum sum = {a->sum, NULL, NULL};
    if (s && !meet)
        cuda_moe_combine(x, &a->sum);
    if (s && !joined) {
        cuda_linear_gate_up(x, &s->both, a->x, a->route.n, s->mid);
        cuda_linear(x, &s->down, 1, s->mid, a->route.n);
    }
    if (meet) {
        sum.shared = s->sum.in;
        sum.shared_weight = gated(a) ? s->sum.weights : NULL;
    }
    if (!s || meet)
        moe_defer_sum(gpu_of(x), &sum);
    else if (gated(a))
        cuda_moe_combine(x, &s->sum);
}

// Gate and up, then down, of f values; false: a fault.
static bool run_experts(struct gpu *g, const struct moe_call_args *pair,
                        const struct moe_call_args *down, int64_t f) {
    const struct moe_peaks none = {}, raises = {NULL, 0, g->peaks, g->epoch};
    const struct moe_peaks from = {pair->out, (int)f, g->peaks, g->epoch};
    const bool one = pair->distinct, units = moe_union_takes(g, down);
    struct moe_order order = {};
    if (!one && units && moe_union_takes(g, pair)) {
        const size_t bytes = moe_order_bytes(pair->listed, pair->experts, MOE_UNION_ROWS);
        unsigned char *memory = (unsigned char *)gpu_scratch(g, bytes);
        if (!memory)
            return false;
        order = moe_order_make(g, pair, MOE_UNION_ROWS, memory);
        moe_union_launch(g, pair, &order, &none, &raises, false);
    } else {
        moe_few_launch(g, pair, &none, &raises, false);
    }
    if (order.tiles || (one && units))
        moe_union_launch(g, down, &order, &from, &none, true);
    else
        moe_few_launch(g, down, &from, &none, true);
    return true;
}

extern "C" bool cuda_moe_layer(struct exec *x, const struct moe_layer_args *a) {
    struct gpu *g = gpu_of(x);
    const int64_t n = a->down.list.n, f = a->both.gate->m;
    const bool room = n * (a->down.list.used + 1) <= MOE_FEW;
    const bool joined = joins(a) && (room || gated(a));
    const int64_t entries = n * a->down.list.used + (joined ? n : 0);
    if (a->both.gate->home || a->down.w->home) // experts that come and go: op by op
        return false;
    if (n == 0 || g->path == CUDA_PATH_SMALL || entries > MOE_FEW || f % 32 ||
        a->both.gate->form != a->both.up->form || !moe_peaks_reserve(g))
        return false;
    cuda_act_shape(a->mid, n * a->down.list.used, f);
    const struct moe_call_args pair = gate_up_of(a, joined), down = down_of(a, joined);
    if ((size_t)(entries * a->mid->stride) * sizeof(float) > g->wide_bytes ||
        !moe_few_fits(g, &down))
        return false;
    g->epoch++;
    run_router(x, a);
    if (!run_experts(g, &pair, &down, f))
        return true;
    finish(x, a, joined);
    return true;
}
