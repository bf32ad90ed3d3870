// SPDX-License-Identifier: Apache-2.0
// Sections and numbers of the serial form, then bytes of devices and pages, which are kept apart.
// Values that come from outside are looked through for what is no finite number.
#include "state/stored.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "formats/quant/finite.h"

int stored_ends_early(struct err *e) {
    return err_set(e, ERR_FORMAT, "the checkpoint ends early; it was cut off, make it again");
}

int stored_to_file(void *file, const void *data, size_t n, struct err *e) {
    return file_new_write(file, data, n, e);
}

int stored_over_file(void *file, int64_t at, const void *data, size_t n, struct err *e) {
    struct file_new *f = file;
    if (fseeko(f->file, at, SEEK_SET))
        return err_set(e, ERR_IO, "%s cannot be written: %s", f->path, strerror(errno));
    int rc = file_new_write(f, data, n, e);
    if (!rc && fseeko(f->file, 0, SEEK_END))
        rc = err_set(e, ERR_IO, "%s cannot be written: %s", f->path, strerror(errno));
    return rc;
}

int stored_from_file(void *file, void *data, size_t n, struct err *e) {
    if (fread(data, 1, n, file) == n)
        return 0;
    return ferror((FILE *)file) ? err_set(e, ERR_IO, "it cannot be read: %s", strerror(errno))
                                : stored_ends_early(e);
}

void stored_put(struct stored_out *o, const void *data, size_t n) {
    o->n += n;
    if (o->rc || o->measure || n == 0)
        return;
    hash_add(&o->hash, data, n);
    o->rc = o->sink(o->arg, data, n, &o->err);
}

static void le_bytes(unsigned char *b, uint64_t v, int n) {
    for (int i = 0; i < n; i++)
        b[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t le_number(const unsigned char *b, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

void stored_put_u32(struct stored_out *o, uint32_t v) {
    unsigned char b[4];
    le_bytes(b, v, 4);
    stored_put(o, b, sizeof b);
}

void stored_put_u64(struct stored_out *o, uint64_t v) {
    unsigned char b[8];
    le_bytes(b, v, 8);
    stored_put(o, b, sizeof b);
}

void stored_put_text(struct stored_out *o, const char *s) {
    size_t n = strlen(s);
    n = n < STORED_TEXT ? n : STORED_TEXT;
    stored_put_u32(o, (uint32_t)n);
    stored_put(o, s, n);
}

void stored_section(struct stored_out *o, const char *tag, stored_write_fn *write,
                    const void *arg) {
    bool measured = o->measure;
    unsigned char end[8];
    o->measure = true;
    o->n = 0;
    write(o, arg);
    uint64_t n = o->n;
    o->measure = measured;
    hash_begin(&o->hash, 0);
    stored_put(o, tag, 4);
    stored_put_u64(o, n);
    write(o, arg);
    le_bytes(end, hash_end(&o->hash), 8);
    stored_put(o, end, sizeof end);
}

void stored_put_device(struct stored_out *o, struct exec *x, const void *p, size_t n) {
    o->rest += n;
    if (!o->measure && !o->rc && n)
        o->apart->put_bytes(o->apart->arg, x, p, n);
}

void stored_fail(struct stored_in *in, int code, const char *fmt, ...) {
    char text[sizeof in->err.text];
    va_list args;
    if (in->rc)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    in->rc = err_set(&in->err, code, "%s", text);
}

void stored_damaged(struct stored_in *in) {
    stored_fail(in, ERR_FORMAT, "the checkpoint is damaged; make it again");
}

// Bytes of the source, in a section or not.
static void read_source(struct stored_in *in, void *data, size_t n) {
    if (!in->rc)
        in->rc = in->source(in->arg, data, n, &in->err);
    if (in->rc)
        memset(data, 0, n);
    else
        hash_add(&in->hash, data, n);
}

void stored_get(struct stored_in *in, void *data, size_t n) {
    if (n > in->left)
        stored_damaged(in);
    else
        in->left -= n;
    read_source(in, data, n);
}

uint32_t stored_get_u32(struct stored_in *in) {
    unsigned char b[4];
    stored_get(in, b, sizeof b);
    return (uint32_t)le_number(b, 4);
}

uint64_t stored_get_u64(struct stored_in *in) {
    unsigned char b[8];
    stored_get(in, b, sizeof b);
    return le_number(b, 8);
}

void stored_get_text(struct stored_in *in, char *s) {
    uint32_t n = stored_get_u32(in);
    if (n > STORED_TEXT)
        stored_damaged(in);
    n = n > STORED_TEXT ? 0 : n;
    stored_get(in, s, n);
    s[n] = 0;
    if (strlen(s) != n)
        stored_damaged(in);
}

void stored_enter_as(struct stored_in *in, const char *tag) {
    char found[5] = {0};
    unsigned char n[8];
    hash_begin(&in->hash, 0);
    read_source(in, found, 4);
    read_source(in, n, sizeof n);
    in->left = le_number(n, 8);
    if (strcmp(found, tag) != 0)
        stored_damaged(in);
}

void stored_leave(struct stored_in *in) {
    unsigned char b[8];
    uint64_t expected = hash_end(&in->hash);
    if (in->left)
        stored_damaged(in);
    read_source(in, b, sizeof b);
    if (le_number(b, 8) != expected)
        stored_damaged(in);
}

void stored_skip(struct stored_in *in) {
    unsigned char some[4096];
    while (!in->rc && in->left)
        stored_get(in, some, in->left < sizeof some ? (size_t)in->left : sizeof some);
}

void stored_get_floats(struct stored_in *in, struct exec *x, float *p, int64_t n) {
    size_t bytes = (size_t)n * sizeof *p;
    const float *host = in->rc || !bytes ? NULL : in->apart->get_bytes(in->apart->arg, bytes);
    if (host && in->apart->check && !finite_f32(host, n))
        host = NULL;
    if (host)
        exec_ops(x)->upload(x, p, host, bytes);
    else if (bytes)
        stored_damaged(in);
}

// The planes of a layer: bytes from its begin, bytes of a row.
struct planes {
    int n;
    int64_t at[4], row[4];
};

static void add_planes(struct planes *p, const struct kv_plane *plane) {
    p->at[p->n] = plane->codes;
    p->row[p->n++] = plane->code_row;
    if (plane->scale_row == 0)
        return;
    p->at[p->n] = plane->scales;
    p->row[p->n++] = plane->scale_row;
}

static struct planes planes_of(const struct kv_layout *l) {
    struct planes p = {0};
    add_planes(&p, &l->k);
    if (!l->s.v_in_k)
        add_planes(&p, &l->v);
    return p;
}

void stored_page_clear(const struct kv_layout *l, unsigned char *page, int64_t n) {
    struct planes p = planes_of(l);
    for (int layer = 0; layer < l->s.n_layers && n < KV_PAGE; layer++)
        for (int i = 0; i < p.n; i++)
            for (int head = 0; head < l->s.n_heads; head++) {
                unsigned char *plane =
                    page + layer * l->layer_bytes + p.at[i] + head * KV_PAGE * p.row[i];
                memset(plane + n * p.row[i], 0, (size_t)((KV_PAGE - n) * p.row[i]));
            }
}

static int64_t first_page(const struct kv *k) {
    int64_t i = 0;
    while (i * KV_PAGE < k->len && k->ids[i] < 0)
        i++;
    return i;
}

void stored_put_kv(struct stored_out *o, struct exec *x, const struct kv *k) {
    stored_put_u64(o, (uint64_t)(first_page(k) * KV_PAGE));
    o->groups++;
    if (!o->measure && !o->rc)
        o->apart->put_pages(o->apart->arg, x, k);
}

// All slots of K, or of V. Those of a layer's head lie side by side.
static bool rows_finite(const struct kv_layout *l, const struct kv_plane *p, int dim,
                        enum kv_codec_id id, unsigned char *page) {
    bool finite = true;
    for (int i = 0; finite && i < l->s.n_layers * l->s.n_heads; i++) {
        struct kv_row r = kv_row_at(l, p, page, i / l->s.n_heads, i % l->s.n_heads, 0);
        finite = kv_codec_of(id)->finite(r.codes, r.scales, (int64_t)KV_PAGE * dim);
    }
    return finite;
}

bool stored_page_finite(const struct kv_layout *l, const unsigned char *page) {
    unsigned char *p = (unsigned char *)page; // rows are found alike in pages that are written
    return rows_finite(l, &l->k, l->s.dk, l->s.codec_k, p) &&
           (l->s.v_in_k || rows_finite(l, &l->v, l->s.dv, l->s.codec_v, p));
}

void stored_get_kv(struct stored_in *in, struct exec *x, struct kv *k, int64_t len) {
    uint64_t first = stored_get_u64(in);
    int64_t reach = k->window > 0 && len - k->window + 1 > 0 ? len - k->window + 1 : 0;
    if (first % KV_PAGE || first > (uint64_t)reach)
        stored_damaged(in);
    if (!in->rc)
        in->rc = kv_skip(k, (int64_t)first / KV_PAGE, &in->err);
    if (!in->rc)
        in->rc = in->apart->get_pages(in->apart->arg, x, k, len, &in->err);
}
