// SPDX-License-Identifier: Apache-2.0
// The specification of the kernels of the gated delta rule (delta.h): every f32 operation and its
// order. The vector levels (delta_tmpl.h) repeat them lane by lane.
#include "ops/cpu/simd/row/row.h"

static void dots(const struct delta_dots *a) {
    for (int i = 0; i < a->n_x; i++)
        for (int j = 0; j < a->n; j++) {
            float lane[TILE] = {0};
            for (int c = 0; c < a->dim; c++)
                lane[c % TILE] = fmaf(a->x[i][c], a->k[j][c], lane[c % TILE]);
            a->out[i][j] = row_fold(lane);
        }
}

static float faded(float x) {
    return x >= FADE_LO ? row_exp(x) : 0.0f;
}

static float fade(const struct delta_fade *a) {
    for (int j = 0; j < a->n; j++) {
        float f = faded(a->x[j] - a->m);
        a->ck[j] = f * a->kk[j];
        a->cq[j] = f * a->kq[j];
    }
    return faded(-a->m);
}

// out[0..dv) of one vector x, a key or query with its coefficients.
static void read_one(const struct delta_read *a, const float *x, float scale, float *out) {
    for (int v = 0; v < a->dv; v++) {
        float sum = 0;
        for (int i = 0; a->s && i < a->dk; i++)
            sum = fmaf(a->s[i * a->dv + v], x[i], sum);
        sum = fmaf(sum, scale, 0.0f); // never -0: a term of 0 then changes nothing
        for (int j = 0; j < a->count[0] + a->count[1]; j++) {
            int piece = j >= a->count[0];
            const float *d = a->d[piece] + (j - piece * a->count[0]) * a->stride;
            sum = fmaf(d[v], x[a->dk + j], sum);
        }
        out[v] = sum;
    }
}

static void read_rows(const struct delta_read *a) {
    for (int r = 0; r < a->n; r++) {
        const float *x = a->x + (int64_t)2 * r * DELTA_X;
        read_one(a, x, a->row[r].scale, a->row[r].a);
        read_one(a, x + DELTA_X, a->row[r].scale, a->row[r].b);
    }
}

static void complete_row(const struct delta_row *w) {
    for (int c = 0; c < w->dim; c++) {
        float a = w->a[c], b = w->b[c];
        for (int j = 0; j < w->n; j++) {
            a = fmaf(w->pa[j], w->d[j][c], a);
            b = fmaf(w->pb[j], w->d[j][c], b);
        }
        a = w->beta * (w->v[c] - a);
        w->a[c] = a;
        w->b[c] = fmaf(w->self, a, b);
    }
}

static void fold(const struct state_fold *a) {
    for (int i = 0; i < a->dk; i++)
        for (int v = 0; v < a->dv; v++) {
            float s = a->s ? a->s[i * a->dv + v] * a->decay : 0.0f;
            for (int j = 0; j < a->n; j++)
                s = fmaf(a->c[j] * a->k[j][i], a->d[j][v], s);
            a->out[i * a->dv + v] = s;
        }
}

void delta_fill_scalar(struct delta_kernels *d) {
    *d = (struct delta_kernels){
        .dots = dots, .fade = fade, .read = read_rows, .row = complete_row, .fold = fold};
}
