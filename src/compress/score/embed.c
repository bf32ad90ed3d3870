// SPDX-License-Identifier: Apache-2.0
// Embeddings of a text, which are looked up on the host: a table of all tokens would be as large
// there as many layers. They go to the device in two buffers in turn, so that rows are made and
// copied while the first layer runs over those before them.
#include <stdlib.h>

#include "base/num.h"
#include "compress/score/impl.h"
#include "formats/quant/quant.h"

enum { GRAIN = 64, THREADS = 16 }; // rows of a piece of work; most threads beside a device

static void make_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const struct score_embed *m = arg;
    const struct quant_format *f = quant_format(m->table->type);
    int64_t d = m->table->ne[0], row = quant_row_bytes(f, d);
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        f->dequantize((const char *)m->table->data + m->ids[i] * row, m->rows[m->turn] + i * d, d);
}

int score_embed_open(struct score_embed *m, struct exec *x, const struct tensor *table,
                     int64_t rows, struct err *e) {
    int rc = 0;
    m->x = x;
    m->table = table;
    for (int i = 0; i < 2 && !rc; i++) {
        m->rows[i] = exec_host_alloc(x, (size_t)(rows * table->ne[0]) * sizeof(float));
        if (!m->rows[i])
            rc = err_set(e, ERR_MEMORY, "no memory for chunks of %lld rows", (long long)rows);
    }
    if (!rc)
        rc = copier_create(&m->copier, x, e);
    if (!rc && exec_is_device(x)) {
        rc = pool_create(&m->pool, 0, e);
        if (!rc && pool_threads(m->pool) > THREADS) {
            pool_destroy(m->pool);
            m->pool = NULL;
            rc = pool_create(&m->pool, THREADS, e);
        }
    }
    return rc;
}

void score_embed_close(struct score_embed *m) {
    pool_destroy(m->pool);
    copier_destroy(m->copier);
    for (int i = 0; i < 2 && m->x; i++)
        exec_host_free(m->x, m->rows[i]);
}

void score_embed_begin(struct score_embed *m) {
    copier_after_compute(m->copier);
}

void score_embed(struct score_embed *m, const int32_t *ids, int64_t n, float *out) {
    if (n <= 0)
        return;
    struct err e; // a copy that fails leaves a fault of the device
    m->turn ^= 1;
    m->ids = ids;
    copier_wait(m->copier, m->ticket[m->turn], &e);
    if (m->pool)
        pool_run(m->pool, n, GRAIN, make_rows, m);
    else
        make_rows(m, 0, n, 0);
    m->ticket[m->turn] = copier_to_device(m->copier, out, m->rows[m->turn],
                                          (size_t)(n * m->table->ne[0]) * sizeof(float));
    copier_before_compute(m->copier, m->ticket[m->turn]);
}
