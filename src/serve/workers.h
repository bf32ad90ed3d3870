// SPDX-License-Identifier: Apache-2.0
// A few threads that take jobs from a bounded queue: what is too slow for the loop (reading JSON,
// rendering templates, tokenising). A job says how many bytes it works on, and short work does not
// wait for long work: the shortest of three classes goes first, one of several threads takes
// only that, and the longest has threads of its own, which run at a lower priority than the loop
// and the engine. Within a class it is first come, first served. A job that turns out to be long
// whatever its bytes are steps aside: its thread goes on as those of the longest class, in one
// order with what waits for them, and another one takes its place. Jobs tell their result by
// http_post or the like; there is no waiting for one.
#ifndef COPPICE_SERVE_WORKERS_H
#define COPPICE_SERVE_WORKERS_H

#include <stddef.h>

#include "base/err.h"

struct workers;

enum { WORKERS_SHORT = 64 << 10, WORKERS_LONG = 1 << 20 }; // bytes: up to that, from that on
enum { WORKERS_ASIDE = 64 };                               // jobs that have stepped aside, at most

// threads >= 1, besides those for the longest class, half as many; at most `queue` >= 1 jobs wait.
// ERR_USAGE, ERR_MEMORY (the system gives no threads).
int workers_create(struct workers **out, int threads, int queue, struct err *e);
// Any thread: has fn(arg) run, which works on that many bytes. ERR_LIMIT: the queue is full, fn
// will not run.
int workers_run(struct workers *w, size_t bytes, void (*fn)(void *), void *arg, struct err *e);
// By a job, from time to time: where it has taken `ms` or more of processor time since
// workers_mark, or since it began, it steps aside; only once, and what is of the longest class
// never does. Any other thread: nothing. ERR_LIMIT: too many jobs have, and this one should end.
int workers_step_aside(struct workers *w, double ms, struct err *e);
void workers_mark(struct workers *w);
// Jobs that wait now; any thread.
int workers_waiting(struct workers *w);
// Runs what waits, then ends the threads. Nothing may be given to them any more.
void workers_destroy(struct workers *w);

#endif
