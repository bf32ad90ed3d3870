// SPDX-License-Identifier: Apache-2.0
// Files of gpt-oss that must not load: a good one with one key or tensor less, or under another
// name, is refused with a sentence that names it.
#include <stdio.h>
#include <unistd.h>

#include "formats/gguf/gguf.h"
#include "golden/tiny_oss.h"
#include "models/model.h"
#include "unit/test.h"

static const struct tiny_target tiny = {.plain = true,
                                        .kind = TINY_OSS,
                                        .vocab = 24,
                                        .hidden = 32,
                                        .layers = 2,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = 32,
                                        .rope = 150000,
                                        .yarn = 32,
                                        .trained = 64,
                                        .gemma.window = 16,
                                        .experts = 3,
                                        .used = 2,
                                        .expert_ffn = 32,
                                        .seed = 1};

// What is left out or called otherwise, and the word in the sentence; NULL: it loads all the same.
static const struct change {
    const char *name, *as, *word;
} changes[] = {
    {"", NULL, NULL},
    {"gpt-oss.rope.freq_base", NULL, NULL},
    {"gpt-oss.expert_count", NULL, "gpt-oss.expert_count is missing"},
    {"gpt-oss.expert_used_count", NULL, "gpt-oss.expert_used_count is missing"},
    {"gpt-oss.attention.sliding_window", NULL, "gpt-oss.attention.sliding_window is missing"},
    {"gpt-oss.rope.scaling.factor", NULL, "gpt-oss.rope.scaling.factor"},
    {"blk.0.attn_sinks.weight", NULL, "blk.0.attn_sinks.weight is missing"},
    {"blk.1.attn_v.bias", NULL, "blk.1.attn_v.bias is missing"},
    {"blk.0.attn_output.bias", NULL, "blk.0.attn_output.bias is missing"},
    {"blk.1.ffn_gate_inp.bias", NULL, "blk.1.ffn_gate_inp.bias is missing"},
    {"blk.1.ffn_down_exps.bias", NULL, "blk.1.ffn_down_exps.bias is missing"},
    {"blk.0.ffn_up_exps.weight", NULL, "blk.0.ffn_up_exps.weight is missing"},
    {"blk.0.post_attention_norm.weight", NULL, "blk.0.post_attention_norm.weight is missing"},
    {"blk.0.attn_norm.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.weight"},
};

static void rewrite_changed(const char *in, const char *out, const struct change *c) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e;
    assert_int_equal(gguf_open(&g, in, &e), 0);
    assert_int_equal(gguf_writer_open(&w, out, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        if (strcmp(gguf_kv_at(g, i)->key, c->name) != 0)
            gguf_put_kv(w, gguf_kv_at(g, i));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < gguf_tensor_count(g); i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            bool it = !strcmp(t->name, c->name);
            if (it && !c->as)
                continue;
            if (pass == 0)
                gguf_add_tensor(w, it ? c->as : t->name, t->type, t->n_dims, t->ne);
            else
                assert_int_equal(gguf_write_data(w, t->data, (size_t)t->bytes, &e), 0);
        }
    assert_int_equal(gguf_writer_close(w, &e), 0);
    gguf_close(g);
}

static void test_changes(void **state) {
    (void)state;
    char good[64], bad[64];
    struct err e = {0};
    struct exec *x;
    struct model_options o = model_options_default();
    o.max_rows = o.max_verify = 32;
    (void)snprintf(good, sizeof good, "/tmp/coppice-oss-%d.gguf", (int)getpid());
    (void)snprintf(bad, sizeof bad, "/tmp/coppice-oss-%d-b.gguf", (int)getpid());
    assert_int_equal(exec_create_cpu(&x, "auto", 1, &e), 0);
    assert_int_equal(tiny_write_oss(&tiny, good, &e), 0);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *c = &changes[i];
        struct model *m = NULL;
        struct gguf *g;
        rewrite_changed(good, bad, c);
        assert_int_equal(gguf_open(&g, bad, &e), 0);
        int rc = model_load(&m, x, g, &o, &e);
        if (!rc != !c->word || (rc && !strstr(e.text, c->word)))
            fail_msg("%s: %d, \"%s\"", c->name, rc, rc ? e.text : "");
        model_destroy(m);
        gguf_close(g);
    }
    exec_destroy(x);
    (void)unlink(good);
    (void)unlink(bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
