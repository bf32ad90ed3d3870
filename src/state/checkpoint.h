// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint, to keep in host memory (ram_copy.h) or in files (record.h): a small
// serial form, and apart from it bytes of devices and pages of groups. What they are of is said by
// who keeps them (identity.h).
#ifndef COPPICE_STATE_CHECKPOINT_H
#define COPPICE_STATE_CHECKPOINT_H

#include "base/str.h"
#include "state/sequence.h"
#include "state/stored.h"

// Appends the form; apart is called with everything else. ERR_STATE: the checkpoint is invalid;
// ERR_MEMORY.
int checkpoint_put(const struct checkpoint *c, const struct stored_apart *apart, struct str *form,
                   struct err *e);
// Waits for what has been queued on any of its devices. ERR_DEVICE, ERR_MEMORY: it failed.
int checkpoint_wait(const struct checkpoint *c, struct err *e);

// A checkpoint of sequences of this spec, of parts of the same identity. ERR_FORMAT: they are cut
// off or damaged; ERR_LIMIT: longer than max_len; ERR_MEMORY, ERR_DEVICE, and what apart returns.
struct checkpoint_parts {
    int64_t len, sparse_end;
    const int32_t *tokens;     // [len]
    const unsigned char *form; // [form_bytes]
    size_t form_bytes;
};
int checkpoint_get(struct checkpoint **out, const struct sequence_spec *spec,
                   const struct checkpoint_parts *from, const struct stored_apart *apart,
                   struct err *e);

#endif
