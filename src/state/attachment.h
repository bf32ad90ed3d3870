// SPDX-License-Identifier: Apache-2.0
// Attachments: state that someone beside the model keeps for every sequence, such as a draft. The
// sequence moves them together with its own parts and knows nothing of what is in them; whoever
// attaches himself to a model (models/model.h) gives the functions. An attachment lies on a device
// of its own choice and has its own memory.
#ifndef COPPICE_STATE_ATTACHMENT_H
#define COPPICE_STATE_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

struct attachment;
struct stored_in;
struct stored_out;

// One kind of attachment; it outlives all attachments of its kind. Errors leave everything as it
// was. None of the functions is NULL but foresee.
struct attachment_kind {
    const char *name; // also in stored checkpoints
    void *owner;      // of the functions below
    struct exec *x;   // device that its memory lies on
    int (*create)(const struct attachment_kind *k, struct attachment **out, struct err *e);
    void (*destroy)(struct attachment *a);
    // Room for n more positions behind len, so that append cannot fail; gives such room back.
    int (*reserve)(struct attachment *a, int64_t n, struct err *e);
    void (*release)(struct attachment *a);
    // The next `count` positions, reserved before: rows[0..count) of the model's last pass.
    void (*append)(struct attachment *a, const int32_t *rows, int64_t count);
    // Some of the n rows of the model's last pass will be appended: what is made of each row alone
    // can be made now, of all, while the device waits for the choice.
    void (*foresee)(void *owner, int64_t n);
    // Whether it can be cut to its first n positions (n <= len), and the cut.
    bool (*keeps)(const struct attachment *a, int64_t n);
    void (*cut)(struct attachment *a, int64_t n);
    // An independent copy of the first n positions, for which keeps() holds. at_rest: it is only
    // copied from, as in a checkpoint, and takes no more memory than that needs.
    int (*copy)(const struct attachment *a, int64_t n, bool at_rest, struct attachment **out,
                struct err *e);
    int64_t (*bytes)(const struct attachment *a); // that it holds alone, without shared pages
    // Its serial form, of one at rest, and one at rest with len positions from that: *out stays
    // NULL after an error, which is in in->rc. Says itself what its state is of (a draft's file).
    void (*write)(const struct attachment *a, struct stored_out *o);
    void (*read)(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                 struct attachment **out);
};

// Embedded as the first member of what a kind makes. The kind's functions keep len.
struct attachment {
    const struct attachment_kind *kind;
    int64_t len;      // positions
    uint64_t written; // exec_stretch of kind->x when it was last written; the sequence keeps it
};

// A kind's functions through the attachment; a may be NULL for the first.
static inline void attachment_destroy(struct attachment *a) {
    if (a)
        a->kind->destroy(a);
}

static inline void attachment_write(struct attachment *a) {
    a->written = exec_stretch(a->kind->x);
}

static inline bool attachment_usable(const struct attachment *a) {
    return !exec_spoilt(a->kind->x, a->written);
}

#endif
