// SPDX-License-Identifier: Apache-2.0
// The shapes of published models, and what a file of each consists of: tensors with their types,
// and metadata. Matrices get values of size 1/sqrt(inputs), so that what comes out is as large as
// what went in and the residual stream stays within 1 to 100.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "convert/quantize/types.h"
#include "convert/synth/tensors.h"

#define QWEN35 .head_dim = 256, .gdn_k = 16, .gdn_dim = 128, .rope_dims = 64, .vocab = 248320
#define QWEN3  .plain = true, .head_dim = 128, .vocab = 151936
#define LLAMA  .plain = true, .arch = "llama", .kv = 8, .vocab = 128256
#define OSS    .plain = true, .arch = "gpt-oss"
#define LAGUNA .plain = true, .arch = "laguna"
#define GEMMA                                                                                      \
    .plain = true, .arch = "gemma4", .vocab = 262144, .head_dim = 256, .full_head = 512,           \
    .tied = true
#define GEMMA3 .plain = true, .arch = "gemma3", .vocab = 262144, .period = 6, .tied = true
#define DEEPSEEK                                                                                   \
    .plain = true, .arch = "deepseek2", .kv = 1, .kv_lora = 512, .nope = 128, .v_dim = 128,        \
    .rope_dims = 64

#define DRAFT .draft = true, .kv = 8, .head_dim = 128
#define DRAFT_OSS                                                                                  \
    .draft = true, .layers = 8, .dim = 2880, .ffn = 7680, .vocab = 201088, .heads = 64, .kv = 8,   \
    .head_dim = 64, .mask = 200000, .n_taps = 5, .base = 1.5e5f, .yarn = 32, .biased = true
#define DRAFT_GEMMA                                                                                \
    .draft = true, .layers = 5, .vocab = 262144, .kv = 8, .head_dim = 128, .block = 16,            \
    .window = 2048, .mask = 4, .n_taps = 6, .base = 1e6f, .cap = 30

static const struct synth_shape shapes[] = {
    {"qwen35-0.8b", QWEN35, .layers = 24, .dim = 1024, .ffn = 3584, .heads = 8, .kv = 2,
     .gdn_v = 16, .tied = true},
    {"qwen35-2b", QWEN35, .layers = 24, .dim = 2048, .ffn = 6144, .heads = 8, .kv = 2, .gdn_v = 16,
     .tied = true},
    {"qwen35-4b", QWEN35, .layers = 32, .dim = 2560, .ffn = 9216, .heads = 16, .kv = 4, .gdn_v = 32,
     .tied = true},
    {"qwen35-9b", QWEN35, .layers = 32, .dim = 4096, .ffn = 12288, .heads = 16, .kv = 4,
     .gdn_v = 32},
    {"qwen35-27b", QWEN35, .layers = 64, .dim = 5120, .ffn = 17408, .heads = 24, .kv = 4,
     .gdn_v = 48},
    {"qwen35-27b-mtp", QWEN35, .nextn = 1, .layers = 64, .dim = 5120, .ffn = 17408, .heads = 24,
     .kv = 4, .gdn_v = 48},
    {"qwen35-tiny", .layers = 4, .dim = 256, .ffn = 512, .vocab = 512, .heads = 2, .kv = 1,
     .head_dim = 64, .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32},
    {"qwen35-tiny-mtp", .nextn = 1, .layers = 4, .dim = 256, .ffn = 512, .vocab = 512, .heads = 2,
     .kv = 1, .head_dim = 64, .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32},
    {"qwen3-0.6b", QWEN3, .layers = 28, .dim = 1024, .ffn = 3072, .heads = 16, .kv = 8,
     .tied = true},
    {"qwen3-8b", QWEN3, .layers = 36, .dim = 4096, .ffn = 12288, .heads = 32, .kv = 8},
    {"qwen3-tiny", .plain = true, .layers = 4, .dim = 256, .ffn = 512, .vocab = 512, .heads = 4,
     .kv = 2, .head_dim = 64, .tied = true},
    {"llama-1b", LLAMA, .layers = 16, .dim = 2048, .ffn = 8192, .heads = 32, .head_dim = 64,
     .tied = true},
    {"llama-8b", LLAMA, .layers = 32, .dim = 4096, .ffn = 14336, .heads = 32, .head_dim = 128},
    {"llama-tiny", .plain = true, .arch = "llama", .layers = 4, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .tied = true},
    {"qwen2-7b", .plain = true, .arch = "qwen2", .layers = 28, .dim = 3584, .ffn = 18944,
     .vocab = 152064, .heads = 28, .kv = 4, .head_dim = 128},
    {"qwen2-tiny", .plain = true, .arch = "qwen2", .layers = 4, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .tied = true},
    {"qwen35-35b-a3b", QWEN35, .layers = 40, .dim = 2048, .heads = 16, .kv = 2, .gdn_v = 32,
     .experts = 256, .used = 8, .expert_ffn = 512, .shared_ffn = 512},
    {"qwen35-35b-a3b-mtp", QWEN35, .nextn = 1, .layers = 40, .dim = 2048, .heads = 16, .kv = 2,
     .gdn_v = 32, .experts = 256, .used = 8, .expert_ffn = 512, .shared_ffn = 512},
    {"qwen35-122b-a10b", QWEN35, .layers = 48, .dim = 3072, .heads = 32, .kv = 2, .gdn_v = 64,
     .experts = 256, .used = 8, .expert_ffn = 1024, .shared_ffn = 1024},
    {"qwen35moe-tiny", .layers = 4, .dim = 256, .vocab = 512, .heads = 2, .kv = 1, .head_dim = 64,
     .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32, .experts = 16, .used = 4,
     .expert_ffn = 256, .shared_ffn = 256},
    {"qwen35moe-tiny-mtp", .nextn = 1, .layers = 4, .dim = 256, .vocab = 512, .heads = 2, .kv = 1,
     .head_dim = 64, .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32, .experts = 16,
     .used = 4, .expert_ffn = 256, .shared_ffn = 256},
    {"qwen3-30b-a3b", QWEN3, .layers = 48, .dim = 2048, .heads = 32, .kv = 4, .experts = 128,
     .used = 8, .expert_ffn = 768},
    {"qwen3moe-tiny", .plain = true, .layers = 4, .dim = 256, .vocab = 512, .heads = 4, .kv = 2,
     .head_dim = 64, .experts = 16, .used = 4, .expert_ffn = 256, .tied = true},
    {"glm-4.5-air", .plain = true, .arch = "glm4moe", .layers = 46, .dim = 4096, .ffn = 10944,
     .vocab = 151552, .heads = 96, .kv = 8, .head_dim = 128, .rope_dims = 64, .experts = 128,
     .used = 8, .lead = 1, .expert_ffn = 1408, .shared_ffn = 1408},
    {"glm-4.5-air-mtp", .plain = true, .arch = "glm4moe", .nextn = 1, .layers = 46, .dim = 4096,
     .ffn = 10944, .vocab = 151552, .heads = 96, .kv = 8, .head_dim = 128, .rope_dims = 64,
     .experts = 128, .used = 8, .lead = 1, .expert_ffn = 1408, .shared_ffn = 1408},
    {"glm4moe-tiny", .plain = true, .arch = "glm4moe", .layers = 4, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .rope_dims = 32, .experts = 16, .used = 4,
     .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
    {"glm4moe-tiny-mtp", .plain = true, .arch = "glm4moe", .nextn = 1, .layers = 4, .dim = 256,
     .ffn = 512, .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .rope_dims = 32, .experts = 16,
     .used = 4, .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
    {"gpt-oss-20b", OSS, .layers = 24, .dim = 2880, .heads = 64, .kv = 8, .head_dim = 64,
     .vocab = 201088, .window = 128, .experts = 32, .used = 4, .expert_ffn = 2880},
    {"gpt-oss-120b", OSS, .layers = 36, .dim = 2880, .heads = 64, .kv = 8, .head_dim = 64,
     .vocab = 201088, .window = 128, .experts = 128, .used = 4, .expert_ffn = 2880},
    {"gpt-oss-tiny", OSS, .layers = 4, .dim = 256, .heads = 4, .kv = 2, .head_dim = 64,
     .vocab = 512, .window = 32, .experts = 16, .used = 4, .expert_ffn = 256},
    {"deepseek-v2-lite", DEEPSEEK, .layers = 27, .dim = 2048, .ffn = 10944, .heads = 16,
     .vocab = 102400, .experts = 64, .used = 6, .lead = 1, .expert_ffn = 1408, .shared_ffn = 2816},
    {"deepseek-v3", DEEPSEEK, .layers = 61, .dim = 7168, .ffn = 18432, .heads = 128,
     .vocab = 129280, .q_lora = 1536, .experts = 256, .used = 8, .lead = 3, .expert_ffn = 2048,
     .shared_ffn = 2048},
    {"kimi-k2", DEEPSEEK, .layers = 61, .dim = 7168, .ffn = 18432, .heads = 64, .vocab = 163840,
     .q_lora = 1536, .experts = 384, .used = 8, .lead = 1, .expert_ffn = 2048, .shared_ffn = 2048},
    {"deepseek2-tiny", .plain = true, .arch = "deepseek2", .layers = 4, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 1, .q_lora = 128, .kv_lora = 64, .nope = 32, .v_dim = 64,
     .rope_dims = 32, .experts = 16, .used = 4, .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
    {"deepseek2-tiny-mtp",
     .plain = true,
     .arch = "deepseek2",
     .nextn = 1,
     .layers = 4,
     .dim = 256,
     .ffn = 512,
     .vocab = 512,
     .heads = 4,
     .kv = 1,
     .q_lora = 128,
     .kv_lora = 64,
     .nope = 32,
     .v_dim = 64,
     .rope_dims = 32,
     .experts = 16,
     .used = 4,
     .lead = 1,
     .expert_ffn = 256,
     .shared_ffn = 256},
    {"laguna-xs.2", LAGUNA, .layers = 40, .dim = 2048, .ffn = 8192, .heads = 48, .window_heads = 64,
     .kv = 8, .head_dim = 128, .vocab = 100352, .rope_dims = 64, .window = 512, .experts = 256,
     .used = 8, .lead = 1, .expert_ffn = 512, .shared_ffn = 512},
    {"laguna-s-2.1", LAGUNA, .layers = 48, .dim = 3072, .ffn = 12288, .heads = 48,
     .window_heads = 72, .kv = 8, .head_dim = 128, .vocab = 100352, .rope_dims = 64, .window = 512,
     .experts = 256, .used = 10, .lead = 1, .expert_ffn = 1024, .shared_ffn = 1024},
    // The width of dense layers is not published: four times the stream's, as in the smaller ones.
    {"laguna-m.1", LAGUNA, .layers = 70, .dim = 4096, .ffn = 16384, .heads = 64, .kv = 8,
     .head_dim = 128, .vocab = 100352, .rope_dims = 128, .experts = 256, .used = 16, .lead = 3,
     .expert_ffn = 1024, .shared_ffn = 1024, .wide = true},
    {"laguna-tiny", LAGUNA, .layers = 5, .dim = 256, .ffn = 512, .heads = 4, .window_heads = 6,
     .kv = 2, .head_dim = 64, .vocab = 512, .rope_dims = 32, .window = 32, .experts = 16, .used = 4,
     .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
    {"gemma3-270m", GEMMA3, .layers = 18, .dim = 640, .ffn = 2048, .heads = 4, .kv = 1,
     .head_dim = 256, .window = 512},
    {"gemma3-1b", GEMMA3, .layers = 26, .dim = 1152, .ffn = 6912, .heads = 4, .kv = 1,
     .head_dim = 256, .window = 512},
    {"gemma3-4b", GEMMA3, .layers = 34, .dim = 2560, .ffn = 10240, .heads = 8, .kv = 4,
     .head_dim = 256, .window = 1024, .linear = 8},
    {"gemma3-12b", GEMMA3, .layers = 48, .dim = 3840, .ffn = 15360, .heads = 16, .kv = 8,
     .head_dim = 256, .window = 1024, .linear = 8},
    {"gemma3-27b", GEMMA3, .layers = 62, .dim = 5376, .ffn = 21504, .heads = 32, .kv = 16,
     .head_dim = 128, .window = 1024, .linear = 8},
    {"gemma3-tiny", .plain = true, .arch = "gemma3", .layers = 7, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 1, .head_dim = 64, .window = 32, .period = 3, .linear = 8,
     .tied = true},
    {"gemma4-e2b", GEMMA, .layers = 35, .dim = 1536, .ffn = 6144, .heads = 8, .kv = 1, .full_kv = 1,
     .window = 512, .period = 5, .borrowing = 20, .wide = true, .per_layer = 256},
    {"gemma4-e4b", GEMMA, .layers = 42, .dim = 2560, .ffn = 10240, .heads = 8, .kv = 2,
     .full_kv = 2, .window = 512, .period = 6, .borrowing = 18, .per_layer = 256},
    {"gemma4-26b-a4b", GEMMA, .layers = 30, .dim = 2816, .ffn = 2112, .heads = 16, .kv = 8,
     .full_kv = 2, .k_eq_v = true, .window = 1024, .period = 6, .experts = 128, .used = 8,
     .expert_ffn = 704},
    {"gemma4-31b", GEMMA, .layers = 60, .dim = 5376, .ffn = 21504, .heads = 32, .kv = 16,
     .full_kv = 4, .k_eq_v = true, .window = 1024, .period = 6},
    {"gemma4-tiny", .plain = true, .arch = "gemma4", .layers = 6, .dim = 256, .ffn = 256,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .full_head = 128, .full_kv = 1,
     .window = 32, .period = 3, .borrowing = 3, .wide = true, .per_layer = 64, .tied = true},
    {"gemma4moe-tiny", .plain = true, .arch = "gemma4", .layers = 6, .dim = 256, .ffn = 256,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .full_head = 128, .full_kv = 1,
     .k_eq_v = true, .window = 32, .period = 3, .experts = 16, .used = 4, .expert_ffn = 256,
     .tied = true},
    {"dflash-4b", .draft = true, .layers = 6, .dim = 2560, .ffn = 9216, .vocab = 248320,
     .heads = 32, .kv = 8, .head_dim = 128, .block = 16, .window = 4096, .mask = 248077,
     .n_taps = 8, .taps = {1, 5, 9, 13, 17, 21, 25, 29}},
    {"dflash-35b-a3b", .draft = true, .layers = 6, .dim = 2048, .ffn = 6144, .vocab = 248320,
     .heads = 32, .kv = 8, .head_dim = 128, .block = 16, .window = 4096, .mask = 248077,
     .n_taps = 8, .taps = {1, 6, 11, 16, 22, 27, 32, 37}},
    {"dflash-27b", .draft = true, .layers = 5, .dim = 5120, .ffn = 17408, .vocab = 248320,
     .heads = 32, .kv = 8, .head_dim = 128, .block = 16, .window = 2048, .mask = 248070,
     .n_taps = 5, .taps = {1, 16, 31, 46, 61}},
    {"dflash2-27b", .draft = true, .layers = 5, .dim = 5120, .ffn = 17408, .vocab = 248320,
     .heads = 32, .kv = 8, .head_dim = 128, .block = 8, .window = 2048, .mask = 248070, .n_taps = 5,
     .taps = {5, 19, 33, 47, 61}, .conv = 2, .group = 16, .rank = 256, .candidates = 16},
    {"dspark-27b", DRAFT, .layers = 5, .dim = 5120, .ffn = 17408, .vocab = 248320, .heads = 32,
     .block = 7, .mask = 248070, .n_taps = 5, .taps = {5, 19, 33, 47, 61}, .yarn = 32, .rank = 256},
    {"dflash-qwen3-8b", DRAFT, .layers = 5, .dim = 4096, .ffn = 12288, .vocab = 151936, .heads = 32,
     .block = 16, .mask = 151669, .n_taps = 5, .taps = {1, 9, 17, 25, 33}, .base = 1e6f},
    {"dflash-qwen3-30b-a3b", .draft = true, .layers = 8, .dim = 2048, .ffn = 6144, .vocab = 151936,
     .heads = 32, .kv = 4, .head_dim = 128, .block = 16, .mask = 151669, .n_taps = 5,
     .taps = {1, 12, 23, 34, 45}},
    {"dflash-llama-8b", DRAFT, .layers = 5, .dim = 4096, .ffn = 12288, .vocab = 128256, .heads = 32,
     .block = 10, .mask = 128002, .n_taps = 5, .taps = {1, 8, 15, 22, 29}, .base = 5e5f},
    {"dflash-gpt-oss-20b", DRAFT_OSS, .block = 8, .taps = {1, 6, 11, 16, 21}},
    {"dflash-gpt-oss-120b", DRAFT_OSS, .block = 10, .taps = {1, 9, 17, 25, 33}},
    {"dflash-kimi-k2.5", DRAFT, .layers = 6, .dim = 7168, .ffn = 18432, .vocab = 163840,
     .heads = 64, .block = 8, .mask = 163838, .n_taps = 6, .taps = {1, 12, 24, 35, 47, 58},
     .base = 5e4f, .yarn = 64},
    {"dflash-gemma4-26b-a4b", DRAFT_GEMMA, .dim = 2816, .ffn = 5632, .heads = 32,
     .taps = {1, 6, 11, 17, 22, 27}},
    {"dflash-gemma4-31b", DRAFT_GEMMA, .dim = 5376, .ffn = 10752, .heads = 64,
     .taps = {1, 12, 23, 35, 46, 57}},
    {"dflash-laguna-xs.2", DRAFT, .layers = 5, .dim = 2048, .ffn = 8192, .vocab = 100352,
     .heads = 64, .block = 16, .window = 512, .mask = 12, .n_taps = 5, .taps = {1, 13, 25, 33, 39},
     .base = 5e5f, .gated = true},
    {"dflash-laguna-s-2.1", DRAFT, .layers = 6, .dim = 3072, .ffn = 12288, .vocab = 100352,
     .heads = 72, .block = 16, .window = 512, .mask = 12, .n_taps = 6,
     .taps = {1, 10, 19, 29, 38, 47}, .base = 5e5f, .gated = true},
    {"dflash-laguna-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512,
     .heads = 4, .kv = 2, .head_dim = 64, .block = 8, .window = 32, .mask = 511, .n_taps = 3,
     .taps = {1, 2, 4}, .base = 5e5f, .gated = true},
    {"dflash2-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512, .heads = 4,
     .kv = 2, .head_dim = 64, .block = 8, .window = 64, .mask = 511, .n_taps = 2, .taps = {1, 2},
     .conv = 2, .group = 16, .rank = 32, .candidates = 8},
    {"dspark-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512, .heads = 4,
     .kv = 2, .head_dim = 64, .block = 7, .mask = 511, .n_taps = 2, .taps = {1, 2}, .rank = 32},
    {"dflash-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512, .heads = 4,
     .kv = 2, .head_dim = 64, .block = 16, .window = 64, .mask = 511, .n_taps = 2, .taps = {1, 2}},
};

const char *synth_shape_name(int i) {
    return i >= 0 && i < (int)(sizeof shapes / sizeof *shapes) ? shapes[i].name : NULL;
}

const struct synth_shape *synth_shape(const char *name) {
    for (int i = 0; synth_shape_name(i); i++)
        if (!strcmp(shapes[i].name, name))
            return &shapes[i];
    return NULL;
}

// Adds tensors one by one, outside of layers if layer is -1; `model` decides the types of matrices.
struct synth_builder {
    struct synth_list *list;
    struct convert_model model;
};
static struct synth_tensor *add_tensor(struct synth_builder *b, int layer, const char *name) {
    struct synth_list *l = b->list;
    if (vec_reserve(&l->items, &l->cap, l->n + 1, sizeof *l->items, NULL)) {
        l->failed = true;
        return NULL;
    }
    struct synth_tensor *t = &l->items[l->n++];
    *t = (struct synth_tensor){.n_dims = 1, .ne = {1, 1, 1}};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    return t;
}

// n F32 values spread over mean +- half.
static void add_vector(struct synth_builder *b, int layer, const char *name, int64_t n, float mean,
                       float half) {
    struct synth_tensor *t = add_tensor(b, layer, name);
    if (!t)
        return;
    t->ne[0] = n;
    t->mean = mean;
    t->half = half;
}

// A matrix of k columns and m rows whose standard deviation is size / sqrt(k).
static void add_matrix(struct synth_builder *b, int layer, const char *name, int64_t k, int64_t m,
                       double size) {
    struct synth_tensor *t = add_tensor(b, layer, name);
    if (!t)
        return;
    t->n_dims = 2;
    t->ne[0] = k;
    t->ne[1] = m;
    t->half = (float)(size * sqrt(3.0 / (double)k));
    if (convert_eligible(t->name, 2))
        t->type = convert_type(&b->model, &(struct convert_matrix){t->name, k, 1, 0});
}

// The same of each expert, one after another.
static void add_experts(struct synth_builder *b, int layer, const char *name,
                        const int64_t shape[3]) {
    struct synth_tensor *t = add_tensor(b, layer, name);
    if (!t)
        return;
    t->n_dims = 3;
    memcpy(t->ne, shape, sizeof t->ne);
    t->half = (float)sqrt(3.0 / (double)t->ne[0]);
    t->type = convert_type(&b->model, &(struct convert_matrix){t->name, t->ne[0], t->ne[2], 0});
}

// n F32 values spread over mean +- half in each of `rows` rows.
static void add_rows(struct synth_builder *b, int layer, const char *name, int64_t n, int64_t rows,
                     float mean, float half) {
    struct synth_tensor *t = add_tensor(b, layer, name);
    if (!t)
        return;
    t->n_dims = 2;
    t->ne[0] = n;
    t->ne[1] = rows;
    t->mean = mean;
    t->half = half;
}

// The same around 1.
static void add_norm(struct synth_builder *b, int layer, const char *name, int64_t n) {
    add_vector(b, layer, name, n, 1, 0.2f);
}

// Max layers; how loud blocks are next to the embedding, which is the head as well: else each
// token would predict itself.
enum { GEMMA_LAYERS_MAX = 128, LOUD = 4 };

static bool is_gemma_full(const struct synth_shape *s, int i) {
    return (i + 1) % s->period == 0;
}

// The last layers of the shape do, but never the first of a kind, as when layers are left out.
static int gemma_borrowing(const struct synth_shape *s) {
    int max = s->layers - s->period;
    return s->borrowing < max ? s->borrowing : max > 0 ? max : 0;
}

static bool borrows(const struct synth_shape *s, int i) {
    return i >= s->layers - gemma_borrowing(s);
}

static int64_t gemma_ffn_width(const struct synth_shape *s, int i) {
    return s->wide && borrows(s, i) ? 2 * s->ffn : s->ffn;
}

static void add_gemma_attention(struct synth_builder *b, const struct synth_shape *s, int i) {
    bool full = s->full_head && is_gemma_full(s, i);
    int64_t hd = full ? s->full_head : s->head_dim, q = s->heads * hd;
    int64_t kv = (full ? s->full_kv : s->kv) * hd;
    // In Gemma 4 scores are not divided by anything, so that norms of heads are small.
    float size = s->full_head ? 2 / powf((float)hd, 0.25f) : 2;
    add_matrix(b, i, "attn_q.weight", s->dim, q, 1);
    add_matrix(b, i, "attn_output.weight", q, s->dim, 1);
    add_vector(b, i, "attn_q_norm.weight", hd, size, size / 5);
    if (borrows(s, i))
        return;
    add_matrix(b, i, "attn_k.weight", s->dim, kv, 1);
    add_vector(b, i, "attn_k_norm.weight", hd, size, size / 5);
    if (!full || !s->k_eq_v)
        add_matrix(b, i, "attn_v.weight", s->dim, kv, 1);
}

static void add_gemma_experts(struct synth_builder *b, const struct synth_shape *s, int i) {
    const int64_t in[3] = {s->dim, 2 * s->expert_ffn, s->experts};
    const int64_t out[3] = {s->expert_ffn, s->dim, s->experts};
    add_matrix(b, i, "ffn_gate_inp.weight", s->dim, s->experts, 2 * sqrt((double)s->dim));
    add_norm(b, i, "ffn_gate_inp.scale", s->dim);
    add_norm(b, i, "ffn_down_exps.scale", s->experts);
    add_norm(b, i, "pre_ffw_norm_2.weight", s->dim);
    add_norm(b, i, "post_ffw_norm_1.weight", s->dim);
    add_norm(b, i, "post_ffw_norm_2.weight", s->dim);
    add_experts(b, i, "ffn_gate_up_exps.weight", in);
    add_experts(b, i, "ffn_down_exps.weight", out);
}

static void add_gemma_layers(struct synth_builder *b, const struct synth_shape *s) {
    int64_t all = s->layers * s->per_layer;
    if (s->full_head)
        add_vector(b, -1, "rope_freqs.weight", s->full_head / 2, 1.5f, 0.5f);
    if (all) {
        add_matrix(b, -1, "per_layer_token_embd.weight", all, s->vocab, 1);
        add_matrix(b, -1, "per_layer_model_proj.weight", s->dim, all, 1);
        add_norm(b, -1, "per_layer_proj_norm.weight", s->per_layer);
    }
    for (int i = 0; i < s->layers; i++) {
        add_norm(b, i, "attn_norm.weight", s->dim);
        add_gemma_attention(b, s, i);
        add_vector(b, i, "post_attention_norm.weight", s->dim, LOUD, LOUD / 5.0f);
        add_norm(b, i, "ffn_norm.weight", s->dim);
        add_matrix(b, i, "ffn_gate.weight", s->dim, gemma_ffn_width(s, i), 1);
        add_matrix(b, i, "ffn_up.weight", s->dim, gemma_ffn_width(s, i), 1);
        add_matrix(b, i, "ffn_down.weight", gemma_ffn_width(s, i), s->dim, 1);
        add_vector(b, i, "post_ffw_norm.weight", s->dim, LOUD, LOUD / 5.0f);
        if (s->experts)
            add_gemma_experts(b, s, i);
        if (!all)
            continue;
        add_matrix(b, i, "inp_gate.weight", s->dim, s->per_layer, 1);
        add_matrix(b, i, "proj.weight", s->per_layer, s->dim, 1);
        add_norm(b, i, "post_norm.weight", s->dim);
    }
}

static bool full_layer(const struct synth_shape *s, int i) {
    return s->draft || s->plain || i % 4 == 3 || i >= s->layers;
}

static const char *arch_of(const struct synth_shape *s) {
    if (s->draft)
        return "dflash";
    if (s->experts && !s->arch)
        return s->plain ? "qwen3moe" : "qwen35moe";
    if (!s->plain)
        return "qwen35";
    return s->arch ? s->arch : "qwen3";
}

static bool is_arch(const struct synth_shape *s, const char *arch) {
    return !strcmp(arch_of(s), arch);
}

static bool is_glm(const struct synth_shape *s) {
    return is_arch(s, "glm4moe");
}

static bool is_oss(const struct synth_shape *s) {
    return is_arch(s, "gpt-oss");
}

static bool is_laguna(const struct synth_shape *s) {
    return is_arch(s, "laguna");
}

// Dense layers first, then experts with a shared one, with a bias for the choice.
static bool has_lead(const struct synth_shape *s) {
    return is_glm(s) || is_laguna(s) || is_arch(s, "deepseek2");
}

static bool is_gemma3(const struct synth_shape *s) {
    return is_arch(s, "gemma3");
}

static bool is_gemma4(const struct synth_shape *s) {
    return is_arch(s, "gemma4");
}

const char *synth_pre(const struct synth_shape *s) {
    if (is_arch(s, "deepseek2"))
        return "deepseek-v3";
    if (is_oss(s))
        return "gpt-4o";
    if (is_laguna(s))
        return "laguna";
    return is_arch(s, "llama") ? "llama-bpe" : s->plain ? "qwen2" : "qwen35";
}

// Where layers with a window have another number, the first of each four is full.
static int heads_of(const struct synth_shape *s, int i) {
    return s->window_heads && i % 4 ? s->window_heads : s->heads;
}

static void add_attention(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t width = (int64_t)heads_of(s, i) * s->head_dim, kv = (int64_t)s->kv * s->head_dim;
    bool gated = !s->draft && !s->plain;
    bool normed = !s->plain || (s->experts && !is_glm(s) && !is_oss(s)) || is_arch(s, "qwen3");
    if (is_laguna(s) || s->gated)
        add_matrix(b, i, "attn_gate.weight", s->dim, s->wide ? width : heads_of(s, i), 1);
    // Scores of a size that tells tokens apart: with nothing but attention, flat ones would make
    // the next token a function of the last, and every text would soon repeat itself.
    float size = s->plain ? 2 : 1;
    add_matrix(b, i, "attn_q.weight", s->dim, gated ? 2 * width : width, normed ? 1 : size);
    add_matrix(b, i, "attn_k.weight", s->dim, kv, normed ? 1 : size);
    add_matrix(b, i, "attn_v.weight", s->dim, kv, 1);
    add_matrix(b, i, "attn_output.weight", width, s->dim, 1);
    if (is_oss(s) || s->biased)
        add_vector(b, i, "attn_output.bias", s->dim, 0, 0.1f);
    if (is_oss(s))
        add_vector(b, i, "attn_sinks.weight", s->heads, 0, 1);
    if (is_arch(s, "qwen2") || is_glm(s) || is_oss(s) || s->biased) {
        add_vector(b, i, "attn_q.bias", width, 0, 0.5f);
        add_vector(b, i, "attn_k.bias", kv, 0, 0.5f);
        add_vector(b, i, "attn_v.bias", kv, 0, 0.5f);
    }
    if (!normed)
        return;
    add_vector(b, i, "attn_q_norm.weight", s->head_dim, size, 0.2f);
    add_vector(b, i, "attn_k_norm.weight", s->head_dim, size, 0.2f);
}

static void add_latent_attention(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t q = (int64_t)s->heads * (s->nope + s->rope_dims);
    const int64_t k[3] = {s->nope, s->kv_lora, s->heads}, v[3] = {s->kv_lora, s->v_dim, s->heads};
    if (s->q_lora) {
        add_matrix(b, i, "attn_q_a.weight", s->dim, s->q_lora, 1);
        add_norm(b, i, "attn_q_a_norm.weight", s->q_lora);
        add_matrix(b, i, "attn_q_b.weight", s->q_lora, q, 2);
    } else {
        add_matrix(b, i, "attn_q.weight", s->dim, q, 2);
    }
    add_matrix(b, i, "attn_kv_a_mqa.weight", s->dim, s->kv_lora + s->rope_dims, 1);
    add_norm(b, i, "attn_kv_a_norm.weight", s->kv_lora);
    add_experts(b, i, "attn_k_b.weight", k);
    add_experts(b, i, "attn_v_b.weight", v);
    add_matrix(b, i, "attn_output.weight", (int64_t)s->heads * s->v_dim, s->dim, 1);
}

// Decay of a step is exp(ssm_a * softplus(a + bias)): from nearly 1 down to about 0.1.
static void add_deltanet(struct synth_builder *b, const struct synth_shape *s, int i) {
    int64_t vd = (int64_t)s->gdn_v * s->gdn_dim, c = 2 * (int64_t)s->gdn_k * s->gdn_dim + vd;
    add_matrix(b, i, "attn_qkv.weight", s->dim, c, 1);
    add_matrix(b, i, "attn_gate.weight", s->dim, vd, 1);
    add_matrix(b, i, "ssm_alpha.weight", s->dim, s->gdn_v, 1);
    add_matrix(b, i, "ssm_beta.weight", s->dim, s->gdn_v, 1);
    add_matrix(b, i, "ssm_conv1d.weight", 4, c, 1);
    add_vector(b, i, "ssm_a", s->gdn_v, -0.5f, 0.48f);
    add_vector(b, i, "ssm_dt.bias", s->gdn_v, -2, 2);
    add_norm(b, i, "ssm_norm.weight", s->gdn_dim);
    add_matrix(b, i, "ssm_out.weight", vd, s->dim, 1);
}

// Router logits of size 2 choose as unevenly as those of trained models do for a text.
static void add_expert_block(struct synth_builder *b, const struct synth_shape *s, int i) {
    const int64_t in[3] = {s->dim, s->expert_ffn, s->experts};
    const int64_t out[3] = {s->expert_ffn, s->dim, s->experts};
    add_matrix(b, i, "ffn_gate_inp.weight", s->dim, s->experts, 2);
    add_experts(b, i, "ffn_gate_exps.weight", in);
    add_experts(b, i, "ffn_up_exps.weight", in);
    add_experts(b, i, "ffn_down_exps.weight", out);
    if (is_oss(s)) {
        add_vector(b, i, "ffn_gate_inp.bias", s->experts, 0, 0.2f);
        add_rows(b, i, "ffn_gate_exps.bias", s->expert_ffn, s->experts, 0, 0.1f);
        add_rows(b, i, "ffn_up_exps.bias", s->expert_ffn, s->experts, 0, 0.1f);
        add_rows(b, i, "ffn_down_exps.bias", s->dim, s->experts, 0, 0.1f);
    }
    if (!s->shared_ffn)
        return;
    if (has_lead(s))
        add_vector(b, i, "exp_probs_b.bias", s->experts, 0, 0.2f);
    else
        add_vector(b, i, "ffn_gate_inp_shexp.weight", s->dim, 0, (float)sqrt(3.0 / (double)s->dim));
    add_matrix(b, i, "ffn_gate_shexp.weight", s->dim, s->shared_ffn, 1);
    add_matrix(b, i, "ffn_up_shexp.weight", s->dim, s->shared_ffn, 1);
    add_matrix(b, i, "ffn_down_shexp.weight", s->shared_ffn, s->dim, 1);
}

static void add_mlp(struct synth_builder *b, const struct synth_shape *s, int i) {
    if (s->experts && i >= s->lead) {
        add_expert_block(b, s, i);
        return;
    }
    add_matrix(b, i, "ffn_gate.weight", s->dim, s->ffn, 1);
    add_matrix(b, i, "ffn_up.weight", s->dim, s->ffn, 1);
    add_matrix(b, i, "ffn_down.weight", s->ffn, s->dim, 1);
}

// Kernels near those that keep the row; a selector whose sums are of the size of a logit's
// differences.
static void add_convolutions(struct synth_builder *b, const struct synth_shape *s, int i) {
    static const char *const names[2][2] = {{"attn_conv_base", "attn_conv_proj.weight"},
                                            {"ffn_conv_base", "ffn_conv_proj.weight"}};
    for (int j = 0; s->conv && j < 2; j++) {
        add_rows(b, i, names[j][0], s->dim, 2 * (int64_t)s->conv, 0.5f, 0.4f);
        if (!b->list->failed) {
            struct synth_tensor *t = &b->list->items[b->list->n - 1];
            t->n_dims = 3;
            t->ne[1] = s->conv;
            t->ne[2] = 2;
        }
        add_matrix(b, i, names[j][1], s->dim, 2 * (int64_t)s->conv * (s->dim / s->group), 0.2);
    }
}

static void add_selector(struct synth_builder *b, const struct synth_shape *s) {
    const double size = pow((double)s->rank, 0.25);
    if (!s->conv) {
        add_matrix(b, -1, "markov_w1.weight", s->rank, s->vocab, size);
        add_matrix(b, -1, "markov_w2.weight", s->rank, s->vocab, size);
        return;
    }
    add_matrix(b, -1, "selector_hidden.weight", s->dim, s->rank, 1);
    add_matrix(b, -1, "selector_predecessor.weight", s->rank, s->vocab, size);
    add_matrix(b, -1, "selector_successor.weight", s->rank, s->vocab, size);
}

// A layer of the backbone or a prediction block after it, which has the next embedding and the
// hidden state joined before and a norm for the head.
static void add_layer(struct synth_builder *b, const struct synth_shape *s, int i) {
    bool plain = s->draft || (s->plain && !is_glm(s) && !is_oss(s));
    add_norm(b, i, "attn_norm.weight", s->dim);
    add_norm(b, i, plain ? "ffn_norm.weight" : "post_attention_norm.weight", s->dim);
    if (s->kv_lora)
        add_latent_attention(b, s, i);
    else if (full_layer(s, i))
        add_attention(b, s, i);
    else
        add_deltanet(b, s, i);
    add_mlp(b, s, i);
    add_convolutions(b, s, i);
    if (i < s->layers)
        return;
    add_matrix(b, i, "nextn.eh_proj.weight", 2 * s->dim, s->dim, 1);
    add_norm(b, i, "nextn.enorm.weight", s->dim);
    add_norm(b, i, "nextn.hnorm.weight", s->dim);
    add_norm(b, i, "nextn.shared_head_norm.weight", s->dim);
}

void synth_tensors(struct synth_list *l, const struct synth_shape *s,
                   const struct convert_recipe *r) {
    struct synth_builder b = {
        l, {.recipe = r, .layers = s->layers + s->nextn, .tied = s->tied, .experts = s->experts}};
    if (s->draft) {
        add_matrix(&b, -1, "fc.weight", s->n_taps * s->dim, s->dim, 1);
        add_norm(&b, -1, "enc.output_norm.weight", s->dim);
        if (s->gated)
            add_rows(&b, -1, "enc.aux_norm.weight", s->dim, s->n_taps, 1, 0.2f);
        if (s->rank)
            add_selector(&b, s);
    } else {
        // A head of size 2 sets the likeliest tokens apart; an embedding that is also the head
        // must be small, or every token would predict itself.
        add_matrix(&b, -1, "token_embd.weight", s->dim, s->vocab,
                   s->tied ? 2 : 0.5 * sqrt((double)s->dim));
    }
    add_norm(&b, -1, "output_norm.weight", s->dim);
    if (!s->draft && !s->tied)
        add_matrix(&b, -1, "output.weight", s->dim, s->vocab, 2);
    if (is_arch(s, "llama"))
        add_vector(&b, -1, "rope_freqs.weight", s->head_dim / 2, 1.5f, 0.5f);
    if (is_gemma3(s) || is_gemma4(s)) {
        add_gemma_layers(&b, s);
        return;
    }
    for (int i = 0; i < s->layers + s->nextn; i++)
        add_layer(&b, s, i);
}

// Metadata.

struct full_key {
    char text[96];
};

static struct full_key full_key_of(const struct synth_shape *s, const char *key) {
    struct full_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", arch_of(s), key);
    return k;
}

static void put_key(struct gguf_writer *w, const struct synth_shape *s, const char *key,
                    int64_t v) {
    gguf_put_int(w, full_key_of(s, key).text, GGUF_U32, v);
}

static void qwen35_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    const int32_t sections[4] = {11, 11, 10, 0};
    put_key(w, s, "full_attention_interval", 4);
    put_key(w, s, "rope.dimension_count", s->rope_dims);
    gguf_put_array(w, full_key_of(s, "rope.dimension_sections").text, GGUF_I32, sections, 4);
    put_key(w, s, "ssm.conv_kernel", 4);
    put_key(w, s, "ssm.state_size", s->gdn_dim);
    put_key(w, s, "ssm.group_count", s->gdn_k);
    put_key(w, s, "ssm.time_step_rank", s->gdn_v);
    put_key(w, s, "ssm.inner_size", (int64_t)s->gdn_v * s->gdn_dim);
}

// As published: this factor times 4,096 positions.
static void put_yarn(struct gguf_writer *w, const struct synth_shape *s, float factor) {
    gguf_put_str(w, full_key_of(s, "rope.scaling.type").text, "yarn", 4);
    gguf_put_f32(w, full_key_of(s, "rope.scaling.factor").text, factor);
    put_key(w, s, "rope.scaling.original_context_length", 4096);
}

static void oss_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    put_key(w, s, "attention.sliding_window", s->window);
    put_yarn(w, s, 32);
}

static void lead_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    if (!is_laguna(s))
        put_key(w, s, "expert_shared_count", s->shared_ffn / s->expert_ffn);
    put_key(w, s, "leading_dense_block_count", s->lead);
    put_key(w, s, "expert_gating_func", 2);
    put_key(w, s, "rope.dimension_count", s->rope_dims);
    gguf_put_bool(w, full_key_of(s, "expert_weights_norm").text, true);
}

// YaRN in full layers: of half a head, 32 times, in XS.2; of all of it, 64 times, in M.1, which has
// no others.
static void laguna_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t heads[128];
    for (int i = 0; i < s->layers; i++)
        heads[i] = heads_of(s, i);
    put_yarn(w, s, s->window ? 32 : 64);
    if (s->window)
        put_key(w, s, "attention.sliding_window", s->window);
    gguf_put_array(w, full_key_of(s, "attention.head_count").text, GGUF_I32, heads,
                   (uint64_t)s->layers);
    put_key(w, s, "expert_shared_feed_forward_length", s->shared_ffn);
    gguf_put_f32(w, full_key_of(s, "rope.scaling.yarn_beta_fast").text, 64);
    gguf_put_f32(w, full_key_of(s, "rope.freq_base_swa").text, 1e4f);
    gguf_put_f32(w, full_key_of(s, "expert_weights_scale").text, s->window ? 2.5f : 1);
}

// Layers of a latent, and weights that are divided by their sum and then times 2.5.
static void latent_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    put_key(w, s, "attention.key_length_mla", s->nope + s->rope_dims);
    put_key(w, s, "attention.value_length_mla", s->v_dim);
    put_key(w, s, "attention.kv_lora_rank", s->kv_lora);
    if (s->q_lora)
        put_key(w, s, "attention.q_lora_rank", s->q_lora);
    gguf_put_f32(w, full_key_of(s, "expert_weights_scale").text, 2.5f);
}

static void gemma3_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    put_key(w, s, "attention.sliding_window", s->window);
    if (s->period != 6)
        put_key(w, s, "attention.sliding_window_pattern", s->period);
    if (!(s->linear > 0))
        return;
    gguf_put_str(w, "gemma3.rope.scaling.type", "linear", 6);
    gguf_put_f32(w, "gemma3.rope.scaling.factor", s->linear);
}

static void put_gemma_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t kv[GEMMA_LAYERS_MAX], ffn[GEMMA_LAYERS_MAX];
    uint8_t windowed[GEMMA_LAYERS_MAX];
    uint64_t n = (uint64_t)s->layers;
    for (int i = 0; i < s->layers; i++) {
        windowed[i] = !is_gemma_full(s, i);
        kv[i] = windowed[i] ? s->kv : s->full_kv;
        ffn[i] = (int32_t)gemma_ffn_width(s, i);
    }
    gguf_put_array(w, "gemma4.attention.head_count_kv", GGUF_I32, kv, n);
    gguf_put_array(w, "gemma4.feed_forward_length", GGUF_I32, ffn, n);
    gguf_put_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, windowed, n);
    put_key(w, s, "attention.sliding_window", s->window);
    put_key(w, s, "attention.shared_kv_layers", gemma_borrowing(s));
    put_key(w, s, "attention.key_length", s->full_head);
    put_key(w, s, "attention.value_length", s->full_head);
    put_key(w, s, "attention.key_length_swa", s->head_dim);
    put_key(w, s, "attention.value_length_swa", s->head_dim);
    put_key(w, s, "embedding_length_per_layer_input", s->per_layer);
    gguf_put_f32(w, "gemma4.final_logit_softcapping", 30);
    gguf_put_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "gemma4.rope.freq_base", 1e6f);
    gguf_put_f32(w, "gemma4.rope.freq_base_swa", 1e4f);
}

// The upstream dialect: taps are counted from 1.
static void draft_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t taps[SYNTH_MAX_TAPS];
    uint8_t windowed[128] = {0};
    for (int i = 0; i < s->n_taps; i++)
        taps[i] = s->taps[i] + 1;
    for (int i = 0; i < s->layers - !(s->gated || s->conv); i++)
        windowed[i] = 1;
    gguf_put_array(w, "dflash.target_layers", GGUF_I32, taps, (uint64_t)s->n_taps);
    put_key(w, s, "block_size", s->block);
    put_key(w, s, "vocab_size", s->vocab);
    if (s->window) {
        put_key(w, s, "attention.sliding_window", s->window);
        gguf_put_array(w, "dflash.attention.sliding_window_pattern", GGUF_BOOL, windowed,
                       (uint64_t)s->layers);
    }
    if (s->yarn > 0)
        put_yarn(w, s, s->yarn);
    if (s->biased)
        gguf_put_bool(w, "dflash.rope.scaling.yarn_truncate", false);
    if (s->cap > 0)
        gguf_put_f32(w, "dflash.final_logit_softcapping", s->cap);
    if (s->conv) {
        put_key(w, s, "conv_kernel_size", s->conv);
        put_key(w, s, "conv_group_size", s->group);
        put_key(w, s, "selector_rank", s->rank);
        put_key(w, s, "selector_top_k", s->candidates);
        gguf_put_bool(w, "dflash.attention.causal", false);
    }
    if (s->rank && !s->conv)
        gguf_put_bool(w, "dflash.sample_from_anchor", true);
    if (s->gated)
        gguf_put_str(w, "dflash.decoder_arch", "laguna", 6);
    gguf_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, s->mask);
}

void synth_metadata(struct gguf_writer *w, const struct synth_shape *s,
                    const struct convert_recipe *r) {
    const char *arch = arch_of(s);
    char name[96];
    int n = snprintf(name, sizeof name, "%s, random weights", s->name);
    gguf_put_str(w, "general.architecture", arch, strlen(arch));
    gguf_put_str(w, "general.name", name, (size_t)n);
    gguf_put_int(w, "general.file_type", GGUF_U32, r->file_type);
    gguf_put_int(w, "general.quantization_version", GGUF_U32, 2);
    put_key(w, s, "block_count", s->layers + s->nextn);
    if (s->nextn)
        put_key(w, s, "nextn_predict_layers", s->nextn);
    bool llama = is_arch(s, "llama");
    put_key(w, s, "context_length",
            llama || is_oss(s) || is_laguna(s) || is_gemma4(s) || s->linear > 0 ? 131072
            : is_gemma3(s)                                                      ? 32768
            : s->plain                                                          ? 40960
                                                                                : 262144);
    put_key(w, s, "embedding_length", s->dim);
    if (s->ffn && !is_gemma4(s))
        put_key(w, s, "feed_forward_length", s->ffn);
    if (s->experts) {
        put_key(w, s, "expert_count", s->experts);
        put_key(w, s, "expert_used_count", s->used);
        put_key(w, s, "expert_feed_forward_length", s->expert_ffn);
    }
    if (is_oss(s))
        oss_metadata(w, s);
    if (has_lead(s))
        lead_metadata(w, s);
    else if (s->shared_ffn)
        put_key(w, s, "expert_shared_feed_forward_length", s->shared_ffn);
    if (is_laguna(s))
        laguna_metadata(w, s);
    else
        put_key(w, s, "attention.head_count", s->heads);
    if (is_gemma4(s)) {
        put_gemma_metadata(w, s);
        return;
    }
    put_key(w, s, "attention.head_count_kv", s->kv);
    put_key(w, s, "attention.key_length", s->kv_lora ? s->kv_lora + s->rope_dims : s->head_dim);
    put_key(w, s, "attention.value_length", s->kv_lora ? s->kv_lora : s->head_dim);
    if (s->kv_lora)
        latent_metadata(w, s);
    gguf_put_f32(w, full_key_of(s, "attention.layer_norm_rms_epsilon").text, 1e-6f);
    gguf_put_f32(w, full_key_of(s, "rope.freq_base").text,
                 s->base > 0             ? s->base
                 : llama || is_laguna(s) ? 5e5f
                 : s->plain              ? 1e6f
                                         : 1e7f);
    if (is_gemma3(s))
        gemma3_metadata(w, s);
    if (s->draft)
        draft_metadata(w, s);
    else if (!s->plain)
        qwen35_metadata(w, s);
}
