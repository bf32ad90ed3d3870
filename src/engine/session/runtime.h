// SPDX-License-Identifier: Apache-2.0
// What stands above sessions: the devices of this process, each opened once and found again by its
// name, host memory that copies run from and to, and a queue of copies concurrently with the ops.
// Each device has one memory budget: how much may be taken, and who has reserved how much of it for
// what. Several models may be loaded on a device at once, a scorer next to a target: each is
// planned in what the others leave, reserves its memory first and takes no more than that. One
// thread uses a device and what is loaded on it at a time.
#ifndef COPPICE_ENGINE_SESSION_RUNTIME_H
#define COPPICE_ENGINE_SESSION_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "ops/ops.h"

struct reservation {
    char who[160];              // for sentences: the model's file
    int64_t bytes[EXEC_ARENAS]; // by what they are for
    struct reservation *next;
};

// Zeroed: nothing is reserved.
struct reservations {
    struct reservation *all; // the newest first
    int64_t own;             // what the backend has for itself, for all of them
};

int64_t reservation_bytes(const struct reservation *c);
int64_t reservations_total(const struct reservations *c); // own included

// Puts the same after the sentence in e, if there are any.
void reservations_blame(const struct reservations *c, struct err *e);

struct runtime;
struct runtime_device;

// Zero, NULL and "auto" leave a thing open: when the device is open already, they take it as it is.
struct device_options {
    const char *name;      // "auto", "cpu", "cuda" or "cuda:N"
    const char *cpu_level; // "auto", or a name of docs/ops.md: not above it
    int threads;           // 0: all usable CPUs
    enum cuda_path cuda_path;
    int64_t vram_limit;   // bytes that may be taken if it is a GPU; 0: all that are free
    int64_t memory_limit; // bytes that may be taken if it is the CPU; 0: no limit is known
    bool timing;          // its ops can be timed (ops/observe/timing.h)
    bool importance;      // inputs of its matrices are summed (ops/observe/importance.h)
    void (*note)(void *arg, const char *sentence); // NULL, or called with messages for the user
    void *note_arg;
};

int runtime_create(struct runtime **out, struct err *e);
void runtime_destroy(struct runtime *r); // after all that uses its devices; NULL is allowed

// The device of that name; it stays open until runtime_destroy. Opened now, with these options, or
// found again. ERR_STATE: it is open with other options. Else as device_choose and the backends.
int runtime_device(struct runtime *r, const struct device_options *o, struct runtime_device **out,
                   struct err *e);

struct exec *runtime_exec(const struct runtime_device *d);
bool runtime_limited(const struct runtime_device *d); // whether a limit of its memory is known

// Bytes that are not reserved yet, at least 1; 0: no limit is known.
int64_t runtime_available(const struct runtime_device *d);
// Reserves memory, for what->who, before it is taken. own: what the backend needs for itself with
// this model; it keeps the most that anybody needed. available: what runtime_available said when
// the reservation was made, since other programs take memory and give it back at any time.
// ERR_MEMORY says who holds the rest.
int runtime_reserve(struct runtime_device *d, const struct reservation *what, int64_t own,
                    int64_t available, struct reservation **out, struct err *e);
void runtime_release(struct runtime_device *d, struct reservation *c); // NULL is allowed
// What the backend has for itself so far, and what is reserved.
const struct reservations *runtime_reservations(const struct runtime_device *d);

// "1.25 GiB", "3.00 MiB" of bytes.
enum { SIZE_TEXT = 32 };
void size_text(char text[SIZE_TEXT], int64_t bytes);

#endif
