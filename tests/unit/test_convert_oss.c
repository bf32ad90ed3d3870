// SPDX-License-Identifier: Apache-2.0
// A folder of gpt-oss as its authors publish them (tools/oracle/oss_fixtures.py): experts in MXFP4
// become the blocks of GGUF, whose values are those that transformers decode; the file loads.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "convert/convert.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "formats/safetensors.h"
#include "models/model.h"

#define FOLDER SOURCE_ROOT "/tests/fixtures/convert/oss"
enum { D = 32, F = 64, E = 3 };

static char out[] = "/tmp/coppice-oss-XXXXXX";

static int set_up(void **state) {
    (void)state;
    int fd = mkstemp(out);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state) {
    (void)state;
    return unlink(out);
}

static struct gguf *converted(const char *recipe) {
    struct convert_options o = {.recipe = convert_recipe(recipe), .threads = 1};
    struct gguf *g;
    struct err e = {0};
    if (convert_hf(FOLDER, out, &o, &e))
        fail_msg("%s", e.text);
    assert_int_equal(gguf_open(&g, out, &e), 0);
    return g;
}

// A tensor of layer 1 in floats.
static float *decoded(const struct gguf *g, const char *part, uint32_t type, int64_t n) {
    char name[64];
    (void)snprintf(name, sizeof name, "blk.1.%s", part);
    const struct tensor *t = gguf_tensor(g, name);
    assert_non_null(t);
    assert_int_equal(t->type, type);
    assert_int_equal(t->ne[0] * t->ne[1] * t->ne[2], n);
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    quant_format(type)->dequantize(t->data, x, n);
    return x;
}

// Value (e, m, k) of a matrix is value (e, k, first + step m) of what transformers have.
static void compare(const struct gguf *g, const char *part, const float *want, int k, int m,
                    int first, int step) {
    float *have = decoded(g, part, TYPE_MXFP4, (int64_t)E * m * k);
    for (int at = 0; at < E * m * k; at++) {
        int i = at % k, r = at / k % m, e = at / k / m;
        float b = want[(e * k + i) * m * step + first + step * r];
        if (have[at] != b)
            fail_msg("%s: expert %d, row %d, value %d is %g instead of %g", part, e, r, i,
                     (double)have[at], (double)b);
    }
    free(have);
}

static void test_values(void **state) {
    (void)state;
    struct safetensors *want;
    struct err e = {0};
    struct gguf *g = converted("BF16");
    assert_int_equal(safetensors_open(&want, FOLDER "/expected.safetensors", &e), 0);
    const float *both = safetensors_tensor(want, "gate_up")->data;
    const float *down = safetensors_tensor(want, "down")->data;
    compare(g, "ffn_gate_exps.weight", both, D, F, 0, 2);
    compare(g, "ffn_up_exps.weight", both, D, F, 1, 2);
    compare(g, "ffn_down_exps.weight", down, F, D, 0, 1);
    safetensors_close(want);
    gguf_close(g);
}

static void test_biases(void **state) {
    (void)state;
    struct safetensors *from;
    struct err e = {0};
    struct gguf *g = converted("BF16");
    assert_int_equal(safetensors_open(&from, FOLDER, &e), 0);
    const struct tensor *t =
        safetensors_tensor(from, "model.layers.1.mlp.experts.gate_up_proj_bias");
    assert_non_null(t);
    float both[E * 2 * F], *gate = decoded(g, "ffn_gate_exps.bias", TYPE_F32, (int64_t)E * F),
                           *up = decoded(g, "ffn_up_exps.bias", TYPE_F32, (int64_t)E * F);
    quant_format(t->type)->dequantize(t->data, both, (int64_t)E * 2 * F);
    for (int i = 0; i < E * F; i++)
        assert_true(gate[i] == both[2 * i] && up[i] == both[2 * i + 1]);
    free(gate);
    free(up);
    safetensors_close(from);
    gguf_close(g);
}

// What the model reads of the keys, and that nothing is missing.
static void test_loads(void **state) {
    (void)state;
    struct model_options o = model_options_default();
    struct model_plan plan;
    struct model_params p;
    struct err e = {0};
    struct gguf *g = converted("Q8_0");
    if (model_plan(&plan, &p, NULL, g, &o, &e))
        fail_msg("%s", e.text);
    assert_int_equal(p.moe.experts, E);
    assert_int_equal(p.moe.used, 2);
    assert_int_equal(p.window.width, 16);
    assert_true(p.rope.exact_ramp && p.rope.factor == 32 && p.rope.trained == 64);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_biases),
        cmocka_unit_test(test_loads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
