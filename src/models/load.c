// SPDX-License-Identifier: Apache-2.0
// One list of things made, each with its kind, so that freeing needs no knowledge of the model.
#include "models/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "formats/quant/quant.h"
#include "ops/experts/pool.h"
#include "ops/parking.h"

enum item_kind { ITEM_WEIGHT, ITEM_HOST_WEIGHT, ITEM_ACT, ITEM_MEMORY, ITEM_HOST };

struct load_item {
    enum item_kind kind;
    void *p;
};

static int keep_item(struct load *l, enum item_kind kind, void *p, struct err *e) {
    int rc = vec_reserve(&l->items, &l->cap, l->n + 1, sizeof *l->items, e);
    if (!rc)
        l->items[l->n++] = (struct load_item){kind, p};
    return rc;
}

static void free_item(const struct load *l, const struct load_item *i) {
    struct exec *x = l->x;
    if (i->kind == ITEM_HOST)
        free(i->p);
    else if (i->kind == ITEM_HOST_WEIGHT)
        exec_ops(l->host)->weight_destroy(l->host, i->p);
    else if (i->kind == ITEM_WEIGHT)
        exec_ops(x)->weight_destroy(x, i->p);
    else if (i->kind == ITEM_ACT)
        exec_ops(x)->act_destroy(x, i->p);
    else
        exec_ops(x)->free(x, i->p);
}

void load_fini(struct load *l) {
    while (l->n > 0)
        free_item(l, &l->items[--l->n]);
    free(l->items);
    l->items = NULL;
    l->cap = 0;
}

// Keeps p or frees it when that fails.
static int keep_or_free(struct load *l, enum item_kind kind, void *p, struct err *e) {
    int rc = keep_item(l, kind, p, e);
    if (rc)
        free_item(l, &(struct load_item){kind, p});
    return rc;
}

const char *load_name(char *buf, int i, const char *suffix) {
    snprintf(buf, LOAD_NAME, "blk.%d.%s", i, suffix);
    return buf;
}

static void print_dims(char *buf, size_t size, const struct tensor *t) {
    int used = snprintf(buf, size, "[%lld", (long long)t->ne[0]);
    for (int i = 1; i < t->n_dims && used > 0 && (size_t)used < size; i++)
        used += snprintf(buf + used, size - (size_t)used, ", %lld", (long long)t->ne[i]);
    if (used > 0 && (size_t)used < size)
        snprintf(buf + used, size - (size_t)used, "]");
}

// A factor next to a matrix (NVFP4 files) would silently change the result if it were ignored.
static int check_scale(const struct load *l, const char *name, struct err *e) {
    char other[LOAD_NAME + 16];
    size_t stem = strlen(name);
    if (stem > 7 && strcmp(name + stem - 7, ".weight") == 0)
        stem -= 7;
    for (int i = 0; !l->own_scales && i < 2; i++) {
        snprintf(other, sizeof other, "%.*s.scale", (int)(i ? strlen(name) : stem), name);
        if (l->find(l->arg, other))
            return err_set(e, ERR_UNSUPPORTED,
                           "tensor %s scales a matrix, which is not supported; use a file "
                           "without such scales",
                           other);
    }
    return 0;
}

static int find_experts(const struct load *l, const char *name, const struct load_experts *s,
                        const struct tensor **out, struct err *e) {
    const struct tensor *t = l->find(l->arg, name);
    if (!t)
        return err_set(e, ERR_MISMATCH,
                       "tensor %s is missing; the file is incomplete or of another architecture",
                       name);
    bool folded = s->n > 1 && t->ne[1] == s->m * s->n && t->ne[2] == 1;
    if (t->ne[0] != s->k || (!folded && (t->ne[1] != s->m || t->ne[2] != s->n)) || t->ne[3] != 1) {
        char found[128], many[24] = "";
        if (s->n > 1)
            snprintf(many, sizeof many, ", %lld", (long long)s->n);
        print_dims(found, sizeof found, t);
        return err_set(e, ERR_MISMATCH,
                       "tensor %s is %s but [%lld, %lld%s] is expected; the metadata and the "
                       "tensors of this file disagree",
                       name, found, (long long)s->k, (long long)s->m, many);
    }
    const struct quant_format *f = quant_format(t->type);
    if (!f || !f->dequantize)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s has type %s, which cannot be computed with; use a file in "
                       "another quantisation",
                       name, f ? f->name : "unknown");
    *out = t;
    return 0;
}

static int find_shape(const struct load *l, const char *name, int64_t k, int64_t m,
                      const struct tensor **out, struct err *e) {
    return find_experts(l, name, &(struct load_experts){k, m, 1}, out, e);
}

// What is given back stays in the arena as a slab that is free as a whole.
void load_make_room(struct exec *x, int64_t weights) {
    enum { ROUNDED = 1 << 20 }; // the blocks' sizes
    if (!exec_is_device(x) || exec_parks(x))
        return;
    void *p = exec_alloc(x, ARENA_WEIGHTS, (size_t)weights + ROUNDED);
    if (p)
        exec_ops(x)->free(x, p);
}

// A matrix of experts that the host's CPU computes.
static int make_host_weight(struct load *l, const struct tensor *t, const struct weight **out,
                            struct err *e) {
    struct weight *w = NULL;
    l->host_bytes += l->host ? exec_weight_bytes(l->host, t) : t->bytes;
    if (l->dry)
        return 0;
    int rc = l->check ? l->check(l->arg, e) : 0;
    if (rc)
        return rc;
    rc = exec_ops(l->host)->weight_create(l->host, t, &w, e);
    if (rc)
        return rc;
    *out = w;
    if (l->done && exec_is_device(l->x)) // the CPU has packed it
        l->done(l->arg, t);
    return keep_or_free(l, ITEM_HOST_WEIGHT, w, e);
}

static int make_weight(struct load *l, const struct tensor *t, const struct weight **out,
                       struct err *e) {
    if (l->of_expert > 0 && l->of_host) {
        l->of_expert--;
        return make_host_weight(l, t, out, e);
    }
    l->weight_bytes += l->x ? exec_weight_bytes(l->x, t) : t->bytes;
    exec_limits_join(&l->limits, &(struct exec_limits){.inputs = t->ne[0], .outputs = t->ne[1]});
    int part = l->of_expert > 0 ? EXPERT_PARTS - l->of_expert-- : -1;
    if (part >= 0)
        l->expert_bytes += exec_expert_bytes(l->x, t) * t->ne[2];
    if (l->dry)
        return 0;
    struct weight *w = NULL;
    int rc = l->check ? l->check(l->arg, e) : 0;
    if (rc)
        return rc;
    rc = l->store && part >= 0 ? expert_store_weight(l->store, part, t, &w, e)
                               : exec_ops(l->x)->weight_create(l->x, t, &w, e);
    if (rc)
        return rc;
    *out = w;
    if (l->done && exec_is_device(l->x))
        l->done(l->arg, t);
    return keep_or_free(l, ITEM_WEIGHT, w, e);
}

int load_weight_rows(struct load *l, const char *name, int64_t k, const struct load_rows *part,
                     const struct weight **out, struct err *e) {
    const struct tensor *t;
    int rc = check_scale(l, name, e);
    if (!rc)
        rc = find_shape(l, name, k, part->total, &t, e);
    if (rc)
        return rc;
    struct tensor slice = *t;
    int64_t row = t->bytes / part->total;
    slice.n_dims = 2;
    slice.ne[1] = part->m;
    slice.bytes = row * part->m;
    slice.data = (const unsigned char *)t->data + row * part->first;
    return make_weight(l, &slice, out, e);
}

int load_weight(struct load *l, const char *name, int64_t k, int64_t m, const struct weight **out,
                struct err *e) {
    return load_weight_rows(l, name, k, &(struct load_rows){m, 0, m}, out, e);
}

// Makes a weight of data that was put together for it and ends with it: the CPU has packed it, a
// device is waited for.
static int make_from_copy(struct load *l, const struct tensor *t, const struct weight **out,
                          struct err *e) {
    load_done_fn *done = l->done;
    l->done = NULL; // which is about tensors of the file
    int rc = make_weight(l, t, out, e);
    l->done = done;
    return !rc && exec_is_device(l->x) ? exec_status(l->x, e) : rc;
}

int load_weight_list(struct load *l, const char *name, int64_t k, const struct load_list *list,
                     const struct weight **out, struct err *e) {
    const struct tensor *t;
    int rc = check_scale(l, name, e);
    if (!rc)
        rc = find_shape(l, name, k, list->total, &t, e);
    if (rc)
        return rc;
    struct tensor some = *t;
    const int64_t row = t->bytes / list->total;
    some.n_dims = 2;
    some.ne[1] = list->n;
    some.bytes = row * list->n;
    some.data = NULL;
    if (l->dry)
        return make_weight(l, &some, out, e);
    unsigned char *data = malloc((size_t)some.bytes);
    if (!data)
        return err_set(e, ERR_MEMORY, "no memory to take rows of tensor %s", t->name);
    for (int64_t i = 0; i < list->n; i++)
        memcpy(data + i * row, (const unsigned char *)t->data + list->rows[i] * row, (size_t)row);
    some.data = data;
    rc = make_from_copy(l, &some, out, e);
    free(data);
    return rc;
}

int load_experts(struct load *l, const char *name, const struct load_experts *shape,
                 const struct weight **out, struct err *e) {
    const struct tensor *t;
    int rc = check_scale(l, name, e);
    if (!rc)
        rc = find_experts(l, name, shape, &t, e);
    if (rc)
        return rc;
    struct tensor all = *t;
    all.n_dims = 3; // one expert is a list of experts, too
    all.ne[1] = shape->m;
    all.ne[2] = shape->n;
    return make_weight(l, &all, out, e);
}

int load_experts_begin(struct load *l, const struct tensor *parts, int n, struct err *e) {
    l->of_host = l->expert_layers++ < l->host_layers;
    if (l->of_host) {
        l->of_expert = EXPERT_PARTS;
        return 0;
    }
    int class = expert_classes_add(&l->classes, n, exec_expert_record(l->x, parts), e);
    l->of_expert = EXPERT_PARTS;
    if (class < 0)
        return class;
    return l->store && !l->dry ? expert_store_layer(l->store, parts, e) : 0;
}

static void copy_rows(const struct tensor *t, const struct load_cut *c, unsigned char *out) {
    size_t row = (size_t)quant_row_bytes(quant_format(t->type), c->shape.k);
    size_t bytes = row * (size_t)c->shape.m;
    for (int64_t i = 0; i < c->shape.n; i++)
        memcpy(out + bytes * (size_t)i,
               (const unsigned char *)t->data + row * (size_t)(i * c->rows + c->first), bytes);
}

// Rows of m values to columns: halves from types without plain numbers.
static int transpose_rows(const struct tensor *t, const struct load_cut *c, unsigned char *out,
                          struct err *e) {
    const struct quant_format *f = quant_format(t->type);
    int64_t k = c->shape.k, m = c->shape.m;
    size_t row = (size_t)quant_row_bytes(f, m), each = f->block == 1 ? (size_t)f->bytes : 2;
    float *x = malloc((size_t)m * sizeof *x);
    if (!x)
        return err_set(e, ERR_MEMORY, "no memory to read tensor %s", t->name);
    for (int64_t i = 0; i < c->shape.n * k; i++) {
        int64_t head = i / k, column = i % k;
        const unsigned char *from =
            (const unsigned char *)t->data + row * (size_t)(head * c->rows + c->first + column);
        unsigned char *to = out + each * (size_t)(head * k * m + column);
        if (f->block > 1)
            f->dequantize(from, x, m);
        for (int64_t r = 0; r < m; r++) {
            uint16_t half = f->block > 1 ? f32_to_f16(x[r]) : 0;
            memcpy(to + each * (size_t)(r * k),
                   f->block > 1 ? (void *)&half : (void *)(from + each * (size_t)r), each);
        }
    }
    free(x);
    return 0;
}

// A tensor like t but with the cut's rows and no data yet.
static struct tensor cut_tensor(const struct tensor *t, const struct load_cut *c) {
    struct tensor out = *t;
    if (c->transposed && quant_format(t->type)->block > 1)
        out.type = TYPE_F16;
    out.n_dims = 3;
    out.ne[0] = c->shape.k;
    out.ne[1] = c->shape.m;
    out.ne[2] = c->shape.n;
    out.bytes = quant_row_bytes(quant_format(out.type), c->shape.k) * c->shape.m * c->shape.n;
    out.data = NULL;
    return out;
}

int load_experts_cut(struct load *l, const char *name, const struct load_cut *cut,
                     const struct weight **out, struct err *e) {
    const struct load_experts *s = &cut->shape;
    const struct load_experts all = {cut->transposed ? s->m : s->k, cut->rows, s->n};
    const struct tensor *t;
    int rc = check_scale(l, name, e);
    if (!rc)
        rc = find_experts(l, name, &all, &t, e);
    if (rc)
        return rc;
    struct tensor part = cut_tensor(t, cut);
    if (l->dry)
        return make_weight(l, &part, out, e);
    unsigned char *data = malloc((size_t)part.bytes);
    if (!data)
        return err_set(e, ERR_MEMORY, "no memory to take tensor %s apart", name);
    part.data = data;
    if (cut->transposed)
        rc = transpose_rows(t, cut, data, e);
    else
        copy_rows(t, cut, data);
    load_done_fn *done = l->done;
    bool packed = !exec_is_device(l->x) || (l->of_expert > 0 && l->of_host); // by the CPU
    l->done = NULL; // which is about tensors of the file
    if (!rc)
        rc = make_weight(l, &part, out, e);
    l->done = done;
    if (rc || packed) {
        free(data);
        return rc;
    }
    return keep_or_free(l, ITEM_HOST, data, e);
}

// A block of memory for rows of a pass.
static void count_rows(struct load *l, int64_t bytes) {
    if (l->by_rows)
        l->rows_bytes += round_up(bytes, LOAN_ALIGN) + LOAN_ALIGN;
}

int load_bytes(struct load *l, int64_t bytes, void **out, struct err *e) {
    l->buffer_bytes += bytes;
    count_rows(l, bytes);
    if (l->dry)
        return 0;
    *out = exec_ops(l->x)->alloc(l->x, (size_t)bytes);
    if (!*out)
        return err_set(e, ERR_MEMORY,
                       "no memory for %lld bytes of workspace; use fewer rows or a "
                       "smaller model",
                       (long long)bytes);
    return keep_or_free(l, ITEM_MEMORY, *out, e);
}

int load_buffer(struct load *l, int64_t n, float **out, struct err *e) {
    void *p = NULL;
    int rc = load_bytes(l, n * (int64_t)sizeof(float), &p, e);
    *out = p;
    return rc;
}

int load_act(struct load *l, int64_t n, int64_t k, struct act **out, struct err *e) {
    const int64_t bytes = l->x ? exec_act_bytes(l->x, n, k) : n * k * 6;
    l->buffer_bytes += bytes;
    count_rows(l, bytes);
    if (l->by_rows)
        l->rows_wide = max_i64(l->rows_wide, 2 * bytes);
    exec_limits_join(&l->limits, &(struct exec_limits){.act = n * k});
    if (l->dry)
        return 0;
    int rc = exec_ops(l->x)->act_create(l->x, n, k, out, e);
    return rc ? rc : keep_or_free(l, ITEM_ACT, *out, e);
}

int load_floats(struct load *l, const char *name, int64_t k, int64_t m, float **out,
                struct err *e) {
    return load_float_planes(l, name, k, m, 1, out, e);
}

int load_float_planes(struct load *l, const char *name, int64_t k, int64_t m, int64_t n,
                      float **out, struct err *e) {
    const struct tensor *t;
    const int64_t all = k * m * n;
    int rc = find_experts(l, name, &(struct load_experts){k, m, n}, &t, e);
    if (!rc)
        rc = load_buffer(l, all, out, e);
    if (rc || l->dry)
        return rc;
    float *host = malloc((size_t)all * sizeof *host);
    if (!host)
        return err_set(e, ERR_MEMORY, "no memory to read tensor %s", name);
    quant_format(t->type)->dequantize(t->data, host, all);
    exec_ops(l->x)->upload(l->x, *out, host, (size_t)all * sizeof *host);
    free(host);
    return 0;
}

int load_host_floats(struct load *l, const char *name, int64_t k, float **out, struct err *e) {
    return load_host_rows(l, name, k, 1, out, e);
}

int load_host_rows(struct load *l, const char *name, int64_t k, int64_t m, float **out,
                   struct err *e) {
    const struct tensor *t;
    int rc = find_shape(l, name, k, m, &t, e);
    if (rc)
        return rc;
    float *host = calloc((size_t)(k * m), sizeof *host);
    if (!host)
        return err_set(e, ERR_MEMORY, "no memory to read tensor %s", name);
    if (!l->dry)
        quant_format(t->type)->dequantize(t->data, host, k * m);
    *out = host;
    return keep_or_free(l, ITEM_HOST, host, e);
}
