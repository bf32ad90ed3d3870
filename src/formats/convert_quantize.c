// SPDX-License-Identifier: Apache-2.0
// GGUF to GGUF: metadata is copied, matrices are re-encoded by a recipe, everything else stays as
// it is. A split model becomes one file.
#include <stdio.h>
#include <string.h>

#include "formats/convert_impl.h"
#include "formats/quant.h"

static void put_file_type(struct gguf_writer *w, const struct convert_recipe *r) {
    gguf_put_int(w, "general.file_type", GGUF_U32, r->file_type);
    if (quant_format(r->type)->block > 1)
        gguf_put_int(w, "general.quantization_version", GGUF_U32, 2);
}

// Copies all keys; those that describe the types change in place, those of a split are dropped.
static void copy_metadata(struct gguf_writer *w, const struct gguf *g,
                          const struct convert_recipe *r) {
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (!strcmp(kv->key, "general.file_type"))
            put_file_type(w, r);
        else if (strcmp(kv->key, "general.quantization_version") && strncmp(kv->key, "split.", 6))
            gguf_put_kv(w, kv);
    }
    if (!gguf_find(g, "general.file_type"))
        put_file_type(w, r);
}

static bool is_helper_type(uint32_t type) {
    return (type >= TYPE_I8 && type <= TYPE_F64);
}

// The number of blocks: one more than the largest N of the names "blk.N.…".
static int count_layers(const struct gguf *g) {
    int layers = 0, n;
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        if (sscanf(gguf_tensor_at(g, i)->name, "blk.%6d.", &n) == 1 && n >= layers)
            layers = n + 1;
    return layers;
}

static int plan_copies(struct convert_plan *p, const struct gguf *g, const struct convert_recipe *r,
                       struct err *e) {
    struct convert_model m = {r, count_layers(g), !gguf_tensor(g, "output.weight")};
    int rc = 0;
    for (size_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        struct convert_item item = {
            .src = t, .name = t->name, .type = t->type, .n_dims = t->n_dims};
        memcpy(item.ne, t->ne, sizeof item.ne);
        if (convert_eligible(t->name, t->n_dims) && !is_helper_type(t->type))
            item.type = convert_type(&m, t->name, t->ne[0]);
        rc = convert_plan_add(p, &item, e);
    }
    return rc;
}

int convert_quantize(const char *in, const char *out, const struct convert_options *o,
                     struct err *e) {
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    struct convert_plan plan = {0};
    int rc = gguf_open(&g, in, e);
    if (!rc)
        rc = plan_copies(&plan, g, o->recipe, e);
    if (!rc)
        rc = gguf_writer_open(&w, out, e);
    if (!rc) {
        copy_metadata(w, g, o->recipe);
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
