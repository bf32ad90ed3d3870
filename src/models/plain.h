// SPDX-License-Identifier: Apache-2.0
// The plain decoder: every layer is full attention, then SwiGLU or experts, each behind an RMSNorm.
// Llama, Qwen2 and Qwen3 are this with other heads; an architecture file says which.
#ifndef COPPICE_MODELS_PLAIN_H
#define COPPICE_MODELS_PLAIN_H

#include "models/model_impl.h"

enum plain_bias { PLAIN_NO_BIAS, PLAIN_BIAS, PLAIN_BIAS_IF_THERE };
enum plain_norm { PLAIN_NO_NORM, PLAIN_NORM, PLAIN_NORM_IF_THERE };

struct plain_arch {
    struct model_desc desc;  // with the four functions below
    enum plain_norm qk_norm; // RMSNorm of each head of queries and keys
    enum plain_bias bias;    // of queries, keys and values; if there, of the output too
    bool factors;            // a tensor rope_freqs may divide the rotary angles
    int pairs;               // enum rope_pairs
    double base;             // rotary base where the file has none; 0: it must have one
    const char *ffn_norm;    // the norm before the feed-forward block; NULL: ffn_norm.weight
    // How experts are chosen, where layers have some; scale 0: they have none. Where shared is not
    // 0, there is a shared one too, as wide as expert_shared_count others, and there may be dense
    // layers before. A choice_bias is taken if there is one.
    struct moe_shape experts;
    int64_t draft_mask;
};

extern const struct plain_arch arch_qwen3, arch_qwen3moe, arch_qwen2, arch_llama, arch_glm4moe;

int plain_params(struct model *m, const struct gguf *g, struct err *e);
int plain_load(struct model *m, const struct gguf *g, struct err *e);
int plain_buffers(struct model *m, int64_t rows, struct err *e);
void plain_forward(struct model *m, const struct pass *p);

#endif
