// SPDX-License-Identifier: Apache-2.0
// One request on its way through the engine thread, as its submitter sees it: what has been
// published so far, where it stands, how it ended. The engine thread writes the reply and publishes
// how much of it is whole; the reply itself is the buffer, so that a slow or vanished reader costs
// nothing but the memory that its answer takes anyway. Any thread may call these functions; those
// of one stream from one thread at a time, except stream_cancel.
#ifndef COPPICE_ENGINE_LOOP_STREAM_H
#define COPPICE_ENGINE_LOOP_STREAM_H

#include "engine/batch/request.h"
#include "engine/cache/cache.h"

struct stream;

// Something new can be read. Called in the engine thread, and not again before stream_ended or
// stream_tokens has been called; must not block, and may read the stream but not release it.
typedef void stream_notify_fn(void *arg);

struct stream_options {
    // Prompt and biases are copied, and a constraint is kept, which only streams of this engine may
    // share; prefix, in_place, tokens, progress and checkpoints must not be
    // set. `stop` is called in the engine thread and must not block. After the stream has ended or
    // been released neither it nor `notify` is called.
    struct request r;
    stream_notify_fn *notify; // NULL: none
    void *notify_arg;
    bool trees; // keep the trees of its steps for stream_tree
    // Places of the prompt where other texts are likely to part from it, rising, for the prefix
    // cache; copied.
    struct cache_positions positions;
};

enum stream_phase {
    STREAM_QUEUED,   // nothing has been done yet
    STREAM_READING,  // its prompt is being run
    STREAM_DECODING, // it chooses tokens
    STREAM_PARKED,   // it rests until there is memory for it
    STREAM_ENDED,
};
const char *stream_phase_name(enum stream_phase p); // "queued", "reading", ...

struct stream_progress {
    enum stream_phase phase;
    int64_t prompt, done; // tokens of the prompt; of these have been run
    int64_t tokens;       // new tokens published
};
struct stream_progress stream_progress(const struct stream *s);

// How many new tokens have been published in all; *ids: [that many], valid and unchanging until
// stream_release. To read all of an answer, call stream_ended first and stream_tokens then: all
// tokens are published before the end is.
int64_t stream_tokens(struct stream *s, const int32_t **ids);

// How it ended and what it took.
struct stream_end {
    enum end_reason reason;    // END_NONE where rc is not 0; END_CALLER: cancelled
    int rc;                    // 0, or an error,
    struct err err;            // with its sentence; the tokens before it are published
    int64_t prompt, cached;    // tokens of the prompt; of these did not have to be run
    int64_t tokens, steps;     // new ones; passes that chose them after the prompt's
    int64_t drafted, accepted; // guesses verified; of these became tokens
    struct guess_counts guesses;
    int64_t recomputed;        // tokens run again because their memory had been needed
    uint64_t hash;             // logit_hash
    struct cache_report cache; // what was found of it, and why not more
    double queue_ms;           // until it was taken up,
    double prompt_ms;          // from then to the first token,
    double decode_ms;          // from then to the end
};
bool stream_ended(struct stream *s, struct stream_end *end); // end: NULL is allowed

// The reply, of which only the first stream_tokens tokens and what belongs to them may be read.
const struct reply *stream_reply(const struct stream *s);

// The tree of one step, for a live view.
struct tree_event {
    int64_t step;  // 0 is the first after the prompt
    int64_t token; // new tokens before it
    int n, path;   // rows, the root first; rows walked over, the root among them
    int32_t bonus; // the choice of the last row walked over: the next root
    int32_t id[TREE_MAX_ROWS];
    int16_t parent[TREE_MAX_ROWS];  // -1: the root
    int16_t on[TREE_MAX_DEPTH + 1]; // [path] rows walked over
};
// Takes the oldest kept event out; false where there is none. *lost: events dropped so far because
// none was taken in time.
bool stream_tree(struct stream *s, struct tree_event *out, int64_t *lost);

// Ends it within a pass; nothing happens where it has ended.
void stream_cancel(struct stream *s);

// Gives the submitter's stream back, cancelled where it has not ended. Not from its callbacks. NULL
// is allowed.
void stream_release(struct stream *s);

#endif
