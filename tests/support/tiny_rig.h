// SPDX-License-Identifier: Apache-2.0
// A random tiny model (and draft) written to a temporary folder, loaded and ready to run, with the
// few operations that tests of models, speculation and state repeat. Every failure fails the
// running cmocka test with the library's own sentence.
#ifndef COPPICE_TESTS_SUPPORT_TINY_RIG_H
#define COPPICE_TESTS_SUPPORT_TINY_RIG_H

#include "models/draft/dflash/dflash.h"
#include "models/model.h"
#include "support/tiny_gguf.h"

struct tiny_rig {
    struct tiny_shape shape;
    struct tiny_draft_shape draft_shape;
    char dir[64], target_path[96], draft_path[96];
    struct exec *x;
    struct gguf *g;
    struct model *m;
    struct dflash *d; // NULL without a draft
    struct forest f;
    struct err e;
};

// draft: NULL for none; o: NULL for F32 K/V and defaults; level and threads as for exec_create_cpu.
void tiny_rig_open(struct tiny_rig *r, const struct tiny_shape *shape,
                   const struct tiny_draft_shape *draft, const struct model_options *o,
                   const char *level, int threads);
void tiny_rig_close(struct tiny_rig *r);

struct sequence *tiny_rig_sequence(struct tiny_rig *r);

// Runs tokens[0..n) after sequence s in prompt passes of at most `chunk` rows. all: room for
// [n][vocab] logits of every row, or NULL; last: [vocab] logits of the last row, or NULL.
void tiny_rig_prompt(struct tiny_rig *r, struct sequence *s, const int32_t *tokens, int64_t n,
                     int64_t chunk, float *all, float *last);

// Host copies of the target's wanted rows first .. first + n - 1, of rows of the draft.
void tiny_rig_logits(struct tiny_rig *r, int64_t first, int64_t n, float *host);
void tiny_rig_draft_logits(struct tiny_rig *r, int64_t first, int64_t n, float *host);

// What the target and the draft say after token 5. Leaves the sequence one token longer.
struct tiny_answer {
    float target[TINY_VOCAB], draft[TINY_VOCAB]; // logits
};
struct tiny_answer tiny_rig_ask(struct tiny_rig *r, struct sequence *s);

// n random token ids below the vocabulary.
void tiny_rig_tokens(const struct tiny_rig *r, uint64_t seed, int32_t *tokens, int64_t n);

// A random tree of n rows after sequence s into r->f (every row wanted). depth: the maximum.
void tiny_rig_tree(struct tiny_rig *r, const struct sequence *s, uint64_t seed, int n, int depth);

#endif
