// SPDX-License-Identifier: Apache-2.0
// The inside of the engine, for its own files: engine.c (the thread and what other threads call),
// round.c (one round), admission.c (who may hold memory).
#ifndef COPPICE_ENGINE_LOOP_IMPL_H
#define COPPICE_ENGINE_LOOP_IMPL_H

#include <pthread.h>

#include "engine/loop/engine.h"
#include "engine/loop/scheduler.h"
#include "engine/loop/stream_impl.h"
#include "engine/loop/trace.h"

// A list of streams in the order of coming, linked by `next`.
struct stream_list {
    struct stream *first, *last;
};

struct engine {
    struct engine_options o;
    struct queue *queue;
    pthread_t thread;
    pthread_mutex_t lock;  // guards those down to `stats`
    pthread_cond_t turned; // one of the next six has changed
    int lent;              // threads in engine_lend or after it: no round begins
    bool in_round;         // the engine thread has the session's memory
    bool due;              // it waits for that: it is not lent anew before the round has had it
    bool moving;           // a thread parks the session or brings it back, without the lock
    bool away;             // the session is parked
    bool ending;           // the thread winds up: nothing is lent any more
    struct err lost;       // what did not come back, with its code; 0: all has
    enum engine_state state;
    struct err failure;
    struct session *session; // set once; afterwards the engine thread's, but for what never changes
    struct engine_stats stats; // as of the last round

    // Of the engine thread:
    struct batch *batch;
    struct cache *cache; // NULL: none
    struct stream_list waiting;
    struct stream **members; // [n_members] in the order of joining: the last one is the youngest
    int n_members;
    struct sequence **free_sequences; // [n_free_sequences] empty ones, for those that join
    int n_free_sequences;
    struct pass_slice *slices;    // [slots] of the next pass,
    struct stream **slice_of;     // [slots] whose they are
    struct prompt_slice *prompts; // [slots]
    int n_slices;
    bool stalled;     // no member can go on before a file has been read
    bool stuck;       // the last pass that was planned came to nothing for lack of memory
    int64_t masks;    // turns of members at masks that take much work
    int64_t isolated; // passes of one member alone, after failures
    bool together;    // the next one is of those that need not be alone
    struct engine_stats now;
    double step_ms, draft_ms; // means of recent steps without pieces, and of their drafts
    double guesses;           // mean rows of guesses of a decoding member
    int64_t limit_rows;       // of the passes with pieces so far
    struct trace *trace;      // NULL: none
};

// Takes up what there is room for, runs one pass and publishes what came of it. ERR_DEVICE: no
// member can go on; what else fails ends those whose failure it is. Nothing is left to do when
// there are neither members nor waiting streams.
int engine_round(struct engine *g, struct err *e);
// Ends all members and waiting streams with an error.
void engine_end_all(struct engine *g, const struct err *e);

// Whether there is room for a stream that waits: for its text besides what the members still need.
bool room_to_join(const struct engine *g, const struct stream *s);
// Lets parked members go on, the oldest first, as far as there is room and their states are in
// memory.
void room_resume(struct engine *g);
// Reserves what the slices of the next pass need, the oldest first; where memory does not suffice,
// the youngest members are parked and their slices removed from g->slices. NULL: all is reserved;
// else a member that cannot go on, e says why: it must leave, or begin again where its state is
// invalid, and the rest be reserved again.
struct stream *room_reserve(struct engine *g, struct err *e);
// An empty sequence that is left over; NULL: none. And keeps one, emptied, or destroys it: making a
// state takes longer than using it again.
struct sequence *room_take_free_sequence(struct engine *g);
void room_free_sequence(struct engine *g, struct sequence *seq);
void room_drop_spares(struct engine *g);
// Destroys one where as many states are held as there are slots, before a sequence is forked.
void room_for_fork(struct engine *g);
// Whether a stream may begin, or what is known of it is still being read from a file.
bool cached_ready(struct engine *g, const struct stream *s);
// The prefix cache, where there is one (admission.c). Puts what is known of a stream's prompt
// into an empty sequence, which it makes where *own is NULL and something is known.
void cached_begin(struct engine *g, struct stream *s, struct sequence **own);
// Where its checkpoints are to be made, and by whom they are taken.
void set_checkpoint_positions(struct engine *g, struct stream *s, struct request *r, int64_t from);
// Keeps the state of a member as it is now.
void cached_keep(struct engine *g, const struct stream *s);
// Puts what host memory has of a text back whose state was dropped or given up.
void cached_again(struct engine *g, struct stream *s);
// A member leaves: nothing of it is held in host memory any more.
void room_leave(struct engine *g, struct stream *s);

// Keeps the prompt of a group for those of it that have not joined.
void room_keep_prefix(struct engine *g);
void room_drop_prefix(struct group *p);
void group_drop(struct group *p); // one reference; NULL is allowed

#endif
