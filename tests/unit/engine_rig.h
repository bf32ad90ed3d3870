// SPDX-License-Identifier: Apache-2.0
// An engine on a random tiny pair next to a session of the same pair, which says what each request
// gives alone, for tests of the engine thread. Whatever should not happen fails the running test.
#ifndef COPPICE_TESTS_UNIT_ENGINE_RIG_H
#define COPPICE_TESTS_UNIT_ENGINE_RIG_H

#include <pthread.h>

#include "base/rng.h"
#include "engine/loop/engine.h"
#include "support/tiny_gguf.h"

enum { RIG_CONTEXT = 1024, RIG_MAX = 12, RIG_LONGEST = 512 };

struct engine_rig {
    struct tiny_pair files;
    struct session *session;
    struct runtime *runtime; // of engines; NULL: they have their own
    struct memory_plan plan; // of one sequence
    int32_t prompt[RIG_MAX][RIG_LONGEST];
    struct request r[RIG_MAX];
    struct reply alone[RIG_MAX];
    int n;
    // Notices of streams and of the engine, for the test's thread to wait for.
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t notices;
    pthread_mutex_t gate; // for tests that hold the engine up
    int64_t park;         // bytes that its session lends
    int chunk;            // most prompt tokens of a pass in engines; 0: the default
};

// n requests of all ways of guessing, with random prompts of these lengths, and their replies of
// at most max_tokens. 0, or -1 for a setup function.
int rig_open(struct engine_rig *f, const char *name, const int *lengths, int n, int64_t max_tokens);
// The same with a target of that shape and its draft.
int rig_open_as(struct engine_rig *f, const char *name, const struct tiny_shape *t,
                const int *lengths, int n, int64_t max_tokens);
void rig_close(struct engine_rig *f);

// Paths and sizes of the pair are set in *o. Waits until the engine is ready.
struct engine *rig_engine(struct engine_rig *f, struct engine_options *o);
void rig_notice(void *arg); // the rig: a stream_notify_fn
// Waits until there have been more than `seen` notices; how many there have been by then.
int64_t rig_wait(struct engine_rig *f, int64_t seen, const char *what, const char *file, int line);
// Looks at a condition at every notice until it holds.
#define RIG_UNTIL(f, condition)                                                                    \
    for (int64_t seen_ = 0; !(condition);)                                                         \
    seen_ = rig_wait(f, seen_, #condition, __FILE__, __LINE__)

struct stream *rig_submit(struct engine_rig *f, struct engine *g, const struct request *r);
struct stream_end rig_end(struct engine_rig *f, struct stream *s); // waits for it
// Waits until that many tokens are published, or it has ended.
void rig_tokens(struct engine_rig *f, struct stream *s, int64_t n);
void rig_same(struct stream *s, const struct stream_end *end, const struct reply *want);

#endif
