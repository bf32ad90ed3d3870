// SPDX-License-Identifier: Apache-2.0
// Blocks after the last layer that predict further tokens from the output of the model (multi-token
// prediction): one layer of the usual kind and what joins its input, as blocks after the others in
// the file ("blk.N.nextn.*"). Checkpoints of Qwen3.5 keep the only one under names of its own
// ("mtp.*"), the others number them on ("layers.N.*").
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

static const struct convert_rule apart[] = {
    {"mtp.fc.weight", "nextn.eh_proj.weight", .dims = {DIM_2D, DIM_D}},
    {"mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"mtp.norm.weight", "nextn.shared_head_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {0},
};
static const struct convert_rule within[] = {
    {"eh_proj.weight", "nextn.eh_proj.weight", .dims = {DIM_2D, DIM_D}},
    {"enorm.weight", "nextn.enorm.weight", .dims = {DIM_D}},
    {"hnorm.weight", "nextn.hnorm.weight", .dims = {DIM_D}},
    {"shared_head.norm.weight", "nextn.shared_head_norm.weight", .dims = {DIM_D}},
    {0},
};
// What a block may have for itself, and what of the model it is a copy of in published folders.
static const struct copy {
    struct convert_rule rule;
    const char *of;
} copies[] = {
    {{"embed_tokens.weight", "nextn.embed_tokens.weight", .dims = {DIM_D, DIM_V}},
     "embed_tokens.weight"},
    {{"shared_head.head.weight", "nextn.shared_head_head.weight", .dims = {DIM_D, DIM_V}},
     "lm_head.weight"},
};

int convert_first_block(const struct convert_job *j) {
    return j->options->mtp == CONVERT_MTP_ONLY ? (int)j->layers : 0;
}

void convert_put_nextn(struct convert_job *j) {
    if (j->nextn)
        convert_put_u32(j, "nextn_predict_layers", j->nextn);
}

static bool same_values(const struct tensor *a, const struct tensor *b) {
    // Codes and scales that lie apart have no values to compare.
    return a && b && a->data && b->data && a->type == b->type && a->bytes == b->bytes &&
           !memcmp(a->ne, b->ne, sizeof a->ne) && !memcmp(a->data, b->data, (size_t)a->bytes);
}

// Takes an own embedding or head of a block unless it is that of the model.
static int take_copy(struct convert_job *j, const struct copy *c, int block, struct err *e) {
    const struct tensor *own, *shared = NULL;
    int rc = convert_find(j, c->rule.hf, block, &own, e);
    if (rc || !own)
        return rc;
    rc = convert_find(j, c->of, -1, &shared, e);
    if (!rc && !shared) // the head of a tied model
        rc = convert_find(j, copies[0].of, -1, &shared, e);
    if (rc)
        return rc;
    return same_values(own, shared) ? convert_mark_used(j, own, e)
                                    : convert_take(j, &c->rule, block, e);
}

static int take_apart(struct convert_job *j, int block, struct err *e) {
    int rc = 0;
    for (const struct convert_rule *r = apart; r->hf && !rc; r++) {
        char name[64];
        struct convert_rule of_block = *r;
        snprintf(name, sizeof name, "blk.%d.%s", block, r->gguf);
        of_block.gguf = name;
        rc = convert_take(j, &of_block, -1, e);
    }
    return rc;
}

int convert_take_nextn(struct convert_job *j, int block, struct err *e) {
    int rc =
        convert_nextn_apart(j) ? take_apart(j, block, e) : convert_take_all(j, within, block, e);
    for (size_t i = 0; i < sizeof copies / sizeof *copies && !rc; i++)
        rc = take_copy(j, &copies[i], block, e);
    return rc;
}
