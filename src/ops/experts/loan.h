// SPDX-License-Identifier: Apache-2.0
// Slots that are lent (pool.h), as arithmetic: for a while the memory of some is needed for
// something else, such as the workspace of a pass of many rows. So all slots lie in one piece of
// memory, with a room between those of two classes that grows to both sides: both number their
// slots towards the room, and the last ones make way. The hottest experts stay, the coldest are
// given up; afterwards these slots are free and fill with what is missing. Each class keeps the
// slots that any pass can be run with. Nothing here touches the memory, and no bit depends on it.
#ifndef COPPICE_OPS_EXPERTS_LOAN_H
#define COPPICE_OPS_EXPERTS_LOAN_H

#include "ops/experts/pool.h"

enum { LOAN_ALIGN = 512 }; // of the room

// Offsets in the piece.
struct expert_layout {
    int64_t bytes;
    int64_t room, room_bytes; // that are there while nothing is lent
    int lower, upper;         // classes on both sides of it; -1: none
    struct {
        int64_t first, step; // of slot 0; from each slot to the next, which may be less than 0
    } at[EXPERT_CLASSES];
};
void expert_layout_of(struct expert_layout *l, const struct expert_classes *c, int64_t room_bytes);
int64_t expert_layout_low(const struct expert_layout *l, const struct expert_classes *c,
                          int which); // the lowest offset of a class's slots
// The largest room that can be had.
int64_t expert_layout_most(const struct expert_layout *l, const struct expert_classes *c);

struct expert_loan {
    int64_t start, bytes;         // the room
    int64_t slots, slot_bytes;    // that are lent for it; 0: none have to be
    int64_t keep[EXPERT_CLASSES]; // slots that stay
};
// The smallest loan that makes a room of so many bytes; both classes lend the same part of what
// they may. ERR_MEMORY: they would have to give up slots that they need.
int expert_layout_lend(const struct expert_layout *l, const struct expert_classes *c, int64_t bytes,
                       struct expert_loan *out, struct err *e);

// Only the first `keep` slots (at least `experts`, at most p->slots) are the pool's from now on.
// The experts with the largest parts stay, equal ones by slot; those of them that are behind these
// slots move to places of others, lowest first. moves: [keep], from a slot to a slot; how many, or
// ERR_MEMORY, and nothing has changed.
struct expert_shift {
    int32_t from, to;
};
int expert_pool_lend(struct expert_pool *p, int64_t keep, struct expert_shift *moves,
                     struct err *e);
// It has so many slots again; what was lent is free.
void expert_pool_back(struct expert_pool *p, int64_t slots);

// A way to read prompts: passes of so many rows, for which slots of so many bytes are lent.
struct expert_passes {
    int64_t rows, slot_bytes;
};
// The way that brings the fewest bytes for a prompt of n tokens: each pass brings what is not
// resident, and what was lent comes back once. own: rows without a loan. The number of the way, the
// smaller loan of equal ones; -1: none is better than no loan.
int expert_loan_choose(const struct expert_classes *c, int64_t own, const struct expert_passes *way,
                       int n_ways, int64_t n);

#endif
