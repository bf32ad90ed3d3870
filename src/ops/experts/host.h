// SPDX-License-Identifier: Apache-2.0
// Experts whose place is with the host's CPU while the rest of their model runs on a device: their
// weights are the CPU backend's, in host memory, and are never copied to the device. A layer's rows
// go to the host with what the router chose, the CPU's ops make the weighed sum of their experts,
// and that joins the residual stream on the device. Bits are those of the CPU's ops, which do not
// depend on its level or threads, so that rule E holds; they are not those that the device's
// experts give.
#ifndef COPPICE_OPS_EXPERTS_HOST_H
#define COPPICE_OPS_EXPERTS_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/args/mlp.h"

struct exec;
struct expert_host;

struct expert_host_shape {
    int64_t rows; // of a call at most
    int64_t dim, ffn;
    int experts, used;
};

// x: the backend of the rest; cpu: that of the experts, which may be any other exec of the host.
// Both outlive it. ERR_MEMORY.
int expert_host_create(struct expert_host **out, struct exec *x, struct exec *cpu,
                       const struct expert_host_shape *s, struct err *e);
void expert_host_destroy(struct expert_host *h); // NULL is allowed
// Bytes of the host that it takes besides the weights.
int64_t expert_host_bytes(const struct expert_host_shape *s);

struct expert_host_call {
    const struct act *in; // x's, [n][dim]
    int64_t n;
    // x's: what the router chose, [n][used].
    const int32_t *ids;
    const float *weights;
    // The cpu's, biases in host memory.
    struct gate_up both;
    const struct weight *down; // [ffn -> dim]
    const float *down_bias;    // [experts][dim], or NULL
    float *out;                // x's, [n][dim]: the weighed sums, added
    bool apart;                // they take the place of what is there instead
};
// Queues that the rows go to the host. What is queued between the two runs while the CPU computes,
// and may read and write all but `in` and the router's choice.
void expert_host_begin(struct expert_host *h, const struct expert_host_call *c);
// Waits for them, computes, and queues that the results join.
void expert_host_end(struct expert_host *h, const struct expert_host_call *c);

// What decides where experts beyond a device's memory are best computed: how fast the bus brings
// them, and how fast the CPU's ops read them where they are. Measured, some tenths of a second.

struct exec;

struct expert_rates {
    double bus, cpu; // GB (10^9 bytes) a second
};

// x: a device with nothing under way; cpu: an exec of the host's CPU. What it takes of the memory
// of both it gives back. ERR_MEMORY, ERR_DEVICE.
int expert_rates(struct expert_rates *out, struct exec *x, struct exec *cpu, struct err *e);

// Rows of a pass that go to host memory and back while the pass waits: for layers of experts that
// the host's CPU computes (host.h). Host memory here is that of exec_host_alloc. Internal to
// src/ops.

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
