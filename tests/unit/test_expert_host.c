// SPDX-License-Identifier: Apache-2.0
// Models some of whose experts have their place with another exec of the CPU, which stands for the
// CPU next to a GPU: what is counted, refused, and that the results are those of the same model.
#include "ops/experts/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/copier.h"
#include "ops/exec.h"
#include "support/copies.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { PROMPT = 40 };

static struct model_options options(struct exec *cpu, int n) {
    struct model_options o = model_options_default();
    o.codec_k = o.codec_v = KV_F32;
    o.max_ctx = o.max_rows = 64;
    o.max_verify = 32;
    o.cpu = cpu;
    o.cpu_experts = n;
    return o;
}

static struct exec *open_cpu(void) {
    struct exec *cpu;
    struct err e;
    assert_int_equal(exec_create_cpu(&cpu, "scalar", 1, &e), 0);
    return cpu;
}

// Logits after a prompt with the experts of n layers on `cpu`.
static void answer(const struct tiny_shape *shape, struct exec *cpu, int n, float *logits) {
    struct tiny_rig r;
    struct model_options o = options(cpu, n);
    int32_t tokens[PROMPT];
    tiny_rig_open(&r, shape, NULL, &o, "auto", 2);
    assert_int_equal(strstr(model_kind(r.m), "experts of") != NULL, n > 0);
    tiny_rig_tokens(&r, 3, tokens, PROMPT);
    struct sequence *s = tiny_rig_sequence(&r);
    tiny_rig_prompt(&r, s, tokens, PROMPT, 7, NULL, logits);
    sequence_destroy(s);
    tiny_rig_close(&r);
}

static void same_up_to_rounding(void **state) {
    (void)state;
    static const enum tiny_form forms[] = {TINY_FORM_QWEN3,    TINY_FORM_GEMMA4, TINY_FORM_GLM,
                                           TINY_FORM_DEEPSEEK, TINY_FORM_OSS,    TINY_FORM_LAGUNA};
    struct exec *cpu = open_cpu();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tiny_shape shape = tiny_shape_plain();
        shape.form = forms[i];
        shape.rope_dims = forms[i] == TINY_FORM_QWEN3 ? shape.rope_dims : shape.head_dim / 2;
        tiny_shape_experts(&shape);
        float *plain = calloc(2 * (size_t)shape.vocab, sizeof *plain), *split = plain + shape.vocab;
        answer(&shape, cpu, 0, plain);
        answer(&shape, cpu, 1, split);
        double error = 0, size = 0;
        for (int k = 0; k < shape.vocab; k++) {
            error += pow(plain[k] - split[k], 2);
            size += pow(plain[k], 2);
        }
        assert_true(size > 0 && error <= 1e-10 * size);
        free(plain);
    }
    exec_destroy(cpu);
}

static void counts_and_refuses(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain(), dense = shape;
    struct exec *cpu = open_cpu();
    struct tiny_rig r;
    struct model_plan all, some;
    struct model *m;
    struct err e = {0};
    tiny_shape_experts(&shape);
    struct model_options o = options(cpu, 0);
    tiny_rig_open(&r, &shape, NULL, &o, "auto", 1);
    assert_int_equal(model_plan(&all, NULL, r.x, r.g, &o, &e), 0);
    int layers = all.expert_layers;
    assert_int_equal(layers, shape.layers);
    for (o.cpu_experts = 1; o.cpu_experts <= layers; o.cpu_experts++) {
        assert_int_equal(model_plan(&some, NULL, r.x, r.g, &o, &e), 0);
        assert_int_equal(some.host_bytes * layers, all.expert_bytes * o.cpu_experts);
        assert_int_equal(some.weights + some.host_bytes, all.weights);
        assert_int_equal(some.expert_bytes + some.host_bytes, all.expert_bytes);
        assert_int_equal(some.expert_layers, layers);
        assert_int_equal(some.scratch < all.scratch, o.cpu_experts == layers);
    }
    assert_int_equal(model_plan(&some, NULL, r.x, r.g, &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "layers of this model have experts; use at most"));
    assert_int_equal(model_load(&m, r.x, r.g, &o, &e), ERR_USAGE);
    tiny_rig_close(&r);
    o.cpu_experts = 0;
    tiny_rig_open(&r, &dense, NULL, &o, "auto", 1);
    o.cpu_experts = 1;
    assert_int_equal(model_load(&m, r.x, r.g, &o, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "this model has none"));
    tiny_rig_close(&r);
    exec_destroy(cpu);
}

// After a fault of a device its choices may be anything: nothing is read by them.
static void takes_no_wrong_choice(void **state) {
    (void)state;
    static const int32_t wrong[][2] = {{0, 3}, {-1, 0}, {1 << 30, 1}};
    const struct expert_host_shape shape = {
        .rows = 1, .dim = 32, .ffn = 32, .experts = 3, .used = 2};
    struct exec *cpu = open_cpu();
    struct expert_host *h;
    struct act *in;
    struct err e;
    float rows[32] = {1}, weights[2] = {1, 1}, out[32] = {5};
    assert_int_equal(expert_host_create(&h, cpu, cpu, &shape, &e), 0);
    assert_int_equal(exec_ops(cpu)->act_create(cpu, 1, 32, &in, &e), 0);
    exec_ops(cpu)->to_act(cpu, rows, 1, 32, in);
    for (int i = 0; i < 3; i++) {
        const struct expert_host_call c = {
            .in = in, .n = 1, .ids = wrong[i], .weights = weights, .out = out};
        expert_host_begin(h, &c);
        expert_host_end(h, &c);
        assert_true(out[0] == 5);
    }
    exec_ops(cpu)->act_destroy(cpu, in);
    expert_host_destroy(h);
    exec_destroy(cpu);
}

// A device that reads the rows it is given as late as it may.
static struct rows_in unread; // host NULL: none
static const struct host_rows *cpu_rows;

static void read_late(struct exec *x, const struct rows_in *r) {
    (void)x;
    unread = *r;
}

static int read_now(struct exec *x, struct err *e) {
    (void)e;
    if (unread.host)
        cpu_rows->in(x, &unread);
    unread.host = NULL;
    return 0;
}

static void free_unread(struct exec *x, void *p) {
    (void)x;
    assert_null(unread.host);
    free(p);
}

static void its_memory_stays_until_the_device_has_read_it(void **state) {
    (void)state;
    const struct expert_host_shape shape = {
        .rows = 1, .dim = 32, .ffn = 32, .experts = 3, .used = 2};
    const int32_t none[] = {-1, -1};
    struct exec *x = open_cpu(), *cpu = open_cpu();
    struct copy_backend pinned = copies_at_once();
    struct host_rows rows = *x->host_rows;
    struct expert_host *h;
    struct act *in;
    struct err e;
    float row[32] = {1}, weights[2] = {1, 1}, out[32] = {5};
    cpu_rows = x->host_rows;
    pinned.host_free = free_unread;
    rows.in = read_late;
    x->copies = &pinned;
    x->host_rows = &rows;
    x->status = read_now;
    assert_int_equal(expert_host_create(&h, x, cpu, &shape, &e), 0);
    assert_int_equal(exec_ops(x)->act_create(x, 1, 32, &in, &e), 0);
    exec_ops(x)->to_act(x, row, 1, 32, in);
    const struct expert_host_call c = {
        .in = in, .n = 1, .ids = none, .weights = weights, .out = out, .apart = true};
    expert_host_begin(h, &c);
    expert_host_end(h, &c);
    assert_true(out[0] == 5 && unread.host);
    expert_host_destroy(h);
    assert_true(out[0] == 0);
    exec_ops(x)->act_destroy(x, in);
    exec_destroy(cpu);
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_up_to_rounding),
        cmocka_unit_test(counts_and_refuses),
        cmocka_unit_test(takes_no_wrong_choice),
        cmocka_unit_test(its_memory_stays_until_the_device_has_read_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
