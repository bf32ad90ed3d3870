// SPDX-License-Identifier: Apache-2.0
// Linear layers of heads, each with a matrix of its own. A worker puts up to 16 rows of one head
// side by side, where the kernels want them, and multiplies them by a piece of that head's matrix.
// A kernel treats each (output, row) pair on its own, so that bits do not depend on the rows.
#include "base/num.h"
#include "ops/cpu/cpu.h"

enum { PIECE_TILES = 8, PIECE_WIDTH = PIECE_TILES * TILE };

struct heads_run {
    const struct cpu *cpu;
    const struct heads_args *a;
    int64_t chunks, pieces; // of rows, of a matrix
};

static void take_rows(const struct heads_run *u, int h, int64_t first, int n, struct act *to) {
    const struct heads_args *a = u->a;
    int64_t k = a->w->k;
    act_shape(to, ROWS, k);
    for (int i = 0; i < n; i++) {
        int64_t row = first + i;
        const float *from = a->act ? a->act->x + row * a->act->stride + h * k
                                   : a->in + (row * a->heads + h) * a->in_stride;
        memcpy(to->x + i * to->stride, from, (size_t)k * sizeof *from);
    }
    act_finish_rows(u->cpu, to, 0, n);
    if (a->w->form == FORM_BF16)
        u->cpu->row.to_bf16(to->x, to->h, n * to->stride);
}

static void copy_tails(const struct heads_args *a, int h, int64_t first, int n) {
    for (int64_t row = first; a->tail && row < first + n; row++) {
        int64_t at = row * a->heads + h;
        memcpy(a->out + at * a->out_stride + a->w->m, a->in + at * a->in_stride + a->w->k,
               (size_t)a->tail * sizeof *a->out);
    }
}

// Items are the pieces of a head's matrix for one chunk of rows after another, head after head.
static void heads_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct heads_run *u = arg;
    const struct heads_args *a = u->a;
    struct act *rows = cpu_moe_rows(u->cpu, worker);
    float y[ROWS * PIECE_WIDTH];
    for (int64_t item = begin; item < end; item++) {
        int h = (int)(item / u->pieces / u->chunks);
        int64_t first = item / u->pieces % u->chunks * ROWS;
        int64_t at = item % u->pieces * PIECE_WIDTH;
        int n = (int)min_i64(a->n - first, ROWS);
        struct weight w = weight_expert(a->w, h);
        int64_t width = min_i64(w.m - at, PIECE_WIDTH);
        if (item == begin || at == 0)
            take_rows(u, h, first, n, rows);
        if (at == 0)
            copy_tails(a, h, first, n);
        cpu_linear_part(&u->cpu->row, &(struct linear_part){.w = &w,
                                                            .tile = at / TILE,
                                                            .tiles = ceil_div(width, TILE),
                                                            .in = rows,
                                                            .n = n,
                                                            .out = y,
                                                            .stride = PIECE_WIDTH});
        for (int i = 0; i < n; i++)
            memcpy(a->out + ((first + i) * a->heads + h) * a->out_stride + at, y + i * PIECE_WIDTH,
                   (size_t)width * sizeof *y);
    }
}

void cpu_linear_heads(struct exec *x, const struct heads_args *a) {
    struct heads_run u = {cpu_of(x), a, ceil_div(a->n, ROWS), ceil_div(a->w->m, PIECE_WIDTH)};
    cpu_run(cpu_of(x), a->heads * u.chunks * u.pieces,
            a->w->k * PIECE_TILES * min_i64(a->n, ROWS) / 4, heads_items, &u);
}
