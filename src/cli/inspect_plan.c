// SPDX-License-Identifier: Apache-2.0
// The memory that a model takes per token and per sequence, from its metadata alone. The formulas
// are in docs/formats.md; loading a model checks far more than is needed here.
#include <string.h>

#include "cli/inspect.h"

// An integer key of the architecture; false when it is missing or out of range.
static bool arch_int(const struct gguf *g, const char *arch, const char *key, int64_t *v) {
    char full[128];
    struct err ignored;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return !gguf_get_int(g, full, 0, 1 << 24, -1, v, &ignored) && *v >= 0;
}

static bool is_recurrent(const struct gguf *g, int64_t layer) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_conv1d.weight", (int)layer);
    return gguf_tensor(g, name) != NULL;
}

static bool draft_plan(struct inspect_plan *p, const struct gguf *g) {
    int64_t layers, kv_heads, width;
    if (!arch_int(g, "dflash", "block_count", &layers) ||
        !arch_int(g, "dflash", "attention.head_count_kv", &kv_heads) ||
        !arch_int(g, "dflash", "attention.key_length", &width) || layers > 4096 ||
        kv_heads > 4096 || width > 4096)
        return false;
    p->kv_per_1k = layers * 2 * kv_heads * width * 2 * 1024;
    return true;
}

static bool target_plan(struct inspect_plan *p, const struct gguf *g) {
    int64_t layers, extra, kv_heads, width, state, groups, heads, taps, recurrent = 0;
    if (!arch_int(g, "qwen35", "block_count", &layers) ||
        !arch_int(g, "qwen35", "attention.head_count_kv", &kv_heads) ||
        !arch_int(g, "qwen35", "attention.key_length", &width) ||
        !arch_int(g, "qwen35", "ssm.state_size", &state) ||
        !arch_int(g, "qwen35", "ssm.group_count", &groups) ||
        !arch_int(g, "qwen35", "ssm.time_step_rank", &heads) ||
        !arch_int(g, "qwen35", "ssm.conv_kernel", &taps))
        return false;
    if (arch_int(g, "qwen35", "nextn_predict_layers", &extra))
        layers -= extra;
    if (layers < 1 || layers > 4096 || kv_heads > 4096 || width > 4096 || state > 4096 ||
        groups > 4096 || heads > 4096 || taps < 1 || taps > 64)
        return false;
    for (int64_t i = 0; i < layers; i++)
        recurrent += is_recurrent(g, i);
    int64_t channels = (2 * groups + heads) * state;
    p->kv_per_1k = (layers - recurrent) * 2 * kv_heads * width * 2 * 1024;
    p->recurrent = recurrent * 4 * (state * state * heads + (taps - 1) * channels);
    return true;
}

bool inspect_plan(struct inspect_plan *p, const struct gguf *g) {
    const char *arch;
    size_t n;
    struct err ignored;
    *p = (struct inspect_plan){0};
    if (gguf_get_str(g, "general.architecture", &arch, &n, &ignored) || !arch)
        return false;
    if (n == 6 && !memcmp(arch, "qwen35", 6))
        return target_plan(p, g);
    return n == 6 && !memcmp(arch, "dflash", 6) && draft_plan(p, g);
}
