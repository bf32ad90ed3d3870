// SPDX-License-Identifier: Apache-2.0
// Loading: finds a named tensor, checks its shape against what the metadata implies, and turns it
// into a weight or an f32 array on the device. It owns everything it makes, so that a model frees
// all at once. In a dry load nothing is made; only names, shapes and bytes are checked and counted.
#ifndef COPPICE_MODELS_LOAD_H
#define COPPICE_MODELS_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "ops/experts/store.h"
#include "ops/ops.h"

typedef const struct tensor *load_find_fn(const void *arg, const char *name);
typedef void load_done_fn(const void *arg, const struct tensor *t);
typedef int load_check_fn(const void *arg, struct err *e);

// Set x (may be NULL in a dry load), find, arg, dry and perhaps done; zero the rest.
struct load {
    struct exec *x;
    load_find_fn *find;   // where tensors come from
    load_done_fn *done;   // NULL, or called for every tensor that a device has copied
    load_check_fn *check; // NULL, or called before a matrix is read: whether it may be
    const void *arg;
    bool dry;
    bool own_scales; // NAME.scale next to a matrix is what the architecture requires itself
    int64_t weight_bytes, buffer_bytes; // made so far
    // What was made for the rows of a pass while by_rows was set, with what blocks round up, and
    // the largest f32 form of an activation among it.
    bool by_rows;
    int64_t rows_bytes, rows_wide;
    struct exec_limits limits; // inputs, outputs and act of what was made
    // Layers of experts so far, and the bytes of weight_bytes that may lie beyond the device;
    // store: NULL, or where they go. of_expert: matrices of the newest layer's that are still to
    // come.
    struct expert_classes classes;
    int64_t expert_bytes;
    struct expert_store *store;
    int of_expert;
    // Experts of the first host_layers layers of them are made for the ops of `host`, on the CPU
    // (may be NULL in a dry load): of_host, the newest layer's; counted so far, and their bytes.
    struct exec *host;
    int host_layers, expert_layers;
    bool of_host;
    int64_t host_bytes;
    struct load_item *items;
    int64_t n, cap;
};

// Frees every weight, activation and array made through l.
void load_fini(struct load *l);

// Before the matrices of a recipe that take `weights` bytes are made: sees to it that they come to
// lie in one piece of a device's memory, since small pieces leave gaps. Where there is no such
// piece they are small all the same; so are those that are to be parked.
void load_make_room(struct exec *x, int64_t weights);

// A matrix [k -> m] (ne = {k, m}). ERR_MISMATCH names the tensor, the shape expected and found;
// ERR_UNSUPPORTED a type without arithmetic or a scale tensor next to it.
int load_weight(struct load *l, const char *name, int64_t k, int64_t m, const struct weight **out,
                struct err *e);
// Rows first .. first+m-1 of a matrix with `total` rows.
struct load_rows {
    int64_t total, first, m;
};
int load_weight_rows(struct load *l, const char *name, int64_t k, const struct load_rows *part,
                     const struct weight **out, struct err *e);
// Rows rows[0..n) of a matrix with `total` rows, in this order.
struct load_list {
    int64_t total;
    const int32_t *rows;
    int64_t n;
};
int load_weight_list(struct load *l, const char *name, int64_t k, const struct load_list *list,
                     const struct weight **out, struct err *e);
// The matrices [k -> m] of experts, or of heads (ne = {k, m, n}, or {k, m n}).
struct load_experts {
    int64_t k, m, n;
};
int load_experts(struct load *l, const char *name, const struct load_experts *shape,
                 const struct weight **out, struct err *e);
// The same of a tensor that holds `rows` rows for each of them, of which these begin at row
// `first`: m rows of k values, or, transposed, k rows of m values (what has no plain numbers then
// becomes F16).
struct load_cut {
    struct load_experts shape;
    int64_t rows, first;
    bool transposed;
};
int load_experts_cut(struct load *l, const char *name, const struct load_cut *cut,
                     const struct weight **out, struct err *e);
// Announces that the next weights are gate, up and down of a layer's experts, of n experts each:
// dims k, m, n and types of the three.
int load_experts_begin(struct load *l, const struct tensor *parts, int n, struct err *e);
// A small tensor (ne = {k, m}, or {k} with m = 1) as f32 on the device.
int load_floats(struct load *l, const char *name, int64_t k, int64_t m, float **out, struct err *e);
// The same of one with n planes, ne = {k, m, n}.
int load_float_planes(struct load *l, const char *name, int64_t k, int64_t m, int64_t n,
                      float **out, struct err *e);
// The same in memory of the host; zeros in a dry load. The first: [k].
int load_host_floats(struct load *l, const char *name, int64_t k, float **out, struct err *e);
int load_host_rows(struct load *l, const char *name, int64_t k, int64_t m, float **out,
                   struct err *e);

// Zeroed device memory of n floats, or of bytes; an activation for n rows of k values.
int load_buffer(struct load *l, int64_t n, float **out, struct err *e);
int load_bytes(struct load *l, int64_t bytes, void **out, struct err *e);
int load_act(struct load *l, int64_t n, int64_t k, struct act **out, struct err *e);

// Name of a tensor in layer i: "blk.i.suffix", in a caller's buffer of LOAD_NAME bytes.
enum { LOAD_NAME = 96 };
const char *load_name(char *buf, int i, const char *suffix);

#endif
