// SPDX-License-Identifier: Apache-2.0
// The memory that a model takes beside its weights: for a target what the model layer plans, for a
// draft its keys and values (docs/formats.md, section 6).
#include <string.h>

#include "cli/commands/inspect.h"
#include "models/model.h"

// An integer key of the architecture; false when it is missing or out of range.
static bool arch_int(const struct gguf *g, const char *arch, const char *key, int64_t *v) {
    char full[128];
    struct err ignored;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return !gguf_get_int(g, full, 0, 1 << 24, -1, v, &ignored) && *v >= 0;
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

// The model layer's own plan, by a dry load: it also tells whether the model can be run at all.
static bool target_plan(struct inspect_plan *p, const struct gguf *g) {
    struct model_options o = model_options_default();
    struct model_plan plan;
    struct model_params of;
    if (model_plan(&plan, &of, NULL, g, &o, &p->refusal))
        return false;
    p->scratch = plan.scratch;
    p->kv_per_1k = kv_needs_per_1k(&plan.kv);
    p->kv_windows = kv_needs_windows(&plan.kv, of.context, plan.step);
    p->recurrent = plan.recurrent;
    p->checkpoint = plan.checkpoint;
    p->experts = plan.expert_bytes;
    p->least = expert_classes_least(&plan.experts);
    p->expert_layers = plan.expert_layers;
    return true;
}

bool inspect_plan(struct inspect_plan *p, const struct gguf *g) {
    const char *arch;
    size_t n;
    struct err ignored;
    *p = (struct inspect_plan){0};
    if (gguf_get_str(g, "general.architecture", &arch, &n, &ignored) || !arch)
        return false;
    if (n == 6 && !memcmp(arch, "dflash", 6))
        return draft_plan(p, g);
    return target_plan(p, g);
}
