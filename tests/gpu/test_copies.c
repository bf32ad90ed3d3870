// SPDX-License-Identifier: Apache-2.0
// Copies concurrently with the ops of a GPU: what was computed before copier_after_compute arrives
// on the host, what was copied before copier_before_compute is what ops read, tickets end in order
// however many there are, and a copy that cannot be is a fault of the exec and of its tickets.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/copier.h"
#include "ops/ops.h"

struct counts {
    int passed, failed;
};

static void is(struct counts *n, bool ok, const char *what) {
    n->passed += ok;
    n->failed += !ok;
    if (!ok)
        printf("  copier: %s: FAILED\n", what);
}

enum { BYTES = 16 << 20, ROUNDS = 200 };

static bool all(const unsigned char *p, int value) {
    for (size_t i = 0; i < BYTES; i++)
        if (p[i] != value)
            return false;
    return true;
}

// The device's memory goes to and fro; each round writes other bytes over those of the last one.
static void copies_keep_their_order(struct counts *n, struct exec *x, struct copier *c) {
    const struct ops *ops = exec_ops(x);
    struct err e = {0};
    unsigned char *host = exec_host_alloc(x, BYTES), *back = exec_host_alloc(x, BYTES);
    void *a = ops->alloc(x, BYTES), *b = ops->alloc(x, BYTES);
    is(n, host && back && a && b && exec_host_bytes(x) == 2 * (int64_t)BYTES, "memory");
    bool right = true;
    for (int i = 0; host && back && a && b && i < 8; i++) {
        memset(host, i + 1, BYTES);
        copier_after_compute(c); // the last round's copy reads a
        uint64_t up = copier_to_device(c, a, host, BYTES);
        copier_before_compute(c, up);
        ops->copy(x, b, a, BYTES);
        copier_after_compute(c);
        uint64_t down = copier_to_host(c, back, b, BYTES);
        right = right && !copier_wait(c, down, &e) && copier_done(c, up) && all(back, i + 1);
    }
    is(n, right && !exec_status(x, &e), "bytes there and back");
    uint64_t last = 0;
    for (int i = 0; a && back && i < ROUNDS; i++)
        last = copier_to_host(c, back + i, a, 1);
    is(n, !copier_wait(c, last, &e) && copier_done(c, 1) && copier_done(c, last), "many tickets");
    ops->free(x, a);
    ops->free(x, b);
    exec_host_free(x, host);
    exec_host_free(x, back);
    is(n, exec_host_bytes(x) == 0, "host memory is given back");
}

static void a_failed_copy_is_a_fault(struct counts *n, struct exec *x, struct copier *c) {
    struct err e = {0};
    char byte = 0;
    uint64_t stretch = exec_epoch(x);
    uint64_t bad = copier_to_device(c, (void *)16, &byte, 1); // no address of the device
    is(n, copier_wait(c, bad, &e) == ERR_DEVICE, "its ticket tells");
    is(n, exec_status(x, &e) == ERR_DEVICE, "the exec tells");
    is(n, exec_epoch_failed(x, stretch), "the epoch failed");
}

int main(void) {
    struct counts n = {0};
    struct exec *x = NULL;
    struct copier *c = NULL;
    struct err e = {0};
    struct cuda_options o = {.path = CUDA_PATH_AUTO};
    if (exec_create_cuda(&x, &o, &e)) {
        printf("  copier: %s\n", e.text);
        return 77;
    }
    is(&n, !copier_create(&c, x, &e), "a queue");
    if (c) {
        copies_keep_their_order(&n, x, c);
        a_failed_copy_is_a_fault(&n, x, c);
    }
    copier_destroy(c);
    exec_destroy(x);
    printf("copier: %d passed, %d failed\n", n.passed, n.failed);
    return n.failed > 0;
}
