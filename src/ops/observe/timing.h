// SPDX-License-Identifier: Apache-2.0
// Timing of ops: while it is on, an exec's table is one that marks the queue before and after every
// op of the backend's own table, and counts the bytes that the op must move at least: each weight
// and each cached key and value once, rows read and written once. Without it nothing is slower.
#ifndef COPPICE_OPS_OBSERVE_TIMING_H
#define COPPICE_OPS_OBSERVE_TIMING_H

#include "ops/ops.h"

// The subject of a row of the profile.
enum timing_kind {
    TIMING_ATTENTION,
    TIMING_RECURRENT,
    TIMING_FEED_FORWARD,
    TIMING_HEAD, // embedding, logits, choices
    TIMING_OTHER,
    TIMING_KINDS,
};
const char *timing_kind_name(enum timing_kind k);

// All calls of one op on the same matrices (of any layer) in one section.
struct timing_row {
    const char *section;
    char op[96]; // "linear attn_q attn_k attn_v"
    enum timing_kind kind;
    int64_t calls;
    double ms, bytes; // sums
};

// From now on the exec can time its ops; call it before weights are created, since their names are
// kept. Timing is off at first. It is freed with the exec.
int timing_prepare(struct exec *x, struct err *e);
// Switches timing on or off. Nothing happens on an exec that was not prepared.
void timing_switch(struct exec *x, bool on);
// Ops from now on belong to this section; name: a string that outlives the exec.
void timing_section(struct exec *x, const char *name);
// Rows so far, in order of first use, after waiting for all that was queued. Borrowed until the
// next op. timing_clear forgets them.
const struct timing_row *timing_rows(struct exec *x, int *n);
void timing_clear(struct exec *x);

// Bytes read and written a millisecond when memory is copied: the measured floor. 0 when there is
// no room for two buffers.
double timing_copy_rate(struct exec *x);

#endif
