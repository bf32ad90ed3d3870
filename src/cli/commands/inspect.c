// SPDX-License-Identifier: Apache-2.0
// `coppice inspect`: what a GGUF or safetensors file holds, as text or JSON. Both kinds of file are
// seen through one struct; only metadata and the memory plan need to know which it is. The plan is
// that of the model layer, without keys and values of a context.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/num.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/models/decode.h"
#include "engine/session/named_drafts.h"
#include "engine/session/session.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "formats/safetensors.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"
#include "models/model.h"
#include "ops/gpu/linear/operands.h"

// Bytes that running takes besides the weights.
struct inspect_plan {
    int64_t scratch;       // workspace
    int64_t kv_per_1k;     // keys and values of 1,024 tokens as F16, in layers without a window,
    int64_t kv_windows;    // and in those with one, of a sequence at most
    int64_t recurrent;     // Gated DeltaNet state of one sequence
    int64_t checkpoint;    // of that state
    int64_t experts;       // of the weights: experts, which need not all be on the device,
    int64_t min;           // and how many bytes of them must be without --cpu-experts,
    int64_t expert_layers; // and the layers that have them
    struct err refusal;    // why a target cannot be run; code 0 when there is nothing to say
};

// An open file of either format, and its plan when it is a model that can be run.
struct inspected {
    struct gguf *gguf;
    struct safetensors *safetensors;
    bool has_plan;
    struct inspect_plan plan;
};

// An integer key of the architecture; false when it is missing or out of range.
static bool arch_int(const struct gguf *g, const char *arch, const char *key, int64_t *v) {
    char full[128];
    struct err ignored;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return !gguf_get_int(g, full, 0, 1 << 24, -1, v, &ignored) && *v >= 0;
}

// Bytes of the blocks that predict further tokens, which only drafting reads.
static int64_t block_bytes(const struct inspected *f) {
    int64_t bytes = 0;
    int first;
    if (!f->gguf || !mtp_in_file(f->gguf, &first))
        return 0;
    for (size_t i = 0; i < gguf_tensor_count(f->gguf); i++) {
        const struct tensor *t = gguf_tensor_at(f->gguf, i);
        int n;
        if (sscanf(t->name, "blk.%6d.", &n) == 1 && n >= first)
            bytes += t->bytes;
    }
    return bytes;
}

static bool plan_draft_file(struct inspect_plan *p, const struct gguf *g) {
    int64_t layers, kv_heads, width;
    if (!arch_int(g, "dflash", "block_count", &layers) ||
        !arch_int(g, "dflash", "attention.head_count_kv", &kv_heads) ||
        !arch_int(g, "dflash", "attention.key_length", &width) || layers > 4096 ||
        kv_heads > 4096 || width > 4096)
        return false;
    p->kv_per_1k = layers * 2 * kv_heads * width * 2 * 1024;
    return true;
}

// The model layer's own plan, by a dry load: it also tells whether the model can be run at all.
static bool plan_target_file(struct inspect_plan *p, const struct gguf *g) {
    struct model_options o = model_options_default();
    struct model_plan plan;
    struct model_params of;
    if (model_plan(&plan, &of, NULL, g, &o, &p->refusal))
        return false;
    p->scratch = plan.scratch;
    p->kv_per_1k = kv_needs_per_1k(&plan.kv);
    p->kv_windows = kv_needs_windows(&plan.kv, of.context, plan.step);
    p->recurrent = plan.recurrent;
    p->checkpoint = plan.checkpoint;
    p->experts = plan.expert_bytes;
    p->min = expert_classes_min(&plan.experts);
    p->expert_layers = plan.expert_layers;
    return true;
}

// Plans a target or a dflash draft; false (perhaps with a refusal) for anything else.
static bool plan_file(struct inspect_plan *p, const struct gguf *g) {
    const char *arch;
    size_t n;
    struct err ignored;
    *p = (struct inspect_plan){0};
    if (gguf_get_str(g, "general.architecture", &arch, &n, &ignored) || !arch)
        return false;
    if (n == 6 && !memcmp(arch, "dflash", 6))
        return plan_draft_file(p, g);
    if (mtp_sidecar(g)) {
        err_set(&p->refusal, ERR_UNSUPPORTED,
                "it is the prediction block of another file, which it goes with as a draft (-d)");
        return false;
    }
    if (eagle3_in_file(g)) {
        err_set(&p->refusal, ERR_UNSUPPORTED,
                "it is an EAGLE-3 draft, which goes with its target as a draft (-d)");
        return false;
    }
    return plan_target_file(p, g);
}

enum { SHOWN_ITEMS = 6, SHOWN_BYTES = 60 };

static const char *const kind_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};

static bool is_safetensors(const char *path) {
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return true;
    return str_ends(path, ".safetensors") || str_ends(path, ".json");
}

static size_t count_of(const struct inspected *f) {
    return f->gguf ? gguf_tensor_count(f->gguf) : safetensors_count(f->safetensors);
}

static const struct tensor *tensor_at(const struct inspected *f, size_t i) {
    return f->gguf ? gguf_tensor_at(f->gguf, i) : safetensors_at(f->safetensors, i);
}

// One string in quotes for the text form: shortened, with control characters and breaks as dots.
static void put_quoted_text(struct str *out, const char *s, size_t n) {
    size_t shown = min_size(n, SHOWN_BYTES);
    while (shown < n && shown > 0 && ((unsigned char)s[shown] & 0xC0) == 0x80)
        shown--; // not inside a character
    struct str clean = {0};
    utf8_sanitise(&clean, s, shown);
    str_putc(out, '"');
    for (size_t i = 0; i < clean.len; i++)
        str_putc(out,
                 (unsigned char)clean.data[i] < 32 || clean.data[i] == 127 ? '.' : clean.data[i]);
    out->failed |= clean.failed;
    str_fini(&clean);
    str_puts(out, "\"");
    if (shown < n)
        str_printf(out, "... (%zu bytes)", n);
}

static void put_metadata_number(struct str *out, const struct gguf_kv *kv, int kind, uint64_t i) {
    if (kind == GGUF_F32 || kind == GGUF_F64)
        str_printf(out, "%.9g", gguf_array_float(kv, i));
    else if (kind == GGUF_BOOL)
        str_puts(out, gguf_array_int(kv, i) ? "true" : "false");
    else
        str_printf(out, "%" PRId64, gguf_array_int(kv, i));
}

static void put_values(struct str *out, const struct gguf_kv *kv, int kind, uint64_t count) {
    const unsigned char *cursor = kv->bytes;
    for (uint64_t i = 0; i < count; i++) {
        size_t n;
        if (i)
            str_puts(out, ", ");
        if (kind != GGUF_STRING) {
            put_metadata_number(out, kv, kind, i);
            continue;
        }
        const char *s = gguf_array_str(&cursor, &n);
        put_quoted_text(out, s, n);
    }
}

static void put_entry(struct str *out, const struct gguf_kv *kv) {
    int kind = kv->kind == GGUF_ARRAY ? kv->elem : kv->kind;
    str_printf(out, "  %-44s ", kv->key);
    if (kv->kind != GGUF_ARRAY) {
        str_printf(out, "%-7s", kind_names[kind]);
        put_values(out, kv, kind, 1);
    } else {
        uint64_t shown = kv->count > SHOWN_ITEMS ? SHOWN_ITEMS : kv->count;
        str_printf(out, "%-6s [", kind_names[kind]);
        put_values(out, kv, kind, shown);
        str_puts(out, shown < kv->count ? ", ...]" : "]");
        if (shown < kv->count)
            str_printf(out, " (%" PRIu64 ")", kv->count);
    }
    str_putc(out, '\n');
}

static void put_tensors(struct str *out, const struct inspected *f) {
    str_printf(out, "\nTensors (%zu)\n", count_of(f));
    for (size_t i = 0; i < count_of(f); i++) {
        const struct tensor *t = tensor_at(f, i);
        char shape[96];
        int at = snprintf(shape, sizeof shape, "[%" PRId64, t->ne[0]);
        for (int k = 1; k < t->n_dims; k++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, ", %" PRId64, t->ne[k]);
        snprintf(shape + at, sizeof shape - (size_t)at, "]");
        str_printf(out, "  %-44s %-7s %-20s %12" PRId64 "\n", t->name, quant_format(t->type)->name,
                   shape, t->bytes);
    }
    if (f->safetensors && safetensors_unreadable_count(f->safetensors))
        str_printf(out, "  and %zu of types or ranks that cannot be read\n",
                   safetensors_unreadable_count(f->safetensors));
}

// Tensors and bytes of one type.
struct share {
    int64_t tensors, bytes;
};

static struct share share_of(const struct inspected *f, int type) {
    struct share s = {0};
    for (size_t i = 0; i < count_of(f); i++) {
        const struct tensor *t = tensor_at(f, i);
        if ((int)t->type == type) {
            s.tensors++;
            s.bytes += t->bytes;
        }
    }
    return s;
}

static void put_types(struct str *out, const struct inspected *f) {
    str_puts(out, "\nTypes\n");
    for (int i = 0; quant_format_at(i); i++) {
        struct share s = share_of(f, quant_format_at(i)->type);
        if (s.tensors)
            str_printf(out, "  %-7s %6" PRId64 " tensors %14" PRId64 " bytes\n",
                       quant_format_at(i)->name, s.tensors, s.bytes);
    }
}

static int64_t weight_bytes(const struct inspected *f) {
    int64_t sum = 0;
    for (size_t i = 0; i < count_of(f); i++)
        sum += tensor_at(f, i)->bytes;
    return sum;
}

// The same on a GPU, where matrices have tiles of their own.
static int64_t device_bytes(const struct inspected *f) {
    int64_t sum = 0;
    for (size_t i = 0; i < count_of(f); i++) {
        const struct tensor *t = tensor_at(f, i);
        const int64_t experts = t->n_dims > 2 ? t->ne[2] : 1;
        const int64_t tiles =
            t->n_dims > 1 ? experts * weight_tile_bytes(t->type, t->ne[0], t->ne[1]) : 0;
        sum += tiles ? tiles : t->bytes;
    }
    return sum;
}

static const struct {
    const char *text, *key, *unit;
    size_t at; // of the value in struct inspect_plan
} plan_rows[] = {
    {"workspace", "scratch", "bytes", offsetof(struct inspect_plan, scratch)},
    {"1,024 tokens of F16 KV", "kv_per_1k", "bytes", offsetof(struct inspect_plan, kv_per_1k)},
    {"F16 KV within windows", "kv_windows", "bytes", offsetof(struct inspect_plan, kv_windows)},
    {"recurrent state, a sequence", "recurrent", "bytes", offsetof(struct inspect_plan, recurrent)},
    {"checkpoint of it", "checkpoint", "bytes", offsetof(struct inspect_plan, checkpoint)},
    {"experts among the weights", "experts", "bytes", offsetof(struct inspect_plan, experts)},
    {"of them on a GPU at least", "experts_least", "bytes", offsetof(struct inspect_plan, min)},
    {"layers that have them", "expert_layers", "layers",
     offsetof(struct inspect_plan, expert_layers)},
};
static const size_t plan_count = sizeof plan_rows / sizeof *plan_rows;

static int64_t plan_value(const struct inspected *f, size_t row) {
    int64_t v;
    memcpy(&v, (const char *)&f->plan + plan_rows[row].at, sizeof v);
    return v;
}

static void put_plan(struct str *out, const struct inspected *f) {
    for (size_t i = 0; i < plan_count && f->has_plan; i++)
        if (plan_value(f, i))
            str_printf(out, "  %-28s %14" PRId64 " %s\n", plan_rows[i].text, plan_value(f, i),
                       plan_rows[i].unit);
    if (f->plan.refusal.code)
        str_printf(out, "  it cannot be run: %s\n", f->plan.refusal.text);
}

static int print_file_text(const struct inspected *f, const char *path, struct err *e) {
    struct str out = {0};
    if (f->gguf) {
        str_printf(&out, "%s: GGUF version %d, %d part%s, %" PRIu64 " bytes\n", path,
                   gguf_version(f->gguf), gguf_parts(f->gguf), gguf_parts(f->gguf) == 1 ? "" : "s",
                   gguf_bytes(f->gguf));
        str_printf(&out, "\nMetadata (%zu)\n", gguf_kv_count(f->gguf));
        for (size_t i = 0; i < gguf_kv_count(f->gguf); i++)
            put_entry(&out, gguf_kv_at(f->gguf, i));
    } else {
        str_printf(&out, "%s: safetensors\n", path);
    }
    put_tensors(&out, f);
    put_types(&out, f);
    str_printf(&out, "\nMemory\n  weights                     %14" PRId64 " bytes\n",
               weight_bytes(f));
    str_printf(&out, "  weights on a GPU            %14" PRId64 " bytes\n", device_bytes(f));
    if (block_bytes(f))
        str_printf(&out, "  of them a prediction block  %14" PRId64 " bytes\n", block_bytes(f));
    put_plan(&out, f);
    return cli_print(&out, e);
}

static void write_metadata_number(struct json_writer *w, const struct gguf_kv *kv, int kind,
                                  uint64_t i) {
    if (kind == GGUF_F32 || kind == GGUF_F64)
        jw_num(w, gguf_array_float(kv, i));
    else if (kind == GGUF_BOOL)
        jw_bool(w, gguf_array_int(kv, i) != 0);
    else
        jw_int(w, gguf_array_int(kv, i));
}

static void write_values(struct json_writer *w, const struct gguf_kv *kv, int kind,
                         uint64_t count) {
    const unsigned char *cursor = kv->bytes;
    for (uint64_t i = 0; i < count; i++) {
        size_t n;
        if (kind != GGUF_STRING) {
            write_metadata_number(w, kv, kind, i);
            continue;
        }
        const char *s = gguf_array_str(&cursor, &n);
        jw_str(w, s, n);
    }
}

// Lists of up to 64 elements are whole; longer ones become {"count", "type", "first"}.
static void write_entry(struct json_writer *w, const struct gguf_kv *kv) {
    bool is_long = kv->count > 64;
    jw_key(w, kv->key);
    if (kv->kind != GGUF_ARRAY) {
        write_values(w, kv, kv->kind, 1);
        return;
    }
    if (is_long) {
        jw_begin(w, '{');
        jw_key_int(w, "count", (int64_t)kv->count);
        jw_key_str(w, "type", kind_names[kv->elem]);
        jw_key(w, "first");
    }
    jw_begin(w, '[');
    write_values(w, kv, kv->elem, is_long ? SHOWN_ITEMS : kv->count);
    jw_end(w, ']');
    if (is_long)
        jw_end(w, '}');
}

static void write_tensor(struct json_writer *w, const struct tensor *t) {
    jw_begin(w, '{');
    jw_key_str(w, "name", t->name);
    jw_key_str(w, "type", quant_format(t->type)->name);
    jw_key_begin(w, "shape", '[');
    for (int i = 0; i < t->n_dims; i++)
        jw_int(w, t->ne[i]);
    jw_end(w, ']');
    jw_key_int(w, "bytes", t->bytes);
    jw_end(w, '}');
}

static void write_types(struct json_writer *w, const struct inspected *f) {
    jw_key_begin(w, "types", '{');
    for (int i = 0; quant_format_at(i); i++) {
        struct share s = share_of(f, quant_format_at(i)->type);
        if (!s.tensors)
            continue;
        jw_key_begin(w, quant_format_at(i)->name, '{');
        jw_key_int(w, "tensors", s.tensors);
        jw_key_int(w, "bytes", s.bytes);
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

static void write_head(struct json_writer *w, const struct inspected *f, const char *path) {
    jw_key_str(w, "file", path);
    jw_key_str(w, "format", f->gguf ? "gguf" : "safetensors");
    if (!f->gguf)
        return;
    jw_key_int(w, "version", gguf_version(f->gguf));
    jw_key_int(w, "parts", gguf_parts(f->gguf));
    jw_key_int(w, "bytes", (int64_t)gguf_bytes(f->gguf));
    jw_key_begin(w, "metadata", '{');
    for (size_t i = 0; i < gguf_kv_count(f->gguf); i++)
        write_entry(w, gguf_kv_at(f->gguf, i));
    jw_end(w, '}');
}

static int print_file_json(const struct inspected *f, const char *path, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    write_head(&w, f, path);
    jw_key_begin(&w, "tensors", '[');
    for (size_t i = 0; i < count_of(f); i++)
        write_tensor(&w, tensor_at(f, i));
    jw_end(&w, ']');
    write_types(&w, f);
    jw_key_begin(&w, "memory", '{');
    jw_key_int(&w, "weights", weight_bytes(f));
    jw_key_int(&w, "weights_gpu", device_bytes(f));
    if (block_bytes(f))
        jw_key_int(&w, "prediction_block", block_bytes(f));
    for (size_t i = 0; i < plan_count && f->has_plan; i++)
        jw_key_int(&w, plan_rows[i].key, plan_value(f, i));
    jw_end(&w, '}');
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

// Items of a plan.
static const struct {
    const char *key, *text;
} held_rows[] = {{"weights", "weights"},
                 {"draft", "draft"},
                 {"kv", "keys and values"},
                 {"kv_windows", "those within windows"},
                 {"kv_host", "those in host memory"},
                 {"state", "state of a sequence"},
                 {"workspace", "workspace"},
                 {"total", "together"},
                 {"available", "may be taken"}};

static int64_t held_value(const struct memory_plan *p, size_t i) {
    const int64_t windows = kv_needs_windows(&p->kv, p->context, p->step);
    const int64_t values[] = {p->weights,
                              p->draft,
                              plan_kv(p, p->context) - windows,
                              windows,
                              kv_needs_hosted(&p->kv, p->context, p->step),
                              p->state,
                              p->scratch,
                              plan_total(p),
                              p->available};
    return values[i];
}

static int print_plan_json(const struct memory_plan *p, struct err *e) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    for (size_t i = 0; i < sizeof held_rows / sizeof *held_rows; i++)
        jw_key_int(&w, held_rows[i].key, held_value(p, i));
    jw_key_int(&w, "context", p->context);
    jw_key_str(&w, "kv_type_k", kv_codec_of(p->codec_k)->name);
    jw_key_str(&w, "kv_type_v", kv_codec_of(p->codec_v)->name);
    jw_key_int(&w, "rows", p->rows);
    jw_end(&w, '}');
    return cli_print_json(&w, e);
}

static int print_plan(const struct memory_plan *p, struct err *e) {
    struct str out = {0};
    for (size_t i = 0; i < sizeof held_rows / sizeof *held_rows; i++)
        if (held_value(p, i))
            str_printf(&out, "  %-28s %14" PRId64 " bytes\n", held_rows[i].text, held_value(p, i));
    str_printf(&out, "  %-28s %14" PRId64 " tokens, keys as %s and values as %s\n", "context",
               p->context, kv_codec_of(p->codec_k)->name, kv_codec_of(p->codec_v)->name);
    if (p->rows < p->usual_rows)
        str_printf(&out, "  %-28s %14d in place of %d, so that it fits\n",
                   "rows of a prompt's pass", p->rows, p->usual_rows);
    return cli_print(&out, e);
}

// What running a target, or a pair, takes: the plan that opening it on a CPU would make. It is
// printed also where it does not fit, which is the error then.
static int print_memory_plan(const struct cli_args *a, const char *path, struct err *e) {
    struct session_options o = session_options_default();
    struct memory_plan p = {0};
    struct named_drafts named = {0};
    const bool draft = options_given(&a->opt, OPT_DRAFT);
    o.model = path;
    o.device = "cpu";
    o.target.memory_limit = options_int(&a->opt, OPT_VRAM_LIMIT);
    o.target.max_seqs = 1;
    int rc = decode_planned(a, &o, e);
    if (!rc)
        rc = named_drafts_read(&named, draft ? options_str(&a->opt, OPT_DRAFT) : NULL, e);
    if (!rc && named.find)
        rc = err_set(e, ERR_USAGE,
                     "'inspect --plan' looks for no draft; name its file in place of auto");
    if (!rc) {
        named_drafts_use(&named, &o);
        rc = session_measure(&o, &p, e);
    }
    if (!rc || p.weights) {
        struct err ignored, *to = rc ? &ignored : e;
        int printed =
            options_flag(&a->opt, OPT_JSON) ? print_plan_json(&p, to) : print_plan(&p, to);
        rc = rc ? rc : printed;
    }
    named_drafts_fini(&named);
    return rc;
}

// Other options than these say how a model would run, which is of no interest without a plan.
static int refuse_without_plan(const struct cli_args *a, struct err *e) {
    for (int i = 0; i < CLI_OPTION_COUNT; i++)
        if (options_given(&a->opt, i) && i != OPT_JSON && i != OPT_OFFLINE)
            return err_set(e, ERR_USAGE, "option '--%s' needs '--plan'", cli_options[i].name);
    return 0;
}

int cmd_inspect(const struct cli_args *a, struct err *e) {
    const char *path = a->opt.operands[0];
    if (options_flag(&a->opt, OPT_PLAN))
        return print_memory_plan(a, path, e);
    struct inspected f = {0};
    int rc = refuse_without_plan(a, e);
    if (rc)
        return rc;
    rc = is_safetensors(path) ? safetensors_open(&f.safetensors, path, e)
                              : gguf_open(&f.gguf, path, e);
    if (rc)
        return rc;
    f.has_plan = f.gguf && plan_file(&f.plan, f.gguf);
    rc = options_flag(&a->opt, OPT_JSON) ? print_file_json(&f, path, e)
                                         : print_file_text(&f, path, e);
    gguf_close(f.gguf);
    safetensors_close(f.safetensors);
    return rc;
}
