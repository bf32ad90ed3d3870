// SPDX-License-Identifier: Apache-2.0
// A golden target, converted, loaded and ready to run: what both golden tests start from.
#ifndef COPPICE_TESTS_GOLDEN_RIG_H
#define COPPICE_TESTS_GOLDEN_RIG_H

#include <stdint.h>

#include "formats/gguf/gguf.h"
#include "golden/golden.h"
#include "models/model.h"

struct rig {
    struct golden g;
    struct golden_files files;
    struct exec *x;
    struct gguf *file;
    struct model *m;
    struct forest f;
};

// Loads case `name` with F32 weights and F32 KV on the best CPU level.
// Fails the running test with the engine's own sentence when something goes wrong.
void rig_init(struct rig *r, const char *name);
void rig_fini(struct rig *r);

// Opens and loads one more file of the same target into r->file and r->m, and the reverse.
void rig_load(struct rig *r, const char *path);
void rig_unload(struct rig *r);

// A new sequence; fails the test on error.
struct sequence *rig_sequence(struct rig *r);

// Runs ids[from..to) as one prompt pass and stores the logits of all of them at rows[from..to)
// (host [][vocab]); rows NULL: none are requested.
void rig_prompt(struct rig *r, struct sequence *s, int from, int to, float *rows);

// Adds `by` to all ids from position `from` on (modulo the vocabulary): other tokens, whose traces
// must not survive a step back. The opposite `by` undoes it.
void rig_shift_ids(struct rig *r, int from, int by);

// Downloads n rows of device logits.
void rig_download(struct rig *r, float *dst, const float *src, int64_t n);

#endif
