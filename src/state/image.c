// SPDX-License-Identifier: Apache-2.0
// The serial form is written with pages and other bytes of devices kept apart: first to learn what
// there is of them, then to queue their copies.
#include "state/image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

// Writing: what the form keeps apart comes by here.
struct taking {
    struct image *m;
    struct host_blocks *b;
    struct copier *copier; // NULL: only sizes are learnt
    struct image_base base;
    struct exec *x; // that the copier is of
    uint64_t ticket;
    size_t rest; // bytes so far
    int64_t needs;
    bool ready;    // with `b` and no copier: all blocks can be taken at once
    int64_t ahead; // with `b` and no copier: bytes of pages of each group to have made, if not 0
    const struct kv_layout **layouts; // [IMAGE_GROUPS] without a copier: to be learnt, or NULL
    int group, rc;
};

static void fail(struct taking *t) {
    if (!t->rc)
        t->rc = ERR_MEMORY;
}

static void copy_out(struct taking *t, struct exec *x, void *host, const void *p, size_t n) {
    if (x == t->x)
        t->ticket = copier_to_host(t->copier, host, p, n);
    else // an attachment of another device
        exec_ops(x)->download(x, host, p, n);
}

static void put_bytes(void *arg, struct exec *x, const void *p, size_t n) {
    struct taking *t = arg;
    if (t->copier && !t->rc)
        copy_out(t, x, t->m->rest + t->rest, p, n);
    t->rest += n;
}

int64_t image_shared(const struct image_base *base, int group, int64_t len) {
    const struct image *m = base->image;
    if (!m || group >= m->n_groups)
        return 0;
    return min_i64(base->common, min_i64(len, m->groups[group].len)) / KV_PAGE;
}

static struct image_page *make_page(struct host_blocks *b, size_t bytes) {
    struct image_page *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (struct image_page){1, bytes, host_blocks_take(b, bytes)};
    if (p->data) {
        b->other += (int64_t)sizeof *p;
        return p;
    }
    free(p);
    return NULL;
}

static void drop_page(struct image_page *p, struct host_blocks *b) {
    if (!p || --p->refs > 0)
        return;
    host_blocks_give(b, p->data, p->bytes);
    b->other -= (int64_t)sizeof *p;
    free(p);
}

// Of an image beside its blocks.
static int64_t small_bytes(const struct image *m) {
    int64_t bytes = (int64_t)(sizeof *m + m->form_bytes);
    for (int g = 0; g < m->n_groups; g++)
        bytes += m->groups[g].n_pages * (int64_t)sizeof(struct image_page *);
    return bytes;
}

// The base's page, or a new one; *fresh says which.
static struct image_page *page_for(const struct image_base *base, int group, int64_t i,
                                   struct image_group *y, struct host_blocks *b, bool *fresh) {
    struct image_page *p =
        i < image_shared(base, group, y->len) ? base->image->groups[group].pages[i] : NULL;
    *fresh = !p;
    if (!p)
        return make_page(b, y->page_bytes);
    p->refs++;
    return p;
}

static bool init_group(struct image_group *y, size_t page_bytes, int64_t len, int64_t first) {
    *y = (struct image_group){
        .page_bytes = page_bytes, .len = len, .first = first, .n_pages = ceil_div(len, KV_PAGE)};
    y->pages = calloc((size_t)max_i64(y->n_pages, 1), sizeof(struct image_page *));
    return y->pages != NULL;
}

// Asks for blocks of one size that take so many bytes together; of small ones there are too many.
static void have_made(struct host_blocks *b, size_t block, int64_t bytes) {
    enum { BLOCKS = 256 };
    (void)host_blocks_ready(b, block, min_i64(BLOCKS, bytes / (int64_t)host_blocks_size(block)));
}

static void put_pages(void *arg, struct exec *x, const struct kv *k) {
    struct taking *t = arg;
    int g = t->group++;
    int64_t first = 0, bytes = kv_pool_layout(k->pool)->page_bytes, n = ceil_div(k->len, KV_PAGE);
    while (first < n && k->ids[first] < 0)
        first++;
    if (g >= IMAGE_GROUPS) {
        fail(t);
        return;
    }
    if (t->layouts) {
        t->layouts[g] = kv_pool_layout(k->pool);
        return;
    }
    if (t->ahead > 0) {
        have_made(t->b, (size_t)bytes, t->ahead);
        return;
    }
    if (!t->copier) {
        int64_t fresh = n - max_i64(first, image_shared(&t->base, g, k->len));
        t->needs += max_i64(fresh, 0) * ((int64_t)host_blocks_size((size_t)bytes) + 48) + n * 8;
        if (t->b && !host_blocks_ready(t->b, (size_t)bytes, fresh))
            t->ready = false;
        return;
    }
    struct image_group *y = &t->m->groups[g];
    if (t->rc || !init_group(y, (size_t)bytes, k->len, first)) {
        fail(t);
        return;
    }
    t->m->n_groups = g + 1;
    for (int64_t i = first; i < n && !t->rc; i++) {
        bool fresh;
        y->pages[i] = page_for(&t->base, g, i, y, t->b, &fresh);
        if (!y->pages[i])
            fail(t);
        else if (fresh)
            copy_out(t, x, y->pages[i]->data, k->pages[i], (size_t)bytes);
    }
}

static int to_str(void *arg, const void *data, size_t n, struct err *e) {
    struct str *s = arg;
    str_append(s, data, n);
    return s->failed ? err_set(e, ERR_MEMORY, "no memory for the form of a checkpoint") : 0;
}

// Runs the writer; the form goes to *form.
static int run(const struct image_source *from, struct taking *t, struct str *form, struct err *e) {
    struct stored_apart apart = {.arg = t, .put_bytes = put_bytes, .put_pages = put_pages};
    struct checkpoint_form f = {
        .model = from->model, .device = from->device, .vocab = from->vocab, .apart = &apart};
    struct checkpoint_sink sink = {to_str, form, NULL};
    t->base = from->base;
    int rc = checkpoint_write(from->checkpoint, &f, &sink, e);
    return rc ? rc : t->rc ? err_set(e, t->rc, "no memory for a copy of a checkpoint") : 0;
}

int64_t image_needs(const struct image_source *from) {
    struct taking t = {0};
    struct str form = {0};
    int rc = run(from, &t, &form, NULL);
    int64_t bytes = t.needs + (int64_t)(host_blocks_size(t.rest) + form.cap + sizeof(struct image));
    str_fini(&form);
    return rc ? 0 : bytes;
}

bool image_ready(const struct image_source *from, struct host_blocks *b) {
    struct taking t = {.b = b, .ready = true};
    struct str form = {0};
    if (!exec_host_pinned(b->x))
        return true;
    int rc = run(from, &t, &form, NULL);
    str_fini(&form);
    return rc || (host_blocks_ready(b, t.rest, t.rest > 0) && t.ready);
}

void image_prepare(const struct image_source *from, struct host_blocks *b, size_t rest,
                   int64_t bytes) {
    struct taking sizes = {0}, t = {.b = b};
    struct str form = {0};
    if (exec_host_pinned(b->x) && run(from, &sizes, &form, NULL) == 0) {
        if (rest)
            have_made(b, rest, bytes / 2);
        t.ahead = (rest ? bytes / 2 : bytes) / max_i64(sizes.group, 1);
        str_clear(&form);
        (void)run(from, &t, &form, NULL);
    }
    str_fini(&form);
}

int image_kind(const struct image_source *from, uint64_t *kind, const struct kv_layout **layouts,
               struct err *e) {
    struct taking t = {.layouts = layouts};
    struct str form = {0};
    int rc = run(from, &t, &form, e);
    if (!rc)
        *kind = hash_bytes(form.data, form.len, 0);
    str_fini(&form);
    return rc;
}

static struct image *image_new(struct host_blocks *b, size_t rest) {
    struct image *m = calloc(1, sizeof *m);
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

int image_take(struct image **out, const struct image_source *from, struct host_blocks *b,
               struct copier *copier, struct err *e) {
    struct taking sizes = {0}, t = {.b = b, .copier = copier, .x = b->x};
    struct str form = {0};
    int rc = run(from, &sizes, &form, e);
    str_clear(&form);
    if (!rc && !(t.m = image_new(b, sizes.rest)))
        rc = err_set(e, ERR_MEMORY, "no memory for a copy of a checkpoint");
    if (!rc) {
        copier_after_compute(copier);
        rc = run(from, &t, &form, e);
    }
    if (rc) {
        if (t.ticket)
            copier_wait(copier, t.ticket, NULL);
        (void)image_free(t.m, b);
        str_fini(&form);
        return rc;
    }
    t.m->len = checkpoint_len(from->checkpoint);
    t.m->sparse_end = checkpoint_sparse_end(from->checkpoint);
    t.m->form = (unsigned char *)form.data;
    t.m->form_bytes = form.len;
    b->other += small_bytes(t.m);
    t.m->ticket = t.ticket;
    *out = t.m;
    return 0;
}

bool image_settled(const struct image *m, struct copier *copier) {
    return copier_done(copier, m->ticket);
}

int image_settle(struct image *m, struct copier *copier, struct err *e) {
    uint64_t ticket = m->ticket;
    m->ticket = 0;
    return copier_wait(copier, ticket, e);
}

int64_t image_own_bytes(const struct image *m) {
    int64_t bytes = small_bytes(m);
    if (m->rest)
        bytes += (int64_t)host_blocks_size(m->rest_bytes);
    for (int g = 0; g < m->n_groups; g++) {
        const struct image_group *y = &m->groups[g];
        // Pages are shared from the first one on, so those of its own are the last ones.
        for (int64_t i = y->n_pages; i > y->first && y->pages[i - 1]->refs == 1; i--)
            bytes += (int64_t)(host_blocks_size(y->page_bytes) + sizeof(struct image_page));
    }
    return bytes;
}

bool image_shares(const struct image *a, const struct image *b) {
    for (int g = 0; g < a->n_groups && g < b->n_groups; g++) {
        const struct image_group *x = &a->groups[g], *y = &b->groups[g];
        int64_t n = min_i64(x->n_pages, y->n_pages);
        for (int64_t i = max_i64(x->first, y->first); i < n; i++)
            if (x->pages[i] == y->pages[i])
                return true;
    }
    return false;
}

bool image_free(struct image *m, struct host_blocks *b) {
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

int image_make(struct image **out, const struct image *shape, const struct image_base *base,
               struct host_blocks *b, struct err *e) {
    struct image *m = image_new(b, shape->rest_bytes);
    bool ok = m != NULL;
    for (int g = 0; ok && g < shape->n_groups; g++) {
        const struct image_group *s = &shape->groups[g];
        struct image_group *y = &m->groups[g];
        ok = init_group(y, s->page_bytes, s->len, s->first);
        m->n_groups = g + 1;
        for (int64_t i = s->first; ok && i < y->n_pages; i++) {
            bool fresh;
            y->pages[i] = page_for(base, g, i, y, b, &fresh);
            ok = y->pages[i] != NULL;
        }
    }
    if (!ok) {
        (void)image_free(m, b);
        return err_set(e, ERR_MEMORY, "no memory to read a checkpoint");
    }
    m->len = shape->len;
    m->sparse_end = shape->sparse_end;
    m->form = shape->form;
    m->form_bytes = shape->form_bytes;
    b->other += small_bytes(m);
    *out = m;
    return 0;
}

// Reading: where the next bytes and the next group are.
struct giving {
    const struct image *m;
    size_t rest, form;
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
    const struct image_group *y = v->group < v->m->n_groups ? &v->m->groups[v->group++] : NULL;
    size_t bytes = (size_t)kv_pool_layout(k->pool)->page_bytes;
    if (!y || y->len != len || y->page_bytes != bytes || y->first * KV_PAGE != k->len)
        return err_set(e, ERR_FORMAT, "the checkpoint's pages are not those that its form names");
    int rc = kv_reserve(k, len - k->len, e);
    if (rc)
        return rc;
    for (int64_t i = y->first; i < y->n_pages; i++)
        exec_ops(x)->upload(x, k->pages[i], y->pages[i]->data, bytes);
    kv_advance(k, len - k->len);
    return 0;
}

static int from_form(void *arg, void *data, size_t n, struct err *e) {
    struct giving *v = arg;
    if (n > v->m->form_bytes - v->form)
        return stored_ends_early(e);
    memcpy(data, v->m->form + v->form, n);
    v->form += n;
    return 0;
}

int image_restore(struct image *m, const struct image_target *to, struct checkpoint **out,
                  struct err *e) {
    struct giving v = {.m = m};
    struct stored_apart apart = {
        .arg = &v, .get_bytes = get_bytes, .get_pages = get_pages, .check = m->foreign};
    struct checkpoint_form f = {.model = to->model,
                                .device = to->device,
                                .vocab = to->vocab,
                                .apart = &apart,
                                .tokens = to->tokens,
                                .n_tokens = m->len};
    struct checkpoint_source source = {from_form, &v};
    int rc = checkpoint_read(out, to->spec, &f, &source, e);
    free(f.tail);
    m->foreign = m->foreign && rc;
    return rc;
}
