// SPDX-License-Identifier: Apache-2.0
// Makes pinned host memory on a thread of its own, and gives it back there: the system takes some
// 0.4 ms for each MB, in which whoever asks for it would hold up everybody's next step.
#ifndef COPPICE_STATE_HOST_MAKER_H
#define COPPICE_STATE_HOST_MAKER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct exec;
struct host_maker;

// x must outlive it. ERR_MEMORY, also where there is no thread to be had.
int host_maker_create(struct host_maker **out, struct exec *x, struct err *e);
void host_maker_destroy(struct host_maker *m); // what was not collected is freed; NULL is allowed

// Asks for a block of so many bytes, in order; false: no memory to remember it.
bool host_maker_ask(struct host_maker *m, size_t bytes);
// Gives memory of exec_host_alloc back to the system before anything else is made. Where it cannot
// be remembered it is given back at once.
void host_maker_free(struct host_maker *m, void *p);
// The next answer, if there is one: its bytes, and the block or NULL where there was no memory.
bool host_maker_collect(struct host_maker *m, size_t *bytes, void **p);

#endif
