// SPDX-License-Identifier: Apache-2.0
// Rows of a pass that go to host memory and back while the pass waits: for layers of experts that
// the host's CPU computes (host.h). Host memory here is that of exec_host_alloc. Internal to
// src/ops.
#ifndef COPPICE_OPS_EXPERTS_HOST_ROWS_H
#define COPPICE_OPS_EXPERTS_HOST_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct act;
struct exec;

// Rows first .. first + n - 1 of an activation, their k values as f32, and their entries.
struct rows_out {
    const struct act *in;
    int64_t first, n, k;
    int used;
    const int32_t *ids;   // [rows][used]
    const float *weights; // [rows][used]
    // Host, of the n rows.
    float *host_rows;    // [n][k]
    int32_t *host_ids;   // [n][used]
    float *host_weights; // [n][used]
};
// out[i] = host[i], or with `add` out[i] + host[i].
struct rows_in {
    const float *host;
    float *out;
    int64_t n; // values
    bool add;
};

// What every backend has for this.
struct host_rows {
    void (*out)(struct exec *x, const struct rows_out *r); // queued
    // Waits until what the newest `out` reads has come. False: a fault of the device.
    bool (*wait)(struct exec *x);
    // Queued; what it reads is free once a later `wait` has returned.
    void (*in)(struct exec *x, const struct rows_in *r);
};

#endif
