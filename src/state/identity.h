// SPDX-License-Identifier: Apache-2.0
// What the state of a sequence is of: everything besides its tokens on which its bits depend, as
// lines `name: value` of a short text. Stored checkpoints and files of the prefix cache carry the
// text, so that those of other origin are refused with a sentence that names the first difference;
// its hash is the key by which they are found. A new thing on which bits depend is a new line here.
#ifndef COPPICE_STATE_IDENTITY_H
#define COPPICE_STATE_IDENTITY_H

#include "base/str.h"
#include "state/sequence.h"

enum { IDENTITY_MAX = 1 << 14, IDENTITY_ROPES = 3 }; // bytes of a text, at most

struct identity_of {
    const struct sequence_spec *spec;
    uint64_t model;     // a hash of the whole file (formats/content.h); 0: not known yet
    const char *device; // kind of the device: exec_kind
    int ranks;          // devices that share the model
    // How positions turn, as it is in effect: scaling that was chosen for a run is in here, and
    // what the file says as well.
    const struct rope *ropes[IDENTITY_ROPES]; // NULL after the last one
};

// Appends the text. Its parts: what the model's state is of, then for each attachment a line
// `attached: NAME` with what its kind describes.
void identity_write(struct str *text, const struct identity_of *of);
uint64_t identity_key(const char *text); // not 0

// Lines, for attachment_kind.describe too. `content` is a hash of what a draft's keys and values
// depend on; what: its name in sentences.
void identity_content(struct str *text, const char *what, uint64_t content);
void identity_group(struct str *text, const struct kv_layout *l, int64_t window);

// Whether state of `theirs` may be used where own is expected: all lines are equal, those of
// attachments that own has not passed over. ERR_MISMATCH names the first difference.
int identity_check(const char *theirs, const char *own, struct err *e);

#endif
