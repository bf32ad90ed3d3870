// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of fuzz_model: the smallest target and drafts that exercise every part.
// Usage: fuzz_model_seeds FOLDER. The files are committed; run it again after changing it.
#include <limits.h>
#include <stdio.h>

#include "formats/quant/quant.h"
#include "support/tiny_gguf.h"

static int write_target(const struct tiny_shape *t, const char *folder, const char *name,
                        struct err *e) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    return tiny_target_write(t, path, e);
}

// Targets with experts, of the shapes with and without recurrent layers.
static int write_experts(const struct tiny_shape *t, const struct tiny_shape *plain,
                         const char *folder, struct err *e) {
    int rc = 0;
    struct tiny_shape experts = *plain;
    experts.layers = 2;
    experts.fused = true;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "gemma4-experts", e);
    experts = *plain;
    experts.layers = 2;
    experts.form = TINY_FORM_QWEN3;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "experts", e);
    experts.form = TINY_FORM_GLM;
    experts.rope_dims = 16;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "glm", e);
    experts.form = TINY_FORM_DEEPSEEK;
    experts.dim = experts.head_dim = 64;
    experts.rope_dims = 32;
    experts.seed = 3;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "deepseek", e);
    experts.fused = true;
    experts.seed = 1;
    rc |= write_target(&experts, folder, "deepseek-old", e);
    experts = *plain;
    experts.form = TINY_FORM_OSS;
    experts.layers = 2;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "oss", e);
    experts.form = TINY_FORM_LAGUNA;
    experts.rope_dims = 16;
    experts.heads = 2;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "laguna", e);
    experts = *t;
    tiny_shape_experts(&experts);
    rc |= write_target(&experts, folder, "shared", e);
    return rc;
}

static int write_drafts(const struct tiny_shape *t, const char *folder, struct err *e) {
    static const char *const names[] = {
        "lucebox.gguf",      "beellama.gguf", "upstream.gguf",
        "laguna-draft.gguf", "dflash2.draft", "domino-lucebox.draft",
        "domino.draft",      "dspark.draft",  "dspark-some.draft"};
    char path[PATH_MAX];
    int rc = 0;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct tiny_draft_shape d = tiny_draft_default(t);
        d.layers = 2;
        d.ffn = 32;
        d.heads = 1;
        d.window = i >= TINY_UPSTREAM ? 16 : 0;
        d.causal = i == TINY_BEELLAMA ? 1 : -1;
        d.dialect = i < TINY_UPSTREAM ? i : i == 5 ? TINY_LUCEBOX : TINY_UPSTREAM;
        d.laguna = d.yarn = d.biased = i == TINY_UPSTREAM + 1;
        d.conv = i == 4 ? 2 : 0;
        d.gru = i == 5 || i == 6 ? 32 : 0;
        d.shift = i == 6;
        d.gated = i == 7;
        d.markov = i >= 7;
        d.own = i == 8;
        d.type = TYPE_Q8_0;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        rc |= tiny_draft_write(t, &d, path, e);
    }
    return rc;
}

// With a head of all tokens and with the target's embedding; with neither, and norms everywhere.
static int write_eagle3(const struct tiny_shape *t, const char *folder, struct err *e) {
    char path[PATH_MAX];
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        struct tiny_draft_shape d = tiny_draft_default(t);
        d.ffn = 32;
        d.heads = 1;
        d.biased = i;
        d.type = TYPE_Q8_0;
        d.seed = i ? 6 : 1;
        snprintf(path, sizeof path, "%s/eagle3-%d.draft", folder, i);
        rc |= tiny_eagle3_write(t, &d, path, e);
    }
    return rc;
}

// A target with a prediction block, and the block of the target "target" in a file of its own.
static int write_blocks(const struct tiny_shape *t, const char *folder, struct err *e) {
    char path[PATH_MAX];
    struct tiny_shape own = *t;
    own.nextn = 1;
    snprintf(path, sizeof path, "%s/block.mtp", folder);
    int rc = tiny_target_write(&own, path, e);
    snprintf(path, sizeof path, "%s/sidecar.mtp", folder);
    return rc | tiny_sidecar_write(&own, path, e);
}

int main(int argc, char **argv) {
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
    int rc = 0;
    if (argc != 2)
        return 2;
    rc |= write_target(&t, argv[1], "target", &e);
    const struct tiny_shape recurrent = t;
    t.interval = 1; // no recurrent layers
    rc |= write_target(&t, argv[1], "attention", &e);
    t.interval = 2;
    t.tied = t.fused = true;
    rc |= write_target(&t, argv[1], "tied", &e);
    struct tiny_shape plain = t;
    plain.plain = true;
    plain.interval = 1;
    plain.rope_dims = plain.head_dim;
    rc |= write_target(&plain, argv[1], "plain", &e);
    plain.form = TINY_FORM_LLAMA;
    plain.fused = false;
    rc |= write_target(&plain, argv[1], "llama", &e);
    plain.form = TINY_FORM_QWEN2;
    rc |= write_target(&plain, argv[1], "qwen2", &e);
    plain.form = TINY_FORM_GEMMA4;
    plain.layers = 4;
    rc |= write_target(&plain, argv[1], "gemma4", &e);
    rc |= write_experts(&t, &plain, argv[1], &e);
    plain.form = TINY_FORM_GEMMA3;
    rc |= write_target(&plain, argv[1], "gemma3", &e);
    rc |= write_blocks(&recurrent, argv[1], &e);
    rc |= write_drafts(&t, argv[1], &e);
    rc |= write_eagle3(&t, argv[1], &e);
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    return rc != 0;
}
