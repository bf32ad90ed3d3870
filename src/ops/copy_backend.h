// SPDX-License-Identifier: Apache-2.0
// What a backend whose memory is not the host's has for copier.h. Internal to src/ops.
#ifndef COPPICE_OPS_COPY_BACKEND_H
#define COPPICE_OPS_COPY_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/memory/slabs.h"

struct exec;
struct copy_queue; // the backend's own

struct copy_backend {
    void *(*host_alloc)(struct exec *x, size_t bytes);
    void (*host_free)(struct exec *x, void *p);
    int (*open)(struct copy_queue **out, struct exec *x, struct err *e);
    void (*close)(struct copy_queue *q); // waits for its copies
    void (*after_compute)(struct copy_queue *q);
    // Tickets rise by one from copy to copy.
    void (*copy)(struct copy_queue *q, void *dst, const void *src, size_t bytes, uint64_t ticket,
                 bool to_host);
    bool (*done)(struct copy_queue *q, uint64_t ticket);
    int (*wait)(struct copy_queue *q, uint64_t ticket, struct err *e);
    void (*before_compute)(struct copy_queue *q, uint64_t ticket);
    // Parking (parking.h). ERR_UNSUPPORTED: addresses cannot stay without memory here.
    int (*park_open)(struct exec *x, struct parked *k, struct err *e);
    void (*park_fault)(struct exec *x); // contents did not come back: nothing may be computed
};

// What execs of the CPU begin with (exec.h): NULL, copies are done at once. Tests put copies there
// that come late, as those of a GPU do.
extern const struct copy_backend *cpu_copies;

#endif
