// SPDX-License-Identifier: Apache-2.0
// Pieces of a prefix cache's file: read by one thread or by several, they are what was written; one
// that is damaged, cut off, or whose page holds what is no number is refused, wherever it lies.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/num.h"
#include "engine/cache/disk.h"
#include "ops/kv/layout.h"
#include "unit/test.h"

enum { PAGES = 1100 }; // of 64 KiB: more than one thread reads alone

struct stored {
    char path[64];
    struct kv_layout layout;
    unsigned char *bytes, *back; // [n][page_bytes]
    struct cache_piece pieces[PAGES];
    int64_t n;
};

static void open_file(struct stored *s, int64_t n) {
    const struct kv_shape shape = {
        .n_layers = 1, .n_heads = 2, .dk = 128, .dv = 128, .codec_k = KV_F16, .codec_v = KV_F16};
    *s = (struct stored){.n = n};
    assert_int_equal(kv_layout_init(&s->layout, &shape, NULL), 0);
    size_t page = (size_t)s->layout.page_bytes;
    s->bytes = malloc((size_t)n * page);
    s->back = malloc((size_t)n * page);
    assert_true(s->bytes && s->back);
    for (size_t i = 0; i < (size_t)n * page; i++)
        s->bytes[i] = (unsigned char)(i % 2 ? 0x3c : i * 7 / 5); // about 1 as halves
    for (int64_t i = 0; i < n; i++)
        s->pieces[i] = (struct cache_piece){s->back + (size_t)i * page, page, 3 + i * (int64_t)page,
                                            0, &s->layout};
}

// Writes what the pieces say with hashes that are right.
static void write_file(struct stored *s) {
    snprintf(s->path, sizeof s->path, "/tmp/test_cache_file.%d", (int)getpid());
    int fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t page = (size_t)s->layout.page_bytes;
    assert_true(fd >= 0 && write(fd, "...", 3) == 3);
    for (int64_t i = 0; i < s->n; i++) {
        assert_int_equal(write(fd, s->bytes + (size_t)i * page, page), page);
        s->pieces[i].sum = hash_bytes(s->bytes + (size_t)i * page, page, 0);
    }
    close(fd);
}

static void close_file(struct stored *s) {
    unlink(s->path);
    free(s->bytes);
    free(s->back);
}

static void refused(struct stored *s, int rc, const char *says) {
    struct err e = {0};
    assert_int_equal(cache_file_read(s->path, s->pieces, s->n, &e), rc);
    assert_non_null(strstr(e.text, says));
    assert_non_null(strstr(e.text, s->path));
}

static void pieces(int64_t n) {
    static struct stored s;
    open_file(&s, n);
    size_t page = (size_t)s.layout.page_bytes;
    write_file(&s);
    assert_int_equal(cache_file_read(s.path, s.pieces, n, NULL), 0);
    assert_memory_equal(s.back, s.bytes, (size_t)n * page);
    for (int64_t at = 0; at < n; at += max_i64(n - 1, 1)) { // the first and the last
        s.pieces[at].sum++;
        refused(&s, ERR_FORMAT, "damaged");
        s.pieces[at].sum--;
    }
    unsigned char *half = s.bytes + (size_t)(n / 2) * page + page - 1; // the end of a page's values
    *half = 0x7c;
    write_file(&s);
    refused(&s, ERR_FORMAT, "no numbers");
    s.pieces[n / 2].page = NULL; // as other bytes they may be anything
    assert_int_equal(cache_file_read(s.path, s.pieces, n, NULL), 0);
    assert_int_equal(truncate(s.path, 3 + n * (int64_t)page - 1), 0);
    refused(&s, ERR_FORMAT, "ends");
    close_file(&s);
}

static void by_one_thread(void **state) {
    (void)state;
    pieces(1);
    pieces(5);
}

static void by_several(void **state) {
    (void)state;
    pieces(PAGES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_one_thread),
        cmocka_unit_test(by_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
