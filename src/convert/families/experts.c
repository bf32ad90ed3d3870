// SPDX-License-Identifier: Apache-2.0
// The matrices of a mixture of experts. A checkpoint holds them fused, all experts in one tensor
// with gate and up behind one another, or one tensor an expert; a GGUF file has one tensor each for
// gate, up and down, with an expert as its outermost dimension.
#include <stdio.h>
#include <string.h>

#include "convert/impl.h"

static const struct matrix {
    const char *hf, *gguf;
    unsigned char dims[2];
} matrices[] = {
    {"gate_proj", "ffn_gate_exps.weight", {DIM_D, DIM_FE}},
    {"up_proj", "ffn_up_exps.weight", {DIM_D, DIM_FE}},
    {"down_proj", "ffn_down_exps.weight", {DIM_FE, DIM_D}},
};
enum { MATRICES = sizeof matrices / sizeof *matrices };

static void describe(const struct convert_job *j, const struct matrix *m, struct convert_item *it) {
    it->n_dims = 3;
    it->ne[0] = j->dim[m->dims[0]];
    it->ne[1] = j->dim[m->dims[1]];
    it->ne[2] = j->dim[DIM_E];
    it->ne[3] = 1;
}

// A fused tensor, whose name may end in ".weight"; *out NULL when there is none.
static int find_fused(struct convert_job *j, const char *name, int layer, const struct tensor **out,
                      struct err *e) {
    char full[64];
    snprintf(full, sizeof full, "mlp.experts.%s", name);
    int rc = convert_find(j, full, layer, out, e);
    if (rc || *out)
        return rc;
    snprintf(full, sizeof full, "mlp.experts.%s.weight", name);
    return convert_find(j, full, layer, out, e);
}

// Gate and up are the halves of each expert's rows.
static int take_fused(struct convert_job *j, const struct tensor *gate_up, int layer,
                      struct err *e) {
    int64_t half = j->dim[DIM_D] * j->dim[DIM_FE];
    const int64_t both[3] = {j->dim[DIM_D], 2 * j->dim[DIM_FE], j->dim[DIM_E]};
    const struct tensor *down;
    int rc = find_fused(j, "down_proj", layer, &down, e);
    if (!rc && !down)
        rc = convert_missing(j, "mlp.experts.down_proj", layer, e);
    if (!rc)
        rc = convert_check_shape(gate_up, both, 3, e);
    for (int i = 0; i < MATRICES && !rc; i++) {
        char name[64];
        struct convert_item item = {.src = i < 2 ? gate_up : down, .name = name};
        describe(j, &matrices[i], &item);
        if (i < 2)
            item.cut = (struct convert_cut){half, 2 * half, i * half};
        else
            rc = convert_check_shape(down, item.ne, 3, e);
        snprintf(name, sizeof name, "blk.%d.%s", layer, matrices[i].gguf);
        if (!rc)
            rc = convert_add(j, &item, e);
    }
    return rc;
}

static int take_parts(struct convert_job *j, const struct matrix *m, int layer, struct err *e) {
    char name[64];
    struct convert_item item = {.name = name, .n_parts = (int)j->dim[DIM_E]};
    const struct tensor **parts = arena_array(&j->plan.arena, (size_t)item.n_parts, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    describe(j, m, &item);
    for (int i = 0; i < item.n_parts; i++) {
        char hf[64];
        snprintf(hf, sizeof hf, "mlp.experts.%d.%s.weight", i, m->hf);
        int rc = convert_find(j, hf, layer, &parts[i], e);
        if (!rc && !parts[i])
            rc = convert_missing(j, hf, layer, e);
        if (!rc)
            rc = convert_check_shape(parts[i], item.ne, 2, e);
        if (!rc && parts[i]->type != parts[0]->type)
            rc = err_set(e, ERR_UNSUPPORTED,
                         "tensor '%s' has another type than that of the first expert: use the "
                         "original checkpoint",
                         parts[i]->name);
        if (rc)
            return rc;
    }
    item.src = parts[0];
    item.parts = parts;
    snprintf(name, sizeof name, "blk.%d.%s", layer, m->gguf);
    return convert_add(j, &item, e);
}

int convert_take_experts(struct convert_job *j, int layer, struct err *e) {
    const struct tensor *gate_up;
    int rc = find_fused(j, "gate_up_proj", layer, &gate_up, e);
    if (rc || gate_up)
        return rc ? rc : take_fused(j, gate_up, layer, e);
    for (int i = 0; i < MATRICES && !rc; i++)
        rc = take_parts(j, &matrices[i], layer, e);
    return rc;
}
