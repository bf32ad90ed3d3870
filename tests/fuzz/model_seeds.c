// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of fuzz_model: the smallest target and drafts that exercise every part.
// Usage: fuzz_model_seeds FOLDER. The files are committed; run it again after changing it.
#include <limits.h>
#include <stdio.h>

#include "formats/quant/quant.h"
#include "support/tiny_gguf.h"

int main(int argc, char **argv) {
    static const char *const names[] = {"lucebox.gguf", "beellama.gguf", "upstream.gguf",
                                        "laguna-draft.gguf"};
    struct tiny_shape t = {.vocab = 24,
                           .dim = 32,
                           .ffn = 32,
                           .layers = 2,
                           .interval = 2,
                           .heads = 1,
                           .kv_heads = 1,
                           .head_dim = 32,
                           .rope_dims = 16,
                           .key_heads = 1,
                           .value_heads = 2,
                           .state = 32,
                           .context = 256,
                           .type = TYPE_Q8_0,
                           .seed = 1};
    struct err e = {0};
    char path[PATH_MAX];
    int rc = 0;
    if (argc != 2)
        return 2;
    snprintf(path, sizeof path, "%s/target.gguf", argv[1]);
    rc |= tiny_target_write(&t, path, &e);
    t.interval = 1; // no recurrent layers
    snprintf(path, sizeof path, "%s/attention.gguf", argv[1]);
    rc |= tiny_target_write(&t, path, &e);
    t.interval = 2;
    t.tied = t.fused = true;
    snprintf(path, sizeof path, "%s/tied.gguf", argv[1]);
    rc |= tiny_target_write(&t, path, &e);
    struct tiny_shape plain = t;
    plain.plain = true;
    plain.interval = 1;
    plain.rope_dims = plain.head_dim;
    snprintf(path, sizeof path, "%s/plain.gguf", argv[1]);
    rc |= tiny_target_write(&plain, path, &e);
    plain.form = TINY_FORM_LLAMA;
    plain.fused = false;
    snprintf(path, sizeof path, "%s/llama.gguf", argv[1]);
    rc |= tiny_target_write(&plain, path, &e);
    plain.form = TINY_FORM_QWEN2;
    snprintf(path, sizeof path, "%s/qwen2.gguf", argv[1]);
    rc |= tiny_target_write(&plain, path, &e);
    plain.form = TINY_FORM_GEMMA4;
    plain.layers = 4;
    snprintf(path, sizeof path, "%s/gemma4.gguf", argv[1]);
    rc |= tiny_target_write(&plain, path, &e);
    struct tiny_shape experts = plain;
    experts.layers = 2;
    experts.fused = true;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/gemma4-experts.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts = plain;
    experts.layers = 2;
    experts.form = TINY_FORM_QWEN3;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/experts.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts.form = TINY_FORM_GLM;
    experts.rope_dims = 16;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/glm.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts.form = TINY_FORM_DEEPSEEK;
    experts.dim = experts.head_dim = 64;
    experts.rope_dims = 32;
    experts.seed = 3;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/deepseek.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts.fused = true;
    experts.seed = 1;
    snprintf(path, sizeof path, "%s/deepseek-old.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts = plain;
    experts.form = TINY_FORM_OSS;
    experts.layers = 2;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/oss.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts.form = TINY_FORM_LAGUNA;
    experts.rope_dims = 16;
    experts.heads = 2;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/laguna.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    experts = t;
    tiny_shape_experts(&experts);
    snprintf(path, sizeof path, "%s/shared.gguf", argv[1]);
    rc |= tiny_target_write(&experts, path, &e);
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct tiny_draft_shape d = tiny_draft_default(&t);
        d.layers = 2;
        d.ffn = 32;
        d.heads = 1;
        d.window = i >= TINY_UPSTREAM ? 16 : 0;
        d.causal = i == TINY_BEELLAMA ? 1 : -1;
        d.dialect = i < TINY_UPSTREAM ? i : TINY_UPSTREAM;
        d.laguna = d.yarn = d.biased = i > TINY_UPSTREAM;
        d.type = TYPE_Q8_0;
        snprintf(path, sizeof path, "%s/%s", argv[1], names[i]);
        rc |= tiny_draft_write(&t, &d, path, &e);
    }
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    return rc != 0;
}
