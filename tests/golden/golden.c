// SPDX-License-Identifier: Apache-2.0
// Reads golden cases and lays their models out as files. It compares nothing but by the two small
// functions at the end; what is compared is the tests' business.
#include "golden/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "convert/convert.h"
#include "formats/quant/quant.h"

enum { FIXTURE_LIMIT = 1 << 20 };

static int get_int(const struct json *o, const char *key) {
    return (int)json_int(json_get(o, key), 0);
}

static int get_rope(const struct json *o) {
    return (int)json_int(json_get(o, "rope"), 10000000);
}

static int get_ints(const struct json *array, int *out, int cap) {
    int n = (int)json_len(array);
    n = n < cap ? n : cap;
    for (int i = 0; i < n; i++)
        out[i] = (int)json_int(json_at(array, (size_t)i), -1);
    return n;
}

static enum tiny_kind get_kind(const struct json *o) {
    static const char *const names[] = {
        [TINY_QWEN3] = "qwen3",   [TINY_QWEN2] = "qwen2",  [TINY_LLAMA] = "llama",
        [TINY_GEMMA4] = "gemma4", [TINY_GLM] = "glm4_moe", [TINY_OSS] = "gpt_oss",
        [TINY_GEMMA3] = "gemma3"};
    const char *kind = json_str(json_get(o, "kind"), NULL);
    for (int i = TINY_QWEN2; kind && i <= TINY_GEMMA3; i++)
        if (!strcmp(kind, names[i]))
            return (enum tiny_kind)i;
    return TINY_QWEN3;
}

static struct tiny_target read_target(const struct json *o) {
    return (struct tiny_target){
        .plain = json_bool(json_get(o, "plain"), false),
        .kind = get_kind(o),
        .bias = json_bool(json_get(o, "bias"), false),
        .vocab = get_int(o, "vocab"),
        .hidden = get_int(o, "hidden"),
        .ffn = get_int(o, "ffn"),
        .layers = get_int(o, "layers"),
        .interval = get_int(o, "interval"),
        .heads = get_int(o, "heads"),
        .kv_heads = get_int(o, "kv_heads"),
        .head_dim = get_int(o, "head_dim"),
        .key_heads = get_int(o, "key_heads"),
        .value_heads = get_int(o, "value_heads"),
        .linear_head_dim = get_int(o, "linear_head_dim"),
        .tied = json_bool(json_get(o, "tied"), false),
        .full = json_bool(json_get(o, "full"), false),
        .dt_mean = get_int(o, "dt_mean"),
        .rope = get_rope(o),
        .yarn = get_int(o, "yarn"),
        .bands = get_int(o, "bands"),
        .linear = get_int(o, "linear"),
        .slopes = json_bool(json_get(o, "slopes"), false),
        .trained = get_int(o, "trained"),
        .gemma = {.period = get_int(o, "period"),
                  .window = get_int(o, "window"),
                  .head_dim = get_int(o, "full_head_dim"),
                  .kv_heads = get_int(o, "full_kv_heads"),
                  .borrowing = get_int(o, "borrowing"),
                  .per_layer = get_int(o, "per_layer"),
                  .cap = get_int(o, "cap"),
                  .k_eq_v = json_bool(json_get(o, "k_eq_v"), false)},
        .experts = get_int(o, "experts"),
        .used = get_int(o, "used"),
        .expert_ffn = get_int(o, "expert_ffn"),
        .shared_ffn = get_int(o, "shared_ffn"),
        .lead = get_int(o, "lead"),
        .groups = get_int(o, "groups"),
        .groups_used = get_int(o, "groups_used"),
        .norms = json_bool(json_get(o, "norms"), false),
        .normalised = json_bool(json_get(o, "normalised"), false),
        .seed = (uint64_t)get_int(o, "seed"),
    };
}

static struct tiny_draft read_draft(const struct json *o) {
    const struct json *causal = json_get(o, "causal");
    struct tiny_draft d = {
        .ffn = get_int(o, "ffn"),
        .heads = get_int(o, "heads"),
        .kv_heads = get_int(o, "kv_heads"),
        .head_dim = get_int(o, "head_dim"),
        .layers = get_int(o, "layers"),
        .block = get_int(o, "block"),
        .mask = get_int(o, "mask"),
        .rope = get_rope(o),
        .from_anchor = json_bool(json_get(o, "from_anchor"), false),
        .seed = (uint64_t)get_int(o, "seed"),
    };
    (void)get_ints(json_get(o, "windows"), d.windows, TINY_MAX_LAYERS);
    d.n_taps = get_ints(json_get(o, "taps"), d.taps, TINY_MAX_LAYERS);
    if (json_kind_of(causal) == JSON_BOOL)
        d.causal = json_bool(causal, false) ? TINY_CAUSAL_TRUE : TINY_CAUSAL_FALSE;
    return d;
}

static void read_probes(struct golden *g, const struct json *array) {
    for (size_t i = 0; i < json_len(array) && g->n_probes < GOLDEN_MAX_PROBES; i++) {
        const struct json *p = json_at(array, i);
        struct golden_probe *q = &g->probes[g->n_probes++];
        size_t n = 0;
        const char *name = json_str(json_at(p, 0), &n);
        (void)snprintf(q->name, sizeof q->name, "%.*s", (int)n, name ? name : "");
        q->last = json_int(json_at(p, 1), 0);
        q->index = json_int(json_at(p, 2), 0);
        q->bits = (uint32_t)json_int(json_at(p, 3), 0);
    }
}

// Configuration and tensors of a folder, where the fixture has them.
static void read_folder(const struct json *config, const struct json *tensors, struct str *text,
                        struct tiny_store *s) {
    size_t n = 0;
    const char *own = json_str(config, &n);
    if (own)
        str_append(text, own, n);
    for (size_t i = 0; i < json_len(tensors); i++) {
        const struct json *t = json_at(tensors, i), *dims = json_at(t, 1);
        int64_t shape[TINY_MAX_DIMS] = {0};
        for (size_t d = 0; d < json_len(dims) && d < TINY_MAX_DIMS; d++)
            shape[d] = json_int(json_at(dims, d), 0);
        const char *name = json_str(json_at(t, 0), NULL), *of = json_str(json_at(t, 2), NULL);
        struct tiny_tensor *added = tiny_store_add(s, "", name ? name : "", shape);
        if (added && of) // a copy of another tensor
            (void)snprintf(added->name, sizeof added->name, "%s", of);
    }
}

static int read_candidates(struct golden *g, const struct json *all, struct err *e) {
    int rows = (int)golden_rows_per_index(g);
    if (!all)
        return 0;
    g->top = (int)json_len(json_at(json_at(all, 0), 0));
    g->candidates = calloc((size_t)(g->n_index * rows * g->top) + 1, sizeof *g->candidates);
    if (!g->candidates)
        return err_set(e, ERR_MEMORY, "no memory for candidates");
    for (int i = 0; i < g->n_index * rows; i++)
        (void)get_ints(json_at(json_at(all, (size_t)(i / rows)), (size_t)(i % rows)),
                       g->candidates + i * g->top, g->top);
    return 0;
}

// Paths of guesses, [n_index][n_paths][guesses - 1].
static int read_paths(struct golden *g, const struct json *all, struct err *e) {
    const int n = (int)json_len(json_at(all, 0)), len = golden_guesses(g) - 1;
    if (!all)
        return 0;
    g->paths = calloc((size_t)(g->n_index * n * len) + 1, sizeof *g->paths);
    if (!g->paths)
        return err_set(e, ERR_MEMORY, "no memory for paths");
    g->n_paths = n;
    for (int i = 0; i < g->n_index * n; i++)
        (void)get_ints(json_at(json_at(all, (size_t)(i / n)), (size_t)(i % n)), g->paths + i * len,
                       len);
    return 0;
}

static int read_meta(struct golden *g, const char *data, const char *name, struct err *e) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.json", data, name);
    struct str text = {0};
    struct json *root = NULL;
    int rc = file_read(&text, path, FIXTURE_LIMIT, e);
    if (rc == 0)
        rc = json_parse(&root, text.data, text.len, e);
    if (rc == 0) {
        const struct json *draft = json_get(root, "draft");
        g->has_draft = draft != NULL;
        g->target = read_target(json_get(root, "target"));
        if (g->has_draft)
            g->draft = read_draft(draft);
        g->n_ids = get_ints(json_get(root, "ids"), g->ids, GOLDEN_MAX_IDS);
        g->has_mtp = json_get(root, "mtp") != NULL;
        const struct json *eagle3 = json_get(root, "eagle3");
        g->has_eagle3 = eagle3 != NULL;
        if (g->has_eagle3)
            g->draft.seed = (uint64_t)get_int(eagle3, "seed");
        g->columns =
            (int)json_int(json_get(g->has_eagle3 ? eagle3 : root, "columns"), g->target.vocab);
        const bool guesses = g->has_draft || g->has_mtp || g->has_eagle3;
        g->n_index = get_ints(json_get(root, guesses ? "contexts" : "positions"), g->index,
                              GOLDEN_MAX_INDEX);
        for (int i = 0; i < g->n_index; i++)
            (void)get_ints(json_at(json_get(root, "tokens"), (size_t)i), g->guesses[i],
                           GOLDEN_MTP_ROWS);
        (void)get_ints(json_get(root, "anchors"), g->anchors, GOLDEN_MAX_INDEX);
        read_probes(g, json_get(root, "probes"));
        rc = read_candidates(g, json_get(root, "candidates"), e);
        if (rc == 0)
            rc = read_paths(g, json_get(root, "paths"), e);
        read_folder(json_get(root, "config"), json_get(root, "tensors"), &g->config, &g->tensors);
        read_folder(json_get(root, "draft_config"), json_get(root, "draft_tensors"),
                    &g->draft_config, &g->draft_tensors);
    }
    json_free(root);
    str_fini(&text);
    return rc;
}

int golden_guesses(const struct golden *g) {
    return g->draft.block - !g->draft.from_anchor;
}

int64_t golden_rows_per_index(const struct golden *g) {
    if (g->has_mtp || g->has_eagle3)
        return GOLDEN_MTP_ROWS;
    return !g->has_draft ? 1 : golden_guesses(g) * (g->n_paths ? g->n_paths : 1);
}

int golden_load(struct golden *g, const char *data, const char *name, struct err *e) {
    memset(g, 0, sizeof *g);
    int rc = read_meta(g, data, name, e);
    if (rc != 0)
        return rc;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.bin", data, name);
    struct str bin = {0};
    rc = file_read(&bin, path, FIXTURE_LIMIT, e);
    size_t per = (size_t)golden_rows_per_index(g);
    size_t n = per * (size_t)g->n_index, row = (size_t)g->columns + (size_t)(g->top * g->top);
    size_t want = sizeof *g->rows * n * row;
    if (rc == 0 && (want == 0 || bin.len != want))
        rc = err_set(e, ERR_FORMAT, "%s has %zu bytes, its description needs %zu", path, bin.len,
                     want);
    if (rc == 0 && !(g->rows = malloc(want)))
        rc = err_set(e, ERR_MEMORY, "no memory for the rows of %s", path);
    if (rc == 0)
        memcpy(g->rows, bin.data, want);
    if (rc == 0)
        g->pairs = g->rows + n * (size_t)g->columns;
    str_fini(&bin);
    return rc;
}

void golden_fini(struct golden *g) {
    free(g->rows);
    free(g->candidates);
    free(g->paths);
    g->paths = NULL;
    g->rows = NULL;
    g->candidates = NULL;
    str_fini(&g->config);
    tiny_store_fini(&g->tensors);
    str_fini(&g->draft_config);
    tiny_store_fini(&g->draft_tensors);
}

static int make_draft(struct golden_files *f, const struct golden *g,
                      const struct convert_options *o, struct err *e) {
    if (mkdir(f->draft_hf, 0700) != 0)
        return err_set(e, ERR_IO, "cannot create %s", f->draft_hf);
    int rc = g->draft_config.len ? tiny_write_listed_draft(&g->draft, &g->draft_config,
                                                           &g->draft_tensors, f->draft_hf, e)
                                 : tiny_write_draft(&g->target, &g->draft, f->draft_hf, e);
    return rc == 0 ? convert_hf(f->draft_hf, f->draft_gguf, o, e) : rc;
}

int golden_files_make(struct golden_files *f, const struct golden *g, struct err *e) {
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/coppice-golden-XXXXXX");
    if (!mkdtemp(f->dir)) {
        f->dir[0] = 0;
        return err_set(e, ERR_IO, "cannot create a folder in /tmp");
    }
    (void)snprintf(f->hf, sizeof f->hf, "%s/hf", f->dir);
    (void)snprintf(f->gguf, sizeof f->gguf, "%s/target.gguf", f->dir);
    (void)snprintf(f->draft_hf, sizeof f->draft_hf, "%s/draft", f->dir);
    (void)snprintf(f->draft_gguf, sizeof f->draft_gguf, "%s/draft.gguf", f->dir);
    if (mkdir(f->hf, 0700) != 0)
        return err_set(e, ERR_IO, "cannot create %s", f->hf);
    struct convert_options o = {.recipe = convert_recipe("F32"), .target_dir = f->gguf};
    int rc = g->config.len ? tiny_write_listed(&g->target, &g->config, &g->tensors, f->hf, e)
                           : tiny_write_target(&g->target, f->hf, e);
    if (rc == 0)
        rc = convert_hf(f->hf, f->gguf, &o, e);
    o.target_dir = f->hf;
    return rc == 0 && (g->has_draft || g->has_eagle3) ? make_draft(f, g, &o, e) : rc;
}

static void remove_folder(const char *dir) {
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

void golden_files_fini(struct golden_files *f) {
    if (!f->dir[0])
        return;
    remove_folder(f->hf);
    remove_folder(f->draft_hf);
    (void)unlink(f->gguf);
    (void)unlink(f->draft_gguf);
    (void)rmdir(f->dir);
    f->dir[0] = 0;
}

double golden_error(const float *a, const float *b, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        diff += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / norm);
}

void golden_log_softmax(float *x, int64_t n) {
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(x[i] - top - log(sum));
}
