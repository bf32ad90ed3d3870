// SPDX-License-Identifier: Apache-2.0
// A model whose device share is a few pages gives the bits of one that has all its pages on the
// device: prompts in passes, trees, several sequences in a pass, forks, checkpoints, cuts; each
// kind of attention and class of codecs; copies at once and as late as they may be.
#include <stdlib.h>

#include "base/hash.h"
#include "base/num.h"
#include "models/model_impl.h"
#include "state/host/kv_host.h"
#include "support/copies.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { SHARE = 8, TEXT = 1000, CHUNK = 100 };

// A model with its pages, and what its rows said.
struct run {
    struct tiny_rig r;
    struct kv_budget pages;
    struct kv_host_stats moved;
    int32_t text[TEXT];
    struct hash logits;
    int64_t prompt, share; // tokens of the first one, which are more where pages are chosen; pages
    int64_t streamed;      // passes that read pages in host memory
};

struct variant {
    const char *name;
    struct tiny_shape shape;
    enum kv_codec_id k, v;
    int64_t window; // of replies; below 0: a pool of chosen pages
    bool sparse;    // prompts are read by the rule
};

static void note_logits(struct run *u, int64_t n) {
    float row[TINY_VOCAB];
    for (int g = 0; g < u->r.m->n_groups; g++)
        u->streamed += u->r.m->groups[g].stream && u->r.m->groups[g].stream->on;
    for (int64_t i = 0; i < n; i++) {
        tiny_rig_logits(&u->r, i, 1, row);
        hash_add(&u->logits, row, sizeof row);
    }
}

static void forward(struct run *u, struct sequence **s, int n) {
    if (model_forward(u->r.m, &u->r.f, s, n, &u->r.e))
        fail_msg("%s", u->r.e.text);
    note_logits(u, model_wanted(u->r.m));
}

// Tokens after s, in passes, of which the last rows' logits are noted.
static void read_text(struct run *u, struct sequence *s, int64_t from, int64_t n) {
    for (int64_t at = 0, part; at < n; at += part) {
        part = min_i64(min_i64(n - at, CHUNK), sequence_view_end(s) - sequence_len(s));
        forest_reset(&u->r.f);
        assert_true(forest_chain(&u->r.f, 0, sequence_len(s), u->text + from + at, part, true) >=
                    0);
        forward(u, &s, 1);
    }
}

// A tree of one sequence, of which a path is committed, and a token of the other one.
static void verify(struct run *u, struct sequence *a, struct sequence *b, uint64_t seed) {
    struct sequence *both[] = {a, b};
    const int32_t path[] = {0};
    const int64_t deep = min_i64(4, sequence_view_end(a) - sequence_len(a) - 1);
    tiny_rig_tree(&u->r, a, seed, deep ? 6 : 1, (int)deep);
    for (int64_t i = 0; i < u->r.f.n; i++)
        u->r.f.logits_requested[i] = 1;
    if (b)
        assert_true(forest_chain(&u->r.f, 1, sequence_len(b), u->text + seed, 1, true) >= 0);
    forward(u, both, b ? 2 : 1);
    assert_int_equal(model_commit(u->r.m, both, &(struct model_path){0, path, 1}, 1, &u->r.e), 0);
}

static void set_share(struct run *u, int64_t pages) {
    for (int g = 0; g < u->r.m->n_groups && u->pages.host; g++)
        if (!u->r.m->groups[g].window)
            kv_pool_limit(u->r.m->groups[g].pool, pages);
}

static void script(struct run *u) {
    struct sequence *a = tiny_rig_sequence(&u->r), *b = NULL, *c = tiny_rig_sequence(&u->r);
    struct checkpoint *p = NULL;
    int64_t kept;
    assert_int_equal(sequence_sparse(a, u->prompt, NULL), 0);
    read_text(u, a, 0, u->prompt);
    read_text(u, a, u->prompt, 77);
    for (uint64_t i = 0; i < 10; i++)
        verify(u, a, NULL, i);
    assert_int_equal(sequence_fork(a, &b, &u->r.e), 0);
    read_text(u, b, 500, 90);
    for (uint64_t i = 0; i < 50; i++)
        verify(u, i % 2 ? a : b, i % 2 ? b : a, i);
    assert_int_equal(sequence_checkpoint(b, &p, &u->r.e), 0);
    assert_int_equal(sequence_restore(c, p, &u->r.e), 0);
    checkpoint_destroy(p);
    sequence_destroy(a);
    read_text(u, c, 600, 101);
    verify(u, b, c, 7);
    int64_t to = c->spec.n_recurrent ? sequence_resume(c) : sequence_len(c) / 3;
    assert_int_equal(sequence_truncate(c, to, &kept, &u->r.e), 0);
    read_text(u, c, 100, 30);
    verify(u, c, b, 8);
    sequence_destroy(c);
    set_share(u, 2 * u->share); // what was given up comes back
    for (uint64_t i = 0; i < 10; i++)
        verify(u, b, NULL, i);
    sequence_destroy(b);
}

static void run_script(struct run *u, const struct variant *v, bool host) {
    struct exec *x = NULL;
    struct model_options o = model_options_default();
    memset(u, 0, sizeof *u);
    u->prompt = v->window < 0 ? 640 : 300;
    u->share = v->window < 0 ? SHARE + 2 : SHARE;
    o.codec_k = v->k;
    o.codec_v = v->v;
    o.max_rows = 128;
    o.pages = &u->pages;
    const struct view_options view = {.window = max_i64(v->window, 0),
                                      .pool = max_i64(-v->window, 0)};
    assert_int_equal(view_rule_make(&o.view, &view, NULL), 0);
    if (v->sparse)
        o.sparse = (struct sparse_rule){true, 0.5F, 1, 1};
    assert_int_equal(exec_create_cpu(&x, "auto", 1, NULL), 0);
    if (host)
        assert_int_equal(kv_host_create(&u->pages.host, x, 64 << 20, NULL), 0);
    tiny_rig_open(&u->r, &v->shape, NULL, &o, "auto", 1);
    set_share(u, u->share);
    tiny_rig_tokens(&u->r, 3, u->text, TEXT);
    hash_begin(&u->logits, 0);
    script(u);
    if (host)
        u->moved = kv_host_stats_of(u->pages.host);
    tiny_rig_close(&u->r);
    kv_host_destroy(u->pages.host);
    exec_destroy(x);
}

static struct tiny_shape shape_of(enum tiny_form form, int layers) {
    struct tiny_shape s = tiny_shape_form(form);
    s.layers = layers;
    return s;
}

static struct tiny_shape hybrid(void) {
    struct tiny_shape s = tiny_shape_default();
    s.layers = 10; // five of them attention
    return s;
}

static void test_bits(void **state) {
    (void)state;
    const struct variant all[] = {
        {"hybrid, f32", hybrid(), KV_F32, KV_F32, 0, false},
        {"qwen3, f16 and q8_0", shape_of(TINY_FORM_QWEN3, 5), KV_F16, KV_Q8_0, 0, false},
        {"llama, q4_0", shape_of(TINY_FORM_LLAMA, 4), KV_Q4_0, KV_Q4_0, 0, false},
        {"hybrid, tq3_0", hybrid(), KV_TQ3_0, KV_TQ3_0, 0, false},
        {"gemma4, f16", shape_of(TINY_FORM_GEMMA4, 12), KV_F16, KV_F16, 0, false},
        {"gemma3, q5_1", shape_of(TINY_FORM_GEMMA3, 9), KV_Q5_1, KV_Q4_1, 0, false},
        {"deepseek, f16", shape_of(TINY_FORM_DEEPSEEK, 5), KV_F16, KV_F16, 0, false},
        {"hybrid with a window, f16", hybrid(), KV_F16, KV_F16, 128, false},
        {"hybrid with a pool, f16", hybrid(), KV_F16, KV_F16, -448, false},
        {"llama with a pool, q8_0", shape_of(TINY_FORM_LLAMA, 4), KV_Q8_0, KV_Q8_0, -448, false},
        {"hybrid with sparse prompts, f16", hybrid(), KV_F16, KV_F16, 0, true},
    };
    static struct run whole, share;
    struct late_copies how = {.seed = 9};
    const struct copy_backend late = copies_late(&how);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run_script(&whole, &all[i], false);
        for (int copies = 0; copies < 2; copies++) {
            cpu_copies = copies ? &late : NULL;
            run_script(&share, &all[i], true);
            cpu_copies = NULL;
            if (hash_end(&share.logits) != hash_end(&whole.logits))
                fail_msg("%s: bits differ", all[i].name);
            assert_int_equal(whole.streamed, 0);
            assert_true(share.streamed > (all[i].window < 0 ? 5 : 30));
            assert_true(share.moved.given_up > 5);
            assert_true(share.moved.brought_back > 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
