// SPDX-License-Identifier: Apache-2.0
// The head of a draft: which tokens are chosen, and that a head of some tokens gives the logits and
// the candidates of the whole head with the others left out, with noise and without.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "models/draft/head.h"

enum { DIM = 64, VOCAB = 200, MARKS = 180, ROWS = 3, LARGE = 2 * DRAFT_VOCAB_USUAL + 8 };

struct fixture {
    char path[64], list[64];
    struct exec *x;
    struct gguf *g;
};

// A vocabulary of n tokens, of which marks are those from `marks` on but the last three, which are
// unused, and a head of the type.
static int write_file(const char *path, const char *model, int64_t n, int64_t marks, uint32_t type,
                      struct err *e) {
    struct gguf_writer *w;
    struct rng r = {3};
    const struct quant_format *f = quant_format(type);
    const size_t row = (size_t)quant_row_bytes(f, DIM);
    int32_t *types = calloc((size_t)n, sizeof *types);
    unsigned char *data = malloc(row);
    int rc = gguf_writer_open(&w, path, e);
    assert_true(types && data && !rc);
    for (int64_t i = 0; i < n; i++)
        types[i] = i < marks ? 1 : i < n - 3 ? 3 + (int32_t)(i % 2) : 5;
    gguf_put_str(w, "general.architecture", "none", 4);
    if (model) {
        gguf_put_str(w, "tokenizer.ggml.model", model, strlen(model));
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n);
    }
    gguf_add_tensor(w, "output.weight", type, 2, (int64_t[]){DIM, n});
    for (int64_t i = 0; !rc && i < n; i++) {
        float v[DIM];
        for (int j = 0; j < DIM; j++)
            v[j] = (float)rng_unit(rng_next(&r)) - 0.5f;
        if (type == TYPE_F32)
            memcpy(data, v, sizeof v);
        else
            f->quantize(v, data, DIM);
        rc = gguf_write_data(w, data, row, e);
    }
    free(types);
    free(data);
    if (!rc)
        return gguf_writer_close(w, e);
    gguf_writer_abort(w);
    return rc;
}

static int setup(void **state) {
    static struct fixture f;
    *state = &f;
    snprintf(f.path, sizeof f.path, "/tmp/coppice-draft-head-%d.gguf", (int)getpid());
    snprintf(f.list, sizeof f.list, "/tmp/coppice-draft-head-%d.txt", (int)getpid());
    return exec_create_cpu(&f.x, "auto", 1, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    unlink(f->list);
    exec_destroy(f->x);
    return 0;
}

static const struct tensor *find(const void *arg, const char *name) {
    return gguf_tensor(arg, name);
}

static void open_file(struct fixture *f, const char *model, int64_t n, int64_t marks,
                      uint32_t type) {
    struct err e = {0};
    assert_int_equal(write_file(f->path, model, n, marks, type, &e), 0);
    assert_int_equal(gguf_open(&f->g, f->path, &e), 0);
}

static int load_head(struct draft_head *h, struct load *l, const struct fixture *f, int64_t size,
                     struct draft_vocab_options vocab, struct err *e) {
    struct draft_head_source s = {
        .tensor = "output.weight", .dim = DIM, .size = size, .tokens = f->g, .vocab = vocab};
    *h = (struct draft_head){0};
    *l = (struct load){.x = f->x, .find = find, .arg = f->g};
    return draft_head_load(h, l, &s, e);
}

static void close_head(struct draft_head *h, struct load *l) {
    draft_head_fini(h);
    load_fini(l);
}

// How many rows a choice of tokens has; 0: it is refused.
static int64_t rows_of(const struct fixture *f, int64_t size, struct draft_vocab_options vocab) {
    struct draft_head h;
    struct load l;
    struct err e = {0};
    int rc = load_head(&h, &l, f, size, vocab, &e);
    int64_t rows = rc ? 0 : h.rows;
    for (int64_t i = 1; !rc && h.ids && i < rows; i++)
        assert_true(h.ids[i] > h.ids[i - 1]);
    int64_t there = 0;
    for (int32_t token = -1; !rc && token <= size; token++)
        there += draft_head_has(&h, token);
    assert_int_equal(there, rows);
    close_head(&h, &l);
    return rows;
}

static void test_choice(void **state) {
    struct fixture *f = *state;
    const struct draft_vocab_options usual = {.rows = DRAFT_VOCAB_AUTO};
    open_file(f, "gpt2", VOCAB, MARKS, TYPE_F32);
    assert_int_equal(rows_of(f, VOCAB, usual), VOCAB); // small
    assert_int_equal(rows_of(f, VOCAB, (struct draft_vocab_options){0}), VOCAB);
    assert_int_equal(rows_of(f, VOCAB, (struct draft_vocab_options){.rows = VOCAB}), VOCAB);
    assert_int_equal(rows_of(f, VOCAB, (struct draft_vocab_options){.rows = 1}), 1 + 17);
    assert_int_equal(rows_of(f, VOCAB, (struct draft_vocab_options){.rows = 190}), 190 + 7);
    gguf_close(f->g);
    open_file(f, "gpt2", LARGE, LARGE - 10, TYPE_F32);
    assert_int_equal(rows_of(f, LARGE, usual), DRAFT_VOCAB_USUAL + 7);
    gguf_close(f->g);
    open_file(f, "llama", LARGE, LARGE - 10, TYPE_F32); // ids are no ranks
    assert_int_equal(rows_of(f, LARGE, usual), LARGE);
    assert_int_equal(rows_of(f, LARGE, (struct draft_vocab_options){.rows = 100}), 107);
    gguf_close(f->g);
    open_file(f, NULL, VOCAB, MARKS, TYPE_F32);
    assert_int_equal(rows_of(f, VOCAB, (struct draft_vocab_options){.rows = 9}), 9);
    gguf_close(f->g);
}

static void write_list(const struct fixture *f, const void *text, size_t n) {
    FILE *out = fopen(f->list, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

static void test_lists(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *text, *says; // says NULL: it is taken
        int64_t rows;
    } cases[] = {
        {"7\n3\n7\n\n# no token\n 12 # twelve\r\n199", NULL, 4 + 17},
        {"181\n", NULL, 17}, // a mark
        {"", NULL, 17},
        {"1\n2x\n", "line 2", 0},
        {"1 2\n", "line 1", 0},
        {"200\n", "not", 0},
        {"-1\n", "not", 0},
        {"99999999999999999999\n", "number", 0},
    };
    open_file(f, "gpt2", VOCAB, MARKS, TYPE_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct draft_head h;
        struct load l;
        struct err e = {0};
        write_list(f, cases[i].text, strlen(cases[i].text));
        int rc = load_head(&h, &l, f, VOCAB, (struct draft_vocab_options){.list = f->list}, &e);
        assert_int_equal(rc, cases[i].says ? ERR_USAGE : 0);
        if (cases[i].says)
            assert_non_null(strstr(e.text, cases[i].says));
        else
            assert_int_equal(h.rows, cases[i].rows);
        close_head(&h, &l);
    }
    struct draft_head h;
    struct load l;
    struct err e = {0};
    write_list(f, "1\0002\n", 4);
    assert_int_equal(load_head(&h, &l, f, VOCAB, (struct draft_vocab_options){.list = f->list}, &e),
                     ERR_USAGE);
    close_head(&h, &l);
    unlink(f->list);
    assert_int_equal(load_head(&h, &l, f, VOCAB, (struct draft_vocab_options){.list = f->list}, &e),
                     ERR_USAGE);
    close_head(&h, &l);
    gguf_close(f->g);
    open_file(f, NULL, VOCAB, MARKS, TYPE_F32); // no marks are known, and nothing is listed
    write_list(f, "# none\n", 7);
    assert_int_equal(load_head(&h, &l, f, VOCAB, (struct draft_vocab_options){.list = f->list}, &e),
                     ERR_USAGE);
    close_head(&h, &l);
    gguf_close(f->g);
}

// Logits [ROWS][h->rows] of the same inputs.
static float *logits_of(const struct fixture *f, const struct draft_head *h) {
    const struct ops *ops = exec_ops(f->x);
    float in[ROWS * DIM], *out = malloc((size_t)(ROWS * h->rows) * sizeof *out);
    struct act *act;
    struct rng r = {3};
    for (int i = 0; i < ROWS * DIM; i++)
        in[i] = 4 * ((float)rng_unit(rng_next(&r)) - 0.5f);
    assert_non_null(out);
    assert_int_equal(ops->act_create(f->x, ROWS, DIM, &act, NULL), 0);
    ops->to_act(f->x, in, ROWS, DIM, act);
    struct linear_job job = {.w = h->w, .out = out};
    ops->linear(f->x, &job, 1, act, ROWS);
    ops->act_destroy(f->x, act);
    return out;
}

static int compare_ids(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void check_candidates(const struct fixture *f, const struct draft_head *some,
                             const struct draft_head *all, const struct sample_row *noise) {
    enum { K = 5 };
    float *a = logits_of(f, some), *b = logits_of(f, all);
    int32_t ids[ROWS * K], whole[ROWS * VOCAB];
    float logp[ROWS * K], whole_logp[ROWS * VOCAB];
    struct topk_args top = {
        .logits = a, .n = ROWS, .k = K, .noise = noise, .ids = ids, .logp = logp};
    struct topk_args every = {
        .logits = b, .n = ROWS, .k = VOCAB, .noise = noise, .ids = whole, .logp = whole_logp};
    draft_head_topk(some, f->x, &top);
    draft_head_topk(all, f->x, &every);
    for (int i = 0; i < ROWS; i++) {
        float first = 0;
        int n = 0;
        for (int j = 0; j < VOCAB && n < K; j++) {
            int32_t id = whole[i * VOCAB + j];
            if (!bsearch(&id, some->ids, (size_t)some->rows, sizeof id, compare_ids))
                continue;
            float away = logp[i * K + n] - whole_logp[i * VOCAB + j]; // of what the others had
            first = n ? first : away;
            assert_true(away >= 0 && fabsf(away - first) < 1e-4f);
            assert_int_equal(ids[i * K + n++], id);
        }
        assert_int_equal(n, K);
    }
    free(a);
    free(b);
}

static void test_restricted(void **state) {
    struct fixture *f = *state;
    static const uint32_t types[] = {TYPE_F32, TYPE_Q8_0, TYPE_F16};
    static const char list[] = "190\n2\n3\n4\n9\n77\n140\n141\n150\n";
    struct sample_row noise[ROWS];
    for (int i = 0; i < ROWS; i++)
        noise[i] = (struct sample_row){.pos = 10 + i, .seed = 7, .temperature = i ? 0.9f : 0};
    for (int t = 0; t < 3; t++) {
        struct draft_head some, all;
        struct load l, m;
        open_file(f, "gpt2", VOCAB, MARKS, types[t]);
        write_list(f, list, strlen(list));
        assert_int_equal(
            load_head(&some, &l, f, VOCAB, (struct draft_vocab_options){.list = f->list}, NULL), 0);
        assert_int_equal(load_head(&all, &m, f, VOCAB, (struct draft_vocab_options){0}, NULL), 0);
        float *a = logits_of(f, &some), *b = logits_of(f, &all);
        for (int i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < some.rows; j++)
                assert_memory_equal(&a[i * some.rows + j], &b[i * VOCAB + some.ids[j]], 4);
        free(a);
        free(b);
        check_candidates(f, &some, &all, NULL);
        check_candidates(f, &some, &all, noise);
        assert_true(l.weight_bytes < m.weight_bytes);
        close_head(&some, &l);
        close_head(&all, &m);
        gguf_close(f->g);
    }
}

// A head that is loaded already is used as it is where everything is scored; a dry load counts what
// a load takes.
static void test_counts(void **state) {
    struct fixture *f = *state;
    struct draft_head h, whole;
    struct load l, wet, dry = {.find = find, .x = f->x, .dry = true};
    open_file(f, "gpt2", VOCAB, MARKS, TYPE_Q8_0);
    dry.arg = f->g;
    assert_int_equal(load_head(&whole, &wet, f, VOCAB, (struct draft_vocab_options){0}, NULL), 0);
    struct draft_head_source s = {.tensor = "output.weight",
                                  .dim = DIM,
                                  .size = VOCAB,
                                  .loaded = true,
                                  .whole = whole.w,
                                  .tokens = f->g};
    l = (struct load){.x = f->x, .find = find, .arg = f->g};
    h = (struct draft_head){0};
    assert_int_equal(draft_head_load(&h, &l, &s, NULL), 0);
    assert_ptr_equal(h.w, whole.w);
    assert_int_equal(h.rows, VOCAB);
    assert_int_equal(l.weight_bytes, 0);
    close_head(&h, &l);
    s.vocab.rows = 20;
    h = (struct draft_head){0};
    assert_int_equal(draft_head_load(&h, &dry, &s, NULL), 0);
    assert_null(h.w);
    draft_head_fini(&h);
    assert_int_equal(load_head(&h, &l, f, VOCAB, s.vocab, NULL), 0);
    assert_int_equal(l.weight_bytes, dry.weight_bytes);
    assert_int_equal(l.buffer_bytes, dry.buffer_bytes);
    close_head(&h, &l);
    s.size = VOCAB + 1;
    s.loaded = false;
    assert_int_equal(draft_head_load(&h, &dry, &s, NULL), ERR_MISMATCH);
    draft_head_fini(&h);
    load_fini(&dry);
    close_head(&whole, &wet);
    gguf_close(f->g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_restricted),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
