// SPDX-License-Identifier: Apache-2.0
// A fixed pool of threads that runs one range job at a time. The caller is worker 0.
// Workers spin briefly between jobs and then sleep. Results must not depend on the split.
#ifndef COPPICE_BASE_POOL_H
#define COPPICE_BASE_POOL_H

#include <pthread.h>
#include <stdint.h>

#include "base/err.h"

struct pool;

// Runs items [begin, end) of a job; worker is 0 .. pool_threads()-1.
typedef void pool_fn(void *arg, int64_t begin, int64_t end, int worker);

// threads: 1..256, or 0 for the CPUs that affinity and control group leave us.
// Errors: ERR_USAGE (out of range), ERR_MEMORY (the system gives no more threads).
int pool_create(struct pool **out, int threads, struct err *e);
int pool_threads(const struct pool *p);

// Splits [0, n) into pieces of `grain` items (the last may be shorter), hands them to the
// workers and returns when all are done. A worker begins with the same part of [0, n) in every job
// of one shape and helps with the others' parts when its own is done. One call may cover several
// pieces: begin is a multiple of grain, end - begin need not be. Runs inline as one call when one
// piece or one thread suffices.
// Not reentrant: fn must not use the pool, and only one thread may call.
void pool_run(struct pool *p, int64_t n, int64_t grain, pool_fn *fn, void *arg);

void pool_destroy(struct pool *p);

// Starts a thread besides those of pools. It takes no signals but those of its own faults and of
// profilers, as workers do: the others belong to the thread that waits for them, which they could
// not wake from elsewhere. 0, or the error as pthread_create gives it. The mask is inherited, so
// the caller has it meanwhile.
int pool_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
