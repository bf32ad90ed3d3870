// SPDX-License-Identifier: Apache-2.0
// Copies between a backend's memory and the host's that run concurrently with what it computes:
// pinned host memory, and a second queue with a ticket for each copy, by which the queue of ops and
// the host wait for it. On the CPU the memory is one and every copy is done at once.
#ifndef COPPICE_OPS_COPIER_H
#define COPPICE_OPS_COPIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct exec;

// Host memory that copies run from and to without the processor's help: pinned on a GPU, plain on
// the CPU; 64-byte aligned, not zeroed. NULL when there is none. Any thread may take and give.
// Giving may wait for the GPU.
void *exec_host_alloc(struct exec *x, size_t bytes);
void exec_host_free(struct exec *x, void *p);  // NULL is allowed
int64_t exec_host_bytes(const struct exec *x); // held so now
// Whether it is pinned: taking it is slow, some 0.4 ms for each MB (state/host_blocks.c).
bool exec_host_pinned(const struct exec *x);

struct copier;

// x must outlive it. ERR_MEMORY, ERR_DEVICE.
int copier_create(struct copier **out, struct exec *x, struct err *e);
void copier_destroy(struct copier *c); // waits for its copies; NULL is allowed

// What is copied from now on waits for all that the exec has queued so far. Without it a copy is
// in no order with the ops.
void copier_after_compute(struct copier *c);

// Queue one copy after those before it and return its ticket; tickets count up from 1, so the last
// one stands for all. The host's side is best memory of exec_host_alloc, and neither side may
// change, nor its memory be freed, until the copy is done or, for memory of the device,
// copier_before_compute has been called with it.
uint64_t copier_to_host(struct copier *c, void *host, const void *device, size_t bytes);
uint64_t copier_to_device(struct copier *c, void *device, const void *host, size_t bytes);

// n pieces of the same length at steps, from host memory. Runs of them are queued as one copy each.
struct copier_rows {
    void *to;
    const void *from;
    size_t bytes, to_step, from_step;
    size_t n;
};
uint64_t copier_rows_to_device(struct copier *c, const struct copier_rows *runs, int n_runs);

// Whether the copy and all before it have ended, well or not. With more than 64 tickets under way
// it may say so late. Ticket 0 is always done.
bool copier_done(struct copier *c, uint64_t ticket);
// Waits for that. ERR_DEVICE: a copy failed, and what was copied may not be used.
int copier_wait(struct copier *c, uint64_t ticket, struct err *e);
// Ops queued from now on wait for the copy. Does not wait itself.
void copier_before_compute(struct copier *c, uint64_t ticket);

// A copy that fails is a fault of the exec: exec_status reports it and makes the epoch fail in
// which it was queued, and each one in which copier_before_compute was called with its ticket.
// exec_status does not wait for copies.

#endif
