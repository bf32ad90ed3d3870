// SPDX-License-Identifier: Apache-2.0
// Which tensor gets which type: the recipes, the tensors that are never re-encoded, and the
// fallbacks for rows that are no whole number of blocks. A recipe is a row: its base type, and for
// each role of a matrix up to two better types with where they apply. The rows are those of the
// established mixtures (docs/formats.md lists them, and where we differ).
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "convert/quantize/types.h"
#include "formats/quant/quant.h"

// The layers or models in which a choice applies.
enum where {
    NOWHERE,
    EVERYWHERE,
    FIRST_2, // by rank among the matrices of that role
    FIRST_4,
    FIRST_16TH, // by layer
    FIRST_8TH,
    FIRST_8TH_WEIGHED, // if there are importances
    FIRST_8TH_UNWEIGHED,
    FIRST_8TH_OR_HALF, // half in models of 8 experts
    HALF,              // the first and last eighth, and every third between
    SHARED,            // if four or more query heads share a key head
    SHARED_OR_4,       // the same, or if there are four or more experts
};

struct choice {
    uint32_t type;
    enum where where;
};

struct convert_mix {
    uint32_t head; // of the output matrix, or of the embedding when that serves as output
    struct choice value[2], down[2], output; // attn_v, attn_qkv; ffn_down; attn_output
    uint32_t output_of_8;                    // attn_output in models of 8 experts; 0: as the others
    uint32_t experts; // of all matrices with one slice per expert; 0: as the others
    // 0: as the others.
    uint32_t embedding; // token_embd
    uint32_t query;     // attn_q, attn_k
    uint32_t middle;    // ffn_gate, ffn_up between the first and the last eighth of the layers
    uint32_t
        keys_of_8; // attn_k in models of 8 experts, whose attn_v is as in others then; 0: both Q8_0
};

#define MIX(...)                                                                                   \
    &(const struct convert_mix) {                                                                  \
        __VA_ARGS__                                                                                \
    }
#define HALF_Q6 .value = {{TYPE_Q6_K, HALF}}, .down = {{TYPE_Q6_K, HALF}}
#define OF_8_Q5 .output_of_8 = TYPE_Q5_K
#define SIX     .head = TYPE_Q6_K

// The same rows under two names.
#define Q3_K_M                                                                                     \
    MIX(SIX, .value = {{TYPE_Q5_K, FIRST_2}, {TYPE_Q4_K, EVERYWHERE}},                             \
        .down = {{TYPE_Q5_K, FIRST_16TH}, {TYPE_Q4_K, EVERYWHERE}},                                \
        .output = {TYPE_Q4_K, EVERYWHERE}, OF_8_Q5)
#define Q4_K_M MIX(SIX, HALF_Q6, OF_8_Q5)
#define Q5_K_M MIX(SIX, HALF_Q6)
#define IQ4                                                                                        \
    MIX(SIX, .value = {{TYPE_Q5_K, SHARED}}, .down = {{TYPE_Q5_K, FIRST_8TH_UNWEIGHED}}, OF_8_Q5)

#define FEW                                                                                        \
    .head = TYPE_Q5_K, .embedding = TYPE_Q2_K, .down = {{TYPE_Q2_K, FIRST_8TH}}, OF_8_Q5,          \
    .value = {{TYPE_Q4_K, SHARED_OR_4}, {TYPE_Q2_K, EVERYWHERE}}, .keys_of_8 = TYPE_Q4_K
#define IQ2                                                                                        \
    MIX(.head = TYPE_Q5_K, .embedding = TYPE_IQ3_S, .down = {{TYPE_IQ3_S, FIRST_8TH}}, OF_8_Q5,    \
        .value = {{TYPE_Q4_K, SHARED_OR_4}, {TYPE_IQ3_S, EVERYWHERE}},                             \
        .output = {TYPE_IQ3_S, EVERYWHERE}, .keys_of_8 = TYPE_Q4_K)
#define IQ1 MIX(FEW, .output = {TYPE_IQ2_XXS, EVERYWHERE})

// Low-bit types keep the output matrix at six bits: it decides the token and is read once.
static const struct convert_recipe recipes[] = {
    {"F32", TYPE_F32, 0, MIX(.head = TYPE_F32)},
    {"F16", TYPE_F16, 1, MIX(.head = TYPE_F16)},
    {"BF16", TYPE_BF16, 32, MIX(.head = TYPE_BF16)},
    {"Q8_0", TYPE_Q8_0, 7, MIX(.head = TYPE_Q8_0)},
    {"Q4_0", TYPE_Q4_0, 2, MIX(SIX, .down = {{TYPE_Q4_1, FIRST_8TH_WEIGHED}})},
    {"Q4_1", TYPE_Q4_1, 3, MIX(SIX)},
    {"Q5_0", TYPE_Q5_0, 8, MIX(SIX, .down = {{TYPE_Q5_1, FIRST_8TH_WEIGHED}})},
    {"Q5_1", TYPE_Q5_1, 9, MIX(SIX)},
    {"Q2_K", TYPE_Q2_K, 10,
     MIX(SIX, .value = {{TYPE_Q4_K, SHARED}, {TYPE_Q3_K, EVERYWHERE}},
         .down = {{TYPE_Q3_K, EVERYWHERE}}, .output = {TYPE_Q3_K, EVERYWHERE}, OF_8_Q5)},
    {"Q2_K_S", TYPE_Q2_K, 21,
     MIX(SIX, .value = {{TYPE_Q4_K, SHARED}}, .down = {{TYPE_Q4_K, FIRST_8TH}})},
    {"Q3_K", TYPE_Q3_K, 12, Q3_K_M},
    {"Q3_K_S", TYPE_Q3_K, 11, MIX(SIX, OF_8_Q5)},
    {"Q3_K_M", TYPE_Q3_K, 12, Q3_K_M},
    {"Q3_K_L", TYPE_Q3_K, 13,
     MIX(SIX, .value = {{TYPE_Q5_K, EVERYWHERE}}, .down = {{TYPE_Q5_K, EVERYWHERE}},
         .output = {TYPE_Q5_K, EVERYWHERE}, .output_of_8 = TYPE_Q3_K)},
    {"Q4_K", TYPE_Q4_K, 15, Q4_K_M},
    {"Q4_K_S", TYPE_Q4_K, 14,
     MIX(SIX, .value = {{TYPE_Q5_K, FIRST_4}}, .down = {{TYPE_Q5_K, FIRST_8TH}}, OF_8_Q5)},
    {"Q4_K_M", TYPE_Q4_K, 15, Q4_K_M},
    {"Q5_K", TYPE_Q5_K, 17, Q5_K_M},
    {"Q5_K_S", TYPE_Q5_K, 16, MIX(SIX)},
    {"Q5_K_M", TYPE_Q5_K, 17, Q5_K_M},
    {"Q6_K", TYPE_Q6_K, 18, MIX(SIX)},
    {"IQ4_NL", TYPE_IQ4_NL, 25, IQ4},
    {"IQ4_XS", TYPE_IQ4_XS, 30, IQ4},
    {"IQ1_S", TYPE_IQ1_S, 24, IQ1},
    {"IQ1_M", TYPE_IQ1_M, 31, IQ1},
    {"IQ2_XXS", TYPE_IQ2_XXS, 19, MIX(FEW)},
    {"IQ2_XS", TYPE_IQ2_XS, 20, MIX(FEW)},
    {"IQ2_S", TYPE_IQ2_XS, 28, IQ2},
    {"IQ2_M", TYPE_IQ2_S, 29, IQ2},
    {"IQ3_XXS", TYPE_IQ3_XXS, 23,
     MIX(.head = TYPE_Q5_K, .embedding = TYPE_IQ3_S, .value = {{TYPE_Q4_K, SHARED}},
         .query = TYPE_IQ2_S, .output = {TYPE_IQ3_S, EVERYWHERE}, OF_8_Q5)},
    {"IQ3_XS", TYPE_IQ3_S, 22,
     MIX(SIX, .value = {{TYPE_Q4_K, SHARED}}, .query = TYPE_IQ3_XXS, .middle = TYPE_IQ3_XXS,
         OF_8_Q5)},
    {"IQ3_S", TYPE_IQ3_S, 26, MIX(SIX, .value = {{TYPE_Q4_K, SHARED}}, OF_8_Q5)},
    {"IQ3_M", TYPE_IQ3_S, 27,
     MIX(SIX, .value = {{TYPE_Q4_K, EVERYWHERE}}, .down = {{TYPE_Q4_K, FIRST_8TH_OR_HALF}},
         .output = {TYPE_Q4_K, EVERYWHERE}, OF_8_Q5)},
    {"TQ1_0", TYPE_TQ1_0, 36, MIX(SIX, .embedding = TYPE_Q4_K)},
    {"TQ2_0", TYPE_TQ2_0, 37, MIX(SIX, .embedding = TYPE_Q4_K)},
    {"MXFP4", TYPE_MXFP4, 38, MIX(SIX)},
    {"MXFP4_MOE", TYPE_Q8_0, 38, MIX(.head = TYPE_Q8_0, .experts = TYPE_MXFP4)},
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

bool convert_eligible(const char *name, int n_dims) {
    static const char *const kept[] = {"ffn_gate_inp",  "ssm_conv1d",           "shortconv.conv",
                                       "position_embd", "token_types",          "altup",
                                       "laurel",        "per_layer_model_proj", "attn_rel_b"};
    if (n_dims < 2 || !str_ends(name, "weight") || str_ends(name, "_norm.weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(name, kept[i]))
            return false;
    return true;
}

bool convert_is_value(const char *name) {
    return strstr(name, "attn_v.weight") || strstr(name, "attn_qkv.weight") ||
           strstr(name, "attn_kv_b.weight");
}

// The first and last eighth of n, and every third between (half of them in all).
static bool matters_most(int i, int n) {
    int eighth = n / 8;
    return i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
}

// i: the number of the matrix among n of its role.
static bool choice_applies(const struct convert_model *m, enum where where, int i, int n) {
    switch (where) {
    case EVERYWHERE:
        return true;
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_16TH:
        return i < n / 16;
    case FIRST_8TH:
        return i < n / 8;
    case FIRST_8TH_WEIGHED:
        return i < n / 8 && m->weighed;
    case FIRST_8TH_UNWEIGHED:
        return i < n / 8 && !m->weighed;
    case FIRST_8TH_OR_HALF:
        return m->experts == 8 ? matters_most(i, n) : i < n / 8;
    case HALF:
        return matters_most(i, n);
    case SHARED:
        return m->shared;
    case SHARED_OR_4:
        return m->shared || m->experts >= 4;
    default:
        return false;
    }
}

static uint32_t choose_type(const struct convert_model *m, const struct choice *c, int i, int n) {
    for (int k = 0; k < 2; k++)
        if (choice_applies(m, c[k].where, i, n))
            return c[k].type;
    return m->recipe->type;
}

static uint32_t value_type(const struct convert_model *m, int i, int n) {
    uint32_t type = choose_type(m, m->recipe->mix->value, i, n);
    if (m->recipe->mix->keys_of_8)
        return type;
    if (m->experts == 8)
        return TYPE_Q8_0;
    return m->large && (type == TYPE_Q3_K || type == TYPE_Q4_K) ? (uint32_t)TYPE_Q5_K : type;
}

static uint32_t output_type(const struct convert_model *m) {
    const struct convert_mix *mix = m->recipe->mix;
    if (m->experts == 8)
        return mix->output_of_8 ? mix->output_of_8 : m->recipe->type;
    return mix->output.where == EVERYWHERE ? mix->output.type : m->recipe->type;
}

static bool is_head(const struct convert_model *m, const char *name) {
    return !strcmp(name, "output.weight") || (m->tied && !strcmp(name, "token_embd.weight"));
}

static uint32_t or_base(const struct convert_model *m, uint32_t type) {
    return type ? type : m->recipe->type;
}

static uint32_t query_type(const struct convert_model *m, const char *name) {
    const struct convert_mix *mix = m->recipe->mix;
    if (m->experts == 8 && strstr(name, "attn_k.weight"))
        return mix->keys_of_8 ? mix->keys_of_8 : (uint32_t)TYPE_Q8_0;
    return or_base(m, mix->query);
}

// The type of a matrix of layers that has no rule of its own.
static uint32_t other_type(const struct convert_model *m, const char *name, int layer) {
    bool middle = layer >= m->layers / 8 && layer < 7 * m->layers / 8;
    if (strstr(name, "attn_q.weight") || strstr(name, "attn_k.weight"))
        return query_type(m, name);
    if (middle && (strstr(name, "ffn_gate") || strstr(name, "ffn_up")))
        return or_base(m, m->recipe->mix->middle);
    return m->recipe->type;
}

static double bits_of(uint32_t type) {
    const struct quant_format *f = quant_format(type);
    return 8.0 * (double)f->bytes / (double)f->block;
}

static uint32_t mixed_type(const struct convert_model *m, const struct convert_matrix *t) {
    const struct convert_recipe *r = m->recipe;
    int layer = 0;
    if (is_head(m, t->name))
        return t->row % quant_format(r->mix->head)->block ? (uint32_t)TYPE_Q8_0 : r->mix->head;
    if (t->slices > 1 && r->mix->experts && strstr(t->name, "_exps"))
        return r->mix->experts;
    if (!strcmp(t->name, "token_embd.weight"))
        return or_base(m, r->mix->embedding);
    if (quant_format(r->type)->block == 1 || sscanf(t->name, "blk.%6d.", &layer) != 1)
        return r->type;
    // A few rows that steer the recurrent state: bits saved there are lost where it hurts.
    if (strstr(t->name, ".ssm_alpha.") || strstr(t->name, ".ssm_beta."))
        return TYPE_Q8_0;
    if (convert_is_value(t->name))
        return m->values ? value_type(m, t->rank, m->values) : value_type(m, layer, m->layers);
    if (strstr(t->name, "attn_output.weight"))
        return output_type(m);
    if (strstr(t->name, "ffn_down"))
        return choose_type(m, r->mix->down, layer, m->layers);
    return other_type(m, t->name, layer);
}

// A prediction block's matrix from embedding and hidden state keeps eight bits: all that the block
// knows passes through it.
static uint32_t wanted_type(const struct convert_model *m, const struct convert_matrix *t) {
    uint32_t type = mixed_type(m, t);
    bool joins = strstr(t->name, ".nextn.eh_proj.");
    return joins && bits_of(type) < bits_of(TYPE_Q8_0) ? (uint32_t)TYPE_Q8_0 : type;
}

static uint32_t narrower_block(uint32_t type) {
    switch (type) {
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_TQ1_0:
    case TYPE_TQ2_0:
        return TYPE_Q4_0;
    case TYPE_Q4_K:
        return TYPE_Q5_0;
    case TYPE_Q5_K:
        return TYPE_Q5_1;
    case TYPE_Q6_K:
        return TYPE_Q8_0;
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
    case TYPE_IQ2_XXS:
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S:
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S:
    case TYPE_IQ4_XS:
        return TYPE_IQ4_NL;
    default:
        return TYPE_F16;
    }
}

static int take_override(const char *at, size_t n, struct convert_override *out, struct err *e) {
    const char *equals = memchr(at, '=', n);
    char type[16];
    size_t part = equals ? (size_t)(equals - at) : 0;
    if (part < 1 || part >= sizeof out->part || n - part - 1 >= sizeof type)
        return err_set(e, ERR_USAGE, "'%.*s' is not of the form NAME=TYPE, as in attn_v=Q8_0",
                       n < 60 ? (int)n : 60, at);
    memcpy(out->part, at, part);
    out->part[part] = 0;
    memcpy(type, equals + 1, n - part - 1);
    type[n - part - 1] = 0;
    const struct quant_format *f = quant_format_by_name(type);
    if (!f || !f->quantize)
        return err_set(e, ERR_USAGE, "'%s' in '%.*s' is no element type that can be written", type,
                       (int)n, at);
    out->type = (uint32_t)f->type;
    return 0;
}

int convert_overrides(const char *text, struct convert_override *out, int max, int *n,
                      struct err *e) {
    *n = 0;
    for (const char *at = text, *end = at; *end; at = end + 1) {
        end = at + strcspn(at, ",");
        if (*n == max)
            return err_set(e, ERR_USAGE, "more than %d types for names were given", max);
        int rc = take_override(at, (size_t)(end - at), &out[(*n)++], e);
        if (rc)
            return rc;
    }
    return 0;
}

static const struct convert_override *override_of(const struct convert_model *m, const char *name) {
    for (int i = 0; i < m->n_overrides; i++)
        if (strstr(name, m->overrides[i].part))
            return &m->overrides[i];
    return NULL;
}

static uint32_t chosen_type(const struct convert_model *m, const struct convert_matrix *t) {
    const struct convert_override *o = override_of(m, t->name);
    if (o)
        return o->type;
    return m->pure ? m->recipe->type : wanted_type(m, t);
}

uint32_t convert_wanted_type(const struct convert_model *m, const struct convert_matrix *t) {
    bool by_mixture = !m->pure && !override_of(m, t->name);
    return by_mixture && is_head(m, t->name) ? m->recipe->mix->head : chosen_type(m, t);
}

uint32_t convert_type(const struct convert_model *m, const struct convert_matrix *t) {
    uint32_t type = chosen_type(m, t);
    while (t->row % quant_format(type)->block)
        type = narrower_block(type);
    return type;
}
