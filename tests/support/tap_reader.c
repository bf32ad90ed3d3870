// SPDX-License-Identifier: Apache-2.0
// See tap_reader.h. The hashes are in host memory; features of one append come with one download.
#include "support/tap_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "state/stored.h"

struct seen {
    struct attachment base;
    uint64_t *hash; // [cap]
    int64_t cap;
};

static int seen_create(const struct attachment_kind *k, struct attachment **out, struct err *e) {
    struct seen *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a reader's state");
    s->base.kind = k;
    attachment_write(&s->base);
    *out = &s->base;
    return 0;
}

static void seen_destroy(struct attachment *a) {
    free(((struct seen *)a)->hash);
    free(a);
}

static int seen_reserve(struct attachment *a, int64_t n, struct err *e) {
    struct seen *s = (struct seen *)a;
    if (a->len + n <= s->cap)
        return 0;
    uint64_t *more = realloc(s->hash, (size_t)(2 * (a->len + n)) * sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for %lld hashes", (long long)(a->len + n));
    s->hash = more;
    s->cap = 2 * (a->len + n);
    return 0;
}

static void seen_release(struct attachment *a) {
    (void)a;
}

static void seen_append(struct attachment *a, const int32_t *token, const int32_t *rows,
                        int64_t count) {
    (void)token;
    struct seen *s = (struct seen *)a;
    struct tap_reader *t = a->kind->owner;
    size_t row = (size_t)t->width * sizeof(float);
    int32_t first = rows[0], last = rows[0];
    for (int64_t i = 1; i < count; i++) {
        first = rows[i] < first ? rows[i] : first;
        last = rows[i] > last ? rows[i] : last;
    }
    exec_ops(a->kind->x)
        ->download(a->kind->x, t->host, t->features + first * t->width,
                   (size_t)(last - first + 1) * row);
    for (int64_t i = 0; i < count; i++)
        s->hash[a->len++] = hash_bytes(t->host + (rows[i] - first) * t->width, row, 1);
}

static bool seen_keeps(const struct attachment *a, int64_t n) {
    return n <= a->len;
}

static void seen_cut(struct attachment *a, int64_t n) {
    a->len = n;
}

static int seen_copy(const struct attachment *a, int64_t n, bool at_rest, struct attachment **out,
                     struct err *e) {
    struct attachment *c = NULL;
    (void)at_rest;
    int rc = seen_create(a->kind, &c, e);
    if (!rc && (rc = seen_reserve(c, n, e)))
        seen_destroy(c);
    if (rc)
        return rc;
    if (n)
        memcpy(((struct seen *)c)->hash, ((const struct seen *)a)->hash,
               (size_t)n * sizeof(uint64_t));
    c->len = n;
    *out = c;
    return 0;
}

static int64_t seen_bytes(const struct attachment *a) {
    return (int64_t)sizeof(struct seen) + a->len * (int64_t)sizeof(uint64_t);
}

static void seen_write(const struct attachment *a, struct stored_out *o) {
    for (int64_t i = 0; i < a->len; i++)
        stored_put_u64(o, ((const struct seen *)a)->hash[i]);
}

static void seen_read(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                      struct attachment **out) {
    struct attachment *a = NULL;
    in->rc = seen_create(k, &a, &in->err);
    if (!in->rc)
        in->rc = seen_reserve(a, len, &in->err);
    for (; !in->rc && a->len < len; a->len++)
        ((struct seen *)a)->hash[a->len] = stored_get_u64(in);
    if (!in->rc)
        *out = a;
    else if (a)
        seen_destroy(a);
}

int tap_reader_open(struct tap_reader *t, struct model *m, const char *name, const int32_t *layers,
                    int n_layers, struct err *e) {
    struct exec *x = model_exec(m);
    int64_t rows = model_max_rows(m);
    *t = (struct tap_reader){.kind = {.name = name,
                                      .owner = t,
                                      .x = x,
                                      .create = seen_create,
                                      .destroy = seen_destroy,
                                      .reserve = seen_reserve,
                                      .release = seen_release,
                                      .append = seen_append,
                                      .keeps = seen_keeps,
                                      .cut = seen_cut,
                                      .copy = seen_copy,
                                      .bytes = seen_bytes,
                                      .write = seen_write,
                                      .read = seen_read},
                             .n_layers = n_layers,
                             .width = n_layers * model_params_of(m)->dim};
    size_t bytes = (size_t)(rows * t->width) * sizeof(float);
    memcpy(t->layers, layers, (size_t)n_layers * sizeof *layers);
    t->m = m;
    t->features = exec_ops(x)->alloc(x, bytes);
    t->host = malloc(bytes);
    int rc = t->features && t->host ? 0 : err_set(e, ERR_MEMORY, "no memory for a reader's rows");
    if (!rc)
        rc = model_attach(m, &(struct model_reader){&t->kind, t->layers, n_layers, t->features}, e);
    if (rc)
        tap_reader_close(t);
    return rc;
}

void tap_reader_close(struct tap_reader *t) {
    if (!t->m)
        return;
    model_detach(t->m, &t->kind);
    if (t->features)
        exec_ops(t->kind.x)->free(t->kind.x, t->features);
    free(t->host);
    *t = (struct tap_reader){0};
}

const float *tap_reader_row(struct tap_reader *t, int64_t row) {
    exec_ops(t->kind.x)->download(t->kind.x, t->host, t->features + row * t->width,
                                  (size_t)t->width * sizeof(float));
    return t->host;
}

const uint64_t *tap_reader_seen(const struct tap_reader *t, const struct sequence *s) {
    return ((const struct seen *)sequence_attached(s, &t->kind))->hash;
}
