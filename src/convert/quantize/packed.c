// SPDX-License-Identifier: Apache-2.0
// Matrices whose codes and scales lie apart: X in FP8 (E4M3) with X_scale_inv or X_scale, and
// X_packed, eight codes of four bits in an I32, with X_scale and X_shape. They are found under the
// name X that plain numbers would have, and checked.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "convert/impl.h"
#include "formats/quant/quant.h"

// The tensor X with a tail to its name, among those that hold numbers.
static const struct tensor *beside(const struct convert_job *j, const char *name,
                                   const char *tail) {
    char full[288];
    snprintf(full, sizeof full, "%s%s", name, tail);
    return safetensors_tensor(j->weights, full);
}

static int missing(const struct convert_job *j, const char *name, const char *tail, struct err *e) {
    return err_set(e, ERR_MISMATCH,
                   "%s holds no tensor '%s%s', without which '%s' cannot be read: the checkpoint "
                   "is not complete, get it again",
                   j->dir, name, tail, name);
}

static const struct tensor *find_scale(const struct convert_job *j, const char *name) {
    static const char *const tails[] = {"_scale_inv", "_scale"};
    char full[288];
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = beside(j, name, tails[i]);
        snprintf(full, sizeof full, "%s%s", name, tails[i]);
        t = t ? t : safetensors_bytes(j->weights, full, "F8_E8M0");
        if (t)
            return t;
    }
    return NULL;
}

static bool is_scale_type(const struct convert_job *j, const struct tensor *t) {
    return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_BF16 ||
           safetensors_bytes(j->weights, t->name, "F8_E8M0") == t;
}

// What a scale covers; its shape must follow from that.
static int take_scale(struct convert_job *j, struct convert_packed *p, struct err *e) {
    const struct convert_packing *c = &j->packing;
    const struct tensor *s = p->scale;
    int64_t k = p->t.ne[0], m = p->t.ne[1], slices = p->t.ne[2] * p->t.ne[3];
    int64_t scales = s->ne[0] * s->ne[1] * s->ne[2] * s->ne[3];
    p->rows = c->rows ? c->rows : c->by_rows && scales > slices ? 1 : m;
    p->columns = c->columns ? c->columns : k;
    p->scale_columns = ceil_div(k, p->columns);
    p->scale_slice = p->scale_columns * ceil_div(m, p->rows);
    const int64_t ne[3] = {p->scale_columns, ceil_div(m, p->rows), slices};
    if (!is_scale_type(j, s))
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' is no scale in F32, BF16, F16 or F8_E8M0: use the BF16 "
                       "checkpoint",
                       s->name);
    int rc = convert_check_shape(s, ne, 3, e);
    return rc ? rc : convert_mark_used(j, s, e);
}

// Scales of activations beside a matrix, which only programs that compute in FP8 need.
static int mark_activations(struct convert_job *j, const char *name, struct err *e) {
    static const char *const tails[] = {"input_scale", "activation_scale"};
    size_t n = strlen(name), stem = n > 7 && !strcmp(name + n - 7, ".weight") ? n - 6 : 0;
    int rc = 0;
    for (int i = 0; i < 2 && stem && !rc; i++) {
        char full[288];
        snprintf(full, sizeof full, "%.*s%s", (int)stem, name, tails[i]);
        const struct tensor *t = safetensors_tensor(j->weights, full);
        rc = t ? convert_mark_used(j, t, e) : 0;
    }
    return rc;
}

static int take_fp8(struct convert_job *j, const struct tensor *codes, struct convert_packed *p,
                    struct err *e) {
    if (!j->packing.fp8)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' has dtype F8_E4M3, but no quantization_config in %s says how "
                       "it is scaled: use the BF16 checkpoint",
                       codes->name, j->config.path);
    p->t = *codes;
    p->codes = codes->data;
    p->row_bytes = codes->ne[0];
    p->scale = find_scale(j, codes->name);
    if (!p->scale)
        return missing(j, codes->name, j->packing.columns ? "_scale_inv" : "_scale", e);
    return mark_activations(j, codes->name, e);
}

// X_shape holds the rows and columns that X has without padding.
static int take_shape(struct convert_job *j, const struct tensor *packed, struct convert_packed *p,
                      struct err *e) {
    const struct tensor *shape = beside(j, p->t.name, "_shape");
    int64_t ne[2] = {0, 0};
    if (!shape)
        return missing(j, p->t.name, "_shape", e);
    size_t size = shape->type == TYPE_I64 ? 8 : shape->type == TYPE_I32 ? 4 : 0;
    for (int i = 0; i < 2 && size && shape->bytes == (int64_t)(2 * size); i++)
        memcpy(&ne[1 - i], (const unsigned char *)shape->data + (size_t)i * size, size);
    if (ne[0] < 1 || ne[0] > INT32_MAX || packed->n_dims != 2 || ne[1] != packed->ne[1] ||
        ceil_div(ne[0], 8) != packed->ne[0])
        return err_set(e, ERR_MISMATCH,
                       "tensor '%s' says %" PRId64 " rows of %" PRId64 ", but '%s' has %" PRId64
                       " rows of %" PRId64 " times 8 codes: get the checkpoint again",
                       shape->name, ne[1], ne[0], packed->name, packed->ne[1], packed->ne[0]);
    p->t.n_dims = 2;
    p->t.ne[0] = ne[0];
    p->t.ne[1] = ne[1];
    p->t.ne[2] = p->t.ne[3] = 1;
    return convert_mark_used(j, shape, e);
}

static int take_int4(struct convert_job *j, const char *name, const struct tensor *packed,
                     struct convert_packed *p, struct err *e) {
    if (!j->packing.int4 || packed->type != TYPE_I32)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' is not of the kind that quantization_config in %s describes: "
                       "use the BF16 checkpoint",
                       packed->name, j->config.path);
    p->int4 = true;
    p->codes = packed->data;
    p->row_bytes = packed->ne[0] * 4;
    p->t.name = arena_strndup(&j->plan.arena, name, strlen(name));
    if (!p->t.name)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    p->scale = beside(j, name, "_scale");
    if (!p->scale)
        return missing(j, name, "_scale", e);
    int rc = take_shape(j, packed, p, e);
    return rc ? rc : convert_mark_used(j, packed, e);
}

int convert_find_packed(struct convert_job *j, const char *name, const struct tensor **out,
                        struct err *e) {
    const struct tensor *codes = safetensors_bytes(j->weights, name, "F8_E4M3");
    const struct tensor *packed = codes ? NULL : beside(j, name, "_packed");
    *out = NULL;
    if (!codes && !packed)
        return 0;
    struct convert_packed *p = arena_alloc(&j->plan.arena, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    *p = (struct convert_packed){0};
    int rc = codes ? take_fp8(j, codes, p, e) : take_int4(j, name, packed, p, e);
    if (!rc)
        rc = take_scale(j, p, e);
    p->t.type = CONVERT_PACKED;
    if (!rc)
        *out = &p->t;
    return rc;
}
