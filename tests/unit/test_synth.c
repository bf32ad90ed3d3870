// SPDX-License-Identifier: Apache-2.0
// Synthetic models: tensor counts and sizes of the published models, values of the wanted spread in
// every type, the same bytes with any number of threads, and a pair that loads and decodes.
#include "unit/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/synth/fill.h"
#include "convert/synth/synth.h"
#include "engine/batch/batch.h"
#include "formats/quant/quant.h"

static char folder[] = "/tmp/coppice-synth-XXXXXX";
static char target[64], draft[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(target, sizeof target, "%s/target.gguf", folder);
    snprintf(draft, sizeof draft, "%s/draft.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(target);
    unlink(draft);
    return rmdir(folder);
}

static void write_model(const char *path, const char *shape, const char *type, uint64_t seed,
                        int threads) {
    struct err e = {0};
    struct synth_options o = {.shape = synth_shape(shape),
                              .recipe = convert_recipe(type),
                              .seed = seed,
                              .threads = threads};
    if (synth_write(path, &o, &e))
        fail_msg("%s", e.text);
}

// Tensors and elements of a shape; bytes in a type.
static int64_t count(const char *shape, const char *type, int *tensors, int64_t *bytes) {
    struct synth_list l = {0};
    int64_t elements = 0;
    synth_tensors(&l, synth_shape(shape), convert_recipe(type));
    assert_false(l.failed);
    *tensors = l.n;
    *bytes = 0;
    for (int i = 0; i < l.n; i++) {
        const struct synth_tensor *t = &l.items[i];
        elements += t->ne[0] * t->ne[1] * t->ne[2];
        *bytes += quant_row_bytes(quant_format(t->type), t->ne[0]) * t->ne[1] * t->ne[2];
    }
    free(l.items);
    return elements;
}

// Drafts of other targets than Qwen's; numbers of tensors and values as published.
static void test_published_drafts(void **state) {
    (void)state;
    int n;
    int64_t bytes;
    assert_in_range(count("dflash-laguna-xs.2", "BF16", &n, &bytes), 455000000, 465000000);
    assert_in_range(count("dflash-kimi-k2.5", "Q8_0", &n, &bytes), 3470000000, 3490000000);
    assert_in_range(count("dflash-gemma4-31b", "Q8_0", &n, &bytes), 1530000000, 1545000000);
    assert_in_range(count("dflash-gemma4-26b-a4b", "Q8_0", &n, &bytes), 425000000, 435000000);
    assert_in_range(count("dflash-gpt-oss-20b", "Q8_0", &n, &bytes), 780000000, 790000000);
    assert_in_range(count("dflash-gpt-oss-120b", "Q8_0", &n, &bytes), 780000000, 790000000);
    assert_int_equal(n, 123); // 32 of them biases
    assert_int_equal(count("dflash-laguna-s-2.1", "BF16", &n, &bytes), 1114977792);
    assert_int_equal(n, 76);
    count("laguna-s-2.1", "Q4_K_M", &n, &bytes);
    assert_int_equal(n, 814);
}

// Against what is published of the real files.
static void test_published_sizes(void **state) {
    (void)state;
    int n;
    int64_t bytes;
    int64_t all = count("qwen35-27b", "Q4_K_M", &n, &bytes);
    assert_int_equal(n, 851);
    assert_in_range(all, 26800000000, 27000000000);
    assert_in_range(bytes, 16400000000, 16700000000);
    // The prediction block: 15 tensors, 811 MB as BF16.
    assert_int_equal(count("qwen35-27b-mtp", "Q4_K_M", &n, &bytes) - all, 424699392);
    assert_int_equal(n, 866);
    assert_int_equal(count("dflash-4b", "Q8_0", &n, &bytes), 634425856);
    assert_int_equal(n, 69);
    // Published: 81 tensors, 1.93 billion values, 3.85 GB as BF16.
    assert_in_range(count("dflash2-27b", "Q8_0", &n, &bytes), 1915000000, 1935000000);
    assert_int_equal(n, 81);
    // A Markov head: two matrices with the vocabulary's rows.
    all = count("dspark-27b", "Q8_0", &n, &bytes);
    assert_int_equal(n, 60);
    assert_int_equal(all - count("dflash-27b", "Q8_0", &n, &bytes), 2 * 256 * 248320);
    assert_int_equal(n, 58);
    assert_in_range(bytes, 1750000000, 1850000000);
    assert_int_equal(count("qwen3-0.6b", "BF16", &n, &bytes), 596049920);
    assert_int_equal(n, 310);
    assert_int_equal(count("qwen3-8b", "Q8_0", &n, &bytes), 8190735360);
    assert_int_equal(n, 399);
    assert_int_equal(count("llama-1b", "BF16", &n, &bytes), 1235814400 + 32); // and the divisors
    assert_int_equal(n, 147);
    assert_int_equal(count("llama-8b", "Q8_0", &n, &bytes), 8030261248 + 64);
    assert_int_equal(n, 292);
    assert_int_equal(count("qwen2-7b", "BF16", &n, &bytes), 7615616512);
    assert_int_equal(n, 339);
    assert_int_equal(count("qwen3-30b-a3b", "Q4_K_M", &n, &bytes), 30532122624);
    assert_int_equal(n, 3 + 48 * 12);
    assert_in_range(count("qwen35-35b-a3b", "Q4_K_M", &n, &bytes), 34600000000, 34700000000);
    assert_int_equal(n, 753 - 20); // without the prediction layer
    assert_in_range(count("qwen35-35b-a3b-mtp", "Q4_K_M", &n, &bytes), 35400000000, 35600000000);
    assert_int_equal(n, 753);
    assert_in_range(count("qwen35-122b-a10b", "Q4_K_M", &n, &bytes), 120000000000, 124000000000);
    assert_in_range(count("glm-4.5-air", "Q4_K_M", &n, &bytes), 106000000000, 107000000000);
    assert_in_range(count("deepseek-v2-lite", "Q4_K_M", &n, &bytes), 15600000000, 15800000000);
    assert_in_range(count("deepseek-v3", "Q4_K_M", &n, &bytes), 670900000000, 671200000000);
    assert_in_range(count("kimi-k2", "Q4_K_M", &n, &bytes), 1020000000000, 1030000000000);
    assert_in_range(count("gpt-oss-20b", "MXFP4_MOE", &n, &bytes), 20900000000, 20930000000);
    assert_in_range(count("gpt-oss-120b", "MXFP4_MOE", &n, &bytes), 116800000000, 116900000000);
    assert_in_range(count("laguna-xs.2", "Q4_K_M", &n, &bytes), 33000000000, 34000000000);
    assert_in_range(count("laguna-m.1", "Q4_K_M", &n, &bytes), 225000000000, 226500000000);
    assert_in_range(count("dflash-qwen3-8b", "Q8_0", &n, &bytes), 1040000000, 1055000000);
    assert_in_range(count("dflash-qwen3-30b-a3b", "Q8_0", &n, &bytes), 470000000, 480000000);
    assert_in_range(count("dflash-llama-8b", "Q8_0", &n, &bytes), 1040000000, 1055000000);
    assert_in_range(count("gemma4-26b-a4b", "Q4_K_M", &n, &bytes), 25100000000, 25300000000);
    assert_in_range(count("gemma4-31b", "Q4_K_M", &n, &bytes), 30500000000, 30900000000);
    assert_in_range(count("gemma4-e2b", "Q4_K_M", &n, &bytes), 4500000000, 5300000000);
    assert_in_range(count("gemma4-e4b", "Q4_K_M", &n, &bytes), 7000000000, 8200000000);
    count("qwen35-2b", "F16", &n, &bytes);
    assert_int_equal(n, 335 - 15); // the published count has a prediction layer of 15 tensors
}

static void check_spread(const struct tensor *t) {
    const struct quant_format *f = quant_format(t->type);
    int64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    float *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    f->dequantize(t->data, v, n);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(v[i]));
        sum += (double)v[i];
        square += (double)v[i] * (double)v[i];
    }
    free(v);
    double size = sqrt(square / (double)n * (double)t->ne[0]), mean = sum / (double)n;
    if (size < 0.9 || size > 1.1 || fabs(mean) > 0.05 / sqrt((double)t->ne[0]))
        fail_msg("%s in %s: size %g, mean %g", t->name, f->name, size, mean);
}

static void test_values_of_every_type(void **state) {
    (void)state;
    for (int i = 0; convert_recipe_at(i); i++) {
        struct gguf *g;
        struct err e = {0};
        write_model(target, "qwen35-tiny", convert_recipe_at(i)->name, 5, 2);
        if (gguf_open(&g, target, &e))
            fail_msg("%s", e.text);
        for (size_t j = 0; j < gguf_tensor_count(g); j++) {
            const struct tensor *t = gguf_tensor_at(g, j);
            if (strstr(t->name, "ffn_") || strstr(t->name, "attn_output"))
                check_spread(t);
        }
        if (strcmp(convert_recipe_at(i)->name, "IQ3_XS")) // there it has a rule of its own
            assert_int_equal(gguf_tensor(g, "blk.0.ffn_gate.weight")->type,
                             convert_recipe_at(i)->type);
        gguf_close(g);
    }
}

// Matrices must not lean one way. An offset common to all entries acts on the sum of the inputs:
// with n inputs and outputs it counts sqrt(n) times as much as its share of the spread, so that 2 %
// made every token of a model of 5,120 dimensions have the same successor.
static void test_no_lean(void **state) {
    (void)state;
    enum { VALUES = 1 << 22 };
    float *v = malloc(VALUES * sizeof *v);
    struct synth_fill *f = malloc(sizeof *f);
    assert_non_null(v);
    assert_non_null(f);
    for (int i = 0; convert_recipe_at(i); i++) {
        struct synth_tensor t = {.n_dims = 2, .ne = {4096, VALUES / 4096, 1}, .half = 1};
        t.type = convert_recipe_at(i)->type;
        const struct quant_format *q = quant_format(t.type);
        unsigned char *bytes = malloc((size_t)(quant_row_bytes(q, 4096) * t.ne[1]));
        assert_non_null(bytes);
        assert_true(synth_fill_init(f, &t, 11));
        synth_fill_blocks(f, 0, VALUES / synth_block(t.type), bytes);
        q->dequantize(bytes, v, VALUES);
        free(bytes);
        double sum = 0, square = 0;
        for (int64_t j = 0; j < VALUES; j++) {
            sum += (double)v[j];
            square += (double)v[j] * (double)v[j];
        }
        const double n = VALUES, lean = sum / n / sqrt(square / n);
        if (fabs(lean) > 0.003)
            fail_msg("%s: the mean is %g of the spread", q->name, lean);
    }
    free(v);
    free(f);
}

static void read_all(const char *path, struct str *out) {
    struct err e = {0};
    if (file_read(out, path, 1 << 28, &e))
        fail_msg("%s", e.text);
}

static void test_same_file_again(void **state) {
    (void)state;
    struct str a = {0}, b = {0}, c = {0};
    write_model(target, "qwen35-tiny", "Q4_K_M", 7, 1);
    read_all(target, &a);
    write_model(target, "qwen35-tiny", "Q4_K_M", 7, 4);
    read_all(target, &b);
    write_model(target, "qwen35-tiny", "Q4_K_M", 8, 4);
    read_all(target, &c);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_int_equal(a.len, c.len);
    assert_memory_not_equal(a.data, c.data, a.len);
    str_fini(&a);
    str_fini(&b);
    str_fini(&c);
}

// How many of the 4-grams of ids are the first of their kind.
static int64_t distinct_grams(const int32_t *ids, int64_t n) {
    int64_t distinct = 0;
    for (int64_t i = 0; i + 4 <= n; i++) {
        bool seen = false;
        for (int64_t j = 0; j < i && !seen; j++)
            seen = !memcmp(ids + i, ids + j, 4 * sizeof *ids);
        distinct += !seen;
    }
    return distinct;
}

// Random weights must still make a model: finite, its choices neither stuck nor short of range.
static void test_pair_decodes(void **state) {
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct request r;
    struct reply y = {0};
    struct err e = {0};
    write_model(target, *state, "Q4_K_M", 1, 2);
    write_model(draft,
                strstr(*state, "-mtp")       ? "dflash2-tiny"
                : strstr(*state, "moe-tiny") ? "dspark-tiny"
                                             : "dflash-tiny",
                "Q8_0", 2, 2);
    o.model = target;
    o.draft = draft;
    o.threads = 1;
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = 8;
    r.max_tokens = 256;
    r.how = SPECULATE_TREE;
    if (session_generate(s, &r, &y, &e))
        fail_msg("%s", e.text);
    assert_int_equal(y.n, 256);
    assert_true(distinct_grams(y.ids, y.n) > 128);
    const int64_t vocab = model_params_of(session_model(s))->vocab;
    float *row = malloc((size_t)vocab * sizeof *row);
    assert_non_null(row);
    struct exec *x = model_exec(session_model(s));
    exec_ops(x)->download(x, row, model_logits(session_model(s), 0, 1),
                          (size_t)vocab * sizeof *row);
    double square = 0;
    for (int64_t i = 0; i < vocab; i++)
        square += (double)row[i] * (double)row[i];
    assert_in_range((int64_t)(100 * sqrt(square / (double)vocab)), 150, 250);
    free(row);
    reply_fini(&y);
    session_close(s);
}

static void test_refusals(void **state) {
    (void)state;
    struct err e = {0};
    struct synth_options o = {.shape = synth_shape("qwen35-tiny"),
                              .recipe = convert_recipe("Q8_0")};
    assert_null(synth_shape("qwen35"));
    assert_int_equal(synth_write("/nonexistent/x.gguf", &o, &e), ERR_IO);
    assert_non_null(strstr(e.text, "/nonexistent/x.gguf"));
    o.layers = 5;
    assert_int_equal(synth_write("/tmp/x.gguf", &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "first 5"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_published_drafts),
        cmocka_unit_test(test_values_of_every_type),
        cmocka_unit_test(test_no_lean),
        cmocka_unit_test(test_same_file_again),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen35-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen3-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen2-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "llama-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen35moe-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen3moe-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "glm4moe-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "deepseek2-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "gpt-oss-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "laguna-tiny"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen35-tiny-mtp"),
        cmocka_unit_test_prestate(test_pair_decodes, "qwen35moe-tiny-mtp"),
        cmocka_unit_test_prestate(test_pair_decodes, "glm4moe-tiny-mtp"),
        cmocka_unit_test_prestate(test_pair_decodes, "deepseek2-tiny-mtp"),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
