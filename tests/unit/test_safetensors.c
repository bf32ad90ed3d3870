// SPDX-License-Identifier: Apache-2.0
// The safetensors reader on sound and hostile headers, and on sharded folders. A number in a
// comment (#n) is the check's number in docs/formats.md.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "formats/quant/quant.h"
#include "formats/safetensors.h"
#include "unit/test.h"

// Builds a file of a header text and n data bytes 0, 1, 2, ...
static void build(struct str *s, const char *header, size_t n) {
    str_clear(s);
    for (int i = 0; i < 8; i++)
        str_putc(s, (char)((uint64_t)strlen(header) >> 8 * i & 255));
    str_puts(s, header);
    for (size_t i = 0; i < n; i++)
        str_putc(s, (char)i);
}

static int open_bytes(struct safetensors **out, const void *data, size_t n, struct err *e) {
    char path[] = "/tmp/coppice-safetensors-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
    int rc = safetensors_open(out, path, e);
    unlink(path);
    return rc;
}

static void reads_minimal_example(void **state) {
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct safetensors *f;
    build(&s, "{\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}       ", 24);
    assert_int_equal(s.len, 96);
    assert_int_equal(open_bytes(&f, s.data, s.len, &e), 0);
    assert_int_equal(safetensors_count(f), 1);
    const struct tensor *t = safetensors_tensor(f, "w");
    assert_ptr_equal(t, safetensors_at(f, 0));
    assert_true(t->n_dims == 2 && t->ne[0] == 2 && t->ne[1] == 3 && t->ne[2] == 1); // reversed
    assert_true(t->type == TYPE_F32 && t->bytes == 24 && !memcmp(t->data, s.data + 72, 24));
    assert_null(safetensors_tensor(f, "v"));
    assert_null(safetensors_at(f, 1));
    safetensors_close(f);
    str_fini(&s);
}

// #7: odd header length; escapes and spaces; members in another order; scalar, empty and
// unreadable tensors; metadata.
static void reads_unusual_headers(void **state) {
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct safetensors *f;
    build(&s,
          "{ \"__metadata__\" : {\"a:{\" : \"b\\\"}\"}, \"caf\\u00e9\\n\":\n"
          "{\"shape\":[],\"data_offsets\":[0, 2],\"dtype\":\"BF16\"},"
          "\"none\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[2,2]},"
          "\"fp8\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[2,5]},"
          "\"conv\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1],\"data_offsets\":[5,7]},"
          "\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[7,15]}}",
          15);
    assert_int_equal(open_bytes(&f, s.data, s.len, &e), 0);
    assert_int_equal(safetensors_count(f), 3);
    assert_int_equal(safetensors_unreadable_count(f), 2);
    const struct tensor *t = safetensors_tensor(f, "caf\xc3\xa9\n");
    assert_true(t && t->n_dims == 1 && t->ne[0] == 1 && t->type == TYPE_BF16 && t->bytes == 2);
    t = safetensors_tensor(f, "none");
    assert_true(t && t->ne[0] == 0 && t->ne[1] == 4 && t->bytes == 0);
    assert_string_equal(safetensors_at(f, 2)->name, "i");
    assert_null(safetensors_tensor(f, "fp8"));
    assert_string_equal(safetensors_unreadable(f, "fp8"), "dtype F8_E4M3");
    assert_string_equal(safetensors_unreadable(f, "conv"), "5 dimensions");
    assert_null(safetensors_unreadable(f, "i"));
    safetensors_close(f);
    str_fini(&s);
}

static void takes_null_for_no_metadata(void **state) { // #2
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct safetensors *f;
    build(&s,
          "{\"__metadata__\":null,"
          "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4);
    assert_int_equal(open_bytes(&f, s.data, s.len, &e), 0);
    assert_int_equal(safetensors_count(f), 1);
    assert_non_null(safetensors_tensor(f, "w"));
    safetensors_close(f);
    str_fini(&s);
}

#define T(name, rest) "\"" name "\":{\"dtype\":\"F32\"," rest "}"
static const struct {
    const char *header;
    size_t data;
    const char *part;
} hostile[] = {
    {" {}", 0, "header length"},                                               // #2
    {"[]", 0, "header length"},                                                // #2
    {"{", 0, "not valid"},                                                     // #2
    {"{} x", 0, "not valid"},                                                  // #2
    {"{\"\xff\":1}", 0, "not valid"},                                          // #2
    {"{\"a\":1}", 0, "'a' is no object"},                                      // #2
    {"{\"__metadata__\":{\"k\":1}}", 0, "entry 'k' is no string"},             // #2
    {"{\"__metadata__\":{\"k\":null}}", 0, "entry 'k' is no string"},          // #2
    {"{\"__metadata__\":[]}", 0, "'__metadata__' is no object of strings"},    // #2
    {"{\"__metadata__\":\"\"}", 0, "'__metadata__' is no object of strings"},  // #2
    {"{\"__metadata__\":false}", 0, "'__metadata__' is no object of strings"}, // #2
    {"{\"__metadata__\":null,\"__metadata__\":{}}", 0, "twice"},               // #3
    {"{\"a\":null}", 0, "'a' is no object"},                                   // #2
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "," T(
         "a", "\"shape\":[1],\"data_offsets\":[0,4]") "}",
     4, "twice"},                                                                             // #3
    {"{" T("a", "\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]") "}", 4, "twice"},       // #3
    {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype 'F99'"},   // #4
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype ''"},                        // #4
    {"{" T("a", "\"shape\":[-1],\"data_offsets\":[0,4]") "}", 4, "no valid shape"},           // #4
    {"{" T("a", "\"shape\":[1.0],\"data_offsets\":[0,4]") "}", 4, "no valid shape"},          // #4
    {"{" T("a", "\"shape\":[1e0],\"data_offsets\":[0,4]") "}", 4, "no valid shape"},          // #4
    {"{" T("a", "\"shape\":1,\"data_offsets\":[0,4]") "}", 4, "no valid shape"},              // #4
    {"{" T("a", "\"data_offsets\":[0,4]") "}", 4, "no valid shape"},                          // #4
    {"{" T("a", "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]") "}", 0, "shape"}, // #4
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "no valid shape"}, // #4
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[4,0]") "}", 4, "do not lie"},                // #5
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[-4,0]") "}", 4, "do not lie"},               // #5
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[0]") "}", 4, "do not lie"},                  // #5
    {"{" T("a", "\"shape\":[1]") "}", 4, "do not lie"},                                       // #5
    {"{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "}", 4, "do not lie"},                // #5
    {"{" T("a", "\"shape\":[2],\"data_offsets\":[0,4]") "}", 4, "need 8"},                    // #5
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[4,8]") "}", 8, "begins at byte 4"},          // #6
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "}", 8, "cover 4 of 8"},              // #6
    {"{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "," T(
         "b", "\"shape\":[2],\"data_offsets\":[4,12]") "}",
     12, "where the one before"}, // #6
    {"{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "," T(
         "b", "\"shape\":[1],\"data_offsets\":[8,12]") "}",
     12, "where the one before"}, // #6
};

static void refuses_hostile_headers(void **state) {
    (void)state;
    struct str s = {0};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct err e = {0};
        struct safetensors *f;
        build(&s, hostile[i].header, hostile[i].data);
        int rc = open_bytes(&f, s.data, s.len, &e);
        if (rc != e.code || rc >= 0 || !strstr(e.text, hostile[i].part))
            fail_msg("%s gave %d \"%s\"", hostile[i].header, rc, e.text);
    }
    str_fini(&s);
}

static void refuses_hostile_lengths(void **state) { // #1
    (void)state;
    static const uint64_t lengths[] = {0, 1u << 30, 100000001, UINT64_MAX, UINT64_MAX - 7, 4};
    unsigned char b[11] = "12345678{}";
    struct err e = {0};
    struct safetensors *f;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(b, &lengths[i], 8);
        assert_int_equal(open_bytes(&f, b, 10, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "header length"));
    }
    for (size_t n = 0; n < 8; n++)
        assert_int_equal(open_bytes(&f, b, n, &e), ERR_FORMAT);
}

static char folder[] = "/tmp/coppice-safetensors-XXXXXX";

static void write_file(const char *name, const char *data, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void write_index(const char *map) {
    struct str s = {0};
    str_printf(&s, "{\"metadata\":{\"total_size\":8},\"weight_map\":%s}", map);
    write_file("model.safetensors.index.json", s.data, s.len);
    str_fini(&s);
}

static void open_folder_refused(int code, const char *part) {
    struct err e = {0};
    struct safetensors *f;
    int rc = safetensors_open(&f, folder, &e);
    if (rc != code || !strstr(e.text, part))
        fail_msg("%d \"%s\", wanted \"%s\"", rc, e.text, part);
}

static void follows_an_index(void **state) { // #8
    (void)state;
    struct str s = {0};
    struct err e = {0};
    struct safetensors *f;
    char path[128];
    assert_non_null(mkdtemp(folder));
    open_folder_refused(ERR_IO, "holds neither");
    build(&s, "{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "}", 4);
    write_file("model.safetensors", s.data, s.len);
    assert_int_equal(safetensors_open(&f, folder, &e), 0);
    assert_int_equal(safetensors_count(f), 1);
    safetensors_close(f);
    write_file("one.safetensors", s.data, s.len);
    build(&s, "{" T("b", "\"shape\":[1],\"data_offsets\":[0,4]") "}", 4);
    write_file("two.safetensors", s.data, s.len);
    write_index("{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}");
    assert_int_equal(safetensors_open(&f, folder, &e), 0);
    assert_true(safetensors_tensor(f, "a") && safetensors_tensor(f, "b"));
    safetensors_close(f);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_int_equal(safetensors_open(&f, path, &e), 0);
    safetensors_close(f);
    snprintf(path, sizeof path, "%s/two.safetensors", folder);
    assert_int_equal(safetensors_open(&f, path, &e), 0);
    safetensors_close(f);
    write_index("{\"a\":\"one.safetensors\",\"c\":\"two.safetensors\"}");
    open_folder_refused(ERR_MISMATCH, "'c' is not in 'two.safetensors'");
    write_index("{\"b\":\"one.safetensors\",\"a\":\"two.safetensors\"}");
    open_folder_refused(ERR_MISMATCH, "is not in");
    write_index("{\"a\":\"../one.safetensors\"}");
    open_folder_refused(ERR_FORMAT, "no plain file name");
    write_index("{\"a\":7}");
    open_folder_refused(ERR_FORMAT, "no plain file name");
    write_index("{\"a\":\"three.safetensors\"}");
    open_folder_refused(ERR_IO, "three.safetensors");
    write_index("[]");
    open_folder_refused(ERR_FORMAT, "no weight_map");
    build(&s, "{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "}", 4);
    write_file("two.safetensors", s.data, s.len);
    write_index("{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}");
    open_folder_refused(ERR_FORMAT, "'a' occurs twice");
    static const char *const names[] = {"model.safetensors", "one.safetensors", "two.safetensors",
                                        "model.safetensors.index.json"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
    str_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_minimal_example),      cmocka_unit_test(reads_unusual_headers),
        cmocka_unit_test(takes_null_for_no_metadata), cmocka_unit_test(refuses_hostile_headers),
        cmocka_unit_test(refuses_hostile_lengths),    cmocka_unit_test(follows_an_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
