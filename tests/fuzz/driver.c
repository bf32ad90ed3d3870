// SPDX-License-Identifier: Apache-2.0
// The entry points that libFuzzer and AFL++ call, and allocation functions that fail on demand. The
// linker sends every allocation of what is linked statically here (--wrap): our code, and in builds
// for fuzzing the libraries that read for us as well.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { KEEP_FAILING = 0x8000 }; // of the choice in an input's last two bytes

static bool armed, keep;
static size_t count, fail_at; // allocations since armed; the one that fails, 0 for none
static int plain_result;      // of the run without a failing allocation

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *s);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool must_fail(void) {
    if (!armed)
        return false;
    count++;
    return fail_at && (keep ? count >= fail_at : count == fail_at);
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

char *__wrap_strdup(const char *s) {
    return must_fail() ? NULL : __real_strdup(s);
}

// Stops the program when a result is not as it should be, and says what it was.
static void check_result(bool good, int rc, const struct err *e) {
    if (good)
        return;
    fprintf(stderr, "result %d, \"%s\" with code %d; ", rc, e->text, e->code);
    fprintf(stderr, "%d without a failing allocation; failing: %zu of %zu%s\n", plain_result,
            fail_at, count, keep ? " and all that follow" : "");
    __builtin_trap();
}

void fuzz_sentence(int rc, const struct err *e) {
    if (rc == 0)
        return;
    size_t n = strlen(e->text);
    bool good = rc < 0 && e->code == rc && n > 0 && utf8_valid(e->text, n);
    for (size_t i = 0; i < n; i++)
        good = good && (unsigned char)e->text[i] >= ' ' && e->text[i] != 0x7F;
    check_result(good, rc, e);
}

void fuzz_result(int rc, const struct err *e, bool fragile) {
    fuzz_sentence(rc, e);
    if (!fragile)
        plain_result = rc;
    check_result(fragile ? rc == plain_result || rc == ERR_MEMORY : rc != ERR_MEMORY, rc, e);
}

// failing: the allocation that fails, 0 for none; on: and all that follow.
static size_t run(const uint8_t *data, size_t size, size_t failing, bool on) {
    count = 0;
    fail_at = failing;
    keep = on;
    armed = true;
    fuzz_one(data, size, failing != 0);
    armed = false;
    return count;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    fuzz_setup();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    unsigned choice = size > 1 ? data[size - 2] | (unsigned)data[size - 1] << 8 : 0;
    size_t allocations = run(data, size, 0, false);
    if (allocations)
        run(data, size, 1 + choice % KEEP_FAILING % allocations, choice & KEEP_FAILING);
    return 0;
}

size_t fuzz_walk(const uint8_t *data, size_t size, size_t max) {
    size_t allocations = run(data, size, 0, false);
    size_t last = allocations < max ? allocations : max;
    for (size_t k = 1; k <= last; k++) {
        run(data, size, k, false);
        run(data, size, k, true);
    }
    return 1 + 2 * last;
}
