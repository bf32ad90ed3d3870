// SPDX-License-Identifier: Apache-2.0
// Files of EAGLE-3 drafts: opening and names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "formats/content.h"
#include "models/draft/config.h"
#include "models/draft/eagle3/impl.h"

// GGUF names and those of safetensors. The layer is `midlayer`, or layer 0.
static const struct {
    const char *gguf, *other;
} names[] = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "input_norm.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"token_embd.weight", "embed_tokens.weight"},
    {"d2t", "d2t"},
    {"blk.0.attn_norm.weight", "input_layernorm.weight"},
    {"blk.0.attn_norm_2.weight", "hidden_norm.weight"},
    {"blk.0.attn_q.weight", "self_attn.q_proj.weight"},
    {"blk.0.attn_k.weight", "self_attn.k_proj.weight"},
    {"blk.0.attn_v.weight", "self_attn.v_proj.weight"},
    {"blk.0.attn_output.weight", "self_attn.o_proj.weight"},
    {"blk.0.attn_q.bias", "self_attn.q_proj.bias"},
    {"blk.0.attn_k.bias", "self_attn.k_proj.bias"},
    {"blk.0.attn_v.bias", "self_attn.v_proj.bias"},
    {"blk.0.attn_output.bias", "self_attn.o_proj.bias"},
    {"blk.0.ffn_norm.weight", "post_attention_layernorm.weight"},
    {"blk.0.ffn_gate.weight", "mlp.gate_proj.weight"},
    {"blk.0.ffn_up.weight", "mlp.up_proj.weight"},
    {"blk.0.ffn_down.weight", "mlp.down_proj.weight"},
};

static const struct tensor *in_safetensors(const struct safetensors *st, const char *name) {
    static const char *const globals[] = {"", "model."};
    static const char *const layers[] = {"midlayer.", "layers.0.", "model.midlayer.",
                                         "model.layers.0."};
    const bool in_layer = strncmp(name, "blk.", 4) == 0;
    const char *const *prefix = in_layer ? layers : globals;
    const char *other = NULL;
    const struct tensor *t = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].gguf, name) == 0)
            other = names[i].other;
    for (int i = 0; other && !t && i < (in_layer ? 4 : 2); i++) {
        char full[LOAD_NAME];
        snprintf(full, sizeof full, "%s%s", prefix[i], other);
        t = safetensors_tensor(st, full);
    }
    return t;
}

const struct tensor *eagle3_file_find(const void *file, const char *name) {
    const struct draft_file *f = file;
    const struct tensor *t = f->g ? gguf_tensor(f->g, name) : in_safetensors(f->st, name);
    return draft_file_use(f, t);
}

bool eagle3_in_file(const struct gguf *g) {
    const char *name;
    size_t n;
    struct err none;
    return !gguf_get_str(g, "general.architecture", &name, &n, &none) && name && n == 6 &&
           memcmp(name, "eagle3", 6) == 0;
}

bool eagle3_in_config(const struct json *config) {
    static const char *const all[] = {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM",
                                      "Eagle3Speculator", "Eagle3DraftModel"};
    const char *arch = json_str(json_at(json_get(config, "architectures"), 0), NULL);
    const char *kind = json_str(json_get(config, "speculators_model_type"), NULL);
    bool yes = kind && strcmp(kind, "eagle3") == 0;
    for (size_t i = 0; arch && i < sizeof all / sizeof *all; i++)
        yes = yes || strcmp(arch, all[i]) == 0;
    return yes;
}

uint64_t eagle3_content(struct path *d) {
    struct eagle3 *m = (struct eagle3 *)d;
    const struct eagle3_params *p = &m->params;
    struct hash h;
    if (m->content)
        return m->content;
    hash_begin(&h, 0);
    for (size_t i = 0; i < draft_file_count(&m->file); i++)
        content_add_tensor(&h, draft_file_at(&m->file, i));
    const float numbers[] = {p->eps,         p->rope.base,           (float)p->rope.dims,
                             p->rope.factor, (float)p->rope.trained, p->rope.magnitude,
                             p->rope.ramp,   p->rope.beta_fast,      p->rope.beta_slow};
    hash_add(&h, numbers, sizeof numbers);
    hash_add(&h, p->rope_divisors, sizeof p->rope_divisors);
    hash_add(&h, p->taps, (size_t)p->n_taps * sizeof *p->taps);
    const uint8_t flags[] = {p->norm_before_fc, p->norm_output, p->norm_before_residual};
    hash_add(&h, flags, sizeof flags);
    m->content = hash_end(&h) | 1; // never 0
    return m->content;
}
