// SPDX-License-Identifier: Apache-2.0
// The inside of a checkpoint, for checkpoint*.c only.
#ifndef COPPICE_STATE_CHECKPOINT_IMPL_H
#define COPPICE_STATE_CHECKPOINT_IMPL_H

#include "state/sequence.h"

struct checkpoint {
    struct sequence_spec spec;
    uint64_t written; // as of a sequence
    int32_t *tokens;  // [len]
    int64_t len;
    int64_t sparse_end;
    struct kv kv[SEQ_GROUPS];
    struct recurrent_save recurrent;
    struct attachment *attached[SEQ_ATTACHED];
};

#endif
