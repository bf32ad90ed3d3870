// SPDX-License-Identifier: Apache-2.0
// What every backend's exec begins with. Backends embed it as their first member; callers of the
// op table see only `struct exec`. Internal to src/ops.
#ifndef COPPICE_OPS_EXEC_H
#define COPPICE_OPS_EXEC_H

#include "base/memory/slabs.h"
#include "base/num.h"
#include "ops/ops.h"

// What a backend whose memory is not the host's has for copier.h.
struct copy_queue; // the backend's own
struct copier_rows;

struct copy_backend {
    void *(*host_alloc)(struct exec *x, size_t bytes);
    void (*host_free)(struct exec *x, void *p);
    int (*open)(struct copy_queue **out, struct exec *x, struct err *e);
    void (*close)(struct copy_queue *q); // waits for its copies
    void (*after_compute)(struct copy_queue *q);
    // Tickets rise by one from copy to copy.
    void (*copy)(struct copy_queue *q, void *dst, const void *src, size_t bytes, uint64_t ticket,
                 bool to_host);
    // NULL: piece by piece.
    void (*copy_rows)(struct copy_queue *q, const struct copier_rows *runs, int n, uint64_t ticket);
    bool (*done)(struct copy_queue *q, uint64_t ticket);
    int (*wait)(struct copy_queue *q, uint64_t ticket, struct err *e);
    void (*before_compute)(struct copy_queue *q, uint64_t ticket);
    // Parking (parking.h). ERR_UNSUPPORTED: addresses cannot stay without memory here.
    int (*park_open)(struct exec *x, struct parked *k, struct err *e);
    void (*park_fault)(struct exec *x); // contents did not come back: nothing may be computed
};

// The common head of execs of the CPU (exec.h): NULL, copies are done at once. Tests put copies
// there that come late, as those of a GPU do.
extern const struct copy_backend *cpu_copies;

// Something that is kept as long as an exec, such as an observer of its ops (exec_attach). Embedded
// as the first member of what it is part of.
struct exec_attachment {
    void (*destroy)(struct exec_attachment *a);
    struct exec_attachment *next;
};

enum { EXEC_MARKS = 4096, EXEC_FAILED_EPOCHS = 64 };

struct exec {
    const struct ops *ops;
    int threads;
    uint64_t passes; // numbers given out by exec_pass
    char label[128]; // see exec_label
    char kind[128];  // see exec_kind; empty on a CPU
    void (*destroy)(struct exec *x);
    // See exec_takes. NULL: the backend has all forms.
    int (*takes)(const struct exec *x, const struct ops_needs *n, struct err *e);
    int64_t (*weight_bytes)(const struct exec *x, const struct tensor *t);
    int64_t (*act_bytes)(const struct exec *x, int64_t n, int64_t k);
    bool device;                          // see exec_is_device
    const struct copy_backend *copies;    // (copier.h) NULL: memory is the host's
    int64_t host_bytes;                   // see exec_host_bytes
    const struct expert_backend *experts; // (ops/experts/store.h) NULL: it has no such stores
    const struct host_rows *host_rows;    // (ops/experts/host.h)
    // Epochs (ops.h): the number of the present one, and the newest that failed, a ring.
    uint64_t epoch, failed_epochs[EXEC_FAILED_EPOCHS], n_failed_epochs;
    // NULL where nothing can fail, or be told: see exec_status, exec_memory_of, exec_own_bytes,
    // exec_reserve, exec_alloc, exec_trim.
    int (*status)(struct exec *x, struct err *e);
    void (*memory)(struct exec *x, struct exec_memory *m);
    void *(*alloc_in)(struct exec *x, enum exec_arena arena, size_t bytes);
    void (*trim)(struct exec *x);
    int64_t (*own_bytes)(const struct exec *x, const struct exec_limits *l);
    int (*reserve)(struct exec *x, const struct exec_limits *l, struct err *e);
    // Time marks in the queue, 0 <= i < EXEC_MARKS, and the milliseconds from one to a later one
    // (this waits). NULL on the CPU, where a clock does.
    void (*mark)(struct exec *x, int i);
    double (*between)(struct exec *x, int a, int b);
    // out = rows 0 .. n-1 of an activation as [n][k] f32, after waiting for it. out has room for
    // n * exec_act_stride(k) values.
    void (*act_read)(struct exec *x, const struct act *a, int64_t n, float *out);
    struct exec_attachment *attachments; // the newest first
    struct overlapped_work overlapped;   // for the next op that waits
};

// From now on a belongs to the exec, which destroys it when it is gone itself, the newest first.
void exec_attach(struct exec *x, struct exec_attachment *a);
// The attachment of that kind, which its destroy function tells; NULL when there is none.
struct exec_attachment *exec_attached(const struct exec *x,
                                      void (*destroy)(struct exec_attachment *a));

// Takes the work for the next op that waits, which is then the caller's to run or to drop.
static inline struct overlapped_work exec_take_overlapped(struct exec *x) {
    const struct overlapped_work w = x->overlapped;
    x->overlapped.run = NULL;
    return w;
}

// k rounded up to what any backend pads a row of an activation to.
static inline int64_t exec_act_stride(int64_t k) {
    return round_up(k, 64);
}

#endif
