// SPDX-License-Identifier: Apache-2.0
// The GGUF reader on a worked example, on every mutation of it, and on files built to break one
// check each. A number in a comment (#n) is the check's number in docs/formats.md. Checks 20 to 23
// (what keys and shapes mean) belong to model loading. The writer's tests are in test_gguf_write.c.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "unit/test.h"

static const char example_hex[] =
    "4747554603000000010000000000000003000000000000001400000000000000"
    "67656e6572616c2e617263686974656374757265080000000100000000000000"
    "7401000000000000006109000000040000000200000000000000070000000900"
    "0000010000000000000062070000000101000000000000007702000000020000"
    "0000000000030000000000000000000000000000000000000000000000000000"
    "000000000000803f0000004000004040000080400000a0400000000000000000";

static void example(unsigned char *b) {
    for (int i = 0; i < 192; i++) {
        unsigned byte;
        sscanf(example_hex + 2 * i, "%2x", &byte);
        b[i] = (unsigned char)byte;
    }
}

// Opens a copy of exactly n bytes, so that a read past the end is a fault under asan.
static int open_bytes(struct gguf **g, const void *data, size_t n, struct err *e, void **keep) {
    *keep = malloc(n ? n : 1);
    memcpy(*keep, data, n);
    return gguf_open_memory(g, *keep, n, e);
}

// The bytes must be refused with a sentence that holds `part`.
static void refused(const void *data, size_t n, int code, const char *part) {
    struct err e = {0};
    struct gguf *g = NULL;
    void *keep;
    int rc = open_bytes(&g, data, n, &e, &keep);
    gguf_close(rc ? NULL : g);
    free(keep);
    if (rc != code || !strstr(e.text, part) || !strchr(e.text, ':'))
        fail_msg("code %d (wanted %d), text \"%s\" (wanted \"%s\")", rc, code, e.text, part);
}

static void reads_worked_example(void **state) {
    (void)state;
    unsigned char b[192];
    struct err e = {0};
    struct gguf *g;
    const char *s;
    size_t n;
    bool yes;
    example(b);
    assert_int_equal(gguf_open_memory(&g, b, sizeof b, &e), 0);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_kv_count(g), 3);
    assert_int_equal(gguf_get_str(g, "general.architecture", &s, &n, &e), 0);
    assert_true(n == 1 && *s == 't');
    const struct gguf_kv *a = gguf_find(g, "a");
    assert_true(a && a->kind == GGUF_ARRAY && a->elem == GGUF_U32 && a->count == 2);
    assert_true(gguf_array_int(a, 0) == 7 && gguf_array_int(a, 1) == 9);
    assert_int_equal(gguf_get_bool(g, "b", false, &yes, &e), 0);
    assert_true(yes);
    const struct tensor *t = gguf_tensor(g, "w");
    assert_ptr_equal(t, gguf_tensor_at(g, 0));
    assert_true(t->n_dims == 2 && t->ne[0] == 2 && t->ne[1] == 3 && t->ne[2] == 1 && t->ne[3] == 1);
    assert_true(t->type == TYPE_F32 && t->bytes == 24 && (const char *)t->data == (char *)b + 160);
    assert_null(gguf_tensor(g, "v"));
    assert_null(gguf_find(g, "c"));
    assert_null(gguf_tensor_at(g, 1));
    gguf_close(g);
    b[4] = 2; // version 2 is the same file
    assert_int_equal(gguf_open_memory(&g, b, sizeof b, &e), 0);
    gguf_close(g);
}

static void refuses_every_cut(void **state) {
    (void)state;
    unsigned char b[192];
    example(b);
    struct err e = {0};
    struct gguf *g;
    void *keep;
    for (size_t n = 0; n < 184; n++)
        refused(b, n, ERR_FORMAT, "");
    // The padding after the last tensor is not needed.
    for (size_t n = 184; n <= 192; n++) {
        assert_int_equal(open_bytes(&g, b, n, &e, &keep), 0);
        gguf_close(g);
        free(keep);
    }
}

struct mutation {
    int at, n;
    unsigned char bytes[8];
    int code;
    const char *part;
};

#define U64_MAX {255, 255, 255, 255, 255, 255, 255, 255}
#define U64_TOP {0, 0, 0, 0, 0, 0, 0, 128}
static const struct mutation mutations[] = {
    {0, 1, {'g'}, ERR_FORMAT, "no GGUF file"},                                // #2
    {4, 4, {0}, ERR_UNSUPPORTED, "version 0"},                                // #2
    {4, 4, {1}, ERR_UNSUPPORTED, "version 1"},                                // #2
    {4, 4, {4}, ERR_UNSUPPORTED, "version 4"},                                // #2
    {4, 4, {0, 0, 0, 3}, ERR_UNSUPPORTED, "big-endian"},                      // #2
    {8, 8, U64_TOP, ERR_FORMAT, "9223372036854775808 tensors"},               // #3
    {8, 8, U64_MAX, ERR_FORMAT, "tensors cannot fit"},                        // #3
    {8, 8, {8}, ERR_FORMAT, "8 tensors cannot fit"},                          // #3
    {16, 8, U64_TOP, ERR_FORMAT, "metadata keys cannot fit"},                 // #3
    {16, 8, U64_MAX, ERR_FORMAT, "metadata keys cannot fit"},                 // #3
    {24, 8, U64_MAX, ERR_FORMAT, "at most 65535"},                            // #4
    {24, 8, {0, 255}, ERR_FORMAT, "cut off"},                                 // #4
    {56, 8, U64_MAX, ERR_FORMAT, "at most 1073741824"},                       // #4
    {56, 8, {200}, ERR_FORMAT, "value of key 'general.architecture'"},        // #4
    {112, 8, {64}, ERR_FORMAT, "at most 63"},                                 // #4
    {39, 1, {0}, ERR_FORMAT, "NUL"},                                          // #4
    {120, 1, {0}, ERR_FORMAT, "NUL"},                                         // #4
    {120, 1, {0xff}, ERR_FORMAT, "UTF-8"},                                    // #25
    {112, 8, {0}, ERR_FORMAT, "empty"},                                       // #5
    {65, 8, {0}, ERR_FORMAT, "empty"},                                        // #5
    {106, 1, {'a'}, ERR_FORMAT, "key 'a' occurs twice"},                      // #5
    {107, 4, {13}, ERR_FORMAT, "unknown type 13"},                            // #6
    {52, 4, {255, 255, 255, 255}, ERR_FORMAT, "unknown type 4294967295"},     // #6
    {78, 4, {9}, ERR_UNSUPPORTED, "array of arrays"},                         // #7
    {78, 4, {13}, ERR_FORMAT, "unknown element type 13"},                     // #7
    {82, 8, {0, 0, 0, 0, 0, 0, 0, 32}, ERR_FORMAT, "2305843009213693952"},    // #7
    {82, 8, {0, 0, 0, 64}, ERR_FORMAT, "cut off"},                            // #7
    {82, 8, {40}, ERR_FORMAT, "cut off"},                                     // #7
    {111, 1, {2}, ERR_FORMAT, "not 0 or 1"},                                  // #8
    {121, 4, {0}, ERR_FORMAT, "0 dimensions"},                                // #10
    {121, 4, {5}, ERR_FORMAT, "5 dimensions"},                                // #10
    {121, 4, {255, 255, 255, 255}, ERR_FORMAT, "4294967295 dimensions"},      // #10
    {125, 8, {0}, ERR_FORMAT, "dimension 0 of tensor 'w' is 0"},              // #11
    {133, 8, U64_TOP, ERR_FORMAT, "dimension 1"},                             // #11
    {141, 4, {4}, ERR_UNSUPPORTED, "unknown type 4"},                         // #12
    {141, 4, {31}, ERR_UNSUPPORTED, "unknown type 31"},                       // #12
    {141, 4, {43}, ERR_UNSUPPORTED, "unknown type 43"},                       // #12
    {141, 4, {0, 0, 0, 128}, ERR_UNSUPPORTED, "unknown type 2147483648"},     // #12
    {141, 4, {12}, ERR_FORMAT, "not a multiple of Q4_K's block of 256"},      // #13
    {133, 8, {255, 255, 255, 255, 255, 255, 255, 127}, ERR_FORMAT, "2^63"},   // #14
    {145, 8, {16}, ERR_FORMAT, "not a multiple of the alignment 32"},         // #16
    {145, 8, {224, 255, 255, 255, 255, 255, 255, 255}, ERR_FORMAT, "beyond"}, // #16
    {145, 8, {32}, ERR_FORMAT, "beyond the file's end"},                      // #16
    {145, 8, {0, 1}, ERR_FORMAT, "beyond the file's end"},                    // #16
    {133, 8, {4, 1}, ERR_FORMAT, "beyond the file's end"},                    // #16
    {8, 8, {2}, ERR_FORMAT, ""},                                              // #19
    {16, 8, {4}, ERR_FORMAT, ""},                                             // #19
    {16, 8, {2}, ERR_FORMAT, ""},                                             // #19
};

static void refuses_every_mutation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        const struct mutation *m = &mutations[i];
        unsigned char b[192];
        example(b);
        memcpy(b + m->at, m->bytes, (size_t)m->n);
        refused(b, sizeof b, m->code, m->part);
    }
    unsigned char b[192];
    example(b);
    memset(b + 125, 0, 16);
    b[129] = b[137] = 1; // dims {2^32, 2^32}: the product wraps to 0
    refused(b, sizeof b, ERR_FORMAT, "2^63");
}

// No single changed byte may do worse than be refused.
static void survives_every_byte(void **state) {
    (void)state;
    for (int at = 0; at < 192; at++) {
        for (int v = 0; v < 256; v += 15) {
            unsigned char b[192];
            struct err e = {0};
            struct gguf *g;
            void *keep;
            example(b);
            b[at] = (unsigned char)v;
            if (!open_bytes(&g, b, sizeof b, &e, &keep))
                gguf_close(g);
            else
                assert_true(e.text[0] && e.code < 0);
            free(keep);
        }
    }
}

static void put(struct str *s, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        str_putc(s, (char)(v >> 8 * i & 255));
}

static void put_text(struct str *s, const char *text) {
    put(s, strlen(text), 8);
    str_puts(s, text);
}

static void put_head(struct str *s, uint64_t tensors, uint64_t keys) {
    str_clear(s);
    str_puts(s, "GGUF");
    put(s, 3, 4);
    put(s, tensors, 8);
    put(s, keys, 8);
}

static void put_tensor(struct str *s, const char *name, uint64_t n, uint64_t offset) {
    put_text(s, name);
    put(s, 1, 4);
    put(s, n, 8);
    put(s, TYPE_F32, 4);
    put(s, offset, 8);
}

static void pad_to(struct str *s, size_t size) {
    while (s->len < size)
        str_putc(s, 0);
}

static void checks_alignment(void **state) { // #9, #15
    (void)state;
    static const struct {
        uint32_t kind;
        uint64_t value;
        const char *part;
    } cases[] = {
        {GGUF_U32, 0, "power of two"},   {GGUF_U32, 3, "power of two"},
        {GGUF_U32, 1u << 31, "padding"}, {GGUF_U32, 512, "padding"},
        {GGUF_U64, 32, "has type u64"},  {GGUF_I32, 32, "has type i32"},
        {GGUF_BOOL, 1, "has type bool"},
    };
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    struct str s = {0};
    struct err e = {0};
    struct gguf *g;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_head(&s, 1, 1);
        put_text(&s, "general.alignment");
        put(&s, cases[i].kind, 4);
        put(&s, cases[i].value, sizes[cases[i].kind]);
        put_tensor(&s, "w", 4, 0);
        pad_to(&s, 200);
        refused(s.data, s.len, ERR_FORMAT, cases[i].part);
    }
    put_head(&s, 1, 1);
    put_text(&s, "general.alignment");
    put(&s, GGUF_U32, 4);
    put(&s, 64, 4);
    put_tensor(&s, "w", 4, 64);
    pad_to(&s, 128 + 64 + 16);
    assert_int_equal(gguf_open_memory(&g, s.data, s.len, &e), 0);
    assert_ptr_equal(gguf_tensor_at(g, 0)->data, s.data + 192);
    gguf_close(g);
    str_fini(&s);
}

static void checks_overlap(void **state) { // #17, #18
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct gguf *g;
    for (int overlap = 0; overlap < 3; overlap++) {
        put_head(&s, 3, 0);
        put_tensor(&s, "late", 8, 64);
        put_tensor(&s, overlap == 2 ? "late" : "first", overlap == 1 ? 9 : 8, 0);
        put_tensor(&s, "middle", 8, 32);
        pad_to(&s, 160 + 96);
        if (overlap == 1)
            refused(s.data, s.len, ERR_FORMAT, "'middle' overlaps tensor 'first'");
        if (overlap == 2)
            refused(s.data, s.len, ERR_FORMAT, "tensor 'late' occurs twice");
        if (overlap)
            continue;
        assert_int_equal(gguf_open_memory(&g, s.data, s.len, &e), 0); // any order is fine
        assert_true((const char *)gguf_tensor(g, "late")->data -
                        (const char *)gguf_tensor(g, "first")->data ==
                    64);
        gguf_close(g);
    }
    str_fini(&s);
}

static void checks_template_text(void **state) { // #25
    (void)state;
    struct str s = {0};
    put_head(&s, 0, 1);
    put_text(&s, "tokenizer.chat_template");
    put(&s, GGUF_STRING, 4);
    put_text(&s, "a\xc3(");
    refused(s.data, s.len, ERR_FORMAT, "not valid UTF-8");
    str_fini(&s);
}

// 10^5 keys and tensors are read in a blink: a pairwise check of duplicates would take minutes.
static void reads_many_entries(void **state) { // #5
    (void)state;
    enum { MANY = 100000 };
    struct str s = {0};
    struct err e = {0};
    struct gguf *g;
    char name[32];
    put_head(&s, MANY, MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        put_text(&s, name);
        put(&s, GGUF_U32, 4);
        put(&s, (uint64_t)i, 4);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "tensor.%d", i);
        put_tensor(&s, name, 8, 32 * (uint64_t)i);
    }
    pad_to(&s, (s.len + 31) / 32 * 32 + 32 * (size_t)MANY);
    assert_int_equal(gguf_open_memory(&g, s.data, s.len, &e), 0);
    assert_true(gguf_array_int(gguf_find(g, "key.77777"), 0) == 77777);
    assert_string_equal(gguf_tensor(g, "tensor.99999")->name, "tensor.99999");
    gguf_close(g);
    str_fini(&s);
}

static void typed_reads(void **state) {
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct gguf *g;
    int64_t v;
    double d;
    bool b;
    const char *text;
    size_t n;
    put_head(&s, 0, 6);
    put_text(&s, "i8"), put(&s, GGUF_I8, 4), put(&s, 0xfe, 1);
    put_text(&s, "u64"), put(&s, GGUF_U64, 4), put(&s, UINT64_MAX, 8);
    put_text(&s, "u16"), put(&s, GGUF_U16, 4), put(&s, 65535, 2);
    put_text(&s, "f64"), put(&s, GGUF_F64, 4), put(&s, 0x3ff8000000000000u, 8);
    put_text(&s, "nan"), put(&s, GGUF_F32, 4), put(&s, 0x7fc00000u, 4);
    put_text(&s, "list"), put(&s, GGUF_ARRAY, 4), put(&s, GGUF_STRING, 4), put(&s, 2, 8);
    put_text(&s, "one"), put_text(&s, "");
    assert_int_equal(gguf_open_memory(&g, s.data, s.len, &e), 0);
    assert_int_equal(gguf_get_int(g, "none", 0, 9, 42, &v, &e), 0);
    assert_int_equal(v, 42);
    assert_int_equal(gguf_get_int(g, "i8", -5, 5, 0, &v, &e), 0);
    assert_int_equal(v, -2);
    assert_int_equal(gguf_get_int(g, "i8", 0, 5, 0, &v, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "'i8' is -2, allowed are 0 to 5"));
    assert_int_equal(gguf_get_int(g, "u64", 0, INT64_MAX, 0, &v, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "above"));
    assert_int_equal(gguf_get_int(g, "u16", 0, 65535, 0, &v, &e), 0);
    assert_int_equal(v, 65535);
    assert_int_equal(gguf_get_int(g, "f64", 0, 9, 0, &v, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "has type f64, not an integer"));
    assert_int_equal(gguf_get_float(g, "f64", 0, &d, &e), 0);
    assert_true(d == 1.5);
    assert_int_equal(gguf_get_float(g, "nan", 0, &d, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_float(g, "u16", 0, &d, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_bool(g, "u16", true, &b, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_str(g, "list", &text, &n, &e), ERR_FORMAT);
    const struct gguf_kv *list = gguf_find(g, "list");
    const unsigned char *cursor = list->bytes;
    text = gguf_array_str(&cursor, &n);
    assert_true(n == 3 && !memcmp(text, "one", 3));
    gguf_array_str(&cursor, &n);
    assert_int_equal(n, 0);
    gguf_close(g);
    str_fini(&s);
}

static void write_file(const char *path, const struct str *s) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(s->data, 1, s->len, f), s->len);
    fclose(f);
}

// Part `no` of `count`, with one tensor, claiming `total` tensors in all.
static void write_part(const char *path, int no, int count, int total, const char *tensor) {
    struct str s = {0};
    put_head(&s, tensor ? 1 : 0, no ? 3 : 4);
    if (!no)
        put_text(&s, "general.architecture"), put(&s, GGUF_STRING, 4), put_text(&s, "t");
    put_text(&s, "split.no"), put(&s, GGUF_U16, 4), put(&s, (uint64_t)no, 2);
    put_text(&s, "split.count"), put(&s, GGUF_U16, 4), put(&s, (uint64_t)count, 2);
    put_text(&s, "split.tensors.count"), put(&s, GGUF_I32, 4), put(&s, (uint64_t)total, 4);
    if (tensor)
        put_tensor(&s, tensor, 8, 0);
    pad_to(&s, (s.len + 31) / 32 * 32);
    pad_to(&s, s.len + 32);
    s.data[s.len - 32] = (char)no;
    write_file(path, &s);
    str_fini(&s);
}

static void open_refused(const char *path, int code, const char *part) {
    struct err e = {0};
    struct gguf *g;
    int rc = gguf_open(&g, path, &e);
    if (rc != code || !strstr(e.text, part))
        fail_msg("code %d (wanted %d), text \"%s\" (wanted \"%s\")", rc, code, e.text, part);
}

static void follows_split_files(void **state) { // #18, #19, #24
    (void)state;
    char dir[] = "/tmp/coppice-gguf-XXXXXX", p[4][64];
    struct err e = {0};
    struct gguf *g;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++)
        snprintf(p[i], sizeof p[i], "%s/m-%05d-of-00003.gguf", dir, i + 1);
    snprintf(p[3], sizeof p[3], "%s/m.gguf", dir);
    write_part(p[0], 0, 3, 2, NULL);
    write_part(p[1], 1, 3, 2, "one");
    write_part(p[2], 2, 3, 2, "two");
    for (int i = 0; i < 3; i++) { // whichever part is given
        assert_int_equal(gguf_open(&g, p[i], &e), 0);
        assert_string_equal(gguf_path(g), p[0]);
        assert_int_equal(gguf_tensor_count(g), 2);
        assert_int_equal(gguf_parts(g), 3);
        assert_int_equal(gguf_kv_count(g), 4);
        assert_int_equal(*(const char *)gguf_tensor(g, "one")->data, 1);
        assert_int_equal(*(const char *)gguf_tensor(g, "two")->data, 2);
        gguf_close(g);
    }
    write_part(p[0], 1, 3, 2, NULL);
    open_refused(p[1], ERR_FORMAT, "m-00001-of-00003.gguf is not part 1 of 3");
    unlink(p[0]);
    open_refused(p[1], ERR_IO, "m-00001-of-00003.gguf");
    write_part(p[0], 0, 3, 3, NULL);
    open_refused(p[0], ERR_FORMAT, "2 tensors, but split.tensors.count says 3");
    write_part(p[0], 0, 3, 2, NULL);
    write_part(p[2], 2, 3, 2, "one");
    open_refused(p[0], ERR_FORMAT, "'one' occurs twice");
    write_part(p[2], 1, 3, 2, "two");
    open_refused(p[0], ERR_FORMAT, "say part 2 of 3");
    unlink(p[2]);
    open_refused(p[0], ERR_IO, "m-00003-of-00003.gguf");
    write_part(p[3], 0, 3, 2, NULL);
    open_refused(p[3], ERR_FORMAT, "restore its name");
    write_part(p[0], 3, 3, 2, NULL);
    open_refused(p[0], ERR_FORMAT, "makes no sense");
    for (int i = 0; i < 4; i++)
        unlink(p[i]);
    rmdir(dir);
}

static void refuses_other_files(void **state) { // #1
    (void)state;
    open_refused("/nonexistent/model.gguf", ERR_IO, "/nonexistent/model.gguf");
    open_refused("/tmp", ERR_IO, "/tmp");
    refused("GGUF", 4, ERR_FORMAT, "cut off");
    refused("", 0, ERR_FORMAT, "cut off");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_worked_example),
        cmocka_unit_test(refuses_every_cut),
        cmocka_unit_test(refuses_every_mutation),
        cmocka_unit_test(survives_every_byte),
        cmocka_unit_test(checks_alignment),
        cmocka_unit_test(checks_overlap),
        cmocka_unit_test(checks_template_text),
        cmocka_unit_test(reads_many_entries),
        cmocka_unit_test(typed_reads),
        cmocka_unit_test(follows_split_files),
        cmocka_unit_test(refuses_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
