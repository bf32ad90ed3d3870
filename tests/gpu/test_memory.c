// SPDX-License-Identifier: Apache-2.0
// The memory of the CUDA backend: blocks are zeroed, apart and within the limit; what is staged
// arrives however often the stage comes round; a lack of memory and a failed copy become errors of
// every caller, and the backend can be closed and opened again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/gpu/runtime/cuda.h"

struct counts {
    int passed, failed;
};

static bool is(struct counts *n, bool ok, const char *what) {
    n->passed += ok;
    n->failed += !ok;
    if (!ok)
        printf("  memory: %s: FAILED\n", what);
    return ok;
}

static struct exec *open_limited(int64_t limit, bool separate) {
    struct exec *x = NULL;
    struct err e = {0};
    struct cuda_options o = {.limit = limit, .path = CUDA_PATH_AUTO, .separate = separate};
    if (exec_create_cuda(&x, &o, &e))
        printf("  memory: %s\n", e.text);
    return x;
}

enum { BLOCKS = 96, MOST = 3 << 20 };

struct block {
    unsigned char *p;
    size_t bytes;
    unsigned char mark;
};

static bool filled_with(struct exec *x, const struct block *b, unsigned char *host, int value) {
    exec_ops(x)->download(x, host, b->p, b->bytes);
    for (size_t i = 0; i < b->bytes; i++)
        if (host[i] != value)
            return false;
    return true;
}

// Random takes and gives; every block is zero at first and keeps its own mark to the end.
static void blocks_are_apart(struct counts *n, bool separate, uint64_t seed) {
    struct exec *x = open_limited(0, separate);
    struct rng r = {seed + separate};
    struct block held[BLOCKS];
    unsigned char *host = malloc(MOST);
    int count = 0;
    bool zero = true, kept = true;
    for (int step = 0; x && host && step < 400; step++) {
        if (count < BLOCKS && (rng_below(&r, 3) || count == 0)) {
            struct block b = {.bytes = 1 + rng_below(&r, rng_below(&r, 4) ? 5000 : MOST),
                              .mark = (unsigned char)(1 + rng_below(&r, 255))};
            b.p = exec_ops(x)->alloc(x, b.bytes);
            zero = zero && b.p && (uintptr_t)b.p % 256 == 0 && filled_with(x, &b, host, 0);
            memset(host, b.mark, b.bytes);
            exec_ops(x)->upload(x, b.p, host, b.bytes);
            held[count++] = b;
        } else {
            int i = (int)rng_below(&r, (uint32_t)count);
            kept = kept && filled_with(x, &held[i], host, held[i].mark);
            exec_ops(x)->free(x, held[i].p);
            held[i] = held[--count];
        }
    }
    for (int i = 0; i < count; i++)
        kept = kept && filled_with(x, &held[i], host, held[i].mark);
    struct err e = {0};
    is(n, x && host && zero, "blocks begin zeroed and aligned");
    is(n, x && kept && !exec_status(x, &e), "blocks keep what was written");
    free(host);
    if (x)
        exec_destroy(x);
}

static void the_limit_holds(struct counts *n) {
    enum { LIMIT = 256 << 20, PIECE = 3 << 20 };
    struct exec *x = open_limited(LIMIT, false);
    struct exec_memory m;
    struct err e = {0};
    int64_t taken = 0;
    while (x && exec_ops(x)->alloc(x, PIECE))
        taken += PIECE;
    if (!is(n, x != NULL, "opening with a limit"))
        return;
    exec_memory_of(x, &m);
    is(n, m.used <= LIMIT && m.peak <= LIMIT && m.peak >= m.used, "the limit is never passed");
    // A slab of 16 MiB holds five pieces and leaves one MiB.
    is(n, taken + STAGE_BYTES > LIMIT - (24 << 20), "nearly all of the limit can be used");
    is(n, m.free < PIECE && m.total > m.used, "free memory counts within the limit");
    gpu_scratch(gpu_of(x), PIECE);
    is(n, exec_status(x, &e) == ERR_MEMORY && strstr(e.text, "--max-ctx"), "no scratch: an error");
    is(n, exec_status(x, &e) == 0, "no scratch: said once");
    exec_destroy(x);
    is(n, open_limited(1 << 20, false) == NULL, "a limit below the least is refused");
}

// Fresh arrays until the ring has come round twice; each is read back through the device.
static void staged_arrays_arrive(struct counts *n, uint64_t seed) {
    enum { WORDS = 1 << 18 };
    struct exec *x = open_limited(0, false);
    uint32_t *host = malloc(WORDS * sizeof *host), *back = malloc(WORDS * sizeof *back);
    struct rng r = {seed + 9};
    bool same = true, found = true;
    for (int i = 0; x && host && back && i < 160; i++) {
        size_t words = 1 + rng_below(&r, WORDS);
        for (size_t j = 0; j < words; j++)
            host[j] = (uint32_t)rng_next(&r);
        const void *p = gpu_stage(gpu_of(x), host, words * sizeof *host);
        found = found && p == gpu_stage(gpu_of(x), host, words * sizeof *host);
        exec_ops(x)->download(x, back, p, words * sizeof *host);
        same = same && memcmp(host, back, words * sizeof *host) == 0;
    }
    is(n, x && same, "staged arrays arrive");
    is(n, x && found, "an array staged twice is sent once");
    free(host);
    free(back);
    if (x)
        exec_destroy(x);
}

static void acts_share_their_wide_rows(struct counts *n) {
    struct exec *x = open_limited(0, false);
    struct act *small = NULL, *large = NULL;
    struct exec_memory before, after;
    struct err e = {0};
    if (!is(n, x && !exec_ops(x)->act_create(x, 8, 100, &small, &e), "a small act"))
        return;
    exec_memory_of(x, &before);
    is(n, !exec_ops(x)->act_create(x, 512, 17408, &large, &e), "a large act");
    is(n, large && small->wide == large->wide, "one room for wide rows");
    exec_ops(x)->act_destroy(x, large);
    exec_ops(x)->act_destroy(x, small);
    exec_memory_of(x, &after);
    is(n, after.peak - before.peak <= exec_act_bytes(x, 512, 17408) + 512 * 17408 * 4 + (16 << 20),
       "an act takes what the plan counts");
    is(n, exec_status(x, &e) == 0, "acts leave no fault");
    exec_destroy(x);
}

static void a_failed_copy_is_an_error(struct counts *n) {
    struct exec *x = open_limited(0, false);
    struct err e = {0};
    char byte = 1;
    if (!is(n, x != NULL, "opening"))
        return;
    exec_ops(x)->upload(x, NULL, &byte, 1);
    is(n, exec_status(x, &e) == ERR_DEVICE && strstr(e.text, "GPU 0 failed"), "a failed copy");
    is(n, exec_status(x, &e) == ERR_DEVICE, "a failed device stays failed");
    exec_destroy(x);
    x = open_limited(0, false);
    is(n, x && exec_status(x, &e) == 0, "opening after a failure");
    if (x)
        exec_destroy(x);
}

// A kernel reads where no memory is. This ends CUDA for the process, so it comes last.
static void a_fault_is_an_error(struct counts *n) {
    struct exec *x = open_limited(0, false);
    struct act *a = NULL;
    struct err e = {0};
    if (!is(n, x && !exec_ops(x)->act_create(x, 4, 64, &a, &e), "opening"))
        return;
    exec_ops(x)->to_act(x, (const float *)4096, 4, 64, a);
    is(n, exec_status(x, &e) == ERR_DEVICE && strstr(e.text, "GPU 0 failed"), "a kernel's fault");
    printf("  memory: said \"%s\"\n", e.text);
    exec_ops(x)->to_act(x, (const float *)4096, 4, 64, a);
    is(n, exec_status(x, &e) == ERR_DEVICE, "ops after a fault return");
    is(n, exec_ops(x)->alloc(x, 100 << 20) == NULL || exec_status(x, &e), "memory after a fault");
    exec_ops(x)->act_destroy(x, a);
    exec_destroy(x);
    is(n, open_limited(0, false) == NULL, "a failed GPU does not open again in this process");
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    struct counts n = {0};
    struct device_survey found;
    exec_survey_cuda(&found);
    if (found.n == 0) {
        printf("memory: no GPU (%s)\n", found.reason ? found.reason : "none");
        return 77;
    }
    blocks_are_apart(&n, false, seed);
    blocks_are_apart(&n, true, seed);
    the_limit_holds(&n);
    staged_arrays_arrive(&n, seed);
    acts_share_their_wide_rows(&n);
    a_failed_copy_is_an_error(&n);
    a_fault_is_an_error(&n);
    printf("memory: %d passed, %d failed\n", n.passed, n.failed);
    return n.failed != 0;
}
