// SPDX-License-Identifier: Apache-2.0
// Matrices whose codes and scales lie apart: X in FP8 (E4M3, whose largest value is 448 and which
// has no infinities) with X_scale_inv or X_scale, and X_packed, eight codes of four bits around 8
// in an I32, with X_scale and X_shape. quantization_config in config.json says which; whatever else
// it may say is refused by its name, since codes without the right scales give no error, only
// another model. They are found under the name X that plain numbers would have, checked, and
// decoded in any part.
#include "convert/quantize/packed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "convert/plan.h"
#include "formats/quant/quant.h"

enum { BLOCK_MAX = 1 << 24 }; // elements along a block

static int refuse_packing(const struct convert_job *j, const char *key, const struct json *v,
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

// Two sizes of a block: rows, columns.
static bool read_block(const struct json *v, struct convert_packing *p) {
    p->rows = json_int(json_at(v, 0), 0);
    p->columns = json_int(json_at(v, 1), 0);
    return json_kind_of(v) == JSON_ARRAY && json_len(v) == 2 && p->rows >= 1 &&
           p->rows <= BLOCK_MAX && p->columns >= 1 && p->columns <= BLOCK_MAX;
}

// DeepSeek's form; without blocks a matrix has one scale, or one for each row.
static int read_fp8(struct convert_job *j, const struct json *c, struct err *e) {
    const struct json *format = json_get(c, "fmt"), *block = json_get(c, "weight_block_size");
    const struct json *experts = json_get(c, "expert_dtype");
    struct convert_packing *p = &j->packing;
    p->fp8 = true;
    if (format && !hf_is(format, "e4m3") && !hf_is(format, "float8_e4m3fn"))
        return refuse_packing(j, "fmt", format, e);
    if (experts && !hf_is(experts, "fp8"))
        return refuse_packing(j, "expert_dtype", experts, e);
    if (!block)
        p->by_rows = true;
    else if (!read_block(block, p))
        return refuse_packing(j, "weight_block_size", block, e);
    return 0;
}

// Which elements share a scale.
static int read_strategy(struct convert_job *j, const struct json *w, struct convert_packing *p,
                         struct err *e) {
    const struct json *strategy = json_get(w, "strategy"), *size = json_get(w, "group_size");
    const struct json *block = json_get(w, "block_structure");
    if (hf_is(strategy, "block"))
        return read_block(block, p) ? 0 : refuse_packing(j, "block_structure", block, e);
    if (hf_is(strategy, "group")) {
        p->rows = 1;
        p->columns = json_int(size, 0);
        return p->columns >= 1 && p->columns <= BLOCK_MAX
                   ? 0
                   : refuse_packing(j, "group_size", size, e);
    }
    if (hf_is(strategy, "channel"))
        p->rows = 1;
    else if (!hf_is(strategy, "tensor"))
        return refuse_packing(j, "strategy", strategy, e);
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
    if (form && !hf_is(form, g->form))
        return refuse_packing(g->j, "format", form, g->e);
    p.fp8 = hf_is(type, "float") && json_int(bits, 0) == 8 && !strcmp(g->form, "float-quantized");
    p.int4 = hf_is(type, "int") && json_int(bits, 0) == 4 && !strcmp(g->form, "pack-quantized");
    if (!hf_is(type, "float") && !hf_is(type, "int"))
        return refuse_packing(g->j, "type", type, g->e);
    if (!p.fp8 && !p.int4)
        return refuse_packing(g->j, "num_bits", bits, g->e);
    if (!json_bool(json_get(w, "symmetric"), true))
        return refuse_packing(g->j, "symmetric", json_get(w, "symmetric"), g->e);
    if (hf_is(json_get(w, "actorder"), "group"))
        return refuse_packing(g->j, "actorder", json_get(w, "actorder"), g->e);
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
    if (sparse && !hf_is(sparse, "dense"))
        return refuse_packing(j, "sparsity_config.format", sparse, e);
    if (json_len(json_get(json_get(c, "transform_config"), "config_groups")))
        return refuse_packing(j, "transform_config", json_get(c, "transform_config"), e);
    if (hf_is(form, "dense"))
        return 0;
    if (!hf_is(form, "float-quantized") && !hf_is(form, "pack-quantized"))
        return refuse_packing(j, "format", form, e);
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
    if (!c || (hf_is(method, "mxfp4") && hf_string_is(f, "model_type", "gpt_oss")))
        return 0;
    if (hf_is(method, "fp8"))
        return read_fp8(j, c, e);
    if (hf_is(method, "compressed-tensors"))
        return read_compressed(j, c, e);
    return refuse_packing(j, "quant_method", method, e);
}

// The tensor X with a tail to its name, among those that hold numbers.
static const struct tensor *find_companion(const struct convert_job *j, const char *name,
                                           const char *tail) {
    char full[288];
    snprintf(full, sizeof full, "%s%s", name, tail);
    return safetensors_tensor(j->weights, full);
}

static int refuse_missing_companion(const struct convert_job *j, const char *name, const char *tail,
                                    struct err *e) {
    return err_set(e, ERR_MISMATCH,
                   "%s holds no tensor '%s%s', without which '%s' cannot be read: the checkpoint "
                   "is not complete, get it again",
                   j->dir, name, tail, name);
}

static const struct tensor *find_scale(const struct convert_job *j, const char *name) {
    static const char *const tails[] = {"_scale_inv", "_scale"};
    char full[288];
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = find_companion(j, name, tails[i]);
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

// Scales of activations next to a matrix, which only programs that compute in FP8 need.
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
        return refuse_missing_companion(j, codes->name,
                                        j->packing.columns ? "_scale_inv" : "_scale", e);
    return mark_activations(j, codes->name, e);
}

// X_shape holds the rows and columns that X has without padding.
static int take_shape(struct convert_job *j, const struct tensor *packed, struct convert_packed *p,
                      struct err *e) {
    const struct tensor *shape = find_companion(j, p->t.name, "_shape");
    int64_t ne[2] = {0, 0};
    if (!shape)
        return refuse_missing_companion(j, p->t.name, "_shape", e);
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
    p->scale = find_companion(j, name, "_scale");
    if (!p->scale)
        return refuse_missing_companion(j, name, "_scale", e);
    int rc = take_shape(j, packed, p, e);
    return rc ? rc : convert_mark_used(j, packed, e);
}

int convert_find_packed(struct convert_job *j, const char *name, const struct tensor **out,
                        struct err *e) {
    const struct tensor *codes = safetensors_bytes(j->weights, name, "F8_E4M3");
    const struct tensor *packed = codes ? NULL : find_companion(j, name, "_packed");
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

// Exponent and fraction lie as those of a float do, for a bias of 7 instead of 127; codes without
// an exponent then are subnormal, and the product is exact all the same.
static float e4m3(unsigned code) {
    const uint32_t bits = (code & 0x7F) << 20;
    float v;
    memcpy(&v, &bits, sizeof v);
    v *= 0x1p120f;
    if ((code & 0x7F) == 0x7F)
        v = NAN;
    return code & 0x80 ? -v : v;
}

static float scale_at(const struct tensor *s, int64_t i) {
    float v;
    if (s->type == TYPE_I8) {
        int exponent = ((const unsigned char *)s->data)[i];
        return exponent == 255 ? NAN : ldexpf(1.0f, exponent - 127);
    }
    const struct quant_format *f = quant_format(s->type);
    f->dequantize((const unsigned char *)s->data + quant_row_bytes(f, i), &v, 1);
    return v;
}

// Codes c .. c + n of a row, times their scale.
static void unpack_run(const struct convert_packed *p, const unsigned char *row, int64_t c,
                       int64_t n, float scale, float *dst) {
    for (int64_t i = 0; i < n && !p->int4; i++)
        dst[i] = e4m3(row[c + i]) * scale;
    for (int64_t i = 0; i < n && p->int4; i++, c++)
        dst[i] = (float)((row[c / 2] >> (c % 2 ? 4 : 0) & 15) - 8) * scale;
}

void convert_unpack(const struct tensor *t, int64_t at, int64_t n, float *dst) {
    const struct convert_packed *p = (const struct convert_packed *)(const void *)t;
    int64_t k = t->ne[0], m = t->ne[1];
    while (n > 0) {
        int64_t row = at / k, c = at % k, r = row % m;
        int64_t block = row / m * p->scale_slice + r / p->rows * p->scale_columns + c / p->columns;
        int64_t run = min_i64(min_i64(p->columns - c % p->columns, k - c), n);
        unpack_run(p, p->codes + row * p->row_bytes, c, run, scale_at(p->scale, block), dst);
        at += run;
        dst += run;
        n -= run;
    }
}

int64_t convert_packed_bytes(const struct tensor *t, int64_t n) {
    return ((const struct convert_packed *)(const void *)t)->int4 ? n / 2 : n;
}
