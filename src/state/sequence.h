// SPDX-License-Identifier: Apache-2.0
// One conversation's committed tokens and everything cached for them: target KV, recurrent state,
// draft KV, and the features of tokens that the draft has not absorbed yet. A sequence can be cut
// back, saved, restored and forked; a rejected guess never reaches it. Every resume point is a
// multiple of 32 (or the present length). A failed call leaves the sequence as it was.
//
// Ops tell of a failure only at the next exec_status (ops.h). A sequence whose state was being
// written in a stretch that failed is spoilt, and so is what was forked, saved or restored in it:
// every later call with it is refused with ERR_STATE. It can only be destroyed; its tokens have to
// be run again in another one.
#ifndef COPPICE_STATE_SEQUENCE_H
#define COPPICE_STATE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "state/kv.h"
#include "state/recurrent.h"

// Features kept back before the draft must absorb them; draft groups (full and window).
enum { SEQ_PENDING = 64, SEQ_DRAFT_GROUPS = 2 };

// What a sequence consists of; model_sequence() fills it from the model and its draft.
struct sequence_spec {
    struct exec *x;
    struct kv_pool *target; // NULL: no attention layers
    struct gdn_shape shape;
    int n_recurrent;     // Gated DeltaNet layers
    int64_t feature_dim; // floats per token of the draft's features; 0: no draft
    int n_draft;         // draft KV groups in use
    struct kv_pool *draft[SEQ_DRAFT_GROUPS];
    int64_t draft_window[SEQ_DRAFT_GROUPS]; // 0: full attention
    int64_t max_len;                        // context limit, tokens
};

// Fields are for the layers above to read; only models and state write them.
struct sequence {
    struct sequence_spec spec;
    int32_t *tokens; // [len]
    int64_t len, cap;
    uint64_t version; // grows with every change of the committed tokens
    uint64_t written; // exec_stretch when its state was last written
    struct kv target;
    struct recurrent recurrent;
    struct kv draft[SEQ_DRAFT_GROUPS];
    int64_t draft_len; // positions whose K and V are in the draft groups
    float *pending;    // device [SEQ_PENDING][feature_dim], features of draft_len .. len-1
};

int sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err *e);
void sequence_destroy(struct sequence *s); // NULL is allowed

int64_t sequence_len(const struct sequence *s);           // committed tokens
const int32_t *sequence_tokens(const struct sequence *s); // [len], borrowed until the next change

bool sequence_usable(const struct sequence *s);              // whether it is not spoilt
int sequence_check(const struct sequence *s, struct err *e); // the same as an error: ERR_STATE
// Must precede whatever queues a change of its state; also checks. sequence_reserve includes it.
int sequence_write(struct sequence *s, struct err *e);

// Room for n more tokens everywhere. ERR_LIMIT beyond max_len, ERR_MEMORY: new pages are given back
// then; a page that was shared and has been copied stays the sequence's own.
int sequence_reserve(struct sequence *s, int64_t n, struct err *e);
// Takes reservations back: gives all pages back that hold no committed token's place.
void sequence_unreserve(struct sequence *s);

// Cuts back to at most n tokens (0 <= n <= len). *kept <= n is what could be kept exactly: n itself
// if it is the present length, else the last multiple of 32 if that is <= n, else 0. The caller
// re-runs tokens *kept .. n-1 (copy them first: the list is cut to *kept).
int sequence_truncate(struct sequence *s, int64_t n, int64_t *kept, struct err *e);

// A resume point at 32 * floor(len / 32). Holds KV pages by reference and outlives the sequence,
// not the model.
struct checkpoint;
int sequence_checkpoint(const struct sequence *s, struct checkpoint **out, struct err *e);
int64_t checkpoint_len(const struct checkpoint *c);
const int32_t *checkpoint_tokens(const struct checkpoint *c); // [len]
int64_t checkpoint_bytes(const struct checkpoint *c);         // without shared KV pages
bool checkpoint_usable(const struct checkpoint *c);
void checkpoint_destroy(struct checkpoint *c);

// The sequence becomes the checkpoint's state (same model; any former contents are dropped).
int sequence_restore(struct sequence *s, const struct checkpoint *c, struct err *e);

// An independent copy: KV pages by reference, the rest by value.
int sequence_fork(const struct sequence *s, struct sequence **out, struct err *e);

#endif
