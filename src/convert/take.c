// SPDX-License-Identifier: Apache-2.0
// What the files of convert/families fill a plan with: metadata and sizes that all models have, and
// tensors, which are looked up under the prefixes that checkpoints use, must have the shape that
// config.json implies, and are added.
#include "convert/plan.h"

#include <stdio.h>
#include <string.h>

#include "convert/quantize/packed.h"
#include "formats/quant/quant.h"

static const char *full_key(const struct convert_job *j, const char *key, char *full, size_t size) {
    snprintf(full, size, "%s.%s", j->arch, key);
    return full;
}

void convert_put_u32(struct convert_job *j, const char *key, int64_t v) {
    char full[128];
    gguf_put_int(j->writer, full_key(j, key, full, sizeof full), GGUF_U32, v);
}

void convert_put_f32(struct convert_job *j, const char *key, double v) {
    char full[128];
    gguf_put_f32(j->writer, full_key(j, key, full, sizeof full), (float)v);
}

void convert_put_array(struct convert_job *j, const char *key, int kind, const void *elems,
                       uint64_t count) {
    char full[128];
    gguf_put_array(j->writer, full_key(j, key, full, sizeof full), kind, elems, count);
}

void convert_put_general(struct convert_job *j) {
    struct gguf_writer *w = j->writer;
    size_t end = strlen(j->dir), begin;
    while (end > 1 && j->dir[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && j->dir[begin - 1] != '/'; begin--)
        continue;
    gguf_put_str(w, "general.architecture", j->arch, strlen(j->arch));
    gguf_put_str(w, "general.type", "model", 5);
    gguf_put_str(w, "general.name", j->dir + begin, end - begin);
    gguf_put_int(w, "general.file_type", GGUF_U32, j->options->recipe->file_type);
    gguf_put_int(w, "general.quantization_version", GGUF_U32, 2);
}

int convert_read_sizes(struct convert_job *j, bool feed_forward, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    const struct hf_number rows[] = {
        {"hidden_size", 1, 1 << 20, -1, &d[DIM_D], NULL},
        {"vocab_size", 1, 1 << 24, -1, &d[DIM_V], NULL},
        {"num_hidden_layers", 1, 4096, -1, &j->layers, NULL},
        {"num_attention_heads", 1, 4096, -1, &j->heads, NULL},
    };
    int rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (!rc && feed_forward)
        rc = hf_int(f, "intermediate_size", 1, 1 << 24, -1, &d[DIM_F], e);
    if (!rc)
        rc = hf_int(f, "num_key_value_heads", 1, j->heads, j->heads, &j->kv_heads, e);
    if (!rc)
        rc = hf_int(f, "head_dim", 2, 4096, d[DIM_D] / j->heads, &d[DIM_HD], e);
    if (!rc)
        rc = convert_count_nextn(j, e);
    if (rc)
        return rc;
    d[DIM_ONE] = 1;
    d[DIM_2D] = 2 * d[DIM_D];
    d[DIM_Q] = j->heads * d[DIM_HD];
    d[DIM_QG] = 2 * d[DIM_Q];
    d[DIM_KV] = j->kv_heads * d[DIM_HD];
    return 0;
}

static int refuse_unreadable(const char *name, const char *why, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "tensor '%s' has %s, which cannot be converted: use the "
                   "BF16 checkpoint",
                   name, why);
}

static struct convert_remap head_order(const struct convert_job *j, const struct convert_rule *r,
                                       int64_t row) {
    struct convert_remap m = {.keys = j->keys, .copies = j->copies};
    if (r->heads == HEADS_PAIRS)
        return (struct convert_remap){.unit = r->dims[1] ? row : 1, // a bias has one value a row
                                      .keys = 2,
                                      .copies = (int)j->dim[DIM_HD] / 2};
    if (r->heads == HEADS_KEEP || j->copies == 1)
        return m;
    int64_t head = j->dim[DIM_DV];
    switch (r->heads) {
    case HEADS_ROWS_AFTER_KEYS:
        m.skip = 2 * j->keys * head * row;
        m.unit = head * row;
        break;
    case HEADS_ROWS:
        m.unit = head * row;
        break;
    case HEADS_COLUMNS:
        m.unit = head;
        break;
    default: // one row, or one value, per head
        m.unit = r->dims[1] ? row : 1;
        break;
    }
    return m;
}

int convert_find(struct convert_job *j, const char *hf, int layer, const struct tensor **out,
                 struct err *e) {
    char name[256], place[CONVERT_PLACE];
    int rc = 0;
    *out = NULL;
    for (int i = 0; convert_prefix(i) && !rc && !*out; i++) {
        snprintf(name, sizeof name, "%s%s%s", convert_prefix(i), convert_place(j, layer, place),
                 hf);
        *out = safetensors_tensor(j->weights, name);
        if (!*out)
            rc = convert_find_packed(j, name, out, e);
        const char *why = safetensors_unreadable(j->weights, name);
        if (!rc && !*out && why)
            rc = refuse_unreadable(name, why, e);
    }
    return rc;
}

const struct tensor *convert_find_bytes(const struct convert_job *j, const char *hf, int layer) {
    char name[256], place[CONVERT_PLACE];
    for (int i = 0; convert_prefix(i); i++) {
        snprintf(name, sizeof name, "%s%s%s", convert_prefix(i), convert_place(j, layer, place),
                 hf);
        const struct tensor *t = safetensors_bytes(j->weights, name, "U8");
        if (t)
            return t;
    }
    return NULL;
}

int convert_missing(const struct convert_job *j, const char *hf, int layer, struct err *e) {
    char place[CONVERT_PLACE];
    bool nextn = (layer >= 0 && layer >= j->layers) || !strncmp(hf, "mtp.", 4);
    return err_set(e, ERR_MISMATCH,
                   "%s holds no tensor '%s%s': the checkpoint is not complete, "
                   "get it again%s",
                   j->dir, convert_place(j, layer, place), hf,
                   nextn ? ", or leave its prediction block out with --no-mtp" : "");
}

int convert_find_part(struct convert_job *j, const char *hf, int layer, const struct tensor **parts,
                      int i, const struct convert_item *item, struct err *e) {
    int rc = convert_find(j, hf, layer, &parts[i], e);
    if (!rc && !parts[i])
        rc = convert_missing(j, hf, layer, e);
    if (!rc)
        rc = convert_check_shape(parts[i], item->ne, item->n_dims - 1, e);
    if (!rc && parts[i]->type != parts[0]->type)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "tensor '%s' has another type than '%s', next to which it is written: use the "
                     "original checkpoint",
                     parts[i]->name, parts[0]->name);
    return rc;
}

int convert_add(struct convert_job *j, struct convert_item *item, struct err *e) {
    const struct convert_matrix matrix = {
        .name = item->name, .row = item->ne[0], .slices = item->n_dims > 2 ? item->ne[2] : 1};
    item->type = TYPE_F32;
    if (convert_eligible(item->name, item->n_dims))
        item->type = convert_type(&j->model, &matrix);
    if (item->scales) // is never encoded anew
        item->type = TYPE_MXFP4;
    const struct quant_format *f = quant_format(item->type);
    if (f->by_importance)
        return err_set(
            e, ERR_USAGE,
            "%s, the type of tensor '%s', needs an importance matrix: convert to BF16, then "
            "quantize that with --imatrix",
            f->name, item->name);
    int rc = item->scales ? convert_mark_used(j, item->scales, e) : 0;
    for (int i = 0; !rc && i < (item->n_parts ? item->n_parts : 1); i++)
        rc = convert_mark_used(j, item->n_parts ? item->parts[i] : item->src, e);
    return rc ? rc : convert_plan_add(&j->plan, item, e);
}

int convert_take(struct convert_job *j, const struct convert_rule *r, int layer, struct err *e) {
    char out[128];
    struct convert_item item = {.name = out, .op = (enum convert_op)r->op};
    int rc = convert_find(j, r->hf, layer, &item.src, e);
    if (!rc && !item.src)
        rc = convert_missing(j, r->hf, layer, e);
    if (rc)
        return rc;
    while (item.n_dims < 3 && r->dims[item.n_dims])
        item.n_dims++;
    for (int i = 0; i < 4; i++)
        item.ne[i] = i < item.n_dims ? j->dim[r->dims[i]] : 1;
    rc = convert_check_shape(item.src, item.ne, item.n_dims, e);
    if (rc)
        return rc;
    if (layer < 0)
        snprintf(out, sizeof out, "%s", r->gguf);
    else
        snprintf(out, sizeof out, "blk.%d.%s", layer, r->gguf);
    item.remap = head_order(j, r, item.ne[0]);
    return convert_add(j, &item, e);
}

int convert_take_all(struct convert_job *j, const struct convert_rule *rules, int layer,
                     struct err *e) {
    int rc = 0;
    for (; rules->hf && !rc; rules++)
        rc = convert_take(j, rules, layer, e);
    return rc;
}
