// SPDX-License-Identifier: Apache-2.0
// The content hash of model files: the same for copies, another one for other metadata, shapes and
// data, in whole tensors and in the pieces that are looked at of large ones.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/content.h"
#include "formats/quant.h"
#include "unit/test.h"

enum { LARGE = 40000, SMALL = 100 }; // floats

struct file {
    const char *name;           // metadata
    int64_t rows;               // of the large tensor
    int64_t at_large, at_small; // a value that is changed; -1: none
};

static uint64_t hash_of(const struct file *f) {
    char path[64];
    struct gguf_writer *w;
    struct gguf *g;
    float *large = calloc(LARGE, sizeof *large), small[SMALL] = {0};
    int64_t ne[2] = {LARGE / f->rows, f->rows}, one[1] = {SMALL};
    assert_non_null(large);
    if (f->at_large >= 0)
        large[f->at_large] = 1;
    if (f->at_small >= 0)
        small[f->at_small] = 1;
    snprintf(path, sizeof path, "/tmp/coppice-content-%d.gguf", (int)getpid());
    assert_int_equal(gguf_writer_open(&w, path, NULL), 0);
    gguf_put_str(w, "general.name", f->name, strlen(f->name));
    const char *words[] = {"a", "bc"};
    const size_t lengths[] = {1, 2};
    gguf_put_str_array(w, "words", words, lengths, 2);
    gguf_add_tensor(w, "large", TYPE_F32, 2, ne);
    gguf_add_tensor(w, "small", TYPE_F32, 1, one);
    assert_int_equal(gguf_write_data(w, large, LARGE * sizeof *large, NULL), 0);
    assert_int_equal(gguf_write_data(w, small, sizeof small, NULL), 0);
    assert_int_equal(gguf_writer_close(w, NULL), 0);
    assert_int_equal(gguf_open(&g, path, NULL), 0);
    uint64_t h = content_of_gguf(g);
    gguf_close(g);
    unlink(path);
    free(large);
    return h;
}

static void tells_files_apart(void **state) {
    (void)state;
    static const struct file files[] = {
        {"model", 100, -1, -1}, {"mode", 100, -1, -1},         {"model", 200, -1, -1},
        {"model", 100, 0, -1},  {"model", 100, LARGE - 1, -1}, {"model", 100, LARGE - 1024, -1},
        {"model", 100, -1, 0},  {"model", 100, -1, SMALL - 1},
    };
    enum { FILES = sizeof files / sizeof *files };
    uint64_t h[FILES];
    for (int i = 0; i < FILES; i++) {
        h[i] = hash_of(&files[i]);
        assert_true(h[i] == hash_of(&files[i]));
        for (int j = 0; j < i; j++)
            assert_true(h[i] != h[j]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_files_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
