// SPDX-License-Identifier: Apache-2.0
// The experts of a model whose device does not hold all of them: each layer's experts lie packed in
// pinned host memory, one record an expert (gate, up and down in the form that the kernels read),
// and a pool of slots on the device has copies of those that were used (pool.h). The ops of
// experts bring what is missing by themselves, on the device, before they read it; no host waits.
#ifndef COPPICE_OPS_EXPERTS_STORE_H
#define COPPICE_OPS_EXPERTS_STORE_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "ops/experts/pool.h"

struct exec;
struct exec_limits;
struct weight;
struct expert_store; // the backend's own

enum { EXPERT_PARTS = 3 }; // matrices of an expert

// Counted since the store was made: experts that a layer's call found resident, and had to bring;
// bytes that were brought; residents that made room; experts that were brought ahead, before their
// layer chose (expert_pool_ahead).
struct expert_stats {
    uint64_t hits, misses, bytes, evictions, ahead;
};

// Bytes of one expert's matrix in a record, for a tensor of experts (dims k, m, experts); x NULL:
// as in the file.
int64_t exec_expert_bytes(const struct exec *x, const struct tensor *t);
// Bytes of a record of such matrices.
int64_t exec_expert_record(const struct exec *x, const struct tensor *parts);

// A store with the slots of c, and a room of that many bytes between them (pool.h), 0: none.
// Layers are announced in their order, before their weights, by their
// EXPERT_PARTS tensors, of which only shapes and types are read; then come their weights in the
// same order. Such a weight is destroyed before the store. ERR_UNSUPPORTED: the backend has none;
// ERR_MEMORY: of the device or, pinned, of the host.
int expert_store_create(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                        int64_t room, struct err *e);
int expert_store_layer(struct expert_store *s, const struct tensor *parts, struct err *e);
int expert_store_weight(struct expert_store *s, int part, const struct tensor *t,
                        struct weight **out, struct err *e);
// Fills the slots once all weights are there, with the hottest first. uses: [layers][experts];
// NULL: nothing is known.
int expert_store_finish(struct expert_store *s, const uint32_t *uses, struct err *e);
void expert_store_destroy(struct expert_store *s); // NULL is allowed

const struct expert_classes *expert_store_classes(const struct expert_store *s);
// Any thread may call it; what is queued comes a little later.
void expert_store_stats(const struct expert_store *s, struct expert_stats *out);
// Uses of now, [layers][experts], and, where not NULL, the resident ones (bytes of 0 and 1). Waits
// for the device, as exec_status does, and has its errors.
int expert_store_uses(struct expert_store *s, uint32_t *uses, unsigned char *resident,
                      struct err *e);

// Rooms in the place of slots, for what passes of many rows work with. Once the slots are filled, a
// room is opened for `bytes`; what is then allocated for ops to work with (buffers, activations)
// lies in it, until expert_store_room_end. They overlap: only what lies in the room that was
// entered last may be used, or in the first one, for which no slot is freed, if none was; entering
// clears it. Rooms are numbered from 0 in the order that they are opened; their memory goes with
// the store, after what lies in them.
// ERR_MEMORY: slots that are needed would have to be freed.
enum { EXPERT_ROOMS = 8 };
int expert_store_room(struct expert_store *s, int64_t bytes, struct err *e);
// l: what passes there need of ops, whose scratch then lies there too (exec_room_scratch) if it is
// more than what is reserved; or NULL. ERR_MEMORY: the bytes were too few.
int expert_store_room_end(struct expert_store *s, const struct exec_limits *l, struct err *e);
// Bytes of slots that are freed for a room.
int64_t expert_store_room_lends(const struct expert_store *s, int room);
// The slots of other memory are given up, those with the hottest experts last, or are there again.
// ERR_MEMORY: the host has none, and nothing has changed.
int expert_store_enter(struct expert_store *s, int room, struct err *e);
// Enters a room and gives its memory back to the device, but for less than a piece on both sides
// (ops/parking.h), until expert_store_occupy, which enters the first room; in between no op that
// reads experts, and none in a room, may be called. *bytes: how many. Only a store that was created
// while memory was taken so that it can be parked has some to give.
int expert_store_vacate(struct expert_store *s, int room, int64_t *bytes, struct err *e);
int expert_store_occupy(struct expert_store *s, struct err *e); // as exec_unpark
// Bytes that ops need as scratch within these limits.
int64_t exec_room_scratch(const struct exec *x, const struct exec_limits *l);

// Slots that are lent now, how often some were since the store was made, and how many in all.
struct expert_lent {
    int64_t slots;
    uint64_t loans, given;
};
struct expert_lent expert_store_lent(const struct expert_store *s);

// What a backend has for this; internal to src/ops.
struct expert_backend {
    int64_t (*bytes)(const struct exec *x, const struct tensor *t);
    int (*create)(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                  int64_t room, struct err *e);
    int (*layer)(struct expert_store *s, const struct tensor *parts, struct err *e);
    int (*weight)(struct expert_store *s, int part, const struct tensor *t, struct weight **out,
                  struct err *e);
    int (*finish)(struct expert_store *s, const uint32_t *uses, struct err *e);
    void (*destroy)(struct expert_store *s);
    void (*uses)(struct expert_store *s, uint32_t *uses, unsigned char *resident);
    int (*room)(struct expert_store *s, int64_t bytes, struct err *e);
    int (*room_end)(struct expert_store *s, const struct exec_limits *l, struct err *e);
    int (*enter)(struct expert_store *s, int room, struct err *e);
    int64_t (*room_scratch)(const struct exec *x, const struct exec_limits *l);
    void *(*room_at)(const struct expert_store *s, int room, int64_t *bytes);
};
// The common head of every backend's store.
struct expert_store_base {
    struct exec *x;
    const struct expert_backend *backend;
    struct expert_classes classes;
    const volatile struct expert_stats *stats; // host memory that the device writes
    struct expert_lent lent;
    int64_t lends[EXPERT_ROOMS]; // by room
};

#endif
