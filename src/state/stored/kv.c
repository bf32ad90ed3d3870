// SPDX-License-Identifier: Apache-2.0
// Groups of keys and values in the serial form: what they are, the first position that is still
// there, then page by page the rows of each layer, plane and head, without unused slots. Values
// that are no finite numbers are refused when read: pages hold none, because their unused slots may
// be read.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "state/finite.h"
#include "state/stored/impl.h"

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

// Calls with every run of bytes that the first n slots of a page take, in the order of the form.
typedef void run_fn(void *arg, int64_t at, size_t bytes);
static void each_run(const struct kv_layout *l, int64_t n, run_fn *call, void *arg) {
    struct planes p = planes_of(l);
    for (int layer = 0; layer < l->s.n_layers; layer++)
        for (int i = 0; i < p.n; i++)
            for (int head = 0; head < l->s.n_heads; head++)
                call(arg, layer * l->layer_bytes + p.at[i] + head * KV_PAGE * p.row[i],
                     (size_t)(n * p.row[i]));
}

struct out_page {
    struct stored_out *o;
    const unsigned char *page;
};

static void put_run(void *arg, int64_t at, size_t bytes) {
    struct out_page *w = arg;
    stored_put(w->o, w->page ? w->page + at : NULL, bytes);
}

static int64_t first_page(const struct kv *k) {
    int64_t i = 0;
    while (i * KV_PAGE < k->len && k->ids[i] < 0)
        i++;
    return i;
}

void stored_put_kv(struct stored_out *o, struct exec *x, const struct kv *k) {
    const struct kv_layout *l = kv_pool_layout(k->pool);
    const struct kv_shape *s = &l->s;
    const int numbers[] = {s->n_layers, s->n_heads, s->dk, s->dv, s->v_in_k};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        stored_put_u32(o, (uint32_t)numbers[i]);
    stored_put_text(o, kv_codec_of(s->codec_k)->name);
    stored_put_text(o, kv_codec_of(s->codec_v)->name);
    stored_put_u64(o, (uint64_t)k->window);
    int64_t first = first_page(k);
    stored_put_u64(o, (uint64_t)(first * KV_PAGE));
    if (o->apart) {
        if (!o->measure && !o->rc)
            o->apart->put_pages(o->apart->arg, x, k);
        return;
    }
    for (int64_t i = first; i * KV_PAGE < k->len; i++) {
        int64_t left = k->len - i * KV_PAGE;
        struct out_page w = {o, stored_fetch(o, x, k->pages[i], (size_t)l->page_bytes)};
        if (w.page || o->measure)
            each_run(l, min_i64(left, KV_PAGE), put_run, &w);
    }
}

static void check_codec(struct stored_in *in, enum kv_codec_id id, const char *what) {
    char name[STORED_TEXT + 1];
    const char *own = kv_codec_of(id)->name;
    stored_get_text(in, name);
    if (strcmp(name, own) != 0)
        stored_fail(in, ERR_MISMATCH,
                    "the checkpoint has its %s as %.32s, the model as %s; load the model with the "
                    "checkpoint's --kv-type",
                    what, name, own);
}

static void check_group(struct stored_in *in, const struct kv *k) {
    const struct kv_shape *s = &kv_pool_layout(k->pool)->s;
    const int numbers[] = {s->n_layers, s->n_heads, s->dk, s->dv, s->v_in_k};
    bool same = true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        same = (stored_get_u32(in) == (uint32_t)numbers[i]) && same;
    check_codec(in, s->codec_k, "keys");
    check_codec(in, s->codec_v, "values");
    if (stored_get_u64(in) != (uint64_t)k->window || !same)
        stored_fail(in, ERR_MISMATCH,
                    "the checkpoint's keys and values have another shape than the model's");
}

struct in_page {
    struct stored_in *in;
    unsigned char *page;
};

static void get_run(void *arg, int64_t at, size_t bytes) {
    struct in_page *r = arg;
    stored_get(r->in, r->page + at, bytes);
}

static int numbers_or(bool numbers) {
    return numbers ? 0 : ERR_FORMAT;
}

// Values that follow each other: scales tell of their blocks where a codec has some. ERR_FORMAT:
// not all are numbers; ERR_UNSUPPORTED: a codec that has no rule here.
static int check_values(const struct kv_codec *c, const struct kv_row *r, int64_t n) {
    const unsigned char *p = c->scale_bytes ? r->scales : r->codes;
    switch (c->scale_bytes ? (uint32_t)TYPE_F16 : c->type) {
    case TYPE_F16:
        return numbers_or(finite_f16(p, n / c->block));
    case TYPE_BF16:
        return numbers_or(finite_bf16(p, n / c->block));
    case TYPE_F32:
        return numbers_or(finite_f32(p, n / c->block));
    default:
        return ERR_UNSUPPORTED;
    }
}

// The first n slots of K, or of V. Those of a layer's head lie side by side.
static int check_rows(const struct kv_layout *l, const struct kv_plane *p, int dim,
                      enum kv_codec_id id, unsigned char *page, int64_t n) {
    int rc = 0;
    for (int i = 0; !rc && i < l->s.n_layers * l->s.n_heads; i++) {
        struct kv_row r = kv_row_at(l, p, page, i / l->s.n_heads, i % l->s.n_heads, 0);
        rc = check_values(kv_codec_of(id), &r, n * dim);
    }
    return rc;
}

static int check_page(const struct kv_layout *l, unsigned char *page, int64_t n) {
    int rc = check_rows(l, &l->k, l->s.dk, l->s.codec_k, page, n);
    return rc || l->s.v_in_k ? rc : check_rows(l, &l->v, l->s.dv, l->s.codec_v, page, n);
}

int stored_check_page(const struct kv_layout *l, const unsigned char *page) {
    // Rows are found alike in pages that are written.
    return check_page(l, (unsigned char *)page, KV_PAGE);
}

static void get_page(struct stored_in *in, struct exec *x, const struct kv_layout *l,
                     unsigned char *page, int64_t n) {
    struct in_page r = {in, stored_buffer(in, (size_t)l->page_bytes)};
    if (!r.page)
        return;
    memset(r.page, 0, (size_t)l->page_bytes);
    each_run(l, n, get_run, &r);
    if (in->rc)
        return;
    int rc = check_page(l, r.page, n);
    if (rc == ERR_UNSUPPORTED)
        stored_fail(in, rc,
                    "the checkpoint was written by a newer version of coppice; use that one");
    else if (rc)
        stored_damaged(in);
    if (rc)
        return;
    exec_ops(x)->upload(x, page, r.page, (size_t)l->page_bytes);
}

void stored_get_kv(struct stored_in *in, struct exec *x, struct kv *k, int64_t len) {
    check_group(in, k);
    uint64_t first = stored_get_u64(in);
    int64_t reach = k->window > 0 && len - k->window + 1 > 0 ? len - k->window + 1 : 0;
    if (first % KV_PAGE || first > (uint64_t)reach)
        stored_damaged(in);
    if (!in->rc)
        in->rc = kv_skip(k, (int64_t)first / KV_PAGE, &in->err);
    if (!in->rc && in->apart) {
        in->rc = in->apart->get_pages(in->apart->arg, x, k, len, &in->err);
        return;
    }
    while (!in->rc && k->len < len) {
        int64_t n = len - k->len < KV_PAGE ? len - k->len : KV_PAGE;
        in->rc = kv_reserve(k, n, &in->err);
        if (!in->rc)
            get_page(in, x, kv_pool_layout(k->pool), kv_slot_at(k, k->len).page, n);
        if (!in->rc)
            kv_advance(k, n);
    }
}
