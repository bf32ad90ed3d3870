// SPDX-License-Identifier: Apache-2.0
// Rows to host memory and back (ops/experts/host_rows.h), where all memory is the host's: copies. A
// CPU may stand in for the device, so that what a GPU does is tested without one.
#include "ops/experts/host_rows.h"

#include "ops/cpu/cpu.h"

static void rows_out(struct exec *x, const struct rows_out *r) {
    (void)x;
    const size_t entries = (size_t)(r->n * r->used);
    for (int64_t i = 0; i < r->n; i++)
        memcpy(r->host_rows + i * r->k, r->in->x + (r->first + i) * r->in->stride,
               (size_t)r->k * sizeof *r->host_rows);
    memcpy(r->host_ids, r->ids + r->first * r->used, entries * sizeof *r->ids);
    memcpy(r->host_weights, r->weights + r->first * r->used, entries * sizeof *r->weights);
}

static bool rows_wait(struct exec *x) {
    (void)x;
    return true;
}

static void rows_in(struct exec *x, const struct rows_in *r) {
    (void)x;
    for (int64_t i = 0; i < r->n; i++)
        r->out[i] = r->add ? r->out[i] + r->host[i] : r->host[i];
}

const struct host_rows cpu_host_rows = {.out = rows_out, .wait = rows_wait, .in = rows_in};
