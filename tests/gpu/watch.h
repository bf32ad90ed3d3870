// SPDX-License-Identifier: Apache-2.0
// Finds launches whose description lies (ops/launch_order.h), on a device. While it watches, it
// stands in for gpu_queue and for what takes and fills device memory, and runs each launch that may
// begin early twice from the same memory: once after everything, and once concurrently with a
// kernel that lets it begin, holds it in its wait and keeps back what it may not have read: the
// results of launches that may still run then have their old values, and all that launches ever
// wrote of other kinds than it says that it reads early is poison. Both must leave the same bits,
// nothing may have been written while it was held, and a launch after it may only have begun if it
// says so.
#ifndef COPPICE_TESTS_GPU_WATCH_H
#define COPPICE_TESTS_GPU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct watch_counts {
    int64_t launches, early; // all, and those that were held
    int64_t beside;          // of these besides results that were kept back
    int64_t loose;           // leave other bits each time, so that nothing can be said
    int64_t read;            // read what was kept back: their bits were others
    int64_t wrote;           // wrote in front of their wait
    int64_t let;             // let the next one begin ahead and did not say so
};

// From now on: of memory that is taken from now on, up to `bytes` of it. False: there is no device
// whose launches overlap, or too little memory.
bool watch_begin(int64_t bytes);
bool watch_on(void);
// What was seen since the last call; text: of the first lies (may be empty), valid until the next.
struct watch_counts watch_take(const char **text);
// From now on descriptions of all launches leave out such kinds that they read early: so that a
// test checks whether that is found.
void watch_leave_out(unsigned early);

#ifdef __cplusplus
}
#endif

#endif
