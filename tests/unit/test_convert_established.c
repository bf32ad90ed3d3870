// SPDX-License-Identifier: Apache-2.0
// Tiny HuggingFace folders of every kind, converted, against what the established converter made of
// them (tests/fixtures/convert, made by tools/oracle/convert_fixtures.py): every key with its type
// and value, every tensor with its type, shape and bytes. What differs on purpose is listed here.
#include "test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "convert/convert.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "text/tokenizer/tokenizer.h"

#define FIXTURES SOURCE_ROOT "/tests/fixtures/convert/"

static char out[] = "/tmp/coppice-established-XXXXXX";

// Names are guessed there from folders and model cards; here a folder's name is its name.
static const char *const not_compared[] = {"general.name", "general.size_label"};

// Written in addition: what other programs must guess, or read elsewhere.
static const char *const extra[] = {
    "qwen35.vocab_size",
    "qwen35moe.vocab_size",
    "qwen3.vocab_size",
    "qwen3moe.vocab_size",
    "glm4moe.vocab_size",
    "deepseek2.vocab_size",
    "dflash.vocab_size",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.normalizer.nfc",
    "tokenizer.ggml.unknown_token_id",
};

struct comparison {
    const char *name;
    const struct gguf *g;
    int keys, tensors, wrong;
};

static bool is_listed(const char *const *list, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}
#define LISTED(list, key) is_listed(list, sizeof list / sizeof *list, key)

static void complain(struct comparison *c, const char *what, const char *key) {
    print_error("%s: %s %s\n", c->name, key, what);
    c->wrong++;
}

static const char *kind_name(int kind) {
    static const char *const names[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                        "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                        "UINT64", "INT64",   "FLOAT64"};
    return names[kind];
}

static size_t array_bytes(const struct gguf_kv *kv) {
    const unsigned char *end = kv->bytes;
    size_t n;
    if (kv->elem != GGUF_STRING)
        return kv->count * (kv->elem == GGUF_BOOL ? 1 : 4);
    for (uint64_t i = 0; i < kv->count; i++)
        gguf_array_str(&end, &n);
    return (size_t)(end - kv->bytes);
}

static bool same_hash(const void *data, size_t n, const struct json *want) {
    char hex[20];
    snprintf(hex, sizeof hex, "%016" PRIx64, hash_bytes(data, n, 0));
    return !strcmp(hex, json_str(want, NULL));
}

// Values whose exponential function may differ in the last bit.
static bool same_numbers(const struct tensor *t, const struct json *want) {
    const unsigned char *at = t->data;
    bool same = t->type == TYPE_F32 && (int64_t)json_len(want) == t->ne[0];
    for (size_t i = 0; same && i < json_len(want); i++) {
        float v, w = (float)json_num(json_at(want, i), 0);
        memcpy(&v, at + 4 * i, sizeof v);
        same = v == w || nextafterf(v, w) == w;
    }
    return same;
}

static bool same_bytes(const struct tensor *t, const struct json *want) {
    return json_kind_of(want) == JSON_ARRAY ? same_numbers(t, want)
                                            : same_hash(t->data, (size_t)t->bytes, want);
}

static bool same_value(const struct gguf *g, const struct gguf_kv *kv, const struct json *want) {
    struct err e = {0};
    const struct json *value = json_at(want, 1);
    const char *s;
    size_t n, k;
    int64_t integer;
    double number;
    bool flag;
    switch (kv->kind) {
    case GGUF_ARRAY:
        return (int64_t)kv->count == json_int(value, -1) &&
               same_hash(kv->bytes, array_bytes(kv), json_at(want, 2));
    case GGUF_STRING:
        return !gguf_get_str(g, kv->key, &s, &n, &e) && json_str(value, &k) && n == k &&
               !memcmp(s, json_str(value, &k), n);
    case GGUF_BOOL:
        return !gguf_get_bool(g, kv->key, false, &flag, &e) && flag == json_bool(value, !flag);
    case GGUF_F32:
        return !gguf_get_float(g, kv->key, -1, &number, &e) &&
               (float)number == (float)json_num(value, -2);
    default:
        return !gguf_get_int(g, kv->key, INT64_MIN, INT64_MAX, -1, &integer, &e) &&
               integer == json_int(value, -2);
    }
}

static int check_key(void *arg, const char *key, size_t n, const struct json *want) {
    struct comparison *c = arg;
    char type[32];
    (void)n;
    if (LISTED(not_compared, key))
        return 0;
    c->keys++;
    const struct gguf_kv *kv = gguf_find(c->g, key);
    if (!kv) {
        complain(c, "is missing", key);
        return 0;
    }
    bool array = kv->kind == GGUF_ARRAY;
    snprintf(type, sizeof type, "%s%s", kind_name(array ? kv->elem : kv->kind), array ? "[]" : "");
    if (strcmp(type, json_str(json_at(want, 0), NULL)) != 0)
        complain(c, "has another type", key);
    else if (!same_value(c->g, kv, want))
        complain(c, "has another value", key);
    return 0;
}

static int check_tensor(void *arg, const char *name, size_t n, const struct json *want) {
    struct comparison *c = arg;
    const struct tensor *t = gguf_tensor(c->g, name);
    const struct json *shape = json_at(want, 1);
    (void)n;
    c->tensors++;
    if (!t) {
        complain(c, "is missing", name);
        return 0;
    }
    bool same = t->n_dims == (int)json_len(shape);
    for (int i = 0; same && i < t->n_dims; i++)
        same = t->ne[i] == json_int(json_at(shape, (size_t)i), -1);
    if (!same)
        complain(c, "has another shape", name);
    else if (strcmp(quant_format(t->type)->name, json_str(json_at(want, 0), NULL)) != 0)
        complain(c, "has another type", name);
    else if (!same_bytes(t, json_at(want, 2)))
        complain(c, "has other bytes", name);
    return 0;
}

static void check_extra(struct comparison *c, const struct json *keys) {
    for (size_t i = 0; i < gguf_kv_count(c->g); i++) {
        const char *key = gguf_kv_at(c->g, i)->key;
        if (json_kind_of(json_get(keys, key)) == JSON_NULL && !LISTED(extra, key))
            complain(c, "is not there in the established file", key);
    }
}

static void check_only(const char *folder, const char *type, const char *listing,
                       const char *target, enum convert_mtp mtp) {
    char dir[256], path[256];
    struct str text = {0};
    struct json *want = NULL;
    struct gguf *g = NULL;
    struct err e = {0};
    struct convert_options o = {
        .recipe = convert_recipe(type), .threads = 1, .target_dir = target, .mtp = mtp};
    snprintf(dir, sizeof dir, FIXTURES "%s", folder);
    snprintf(path, sizeof path, FIXTURES "%s.json", listing);
    if (convert_hf(dir, out, &o, &e) || gguf_open(&g, out, &e) ||
        file_read(&text, path, 1 << 20, &e) || json_parse(&want, text.data, text.len, &e))
        fail_msg("%s: %s", listing, e.text);
    struct comparison c = {.name = listing, .g = g};
    json_each(json_get(want, "keys"), check_key, &c);
    json_each(json_get(want, "tensors"), check_tensor, &c);
    check_extra(&c, json_get(want, "keys"));
    assert_int_equal(gguf_tensor_count(g), c.tensors);
    print_message("%s: %d keys, %d tensors, %d differ\n", listing, c.keys, c.tensors, c.wrong);
    assert_true(c.keys > 20 && c.tensors > (mtp == CONVERT_MTP_ONLY ? 15 : 20));
    assert_int_equal(c.wrong, 0);
    json_free(want);
    str_fini(&text);
    gguf_close(g);
}

static void check(const char *folder, const char *type, const char *listing, const char *target) {
    check_only(folder, type, listing, target, CONVERT_MTP_KEEP);
}

static void test_qwen35(void **state) {
    (void)state;
    check("qwen35", "F16", "qwen35.f16", NULL);
    check("qwen35", "Q8_0", "qwen35.q8_0", NULL);
}

static void test_experts(void **state) {
    (void)state;
    check("qwen35moe", "BF16", "qwen35moe.bf16", NULL);
    check("qwen35moe-parts", "F16", "qwen35moe-parts.f16", NULL);
    check("qwen3moe", "BF16", "qwen3moe.bf16", NULL);
}

// With a block that predicts further tokens, and that block alone.
static void test_prediction(void **state) {
    (void)state;
    check("qwen35-mtp", "F16", "qwen35-mtp.f16", NULL);
    check("qwen35moe-mtp", "BF16", "qwen35moe-mtp.bf16", NULL);
    check("glm4moe", "F16", "glm4moe.f16", NULL);
    check("glm4lite", "BF16", "glm4lite.bf16", NULL);
    check_only("qwen35-mtp", "F16", "qwen35-mtp.f16-mtp", NULL, CONVERT_MTP_ONLY);
    check_only("glm4lite", "BF16", "glm4lite.bf16-mtp", NULL, CONVERT_MTP_ONLY);
}

static void test_qwen3(void **state) {
    (void)state;
    check("qwen3", "BF16", "qwen3.bf16", NULL);
}

static void test_llama(void **state) {
    (void)state;
    check("llama3", "F16", "llama3.f16", NULL);
    check("llama2", "F32", "llama2.f32", NULL);
}

static void test_draft(void **state) {
    (void)state;
    check("draft", "F16", "draft.f16", FIXTURES "qwen35");
    check("draft2", "F16", "draft2.f16", FIXTURES "qwen35");
}

// The written SentencePiece vocabulary opens and gives text back.
static void test_pieces_open(void **state) {
    (void)state;
    static const char text[] = "The quick answer  is 12\n\xE4\xBD\xA0";
    struct convert_options o = {.recipe = convert_recipe("F32"), .threads = 1};
    struct token_list ids = {0};
    struct tokenizer *t;
    struct str back = {0};
    struct gguf *g;
    struct err e = {0};
    if (convert_hf(FIXTURES "llama2", out, &o, &e) || gguf_open(&g, out, &e) ||
        tokenizer_create(&t, g, &e) || tokenizer_encode(t, text, sizeof text - 1, false, &ids, &e))
        fail_msg("%s", e.text);
    assert_true(tokenizer_add_bos(t) && tokenizer_bos(t) == 1 && tokenizer_blank_first(t));
    assert_true(ids.count > 5 && ids.count < sizeof text);
    for (size_t i = 0; i < ids.count; i++)
        tokenizer_decode(t, ids.ids[i], false, &back);
    assert_int_equal(back.len, sizeof text);
    assert_memory_equal(back.data + 1, text, sizeof text - 1);
    token_list_fini(&ids);
    str_fini(&back);
    tokenizer_destroy(t);
    gguf_close(g);
}

static int set_up(void **state) {
    (void)state;
    int fd = mkstemp(out);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state) {
    (void)state;
    return unlink(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen35),      cmocka_unit_test(test_experts),
        cmocka_unit_test(test_prediction),  cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_llama),       cmocka_unit_test(test_draft),
        cmocka_unit_test(test_pieces_open),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
