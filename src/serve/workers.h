// SPDX-License-Identifier: Apache-2.0
// A few threads that take jobs from a bounded queue, first come first served: what is too slow for
// the loop (reading JSON, rendering templates, tokenising). Jobs tell their result by http_post or
// the like; there is no waiting for one.
#ifndef COPPICE_SERVE_WORKERS_H
#define COPPICE_SERVE_WORKERS_H

#include "base/err.h"

struct workers;

// threads >= 1; at most `queue` >= 1 jobs wait. ERR_USAGE, ERR_MEMORY (the system gives no
// threads).
int workers_create(struct workers **out, int threads, int queue, struct err *e);
// Any thread: has fn(arg) run. ERR_LIMIT: the queue is full, fn will not run.
int workers_run(struct workers *w, void (*fn)(void *), void *arg, struct err *e);
// Jobs that wait now; any thread.
int workers_waiting(struct workers *w);
// Runs what waits, then ends the threads. Nothing may be given to them any more.
void workers_destroy(struct workers *w);

#endif
