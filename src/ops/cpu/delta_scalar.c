// SPDX-License-Identifier: Apache-2.0
// The specification of the kernels of the gated delta rule (delta.h): every f32 operation and its
// order. The vector levels (delta_tmpl.h) repeat them lane by lane.
#include "ops/cpu/row.h"

static void dots(const struct delta_dots *a) {
    for (int i = 0; i < a->n_x; i++)
        for (int j = 0; j < a->n; j++) {
            float lane[TILE] = {0};
            for (int c = 0; c < a->dim; c++)
                lane[c % TILE] = fmaf(a->x[i][c], a->k[j][c], lane[c % TILE]);
            a->out[i][j] = row_fold(lane);
        }
}

static void fade(const struct delta_fade *a) {
    for (int j = 0; j < a->n; j++) {
        float x = a->x[j] - a->m;
        float f = x >= FADE_LO ? row_exp(x) : 0.0f;
        a->ck[j] = f * a->kk[j];
        a->cq[j] = f * a->kq[j];
    }
}

// out[0..dv) of one vector x (k or q) with the coefficients c.
static void read_one(const struct delta_read *a, const float *x, const float *c, float scale,
                     float *out) {
    for (int v = 0; v < a->dv; v++) {
        float sum = 0;
        for (int i = 0; a->s && i < a->dk; i++)
            sum = fmaf(a->s[i * a->dv + v], x[i], sum);
        sum = fmaf(sum, scale, 0.0f); // never -0: a term of 0 then changes nothing
        for (int j = 0; j < a->count[0] + a->count[1]; j++) {
            int piece = j >= a->count[0];
            const float *d = a->d[piece] + (j - piece * a->count[0]) * a->stride;
            sum = fmaf(d[v], c[j], sum);
        }
        out[v] = sum;
    }
}

static void read_rows(const struct delta_read *a) {
    for (int r = 0; r < a->n; r++) {
        const struct delta_reader *w = &a->row[r];
        read_one(a, w->k, w->ck, w->scale, w->a);
        read_one(a, w->q, w->cq, w->scale, w->b);
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
            float s = a->s[i * a->dv + v] * a->decay;
            for (int j = 0; j < a->n; j++)
                s = fmaf(a->c[j] * a->k[j][i], a->d[j][v], s);
            a->out[i * a->dv + v] = s;
        }
}

void delta_fill_scalar(struct delta_kernels *d) {
    *d = (struct delta_kernels){
        .dots = dots, .fade = fade, .read = read_rows, .row = complete_row, .fold = fold};
}
