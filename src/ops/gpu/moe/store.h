// SPDX-License-Identifier: Apache-2.0
// Stores of experts on CUDA (ops/experts/store.h): what the host part (store.c) shares with the
// kernels that choose slots and bring experts (fetch.cu). An expert's record is read straight
// from pinned host memory by the device, after the router and in front of the layer's experts, all
// on the one stream: no host waits, and a layer that misses nothing goes on at once. Lists of many
// entries, which take a layer milliseconds, are passed to the host, and the copy engine brings
// their experts on a stream of its own, then the next layer's while this one computes (stream.c).
// Internal to this folder.
#ifndef COPPICE_OPS_GPU_MOE_STORE_H
#define COPPICE_OPS_GPU_MOE_STORE_H

#include "ops/args/mlp.h"
#include "ops/experts/pool.h"
#include "ops/experts/store.h"
#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// A class's slots: struct expert_pool in device memory, where a place is an address.
struct moe_pool {
    int layers, experts;
    int64_t slots, record;       // slots: those that are not lent
    unsigned char *data;         // slot 0, and the bytes from each to the next, which may be less
    int64_t step;                // than 0
    int32_t *owner;              // [slots]
    const unsigned char **place; // [layers][experts], NULL: not resident
    uint32_t *uses;              // [layers][experts]
    uint32_t *total, *rows;      // [layers]
};

// A layer whose experts come and go.
struct moe_home {
    struct expert_store *store;
    struct moe_pool *pool;
    int index;           // among the layers of its class
    unsigned char *host; // [experts][record], pinned
    unsigned char *seen; // the same as the device sees it
    int64_t at[EXPERT_PARTS], step[EXPERT_PARTS];
};

// Experts that get slots, in pinned memory that the device writes.
struct moe_moves {
    int32_t n, none;
    struct expert_move move[OPS_EXPERTS_MAX];
};

// What the copy engine brings. Zeroed: it cannot be had.
struct moe_stream {
    gpu_stream stream;
    gpu_event arrived, arrived_ahead; // what was requested, and after it what was not yet
    bool ahead;                       // something of the latter may be under way
    struct moe_moves *host, *device;  // [2] the same: requested, ahead
};

// A room in the place of slots (lend.c).
struct moe_room {
    struct expert_loan loan;
    void *scratch; // of passes for which it is made, where that is more than others have
    size_t scratch_bytes;
};

struct expert_store {
    struct expert_store_base base; // first
    struct gpu *g;
    struct expert_store *next; // of this GPU
    struct expert_layout layout;
    unsigned char *block; // [layout.bytes] all slots, and the room between them
    struct moe_room room[EXPERT_ROOMS];
    int rooms, entered; // how many there are; the one that is in use
    struct moe_pool pool[EXPERT_CLASSES];
    int told[EXPERT_CLASSES]; // layers so far
    struct moe_home *layers;  // [expert_classes_layers]
    int n;
    // Whose experts are resident for which list, until its last op is queued or others are brought.
    const struct moe_home *ready;
    const int32_t *ready_for;
    struct expert_move *moves;                      // device [experts]: of the newest choice
    int32_t *missing;                               // device: how many of them
    struct expert_stats *counted;                   // device
    struct expert_stats *stats_host, *stats_device; // pinned, and as the device sees it
    struct moe_stream copies;
};

extern const struct expert_backend cuda_experts;

// Nothing is resident any more: after launches that may not have come about.
void moe_forget(struct gpu *g);
// Makes the experts of a list resident, unless the op in front has; last: no other op of this layer
// reads that list.
void moe_bring(struct gpu *g, struct moe_home *h, const struct moe_list *l, bool last);

bool moe_stream_open(struct expert_store *s);
void moe_stream_close(struct expert_store *s); // waits for it
void moe_stream_rest(struct expert_store *s);  // waits: nothing is under way ahead any more
// What lend.c has for the table of stores.
int moe_room(struct expert_store *s, int64_t bytes, struct err *e);
int moe_room_end(struct expert_store *s, const struct exec_limits *l, struct err *e);
int moe_enter(struct expert_store *s, int room, struct err *e);
void *moe_room_at(const struct expert_store *s, int room, int64_t *bytes);
int64_t moe_room_scratch(const struct exec *x, const struct exec_limits *l);
// Queues choosing and bringing what a list needs, by the device itself.
void moe_read(struct gpu *g, const struct moe_home *h, const struct moe_list *l);
// Queues the choices alone: of a list, and ahead of layer h's, which keeps what layer `now` has
// chosen.
void moe_choose(struct gpu *g, const struct moe_home *h, const struct moe_list *l,
                struct moe_moves *to);
void moe_choose_ahead(struct gpu *g, const struct moe_home *h, const struct moe_home *now,
                      const struct moe_list *l, struct moe_moves *to);

#ifdef __cplusplus
}
#endif

#endif
