// SPDX-License-Identifier: Apache-2.0
// What other threads leave for the engine thread: new streams, bounded, and the wish to be looked
// at. Streams refer to it, so it lives until the last of them has gone.
#ifndef COPPICE_ENGINE_LOOP_QUEUE_H
#define COPPICE_ENGINE_LOOP_QUEUE_H

#include <stdbool.h>

#include "base/err.h"

struct queue;
struct stream;

// limit: streams that wait at most: not begun, be they taken over by the engine or not, nor
// cancelled.
int queue_create(struct queue **out, int limit, struct err *e);
struct queue *queue_keep(struct queue *q); // another reference
void queue_drop(struct queue *q);          // NULL is allowed

// Refuses what is pushed from now on with this code and sentence; 0: nothing.
void queue_refuse(struct queue *q, int rc, const char *why);
// n streams, linked by their `next`; all or none. ERR_LIMIT: full; or as queue_refuse says.
int queue_push(struct queue *q, struct stream *first, struct stream *last, int n, struct err *e);
void queue_wake(struct queue *q);
void queue_end(struct queue *q); // the engine thread is to end

// In the engine thread: all that has been pushed, in order, and NULL; waits for something to do
// where `wait`. *end: queue_end has been called.
struct stream *queue_take(struct queue *q, bool wait, bool *end);
// A stream that has been pushed does not wait any more: it has begun, has ended or is cancelled,
// whichever comes first. From any thread.
void queue_leave(struct queue *q, struct stream *s);
int queue_waiting(struct queue *q);

#endif
