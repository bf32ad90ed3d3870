// SPDX-License-Identifier: Apache-2.0
// Checkpoints as bytes, to keep in host memory or in files and to carry to another process. The
// form holds what the state is of, and is refused where a state made here would have other bits.
// It is described in docs/state.md.
#ifndef COPPICE_STATE_CHECKPOINT_H
#define COPPICE_STATE_CHECKPOINT_H

#include "ops/copier.h"
#include "state/sequence.h"
#include "state/stored.h"

// Fields of a stored checkpoint besides the state.
struct checkpoint_form {
    const char *identity; // of sequences of this spec (identity.h); not used where parts are apart
    int64_t vocab;
    int32_t *tail; // tokens after those whose state it is: written, or read (free() it)
    int64_t n_tail;
    // NULL, or what is kept apart from the form (stored.h): then the tokens are as well, which is
    // for reading: `tokens` holds [n_tokens] of them, and the checkpoint's must be the first.
    const struct stored_apart *apart;
    const int32_t *tokens;
    int64_t n_tokens;
};

// sink: called with pieces of any size. ERR_STATE: the checkpoint is invalid; ERR_DEVICE,
// ERR_MEMORY, and what the sink returns.
struct checkpoint_sink {
    stored_sink *sink;
    void *arg;
};
int checkpoint_write(const struct checkpoint *c, const struct checkpoint_form *f,
                     const struct checkpoint_sink *to, struct err *e);

// A checkpoint of sequences of this spec. f: its identity must be that of the bytes.
// Attachments that spec lacks are passed over, those that it has must be there. ERR_FORMAT: no
// checkpoint, cut off or damaged; ERR_UNSUPPORTED: another version of the form; ERR_MISMATCH: of
// another model, draft, codec, device or arithmetic; ERR_LIMIT: longer than max_len; ERR_MEMORY.
struct checkpoint_source {
    stored_source *source;
    void *arg;
};
int checkpoint_read(struct checkpoint **out, const struct sequence_spec *spec,
                    struct checkpoint_form *f, const struct checkpoint_source *from, struct err *e);

#endif
