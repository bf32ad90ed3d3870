// SPDX-License-Identifier: Apache-2.0
// Importance matrices: both file formats, what is refused, and what they do in `quantize`.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "convert/convert.h"
#include "formats/gguf/gguf.h"
#include "formats/imatrix.h"
#include "formats/quant/quant.h"

enum { COLUMNS = 256, MATRIX_ROWS = 96, EXPERTS = 3 };

static char file[64], in_path[64], out_path[64];

static void write_bytes(const void *data, size_t n) {
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

// A growing buffer of the older format.
struct bytes {
    unsigned char at[1024];
    size_t n;
};

static void put_i32(struct bytes *b, int32_t v) {
    memcpy(b->at + b->n, &v, sizeof v);
    b->n += sizeof v;
}

static void put_entry(struct bytes *b, const char *name, int calls, const float *v, int n) {
    put_i32(b, (int32_t)strlen(name));
    memcpy(b->at + b->n, name, strlen(name));
    b->n += strlen(name);
    put_i32(b, calls);
    put_i32(b, n);
    memcpy(b->at + b->n, v, (size_t)n * sizeof *v);
    b->n += (size_t)n * sizeof *v;
}

static struct bytes old_file(void) {
    struct bytes b = {.n = 0};
    put_i32(&b, 2);
    put_entry(&b, "blk.0.ffn_up.weight", 4, (const float[]){4, 8, 0}, 3);
    put_entry(&b, "output.weight", 0, (const float[]){1.5f}, 1);
    return b;
}

static void refuse(const void *data, size_t n, const char *words) {
    struct imatrix *m = NULL;
    struct err e = {0};
    write_bytes(data, n);
    if (!imatrix_open(&m, file, &e))
        fail_msg("%zu bytes were taken; wanted '%s'", n, words);
    if (!strstr(e.text, words))
        fail_msg("'%s' lacks '%s'", e.text, words);
}

static void reads_the_older_format(void **state) {
    (void)state;
    struct bytes b = old_file();
    struct imatrix *m = NULL;
    struct err e = {0};
    write_bytes(b.at, b.n);
    assert_int_equal(imatrix_open(&m, file, &e), 0);
    assert_int_equal(imatrix_count(m), 2);
    const struct imatrix_entry *up = imatrix_find(m, "blk.0.ffn_up.weight");
    assert_true(up && up->count == 3 && up->v[0] == 1 && up->v[1] == 2 && up->v[2] == 0);
    assert_true(imatrix_find(m, "output.weight")->v[0] == 1.5f);
    assert_null(imatrix_find(m, "blk.1.ffn_up.weight"));
    assert_null(imatrix_dataset(m));
    assert_int_equal(imatrix_chunks(m), 0);
    imatrix_close(m);
    put_i32(&b, 17);
    put_i32(&b, 4);
    memcpy(b.at + b.n, "wiki", 4);
    write_bytes(b.at, b.n + 4);
    assert_int_equal(imatrix_open(&m, file, &e), 0);
    assert_string_equal(imatrix_dataset(m), "wiki");
    assert_int_equal(imatrix_chunks(m), 17);
    imatrix_close(m);
}

static void refuses_broken_files(void **state) {
    (void)state;
    struct bytes b = old_file(), twice = {.n = 0}, bad = {.n = 0};
    const float v[2] = {1, 2}, negative[1] = {-1};
    for (size_t n = 0; n < b.n; n++)
        refuse(b.at, n, file);
    for (size_t at = 0; at < b.n; at++) { // no flipped byte may do harm
        struct bytes c = b;
        struct imatrix *m = NULL;
        struct err e = {0};
        c.at[at] ^= 0xFF;
        write_bytes(c.at, c.n);
        if (!imatrix_open(&m, file, &e))
            imatrix_close(m);
    }
    put_i32(&twice, 2);
    put_entry(&twice, "x", 1, v, 2);
    put_entry(&twice, "x", 1, v, 2);
    refuse(twice.at, twice.n, "two entries");
    put_i32(&bad, 1);
    put_entry(&bad, "x", 1, negative, 1);
    refuse(bad.at, bad.n, "no mean of squares");
    refuse("this is a text, no matrix", 25, "no importance matrix");
}

static void put_tensor(struct gguf_writer *w, const char *name, int64_t a, int64_t b) {
    gguf_add_tensor(w, name, TYPE_F32, 2, (const int64_t[]){a, b});
}

// Two experts, the second of which no token came to.
static void reads_the_gguf_format(void **state) {
    (void)state;
    struct gguf_writer *w = NULL;
    struct imatrix *m = NULL;
    struct err e = {0};
    const char *set = "calibration.txt";
    const size_t length = strlen(set);
    assert_int_equal(gguf_writer_open(&w, file, &e), 0);
    gguf_put_str(w, "general.type", "imatrix", 7);
    gguf_put_str_array(w, "imatrix.datasets", &set, &length, 1);
    gguf_put_int(w, "imatrix.chunk_count", GGUF_U32, 3);
    put_tensor(w, "blk.0.ffn_up_exps.weight.in_sum2", 2, 2);
    put_tensor(w, "blk.0.ffn_up_exps.weight.counts", 1, 2);
    gguf_write_data(w, (const float[]){8, 4, 9, 9}, 16, &e);
    gguf_write_data(w, (const float[]){4, 0}, 8, &e);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    assert_int_equal(imatrix_open(&m, file, &e), 0);
    const struct imatrix_entry *up = imatrix_find(m, "blk.0.ffn_up_exps.weight");
    assert_true(up && up->count == 4 && up->v[0] == 2 && up->v[1] == 1);
    assert_true(up->v[2] == 1 && up->v[3] == 1);
    assert_string_equal(imatrix_dataset(m), "calibration.txt");
    assert_int_equal(imatrix_chunks(m), 3);
    imatrix_close(m);
}

static void refuses_other_gguf_files(void **state) {
    (void)state;
    struct gguf_writer *w = NULL;
    struct imatrix *m = NULL;
    struct err e = {0};
    for (int form = 0; form < 4; form++) {
        static const char *const words[] = {"imatrix", "no counts", "no entries", "no counts"};
        assert_int_equal(gguf_writer_open(&w, file, &e), 0);
        gguf_put_str(w, "general.type", form ? "imatrix" : "model", form ? 7 : 5);
        put_tensor(w, form == 2 ? "x.weight" : "x.weight.in_sum2", 3, 1);
        put_tensor(w, form == 3 ? "x.weight.counts" : "y.weight.counts", 2, 1);
        gguf_write_data(w, (const float[]){1, 2, 3}, 12, &e);
        gguf_write_data(w, (const float[]){1, 1}, 8, &e);
        assert_int_equal(gguf_writer_close(w, &e), 0);
        assert_int_equal(imatrix_open(&m, file, &e), ERR_FORMAT);
        if (!strstr(e.text, words[form]))
            fail_msg("'%s' lacks '%s'", e.text, words[form]);
    }
}

static int write_sums(const struct imatrix_sum *sums, size_t n) {
    struct imatrix_info info = {"text", 5, 512};
    struct gguf_writer *w = NULL;
    struct err e = {0};
    int rc = gguf_writer_open(&w, file, &e);
    return rc ? rc : imatrix_write(w, sums, n, &info, &e);
}

static void writes_what_it_reads(void **state) {
    (void)state;
    const double squares[3] = {3, 6, 0.75};
    const int64_t counts[3] = {3, 0, 1};
    struct imatrix_sum sums[3] = {
        {.name = "a.weight", .squares = squares, .columns = 3, .rows = 3},
        {.name = "b.weight", .squares = squares, .columns = 1, .rows = 2},
        {.name = "c.weight", .squares = squares, .columns = 1, .experts = 3, .counts = counts}};
    struct imatrix *m = NULL;
    struct err e = {0};
    assert_int_equal(write_sums(sums, 3), 0);
    assert_int_equal(imatrix_open(&m, file, &e), 0);
    const struct imatrix_entry *a = imatrix_find(m, "a.weight"), *b = imatrix_find(m, "b.weight");
    assert_true(a && a->count == 3 && a->v[0] == 1 && a->v[1] == 2 && a->v[2] == 0.25f);
    assert_true(b && b->count == 1 && b->v[0] == 1.5f);
    const struct imatrix_entry *c = imatrix_find(m, "c.weight"); // 1 where nothing was counted
    assert_true(c && c->count == 3 && c->v[0] == 1 && c->v[1] == 1 && c->v[2] == 0.75f);
    assert_int_equal(imatrix_chunks(m), 5);
    imatrix_close(m);
}

// Value i of the test's tensors.
static float weight_at(int64_t i) {
    return sinf((float)i * 0.37f) * (1.0f + (float)(i % 7));
}

static void write_model(void) {
    static float x[COLUMNS * MATRIX_ROWS * EXPERTS];
    struct gguf_writer *w = NULL;
    struct err e = {0};
    for (int64_t i = 0; i < COLUMNS * MATRIX_ROWS * EXPERTS; i++)
        x[i] = weight_at(i);
    assert_int_equal(gguf_writer_open(&w, in_path, &e), 0);
    gguf_put_str(w, "general.architecture", "llama", 5);
    gguf_add_tensor(w, "blk.0.ffn_up.weight", TYPE_F32, 2, (const int64_t[]){COLUMNS, MATRIX_ROWS});
    gguf_add_tensor(w, "blk.0.ffn_up_exps.weight", TYPE_F32, 3,
                    (const int64_t[]){COLUMNS, MATRIX_ROWS, EXPERTS});
    gguf_add_tensor(w, "blk.1.ffn_up.weight", TYPE_F32, 2, (const int64_t[]){COLUMNS, MATRIX_ROWS});
    size_t one = sizeof(float) * COLUMNS * MATRIX_ROWS;
    gguf_write_data(w, x, one, &e);
    gguf_write_data(w, x, one * EXPERTS, &e);
    gguf_write_data(w, x, one, &e);
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

static float importance_at(int64_t i) {
    return i % 16 ? 0.01f : 100.0f + (float)i;
}

// Entries for the first two of three matrices; slices of the second differ.
static struct imatrix *importances(void) {
    struct gguf_writer *w = NULL;
    struct imatrix *m = NULL;
    struct err e = {0};
    float v[COLUMNS * EXPERTS];
    const float ones[EXPERTS] = {1, 1, 1};
    for (int i = 0; i < COLUMNS * EXPERTS; i++)
        v[i] = importance_at(i + i / COLUMNS);
    assert_int_equal(gguf_writer_open(&w, file, &e), 0);
    gguf_put_str(w, "general.type", "imatrix", 7);
    put_tensor(w, "blk.0.ffn_up.weight.in_sum2", COLUMNS, 1);
    put_tensor(w, "blk.0.ffn_up.weight.counts", 1, 1);
    put_tensor(w, "blk.0.ffn_up_exps.weight.in_sum2", COLUMNS, EXPERTS);
    put_tensor(w, "blk.0.ffn_up_exps.weight.counts", 1, EXPERTS);
    gguf_write_data(w, v, sizeof(float) * COLUMNS, &e);
    gguf_write_data(w, ones, sizeof(float), &e);
    gguf_write_data(w, v, sizeof v, &e);
    gguf_write_data(w, ones, sizeof ones, &e);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    assert_int_equal(imatrix_open(&m, file, &e), 0);
    return m;
}

// Every row must be what the encoder makes of it alone, with the importances of its slice.
static void check_rows(const struct gguf *g, const char *name, bool weighted) {
    const struct tensor *t = gguf_tensor(g, name);
    const struct quant_format *f = quant_format(TYPE_Q4_K);
    unsigned char b[COLUMNS];
    float x[COLUMNS], v[COLUMNS];
    int64_t bytes = quant_row_bytes(f, COLUMNS);
    assert_true(t && (int)t->type == f->type);
    for (int64_t r = 0; r < t->ne[1] * t->ne[2]; r++) {
        int64_t slice = r / t->ne[1];
        for (int64_t i = 0; i < COLUMNS; i++) {
            x[i] = weight_at(r * COLUMNS + i);
            v[i] = importance_at(slice * COLUMNS + i + slice);
        }
        if (weighted)
            f->quantize_weighted(x, v, b, COLUMNS);
        else
            f->quantize(x, b, COLUMNS);
        if (memcmp(b, (const char *)t->data + r * bytes, (size_t)bytes))
            fail_msg("%s: row %d differs", name, (int)r);
    }
}

static void quantises_with_importances(void **state) {
    (void)state;
    struct err e = {0};
    struct imatrix *m = importances();
    write_model();
    for (int threads = 1; threads <= 3; threads += 2) {
        struct convert_options o = {
            .recipe = convert_recipe("Q4_K_S"), .threads = threads, .pure = true, .imatrix = m};
        struct gguf *g = NULL;
        int64_t entries;
        assert_int_equal(convert_quantize(in_path, out_path, &o, &e), 0);
        assert_int_equal(gguf_open(&g, out_path, &e), 0);
        check_rows(g, "blk.0.ffn_up.weight", true);
        check_rows(g, "blk.0.ffn_up_exps.weight", true);
        check_rows(g, "blk.1.ffn_up.weight", false);
        assert_int_equal(gguf_get_int(g, "quantize.imatrix.entries_count", 0, 99, -1, &entries, &e),
                         0);
        assert_int_equal(entries, 2);
        gguf_close(g);
    }
    imatrix_close(m);
}

static void refuses_foreign_importances(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.ffn_up.weight", "blk.7.ffn_up.weight"};
    static const char *const words[] = {"needs 256", "no entry for any"};
    const double squares[3] = {1, 1, 1};
    struct err e = {0};
    write_model();
    for (int i = 0; i < 2; i++) {
        struct imatrix_sum sum = {.name = names[i], .squares = squares, .columns = 3, .rows = 1};
        struct imatrix *m = NULL;
        assert_int_equal(write_sums(&sum, 1), 0);
        assert_int_equal(imatrix_open(&m, file, &e), 0);
        struct convert_options o = {.recipe = convert_recipe("Q4_K_S"), .threads = 1, .imatrix = m};
        unlink(out_path);
        assert_int_equal(convert_quantize(in_path, out_path, &o, &e), ERR_MISMATCH);
        assert_non_null(strstr(e.text, words[i]));
        assert_int_equal(access(out_path, F_OK), -1);
        imatrix_close(m);
    }
}

static int set_up(void **state) {
    (void)state;
    snprintf(file, sizeof file, "/tmp/coppice-%ld.imatrix", (long)getpid());
    snprintf(in_path, sizeof in_path, "/tmp/coppice-imatrix-%ld-in.gguf", (long)getpid());
    snprintf(out_path, sizeof out_path, "/tmp/coppice-imatrix-%ld-out.gguf", (long)getpid());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unlink(file);
    unlink(in_path);
    unlink(out_path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_older_format),      cmocka_unit_test(refuses_broken_files),
        cmocka_unit_test(reads_the_gguf_format),       cmocka_unit_test(refuses_other_gguf_files),
        cmocka_unit_test(writes_what_it_reads),        cmocka_unit_test(quantises_with_importances),
        cmocka_unit_test(refuses_foreign_importances),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
