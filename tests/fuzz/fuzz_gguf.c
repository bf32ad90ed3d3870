// SPDX-License-Identifier: Apache-2.0
// GGUF files: everything that an accepted file shows is read, every tensor's bytes are touched and
// its first row decoded. An input of parts is a split model: its files by their letters.
#include "fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"

enum { ROW_MAX = 4096 };

void fuzz_setup(void) {
    fuzz_folder();
}

static void read_array(const struct gguf_kv *kv) {
    const unsigned char *cursor = kv->bytes;
    volatile unsigned char sum = 0;
    volatile double value = 0;
    size_t len;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->elem == GGUF_STRING) {
            const char *s = gguf_array_str(&cursor, &len);
            for (size_t k = 0; k < len; k++)
                sum = (unsigned char)(sum + s[k]);
        } else if (kv->elem != GGUF_ARRAY) {
            value = gguf_array_float(kv, i) + (double)(gguf_array_int(kv, i) & 1);
        }
    }
    (void)value;
}

static void read_metadata(const struct gguf *g) {
    struct err e;
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        int64_t n;
        double x;
        bool b;
        const char *s;
        size_t len;
        FUZZ_CHECK(gguf_find(g, kv->key) != NULL);
        gguf_get_int(g, kv->key, -100, 100, 0, &n, &e);
        gguf_get_float(g, kv->key, 0, &x, &e);
        gguf_get_bool(g, kv->key, false, &b, &e);
        gguf_get_str(g, kv->key, &s, &len, &e);
        if (kv->kind == GGUF_ARRAY)
            read_array(kv);
    }
}

static void read_tensor(const struct tensor *t) {
    const struct quant_format *f = quant_format(t->type);
    FUZZ_CHECK(f && t->n_dims >= 1 && t->n_dims <= 4 && t->bytes >= 0);
    volatile unsigned char sum = 0;
    const unsigned char *data = t->data;
    for (int64_t i = 0; i < t->bytes; i++)
        sum = (unsigned char)(sum + data[i]);
    if (f->dequantize && t->bytes > 0 && t->ne[0] <= ROW_MAX) {
        float row[ROW_MAX];
        f->dequantize(t->data, row, t->ne[0]);
    }
}

// Part A is the first of as many files as there are parts, B the second, and so on; a repeated
// letter replaces its file.
static int open_parts(struct gguf **g, const uint8_t *data, size_t size, struct err *e) {
    struct fuzz_part part;
    const uint8_t *rest = data;
    size_t left = size;
    int count = 0;
    char name[64], path[PATH_MAX];
    while (fuzz_part(&rest, &left, &part))
        count++;
    while (fuzz_part(&data, &size, &part)) {
        snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", 1 + (part.letter - 'A') % 64, count);
        fuzz_folder_write(name, part.data, part.size);
    }
    snprintf(path, sizeof path, "%s/m-%05d-of-%05d.gguf", fuzz_folder(), 1, count);
    int rc = gguf_open(g, path, e);
    fuzz_folder_clear();
    return rc;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct gguf *g = NULL;
    struct err e = {0};
    int rc = fuzz_has_parts(data, size) ? open_parts(&g, data, size, &e)
                                        : gguf_open_memory(&g, data, size, &e);
    fuzz_result(rc, &e, fragile);
    if (rc)
        return;
    read_metadata(g);
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        read_tensor(gguf_tensor_at(g, i));
    gguf_close(g);
}
