// SPDX-License-Identifier: Apache-2.0
// What a fuzz target implements, and what helps it. The driver calls fuzz_one twice with every
// input: once as it is, and once with an allocation failing that the input's last two bytes choose.
// A target frees all it makes, returns normally from every error, and uses FUZZ_CHECK for what must
// hold. It does not decide which inputs are tried.
#ifndef COPPICE_TESTS_FUZZ_FUZZ_H
#define COPPICE_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// fragile: an allocation may fail, so ERR_MEMORY is no finding.
void fuzz_one(const uint8_t *data, size_t size, bool fragile);

// Called once before the first input, with no allocation failing.
void fuzz_setup(void);

#define FUZZ_CHECK(x) ((x) ? (void)0 : __builtin_trap())

// What a target reports about the result of its first call into the library, once a run: a refusal
// must be one sentence with its code; without a failing allocation memory is no reason; and with
// one, the result is that of the run without, or ERR_MEMORY.
void fuzz_result(int rc, const struct err *e, bool fragile);
// The part of it that concerns the sentence alone, for every further call.
void fuzz_sentence(int rc, const struct err *e);

// Runs an input with each of its first `max` allocations failing, alone and with all that follow.
// Returns how many runs that took.
size_t fuzz_walk(const uint8_t *data, size_t size, size_t max);

// One part of an input that stands for several files: "==" LETTER ":" and the bytes up to the next
// such mark.
struct fuzz_part {
    char letter; // A to Z, a to z
    const uint8_t *data;
    size_t size;
};
// Takes the next part off the input; false when none is left. What stands before the first mark is
// passed over.
bool fuzz_part(const uint8_t **data, size_t *size, struct fuzz_part *part);
bool fuzz_has_parts(const uint8_t *data, size_t size);

// A folder of this process alone, gone when it ends. Files and folders in it are named relative to
// it; clearing removes all.
const char *fuzz_folder(void); // its path
void fuzz_folder_write(const char *name, const uint8_t *data, size_t size);
void fuzz_folder_clear(void);

// A file in memory that holds the input, and its path.
struct fuzz_file {
    int fd;
    char path[32];
};
void fuzz_file_open(struct fuzz_file *f, const uint8_t *data, size_t size);
void fuzz_file_close(struct fuzz_file *f);

#endif
