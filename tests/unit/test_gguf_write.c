// SPDX-License-Identifier: Apache-2.0
// The GGUF writer: what it writes is read back equal, is packed and padded, appears under its name
// only when complete, and misuse is reported and leaves no files.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "unit/test.h"

static char folder[] = "/tmp/coppice-write-XXXXXX";
static char path[64], copy_path[64];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    snprintf(copy_path, sizeof copy_path, "%s/copy.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    unlink(copy_path);
    return rmdir(folder);
}

static int files_in_folder(void) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *f = readdir(d); f; f = readdir(d))
        n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static const int64_t shape_a[] = {3, 5}, shape_b[] = {64, 2, 3}, shape_c[] = {1};

// Writes a file with every kind of metadata and three tensors.
static void write_all_kinds(const char *to, uint32_t alignment) {
    struct gguf_writer *w;
    struct err e = {0};
    const int32_t list[] = {-1, 0, 7};
    const char *texts[] = {"one", "", "thr\0ee"};
    const size_t lengths[] = {3, 0, 6};
    float a[15], c = 2.5f;
    unsigned char b[408];
    for (int i = 0; i < 15; i++)
        a[i] = (float)i;
    for (int i = 0; i < 408; i++)
        b[i] = (unsigned char)i;
    assert_int_equal(gguf_writer_open(&w, to, &e), 0);
    gguf_put_str(w, "general.architecture", "t", 1);
    if (alignment)
        gguf_put_int(w, "general.alignment", GGUF_U32, alignment);
    gguf_put_int(w, "u8", GGUF_U8, 200);
    gguf_put_int(w, "i16", GGUF_I16, -300);
    gguf_put_int(w, "u64", GGUF_U64, INT64_MAX);
    gguf_put_f32(w, "f32", 1e-6f);
    gguf_put_bool(w, "bool", true);
    gguf_put_str(w, "broken", "caf\xC3\xA9 \xE4\xBD!\xFF", 10);
    gguf_put_array(w, "list", GGUF_I32, list, 3);
    gguf_put_str_array(w, "texts", texts, lengths, 3);
    gguf_add_tensor(w, "a", TYPE_F32, 2, shape_a);
    gguf_add_tensor(w, "b.weight", TYPE_Q8_0, 3, shape_b);
    gguf_add_tensor(w, "c", TYPE_F32, 1, shape_c);
    assert_int_equal(gguf_write_data(w, a, 20, &e), 0); // in pieces
    assert_int_equal(gguf_write_data(w, a + 5, 40, &e), 0);
    assert_int_equal(gguf_write_data(w, b, 408, &e), 0);
    assert_int_equal(access(to, F_OK), -1); // not there until it is complete
    assert_int_equal(gguf_write_data(w, &c, 4, &e), 0);
    assert_int_equal(gguf_writer_close(w, &e), 0);
}

static void check_all_kinds(const char *from, uint32_t alignment) {
    struct gguf *g;
    struct err e = {0};
    int64_t v;
    double f;
    size_t n;
    assert_int_equal(gguf_open(&g, from, &e), 0);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_bytes(g) % alignment, 0);
    assert_int_equal(gguf_get_int(g, "i16", -300, 0, 0, &v, &e), 0);
    assert_int_equal(v, -300);
    assert_int_equal(gguf_get_int(g, "u64", 0, INT64_MAX, 0, &v, &e), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(gguf_get_float(g, "f32", 0, &f, &e), 0);
    assert_true((float)f == 1e-6f);
    const char *repaired;
    assert_int_equal(gguf_get_str(g, "broken", &repaired, &n, &e), 0);
    assert_true(n == 13 && !memcmp(repaired, "caf\xC3\xA9 \xEF\xBF\xBD!\xEF\xBF\xBD", n));
    assert_int_equal(gguf_array_int(gguf_find(g, "list"), 0), -1);
    const unsigned char *cursor = gguf_find(g, "texts")->bytes;
    gguf_array_str(&cursor, &n);
    gguf_array_str(&cursor, &n);
    assert_true(!memcmp(gguf_array_str(&cursor, &n), "thr\0ee", 6) && n == 6);
    const struct tensor *a = gguf_tensor(g, "a"), *b = gguf_tensor(g, "b.weight");
    const struct tensor *c = gguf_tensor(g, "c");
    assert_true(a->n_dims == 2 && a->ne[0] == 3 && a->ne[1] == 5 && a->bytes == 60);
    assert_true(b->n_dims == 3 && b->ne[2] == 3 && b->bytes == 408 && b->type == TYPE_Q8_0);
    const char *at = a->data, *next = b->data, *last = c->data;
    assert_int_equal(next - at, alignment > 60 ? alignment : 64); // packed, padded
    assert_int_equal(last - next, (408 + alignment - 1) / alignment * alignment);
    assert_int_equal(at[60] | at[61] | at[62] | at[63], 0);
    float x[15];
    memcpy(x, at, sizeof x);
    assert_true(x[0] == 0 && x[14] == 14);
    assert_int_equal((unsigned char)next[407], 407 & 255);
    gguf_close(g);
}

static void reads_back(void **state) {
    (void)state;
    write_all_kinds(path, 0);
    check_all_kinds(path, 32);
    unlink(path);
    write_all_kinds(path, 64);
    check_all_kinds(path, 64);
    assert_int_equal(files_in_folder(), 1);
}

static void copies_entries(void **state) {
    (void)state;
    struct gguf *g;
    struct gguf_writer *w;
    struct err e = {0};
    assert_int_equal(gguf_open(&g, path, &e), 0);
    assert_int_equal(gguf_writer_open(&w, copy_path, &e), 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        gguf_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(gguf_write_data(w, t->data, (size_t)t->bytes, &e), 0);
    }
    assert_int_equal(gguf_writer_close(w, &e), 0);
    gguf_close(g);
    char a[4096], b[4096];
    FILE *fa = fopen(path, "rb"), *fb = fopen(copy_path, "rb");
    size_t n = fread(a, 1, sizeof a, fa);
    assert_int_equal(fread(b, 1, sizeof b, fb), n);
    assert_memory_equal(a, b, n);
    fclose(fa);
    fclose(fb);
    unlink(copy_path);
}

// One wrong use per row; closing must fail with a sentence that holds `part`.
static void wrong_use(struct gguf_writer *w, int which) {
    static const int64_t odd[] = {33}, zero[] = {32, 0};
    static const char bytes[64];
    struct err e = {0};
    gguf_put_bool(w, "k", true);
    if (which == 0)
        gguf_put_f32(w, "k", 1);
    if (which == 1)
        gguf_add_tensor(w, "odd", TYPE_Q4_0, 1, odd);
    if (which == 2)
        gguf_add_tensor(w, "zero", TYPE_F32, 2, zero);
    if (which == 3)
        gguf_add_tensor(w, "type", 31, 1, odd);
    gguf_add_tensor(w, "t", TYPE_F32, 1, shape_c);
    if (which == 4)
        gguf_add_tensor(w, "t", TYPE_F32, 1, shape_c);
    if (which == 5)
        gguf_put_int(w, "general.alignment", GGUF_U32, 64);
    if (which == 6)
        assert_int_equal(gguf_write_data(w, bytes, 5, &e), ERR_STATE);
    if (which == 7)
        gguf_add_tensor(w, "a name of sixty-four bytes, which is one more than readers can take", 0,
                        1, odd);
}

static void reports_misuse(void **state) {
    (void)state;
    static const char *const parts[] = {"'k' is written twice",
                                        "'odd'",
                                        "'zero'",
                                        "'type'",
                                        "'t' is written twice",
                                        "general.alignment",
                                        "more data",
                                        "sixty-four",
                                        "1 tensors is missing"};
    for (int i = 0; i < 9; i++) {
        struct gguf_writer *w;
        struct err e = {0};
        assert_int_equal(gguf_writer_open(&w, copy_path, &e), 0);
        wrong_use(w, i);
        assert_int_equal(gguf_writer_close(w, &e), ERR_STATE);
        if (!strstr(e.text, parts[i]))
            fail_msg("\"%s\" lacks \"%s\"", e.text, parts[i]);
        assert_int_equal(access(copy_path, F_OK), -1);
    }
    assert_int_equal(files_in_folder(), 1);
}

static void leaves_no_files(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct err e = {0};
    assert_int_equal(gguf_writer_open(&w, copy_path, &e), 0);
    gguf_writer_abort(w);
    gguf_writer_abort(NULL);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(gguf_writer_open(&w, "/nonexistent/out.gguf", &e), ERR_IO);
    assert_non_null(strstr(e.text, "/nonexistent/out.gguf"));
    assert_int_equal(gguf_writer_open(&w, "/dev/null", &e), ERR_USAGE);
}

// Five tensors of 8, 64, 8, 8 and 40 floats; `max` bytes in a part. Their data is written in odd
// pieces; `given` floats of it come.
static int write_parts(const char *to, int64_t max, int64_t given, struct err *e) {
    static const int64_t sizes[] = {8, 64, 8, 8, 40};
    struct gguf_writer *w;
    char name[8];
    int rc = gguf_writer_open(&w, to, e);
    assert_int_equal(rc, 0);
    gguf_put_str(w, "general.architecture", "t", 1);
    gguf_put_int(w, "general.alignment", GGUF_U32, 64);
    gguf_writer_split(w, max);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        gguf_add_tensor(w, name, TYPE_F32, 1, &sizes[i]);
    }
    float v = 0;
    for (int i = 0; i < 5 && !rc; i++)
        for (int64_t k = 0; k < sizes[i] && !rc && given > 0; k++, v++, given--)
            rc = gguf_write_data(w, &v, sizeof v, e);
    return gguf_writer_close(w, e);
}

static void check_parts(const char *first, int parts) {
    struct gguf *g;
    struct err e = {0};
    float want = 0, have;
    if (gguf_open(&g, first, &e))
        fail_msg("%s", e.text);
    assert_int_equal(gguf_parts(g), parts);
    assert_int_equal(gguf_tensor_count(g), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        assert_true(t->name[1] == (char)('0' + i));
        for (int64_t k = 0; k < t->ne[0]; k++, want++) {
            memcpy(&have, (const char *)t->data + 4 * k, sizeof have);
            assert_true(have == want);
        }
    }
    assert_int_equal(gguf_kv_count(g), parts > 1 ? 5 : 2);
    gguf_close(g);
}

// A part holds as many tensors as fit, and at least one.
static void writes_parts(void **state) {
    (void)state;
    static const struct {
        int64_t max;
        int parts;
    } cases[] = {{1, 5}, {100, 4}, {256, 3}, {1 << 20, 1}};
    char part[96];
    struct err e = {0};
    unlink(path);
    unlink(copy_path);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int n = cases[c].parts;
        if (write_parts(path, cases[c].max, 128, &e))
            fail_msg("%s", e.text);
        assert_int_equal(files_in_folder(), n);
        for (int i = n; i >= 1; i--) {
            (void)snprintf(part, sizeof part, "%s/out-%05d-of-%05d.gguf", folder, i, n);
            check_parts(n > 1 ? part : path, n);
        }
        for (int i = 1; i <= n; i++) {
            (void)snprintf(part, sizeof part, "%s/out-%05d-of-%05d.gguf", folder, i, n);
            assert_int_equal(unlink(n > 1 ? part : path), 0);
        }
    }
    assert_int_equal(write_parts(path, 100, 127, &e), ERR_STATE); // a value is missing
    assert_int_equal(write_parts(path, 100, 3, &e), ERR_STATE);
    assert_int_equal(write_parts(path, 0, 128, &e), ERR_STATE);
    assert_int_equal(files_in_folder(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),     cmocka_unit_test(copies_entries),
        cmocka_unit_test(reports_misuse), cmocka_unit_test(leaves_no_files),
        cmocka_unit_test(writes_parts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
