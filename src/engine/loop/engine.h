// SPDX-License-Identifier: Apache-2.0
// The engine thread: it loads a session and owns it with all sequences and the batch. Any thread
// submits requests, which wait in a bounded queue; in each round the engine takes up what it has
// room for, runs one mixed pass over all members and publishes what came of it (stream.h). How
// requests are scheduled never changes what comes out (docs/exactness.md). It does not depend on
// text, connections or devices.
#ifndef COPPICE_ENGINE_LOOP_ENGINE_H
#define COPPICE_ENGINE_LOOP_ENGINE_H

#include "engine/loop/stream.h"

struct engine;

enum engine_state {
    ENGINE_LOADING,
    ENGINE_READY,
    ENGINE_FAILED,  // it could not load, or the device failed: all requests have ended
    ENGINE_STOPPED, // by engine_destroy
};

enum { ENGINE_QUEUE = 1024, ENGINE_SLOTS = 8, ENGINE_CHOICES = 128 };

struct engine_options {
    // What it points at must stay valid until the engine is destroyed. target.max_seqs is set to
    // `slots`.
    struct session_options session;
    // NULL, or an open one in place of `session`, with target.max_seqs of `slots` or more and a
    // plan (make_plan); it is the engine's until engine_destroy, and the caller's to close then.
    struct session *open;
    int slots; // requests that run together at most; 0: ENGINE_SLOTS
    int queue; // requests that wait for it at most; 0: ENGINE_QUEUE
    // Milliseconds between two steps of a running request that pieces of prompts may lead to; 0:
    // 100, or four steps without pieces where those take longer.
    double max_gap_ms;
    int64_t kv_limit; // bytes of keys and values of all requests at most; 0: what the plan leaves
    struct cache_options cache; // of states of texts that have been run; zeroed: none
    const char *trace;          // NULL, or a file for the passes in Chrome's trace-event format
    // NULL, or called in the engine thread when engine_state has changed.
    void (*changed)(void *arg);
    void *changed_arg;
};
struct engine_options engine_options_default(void);

// Starts the thread, which loads the model. ERR_MEMORY, ERR_USAGE; what goes wrong while loading is
// reported by engine_state.
int engine_create(struct engine **out, const struct engine_options *o, struct err *e);
// Ends all requests that have not ended, with ERR_STATE, and the thread. Streams outlive it. NULL
// is allowed.
void engine_destroy(struct engine *g);

// why: NULL, or filled with the sentence of ENGINE_FAILED.
enum engine_state engine_state(struct engine *g, struct err *why);
// NULL before ENGINE_READY. Other threads may use only what never changes: tokenizer, plan, limits
// and parameters of the model, its name.
const struct session *engine_session(struct engine *g);
// Tokens, prompt and reply together, of the longest request that fits; 0 before ENGINE_READY.
int64_t engine_context(struct engine *g);

// Waits until no pass runs, and keeps it so until engine_lend_end, while its session's weights are
// parked (session_options.park, lend). Any thread; several may lend at once. ERR_STATE: not
// ready, or it ends while this waits; ERR_MEMORY. engine_destroy waits for engine_lend_end.
int engine_lend(struct engine *g, struct err *e);
// ERR_MEMORY: they did not come back, and the engine fails.
int engine_lend_end(struct engine *g, struct err *e);

// Hands a request over. ERR_LIMIT: the queue is full, or it can never fit the memory; ERR_STATE:
// not ready, or ending; else as request_check. After an error there is no stream.
int engine_submit(struct engine *g, const struct stream_options *o, struct stream **out,
                  struct err *e);
// n choices, 1 to ENGINE_CHOICES, of one prompt: o[n] must agree in it, and differ at least in
// sample.choice or sample.seed. The prompt is run once. All are taken, or none.
int engine_submit_choices(struct engine *g, const struct stream_options *o, int n,
                          struct stream **out, struct err *e);

// Counts from the begin, and what there is now.
enum { ENGINE_ROW_BINS = 14, ENGINE_ACCEPT_BINS = TREE_MAX_DEPTH + 2 };
struct engine_stats {
    int running, waiting, parked, slots; // requests: members that are not parked, in the queue, ...
    int reading;                         // members whose prompt is being run
    int64_t page_bytes_used, page_bytes_limit; // of keys and values; limit 0: none
    int64_t pages;                             // on devices; cache: in host memory and on the disk
    int64_t taken, ended, failed, cancelled;   // requests
    int64_t passes, prompt_tokens, cached_tokens, tokens, drafted, accepted;
    int64_t parkings, dropped,
        recomputed;                // members parked, of these gave their pages up; tokens run again
    int64_t rows[ENGINE_ROW_BINS]; // passes of at most 2^i rows (and more than 2^(i-1))
    int64_t pass_rows;             // sum of rows of all passes
    int64_t accept[ENGINE_ACCEPT_BINS]; // steps of members that committed that many tokens
    struct cache_stats cache;           // zeros without one
    struct kv_host_stats kv_host;       // pages that attention reads from host memory
    struct expert_use experts;          // zeros where all are resident
    struct guess_counts guesses;        // of members' steps
    double pass_ms;                     // sum
    double gap_ms; // the longest time between two steps of one running member, the last ones' too
};
struct engine_stats engine_stats(struct engine *g);

#endif
