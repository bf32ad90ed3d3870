// SPDX-License-Identifier: Apache-2.0
// The experts of a model whose device does not hold all of them: each layer's experts lie packed in
// pinned host memory, one record an expert (gate, up and down in the form that the kernels read),
// and a pool of slots on the device has copies of those that were used (expert_pool.h). The ops of
// experts bring what is missing by themselves, on the device, before they read it; no host waits.
#ifndef COPPICE_OPS_EXPERT_STORE_H
#define COPPICE_OPS_EXPERT_STORE_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf.h"
#include "ops/expert_pool.h"

struct exec;
struct weight;
struct expert_store; // the backend's own

enum { EXPERT_PARTS = 3 }; // matrices of an expert

// Counted since the store was made: experts that a layer's call found resident, and had to bring;
// bytes that were brought; residents that made room; experts that were brought ahead, before their
// layer asked (expert_pool_ahead).
struct expert_stats {
    uint64_t hits, misses, bytes, evictions, ahead;
};

// Bytes of one expert's matrix in a record, for a tensor of experts (dims k, m, experts); x NULL:
// as in the file.
int64_t exec_expert_bytes(const struct exec *x, const struct tensor *t);
// Bytes of a record of such matrices.
int64_t exec_expert_record(const struct exec *x, const struct tensor *parts);

// A store with the slots of c. Layers are told in their order, before their weights, by their
// EXPERT_PARTS tensors, of which only shapes and types are read; then come their weights in the
// same order. Such a weight is destroyed before the store. ERR_UNSUPPORTED: the backend has none;
// ERR_MEMORY: of the device or, pinned, of the host.
int expert_store_create(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                        struct err *e);
int expert_store_layer(struct expert_store *s, const struct tensor *parts, struct err *e);
int expert_store_weight(struct expert_store *s, int part, const struct tensor *t,
                        struct weight **out, struct err *e);
// Fills the slots once all weights are there, with the hottest first. heat: [layers][experts];
// NULL: nothing is known.
int expert_store_seal(struct expert_store *s, const uint32_t *heat, struct err *e);
void expert_store_destroy(struct expert_store *s); // NULL is allowed

const struct expert_classes *expert_store_classes(const struct expert_store *s);
// Any thread may ask; what is queued comes a little later.
void expert_store_stats(const struct expert_store *s, struct expert_stats *out);
// Heats of now, [layers][experts], and, where not NULL, the resident ones (bytes of 0 and 1). Waits
// for the device, as exec_status does, and has its errors.
int expert_store_heat(struct expert_store *s, uint32_t *heat, unsigned char *resident,
                      struct err *e);

// What a backend has for this; internal to src/ops.
struct expert_backend {
    int64_t (*bytes)(const struct exec *x, const struct tensor *t);
    int (*create)(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                  struct err *e);
    int (*layer)(struct expert_store *s, const struct tensor *parts, struct err *e);
    int (*weight)(struct expert_store *s, int part, const struct tensor *t, struct weight **out,
                  struct err *e);
    int (*seal)(struct expert_store *s, const uint32_t *heat, struct err *e);
    void (*destroy)(struct expert_store *s);
    void (*heat)(struct expert_store *s, uint32_t *heat, unsigned char *resident);
};
// What every backend's store begins with.
struct expert_store_base {
    struct exec *x;
    const struct expert_backend *backend;
    struct expert_classes classes;
    const volatile struct expert_stats *stats; // host memory that the device writes
};

#endif
