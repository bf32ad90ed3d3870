// SPDX-License-Identifier: Apache-2.0
// Experts beyond the card, as arithmetic: sizes of experts by class, how memory is shared out in
// slots, and which expert makes room for which. All experts lie in host memory; the device has
// slots, each the copy of one expert of one layer of a class, and an expert that a pass needs is
// brought into a slot before it is used. So residency decides how long a pass takes, and no bit.
// How slots are chosen is the device's (gpu/moe/fetch.cu); its specification is that of the tests
// (tests/support/expert_slots.c). Whole numbers only, so that both make the same choices.
#ifndef COPPICE_OPS_EXPERTS_POOL_H
#define COPPICE_OPS_EXPERTS_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

// Layers whose experts take the same bytes are a class: they share its slots.
enum { EXPERT_CLASSES = 64 };
struct expert_class {
    int64_t record; // bytes of an expert: gate, up and down, one after the other
    int layers;
    int64_t slots; // experts of these layers that are resident
};
// Zeroed: the model has no experts, or all of them are resident.
struct expert_classes {
    int n, experts; // classes; experts of a layer
    struct expert_class c[EXPERT_CLASSES];
};

// Counts a layer whose experts take `record` bytes; the number of its class. ERR_UNSUPPORTED: there
// are too many classes.
int expert_classes_add(struct expert_classes *c, int experts, int64_t record, struct err *e);
int expert_classes_find(const struct expert_classes *c, int64_t record); // -1: none
int expert_classes_layers(const struct expert_classes *c);
int64_t expert_classes_all(const struct expert_classes *c);  // bytes of all experts
int64_t expert_classes_held(const struct expert_classes *c); // of the slots
// The fewest: slots for all experts of one layer of each class, so that any pass can be run.
int64_t expert_classes_min(const struct expert_classes *c);
// Shares `bytes` out, the same part of each class, at least the fewest and at most all of them;
// ERR_MEMORY: fewer bytes than the fewest slots take.
int expert_classes_share(struct expert_classes *c, int64_t bytes, struct err *e);
// `slots` for each layer of a class, in the mean. ERR_USAGE: fewer than experts of one layer.
int expert_classes_per_layer(struct expert_classes *c, int64_t slots, struct err *e);
double expert_classes_share_of(const struct expert_classes *c); // resident bytes of all, 0 .. 1

// Uses: how often an expert was used lately. Each entry adds EXPERT_USE; after EXPERT_HALF rows of
// a layer its experts' uses are halved. Experts of different layers are compared by their part of
// their layer's uses, since a pass that is under way has counted the layers after it only.
enum { EXPERT_USE = 256, EXPERT_HALF = 32768 };
#ifdef __CUDACC__
#define EXPERT_BOTH static inline __host__ __device__
#else
#define EXPERT_BOTH static inline
#endif
// In 2^-24; nothing is known of a layer: all have the same part.
EXPERT_BOTH uint64_t expert_part(uint32_t uses, uint32_t total, int experts) {
    return (((uint64_t)uses + EXPERT_USE) << 24) /
           ((uint64_t)total + (uint64_t)experts * EXPERT_USE);
}

// The slots of one class. Arrays are the caller's.
struct expert_pool {
    int layers, experts;
    int64_t slots;
    int32_t *owner;  // [slots] layer * experts + expert; -1: free
    int32_t *place;  // [layers][experts] slot; -1: not resident
    uint32_t *uses;  // [layers][experts]
    uint32_t *total; // [layers] of their uses, but for what halving rounds
    uint32_t *rows;  // [layers] since the last halving
};
struct expert_move {
    int32_t expert, slot;
};

// Fills the slots with the hottest experts, equal ones in turn over the layers, lowest first;
// place becomes that of owner, total that of uses. ERR_MEMORY.
int expert_pool_fill(struct expert_pool *p, struct err *e);

// A layer's call of that many entries likely needs most of its experts, and so does the next
// layer's: after such a choice the next layer's experts are brought ahead, while this one computes.
EXPERT_BOTH bool expert_pool_many(int64_t entries, int experts) {
    return entries >= 8 * (int64_t)experts;
}
EXPERT_BOTH int expert_pool_max_ahead(int experts) {
    return (experts + 1) / 2;
}

// Slots that are lent (pool.h), as arithmetic: for a while the memory of some is needed for
// something else, such as the workspace of a pass of many rows. So all slots lie in one piece of
// memory, with a room between those of two classes that grows to both sides: both number their
// slots towards the room, and the last ones are freed. The hottest experts stay, the coldest are
// given up; afterwards these slots are free and fill with what is missing. Each class keeps the
// slots that any pass can be run with. Nothing here touches the memory, and no bit depends on it.

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
int64_t expert_layout_max(const struct expert_layout *l, const struct expert_classes *c);

struct expert_loan {
    int64_t start, bytes;         // the room
    int64_t slots, slot_bytes;    // that are lent for it; 0: none have to be
    int64_t keep[EXPERT_CLASSES]; // slots that stay
};
// The smallest loan that makes a room of that many bytes; both classes lend the same part of what
// they may. ERR_MEMORY: they would have to give up slots that they need.
int expert_layout_lend(const struct expert_layout *l, const struct expert_classes *c, int64_t bytes,
                       struct expert_loan *out, struct err *e);

// Only the first `keep` slots (at least `experts`, at most p->slots) are the pool's from now on.
// The experts with the largest parts stay, equal ones by slot; those of them that are after these
// slots move to places of others, lowest first. moves: [keep], from a slot to a slot; how many, or
// ERR_MEMORY, and nothing has changed.
struct expert_shift {
    int32_t from, to;
};
int expert_pool_lend(struct expert_pool *p, int64_t keep, struct expert_shift *moves,
                     struct err *e);

// A way to read prompts: passes of that many rows, for which slots of that many bytes are lent.
struct expert_passes {
    int64_t rows, slot_bytes;
};
// The way that brings the fewest bytes for a prompt of n tokens: each pass brings what is not
// resident, and what was lent comes back once. own: rows without a loan. The number of the way, the
// smaller loan of equal ones; -1: none is better than no loan.
int expert_loan_choose(const struct expert_classes *c, int64_t own, const struct expert_passes *way,
                       int n_ways, int64_t n);

#endif
