// SPDX-License-Identifier: Apache-2.0
// The plan of an output file, which source tensor becomes what, and what fills it; shared by the
// files of convert only.
#ifndef COPPICE_CONVERT_PLAN_H
#define COPPICE_CONVERT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/memory/arena.h"
#include "convert/config.h"
#include "convert/convert.h"
#include "convert/quantize/types.h"
#include "formats/gguf/gguf.h"
#include "formats/safetensors.h"

// The transformation of each value.
enum convert_op { OP_NONE, OP_PLUS_ONE, OP_NEG_EXP };

// Moves value heads from the source's order (key head, then copy) to GGUF's (copy, then key head):
// after the first `skip` elements, each period of keys * copies units of `unit` elements is
// permuted. unit 0: nothing moves. With a cut, what it leaves is permuted.
struct convert_remap {
    int64_t skip, unit;
    int keys, copies;
};

// Takes a part of each slice of the source: element i of the result is element
// i / slice * stride + offset + i % slice of the source. slice 0: all of it.
struct convert_cut {
    int64_t slice, stride, offset;
};

struct convert_item {
    const struct tensor *src;
    const struct tensor *const *parts; // [n_parts] of equal type and size, one after the other
    int n_parts;                       // 0: src alone
    // MXFP4 as gpt-oss' folders have it: src holds the blocks' 16 bytes, values 2 i and 2 i + 1 in
    // byte i, this their scales; cut says which rows. NULL: src holds values.
    const struct tensor *scales;
    struct convert_cut cut;
    const char *name;
    uint32_t type;
    int n_dims;
    int64_t ne[4];
    enum convert_op op;
    struct convert_remap remap;
    const float *importance; // of columns, [ne[2] ne[3]][ne[0]]; NULL: none
};

struct convert_plan {
    struct arena arena;
    struct convert_item *items;
    size_t count;
    int64_t cap;
    const struct gguf *source; // whose pages may go when a tensor is done; NULL: keep them
};

int convert_plan_add(struct convert_plan *p, const struct convert_item *item, struct err *e);
void convert_plan_fini(struct convert_plan *p);

// Describes all tensors to the writer, then streams them. Bounded memory.
int convert_write(struct gguf_writer *w, const struct convert_plan *p,
                  const struct convert_options *o, struct err *e);

// The sizes that tensor shapes are made of; an index stands in the tensor tables.
enum convert_dim {
    DIM_NONE,
    DIM_D,
    DIM_V,
    DIM_F,
    DIM_HD,
    DIM_Q,
    DIM_QG,
    DIM_KV, // attention and MLP
    DIM_C,
    DIM_VD,
    DIM_NV,
    DIM_DV,
    DIM_CONV, // Gated DeltaNet
    DIM_TAPS, // drafts: taps * D
    DIM_ONE,
    DIM_2D, // prediction blocks: an embedding and a hidden state
    DIM_E,
    DIM_FE,
    DIM_FS, // experts, width of one, width of the shared one
    DIM_P,
    DIM_LP, // embeddings of a layer, of all
    DIM_QL,
    DIM_L,
    DIM_FG, // two of DIM_FE
    DIM_G,  // gates of attention's output
    DIM_O,  // latent attention: width of queries between matrices, of latents, of all heads' values
    DIM_COUNT,
};
enum convert_heads {
    HEADS_KEEP,
    HEADS_ROWS,
    HEADS_ROWS_AFTER_KEYS,
    HEADS_SCALARS,
    HEADS_COLUMNS,
    HEADS_PAIRS, // rotated halves of each head become pairs
};

struct convert_rule {
    const char *hf, *gguf;
    unsigned char dims[3]; // ggml order
    unsigned char op;      // enum convert_op
    unsigned char heads;   // enum convert_heads
};

// What quantization_config says of matrices that are not plain numbers.
struct convert_packing {
    bool fp8, int4;
    int64_t rows, columns; // elements that share a scale; 0: all of a matrix's
    bool by_rows;          // where rows is 0: a scale for each row is taken, too
};

// Everything known while a folder is converted.
struct convert_job {
    const char *dir;
    const struct convert_options *options;
    struct hf_file config;
    struct safetensors *weights;
    struct map used; // source names that were taken
    struct convert_plan plan;
    struct gguf_writer *writer;
    struct convert_model model;
    struct convert_packing packing;
    const char *arch; // general.architecture
    int64_t dim[DIM_COUNT];
    int64_t layers, heads, kv_heads;
    int64_t nextn;    // prediction blocks after the layers that are written
    int keys, copies; // Gated DeltaNet: key heads, value heads per key head
};

// Prefixes of names that checkpoints have, in order, then NULL; a name without its prefix.
const char *convert_prefix(int i);
const char *convert_bare(const char *name);
// What a layer's tensors have before their names ("layers.N."); "" outside layers. Returns buf.
enum { CONVERT_PLACE = 40 };
const char *convert_place(const struct convert_job *j, int layer, char buf[CONVERT_PLACE]);
// Counts the prediction blocks by their tensors, after j->layers is known. ERR_UNSUPPORTED: more
// than can be written.
int convert_count_nextn(struct convert_job *j, struct err *e);
// Whether a source tensor belongs to one.
bool convert_is_nextn(const struct convert_job *j, const char *name);
// Whether the family has its only prediction block under names of its own.
bool convert_nextn_apart(const struct convert_job *j);

// Adds the tensor of a rule; layer < 0: outside the blocks. Errors: missing, unreadable, misshapen.
int convert_take(struct convert_job *j, const struct convert_rule *r, int layer, struct err *e);
// The same for a list that ends with a rule without a name.
int convert_take_all(struct convert_job *j, const struct convert_rule *rules, int layer,
                     struct err *e);
// The source tensor of that name under any prefix, or NULL. ERR_UNSUPPORTED for an unreadable one.
int convert_find(struct convert_job *j, const char *hf, int layer, const struct tensor **out,
                 struct err *e);
// Counts a tensor as taken.
int convert_mark_used(struct convert_job *j, const struct tensor *t, struct err *e);
// A tensor of bytes (dtype U8), or NULL.
const struct tensor *convert_find_bytes(const struct convert_job *j, const char *hf, int layer);
int convert_missing(const struct convert_job *j, const char *hf, int layer, struct err *e);
// Whether t has those dimensions, apart from ones of size 1.
int convert_check_shape(const struct tensor *t, const int64_t *ne, int n_dims, struct err *e);
// The tensor of that name as parts[i]: slice i of the item's last dimension, of the type of
// parts[0]. As convert_missing and convert_check_shape; ERR_UNSUPPORTED: another type.
int convert_find_part(struct convert_job *j, const char *hf, int layer, const struct tensor **parts,
                      int i, const struct convert_item *item, struct err *e);
// Adds an item that lacks a type; its sources count as used.
int convert_add(struct convert_job *j, struct convert_item *item, struct err *e);
// The matrices of all experts of a layer, from a fused source or from one a part.
int convert_take_experts(struct convert_job *j, int layer, struct err *e);

// Fill the plan and write all metadata.
int convert_target(struct convert_job *j, struct err *e);
int convert_plain(struct convert_job *j, struct err *e);
int convert_gemma(struct convert_job *j, struct err *e);
int convert_gemma3(struct convert_job *j, struct err *e);
int convert_glm(struct convert_job *j, struct err *e);
int convert_deepseek(struct convert_job *j, struct err *e);
int convert_oss(struct convert_job *j, struct err *e);
int convert_laguna(struct convert_job *j, struct err *e);
int convert_draft(struct convert_job *j, struct err *e);

// The sizes that every kind has, f if requested, and those that follow from them.
int convert_read_sizes(struct convert_job *j, bool feed_forward, struct err *e);

void convert_put_general(struct convert_job *j); // architecture, name, file type
// Writes "ARCH.key".
void convert_put_u32(struct convert_job *j, const char *key, int64_t v);
void convert_put_f32(struct convert_job *j, const char *key, double v);
void convert_put_str(struct convert_job *j, const char *key, const char *s);
void convert_put_bool(struct convert_job *j, const char *key, bool v);
void convert_put_array(struct convert_job *j, const char *key, int kind, const void *elems,
                       uint64_t count);

#endif
