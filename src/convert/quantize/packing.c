// SPDX-License-Identifier: Apache-2.0
// What quantization_config in config.json says of a folder's matrices: FP8 with scales of blocks
// ("fp8"), FP8 or INT4 of compressed-tensors. Whatever else it may say is refused by its name,
// since codes without the right scales give no error, only another model.
#include <inttypes.h>
#include <string.h>

#include "convert/impl.h"

enum { MOST = 1 << 24 }; // elements along a block

static int refuse(const struct convert_job *j, const char *key, const struct json *v,
                  struct err *e) {
    const char *s = json_str(v, NULL), *number = s ? NULL : json_number_text(v);
    return err_set(e, ERR_UNSUPPORTED,
                   "quantization_config in %s has %s '%.60s', which cannot be converted: use the "
                   "BF16 checkpoint",
                   j->config.path, key,
                   s                              ? s
                   : number                       ? number
                   : json_kind_of(v) == JSON_NULL ? "null"
                   : json_kind_of(v) == JSON_BOOL ? json_bool(v, false) ? "true" : "false"
                                                  : "of another kind");
}

static bool is(const struct json *v, const char *text) {
    const char *s = json_str(v, NULL);
    return s && !strcmp(s, text);
}

// Two sizes of a block: rows, columns.
static bool read_block(const struct json *v, struct convert_packing *p) {
    p->rows = json_int(json_at(v, 0), 0);
    p->columns = json_int(json_at(v, 1), 0);
    return json_kind_of(v) == JSON_ARRAY && json_len(v) == 2 && p->rows >= 1 && p->rows <= MOST &&
           p->columns >= 1 && p->columns <= MOST;
}

// DeepSeek's form; without blocks a matrix has one scale, or one for each row.
static int read_fp8(struct convert_job *j, const struct json *c, struct err *e) {
    const struct json *format = json_get(c, "fmt"), *block = json_get(c, "weight_block_size");
    const struct json *experts = json_get(c, "expert_dtype");
    struct convert_packing *p = &j->packing;
    p->fp8 = true;
    if (format && !is(format, "e4m3") && !is(format, "float8_e4m3fn"))
        return refuse(j, "fmt", format, e);
    if (experts && !is(experts, "fp8"))
        return refuse(j, "expert_dtype", experts, e);
    if (!block)
        p->by_rows = true;
    else if (!read_block(block, p))
        return refuse(j, "weight_block_size", block, e);
    return 0;
}

// Which elements share a scale.
static int read_strategy(struct convert_job *j, const struct json *w, struct convert_packing *p,
                         struct err *e) {
    const struct json *strategy = json_get(w, "strategy"), *size = json_get(w, "group_size");
    const struct json *block = json_get(w, "block_structure");
    if (is(strategy, "block"))
        return read_block(block, p) ? 0 : refuse(j, "block_structure", block, e);
    if (is(strategy, "group")) {
        p->rows = 1;
        p->columns = json_int(size, 0);
        return p->columns >= 1 && p->columns <= MOST ? 0 : refuse(j, "group_size", size, e);
    }
    if (is(strategy, "channel"))
        p->rows = 1;
    else if (!is(strategy, "tensor"))
        return refuse(j, "strategy", strategy, e);
    return 0;
}

struct groups {
    struct convert_job *j;
    const char *form;
    int count;
    struct err *e;
};

// One member of config_groups.
static int read_group(void *arg, const char *key, size_t n, const struct json *group) {
    struct groups *g = arg;
    struct convert_packing p = {0};
    const struct json *w = json_get(group, "weights"), *type = json_get(w, "type");
    const struct json *bits = json_get(w, "num_bits"), *form = json_get(group, "format");
    (void)key;
    (void)n;
    if (!w)
        return 0; // of activations alone
    if (form && !is(form, g->form))
        return refuse(g->j, "format", form, g->e);
    p.fp8 = is(type, "float") && json_int(bits, 0) == 8 && !strcmp(g->form, "float-quantized");
    p.int4 = is(type, "int") && json_int(bits, 0) == 4 && !strcmp(g->form, "pack-quantized");
    if (!is(type, "float") && !is(type, "int"))
        return refuse(g->j, "type", type, g->e);
    if (!p.fp8 && !p.int4)
        return refuse(g->j, "num_bits", bits, g->e);
    if (!json_bool(json_get(w, "symmetric"), true))
        return refuse(g->j, "symmetric", json_get(w, "symmetric"), g->e);
    if (is(json_get(w, "actorder"), "group"))
        return refuse(g->j, "actorder", json_get(w, "actorder"), g->e);
    int rc = read_strategy(g->j, w, &p, g->e);
    const struct convert_packing *had = &g->j->packing;
    if (!rc && g->count++ && (had->rows != p.rows || had->columns != p.columns))
        return err_set(g->e, ERR_UNSUPPORTED,
                       "config_groups in %s have weights of different kinds, which cannot be "
                       "converted: use the BF16 checkpoint",
                       g->j->config.path);
    g->j->packing = p;
    return rc;
}

static int read_compressed(struct convert_job *j, const struct json *c, struct err *e) {
    const struct json *form = json_get(c, "format"), *groups = json_get(c, "config_groups");
    const struct json *sparse = json_get(json_get(c, "sparsity_config"), "format");
    struct groups g = {.j = j, .form = json_str(form, NULL), .e = e};
    if (sparse && !is(sparse, "dense"))
        return refuse(j, "sparsity_config.format", sparse, e);
    if (json_len(json_get(json_get(c, "transform_config"), "config_groups")))
        return refuse(j, "transform_config", json_get(c, "transform_config"), e);
    if (is(form, "dense"))
        return 0;
    if (!is(form, "float-quantized") && !is(form, "pack-quantized"))
        return refuse(j, "format", form, e);
    int rc = json_kind_of(groups) == JSON_OBJECT ? json_each(groups, read_group, &g) : 0;
    if (!rc && !g.count)
        return err_set(e, ERR_FORMAT,
                       "quantization_config in %s lacks 'config_groups': get the file again",
                       j->config.path);
    return rc;
}

int convert_read_packing(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct json *c = hf_get(f, "quantization_config");
    c = c ? c : hf_get(f, "compression_config");
    const struct json *method = json_get(c, "quant_method");
    if (!c || (is(method, "mxfp4") && hf_string_is(f, "model_type", "gpt_oss")))
        return 0;
    if (is(method, "fp8"))
        return read_fp8(j, c, e);
    if (is(method, "compressed-tensors"))
        return read_compressed(j, c, e);
    return refuse(j, "quant_method", method, e);
}
