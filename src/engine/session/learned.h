// SPDX-License-Identifier: Apache-2.0
// Files in which what a session learns is kept: what passes cost (spec/tree/price.h), and which
// experts were used most, in a file next to the model (MODEL.spark) by which the next start fills
// the slots (ops/experts/pool.h). They are read when a session opens and written while it runs or
// when it closes. Without them nothing is lost but a head start and no output changes, so whatever
// goes wrong with them is reported and is no error.
#ifndef COPPICE_ENGINE_SESSION_LEARNED_H
#define COPPICE_ENGINE_SESSION_LEARNED_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "models/draft/draft.h"
#include "models/model.h"
#include "ops/experts/store.h"
#include "spec/tree/price.h"

// Zeroed: no file.
struct price_file {
    struct str folder, path, key;
};

// All inputs of prices, part of the key.
struct price_subject {
    const struct exec *x;
    const struct gguf *model;    // open
    const char *const *paths;    // [PRICE_DRAFTS] of drafts,
    struct draft *const *drafts; // [PRICE_DRAFTS] which are loaded; NULL after the last
    enum kv_codec_id codec_k, codec_v;
    int64_t slots;          // of experts, where not all are resident
    int cpu_experts;        // layers whose experts are of this CPU
    const struct exec *cpu; // NULL where there are none
    struct sparse_rule sparse;
    struct view_rule view;
};

// What the experts of a model are to its price, by the tensors of its file.
struct price_experts price_experts_of(const struct gguf *g, const struct model_params *p);

// Bytes of the file that a pass of one row reads: those of its experts, and of an embedding that is
// no head a row.
double price_row_bytes(const struct gguf *g, const struct model_params *p);

// Shown to the user; NULL: not.
struct price_note {
    void (*note)(void *arg, const char *sentence);
    void *arg;
};

// The file of a subject in a folder, and what it says into p, where there is one. A damaged one is
// reported and counts as none, as does silently one of another version.
void price_file_open(struct price_file *f, const char *folder, const struct price_subject *s,
                     struct price *p, const struct price_note *n);
// Writes the file if anything was learnt, making its folder, and frees what f has.
void price_file_close(struct price_file *f, const struct price *p, const struct price_note *n);

// Layers with experts, experts of each, and the hash of the model's file (content_sketch).
struct expert_profile_subject {
    int layers, experts;
    uint64_t model;
};

void expert_profile_path(struct str *out, const char *model);
// *uses: NULL where there is no such file, else [layers][experts], to be freed. ERR_MISMATCH: it is
// of another model; ERR_FORMAT: it is no such file, or damaged; ERR_IO, ERR_MEMORY.
int expert_profile_read(uint32_t **uses, const char *path, const struct expert_profile_subject *s,
                        struct err *e);
// The same over bytes.
int expert_profile_parse(uint32_t **uses, const void *data, size_t n, const char *path,
                         const struct expert_profile_subject *s, struct err *e);
int expert_profile_write(const uint32_t *uses, const char *path,
                         const struct expert_profile_subject *s, struct err *e);

// Zeroed: nothing is kept.
struct expert_profile {
    struct str path;
    struct expert_profile_subject subject;
    uint32_t *uses;   // what was read, of all layers; NULL: nothing
    int first;        // layer whose experts are the device's, and all after it
    double written;   // clock_ms of the newest file
    uint64_t touched; // hits and misses by then
};

// For a model whose slots are c; the experts of `first` layers in front of them are the CPU's. A
// file that cannot be used is reported and left unchanged: then nothing is kept.
void expert_profile_open(struct expert_profile *k, const char *model, const struct gguf *file,
                         const struct expert_classes *c, int first, const struct price_note *n);
// The uses of the device's layers (expert_store_finish); NULL: nothing.
const uint32_t *expert_profile_uses(const struct expert_profile *k);
// Writes what is hot now, if anything was used since and the newest file is some minutes old, or if
// `now`. This waits for the device.
void expert_profile_keep(struct expert_profile *k, struct expert_store *s, bool now,
                         const struct price_note *n);
void expert_profile_close(struct expert_profile *k);

#endif
