// SPDX-License-Identifier: Apache-2.0
// Whether guesses of a prediction block come at the right places with the right noise, through the
// whole loop: a model whose next token depends on the last one alone, as its layers add nothing,
// and whose block passes the embedding on, so that it knows all that the model does. Every guess
// must then be accepted, greedily and at temperature, alone and among others.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/batch/batch.h"
#include "engine/session/session.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

enum { DEPTH = 6, NEW = 64, MEMBERS = 3, PROMPT = 40 };

static bool ends(const char *name, const char *with) {
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

// What tensor t becomes; NULL: it stays. Freed by the caller.
static float *changed(const struct tensor *t) {
    static const char *const zero[] = {"attn_output.weight", "ssm_out.weight", "ffn_down.weight",
                                       "ffn_down_exps.weight", "ffn_down_shexp.weight"};
    const bool join = ends(t->name, "nextn.eh_proj.weight"),
               ones = ends(t->name, "nextn.enorm.weight");
    bool change = join || ones;
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        change = change || ends(t->name, zero[i]);
    if (!change)
        return NULL;
    float *x = calloc((size_t)t->bytes, 1);
    assert_non_null(x);
    for (int64_t i = 0; join && i < t->ne[1]; i++)
        x[i * t->ne[0] + i] = 1; // the embedding's half
    for (int64_t i = 0; ones && i < t->ne[0]; i++)
        x[i] = 1;
    return x;
}

// A model of that shape, with weights as above.
static void write_model(const struct tiny_shape *shape, const char *path) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err e;
    char whole[128];
    snprintf(whole, sizeof whole, "%s.whole", path);
    assert_int_equal(tiny_target_write(shape, whole, &e), 0);
    assert_int_equal(gguf_open(&g, whole, &e), 0);
    assert_int_equal(gguf_writer_open(&w, path, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        float *x = changed(t);
        assert_int_equal(gguf_write_data(w, x ? (const void *)x : t->data, (size_t)t->bytes, &e),
                         0);
        free(x);
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
    gguf_close(g);
    unlink(whole);
}

static struct session *open_session(const char *path, const char *draft) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    struct err e;
    o.model = path;
    o.draft = draft;
    o.device = "cpu";
    o.threads = 1;
    o.target.max_ctx = 512;
    o.draft_vocab.rows = 0;
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    return s;
}

static void make_requests(struct request *r, int32_t (*prompt)[PROMPT], enum speculate how,
                          double temperature) {
    for (int i = 0; i < MEMBERS; i++) {
        for (int j = 0; j < PROMPT; j++)
            prompt[i][j] = (7 + 13 * i + 31 * j) % 250;
        request_init(&r[i]);
        r[i].prompt = prompt[i];
        r[i].n_prompt = PROMPT - 11 * i;
        r[i].max_tokens = NEW;
        r[i].ignore_eos = r[i].no_lookup = true;
        r[i].auto_budget = false;
        r[i].tree.budget = how == SPECULATE_TREE ? 24 : DEPTH;
        r[i].how = how;
        r[i].sample.temperature = temperature;
        r[i].sample.seed = (uint64_t)i + 5;
    }
}

static int64_t tree_passes; // of all replies by trees

// Passes of a chain commit its depth and the bonus each, but for the last; those of trees nearly.
static void check_reply(const struct reply *y, const struct reply *plain, enum speculate how) {
    assert_int_equal(y->n, plain->n);
    assert_memory_equal(y->ids, plain->ids, (size_t)y->n * sizeof *y->ids);
    const int64_t most = (NEW - 1 + DEPTH) / (DEPTH + 1);
    if (how == SPECULATE_CHAIN && y->steps != most)
        fail_msg("%lld passes; with every guess accepted it would be %lld", (long long)y->steps,
                 (long long)most);
    if (how == SPECULATE_TREE) { // which has guesses beside the best ones
        assert_true(y->steps <= 2 * most);
        tree_passes += y->steps;
    }
}

static void check_ways(struct session *s, struct session *plain, double temperature) {
    static const enum speculate ways[] = {SPECULATE_CHAIN, SPECULATE_TREE};
    struct request r[MEMBERS];
    int32_t prompt[MEMBERS][PROMPT];
    struct err e;
    for (size_t w = 0; w < 2; w++) {
        struct reply want[MEMBERS], got[MEMBERS];
        make_requests(r, prompt, SPECULATE_OFF, temperature);
        for (int i = 0; i < MEMBERS; i++)
            assert_int_equal(session_generate(plain, &r[i], &want[i], &e), 0);
        make_requests(r, prompt, ways[w], temperature);
        for (int i = 0; i < MEMBERS; i++) {
            assert_int_equal(session_generate(s, &r[i], &got[i], &e), 0);
            check_reply(&got[i], &want[i], ways[w]);
            reply_fini(&got[i]);
        }
        assert_int_equal(session_generate_many(s, r, MEMBERS, got, NULL, &e), 0);
        for (int i = 0; i < MEMBERS; i++) {
            check_reply(&got[i], &want[i], ways[w]);
            reply_fini(&got[i]);
            reply_fini(&want[i]);
        }
    }
}

static void every_guess_is_right(void **state) {
    (void)state;
    struct tiny_shape shapes[] = {tiny_shape_default(), tiny_shape_default(),
                                  tiny_shape_form(TINY_FORM_GLM),
                                  tiny_shape_form(TINY_FORM_DEEPSEEK)};
    char path[64];
    snprintf(path, sizeof path, "/tmp/coppice-guesses-%d.gguf", (int)getpid());
    tiny_shape_experts(&shapes[1]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shapes[i].nextn = 1;
        shapes[i].seed = 4; // no norm of its own: the output's
        write_model(&shapes[i], path);
        struct session *s = open_session(path, DRAFT_OF_TARGET), *plain = open_session(path, NULL);
        unlink(path);
        check_ways(s, plain, 0);
        check_ways(s, plain, 0.8);
        check_ways(s, plain, 1.5);
        session_close(s);
        session_close(plain);
    }
    assert_true(tree_passes <= 900); // 848; 1,024 where chances at temperature are the plain shares
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_guess_is_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
