// SPDX-License-Identifier: Apache-2.0
// The type that each tensor gets under each mixture, against what llama.cpp's quantiser picks for
// files of the same names (tests/fixtures/quant/types.tsv, made by tools/oracle/quant_types.py).
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "convert/convert.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

#define FIXTURE SOURCE_ROOT "/tests/fixtures/quant/types.tsv"

enum { MAX_STEMS = 24, LIMIT_LAYERS = 96, ROWS = 2 };

struct shape {
    char name[32], arch[32];
    int layers, heads, kv, experts, row, weighed;
};

// The types of one tensor name in all layers ("-": none), or of the one tensor outside them.
struct stem {
    char name[48];
    char type[LIMIT_LAYERS][12];
    int n;
};

struct wanted {
    struct shape shape;
    char recipe[24];
    struct stem stems[MAX_STEMS];
    int n;
};

static char in_path[64], out_path[64], imatrix_path_[64];
static char written[32]; // the model that is at in_path

static void full_name(const struct stem *s, int layer, char *name, size_t room) {
    if (s->n == 1)
        snprintf(name, room, "%s.weight", s->name);
    else
        snprintf(name, room, "blk.%d.%s.weight", layer, s->name);
}

static void put_u32(struct gguf_writer *w, const struct shape *m, const char *key, int v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", m->arch, key);
    gguf_put_int(w, full, GGUF_U32, v);
}

// Calls fn for each tensor of the model.
static void each_tensor(const struct wanted *m,
                        void (*fn)(const struct wanted *, const char *, const struct stem *,
                                   void *),
                        void *arg) {
    char name[64];
    for (int s = 0; s < m->n; s++) {
        for (int l = 0; l < m->stems[s].n; l++) {
            full_name(&m->stems[s], l, name, sizeof name);
            if (strcmp(m->stems[s].type[l], "-"))
                fn(m, name, &m->stems[s], arg);
        }
    }
}

static int slices_of(const struct wanted *m, const struct stem *s) {
    return strstr(s->name, "_exps") ? m->shape.experts : 1;
}

static void describe(const struct wanted *m, const char *name, const struct stem *s, void *arg) {
    int slices = slices_of(m, s);
    gguf_add_tensor(arg, name, TYPE_F16, slices > 1 ? 3 : 2,
                    (const int64_t[]){m->shape.row, ROWS, slices});
}

static void fill(const struct wanted *m, const char *name, const struct stem *s, void *arg) {
    static const char zeros[1 << 16];
    struct err e = {0};
    (void)name;
    size_t bytes = 2u * (size_t)m->shape.row * ROWS * (size_t)slices_of(m, s);
    assert_true(bytes <= sizeof zeros);
    assert_int_equal(gguf_write_data(arg, zeros, bytes, &e), 0);
}

static void write_model(const struct wanted *m) {
    struct gguf_writer *w = NULL;
    struct err e = {0};
    assert_int_equal(gguf_writer_open(&w, in_path, &e), 0);
    gguf_put_str(w, "general.architecture", m->shape.arch, strlen(m->shape.arch));
    put_u32(w, &m->shape, "attention.head_count", m->shape.heads);
    put_u32(w, &m->shape, "attention.head_count_kv", m->shape.kv);
    if (m->shape.experts)
        put_u32(w, &m->shape, "expert_count", m->shape.experts);
    each_tensor(m, describe, w);
    each_tensor(m, fill, w);
    if (gguf_writer_close(w, &e))
        fail_msg("%s", e.text);
}

static void check_tensors(const struct wanted *m, const struct gguf *g) {
    char name[64];
    for (int s = 0; s < m->n; s++) {
        for (int l = 0; l < m->stems[s].n; l++) {
            const char *type = m->stems[s].type[l];
            full_name(&m->stems[s], l, name, sizeof name);
            const struct tensor *t = gguf_tensor(g, name);
            if (!strcmp(type, "-"))
                continue;
            if (!t || strcmp(quant_format(t->type)->name, type))
                fail_msg("%s as %s: %s is %s, not %s", m->shape.name, m->recipe, name,
                         t ? quant_format(t->type)->name : "missing", type);
        }
    }
}

// Importances of all matrices.
struct ones {
    struct imatrix_sum sum[MAX_STEMS * LIMIT_LAYERS];
    char name[MAX_STEMS * LIMIT_LAYERS][64];
    size_t n;
};

enum { MAX_ONES = 1 << 16 };
static double one[MAX_ONES];
static int64_t one_each[LIMIT_LAYERS];

static void add_ones(const struct wanted *m, const char *name, const struct stem *s, void *arg) {
    struct ones *o = arg;
    int slices = slices_of(m, s);
    assert_true(slices * m->shape.row <= MAX_ONES && slices <= LIMIT_LAYERS);
    snprintf(o->name[o->n], sizeof o->name[0], "%s", name);
    o->sum[o->n] = (struct imatrix_sum){.name = o->name[o->n],
                                        .squares = one,
                                        .columns = m->shape.row,
                                        .rows = 1,
                                        .experts = slices > 1 ? slices : 0,
                                        .counts = one_each};
    o->n++;
}

static void write_importances(const struct wanted *m) {
    static struct ones o;
    struct err e = {0};
    struct imatrix_info info = {"text", 1, 512};
    struct gguf_writer *w = NULL;
    for (int i = 0; i < MAX_ONES; i++)
        one[i] = 1;
    for (int i = 0; i < LIMIT_LAYERS; i++)
        one_each[i] = 1;
    o.n = 0;
    each_tensor(m, add_ones, &o);
    assert_int_equal(gguf_writer_open(&w, imatrix_path_, &e), 0);
    assert_int_equal(imatrix_write(w, o.sum, o.n, &info, &e), 0);
}

// Whether a mixture has matrices that are not written without importances.
static bool needs_importances(const char *recipe) {
    return !strncmp(recipe, "IQ1", 3) || !strncmp(recipe, "IQ2", 3) || !strncmp(recipe, "IQ3_X", 5);
}

static void check(const struct wanted *m) {
    struct convert_options o = {.recipe = convert_recipe(m->recipe), .threads = 1};
    struct imatrix *importances = NULL;
    struct gguf *g = NULL;
    struct err e = {0};
    if (!o.recipe)
        fail_msg("no recipe %s", m->recipe);
    if (strcmp(written, m->shape.name)) {
        write_model(m);
        snprintf(written, sizeof written, "%s", m->shape.name);
    }
    if (m->shape.weighed || needs_importances(m->recipe)) {
        write_importances(m);
        assert_int_equal(imatrix_open(&importances, imatrix_path_, &e), 0);
        o.imatrix = importances;
    }
    if (convert_quantize(in_path, out_path, &o, &e) || gguf_open(&g, out_path, &e))
        fail_msg("%s", e.text);
    check_tensors(m, g);
    gguf_close(g);
    imatrix_close(importances);
}

// "24*Q4_K 8*Q6_K" to one type per layer.
static void take_types(struct stem *s, char *list) {
    char *rest = NULL;
    s->n = 0;
    for (char *run = strtok_r(list, " \n", &rest); run; run = strtok_r(NULL, " \n", &rest)) {
        char *type = NULL;
        long n = strtol(run, &type, 10);
        assert_true(*type == '*' && n > 0 && s->n + n <= LIMIT_LAYERS);
        for (long i = 0; i < n; i++)
            snprintf(s->type[s->n++], sizeof s->type[0], "%s", type + 1);
    }
}

static int finish(struct wanted *m) {
    if (m->n)
        check(m);
    int done = m->n > 0;
    m->n = 0;
    return done;
}

static void picks_the_established_types(void **state) {
    (void)state;
    static struct wanted m;
    char line[2048], recipe[24], stem[48], model[32];
    int checked = 0, at;
    FILE *f = fopen(FIXTURE, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        struct shape *s = &m.shape;
        if (sscanf(line, "types %31s %23s %47s %n", model, recipe, stem, &at) == 3) {
            if (strcmp(recipe, m.recipe))
                checked += finish(&m);
            snprintf(m.recipe, sizeof m.recipe, "%s", recipe);
            assert_true(m.n < MAX_STEMS && !strcmp(model, s->name));
            snprintf(m.stems[m.n].name, sizeof m.stems[0].name, "%s", stem);
            take_types(&m.stems[m.n++], line + at);
        } else {
            checked += finish(&m);
            assert_int_equal(sscanf(line, "model %31s %31s %d %d %d %d %d %d", s->name, s->arch,
                                    &s->layers, &s->heads, &s->kv, &s->experts, &s->row,
                                    &s->weighed),
                             8);
        }
    }
    checked += finish(&m);
    fclose(f);
    assert_int_equal(checked, 8 * 30); // models, mixtures
}

// Converts m by o: its output, attn_v and ffn_down tensors must get these types.
static void check_types(struct wanted *m, const char *const *types,
                        const struct convert_options *o) {
    static const char *const stems[] = {"output", "attn_v", "ffn_down"};
    struct err e = {0};
    struct gguf *g = NULL;
    for (int i = 0; i < 3; i++) {
        snprintf(m->stems[i].name, sizeof m->stems[i].name, "%s", stems[i]);
        m->stems[i].n = i ? 9 : 1;
        for (int l = 0; l < m->stems[i].n; l++)
            snprintf(m->stems[i].type[l], sizeof m->stems[i].type[l], "%s", types[i]);
    }
    write_model(m);
    assert_int_equal(convert_quantize(in_path, out_path, o, &e), 0);
    assert_int_equal(gguf_open(&g, out_path, &e), 0);
    check_tensors(m, g);
    gguf_close(g);
}

// Without importances, or without those of one matrix: a sentence that names it.
static void requires_importances(void **state) {
    (void)state;
    struct wanted m = {.shape = {"one", "llama", 2, 8, 8, 0, 256, 0}, .n = 2};
    struct convert_options o = {.recipe = convert_recipe("IQ2_XS"), .threads = 1};
    struct gguf *g = NULL;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(m.stems[i].name, sizeof m.stems[i].name, "%s", i ? "attn_k" : "attn_q");
        m.stems[i].n = 2;
        snprintf(m.stems[i].type[0], sizeof m.stems[i].type[0], "IQ2_XS");
        snprintf(m.stems[i].type[1], sizeof m.stems[i].type[1], "IQ2_XS");
    }
    write_model(&m);
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "IQ2_XS, the type of tensor 'blk.0.attn_q.weight', needs an"));
    m.n = 1;
    write_importances(&m);
    struct imatrix *partial = NULL;
    assert_int_equal(imatrix_open(&partial, imatrix_path_, &e), 0);
    o.imatrix = partial;
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), ERR_MISMATCH);
    assert_non_null(strstr(e.text, "has no entry for tensor 'blk.0.attn_k.weight', and IQ2_XS"));
    imatrix_close(partial);
    o.imatrix = NULL;
    o.recipe = convert_recipe("IQ3_S"); // can do without
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), 0);
    assert_int_equal(gguf_open(&g, out_path, &e), 0);
    assert_int_equal(gguf_tensor(g, "blk.1.attn_k.weight")->type, TYPE_IQ3_S);
    gguf_close(g);
    written[0] = 0;
}

// Counts and bytes of what fits no block, as the report has them and as the file is.
static void reports_fallbacks(void **state) {
    (void)state;
    struct wanted m = {.shape = {"narrow", "llama", 2, 8, 8, 0, 96, 0}, .n = 3};
    static const char *const stems[] = {"attn_q", "attn_v", "output"};
    struct convert_report r = {.fallbacks = -1};
    struct convert_options o = {.recipe = convert_recipe("Q4_K_M"), .threads = 1, .report = &r};
    struct gguf *g = NULL;
    struct err e = {0};
    int64_t bytes = 0, narrow = 0, matrices = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(m.stems[i].name, sizeof m.stems[i].name, "%s", stems[i]);
        m.stems[i].n = i < 2 ? 2 : 1;
    }
    write_model(&m);
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), 0);
    assert_int_equal(gguf_open(&g, out_path, &e), 0);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        bool fallback = t->type == TYPE_Q5_0 || t->type == TYPE_Q8_0;
        bytes += t->bytes;
        narrow += fallback ? t->bytes : 0;
        matrices += fallback;
    }
    assert_int_equal(r.tensors, gguf_tensor_count(g));
    assert_int_equal(r.out_bytes, bytes);
    assert_int_equal(r.fallbacks, matrices);
    assert_int_equal(r.matrices, matrices); // no row of 96 fits a block of 256
    assert_int_equal(matrices, 5);
    assert_int_equal(r.bytes, narrow);
    assert_true(r.wanted_bytes > 0 && r.in_bytes > r.out_bytes && r.requantized == 0);
    int64_t kinds = 0;
    for (int i = 0; i < r.n_kinds; i++) {
        kinds += r.kind[i].n;
        assert_true((r.kind[i].wanted == TYPE_Q4_K && r.kind[i].got == TYPE_Q5_0) ||
                    (r.kind[i].wanted == TYPE_Q6_K && r.kind[i].got == TYPE_Q8_0));
    }
    assert_int_equal(kinds, matrices);
    o.recipe = convert_recipe("Q5_0");
    o.pure = true;
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), 0);
    assert_int_equal(r.fallbacks, 0);
    gguf_close(g);
    written[0] = 0;
}

// What is quantised is quantised again on request only; to be decoded, or to stay as it is, needs
// none.
static void requantises_on_request_only(void **state) {
    (void)state;
    struct wanted m = {.shape = {"twice", "llama", 2, 8, 8, 0, 256, 0}, .n = 1};
    struct convert_report r;
    struct convert_options o = {.recipe = convert_recipe("Q4_0"), .threads = 1, .report = &r};
    char again[128];
    struct err e = {0};
    snprintf(m.stems[0].name, sizeof m.stems[0].name, "attn_q");
    m.stems[0].n = 2;
    snprintf(again, sizeof again, "%s.again", out_path);
    write_model(&m);
    assert_int_equal(convert_quantize(in_path, out_path, &o, &e), 0);
    unlink(again);
    o.recipe = convert_recipe("Q8_0");
    assert_int_equal(convert_quantize(out_path, again, &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "is quantised already, to Q4_0"));
    assert_non_null(strstr(e.text, "--allow-requantize"));
    assert_int_equal(access(again, F_OK), -1);
    o.requantize = true;
    assert_int_equal(convert_quantize(out_path, again, &o, &e), 0);
    assert_int_equal(r.requantized, 2);
    o.requantize = false;
    static const char *const harmless[] = {"Q4_0", "F32", "F16"};
    for (int i = 0; i < 3; i++) {
        o.recipe = convert_recipe(harmless[i]);
        assert_int_equal(convert_quantize(out_path, again, &o, &e), 0);
        assert_int_equal(r.requantized, 0);
        assert_int_equal(r.matrices, i == 0 ? 0 : 2);
    }
    unlink(again);
    written[0] = 0;
}

// --pure and the names that stand for a mixture.
static void finds_aliases_and_pure(void **state) {
    (void)state;
    static const char *const alias[][2] = {
        {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"q5_k", "Q5_K_M"}};
    static struct wanted m = {.shape = {"pure", "llama", 9, 8, 2, 0, 256, 0}, .n = 3};
    static const char *const types[] = {"Q4_K", "Q4_K", "Q4_K"};
    for (int i = 0; i < 3; i++) {
        const struct convert_recipe *a = convert_recipe(alias[i][0]),
                                    *b = convert_recipe(alias[i][1]);
        assert_true(a && b && a != b && a->type == b->type && a->file_type == b->file_type);
    }
    struct convert_options o = {.recipe = convert_recipe("Q4_K_M"), .threads = 1, .pure = true};
    check_types(&m, types, &o);
}

// Types for names go before the mixture's, and rows that do not fit fall back.
static void takes_types_for_names(void **state) {
    (void)state;
    static struct wanted m = {.shape = {"named", "llama", 9, 8, 8, 0, 96, 0}, .n = 3};
    static const char *const types[] = {"F16", "IQ4_NL", "Q5_0"}; // the last falls back from Q4_K
    static const char *const wrong[] = {"attn_v",      "=Q8_0",   "attn_v=Q9_9",
                                        "attn_v=Q8_1", "a=Q8_0,", "a=F16,b=F16,c=F16,d=F16"};
    struct convert_override overrides[3];
    struct err e = {0};
    int n;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(convert_overrides(wrong[i], overrides, 3, &n, &e), ERR_USAGE);
    assert_int_equal(convert_overrides("output=f16,attn_v=IQ4_XS,blk=Q4_K", overrides, 3, &n, &e),
                     0);
    assert_int_equal(n, 3);
    struct convert_options o = {
        .recipe = convert_recipe("Q2_K"), .threads = 1, .overrides = overrides, .n_overrides = n};
    check_types(&m, types, &o);
}

static int set_up(void **state) {
    (void)state;
    snprintf(in_path, sizeof in_path, "/tmp/coppice-types-%ld-in.gguf", (long)getpid());
    snprintf(out_path, sizeof out_path, "/tmp/coppice-types-%ld-out.gguf", (long)getpid());
    snprintf(imatrix_path_, sizeof imatrix_path_, "/tmp/coppice-types-%ld.imatrix", (long)getpid());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(in_path);
    unlink(out_path);
    unlink(imatrix_path_);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks_the_established_types),
        cmocka_unit_test(requires_importances),
        cmocka_unit_test(reports_fallbacks),
        cmocka_unit_test(requantises_on_request_only),
        cmocka_unit_test(finds_aliases_and_pure),
        cmocka_unit_test(takes_types_for_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
