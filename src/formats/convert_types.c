// SPDX-License-Identifier: Apache-2.0
// Which tensor gets which type: the recipes, the tensors that are never re-encoded, and the
// fallbacks for rows that are no whole number of blocks. The rules are listed in docs/formats.md.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "formats/convert_impl.h"
#include "formats/quant.h"

// Low-bit types keep the output matrix at six bits: it decides the token and is read once.
static const struct convert_recipe recipes[] = {
    {"F32", TYPE_F32, TYPE_F32, TYPE_F32, 0},
    {"F16", TYPE_F16, TYPE_F16, TYPE_F16, 1},
    {"BF16", TYPE_BF16, TYPE_BF16, TYPE_BF16, 32},
    {"Q8_0", TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, 7},
    {"Q4_0", TYPE_Q4_0, TYPE_Q6_K, TYPE_Q4_0, 2},
    {"Q4_1", TYPE_Q4_1, TYPE_Q6_K, TYPE_Q4_1, 3},
    {"Q5_0", TYPE_Q5_0, TYPE_Q6_K, TYPE_Q5_0, 8},
    {"Q5_1", TYPE_Q5_1, TYPE_Q6_K, TYPE_Q5_1, 9},
    {"Q4_K", TYPE_Q4_K, TYPE_Q6_K, TYPE_Q4_K, 14},
    {"Q5_K", TYPE_Q5_K, TYPE_Q6_K, TYPE_Q5_K, 16},
    {"Q6_K", TYPE_Q6_K, TYPE_Q6_K, TYPE_Q6_K, 18},
    {"Q4_K_M", TYPE_Q4_K, TYPE_Q6_K, TYPE_Q6_K, 15},
    {"Q5_K_M", TYPE_Q5_K, TYPE_Q6_K, TYPE_Q6_K, 17},
};
static const int recipe_count = (int)(sizeof recipes / sizeof *recipes);

const struct convert_recipe *convert_recipe(const char *name) {
    for (int i = 0; i < recipe_count; i++)
        if (!strcasecmp(recipes[i].name, name))
            return &recipes[i];
    return NULL;
}

const struct convert_recipe *convert_recipe_at(int i) {
    return i >= 0 && i < recipe_count ? &recipes[i] : NULL;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

bool convert_eligible(const char *name, int n_dims) {
    static const char *const kept[] = {"ffn_gate_inp",  "ssm_conv1d",           "shortconv.conv",
                                       "position_embd", "token_types",          "altup",
                                       "laurel",        "per_layer_model_proj", "attn_rel_b"};
    if (n_dims < 2 || !ends_with(name, "weight") || ends_with(name, "_norm.weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(name, kept[i]))
            return false;
    return true;
}

// The first and last eighth of the layers, and every third between (half of them in all).
static bool matters_most(int layer, int layers) {
    int eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static bool is_sensitive(const char *name) {
    return strstr(name, ".attn_v.") || strstr(name, ".attn_qkv.") || strstr(name, ".attn_kv_b.") ||
           strstr(name, ".ffn_down");
}

static uint32_t wanted_type(const struct convert_model *m, const char *name) {
    const struct convert_recipe *r = m->recipe;
    int layer;
    if (!strcmp(name, "output.weight") || (m->tied && !strcmp(name, "token_embd.weight")))
        return r->head;
    // A few rows that steer the recurrent state: bits saved there are lost where it hurts.
    if ((strstr(name, ".ssm_alpha.") || strstr(name, ".ssm_beta.")) &&
        quant_format(r->type)->block > 1)
        return TYPE_Q8_0;
    if (is_sensitive(name) && sscanf(name, "blk.%d.", &layer) == 1 &&
        matters_most(layer, m->layers))
        return r->better;
    return r->type;
}

static uint32_t narrower_block(uint32_t type) {
    switch (type) {
    case TYPE_Q4_K:
        return TYPE_Q5_0;
    case TYPE_Q5_K:
        return TYPE_Q5_1;
    case TYPE_Q6_K:
        return TYPE_Q8_0;
    default:
        return TYPE_F16;
    }
}

uint32_t convert_type(const struct convert_model *m, const char *name, int64_t row) {
    uint32_t type = wanted_type(m, name);
    while (row % quant_format(type)->block)
        type = narrower_block(type);
    return type;
}
