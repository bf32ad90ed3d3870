// SPDX-License-Identifier: Apache-2.0
// One conversation's committed tokens and everything cached for them: groups of keys and values, an
// optional recurrent part, and attachments (struct attachment). A sequence can be cut back, saved,
// restored and forked; a rejected guess never reaches it. Without a recurrent part it can go back
// to any length, with one to the last multiple of 32. A failed call leaves it as it was.
//
// Ops report a failure only at the next exec_status (ops.h). A sequence whose state was being
// written in an epoch that failed is invalid, and so is what was forked, saved or restored in it:
// every later call with it is refused with ERR_STATE. It can only be destroyed or emptied
// (sequence_renew), and its tokens have to be run again.
#ifndef COPPICE_STATE_SEQUENCE_H
#define COPPICE_STATE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"
#include "state/kv.h"
#include "state/recurrent.h"
#include "state/view.h"

struct attachment;
struct stored_in;
struct stored_out;
struct str;

// One kind of attachment; it outlives all attachments of its kind. Errors leave everything as it
// was. Of the functions only precompute and describe may be NULL.
struct attachment_kind {
    const char *name; // also in stored checkpoints
    void *owner;      // of the functions below
    struct exec *x;   // device that its memory lies on
    int (*create)(const struct attachment_kind *k, struct attachment **out, struct err *e);
    void (*destroy)(struct attachment *a);
    // Room for n more positions after len, so that append cannot fail; gives such room back.
    int (*reserve)(struct attachment *a, int64_t n, struct err *e);
    void (*release)(struct attachment *a);
    // The next `count` positions, reserved before: rows[0..count) of the model's last pass, whose
    // tokens are token[rows[i]].
    void (*append)(struct attachment *a, const int32_t *token, const int32_t *rows, int64_t count);
    // Some of the n rows of the model's last pass will be appended: what is made of each row alone
    // can be made now, of all, while the device waits for the choice.
    void (*precompute)(void *owner, int64_t n);
    // Whether it can be cut to its first n positions (n <= len), and the cut.
    bool (*keeps)(const struct attachment *a, int64_t n);
    void (*cut)(struct attachment *a, int64_t n);
    // An independent copy of the first n positions, for which keeps() holds. at_rest: it is only
    // copied from, as in a checkpoint, and takes no more memory than that needs.
    int (*copy)(const struct attachment *a, int64_t n, bool at_rest, struct attachment **out,
                struct err *e);
    int64_t (*bytes)(const struct attachment *a); // that it holds alone, without shared pages
    // Lines of an identity (state/identity.h): what its state is of, such as a draft's file.
    void (*describe)(const struct attachment_kind *k, struct str *text);
    // Its serial form, of one at rest, and one at rest with len positions from that: *out stays
    // NULL after an error, which is in in->rc. What it describes is the same for both.
    void (*write)(const struct attachment *a, struct stored_out *o);
    void (*read)(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                 struct attachment **out);
};

// Embedded as the first member of what a kind makes. The kind's functions keep len.
struct attachment {
    const struct attachment_kind *kind;
    int64_t len;      // positions
    uint64_t written; // exec_epoch of kind->x when it was last written; the sequence keeps it
};

// A kind's functions through the attachment; a may be NULL for the first.
static inline void attachment_destroy(struct attachment *a) {
    if (a)
        a->kind->destroy(a);
}

static inline void attachment_write(struct attachment *a) {
    a->written = exec_epoch(a->kind->x);
}

static inline bool attachment_usable(const struct attachment *a) {
    return !exec_epoch_failed(a->kind->x, a->written);
}

enum { SEQ_GROUPS = 8, SEQ_ATTACHED = 4 }; // at most

// A group of layers that store keys and values alike: the pool has their layout (layers, heads of K
// and of V, codecs), and what is outside the window is not kept.
struct seq_group {
    struct kv_pool *pool;
    int64_t window; // 0: full attention
};

// The parts of a sequence; model_sequence() fills it from the model and what is attached to it.
struct sequence_spec {
    struct exec *x; // of groups and recurrent part
    int n_groups;
    struct seq_group groups[SEQ_GROUPS];
    struct gdn_shape shape;
    int n_recurrent; // Gated DeltaNet layers; 0: no recurrent part
    int n_attached;
    const struct attachment_kind *attached[SEQ_ATTACHED];
    int64_t max_len;           // context limit, tokens
    struct sparse_rule sparse; // of rows that read prompts
    struct view_rule view;     // of all others
};

// Fields are for the layers above to read; only models and state write them.
struct sequence {
    struct sequence_spec spec;
    int32_t *tokens; // [len]
    int64_t len, cap;
    // Positions below it are a prompt, read by the sparse rule, and others a reply, made by the
    // rule of views; without a rule rows see everything. It is part of what the state is: see
    // sequence_sparse.
    int64_t sparse_end;
    struct view_choices choices; // of its reply: there is the list of every page of positions that
                                 // begins up to len and sees less than all
    uint64_t version;            // grows with every change of the committed tokens
    uint64_t written;            // exec_epoch when its state was last written
    struct kv kv[SEQ_GROUPS];
    struct recurrent recurrent;
    struct attachment *attached[SEQ_ATTACHED];
};

int sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err *e);
void sequence_destroy(struct sequence *s); // NULL is allowed

int64_t sequence_len(const struct sequence *s);           // committed tokens
const int32_t *sequence_tokens(const struct sequence *s); // [len], borrowed until the next change

bool sequence_usable(const struct sequence *s);              // whether it is valid
int sequence_check(const struct sequence *s, struct err *e); // the same as an error: ERR_STATE
// Must precede whatever queues a change of its state; also checks. sequence_reserve includes it.
int sequence_write(struct sequence *s, struct err *e);

// From now on positions below `end` are a prompt. ERR_STATE where some of those that are there were
// not read so: states of the two kinds are never mixed; and where a reply would begin at the
// present length and its pages were not chosen. Without a rule of either, nothing.
int sequence_sparse(struct sequence *s, int64_t end, struct err *e);
// Whether there is a rule for prompts or for replies.
static inline bool sequence_spec_ruled(const struct sequence_spec *s) {
    return s->sparse.on || s->view.window > 0;
}
// Pages that rows at the present length do not see in groups without a window, and the first
// position after it that may see other ones: no pass has rows on both sides.
int64_t sequence_skipped(const struct sequence *s);
int64_t sequence_view_end(const struct sequence *s);
// What they see of a group without a window; table: room for model's pages of a view.
struct kv_view sequence_view(const struct sequence *s, int group, unsigned char **table);
// Whether what rows from the present length on see has to be chosen: whoever appends then calls
// sequence_choose with the pages before anything else.
bool sequence_must_choose(const struct sequence *s);
void sequence_choose(struct sequence *s, const int32_t *pages);

// Room for n more tokens everywhere. ERR_LIMIT beyond max_len, ERR_MEMORY: reserved pages are given
// back then; a page that was shared and has been copied stays the sequence's own.
int sequence_reserve(struct sequence *s, int64_t n, struct err *e);
// Takes reservations back: gives all pages back that hold no committed token's place.
void sequence_unreserve(struct sequence *s);
// Rows index[0..count) of the model's last pass, with these tokens, become the next committed ones.
// Their room has been reserved, their keys, values and recurrent rows are in place.
void sequence_append(struct sequence *s, const int32_t *token, const int32_t *index, int64_t count);

// Its attachment of that kind; NULL where it has none.
struct attachment *sequence_attached(const struct sequence *s, const struct attachment_kind *k);

// Cuts back to at most n tokens (0 <= n <= len). *kept <= n is what could be kept exactly: n itself
// if it is the present length or there is no recurrent part, else the last multiple of 32 if that
// is <= n; 0 where that is not so, or some window does not reach back that far. The caller re-runs
// tokens *kept .. n-1 (copy them first: the list is cut to *kept).
int sequence_truncate(struct sequence *s, int64_t n, int64_t *kept, struct err *e);

// Empties it, valid or not: it is usable again and begins as a new one does.
void sequence_renew(struct sequence *s);

// The length that a checkpoint made now has: the present one, or with a recurrent part the last
// multiple of 32.
int64_t sequence_resume(const struct sequence *s);

// A resume point at sequence_resume. Holds KV pages by reference and outlives the sequence, not the
// model.
struct checkpoint;
int sequence_checkpoint(const struct sequence *s, struct checkpoint **out, struct err *e);
// From now on the pages stay where they are as long as it refers to them (state/host/kv_host.h), so
// that they can be copied.
void checkpoint_stay(struct checkpoint *c);
int64_t checkpoint_len(const struct checkpoint *c);
const int32_t *checkpoint_tokens(const struct checkpoint *c); // [len]
int64_t checkpoint_sparse_end(const struct checkpoint *c);    // as of a sequence
int64_t checkpoint_bytes(const struct checkpoint *c);         // without shared KV pages
bool checkpoint_usable(const struct checkpoint *c);
void checkpoint_destroy(struct checkpoint *c);

// The sequence becomes the checkpoint's state (same model; any former contents are dropped).
int sequence_restore(struct sequence *s, const struct checkpoint *c, struct err *e);

// An independent copy: KV pages by reference, the rest by value.
int sequence_fork(const struct sequence *s, struct sequence **out, struct err *e);

#endif
