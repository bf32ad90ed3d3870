// SPDX-License-Identifier: Apache-2.0
// The shapes that `synth` knows. Sizes are those of the published models (docs/models.md).
#include <string.h>

#include "convert/synth/impl.h"

#define QWEN35 .head_dim = 256, .gdn_k = 16, .gdn_dim = 128, .rope_dims = 64, .vocab = 248320
#define QWEN3  .plain = true, .head_dim = 128, .vocab = 151936
#define LLAMA  .plain = true, .arch = "llama", .kv = 8, .vocab = 128256
#define OSS    .plain = true, .arch = "gpt-oss"
#define LAGUNA .plain = true, .arch = "laguna"
#define GEMMA                                                                                      \
    .plain = true, .arch = "gemma4", .vocab = 262144, .head_dim = 256, .full_head = 512,           \
    .tied = true
#define DEEPSEEK                                                                                   \
    .plain = true, .arch = "deepseek2", .kv = 1, .kv_lora = 512, .nope = 128, .v_dim = 128,        \
    .rope_dims = 64

#define DRAFT .draft = true, .kv = 8, .head_dim = 128
#define DRAFT_OSS                                                                                  \
    .draft = true, .layers = 8, .dim = 2880, .ffn = 7680, .vocab = 201088, .heads = 64, .kv = 8,   \
    .head_dim = 64, .mask = 200000, .n_taps = 5, .base = 1.5e5f, .yarn = 32
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
    {"qwen35-tiny", .layers = 4, .dim = 256, .ffn = 512, .vocab = 512, .heads = 2, .kv = 1,
     .head_dim = 64, .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32},
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
    {"qwen35-122b-a10b", QWEN35, .layers = 48, .dim = 3072, .heads = 32, .kv = 2, .gdn_v = 64,
     .experts = 256, .used = 8, .expert_ffn = 1024, .shared_ffn = 1024},
    {"qwen35moe-tiny", .layers = 4, .dim = 256, .vocab = 512, .heads = 2, .kv = 1, .head_dim = 64,
     .gdn_k = 2, .gdn_v = 4, .gdn_dim = 64, .rope_dims = 32, .experts = 16, .used = 4,
     .expert_ffn = 256, .shared_ffn = 256},
    {"qwen3-30b-a3b", QWEN3, .layers = 48, .dim = 2048, .heads = 32, .kv = 4, .experts = 128,
     .used = 8, .expert_ffn = 768},
    {"qwen3moe-tiny", .plain = true, .layers = 4, .dim = 256, .vocab = 512, .heads = 4, .kv = 2,
     .head_dim = 64, .experts = 16, .used = 4, .expert_ffn = 256, .tied = true},
    {"glm-4.5-air", .plain = true, .arch = "glm4moe", .layers = 46, .dim = 4096, .ffn = 10944,
     .vocab = 151552, .heads = 96, .kv = 8, .head_dim = 128, .rope_dims = 64, .experts = 128,
     .used = 8, .lead = 1, .expert_ffn = 1408, .shared_ffn = 1408},
    {"glm4moe-tiny", .plain = true, .arch = "glm4moe", .layers = 4, .dim = 256, .ffn = 512,
     .vocab = 512, .heads = 4, .kv = 2, .head_dim = 64, .rope_dims = 32, .experts = 16, .used = 4,
     .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
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
    {"laguna-xs.2", LAGUNA, .layers = 40, .dim = 2048, .ffn = 8192, .heads = 48, .window_heads = 64,
     .kv = 8, .head_dim = 128, .vocab = 100352, .rope_dims = 64, .window = 512, .experts = 256,
     .used = 8, .lead = 1, .expert_ffn = 512, .shared_ffn = 512},
    // The width of dense layers is not published: four times the stream's, as in the smaller ones.
    {"laguna-m.1", LAGUNA, .layers = 70, .dim = 4096, .ffn = 16384, .heads = 64, .kv = 8,
     .head_dim = 128, .vocab = 100352, .rope_dims = 128, .experts = 256, .used = 16, .lead = 3,
     .expert_ffn = 1024, .shared_ffn = 1024, .wide = true},
    {"laguna-tiny", LAGUNA, .layers = 5, .dim = 256, .ffn = 512, .heads = 4, .window_heads = 6,
     .kv = 2, .head_dim = 64, .vocab = 512, .rope_dims = 32, .window = 32, .experts = 16, .used = 4,
     .lead = 1, .expert_ffn = 256, .shared_ffn = 256},
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
    {"dflash-laguna-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512,
     .heads = 4, .kv = 2, .head_dim = 64, .block = 8, .window = 32, .mask = 511, .n_taps = 3,
     .taps = {1, 2, 4}, .base = 5e5f, .gated = true},
    {"dflash-tiny", .draft = true, .layers = 2, .dim = 256, .ffn = 512, .vocab = 512, .heads = 4,
     .kv = 2, .head_dim = 64, .block = 16, .window = 64, .mask = 511, .n_taps = 2, .taps = {1, 2}},
};

const struct synth_shape *synth_shape_at(int i) {
    return i >= 0 && i < (int)(sizeof shapes / sizeof *shapes) ? &shapes[i] : NULL;
}

const struct synth_shape *synth_shape(const char *name) {
    for (int i = 0; synth_shape_at(i); i++)
        if (!strcmp(shapes[i].name, name))
            return &shapes[i];
    return NULL;
}
