// SPDX-License-Identifier: Apache-2.0
// The serial form is written with pages and other bytes of devices kept apart: first to learn what
// there is of them, then to queue their copies.
#include "state/ram_copy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

// What the form keeps apart comes by here: its sizes are noted in a shape, or it is copied into a
// RAM copy.
struct taking {
    struct ram_copy *m;               // the shape, or the RAM copy
    const struct kv_layout **layouts; // [RAM_COPY_GROUPS] of a shape's groups, or NULL
    struct copier *copier;            // NULL: a shape is made
    struct exec *x;                   // that the copier is of
    uint64_t ticket;
    size_t rest; // bytes so far
    int group;
};

static void copy_out(struct taking *t, struct exec *x, void *host, const void *p, size_t n) {
    if (x == t->x)
        t->ticket = copier_to_host(t->copier, host, p, n);
    else // an attachment of another device
        exec_ops(x)->download(x, host, p, n);
}

static void put_bytes(void *arg, struct exec *x, const void *p, size_t n) {
    struct taking *t = arg;
    if (t->copier)
        copy_out(t, x, t->m->rest + t->rest, p, n);
    t->rest += n;
}

// Pages of a group, from the first on, that a RAM copy may share with its base.
static int64_t shared_pages(const struct ram_copy_base *base, int group, int64_t len) {
    const struct ram_copy *m = base->ram_copy;
    if (!m || group >= m->n_groups)
        return 0;
    return min_i64(base->common, min_i64(len, m->groups[group].len)) / KV_PAGE;
}

// Pages of a shape's group that a RAM copy has to have of its own, the last ones.
static int64_t own_pages(const struct ram_copy *shape, const struct ram_copy_base *base,
                         int group) {
    const struct ram_copy_group *y = &shape->groups[group];
    return max_i64(y->n_pages - max_i64(y->first, shared_pages(base, group, y->len)), 0);
}

static void put_pages(void *arg, struct exec *x, const struct kv *k) {
    struct taking *t = arg;
    int g = t->group++;
    if (g >= RAM_COPY_GROUPS)
        return;
    struct ram_copy_group *y = &t->m->groups[g];
    if (!t->copier) {
        int64_t first = 0, n = ceil_div(k->len, KV_PAGE);
        while (first < n && k->ids[first] < 0)
            first++;
        *y = (struct ram_copy_group){.page_bytes = (size_t)kv_pool_layout(k->pool)->page_bytes,
                                     .len = k->len,
                                     .first = first,
                                     .n_pages = n};
        if (t->layouts)
            t->layouts[g] = kv_pool_layout(k->pool);
        return;
    }
    for (int64_t i = y->first; i < y->n_pages; i++)
        if (ram_copy_page_own(y->pages[i]))
            copy_out(t, x, y->pages[i]->data, kv_page_data(k, i), y->page_bytes);
}

// Runs the writer; the form goes to *form.
static int write_form(const struct checkpoint *from, struct taking *t, struct str *form,
                      struct err *e) {
    struct stored_apart apart = {.arg = t, .put_bytes = put_bytes, .put_pages = put_pages};
    int rc = checkpoint_put(from, &apart, form, e);
    if (!rc && t->group > RAM_COPY_GROUPS)
        rc = err_set(e, ERR_LIMIT, "a checkpoint of more than %d groups", RAM_COPY_GROUPS);
    return rc;
}

int ram_copy_shape(const struct checkpoint *from, struct ram_copy *shape,
                   const struct kv_layout **layouts, struct err *e) {
    struct taking t = {.m = shape, .layouts = layouts};
    struct str form = {0};
    *shape =
        (struct ram_copy){.len = checkpoint_len(from), .sparse_end = checkpoint_sparse_end(from)};
    int rc = write_form(from, &t, &form, e);
    if (rc) {
        str_fini(&form);
        return rc;
    }
    shape->n_groups = t.group;
    shape->rest_bytes = t.rest;
    shape->form = (unsigned char *)form.data;
    shape->form_bytes = form.len;
    return 0;
}

enum { PAGE_MEMORY = 48 }; // what a page takes besides its block, at most

static struct ram_copy_page *make_page(struct host_blocks *b, size_t bytes) {
    struct ram_copy_page *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (struct ram_copy_page){.refs = 1, .bytes = bytes, .data = host_blocks_take(b, bytes)};
    if (p->data) {
        b->other += (int64_t)sizeof *p;
        b->pages++;
        return p;
    }
    free(p);
    return NULL;
}

static void drop_page(struct ram_copy_page *p, struct host_blocks *b) {
    if (!p || --p->refs > 0)
        return;
    host_blocks_give(b, p->data, p->bytes);
    b->other -= (int64_t)sizeof *p;
    b->pages--;
    free(p);
}

// Of a RAM copy besides its blocks.
static int64_t small_bytes(const struct ram_copy *m) {
    int64_t bytes = (int64_t)(sizeof *m + m->form_bytes);
    for (int g = 0; g < m->n_groups; g++)
        bytes += m->groups[g].n_pages * (int64_t)sizeof(struct ram_copy_page *);
    return bytes;
}

// The base's page, or a new one.
static struct ram_copy_page *page_for(const struct ram_copy_base *base, int group, int64_t i,
                                      struct ram_copy_group *y, struct host_blocks *b) {
    bool shared = i < shared_pages(base, group, y->len);
    struct ram_copy_page *p = shared ? base->ram_copy->groups[group].pages[i] : NULL;
    if (!p) // its window has dropped it
        return make_page(b, y->page_bytes);
    p->refs++;
    return p;
}

int64_t ram_copy_needs(const struct ram_copy *shape, const struct ram_copy_base *base) {
    int64_t bytes = (int64_t)(host_blocks_size(shape->rest_bytes)) + small_bytes(shape);
    for (int g = 0; g < shape->n_groups; g++)
        bytes += own_pages(shape, base, g) *
                 (int64_t)(host_blocks_size(shape->groups[g].page_bytes) + PAGE_MEMORY);
    return bytes;
}

bool ram_copy_ready(const struct ram_copy *shape, const struct ram_copy_base *base,
                    struct host_blocks *b) {
    bool ready = true;
    if (!exec_host_pinned(b->x))
        return true;
    for (int g = 0; g < shape->n_groups; g++)
        if (!host_blocks_ready(b, shape->groups[g].page_bytes, own_pages(shape, base, g)))
            ready = false;
    return host_blocks_ready(b, shape->rest_bytes, shape->rest_bytes > 0) && ready;
}

// Requests blocks of one size that take that many bytes together; of small ones there are too many.
static void have_made(struct host_blocks *b, size_t block, int64_t bytes) {
    enum { BLOCKS = 256 };
    if (bytes > 0)
        (void)host_blocks_ready(b, block,
                                min_i64(BLOCKS, bytes / (int64_t)host_blocks_size(block)));
}

void ram_copy_prepare(const struct ram_copy *shape, struct host_blocks *b, size_t rest,
                      int64_t bytes) {
    if (!exec_host_pinned(b->x))
        return;
    if (rest)
        have_made(b, rest, bytes / 2);
    int64_t each = (rest ? bytes / 2 : bytes) / max_i64(shape->n_groups, 1);
    for (int g = 0; g < shape->n_groups; g++)
        have_made(b, shape->groups[g].page_bytes, each);
}

static struct ram_copy *ram_copy_new(struct host_blocks *b, size_t rest) {
    struct ram_copy *m = calloc(1, sizeof *m);
    if (m && rest)
        m->rest = host_blocks_take(b, rest);
    if (m && rest && !m->rest) {
        free(m);
        return NULL;
    }
    if (m)
        m->rest_bytes = rest;
    return m;
}

bool ram_copy_settled(const struct ram_copy *m, struct copier *copier) {
    return copier_done(copier, m->ticket);
}

int ram_copy_settle(struct ram_copy *m, struct copier *copier, struct err *e) {
    uint64_t ticket = m->ticket;
    m->ticket = 0;
    return copier_wait(copier, ticket, e);
}

int64_t ram_copy_own_bytes(const struct ram_copy *m) {
    int64_t bytes = small_bytes(m);
    if (m->rest)
        bytes += (int64_t)host_blocks_size(m->rest_bytes);
    for (int g = 0; g < m->n_groups; g++) {
        const struct ram_copy_group *y = &m->groups[g];
        // Pages are shared from the first one on, so those of its own are the last ones.
        for (int64_t i = y->n_pages; i > y->first && y->pages[i - 1]->refs == 1; i--)
            bytes += (int64_t)(host_blocks_size(y->page_bytes) + sizeof(struct ram_copy_page));
    }
    return bytes;
}

int64_t ram_copy_hold(struct ram_copy *m, int more) {
    int64_t bytes = small_bytes(m) + (m->rest ? (int64_t)host_blocks_size(m->rest_bytes) : 0);
    for (int g = 0; g < m->n_groups; g++) {
        const struct ram_copy_group *y = &m->groups[g];
        for (int64_t i = y->first; i < y->n_pages; i++) {
            struct ram_copy_page *p = y->pages[i];
            p->holds += more;
            if (p->holds == (more > 0 ? 1 : 0)) // the first or the last one
                bytes += (int64_t)(host_blocks_size(p->bytes) + sizeof *p);
        }
    }
    return bytes;
}

bool ram_copy_shares(const struct ram_copy *a, const struct ram_copy *b) {
    for (int g = 0; g < a->n_groups && g < b->n_groups; g++) {
        const struct ram_copy_group *x = &a->groups[g], *y = &b->groups[g];
        int64_t n = min_i64(x->n_pages, y->n_pages);
        for (int64_t i = max_i64(x->first, y->first); i < n; i++)
            if (x->pages[i] == y->pages[i])
                return true;
    }
    return false;
}

bool ram_copy_free(struct ram_copy *m, struct host_blocks *b) {
    if (!m)
        return true;
    assert(!m->ticket && !m->users);
    if (m->ticket || m->users)
        return false;
    if (m->form) // else it never came to be
        b->other -= small_bytes(m);
    for (int g = 0; g < m->n_groups; g++) {
        for (int64_t i = 0; m->groups[g].pages && i < m->groups[g].n_pages; i++)
            drop_page(m->groups[g].pages[i], b);
        free(m->groups[g].pages);
    }
    if (m->rest)
        host_blocks_give(b, m->rest, m->rest_bytes);
    free(m->form);
    free(m);
    return true;
}

int ram_copy_make(struct ram_copy **out, const struct ram_copy *shape,
                  const struct ram_copy_base *base, struct host_blocks *b, struct err *e) {
    struct ram_copy *m = ram_copy_new(b, shape->rest_bytes);
    bool ok = m != NULL;
    for (int g = 0; ok && g < shape->n_groups; g++) {
        struct ram_copy_group *y = &m->groups[g];
        *y = shape->groups[g];
        y->pages = calloc((size_t)max_i64(y->n_pages, 1), sizeof(struct ram_copy_page *));
        ok = y->pages != NULL;
        m->n_groups = g + 1;
        for (int64_t i = y->first; ok && i < y->n_pages; i++) {
            y->pages[i] = page_for(base, g, i, y, b);
            ok = y->pages[i] != NULL;
        }
    }
    if (!ok) {
        (void)ram_copy_free(m, b);
        return err_set(e, ERR_MEMORY, "no memory for a copy of a checkpoint");
    }
    m->len = shape->len;
    m->sparse_end = shape->sparse_end;
    m->form = shape->form;
    m->form_bytes = shape->form_bytes;
    b->other += small_bytes(m);
    *out = m;
    return 0;
}

int ram_copy_take(struct ram_copy *m, struct checkpoint *from, struct copier *copier,
                  struct exec *x, struct err *e) {
    checkpoint_stay(from);
    struct taking t = {.m = m, .copier = copier, .x = x};
    struct str form = {0};
    copier_after_compute(copier);
    int rc = write_form(from, &t, &form, e);
    str_fini(&form);
    m->ticket = t.ticket;
    return rc;
}

// Reading: where the next bytes and the next group are.
struct giving {
    const struct ram_copy *m;
    size_t rest;
    int group;
};

static const void *get_bytes(void *arg, size_t n) {
    struct giving *v = arg;
    if (n > v->m->rest_bytes - v->rest)
        return NULL;
    v->rest += n;
    return v->m->rest + v->rest - n;
}

static int get_pages(void *arg, struct exec *x, struct kv *k, int64_t len, struct err *e) {
    struct giving *v = arg;
    const struct ram_copy_group *y = v->group < v->m->n_groups ? &v->m->groups[v->group++] : NULL;
    size_t bytes = (size_t)kv_pool_layout(k->pool)->page_bytes;
    if (!y || y->len != len || y->page_bytes != bytes || y->first * KV_PAGE != k->len)
        return err_set(e, ERR_FORMAT, "the checkpoint's pages are not those that its form names");
    int rc = 0;
    for (int64_t i = y->first; i < y->n_pages && !rc; i++) { // full ones may go to host memory
        int64_t n = min_i64(len - k->len, KV_PAGE);
        rc = kv_reserve(k, n, e);
        if (rc)
            break;
        exec_ops(x)->upload(x, k->pages[i], y->pages[i]->data, bytes);
        kv_advance(k, n);
    }
    return rc;
}

static int skip(void *arg, uint32_t groups, uint64_t bytes, struct err *e) {
    struct giving *v = arg;
    if (groups > (uint32_t)(v->m->n_groups - v->group) || bytes > v->m->rest_bytes - v->rest)
        return stored_ends_early(e);
    v->group += (int)groups;
    v->rest += bytes;
    return 0;
}

int ram_copy_restore(struct ram_copy *m, const struct sequence_spec *spec, const int32_t *tokens,
                     struct checkpoint **out, struct err *e) {
    struct giving v = {.m = m};
    struct stored_apart apart = {.arg = &v,
                                 .get_bytes = get_bytes,
                                 .get_pages = get_pages,
                                 .skip = skip,
                                 .check = m->foreign};
    struct checkpoint_parts parts = {m->len, m->sparse_end, tokens, m->form, m->form_bytes};
    int rc = checkpoint_get(out, spec, &parts, &apart, e);
    m->foreign = m->foreign && rc;
    return rc;
}
