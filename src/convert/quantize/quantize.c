// SPDX-License-Identifier: Apache-2.0
// GGUF to GGUF: metadata is copied, matrices are re-encoded by a recipe, with importances where
// there are some, everything else stays as it is. A model in parts becomes one file, or other
// parts.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "convert/plan.h"
#include "formats/quant/quant.h"

static void put_file_type(struct gguf_writer *w, const struct convert_recipe *r) {
    gguf_put_int(w, "general.file_type", GGUF_U32, r->file_type);
    gguf_put_int(w, "general.quantization_version", GGUF_U32, 2);
}

// Where the importances came from, under the names that other programs use.
static void put_imatrix(struct gguf_writer *w, const struct imatrix *m) {
    const char *path = imatrix_path(m), *set = imatrix_dataset(m);
    gguf_put_str(w, "quantize.imatrix.file", path, strlen(path));
    if (set)
        gguf_put_str(w, "quantize.imatrix.dataset", set, strlen(set));
    gguf_put_int(w, "quantize.imatrix.entries_count", GGUF_U32, (int64_t)imatrix_count(m));
    if (imatrix_chunks(m))
        gguf_put_int(w, "quantize.imatrix.chunks_count", GGUF_U32, imatrix_chunks(m));
}

static bool is_replaced(const char *key) {
    return !strcmp(key, "general.quantization_version") || !strncmp(key, "split.", 6) ||
           !strncmp(key, "quantize.imatrix.", 17);
}

// Copies all keys; those that describe the types change in place, those of a split are dropped.
static void copy_metadata(struct gguf_writer *w, const struct gguf *g,
                          const struct convert_options *o) {
    const struct convert_recipe *r = o->recipe;
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (!strcmp(kv->key, "general.file_type"))
            put_file_type(w, r);
        else if (!is_replaced(kv->key))
            gguf_put_kv(w, kv);
    }
    if (!gguf_find(g, "general.file_type"))
        put_file_type(w, r);
    if (o->imatrix)
        put_imatrix(w, o->imatrix);
}

static bool is_helper_type(uint32_t type) {
    return (type >= TYPE_I8 && type <= TYPE_F64);
}

// The number N of "blk.N.…", -1 for others.
static int layer_of(const char *name) {
    int n;
    return sscanf(name, "blk.%6d.", &n) == 1 ? n : -1;
}

// The number of blocks: one more than the largest N of the names "blk.N.…".
static int count_layers(const struct gguf *g) {
    int layers = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        if (layer_of(gguf_tensor_at(g, i)->name) >= layers)
            layers = layer_of(gguf_tensor_at(g, i)->name) + 1;
    return layers;
}

// Matrices of attention values in the file, and how many come before t in order of layers.
static int count_values(const struct gguf *g, const struct tensor *t, int *before) {
    int values = 0, layer = layer_of(t->name);
    *before = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (!convert_is_value(name))
            continue;
        values++;
        *before += layer_of(name) < layer || (layer_of(name) == layer && strcmp(name, t->name) < 0);
    }
    return values;
}

// An integer under ARCH.key, of a list the first; `otherwise` when it is absent.
static int64_t model_int(const struct gguf *g, const char *key, int64_t otherwise) {
    const char *arch;
    size_t n;
    struct err e = {0};
    char full[128];
    if (gguf_get_str(g, "general.architecture", &arch, &n, &e) || !arch || n > 60)
        return otherwise;
    snprintf(full, sizeof full, "%.*s.%s", (int)n, arch, key);
    const struct gguf_kv *kv = gguf_find(g, full);
    bool list = kv && kv->kind == GGUF_ARRAY;
    int kind = list ? kv->elem : kv ? kv->kind : GGUF_STRING;
    if (!kv || !kv->count || kind == GGUF_STRING || kind == GGUF_ARRAY)
        return otherwise;
    return gguf_array_int(kv, 0);
}

static bool is_architecture(const struct gguf *g, const char *name) {
    const char *arch;
    size_t n;
    struct err e = {0};
    return !gguf_get_str(g, "general.architecture", &arch, &n, &e) && arch && n == strlen(name) &&
           !memcmp(arch, name, n);
}

static struct convert_model model_of(const struct gguf *g, const struct convert_options *o) {
    int64_t heads = model_int(g, "attention.head_count", 1);
    int64_t shared = model_int(g, "attention.head_count_kv", heads);
    int64_t experts = model_int(g, "expert_count", 0);
    int layers = count_layers(g);
    return (struct convert_model){
        .recipe = o->recipe,
        .layers = layers,
        .tied = !gguf_tensor(g, "output.weight"),
        .shared = shared > 0 && heads / shared >= 4,
        .large = layers == 80 && heads != shared &&
                 (is_architecture(g, "llama") || is_architecture(g, "qwen2")),
        .weighed = o->imatrix,
        .pure = o->pure,
        .overrides = o->overrides,
        .n_overrides = o->n_overrides,
        .experts = experts > 0 && experts < 1 << 16 ? (int)experts : 0,
    };
}

// Copies n importances so that the largest is below 1. The factor is a power of two, so that what
// an encoder chooses stays the same, and its sums of squares neither overflow nor vanish.
static void normalise(const float *v, int64_t n, float *out) {
    float largest = 0.0f;
    int exponent = 0;
    for (int64_t i = 0; i < n; i++)
        largest = v[i] > largest ? v[i] : largest;
    frexpf(largest, &exponent);
    for (int64_t i = 0; i < n; i++)
        out[i] = ldexpf(v[i], -exponent);
}

// Looks up the importances of a matrix: none, or as many as it has columns in all its slices.
static int find_importance(struct convert_plan *p, const struct imatrix *m, const struct tensor *t,
                           const float **importance, struct err *e) {
    const struct imatrix_entry *entry = m ? imatrix_find(m, t->name) : NULL;
    int64_t wanted = t->ne[0] * t->ne[2] * t->ne[3];
    *importance = NULL;
    if (!entry)
        return 0;
    if (entry->count != wanted)
        return err_set(e, ERR_MISMATCH,
                       "%s has %" PRId64 " values for tensor '%s', which needs %" PRId64
                       ": use the importance matrix of this model",
                       imatrix_path(m), entry->count, t->name, wanted);
    float *v = arena_array(&p->arena, (size_t)wanted, sizeof *v);
    if (!v)
        return err_set(e, ERR_MEMORY, "not enough memory for the importances of '%s'", t->name);
    for (int64_t at = 0; at < wanted; at += t->ne[0])
        normalise(entry->v + at, t->ne[0], v + at);
    *importance = v;
    return 0;
}

// Whether a tensor belongs to a block that predicts further tokens: no text that runs through the
// model runs through it, so that importances lack it.
static bool is_nextn(const struct gguf *g, const struct tensor *t) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", layer_of(t->name));
    return gguf_tensor(g, name);
}

// Types of so few bits that what counts must be known, but for embeddings and the output matrix.
static int ask_for_importance(const struct convert_item *item, const struct imatrix *m,
                              struct err *e) {
    const struct quant_format *f = quant_format(item->type);
    bool head = !strcmp(item->name, "token_embd.weight") || !strcmp(item->name, "output.weight");
    if (!f->by_importance || item->importance || item->src->type == item->type || head)
        return 0;
    if (m)
        return err_set(
            e, ERR_MISMATCH,
            "%s has no entry for tensor '%s', and %s needs one: give that tensor another "
            "type with --tensor-types, or make the matrix from more text",
            imatrix_path(m), item->name, f->name);
    return err_set(e, ERR_USAGE,
                   "%s, the type of tensor '%s', needs an importance matrix: make one with coppice "
                   "imatrix and name it with --imatrix",
                   f->name, item->name);
}

// Whether a type is of fewer values than there are weights: what its encoding has rounded is gone.
static bool is_quantised(uint32_t type) {
    return quant_format(type)->block > 1;
}

// ERR_USAGE where what is quantised would be quantised again and may not be.
static int check_source(const struct convert_item *item, const struct convert_options *o,
                        struct convert_report *r, struct err *e) {
    if (item->src->type == item->type || !is_quantised(item->src->type) ||
        !is_quantised(item->type))
        return 0;
    r->requantized++;
    if (o->requantize)
        return 0;
    return err_set(e, ERR_USAGE,
                   "tensor '%s' is quantised already, to %s, and its errors would stay: take the "
                   "model in F16, BF16 or F32, or give --allow-requantize",
                   item->name, quant_format(item->src->type)->name);
}

// Of a type that the rows need not fit, as if blocks went on over them.
static int64_t bytes_in(const struct convert_item *item, uint32_t type) {
    const struct quant_format *f = quant_format(type);
    return item->ne[0] * item->ne[1] * item->ne[2] * item->ne[3] * f->bytes / f->block;
}

static void add_fallback(struct convert_report *r, const struct convert_item *item,
                         uint32_t wanted) {
    int k = 0, max = sizeof r->kind / sizeof *r->kind;
    if (item->type == wanted)
        return;
    r->fallbacks++;
    r->bytes += bytes_in(item, item->type);
    r->wanted_bytes += bytes_in(item, wanted);
    while (k < r->n_kinds && (r->kind[k].wanted != wanted || r->kind[k].got != item->type))
        k++;
    if (k == max)
        return;
    r->kind[k].wanted = wanted;
    r->kind[k].got = item->type;
    r->kind[k].n++;
    r->n_kinds = max_i32(r->n_kinds, k + 1);
}

static int plan_tensor(struct convert_plan *p, const struct gguf *g, const struct tensor *t,
                       const struct convert_options *o, struct convert_report *r, struct err *e) {
    struct convert_model m = model_of(g, o);
    struct convert_item item = {.src = t, .name = t->name, .type = t->type, .n_dims = t->n_dims};
    struct convert_matrix matrix = {t->name, t->ne[0], t->ne[2], 0};
    memcpy(item.ne, t->ne, sizeof item.ne);
    r->tensors++;
    r->in_bytes += t->bytes;
    r->out_bytes += t->bytes;
    if (!convert_eligible(t->name, t->n_dims) || is_helper_type(t->type))
        return convert_plan_add(p, &item, e);
    if (convert_is_value(t->name))
        m.values = count_values(g, t, &matrix.rank);
    item.type = convert_type(&m, &matrix);
    uint32_t wanted = convert_wanted_type(&m, &matrix);
    int rc = find_importance(p, o->imatrix, t, &item.importance, e);
    if (!rc && !item.importance && is_nextn(g, t)) {
        r->unweighted += o->imatrix != NULL;
        if (quant_format(item.type)->by_importance)
            item.type = wanted = TYPE_Q8_0; // whose blocks are no longer than theirs
    }
    r->out_bytes += bytes_in(&item, item.type) - t->bytes;
    r->matrices += item.type != t->type;
    add_fallback(r, &item, wanted);
    if (!rc)
        rc = check_source(&item, o, r, e);
    if (!rc)
        rc = ask_for_importance(&item, o->imatrix, e);
    return rc ? rc : convert_plan_add(p, &item, e);
}

static int plan_copies(struct convert_plan *p, const struct gguf *g,
                       const struct convert_options *o, struct convert_report *r, struct err *e) {
    int rc = 0;
    bool any = !o->imatrix;
    p->source = g;
    for (size_t i = 0; i < gguf_tensor_count(g) && !rc; i++)
        rc = plan_tensor(p, g, gguf_tensor_at(g, i), o, r, e);
    for (size_t i = 0; i < p->count && !any; i++)
        any = p->items[i].importance;
    if (!rc && !any)
        rc =
            err_set(e, ERR_MISMATCH,
                    "%s has no entry for any matrix of %s: use the importance matrix of this model",
                    imatrix_path(o->imatrix), gguf_path(g));
    return rc;
}

int convert_quantize(const char *in, const char *out, const struct convert_options *o,
                     struct err *e) {
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    struct convert_plan plan = {0};
    struct convert_report own, *r = o->report ? o->report : &own;
    *r = (struct convert_report){0};
    int rc = gguf_open(&g, in, e);
    if (!rc)
        gguf_stream(g);
    if (!rc)
        rc = plan_copies(&plan, g, o, r, e);
    if (!rc)
        rc = gguf_writer_open(&w, out, e);
    if (!rc) {
        copy_metadata(w, g, o);
        rc = convert_write(w, &plan, o, e);
        if (rc)
            gguf_writer_abort(w);
        else
            rc = gguf_writer_close(w, e);
    }
    convert_plan_fini(&plan);
    gguf_close(g);
    return rc;
}
