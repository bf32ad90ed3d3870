// SPDX-License-Identifier: Apache-2.0
// HuggingFace folders to GGUF (all architectures, z-lab DFlash drafts), plain or as codes and
// scales, and GGUF to a smaller GGUF. Mapping and every transformation: docs/formats.md.
#ifndef COPPICE_CONVERT_CONVERT_H
#define COPPICE_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/imatrix.h"

// Which tensor gets which type: a plain type ("Q8_0") or a mixture ("Q4_K_M").
struct convert_recipe {
    const char *name;
    uint32_t type;                 // enum tensor_type of ordinary matrices
    uint32_t file_type;            // value of general.file_type
    const struct convert_mix *mix; // the types of the others
};

// Case-insensitive; NULL when unknown. convert_recipe_at(0), (1), … until NULL lists them all.
const struct convert_recipe *convert_recipe(const char *name);
const struct convert_recipe *convert_recipe_at(int i);

// Called after each piece of a tensor: done and total count weight bytes read. Non-zero stops the
// conversion.
typedef int convert_progress_fn(void *arg, const char *name, int64_t done, int64_t total);

// A type for all matrices whose names hold `part`, in place of the recipe's.
struct convert_override {
    char part[48];
    uint32_t type;
};

// Reads "attn_v=Q8_0,output=F16" into at most `max` entries. ERR_USAGE: no such list, too long, or
// a type that cannot be written.
int convert_overrides(const char *text, struct convert_override *out, int max, int *n,
                      struct err *e);

// What quantising did besides what its recipe says.
struct convert_report {
    int64_t matrices, tensors;   // encoded anew; of the file
    int64_t in_bytes, out_bytes; // of all tensors
    // Matrices whose rows are no multiple of their type's block, so that they get another type;
    // the bytes that they take, and what they would take in the wanted type.
    int64_t fallbacks, bytes, wanted_bytes;
    struct {
        uint32_t wanted, got;
        int64_t n;
    } kind[8]; // the first n_kinds kinds of them
    int n_kinds;
    int64_t requantized; // matrices that were quantised before, and to another type
    int64_t unweighted;  // matrices of prediction blocks that the importances lack
};

// Blocks that predict further tokens: written after the others, left out, or written with nothing
// but the embedding, the last norm and the head, as a file next to the model's.
enum convert_mtp { CONVERT_MTP_KEEP, CONVERT_MTP_DROP, CONVERT_MTP_ONLY };

// A sentence about what was done besides what was asked for.
typedef void convert_note_fn(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct convert_options {
    const struct convert_recipe *recipe;
    enum convert_mtp mtp;                     // convert
    convert_note_fn *note;                    // may be NULL
    bool requantize;                          // quantize: also matrices that are quantised already
    struct convert_report *report;            // quantize: NULL, or filled as far as it went
    bool pure;                                // quantize: all matrices get the recipe's own type
    const struct convert_override *overrides; // quantize: the first that fits a matrix counts
    int n_overrides;
    const struct imatrix *imatrix; // quantize: importances of columns; NULL: none
    const char *target_dir; // drafts: the target's HuggingFace folder or GGUF, for its tokenizer
    int threads;            // 0: all CPUs
    int64_t split_size;     // max bytes of tensors in a file, 0: any number (gguf_writer_split)
    convert_progress_fn *progress; // may be NULL
    void *progress_arg;
};

// dir: config.json, *.safetensors, tokenizer.json. out: a GGUF file, replaced only on success.
// Errors: a missing or foreign file, a tensor of the wrong shape, left over or missing, values
// that are not finite or that the type cannot hold, a draft that does not fit its target.
int convert_hf(const char *dir, const char *out, const struct convert_options *o, struct err *e);

// Re-encodes every quantisable matrix of a GGUF file (docs/formats.md lists what stays). Matrices
// without importances are encoded as if there were none. ERR_MISMATCH when an entry has another
// number of columns than its matrix, or none belongs to the file; ERR_USAGE for a matrix that is
// quantised already and would be quantised otherwise, unless o->requantize.
int convert_quantize(const char *in, const char *out, const struct convert_options *o,
                     struct err *e);

#endif
