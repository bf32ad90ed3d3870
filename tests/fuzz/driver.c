// SPDX-License-Identifier: Apache-2.0
// The entry point that libFuzzer calls, and allocation functions that fail on demand. The linker
// sends every allocation of our static code here (--wrap); shared libraries keep their own.
#include "fuzz.h"

#include <stdlib.h>

#include "base/hash.h"

static bool armed;
static size_t count, fail_at; // allocations since armed; the one that fails, 0 for none

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool must_fail(void) {
    return armed && ++count == fail_at;
}

void *__wrap_malloc(size_t size) {
    return must_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return must_fail() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size) {
    return must_fail() ? NULL : __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return must_fail() ? NULL : __real_aligned_alloc(alignment, size);
}

static size_t run(const uint8_t *data, size_t size, size_t failing) {
    count = 0;
    fail_at = failing;
    armed = true;
    fuzz_one(data, size, failing != 0);
    armed = false;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool ready;
    if (!ready)
        fuzz_setup();
    ready = true;
    size_t allocations = run(data, size, 0);
    if (allocations)
        run(data, size, 1 + hash_bytes(data, size, 1) % allocations);
    return 0;
}
