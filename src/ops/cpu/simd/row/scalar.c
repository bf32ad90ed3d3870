// SPDX-License-Identifier: Apache-2.0
// The specification of the row kernels except the linear layers. Every f32 operation and its order
// stand here; the vector levels repeat them lane by lane.
#include "formats/quant/quant.h"
#include "ops/cpu/simd/row/row.h"

static void quantise_group(const float *x, int8_t *q, struct act_block *b, int lane) {
    float max = 0;
    for (int i = 0; i < GROUP; i++)
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    float inverse = max > 1e-30f ? 127.0f / max : 0.0f; // smaller ones count as zero
    int half[2] = {0};
    for (int i = 0; i < GROUP; i++) {
        float shifted = x[i] * inverse + EXP_ROUND; // to the nearest integer, ties to even
        uint32_t bits;
        memcpy(&bits, &shifted, 4);
        q[i] = (int8_t)(bits & 0xFF);
        half[i / 16] += q[i];
    }
    act_block_put(b, lane, max / 127.0f, half);
}

static void quantise(const struct quantise *a) {
    for (int r = 0; r < a->rows; r++)
        for (int64_t g = 0; g < a->groups; g++)
            quantise_group(a->x + r * a->stride + g * GROUP, a->q + r * a->stride + g * GROUP,
                           a->b + g, a->lane + r);
}

static float sum_sq(const float *x, int64_t n) {
    float lane[TILE] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % TILE] = fmaf(x[i], x[i], lane[i % TILE]);
    return row_fold(lane);
}

static float max_of(const float *x, int64_t n) {
    float max = x[0];
    for (int64_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static void scale_mul(float *out, const float *x, const float *w, float s, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = w ? (x[i] * s) * w[i] : x[i] * s;
}

static void silu_mul(float *out, const float *g, const float *u, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_silu(g[i]) * u[i];
}

static void gelu_mul(float *out, const float *g, const float *u, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_gelu_tanh(g[i]) * u[i];
}

static void swiglu_clamped(float *out, const float *g, const float *u, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_swiglu_clamped(g[i], u[i]);
}

static void gate(float *out, float s, const float *g, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = g ? (out[i] * s) * row_sigmoid(g[i]) : out[i] * s;
}

static void dots(float *out, const float *q, const float *const *k, int n, int dim) {
    for (int j = 0; j < n; j++) {
        float lane[TILE] = {0};
        for (int i = 0; i < dim; i++)
            lane[i % TILE] = fmaf(q[i], k[j][i], lane[i % TILE]);
        out[j] = row_fold(lane);
    }
}

static float exp_sum(float *out, const float *x, float m, int64_t n) {
    float lane[TILE] = {0};
    for (int64_t i = 0; i < n; i++) {
        float e = row_exp(x[i] - m);
        lane[i % TILE] += e;
        if (out)
            out[i] = e;
    }
    return row_fold(lane);
}

static void weigh(float *acc, float scale, const float *p, const float *const *v, int n, int dim) {
    for (int i = 0; i < dim; i++) {
        float a = acc[i] * scale;
        for (int j = 0; j < n; j++)
            a = fmaf(p[j], v[j][i], a);
        acc[i] = a;
    }
}

static void weigh4(const struct weigh4 *w) {
    for (int i = 0; i < 4; i++)
        weigh(w->acc[i], w->scale[i], w->p[i], w->v, w->n, w->dim);
}

static void sigmoid(float *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_sigmoid(x[i]);
}

static void softplus(float *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_softplus(x[i]);
}

static void conv4(const struct conv4 *a) {
    for (int64_t i = 0; i < a->n; i++)
        for (int c = 0; c < a->dim; c++) {
            const float *w = a->w + 4 * (a->at + c);
            float sum = w[0] * a->in[i][0][a->at + c];
            for (int t = 1; t < 4; t++)
                sum = fmaf(w[t], a->in[i][t][a->at + c], sum);
            a->out[i * a->stride + c] = row_silu(sum);
        }
}

static void columns(const struct columns *a) {
    for (int r = 0; r < a->rows; r++)
        for (int c = 0; c < a->cols; c++)
            a->out[c * a->to + r] = a->in[r * a->from + c];
}

static void mass_rows(const struct mass_rows *a) {
    for (int b = 0; b < a->n; b++) {
        float top = a->max[b];
        for (int r = 0; r < a->rows; r++)
            top = a->score[r][b] * a->scale > top ? a->score[r][b] * a->scale : top;
        float sum = a->sum[b] * row_exp(a->max[b] - top);
        for (int r = 0; r < a->rows; r++)
            sum += row_exp(a->score[r][b] * a->scale - top);
        a->sum[b] = sum;
        a->max[b] = top;
    }
}

static void gumbel(float *out, uint64_t key, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = row_gumbel(key, first + i);
}

void row_fill_scalar(struct row_kernels *r) {
    *r = (struct row_kernels){
        .name = "scalar",
        .load_f16 = quant_format(TYPE_F16)->dequantize,
        .load_bf16 = quant_format(TYPE_BF16)->dequantize,
        .load_q8_0 = quant_format(TYPE_Q8_0)->dequantize,
        .quantise = quantise,
        .sum_sq = sum_sq,
        .max = max_of,
        .scale_mul = scale_mul,
        .silu_mul = silu_mul,
        .gelu_mul = gelu_mul,
        .swiglu_clamped = swiglu_clamped,
        .gate = gate,
        .dots = dots,
        .exp_sum = exp_sum,
        .weigh = weigh,
        .weigh4 = weigh4,
        .sigmoid = sigmoid,
        .softplus = softplus,
        .conv4 = conv4,
        .gumbel = gumbel,
        .columns = columns,
        .mass_rows = mass_rows,
    };
    for (int i = 0; i < KV_CODEC_COUNT; i++) {
        r->kv_load[i] = kv_codec_of((enum kv_codec_id)i)->decode;
        r->kv_store[i] = kv_codec_of((enum kv_codec_id)i)->encode;
    }
    delta_fill_scalar(&r->delta);
    linear_fill_scalar(r);
}
