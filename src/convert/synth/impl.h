// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder only: the tensors of a shape and their values.
#ifndef COPPICE_CONVERT_SYNTH_IMPL_H
#define COPPICE_CONVERT_SYNTH_IMPL_H

#include "convert/quantize/types.h"
#include "convert/synth/synth.h"
#include "formats/gguf/gguf.h"

struct synth_tensor {
    char name[64];
    uint32_t type;
    int n_dims;
    int64_t ne[3];
    float mean, half; // values are spread over mean +- half; quantised types have mean 0
};

struct synth_list {
    struct synth_tensor *items;
    int n;
    int64_t cap;
    bool failed; // out of memory
};

// Adds tensors one by one, outside of layers if layer is -1; `model` decides the types of matrices.
struct synth_builder {
    struct synth_list *list;
    struct convert_model model;
};
// n F32 values spread over mean +- half; the same around 1.
void synth_vector(struct synth_builder *b, int layer, const char *name, int64_t n, float mean,
                  float half);
void synth_norm(struct synth_builder *b, int layer, const char *name, int64_t n);
// Rows of them, outside of layers.
void synth_norms(struct synth_builder *b, const char *name, int64_t n, int64_t rows);
// A matrix of k columns and m rows whose standard deviation is size / sqrt(k).
void synth_matrix(struct synth_builder *b, int layer, const char *name, int64_t k, int64_t m,
                  double size);
// The same of each expert, one after another; n values of each of m experts.
void synth_experts(struct synth_builder *b, int layer, const char *name, const int64_t shape[3]);
void synth_biases(struct synth_builder *b, int layer, const char *name, int64_t n, int64_t m);

// Layers of gemma4 with what it has outside of them beside the embedding, and its keys (but for
// those that all shapes have).
void synth_gemma_tensors(struct synth_builder *b, const struct synth_shape *s);
void synth_gemma_metadata(struct gguf_writer *w, const struct synth_shape *s);

// Appends the tensors of the shape in file order, with their types.
void synth_tensors(struct synth_list *l, const struct synth_shape *s,
                   const struct convert_recipe *r);
// Writes all metadata of the shape.
void synth_metadata(struct gguf_writer *w, const struct synth_shape *s,
                    const struct convert_recipe *r);

// How the shape's tokenizer cuts texts (tokenizer.ggml.pre).
const char *synth_pre(const struct synth_shape *s);

// Writes a vocabulary of n tokens, n >= 256, whose texts are cut as `pre` says. ERR_MEMORY.
int synth_vocabulary(struct gguf_writer *w, int64_t n, const char *pre, struct err *e);

// Values of one tensor. The table holds what a random index stands for in 16-bit types.
enum { SYNTH_TABLE = 4096 };
struct synth_fill {
    const struct synth_tensor *t;
    uint64_t seed; // of this tensor
    uint16_t table[SYNTH_TABLE];
};
// False when values of this type cannot be made.
bool synth_fill_init(struct synth_fill *f, const struct synth_tensor *t, uint64_t seed);
// Blocks first .. first+n-1 of the tensor. Quantised types count their own blocks, plain types
// blocks of synth_block() elements, of which the last of a tensor may be short.
void synth_fill_blocks(const struct synth_fill *f, int64_t first, int64_t n, unsigned char *out);
int64_t synth_block(uint32_t type);

#endif
