// SPDX-License-Identifier: Apache-2.0
// Folders whose matrices are codes and scales (tools/oracle/packed_fixtures.py): FP8 by blocks,
// rows and matrices, INT4 in groups. What is written are the values that torch decodes, bit for
// bit; a folder with one thing wrong is refused with a sentence that names it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "unit/hf_folder.h"
#include "unit/test.h"

#define FOLDER SOURCE_ROOT "/tests/fixtures/convert/packed/"

static struct str read_bytes(const char *name, const char *tail) {
    char path[256];
    struct str s = {0};
    struct err e = {0};
    snprintf(path, sizeof path, FOLDER "%s%s", name, tail);
    if (file_read(&s, path, 1 << 20, &e))
        fail_msg("%s", e.text);
    return s;
}

// Writes s with every `from` in it replaced by `to`, which has as many bytes.
static void write_swapped(const char *file, struct str *s, const char *from, const char *to) {
    char path[96];
    size_t n = from ? strlen(from) : 0, found = 0;
    for (size_t i = 0; from && i + n <= s->len; i++)
        if (!memcmp(s->data + i, from, n)) {
            memcpy(s->data + i, to, n);
            found++;
        }
    if (from && (!found || strlen(to) != n))
        fail_msg("'%s' does not occur in %s, or '%s' has another length", from, file, to);
    snprintf(path, sizeof path, "%s/%s", hf_target, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(s->data, 1, s->len, f), s->len);
    assert_int_equal(fclose(f), 0);
}

struct edit_of {
    const char *name, *from, *to, *part; // in the configuration, else in the weights' header
};

static int convert(const struct edit_of *x, const char *recipe, struct err *e) {
    struct convert_options o = hf_options(recipe, NULL);
    o.mtp = CONVERT_MTP_DROP; // of which there is no more than a matrix
    struct str config = read_bytes(x->name, ".json"), weights = read_bytes(x->name, ".safetensors");
    bool in_config = x->from && strstr(config.data, x->from);
    hf_write_edited(hf_target, "config.json", config.data, in_config ? x->from : NULL, x->to);
    write_swapped("model.safetensors", &weights, in_config ? NULL : x->from, x->to);
    hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, NULL, NULL);
    str_fini(&config);
    str_fini(&weights);
    return convert_hf(hf_target, hf_out, &o, e);
}

static int check_tensor(void *arg, const char *name, size_t n, const struct json *want) {
    const struct tensor *t = gguf_tensor(arg, name);
    char hex[20];
    (void)n;
    if (!t || t->type != TYPE_F32)
        fail_msg("%s is missing or no F32", name);
    snprintf(hex, sizeof hex, "%016" PRIx64, hash_bytes(t->data, (size_t)t->bytes, 0));
    if (strcmp(hex, json_str(want, NULL)) != 0)
        fail_msg("%s has other values", name);
    return 0;
}

static int check_case(void *arg, const char *name, size_t n, const struct json *want) {
    const struct edit_of whole = {.name = name};
    struct gguf *g = NULL;
    struct err e = {0};
    (void)n;
    if (convert(&whole, "F32", &e) || gguf_open(&g, hf_out, &e))
        fail_msg("%s: %s", name, e.text);
    assert_true(json_len(want) > 2);
    json_each(want, check_tensor, g);
    *(int *)arg += 1;
    gguf_close(g);
    return 0;
}

static void values_are_those_of_torch(void **state) {
    (void)state;
    struct str s = read_bytes("expected", ".json");
    struct json *want = NULL;
    struct err e = {0};
    int cases = 0;
    assert_int_equal(json_parse(&want, s.data, s.len, &e), 0);
    json_each(want, check_case, &cases);
    assert_int_equal(cases, 7);
    json_free(want);
    str_fini(&s);
}

// Pieces of any size on several threads give what one gives.
static void other_types_follow(void **state) {
    (void)state;
    const struct edit_of whole = {.name = "blocks"};
    struct convert_options o = hf_options("Q8_0", NULL);
    struct err e = {0};
    struct str a = {0}, b = {0};
    assert_int_equal(convert(&whole, "F32", &e), 0);
    assert_int_equal(convert_quantize(hf_out, hf_second, &o, &e), 0);
    assert_int_equal(convert(&whole, "Q8_0", &e), 0);
    assert_int_equal(file_read(&a, hf_out, 1 << 20, &e), 0);
    assert_int_equal(file_read(&b, hf_second, 1 << 20, &e), 0);
    assert_true(a.len == b.len && !memcmp(a.data, b.data, a.len));
    str_fini(&a);
    str_fini(&b);
}

static const struct edit_of bad[] = {
    {"blocks", "\"fp8\"", "\"fp7\"", "quant_method 'fp7'"},
    {"blocks", "\"fp8\"", "\"gptq\"", "quant_method 'gptq'"},
    {"blocks", "\"quant_method\": \"fp8\", ", "", "quant_method 'null'"},
    {"blocks", "\"e4m3\"", "\"e5m2\"", "fmt 'e5m2'"},
    {"blocks", "[128, 128]", "[128]", "weight_block_size"},
    {"blocks", "[128, 128]", "[128, 0]", "weight_block_size"},
    {"blocks", "[128, 128]", "[64, 128]", "o_proj.weight_scale_inv' has shape [1, 2, 1]"},
    {"blocks", "quantization_config", "quantisation_config", "no quantization_config"},
    {"blocks", "up_proj.weight_scale_inv", "up_proj.weight_scale_ink", "up_proj.weight_scale_inv'"},
    {"blocks", "\"F8_E4M3\"", "\"F8_E5M2\"", "dtype F8_E5M2"},
    {"blocks", "\"fmt\": \"e4m3\"", "\"expert_dtype\": \"fp4\"", "expert_dtype 'fp4'"},
    {"powers", "\"F8_E8M0\"", "\"F8_E5M2\"", "q_proj.weight_scale_inv'"},
    {"rows", "\"float-quantized\"", "\"nvfp4-pack-quantized\"", "format 'nvfp4-pack-quantized'"},
    {"rows", "\"num_bits\": 8", "\"num_bits\": 6", "num_bits '6'"},
    {"rows", "\"channel\"", "\"token\"", "strategy 'token'"},
    {"rows", "\"channel\"", "\"tensor\"", "q_proj.weight_scale' has shape [1, 64, 1]"},
    {"rows", "\"channel\"", "\"block\"", "block_structure 'null'"},
    {"rows", "\"symmetric\": true", "\"symmetric\": false", "symmetric 'false'"},
    {"rows", "\"config_groups\"", "\"config_group\"", "'config_groups'"},
    {"rows", "\"ignore\"", "\"transform_config\": {\"config_groups\": {\"a\": 1}}, \"x\"",
     "transform_config"},
    {"rows", "\"ignore\"", "\"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}, \"x\"",
     "sparse-24-bitmask"},
    {"int4", "\"num_bits\": 4", "\"num_bits\": 8", "num_bits '8'"},
    {"int4", "\"group_size\": 32", "\"group_size\": -1", "group_size '-1'"},
    {"int4", "\"group_size\": 32", "\"group_size\": 16", "gate_proj.weight_scale' has shape"},
    {"int4", "\"actorder\": null", "\"actorder\": \"group\"", "actorder 'group'"},
    {"int4", "0.up_proj.weight_shape", "0.up_proj.weight_shade", "0.up_proj.weight_shape'"},
    {"int4", "0.up_proj.weight_scale", "0.up_proj.weight_scald", "0.up_proj.weight_scale'"},
    {"int4", "0.up_proj.weight_packed", "0.up_proj.weight_parked", "0.up_proj.weight'"},
    {"int4", "\"moe_intermediate_size\": 48", "\"moe_intermediate_size\": 40",
     "0.gate_proj.weight' has shape [32, 48, 1]"},
    {"int4", "1.up_proj.weight_shape", "1.up_proj.weight_g_idx", "1.up_proj.weight_shape'"},
    {"fused", "down_proj_scale_inv", "down_proj_scale_ink", "down_proj_scale_inv'"},
    {"latents", "kv_b_proj.weight_scale_inv", "kv_b_proj.weight_scale_ink", "kv_b_proj"},
};

static void refuses_what_is_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        unlink(hf_out);
        if (!convert(&bad[i], "F32", &e) || !strstr(e.text, bad[i].part))
            fail_msg("%s, %s: \"%s\", wanted \"%s\"", bad[i].name, bad[i].to, e.text, bad[i].part);
        assert_int_equal(access(hf_out, F_OK), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_torch),
        cmocka_unit_test(other_types_follow),
        cmocka_unit_test(refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
