// SPDX-License-Identifier: Apache-2.0
// Rewrites a GGUF file of qwen35, or of deepseek2 (last part): metadata with a few entries changed,
// tensors copied, and for the prediction block one full-attention layer's tensors once more under
// the next layer's name.
#include "golden/variants.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

enum { MAX_BLOCKS = 64, COPY_LAYER = 3 };

static bool is_key(const struct gguf_kv *kv, const char *name) {
    return strcmp(kv->key, name) == 0;
}

static bool dropped(enum variant v, const struct gguf_kv *kv) {
    static const char *const recent[] = {"qwen35.attention.recurrent_layers",
                                         "qwen35.full_attention_interval", "qwen35.vocab_size"};
    if (v == VARIANT_MTP)
        return is_key(kv, "qwen35.block_count") || is_key(kv, recent[0]);
    for (size_t i = 0; i < sizeof recent / sizeof *recent; i++)
        if (is_key(kv, recent[i]))
            return true;
    return false;
}

static int put_metadata(struct gguf_writer *w, enum variant v, const struct gguf *g,
                        struct err *e) {
    int64_t blocks = 0;
    int rc = gguf_get_int(g, "qwen35.block_count", 1, MAX_BLOCKS - 1, 0, &blocks, e);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (!dropped(v, gguf_kv_at(g, i)))
            gguf_put_kv(w, gguf_kv_at(g, i));
    if (rc != 0 || v != VARIANT_MTP)
        return rc;
    unsigned char recurrent[MAX_BLOCKS] = {0};
    const struct gguf_kv *old = gguf_find(g, "qwen35.attention.recurrent_layers");
    for (uint64_t i = 0; old && i < old->count && i < MAX_BLOCKS; i++)
        recurrent[i] = gguf_array_int(old, i) != 0;
    gguf_put_int(w, "qwen35.block_count", GGUF_U32, blocks + 1);
    gguf_put_int(w, "qwen35.nextn_predict_layers", GGUF_U32, 1);
    if (old)
        gguf_put_array(w, old->key, GGUF_BOOL, recurrent, (uint64_t)blocks + 1);
    return 0;
}

// The extra block's name of a tensor of COPY_LAYER, or NULL for any other tensor.
static const char *block_name(const struct tensor *t, int64_t blocks, char buffer[128]) {
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "blk.%d.", COPY_LAYER);
    if (strncmp(t->name, prefix, strlen(prefix)) != 0)
        return NULL;
    (void)snprintf(buffer, 128, "blk.%lld.%s", (long long)blocks, t->name + strlen(prefix));
    return buffer;
}

// Three norms and the joining matrix of the block; data come from tensors of the same shape.
static void add_nextn(struct gguf_writer *w, int64_t blocks, int64_t dim) {
    static const char *const norms[] = {"enorm", "hnorm", "shared_head_norm"};
    char name[128];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "blk.%lld.nextn.%s.weight", (long long)blocks, norms[i]);
        gguf_add_tensor(w, name, TYPE_F32, 1, &dim);
    }
    (void)snprintf(name, sizeof name, "blk.%lld.nextn.eh_proj.weight", (long long)blocks);
    gguf_add_tensor(w, name, TYPE_F32, 2, (const int64_t[]){2 * dim, dim});
}

static int write_nextn(struct gguf_writer *w, const struct tensor *norm, struct err *e) {
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < 3 + 2 * norm->ne[0]; i++)
        rc = gguf_write_data(w, norm->data, (size_t)norm->bytes, e);
    return rc;
}

static int put_tensors(struct gguf_writer *w, enum variant v, const struct gguf *g, struct err *e) {
    char name[128];
    int64_t blocks = 0;
    const struct tensor *norm = gguf_tensor(g, "output_norm.weight");
    int rc = gguf_get_int(g, "qwen35.block_count", 1, MAX_BLOCKS - 1, 0, &blocks, e);
    if (rc != 0 || !norm)
        return rc != 0 ? rc : err_set(e, ERR_FORMAT, "no output_norm.weight");
    size_t n = gguf_tensor_count(g);
    for (size_t pass = 0; pass < (v == VARIANT_MTP ? 2 : 1); pass++)
        for (size_t i = 0; i < n; i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            const char *as = pass == 0 ? t->name : block_name(t, blocks, name);
            if (as)
                gguf_add_tensor(w, as, t->type, t->n_dims, t->ne);
        }
    if (v == VARIANT_MTP)
        add_nextn(w, blocks, norm->ne[0]);
    for (size_t pass = 0; pass < (v == VARIANT_MTP ? 2 : 1); pass++)
        for (size_t i = 0; rc == 0 && i < n; i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            if (pass == 0 || block_name(t, blocks, name))
                rc = gguf_write_data(w, t->data, (size_t)t->bytes, e);
        }
    return rc == 0 && v == VARIANT_MTP ? write_nextn(w, norm, e) : rc;
}

// The prediction block in a file of its own.

static int put_sidecar(struct gguf_writer *w, const struct gguf *g, struct err *e) {
    char block[32] = "";
    int rc = 0;
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *at = strstr(gguf_tensor_at(g, i)->name, "nextn.eh_proj");
        if (at)
            (void)snprintf(block, sizeof block, "%.*s", (int)(at - gguf_tensor_at(g, i)->name),
                           gguf_tensor_at(g, i)->name);
    }
    if (!*block)
        return err_set(e, ERR_FORMAT, "no prediction block");
    for (int data = 0; data < 2; data++)
        for (size_t i = 0; rc == 0 && i < gguf_tensor_count(g); i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            if (strncmp(t->name, block, strlen(block)) != 0)
                continue;
            if (data)
                rc = gguf_write_data(w, t->data, (size_t)t->bytes, e);
            else
                gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
        }
    return rc;
}

// Latent attention as older files have it.

static bool is_part(const struct tensor *t, const char *part) {
    return strstr(t->name, part) != NULL;
}

// Row (d of head h) of attn_kv_b: column d of the head's attn_k_b, or a row of its attn_v_b.
static int write_kv_b(struct gguf_writer *w, const struct tensor *k, const struct tensor *v,
                      struct err *e) {
    const float *keys = k->data, *values = v->data;
    int64_t nope = k->ne[0], lora = k->ne[1], rows = nope + v->ne[1];
    float row[512];
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < k->ne[2] * rows; i++) {
        int64_t h = i / rows, d = i % rows;
        for (int64_t r = 0; r < lora && r < 512; r++)
            row[r] = d < nope ? keys[(h * lora + r) * nope + d]
                              : values[(h * v->ne[1] + d - nope) * lora + r];
        rc = gguf_write_data(w, row, (size_t)lora * sizeof *row, e);
    }
    return rc;
}

static void put_old_widths(struct gguf_writer *w, const struct gguf *g) {
    static const char *const pairs[][2] = {
        {"deepseek2.attention.key_length", "deepseek2.attention.key_length_mla"},
        {"deepseek2.attention.value_length", "deepseek2.attention.value_length_mla"},
        {"deepseek2.attention.head_count_kv", "deepseek2.attention.head_count"}};
    struct err e;
    for (size_t i = 0; i < 3; i++) {
        int64_t n = 0;
        (void)gguf_get_int(g, pairs[i][1], 0, 1 << 20, 0, &n, &e);
        gguf_put_int(w, pairs[i][0], GGUF_U32, n);
    }
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        bool changed = strstr(kv->key, "_mla") || !strcmp(kv->key, pairs[0][0]) ||
                       !strcmp(kv->key, pairs[1][0]) || !strcmp(kv->key, pairs[2][0]);
        if (!changed)
            gguf_put_kv(w, kv);
    }
}

// One tensor: described, or (data) written. Values of heads go where their keys are.
static int put_one(struct gguf_writer *w, const struct gguf *g, const struct tensor *t, bool data,
                   struct err *e) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s", t->name);
    char *at = strstr(name, "attn_k_b");
    if (is_part(t, "attn_v_b"))
        return 0;
    if (!at && data)
        return gguf_write_data(w, t->data, (size_t)t->bytes, e);
    if (!at) {
        gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
        return 0;
    }
    at[5] = 'v';
    const struct tensor *v = gguf_tensor(g, name);
    if (!v)
        return err_set(e, ERR_FORMAT, "no %s", name);
    (void)snprintf(at, 24, "attn_kv_b.weight");
    const int64_t ne[2] = {t->ne[1], t->ne[2] * (t->ne[0] + v->ne[1])};
    if (data)
        return write_kv_b(w, t, v, e);
    gguf_add_tensor(w, name, t->type, 2, ne);
    return 0;
}

static int put_latent(struct gguf_writer *w, const struct gguf *g, struct err *e) {
    int rc = 0;
    put_old_widths(w, g);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; rc == 0 && i < gguf_tensor_count(g); i++)
            rc = put_one(w, g, gguf_tensor_at(g, i), pass, e);
    return rc;
}

int variant_write(enum variant v, const char *in, const char *out, struct err *e) {
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    int rc = gguf_open(&g, in, e);
    if (rc == 0)
        rc = gguf_writer_open(&w, out, e);
    if (rc != 0)
        goto out;
    if (v == VARIANT_KV_B)
        rc = put_latent(w, g, e);
    else if (v == VARIANT_SIDECAR)
        rc = put_sidecar(w, g, e);
    else
        rc = put_metadata(w, v, g, e);
    if (rc == 0 && v != VARIANT_KV_B && v != VARIANT_SIDECAR)
        rc = put_tensors(w, v, g, e);
    if (rc == 0)
        rc = gguf_writer_close(w, e);
    else
        gguf_writer_abort(w);
out:
    gguf_close(g);
    return rc;
}
