// SPDX-License-Identifier: Apache-2.0
// Files with prediction blocks: what is read of them and what that takes, sidecars, heads for some
// tokens, copies of the model's tensors, and what does not fit or is damaged.
#include <stdio.h>
#include <unistd.h>

#include "engine/session/learned.h"
#include "formats/quant/quant.h"
#include "models/draft/draft.h"
#include "unit/bad_files.h"
#include "unit/mtp_scene.h"

// Bytes that a row of the model reads of a file with this tensor alone.
static double bytes_of_tensor(const struct tiny_rig *r, const char *name) {
    static const float row[32];
    const int64_t ne[] = {32, 1};
    struct gguf *g = NULL;
    struct gguf_writer *w;
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/one.gguf", r->dir);
    int rc = gguf_writer_open(&w, path, &e);
    if (!rc) {
        gguf_add_tensor(w, name, TYPE_F32, 2, ne);
        rc = gguf_write_data(w, row, sizeof row, &e);
        rc = gguf_writer_close(w, rc ? NULL : &e) || rc || gguf_open(&g, path, &e);
    }
    if (rc)
        fail_msg("%s", e.text);
    const double bytes = price_row_bytes(g, model_params_of(r->m));
    gguf_close(g);
    unlink(path);
    return bytes;
}

// Of what a row of the model reads the block is no part, and a pass of the block reads a part of
// it.
static void read_by_rows(void **state) {
    (void)state;
    struct tiny_shape t = shape_of(EXPERTS);
    struct tiny_rig with, without;
    tiny_rig_open(&with, &t, NULL, NULL, "scalar", 1);
    t.nextn = 0;
    tiny_rig_open(&without, &t, NULL, NULL, "scalar", 1);
    const struct model_params *p = model_params_of(with.m);
    const struct price_experts a = price_experts_of(with.g, p),
                               b = price_experts_of(without.g, model_params_of(without.m));
    const double row = price_row_bytes(with.g, p);
    assert_int_equal(a.experts, t.experts);
    assert_true(a.share > 0 && a.share == b.share);
    assert_true(row == price_row_bytes(without.g, p));
    assert_true(bytes_of_tensor(&with, "output.weight") == 32 * sizeof(float));
    assert_true(bytes_of_tensor(&with, "output_extra.weight") == 0); // which drafts read
    const struct draft_source source = {.path = DRAFT_OF_TARGET},
                              cut = {.path = DRAFT_OF_TARGET, .vocab = {.rows = 20}};
    struct draft *d;
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(draft_open(&d, with.m, i ? &cut : &source, &with.e), 0);
        bytes[i] = draft_traits(d).pass_bytes;
        draft_destroy(d);
    }
    assert_true(bytes[0] > row / 8 && bytes[0] < row); // of four layers and a head
    assert_true(bytes[0] - bytes[1] == 277 * t.dim * 4.0);
    tiny_rig_close(&with);
    tiny_rig_close(&without);
}

// What a plan says is what is taken.
static void planned(void **state) {
    (void)state;
    for (int i = 0; i < 2 * KINDS; i++) {
        const enum kind k = (enum kind)(i % KINDS);
        const struct tiny_shape t = shape_of(k);
        const struct draft_source source = {.path = DRAFT_OF_TARGET,
                                            .vocab = {.rows = i < KINDS ? 0 : 20}};
        struct tiny_rig r;
        struct draft *d;
        struct draft_plan p;
        struct str words = {0};
        struct model_options o = model_options_default();
        tiny_rig_open(&r, &t, NULL, &o, "auto", 1);
        const struct draft_plan_args args = {r.x, r.g, &o, &source};
        assert_int_equal(draft_measure(&p, &args, &r.e), 0);
        assert_int_equal(draft_open(&d, r.m, &source, &r.e), 0);
        const struct draft_traits traits = draft_traits(d);
        const struct mtp *m = r.m->readers[0].kind->owner;
        assert_int_equal(p.weights, m->path.load.weight_bytes);
        assert_int_equal(p.scratch, m->path.load.buffer_bytes);
        assert_int_equal(p.kv.of[0].page_bytes, m->path.layout.page_bytes);
        assert_int_equal(p.pending, 64 * t.dim * 4);
        assert_true(traits.depends == DRAFT_BY_PATH && traits.max_depth == PATH_DEPTH);
        draft_describe(d, &words);
        assert_non_null(strstr(words.data, k == BARE ? "attention only" : "mtp block 4"));
        assert_true((strstr(words.data, ", 23 of 300 tokens") != NULL) == (i >= KINDS));
        str_fini(&words);
        draft_destroy(d);
        assert_int_equal(r.m->n_readers, 0);
        tiny_rig_close(&r);
    }
}

// Files whose block does not fit; the model without a draft loads from each.
static const struct bad blocks[] = {
    {0, "", {0}},
    {ERR_MISMATCH, "blk.4.nextn.enorm.weight is missing", {.tensor = "blk.4.nextn.enorm.weight"}},
    {ERR_MISMATCH, "blk.4.nextn.hnorm.weight is missing", {.tensor = "blk.4.nextn.hnorm.weight"}},
    {ERR_MISMATCH, "blk.4.attn_norm.weight is missing", {.tensor = "blk.4.attn_norm.weight"}},
    {ERR_MISMATCH, "blk.4.attn_q.weight is missing", {.tensor = "blk.4.attn_q.weight"}},
    {ERR_MISMATCH, "blk.4.ffn_up.weight is missing", {.tensor = "blk.4.ffn_up.weight"}},
    {ERR_MISMATCH,
     "blk.4.attn_output.weight is [128, 32]",
     {.tensor = "blk.4.attn_output.weight", .rows = 32}},
    {ERR_MISMATCH, "[128, 32]", {.tensor = "blk.4.nextn.eh_proj.weight", .rows = 32}},
};

static void try_block(const struct scene *c, const char *path, const struct bad *b) {
    struct gguf *g;
    struct model *m;
    struct draft *d = NULL;
    struct err e = {0};
    struct model_options o = model_options_default();
    const struct draft_source source = {.path = DRAFT_OF_TARGET};
    const struct draft_plan_args args = {c->r.x, NULL, &o, &source};
    struct draft_plan_args with = args;
    struct draft_plan plan;
    assert_int_equal(gguf_open(&g, path, &e), 0);
    with.target = g;
    assert_int_equal(model_load(&m, c->r.x, g, &o, &e), 0);
    for (int dry = 0; dry < 2; dry++) {
        int rc = dry ? draft_measure(&plan, &with, &e) : draft_open(&d, m, &source, &e);
        if (rc != b->code || (rc && !strstr(e.text, b->word)))
            fail_msg("%s: %d %s", b->word, rc, e.text);
    }
    if (!b->code)
        draft_destroy(d);
    model_destroy(m);
    gguf_close(g);
}

static void refuses_blocks(void **state) {
    (void)state;
    struct scene c;
    char path[128];
    open_scene(&c, DENSE);
    snprintf(path, sizeof path, "%s/edited.gguf", c.r.dir);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        rewrite(c.r.target_path, path, &blocks[i].edit);
        try_block(&c, path, &blocks[i]);
    }
    unlink(path);
    struct tiny_shape t = shape_of(DENSE);
    const struct bad none = {ERR_MISMATCH, "has no draft in it", {0}};
    const struct bad two = {ERR_UNSUPPORTED, "qwen35.nextn_predict_layers", {0}};
    for (t.nextn = 0; t.nextn < 3; t.nextn += 2) {
        assert_int_equal(tiny_target_write(&t, path, &c.r.e), 0);
        try_block(&c, path, t.nextn ? &two : &none);
    }
    unlink(path);
    // Only one reader of a kind.
    struct mtp *again;
    const struct mtp_options deep = {.depth = PATH_MAX_DEPTH + 1}, o = mtp_options_default();
    assert_int_equal(mtp_load(&again, c.r.m, DRAFT_OF_TARGET, &o, false, &c.r.e), ERR_STATE);
    mtp_destroy(c.m);
    assert_int_equal(mtp_load(&again, c.r.m, DRAFT_OF_TARGET, &deep, false, &c.r.e), ERR_USAGE);
    c.m = NULL;
    close_scene(&c);
}

// Files of the block alone: the same bits, and those that are not this target's.
static void sidecars(void **state) {
    (void)state;
    static float want[2 * ROW], got[2 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        char path[128];
        struct mtp *own;
        struct gguf *g;
        open_scene(&c, k);
        snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
        must(&c, tiny_sidecar_write(&c.r.shape, path, &c.r.e));
        must(&c, gguf_open(&g, path, &c.r.e));
        assert_true(mtp_sidecar(g) && !mtp_sidecar(c.r.g) && mtp_in_file(c.r.g, NULL));
        gguf_close(g);
        struct sequence *s = text(&c, 40, 40);
        chain(&c, s, guesses, 2, want);
        sequence_destroy(s);
        own = c.m;
        const struct mtp_options o = own->options;
        mtp_destroy(own);
        must(&c, mtp_load(&c.m, c.r.m, path, &o, false, &c.r.e));
        s = text(&c, 40, 40);
        chain(&c, s, guesses, 2, got);
        assert_memory_equal(want, got, sizeof want);
        sequence_destroy(s);
        close_scene(&c);
        unlink(path);
    }
}

static void refuses_sidecars(void **state) {
    (void)state;
    struct scene c;
    struct mtp *other = NULL;
    char path[128];
    const struct mtp_options o = mtp_options_default();
    open_scene(&c, DENSE);
    mtp_destroy(c.m);
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    struct tiny_shape glm = shape_of(GLM), wide = shape_of(DENSE), words = shape_of(DENSE);
    wide.dim = 128;
    words.vocab = 320;
    const struct {
        const struct tiny_shape *shape;
        const char *word;
    } cases[] = {{&glm, "of architecture glm4moe and the target of qwen35"},
                 {&wide, "qwen35.embedding_length of the prediction block is 128"},
                 {&words, "for a vocabulary of 320 tokens and the target has 300"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(&c, tiny_sidecar_write(cases[i].shape, path, &c.r.e));
        assert_int_equal(mtp_load(&other, c.r.m, path, &o, false, &c.r.e), ERR_MISMATCH);
        if (!strstr(c.r.e.text, cases[i].word))
            fail_msg("%s", c.r.e.text);
    }
    assert_int_equal(mtp_load(&other, c.r.m, "/no/such/file", &o, false, &c.r.e), ERR_IO);
    assert_int_equal(c.r.m->n_readers, 0);
    unlink(path);
    c.m = NULL;
    close_scene(&c);
}

// The scene's block alone, under another number.
static void write_renumbered(struct scene *c, const char *path, const char *number) {
    struct gguf_writer *w;
    char name[128];
    must(c, gguf_writer_open(&w, path, &c->r.e));
    for (size_t i = 0; i < gguf_kv_count(c->r.g); i++)
        gguf_put_kv(w, gguf_kv_at(c->r.g, i));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < gguf_tensor_count(c->r.g); i++) {
            const struct tensor *t = gguf_tensor_at(c->r.g, i);
            if (strncmp(t->name, "blk.4.", 6) != 0)
                continue;
            snprintf(name, sizeof name, "blk.%s.%s", number, t->name + 6);
            if (pass == 0)
                gguf_add_tensor(w, name, t->type, t->n_dims, t->ne);
            else
                must(c, gguf_write_data(w, t->data, (size_t)t->bytes, &c->r.e));
        }
    must(c, gguf_writer_close(w, &c->r.e));
}

// Numbers with zeros in front, by which no tensor is looked up, are of no block.
static void padded_number(void **state) {
    (void)state;
    struct scene c;
    struct gguf *g;
    struct mtp *m = NULL;
    char path[128];
    open_scene(&c, DENSE);
    const struct mtp_options o = c.m->options;
    mtp_destroy(c.m);
    c.m = NULL;
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    static const char *const numbers[] = {"04", "00"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        write_renumbered(&c, path, numbers[i]);
        must(&c, gguf_open(&g, path, &c.r.e));
        assert_false(mtp_in_file(g, NULL) || mtp_sidecar(g));
        gguf_close(g);
        assert_int_equal(mtp_load(&m, c.r.m, path, &o, false, &c.r.e), ERR_MISMATCH);
        assert_non_null(strstr(c.r.e.text, "has no tensor blk.4.nextn.eh_proj.weight"));
    }
    unlink(path);
    close_scene(&c);
}

// The block of a sidecar may be numbered from 0.
static void renumbered(void **state) {
    (void)state;
    static float want[ROW], got[ROW];
    struct scene c;
    struct gguf *g;
    char path[128];
    open_scene(&c, DENSE);
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    const struct mtp_options o = c.m->options;
    write_renumbered(&c, path, "0");
    must(&c, gguf_open(&g, path, &c.r.e));
    assert_true(mtp_sidecar(g));
    gguf_close(g);
    struct sequence *s = text(&c, 40, 40);
    chain(&c, s, guesses, 1, want);
    sequence_destroy(s);
    mtp_destroy(c.m);
    must(&c, mtp_load(&c.m, c.r.m, path, &o, false, &c.r.e));
    assert_int_equal(mtp_block(c.m), 0);
    s = text(&c, 40, 40);
    chain(&c, s, guesses, 1, got);
    assert_memory_equal(want, got, sizeof want);
    sequence_destroy(s);
    unlink(path);
    close_scene(&c);
}

// A sidecar in the model's place.
static void refuses_sidecar_as_model(void **state) {
    (void)state;
    struct scene c;
    struct gguf *g;
    struct model *m = NULL;
    struct model_options o = model_options_default();
    char path[128];
    open_scene(&c, DENSE);
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    must(&c, tiny_sidecar_write(&c.r.shape, path, &c.r.e));
    must(&c, gguf_open(&g, path, &c.r.e));
    assert_int_equal(model_load(&m, c.r.x, g, &o, &c.r.e), ERR_UNSUPPORTED);
    assert_non_null(strstr(c.r.e.text, "blk.4.nextn.eh_proj.weight), but not its model"));
    gguf_close(g);
    unlink(path);
    close_scene(&c);
}

// A file whose metadata counts the block among the layers: it would be computed as one.
static void refuses_counted_block(void **state) {
    (void)state;
    struct scene c;
    struct gguf *g;
    struct gguf_writer *w;
    struct model *m = NULL;
    struct model_options o = model_options_default();
    char path[128];
    open_scene(&c, GLM);
    snprintf(path, sizeof path, "%s/counted.gguf", c.r.dir);
    must(&c, gguf_writer_open(&w, path, &c.r.e));
    for (size_t i = 0; i < gguf_kv_count(c.r.g); i++)
        if (!strstr(gguf_kv_at(c.r.g, i)->key, "nextn_predict_layers"))
            gguf_put_kv(w, gguf_kv_at(c.r.g, i));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < gguf_tensor_count(c.r.g); i++) {
            const struct tensor *t = gguf_tensor_at(c.r.g, i);
            if (pass == 0)
                gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
            else
                must(&c, gguf_write_data(w, t->data, (size_t)t->bytes, &c.r.e));
        }
    must(&c, gguf_writer_close(w, &c.r.e));
    must(&c, gguf_open(&g, path, &c.r.e));
    assert_int_equal(model_load(&m, c.r.x, g, &o, &c.r.e), ERR_MISMATCH);
    assert_non_null(strstr(c.r.e.text, "glm4moe.nextn_predict_layers it is one of the"));
    gguf_close(g);
    unlink(path);
    close_scene(&c);
}

// The file `in` with copies of the embedding and the head in the block.
static void write_copies(const char *in, const char *out) {
    static const char *const names[][2] = {
        {"token_embd.weight", "blk.4.nextn.embed_tokens.weight"},
        {"output.weight", "blk.4.nextn.shared_head_head.weight"}};
    struct gguf *g;
    struct gguf_writer *w;
    struct err e;
    const struct tensor *t[2];
    assert_int_equal(gguf_open(&g, in, &e), 0);
    assert_int_equal(gguf_writer_open(&w, out, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *one = gguf_tensor_at(g, i);
        gguf_add_tensor(w, one->name, one->type, one->n_dims, one->ne);
    }
    for (int i = 0; i < 2; i++) {
        t[i] = gguf_tensor(g, names[i][0]);
        gguf_add_tensor(w, names[i][1], t[i]->type, t[i]->n_dims, t[i]->ne);
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *one = gguf_tensor_at(g, i);
        assert_int_equal(gguf_write_data(w, one->data, (size_t)one->bytes, &e), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(gguf_write_data(w, t[i]->data, (size_t)t[i]->bytes, &e), 0);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    gguf_close(g);
}

// Copies take no memory a second time; an embedding and a head of the block's own do, and are used.
static void copies_are_shared(void **state) {
    (void)state;
    struct scene c, own;
    struct gguf *g;
    struct model *m;
    struct mtp *copies;
    char path[128];
    const struct mtp_options o = mtp_options_default();
    struct model_options mo = model_options_default();
    open_scene(&c, DENSE);
    open_scene(&own, OWN);
    snprintf(path, sizeof path, "%s/copies.gguf", c.r.dir);
    write_copies(c.r.target_path, path);
    must(&c, gguf_open(&g, path, &c.r.e));
    must(&c, model_load(&m, c.r.x, g, &mo, &c.r.e));
    must(&c, mtp_load(&copies, m, DRAFT_OF_TARGET, &o, false, &c.r.e));
    assert_int_equal(copies->path.load.weight_bytes, c.m->path.load.weight_bytes);
    assert_ptr_equal(copies->path.head.w, m->head);
    assert_int_not_equal(own.m->path.load.weight_bytes, c.m->path.load.weight_bytes);
    assert_ptr_not_equal(own.m->path.head.w, own.r.m->head);
    assert_ptr_not_equal(own.m->embed, own.r.m->embed);
    mtp_destroy(copies);
    model_destroy(m);
    gguf_close(g);
    unlink(path);
    close_scene(&own);
    close_scene(&c);
}

// A sidecar whose head has rows of some tokens only, in an order of its own, which d2t (of that
// type) names.
static void write_trained(const struct scene *c, const char *out, uint32_t type,
                          const int32_t *tokens, int n) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e;
    char path[128];
    const struct tensor *head = gguf_tensor(c->r.g, "output.weight");
    const int64_t ne[] = {head->ne[0], n}, list[] = {n};
    const size_t row = (size_t)(head->bytes / head->ne[1]);
    snprintf(path, sizeof path, "%s/whole.gguf", c->r.dir);
    assert_int_equal(tiny_sidecar_write(&c->r.shape, path, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(gguf_writer_open(&w, out, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < gguf_tensor_count(g); i++) {
            const struct tensor *t = gguf_tensor_at(g, i);
            if (!strcmp(t->name, "output.weight"))
                continue;
            if (pass == 0)
                gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
            else
                assert_int_equal(gguf_write_data(w, t->data, (size_t)t->bytes, &e), 0);
            if (pass == 0 && i + 1 == gguf_tensor_count(g)) {
                gguf_add_tensor(w, "output.weight", head->type, 2, ne);
                gguf_add_tensor(w, "d2t", type, 1, list);
            }
        }
    for (int i = 0; i < n; i++) // also of a token that there is not
        assert_int_equal(gguf_write_data(w,
                                         (const char *)head->data +
                                             row * (size_t)(tokens[i] < ROW ? tokens[i] : 0),
                                         row, &e),
                         0);
    for (int i = 0; i < n; i++) {
        const int64_t wide = tokens[i];
        const bool half = type != TYPE_I64;
        assert_int_equal(gguf_write_data(w, half ? (const void *)&tokens[i] : &wide,
                                         half ? sizeof tokens[i] : sizeof wide, &e),
                         0);
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
    gguf_close(g);
    unlink(path);
}

// Heads that were trained for some tokens score these; lists that make no sense are refused.
static void trained_heads(void **state) {
    (void)state;
    enum { N = 5 };
    static const int32_t tokens[N] = {250, 3, 299, 17, 0}, twice[N] = {1, 2, 3, 4, 2},
                         beyond[N] = {1, 2, ROW, 4, 5}, sorted[N] = {0, 3, 17, 250, 299};
    static float want[ROW], got[N];
    struct scene c;
    char path[128];
    open_scene(&c, DENSE);
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    struct mtp_options o = c.m->options;
    struct sequence *s = text(&c, 40, 40);
    chain(&c, s, guesses, 1, want);
    sequence_destroy(s);
    mtp_destroy(c.m);
    o.vocab.rows = 100; // is about whole heads
    for (int wide = 0; wide < 2; wide++) {
        write_trained(&c, path, wide ? TYPE_I64 : TYPE_I32, tokens, N);
        must(&c, mtp_load(&c.m, c.r.m, path, &o, false, &c.r.e));
        s = text(&c, 40, 40);
        assert_int_equal(path_head(mtp_path(c.m))->rows, N);
        assert_memory_equal(path_head(mtp_path(c.m))->ids, sorted, sizeof sorted);
        const struct path_row row = {0, -1, guesses[0]};
        must(&c, path_begin(mtp_path(c.m), &s, 1, &c.r.e));
        must(&c, path_rows(mtp_path(c.m), &row, 1, &c.r.e));
        exec_ops(c.r.x)->download(c.r.x, got, path_logits(mtp_path(c.m), 0, 1), sizeof got);
        for (int i = 0; i < N; i++)
            assert_true(got[i] == want[sorted[i]]);
        sequence_destroy(s);
        mtp_destroy(c.m);
    }
    for (int i = 0; i < 3; i++) {
        write_trained(&c, path, i < 2 ? TYPE_I32 : TYPE_F32, i ? beyond : twice, N);
        assert_int_equal(mtp_load(&c.m, c.r.m, path, &o, false, &c.r.e), ERR_FORMAT);
        assert_non_null(strstr(c.r.e.text, "d2t must have 5 different tokens"));
    }
    unlink(path);
    c.m = NULL;
    close_scene(&c);
}

// Rows that are copied come from the sidecar where its head takes fewer bytes.
static void smaller_heads(void **state) {
    (void)state;
    struct scene c;
    char path[128];
    open_scene(&c, DENSE);
    snprintf(path, sizeof path, "%s/mtp.gguf", c.r.dir);
    struct tiny_shape small = shape_of(DENSE);
    struct mtp_options o = c.m->options;
    const int64_t whole = c.m->path.load.weight_bytes;
    small.type = TYPE_Q8_0;
    must(&c, tiny_sidecar_write(&small, path, &c.r.e));
    for (int cut = 0; cut < 2; cut++) {
        mtp_destroy(c.m);
        o.vocab.rows = cut ? 100 : 0;
        must(&c, mtp_load(&c.m, c.r.m, path, &o, false, &c.r.e));
        assert_true(c.m->own_output);
        assert_true((c.m->path.head.w == c.r.m->head) == !cut);
        assert_true(c.m->path.load.weight_bytes < whole);
    }
    unlink(path);
    close_scene(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned),
        cmocka_unit_test(refuses_blocks),
        cmocka_unit_test(sidecars),
        cmocka_unit_test(refuses_sidecars),
        cmocka_unit_test(refuses_sidecar_as_model),
        cmocka_unit_test(padded_number),
        cmocka_unit_test(refuses_counted_block),
        cmocka_unit_test(copies_are_shared),
        cmocka_unit_test(read_by_rows),
        cmocka_unit_test(trained_heads),
        cmocka_unit_test(smaller_heads),
        cmocka_unit_test(renumbered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
