// SPDX-License-Identifier: Apache-2.0
// The inside of a stream, and the queue in which other threads leave new ones for the engine
// thread, with the wish to be looked at. Streams refer to the queue, so it is kept until the last
// of them has gone.
#ifndef COPPICE_ENGINE_LOOP_STREAM_IMPL_H
#define COPPICE_ENGINE_LOOP_STREAM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "engine/batch/batch.h"
#include "engine/loop/stream.h"

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

// Choices of one prompt; of the engine thread once they are submitted.
struct group {
    int refs;                // streams that refer to it
    int waiting;             // of these have not joined nor ended
    struct stream *first;    // that reads the prompt; NULL: none yet, or it is done
    struct sequence *prefix; // the prompt but for its last token; NULL: not yet, or given up
};

struct stream {
    atomic_int refs; // the submitter's and the engine's
    struct queue *queue;
    struct stream_options o; // of the stream's own:
    int32_t *prompt;
    struct logit_bias *bias;
    int32_t *stop_ids;
    int64_t *positions;
    struct reply reply;     // the engine thread writes, and publishes:
    atomic_llong published; // tokens of it that are whole,
    atomic_llong done;      // tokens of the prompt that have been run,
    atomic_int phase;       // enum stream_phase,
    struct stream_end end;  // written before the phase becomes STREAM_ENDED
    atomic_bool cancelled;
    atomic_bool queued;      // it counts among those that wait
    atomic_bool notified;    // the reader has been notified and has not looked since
    pthread_mutex_t calls;   // held while one of the submitter's functions runs
    bool released;           // under `calls`: none of them may be called
    pthread_mutex_t views;   // guards the ring:
    struct tree_event *ring; // [STREAM_TREES], NULL: not requested
    int ring_first, ring_n;
    int64_t lost;
    // Of the engine thread:
    struct stream *next;           // in a queue
    struct job *job;               // while it is a member
    struct group *group;           // NULL: none
    struct engine *engine;         // from joining on
    int64_t *checkpoint_positions; // positions of its checkpoints
    struct cache_report cache;
    double submitted, joined, chosen; // clock_ms of; 0: not yet (chosen: of the first token)
    double stepped;                   // clock_ms of its last decoding step
    bool parked;
    struct cache_hold hold; // of a parked one that has given its pages up
    int faults;             // failed passes that it took part in
    int isolated;           // steps that it takes alone for that, from now on
    int64_t isolated_last;  // the engine's count of such passes when it had its last one
    int64_t mask_seen;      // job_mask_work after its last pass
    int64_t mask_took;      // what its next masks are expected to take
    int64_t mask_last;      // the engine's count of turns at masks when it had its last one
    int mask_slices;        // whole rounds that its present mask has had
    bool mask_waits;        // the next pass is without its masks, which are not made yet
    int64_t restarted; // tokens of its text when its state was dropped to make room (admission.c)
};

enum { STREAM_TREES = 512 }; // events kept for a slow reader, or one that comes late

int stream_create(struct stream **out, const struct stream_options *o, struct queue *q,
                  struct err *e);
void stream_drop(struct stream *s); // one reference
// The submitter's `stop`, unless it has gone; arg: the stream. A walk_stop_fn.
bool stream_stops(void *arg, int32_t id);

// Publishes the reply as it is now, and notifies the reader.
void stream_publish(struct stream *s, enum stream_phase phase);
// Publishes that it has ended. e: NULL, or the error.
void stream_finish(struct stream *s, enum end_reason reason, const struct err *e);
// Keeps the tree of its last step, which m describes, where trees were requested.
void stream_keep_tree(struct stream *s, const struct member *m);

#endif
