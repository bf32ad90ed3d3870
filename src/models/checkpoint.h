// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a model's sequences as records (state/record.h), in any sink and in files.
#ifndef COPPICE_MODELS_CHECKPOINT_H
#define COPPICE_MODELS_CHECKPOINT_H

#include "models/model.h"
#include "state/record.h"

struct gguf;
const struct gguf *model_file(const struct model *m);
// A hash of the model's file, of every byte (content_whole). Read once, when it is first requested.
uint64_t model_content(struct model *m);

// Appends what its sequences' state is of (state/identity.h). content: model_content, or 0 where
// that is not known yet.
struct str;
void model_identity(const struct model *m, uint64_t content, struct str *text);

// Tokens after those whose state a checkpoint has: written with it, or read (free ids).
struct token_tail {
    int32_t *ids;
    int64_t n;
};

// tail: NULL for none. Errors as of record_save and record_load.
int model_checkpoint_write(struct model *m, const struct checkpoint *c,
                           const struct token_tail *tail, const struct record_sink *to,
                           struct err *e);
// tail: NULL if it is not wanted.
int model_checkpoint_read(struct model *m, struct checkpoint **out, struct token_tail *tail,
                          const struct record_source *from, struct err *e);

// The same with a file. It is written next to `path`, brought to the disk and renamed, so that
// `path` is whole or as it was before. ERR_IO.
int model_checkpoint_save(struct model *m, const struct checkpoint *c,
                          const struct token_tail *tail, const char *path, struct err *e);
int model_checkpoint_load(struct model *m, const char *path, struct checkpoint **out,
                          struct token_tail *tail, struct err *e);

#endif
