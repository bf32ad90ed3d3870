// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, and copies on a stream of their own, concurrent with the ops (copier.h). Each
// copy is followed by an event; events are a ring, so an old ticket is tested by a younger copy's
// event, which the stream's order makes right, only late.
#include <stdlib.h>
#include <sys/mman.h>

#include "base/num.h"
#include "ops/copier.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum { EVENTS = 64 };

struct copy_queue {
    struct gpu *g;
    gpu_stream stream;
    gpu_event computed;           // what after_compute waits for
    gpu_event copied[EVENTS];     // after ticket t: [t % EVENTS]
    uint64_t bad_first, bad_last; // tickets that failed lie between these; 0: none did
    gpu_error why;                // of the newest of them
};

// The device of the calling thread, and everything that ops have deferred queued.
static void enter_flushed(struct gpu *g) {
    gpu_flush(gpu_enter(&g->base));
}

// Any thread may call this and host_free, so neither touches what ops have deferred. While the
// driver pins pages, launches of other threads wait for it, so pages are there before, and large
// ones where the system has them: what is left for the driver is short.
static void *host_alloc(struct exec *x, size_t bytes) {
    enum { PAGE = 4096, LARGE = 1 << 21 };
    size_t page = bytes < LARGE ? PAGE : LARGE, whole = round_up_size(bytes, page);
    unsigned char *p = aligned_alloc(page, whole);
    if (!p)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (page == LARGE)
        (void)madvise(p, whole, MADV_HUGEPAGE); // it is a wish
#endif
    for (size_t i = 0; i < whole; i += PAGE)
        ((volatile unsigned char *)p)[i] = 0;
    if (gpu_use_device(gpu_of(x)->device) == GPU_OK && gpu_host_pin(p, whole) == GPU_OK)
        return p;
    gpu_last_error(); // an allocation that fails is an answer, not a fault
    free(p);
    return NULL;
}

static void host_free(struct exec *x, void *p) {
    (void)gpu_use_device(gpu_of(x)->device);
    if (gpu_host_unpin(p) != GPU_OK)
        gpu_last_error(); // after a fault of the device, which ops report
    free(p);
}

static void close_queue(struct copy_queue *q) {
    enter_flushed(q->g);
    if (q->stream)
        gpu_check(q->g, gpu_stream_wait(q->stream), "waiting for copies");
    for (int i = 0; i < EVENTS; i++)
        if (q->copied[i])
            gpu_event_destroy(q->copied[i]);
    if (q->computed)
        gpu_event_destroy(q->computed);
    if (q->stream)
        gpu_stream_destroy(q->stream);
    free(q);
}

static int open_queue(struct copy_queue **out, struct exec *x, struct err *e) {
    struct copy_queue *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, ERR_MEMORY, "no memory for a queue of copies");
    q->g = gpu_of(x);
    enter_flushed(q->g);
    gpu_error code = gpu_stream_create(&q->stream);
    if (code == GPU_OK)
        code = gpu_order_event_create(&q->computed);
    for (int i = 0; i < EVENTS && code == GPU_OK; i++)
        code = gpu_order_event_create(&q->copied[i]);
    if (code != GPU_OK) {
        gpu_last_error();
        close_queue(q);
        return err_set(e, ERR_DEVICE, "GPU %d gives no queue for copies (%s)", gpu_of(x)->device,
                       gpu_error_text(code));
    }
    *out = q;
    return 0;
}

static void after_compute(struct copy_queue *q) {
    struct gpu *g = q->g;
    enter_flushed(g);
    if (gpu_check(g, gpu_event_record(q->computed, g->stream), "ordering copies"))
        gpu_check(g, gpu_stream_after(q->stream, q->computed), "ordering copies");
}

// After a copy that was queued with `code`.
static void queued(struct copy_queue *q, gpu_error code, uint64_t ticket, bool to_host) {
    if (code == GPU_OK)
        code = gpu_event_record(q->copied[ticket % EVENTS], q->stream);
    if (gpu_check(q->g, code, to_host ? "copying to the host" : "copying from the host"))
        return;
    q->bad_first = q->bad_first ? q->bad_first : ticket;
    q->bad_last = ticket;
    q->why = code;
}

static void queue_copy(struct copy_queue *q, void *dst, const void *src, size_t bytes,
                       uint64_t ticket, bool to_host) {
    enter_flushed(q->g);
    gpu_error code = GPU_OK;
    if (bytes && to_host)
        code = gpu_to_host(dst, src, bytes, q->stream);
    else if (bytes)
        code = gpu_to_device(dst, src, bytes, q->stream);
    queued(q, code, ticket, to_host);
}

static void queue_rows(struct copy_queue *q, const struct copier_rows *r, int n, uint64_t ticket) {
    enter_flushed(q->g);
    gpu_error code = GPU_OK;
    for (int i = 0; i < n && code == GPU_OK; i++)
        code = gpu_rows_to_device(r[i].to, r[i].to_step, r[i].from, r[i].from_step, r[i].bytes,
                                  r[i].n, q->stream);
    queued(q, code, ticket, false);
}

static bool is_bad(const struct copy_queue *q, uint64_t ticket) {
    return q->bad_first && ticket >= q->bad_first && ticket <= q->bad_last;
}

static bool is_copy_done(struct copy_queue *q, uint64_t ticket) {
    enter_flushed(q->g);
    gpu_error code = gpu_event_query(q->copied[ticket % EVENTS]);
    if (code == GPU_NOT_READY)
        gpu_last_error(); // not a fault
    else
        gpu_check(q->g, code, "copying concurrently with ops");
    return code != GPU_NOT_READY;
}

static int wait_for_copy(struct copy_queue *q, uint64_t ticket, struct err *e) {
    enter_flushed(q->g);
    gpu_error code = gpu_event_wait(q->copied[ticket % EVENTS]);
    gpu_check(q->g, code, "copying concurrently with ops");
    if (is_bad(q, ticket))
        code = q->why;
    if (code == GPU_OK)
        return 0;
    return err_set(e, ERR_DEVICE, "a copy between the host and GPU %d failed (%s)", q->g->device,
                   gpu_error_text(code));
}

static void before_compute(struct copy_queue *q, uint64_t ticket) {
    struct gpu *g = q->g;
    enter_flushed(g);
    if (is_bad(q, ticket))
        gpu_check(g, q->why, "copying concurrently with ops");
    launch_order_forget(&g->order); // the next launch may read only weights before it waits
    gpu_check(g, gpu_stream_after(g->stream, q->copied[ticket % EVENTS]), "waiting for a copy");
}

const struct copy_backend cuda_copies = {
    .host_alloc = host_alloc,
    .host_free = host_free,
    .open = open_queue,
    .close = close_queue,
    .after_compute = after_compute,
    .copy = queue_copy,
    .copy_rows = queue_rows,
    .done = is_copy_done,
    .wait = wait_for_copy,
    .before_compute = before_compute,
    .park_open = cuda_park_open,
    .park_fault = cuda_park_fault,
};
