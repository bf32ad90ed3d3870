// SPDX-License-Identifier: Apache-2.0
// The file in which what passes cost (spec/tree/price.h) outlives a session: which file it is,
// reading it at the begin and writing it at the end. Without it nothing is lost but a head start,
// so whatever goes wrong with it is told and is no error.
#ifndef COPPICE_ENGINE_SESSION_PRICE_FILE_H
#define COPPICE_ENGINE_SESSION_PRICE_FILE_H

#include "base/str.h"
#include "models/draft/dflash.h"
#include "models/model.h"
#include "spec/tree/price.h"

// Zeroed: no file.
struct price_file {
    struct str folder, path, key;
};

// What prices depend on, all of it part of the key.
struct price_subject {
    const struct exec *x;
    const struct gguf *model; // open
    const char *draft;        // path; NULL: none
    const struct dflash *draft_model;
    enum kv_codec_id codec_k, codec_v;
    int64_t slots;          // of experts, where not all are resident
    int cpu_experts;        // layers whose experts are of this CPU
    const struct exec *cpu; // NULL where there are none
    struct sparse_rule sparse;
};

// What the experts of a model are to its price, by the tensors of its file.
struct price_experts price_experts_of(const struct gguf *g, const struct model_params *p);

// Shown to the user; NULL: nobody.
struct price_note {
    void (*note)(void *arg, const char *sentence);
    void *arg;
};

// The file of a subject in a folder, and what it says into p, where there is one. A damaged one is
// told of and counts as none, as does silently one of another version.
void price_file_open(struct price_file *f, const char *folder, const struct price_subject *s,
                     struct price *p, const struct price_note *n);
// Writes the file if anything was learnt, making its folder, and frees what f has.
void price_file_close(struct price_file *f, const struct price *p, const struct price_note *n);

#endif
