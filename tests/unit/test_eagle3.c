// SPDX-License-Identifier: Apache-2.0
// EAGLE-3 drafts of random models (their numbers: tests/golden/test_golden_mtp.c): what loading
// takes is what was planned, tokens beyond a head's list cannot be guessed, and files and folders
// that do not fit are refused by the key or tensor.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/draft/draft.h"
#include "models/draft/eagle3/impl.h"
#include "support/tiny_rig.h"
#include "unit/bad_files.h"
#include "unit/test.h"

struct scene {
    struct tiny_rig r;
    struct tiny_shape t;
    struct tiny_draft_shape d;
    char path[80], edited[80];
};

static void open_scene(struct scene *c, uint64_t seed) {
    struct model_options o = model_options_default();
    c->t = tiny_shape_default();
    c->d = tiny_draft_default(&c->t);
    c->d.seed = seed;
    tiny_rig_open(&c->r, &c->t, NULL, &o, "auto", 1);
    (void)snprintf(c->path, sizeof c->path, "/tmp/coppice-eagle3-%d.gguf", (int)getpid());
    (void)snprintf(c->edited, sizeof c->edited, "/tmp/coppice-eagle3-%d-e.gguf", (int)getpid());
    if (tiny_eagle3_write(&c->t, &c->d, c->path, &c->r.e))
        fail_msg("%s", c->r.e.text);
}

static void close_scene(struct scene *c) {
    (void)unlink(c->path);
    (void)unlink(c->edited);
    tiny_rig_close(&c->r);
}

static void refuse(struct scene *c, const char *path, int code, const char *word) {
    struct draft *d = NULL;
    int rc = draft_open(&d, c->r.m, &(struct draft_source){.path = path}, &c->r.e);
    if (rc != code || !strstr(c->r.e.text, word))
        fail_msg("%s: code %d, '%s'", word, rc, rc ? c->r.e.text : "taken");
}

// Seeds of all forms that files can have.
static void test_plan(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct scene c;
        struct eagle3 *m = NULL;
        struct draft_plan plan;
        open_scene(&c, seed);
        const struct draft_source s = {.path = c.path};
        const struct model_options *o = &c.r.m->options;
        if (draft_measure(&plan, &(struct draft_plan_args){c.r.x, c.r.g, o, &s}, &c.r.e))
            fail_msg("%s", c.r.e.text);
        const struct eagle3_options eo = {.codec_k = o->codec_k, .codec_v = o->codec_v};
        if (eagle3_load(&m, c.r.m, c.path, &eo, false, &c.r.e))
            fail_msg("%s", c.r.e.text);
        assert_int_equal(plan.weights, m->path.load.weight_bytes);
        assert_int_equal(plan.scratch, m->path.load.buffer_bytes);
        assert_int_equal(plan.kv.of[0].page_bytes, m->path.layout.page_bytes);
        const struct draft_head *head = path_head(&m->path);
        assert_true(draft_head_has(head, 1));
        assert_true(draft_head_has(head, 2) == (head->rows == c.t.vocab)); // lists have odd ones
        eagle3_destroy(m);
        close_scene(&c);
    }
}

// Through the handle: what kind it is, and that a chain can be drafted with it.
static void test_handle(void **state) {
    (void)state;
    struct scene c;
    struct draft *d = NULL;
    const int32_t ids[] = {5, 11, 7};
    open_scene(&c, 1);
    if (draft_open(&d, c.r.m, &(struct draft_source){.path = c.path}, &c.r.e))
        fail_msg("%s", c.r.e.text);
    struct path *path = draft_path(d);
    const struct draft_traits traits = draft_traits(d);
    assert_non_null(path);
    assert_null(draft_dflash(d));
    assert_string_equal(traits.name, "eagle3");
    assert_int_equal(traits.max_depth, PATH_DEPTH);
    assert_true(traits.pass_bytes > 0);
    struct sequence *s = tiny_rig_sequence(&c.r);
    tiny_rig_prompt(&c.r, s, ids, 3, 3, NULL, NULL);
    assert_int_equal(path_begin(path, &s, 1, &c.r.e), 0);
    assert_true(path_ready(path, 0));
    for (int i = 0; i < PATH_DEPTH; i++) {
        const struct path_row row = {0, i - 1, 9 + i};
        assert_int_equal(path_rows(path, &row, 1, &c.r.e), 0);
        assert_non_null(path_logits(path, 0, 1));
    }
    const struct path_row deeper = {0, PATH_DEPTH - 1, 9};
    assert_int_equal(path_rows(path, &deeper, 1, &c.r.e), ERR_USAGE);
    sequence_destroy(s);
    draft_destroy(d);
    close_scene(&c);
}

// Logits of row 0 with this token.
static void first_row(struct scene *c, struct path *d, struct sequence *s, int32_t token,
                      float *out) {
    const struct path_row row = {0, -1, token};
    assert_int_equal(path_begin(d, &s, 1, &c->r.e), 0);
    assert_int_equal(path_rows(d, &row, 1, &c->r.e), 0);
    exec_ops(c->r.x)->download(c->r.x, out, path_logits(d, 0, 1),
                               (size_t)path_head(d)->rows * sizeof *out);
}

// The key and value of a draft's row 0 are kept where its token is committed next: the same numbers
// as of a sequence that has drafted nothing before.
static void test_root(void **state) {
    (void)state;
    enum { N = 70 };
    static float got[TINY_VOCAB], want[TINY_VOCAB];
    int32_t ids[N];
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct scene c;
        struct eagle3 *m = NULL;
        const struct eagle3_options eo = {.codec_k = KV_F32, .codec_v = KV_F32};
        open_scene(&c, seed);
        tiny_rig_tokens(&c.r, 3, ids, N);
        if (eagle3_load(&m, c.r.m, c.path, &eo, false, &c.r.e))
            fail_msg("%s", c.r.e.text);
        struct sequence *s = tiny_rig_sequence(&c.r), *fresh = tiny_rig_sequence(&c.r);
        for (int n = 0; n < N - 1; n++) {
            tiny_rig_prompt(&c.r, s, ids + n, 1, 1, NULL, NULL);
            assert_int_equal(path_state_of(&m->path, s)->absorbed, n);
            first_row(&c, &m->path, s, ids[n + 1], got);
        }
        tiny_rig_prompt(&c.r, fresh, ids, N - 1, N - 1, NULL, NULL);
        first_row(&c, &m->path, fresh, ids[N - 1], want);
        assert_memory_equal(got, want, (size_t)path_head(&m->path)->rows * sizeof *got);
        sequence_destroy(s);
        sequence_destroy(fresh);
        eagle3_destroy(m);
        close_scene(&c);
    }
}

// Another width of its own, a head of some tokens, norms in all places.
enum { FORM = 6 };

static void test_files(void **state) {
    (void)state;
    static const struct bad bad[] = {
        {ERR_MISMATCH,
         "target_hidden_size",
         {.key = "eagle3.target_hidden_size", .kind = GGUF_U32, .value = 32}},
        {ERR_MISMATCH, "vocab_size", {.key = "eagle3.vocab_size", .kind = GGUF_U32, .value = 7}},
        {ERR_MISMATCH,
         "target layer 98",
         {.key = "eagle3.target_layers", .kind = GGUF_ARRAY, .value = 2, .list = {1, 99}}},
        {ERR_UNSUPPORTED,
         "input of layer 0",
         {.key = "eagle3.target_layers", .kind = GGUF_ARRAY, .value = 2, .list = {0, 1}}},
        {ERR_MISMATCH,
         "fc.weight",
         {.key = "eagle3.target_layers", .kind = GGUF_ARRAY, .value = 3, .list = {1, 2, 3}}},
        {ERR_UNSUPPORTED,
         "eagle3.block_count",
         {.key = "eagle3.block_count", .kind = GGUF_U32, .value = 2}},
        {ERR_UNSUPPORTED,
         "feed-forward width of 33",
         {.key = "eagle3.feed_forward_length", .kind = GGUF_U32, .value = 33}},
        {ERR_MISMATCH, "blk.0.attn_norm_2.weight", {.tensor = "blk.0.attn_norm_2.weight"}},
        {ERR_MISMATCH, "fc.weight", {.tensor = "fc.weight"}},
        {ERR_MISMATCH, "output.weight", {.tensor = "output.weight"}},
        {ERR_MISMATCH, "output.weight", {.tensor = "d2t"}},
        {ERR_MISMATCH, "token_embd.weight", {.tensor = "token_embd.weight"}},
        {ERR_UNSUPPORTED,
         "enc.output_norm.weight",
         {.key = "eagle3.norm_before_fc", .kind = GGUF_BOOL, .value = 0}},
    };
    struct scene c;
    open_scene(&c, FORM);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rewrite(c.path, c.edited, &bad[i].edit);
        refuse(&c, c.edited, bad[i].code, bad[i].word);
    }
    close_scene(&c);
}

static void write_folder(const char *dir, const char *config) {
    static const char header[] = "\2\0\0\0\0\0\0\0{}";
    char path[128];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, 10, f), 10);
    fclose(f);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_non_null(f);
    (void)fprintf(f,
                  "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"hidden_size\":64,"
                  "\"target_hidden_size\":%d,\"intermediate_size\":96,\"num_attention_heads\":2,"
                  "\"rope_theta\":10000%s}",
                  (int)tiny_shape_default().dim, config);
    fclose(f);
}

static void test_folders(void **state) {
    (void)state;
    static const struct {
        const char *config, *word;
        int code;
    } bad[] = {
        {",\"fc_norm\":true", "fc_norm", ERR_UNSUPPORTED},
        {",\"hidden_act\":\"gelu\"", "hidden_act gelu", ERR_UNSUPPORTED},
        {",\"layer_types\":[\"sliding_attention\"]", "sliding_attention", ERR_UNSUPPORTED},
        {",\"num_hidden_layers\":2", "num_hidden_layers", ERR_FORMAT},
        {",\"vocab_size\":9", "vocab_size", ERR_MISMATCH},
        {",\"eagle_config\":{\"eagle_aux_hidden_state_layer_ids\":[0,2]}", "input of layer 0",
         ERR_UNSUPPORTED},
        {",\"eagle_aux_hidden_state_layer_ids\":[1,90]", "target layer 90", ERR_MISMATCH},
        {",\"eagle_aux_hidden_state_layer_ids\":[2,90]", "target layer 89", ERR_MISMATCH},
        {",\"eagle_aux_hidden_state_layer_ids\":[]", "must list 1 to 8", ERR_FORMAT},
        {",\"eagle_aux_hidden_state_layer_ids\":[1,2]", "fc.weight", ERR_MISMATCH},
    };
    struct scene c;
    char dir[64], path[128];
    open_scene(&c, FORM);
    (void)snprintf(dir, sizeof dir, "/tmp/coppice-eagle3-%d", (int)getpid());
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_folder(dir, bad[i].config);
        refuse(&c, dir, bad[i].code, bad[i].word);
    }
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    (void)unlink(path);
    (void)rmdir(dir);
    close_scene(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),  cmocka_unit_test(test_handle),  cmocka_unit_test(test_root),
        cmocka_unit_test(test_files), cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
