// SPDX-License-Identifier: Apache-2.0
// Prediction blocks of random models (their numbers: tests/golden/test_golden_mtp.c): rows of a
// tree are those of the chains it consists of, sequences that draft together get what each gets
// alone, and a state that grew in any pieces, was cut, saved, forked or read back drafts as a fresh
// one does; to the bit, all of it. Then what does not fit, is damaged, or has no room.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/session/learned.h"
#include "formats/quant/quant.h"
#include "models/checkpoint.h"
#include "models/draft/draft.h"
#include "models/draft/mtp/impl.h"
#include "ops/exec.h"
#include "support/bytes.h"
#include "support/tiny_rig.h"
#include "unit/bad_files.h"
#include "unit/test.h"

enum { LONG = 300, ROW = TINY_VOCAB };

// Kinds of targets: attention between recurrent layers, dense and with experts; attention only,
// with keys of heads and with latents; a block without a feed-forward part, and with an embedding
// and a head of its own.
enum kind { DENSE, EXPERTS, GLM, LATENT, BARE, OWN, KINDS };

static struct tiny_shape shape_of(enum kind k) {
    struct tiny_shape t = k == GLM      ? tiny_shape_form(TINY_FORM_GLM)
                          : k == LATENT ? tiny_shape_form(TINY_FORM_DEEPSEEK)
                                        : tiny_shape_default();
    if (k == EXPERTS)
        tiny_shape_experts(&t);
    t.nextn = 1;
    t.nextn_bare = k == BARE;
    t.nextn_own = k == OWN;
    t.seed = k == OWN ? 5 : 1; // 5: no norm of its own
    return t;
}

struct scene {
    struct tiny_rig r;
    struct mtp *m;
    int32_t tokens[LONG];
};

static void open_scene_as(struct scene *c, const struct tiny_shape *t, int max_rows, int tokens) {
    struct model_options o = model_options_default();
    o.codec_k = o.codec_v = KV_F32;
    o.max_rows = o.max_verify = max_rows;
    struct mtp_options mo = {.codec_k = KV_F32, .codec_v = KV_F32, .vocab = {.rows = tokens}};
    tiny_rig_open(&c->r, t, NULL, &o, "auto", 1);
    if (mtp_load(&c->m, c->r.m, DRAFT_OF_TARGET, &mo, false, &c->r.e))
        fail_msg("%s", c->r.e.text);
    tiny_rig_tokens(&c->r, 3, c->tokens, LONG);
}

static void open_scene(struct scene *c, enum kind k) {
    const struct tiny_shape t = shape_of(k);
    open_scene_as(c, &t, 160,
                  0); // pieces longer than what waits, and than what is absorbed at once
}

static void close_scene(struct scene *c) {
    mtp_destroy(c->m);
    tiny_rig_close(&c->r);
}

static void must(struct scene *c, int rc) {
    if (rc)
        fail_msg("%s", c->r.e.text);
}

static void fetch(struct scene *c, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const float *row = path_logits(mtp_path(c->m), first + i, 1);
        assert_non_null(row);
        exec_ops(c->r.x)->download(c->r.x, out + i * ROW, row, ROW * sizeof *out);
    }
}

// A sequence with the first n tokens, in pieces of `chunk`.
static struct sequence *text(struct scene *c, int64_t n, int64_t chunk) {
    struct sequence *s = tiny_rig_sequence(&c->r);
    tiny_rig_prompt(&c->r, s, c->tokens, n, chunk, NULL, NULL);
    return s;
}

// Logits of a chain of rows with these tokens.
static void chain(struct scene *c, struct sequence *s, const int32_t *tokens, int n, float *out) {
    must(c, path_begin(mtp_path(c->m), &s, 1, &c->r.e));
    assert_true(path_ready(mtp_path(c->m), 0));
    for (int i = 0; i < n; i++) {
        const struct path_row row = {0, i - 1, tokens[i]};
        must(c, path_rows(mtp_path(c->m), &row, 1, &c->r.e));
        fetch(c, 0, 1, out + i * ROW);
    }
}

static const int32_t guesses[] = {5, 11, 7, 250, 9, 30};

// The same, compared with a fresh sequence of the first n tokens.
static void drafts_as_fresh(struct scene *c, struct sequence *s, const char *what) {
    static float want[3 * ROW], got[3 * ROW];
    assert_memory_equal(sequence_tokens(s), c->tokens, (size_t)sequence_len(s) * sizeof(int32_t));
    struct sequence *fresh = text(c, sequence_len(s), 150);
    chain(c, fresh, guesses, 3, want);
    chain(c, s, guesses, 3, got);
    if (memcmp(want, got, sizeof want) != 0)
        fail_msg("%s: a sequence of %lld tokens drafts otherwise than a fresh one", what,
                 (long long)sequence_len(s));
    sequence_destroy(fresh);
}

// Two first guesses, with two and one below them, and one more below: four passes.
static void rows_of_trees(void **state) {
    (void)state;
    static float one[3 * ROW], two[4 * ROW], tree[7 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        open_scene(&c, k);
        struct sequence *s = text(&c, 100, 70);
        const int32_t a[] = {5, 11, 7}, b[] = {5, 20, 9, 8};
        chain(&c, s, a, 3, one);
        chain(&c, s, b, 4, two);
        must(&c, path_begin(mtp_path(c.m), &s, 1, &c.r.e));
        const struct path_row level[4][3] = {
            {{0, -1, 5}}, {{0, 0, 11}, {0, 0, 20}}, {{0, 1, 7}, {0, 2, 3}, {0, 2, 9}}, {{0, 5, 8}}};
        const int n[] = {1, 2, 3, 1};
        for (int i = 0, at = 0; i < 4; at += n[i++]) {
            must(&c, path_rows(mtp_path(c.m), level[i], n[i], &c.r.e));
            fetch(&c, 0, n[i], tree + at * ROW);
        }
        const size_t row = ROW * sizeof(float);
        assert_memory_equal(tree, one, row);
        assert_memory_equal(tree + 1 * ROW, one + 1 * ROW, row);
        assert_memory_equal(tree + 3 * ROW, one + 2 * ROW, row);
        assert_memory_equal(tree + 2 * ROW, two + 1 * ROW, row);
        assert_memory_equal(tree + 5 * ROW, two + 2 * ROW, row);
        assert_memory_equal(tree + 6 * ROW, two + 3 * ROW, row);
        assert_memory_not_equal(tree + 4 * ROW, tree + 5 * ROW, row);
        drafts_as_fresh(&c, s, "after a tree");
        sequence_destroy(s);
        close_scene(&c);
    }
}

// Chains and a tree of four sequences, one of which has no tokens and drafts nothing.
static void together_as_alone(void **state) {
    (void)state;
    enum { N = 4 };
    static const int64_t len[N] = {65, 0, 20, 130};
    static float alone[N][2 * ROW], all[5 * ROW];
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        struct sequence *s[N];
        open_scene(&c, k);
        for (int i = 0; i < N; i++) {
            s[i] = text(&c, len[i], 33);
            const int32_t own[] = {guesses[i], guesses[i + 1]};
            if (len[i])
                chain(&c, s[i], own, 2, alone[i]);
        }
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        for (int i = 0; i < N; i++)
            assert_int_equal(path_ready(mtp_path(c.m), i), len[i] > 0);
        const struct path_row first[] = {{0, -1, 5}, {2, -1, 7}, {3, -1, 250}};
        const struct path_row more[] = {{0, 0, 11}, {2, 0, 250}, {2, 0, 2}, {3, 0, 9}};
        must(&c, path_rows(mtp_path(c.m), first, 3, &c.r.e));
        fetch(&c, 0, 3, all);
        assert_memory_equal(all, alone[0], ROW * sizeof(float));
        assert_memory_equal(all + ROW, alone[2], ROW * sizeof(float));
        assert_memory_equal(all + 2 * ROW, alone[3], ROW * sizeof(float));
        must(&c, path_rows(mtp_path(c.m), more, 4, &c.r.e));
        fetch(&c, 0, 4, all);
        assert_memory_equal(all, alone[0] + ROW, ROW * sizeof(float));
        assert_memory_equal(all + ROW, alone[2] + ROW, ROW * sizeof(float));
        assert_memory_equal(all + 3 * ROW, alone[3] + ROW, ROW * sizeof(float));
        const struct path_row none = {1, -1, 3}, early = {0, 7, 3}, beyond = {0, 1, ROW};
        assert_int_equal(path_rows(mtp_path(c.m), &none, 1, &c.r.e), ERR_USAGE);
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        assert_int_equal(path_rows(mtp_path(c.m), &early, 1, &c.r.e), ERR_USAGE);
        must(&c, path_begin(mtp_path(c.m), s, N, &c.r.e));
        assert_int_equal(path_rows(mtp_path(c.m), &beyond, 1, &c.r.e), ERR_USAGE);
        for (int i = 0; i < N; i++)
            sequence_destroy(s[i]);
        close_scene(&c);
    }
}

// The first n tokens in pieces of many sizes, with drafts between them.
static struct sequence *grown(struct scene *c, int64_t n, int64_t step) {
    static float some[2 * ROW];
    struct sequence *s = tiny_rig_sequence(&c->r);
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < step ? n - at : step;
        tiny_rig_prompt(&c->r, s, c->tokens + at, part, part, NULL, NULL);
        if (step % 3 == 0)
            chain(c, s, guesses + 3, 2, some);
        step = 1 + step * 5 % 71;
    }
    return s;
}

// Lengths around pages and around what waits.
static void grows_in_any_pieces(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 31, 63, 64, 65, 66, 127, 128, 129, 192, 250};
    for (enum kind k = 0; k < KINDS; k++) {
        struct scene c;
        open_scene(&c, k);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct sequence *s = grown(&c, lengths[i], 1 + (int64_t)i);
            drafts_as_fresh(&c, s, "grown in pieces");
            sequence_destroy(s);
        }
        close_scene(&c);
    }
}

// Runs the tokens from the sequence's length to n.
static void run_to(struct scene *c, struct sequence *s, int64_t n) {
    const int64_t at = sequence_len(s);
    tiny_rig_prompt(&c->r, s, c->tokens + at, n - at, 40, NULL, NULL);
}

// Back by less than what the tail has, after other tokens.
static void goes_back(void **state) {
    (void)state;
    static float some[2 * ROW];
    for (enum kind k = 0; k < KINDS; k++)
        for (int64_t len = 70; len < 200; len += 31) {
            struct scene c;
            int64_t kept = 0;
            open_scene(&c, k);
            struct sequence *s = text(&c, len, 50);
            const int32_t others[] = {9, 8, 7, 6};
            const int64_t base = len / 32 * 32;
            tiny_rig_prompt(&c.r, s, others, 4, 4, NULL, NULL);
            if (len % 2)
                chain(&c, s, guesses, 2, some);
            must(&c, sequence_truncate(s, base, &kept, &c.r.e));
            if (kept != base) // the other tokens have come to a new base
                assert_int_equal(kept, 0);
            run_to(&c, s, len);
            drafts_as_fresh(&c, s, "cut back");
            must(&c, sequence_truncate(s, 0, &kept, &c.r.e));
            run_to(&c, s, 3);
            drafts_as_fresh(&c, s, "emptied");
            sequence_destroy(s);
            close_scene(&c);
        }
}

// Far back, where attention alone allows it: the newest hidden state is gone, the draft still is
// one, and all but the key of that position is as before.
static void goes_far_back(void **state) {
    (void)state;
    static float some[3 * ROW], want[ROW], got[ROW];
    for (enum kind k = GLM; k <= LATENT; k++) {
        struct scene c;
        int64_t kept = 0;
        open_scene(&c, k);
        struct sequence *s = text(&c, 250, 100), *fresh = text(&c, 50, 50), *copy = NULL;
        must(&c, sequence_truncate(s, 50, &kept, &c.r.e));
        assert_int_equal(kept, 50);
        must(&c, sequence_fork(s, &copy, &c.r.e));
        chain(&c, s, guesses, 3, some);
        for (int i = 0; i < 3 * ROW; i++)
            assert_true(some[i] == some[i] && some[i] - some[i] == 0);
        tiny_rig_prompt(&c.r, s, guesses, 1, 1, NULL, got);
        tiny_rig_prompt(&c.r, fresh, guesses, 1, 1, NULL, want);
        assert_memory_equal(got, want, sizeof want);
        // After another cut to where the tail is whole again.
        run_to(&c, copy, 130);
        must(&c, sequence_truncate(copy, 128, &kept, &c.r.e));
        must(&c, sequence_truncate(copy, 0, &kept, &c.r.e));
        run_to(&c, copy, 90);
        drafts_as_fresh(&c, copy, "after a far cut and none");
        sequence_destroy(s);
        sequence_destroy(copy);
        sequence_destroy(fresh);
        close_scene(&c);
    }
}

// Checkpoints restored, also below what they have, as bytes into a second model, and forks.
static void saved_and_forked(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 33, 64, 65, 130, 200};
    static float some[2 * ROW];
    for (enum kind k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct scene c, d;
            struct checkpoint *p = NULL, *q = NULL;
            struct sequence *fork = NULL;
            int64_t kept = 0, len = lengths[i];
            open_scene(&c, k);
            open_scene(&d, k);
            struct sequence *s = text(&c, len, 60), *t = tiny_rig_sequence(&d.r);
            if (i % 2)
                chain(&c, s, guesses, 2, some);
            must(&c, sequence_checkpoint(s, &p, &c.r.e));
            must(&c, sequence_fork(s, &fork, &c.r.e));
            drafts_as_fresh(&c, fork, "forked");
            run_to(&c, s, len + 70);
            drafts_as_fresh(&c, s, "origin of a fork");
            struct bytes b = {0};
            struct checkpoint_sink to = {bytes_sink, &b};
            struct checkpoint_source from = {bytes_source, &b};
            must(&c, model_checkpoint_write(c.r.m, p, NULL, &to, &c.r.e));
            must(&d, model_checkpoint_read(d.r.m, &q, NULL, &from, &d.r.e));
            assert_int_equal(checkpoint_bytes(p), checkpoint_bytes(q));
            must(&d, sequence_restore(t, q, &d.r.e));
            run_to(&d, t, len + 1);
            drafts_as_fresh(&d, t, "read back");
            must(&c, sequence_restore(s, p, &c.r.e));
            if (k == GLM || k == LATENT)
                must(&c, sequence_truncate(s, len - len / 8, &kept, &c.r.e));
            run_to(&c, s, len);
            drafts_as_fresh(&c, s, "restored");
            free(b.data);
            checkpoint_destroy(p);
            checkpoint_destroy(q);
            sequence_destroy(s);
            sequence_destroy(fork);
            sequence_destroy(t);
            close_scene(&c);
            close_scene(&d);
        }
}

// Pages for what is committed and no more: a sequence does not draft then, and goes on.
static void without_room(void **state) {
    (void)state;
    struct scene c;
    float last[ROW];
    open_scene(&c, DENSE);
    struct sequence *s = text(&c, 64, 64), *t = text(&c, 10, 10), *both[] = {s, t};
    kv_pool_limit(c.m->path.pool, kv_pool_allocated(c.m->path.pool));
    must(&c, path_begin(mtp_path(c.m), both, 2, &c.r.e)); // position 64 would be on a second page
    assert_false(path_ready(mtp_path(c.m), 0));
    assert_true(path_ready(mtp_path(c.m), 1));
    const struct path_row row = {1, -1, 3};
    must(&c, path_rows(mtp_path(c.m), &row, 1, &c.r.e));
    kv_pool_limit(c.m->path.pool, 0);
    run_to(&c, s, 70);
    drafts_as_fresh(&c, s, "with room again");
    tiny_rig_prompt(&c.r, s, guesses, 1, 1, NULL, last);
    sequence_destroy(s);
    sequence_destroy(t);
    assert_int_equal(kv_pool_used(c.m->path.pool), 0);
    close_scene(&c);
}

// A head of some tokens gives the numbers that the whole one gives for them, whosever it is, also
// to a sidecar.
static void some_tokens(void **state) {
    (void)state;
    enum { SOME = 50, MARKS = 3 };
    for (int i = 0; i < 2 * KINDS; i++) {
        const enum kind k = (enum kind)(i % KINDS);
        static float all[3 * ROW], row[SOME];
        const struct tiny_shape t = shape_of(k);
        struct scene whole, cut;
        open_scene(&whole, k);
        open_scene_as(&cut, &t, 160, SOME);
        if (i >= KINDS) {
            const struct mtp_options o = cut.m->options;
            char path[128];
            snprintf(path, sizeof path, "%s/mtp.gguf", cut.r.dir);
            must(&cut, tiny_sidecar_write(&cut.r.shape, path, &cut.r.e));
            mtp_destroy(cut.m);
            must(&cut, mtp_load(&cut.m, cut.r.m, path, &o, false, &cut.r.e));
            unlink(path);
        }
        assert_int_equal(path_head(mtp_path(cut.m))->rows, SOME + MARKS);
        struct sequence *s = text(&whole, 90, 90), *u = text(&cut, 90, 90);
        chain(&whole, s, guesses, 3, all);
        must(&cut, path_begin(mtp_path(cut.m), &u, 1, &cut.r.e));
        for (int j = 0; j < 3; j++) {
            const struct path_row one = {0, j - 1, guesses[j]};
            must(&cut, path_rows(mtp_path(cut.m), &one, 1, &cut.r.e));
            exec_ops(cut.r.x)->download(cut.r.x, row, path_logits(mtp_path(cut.m), 0, 1),
                                        sizeof row);
            assert_memory_equal(row, all + j * ROW, sizeof row);
        }
        sequence_destroy(s);
        sequence_destroy(u);
        close_scene(&whole);
        close_scene(&cut);
    }
}

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

static uint64_t payload(const struct bytes *b, size_t at) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)b->data[at + 4 + (size_t)i] << (8 * i);
    return n;
}

// Where a section's payload ends, before its hash.
static size_t section_end(const struct bytes *b, size_t at) {
    return at + 12 + (size_t)payload(b, at);
}

static size_t find_section(const struct bytes *b, const char *tag) {
    size_t at = 12;
    while (at + 12 < b->n && memcmp(b->data + at, tag, 4) != 0)
        at = section_end(b, at) + 8;
    assert_true(at + 12 < b->n);
    return at;
}

static void rehash(struct bytes *b, size_t at) {
    const size_t end = section_end(b, at);
    const uint64_t h = hash_bytes(b->data + at, end - at, 0);
    for (int i = 0; i < 8; i++)
        b->data[end + (size_t)i] = (unsigned char)(h >> (8 * i));
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

// Another block's checkpoint, and one whose tokens are outside the vocabulary.
static void refuses_states(void **state) {
    (void)state;
    struct scene c, d;
    struct checkpoint *p = NULL, *q = NULL;
    open_scene(&c, GLM);
    open_scene(&d, GLM);
    struct sequence *s = text(&c, 40, 40);
    must(&c, sequence_checkpoint(s, &p, &c.r.e));
    struct bytes b = {0};
    struct checkpoint_sink to = {bytes_sink, &b};
    struct checkpoint_source from = {bytes_source, &b};
    must(&c, model_checkpoint_write(c.r.m, p, NULL, &to, &c.r.e));
    d.m->content = mtp_content(d.m) ^ 2;
    assert_int_equal(model_checkpoint_read(d.r.m, &q, NULL, &from, &d.r.e), ERR_MISMATCH);
    assert_non_null(strstr(d.r.e.text, "another prediction block"));
    // The newest token of the state, as the last but D numbers of its section.
    const size_t tail = 40 * (size_t)c.r.shape.dim * sizeof(float);
    const size_t section = find_section(&b, "ATTD"), end = section_end(&b, section);
    memcpy(b.data + end - tail - 4, "\x2c\x01\0\0", 4); // 300
    rehash(&b, section);
    b.at = 0;
    assert_int_equal(model_checkpoint_read(c.r.m, &q, NULL, &from, &c.r.e), ERR_FORMAT);
    assert_non_null(strstr(c.r.e.text, "damaged"));
    free(b.data);
    checkpoint_destroy(p);
    sequence_destroy(s);
    close_scene(&c);
    close_scene(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_trees),       cmocka_unit_test(together_as_alone),
        cmocka_unit_test(grows_in_any_pieces), cmocka_unit_test(goes_back),
        cmocka_unit_test(goes_far_back),       cmocka_unit_test(saved_and_forked),
        cmocka_unit_test(without_room),        cmocka_unit_test(planned),
        cmocka_unit_test(refuses_blocks),      cmocka_unit_test(sidecars),
        cmocka_unit_test(refuses_sidecars),    cmocka_unit_test(refuses_states),
        cmocka_unit_test(some_tokens),         cmocka_unit_test(refuses_sidecar_as_model),
        cmocka_unit_test(padded_number),       cmocka_unit_test(refuses_counted_block),
        cmocka_unit_test(copies_are_shared),   cmocka_unit_test(read_by_rows),
        cmocka_unit_test(trained_heads),       cmocka_unit_test(smaller_heads),
        cmocka_unit_test(renumbered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
