// SPDX-License-Identifier: Apache-2.0
// Checkpoints as records without a copy of all of them in host memory: where their parts lie is
// listed, then they are fetched one by one; and read in the order of the record, of which only the
// rest has to be in memory at once.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "state/identity.h"
#include "state/record.h"

// Pieces of a checkpoint, in the order of a record.
struct listing {
    struct record_piece *rest, *pages;
    int64_t n_rest, cap_rest, n_pages, cap_pages;
    bool failed;
};

static void add_piece(struct listing *l, struct record_piece **to, int64_t *n, int64_t *cap,
                      struct record_piece p) {
    l->failed = l->failed || vec_reserve(to, cap, *n + 1, sizeof **to, NULL);
    if (!l->failed)
        (*to)[(*n)++] = p;
}

static void list_bytes(void *arg, struct exec *x, const void *p, size_t n) {
    struct listing *l = arg;
    add_piece(l, &l->rest, &l->n_rest, &l->cap_rest, (struct record_piece){x, p, n, NULL, 0});
}

static void list_pages(void *arg, struct exec *x, const struct kv *k) {
    struct listing *l = arg;
    const struct kv_layout *layout = kv_pool_layout(k->pool);
    for (int64_t i = 0; i * KV_PAGE < k->len; i++) {
        if (k->ids[i] < 0)
            continue;
        const struct record_piece p = {x, kv_page_data(k, i), (size_t)layout->page_bytes, layout,
                                       min_i64(k->len - i * KV_PAGE, KV_PAGE)};
        add_piece(l, &l->pages, &l->n_pages, &l->cap_pages, p);
    }
}

// All pieces in one array, which is l->rest.
static int join_pieces(struct listing *l, struct err *e) {
    int64_t n = l->n_rest + l->n_pages;
    if (l->failed || vec_reserve(&l->rest, &l->cap_rest, n, sizeof *l->rest, NULL))
        return err_set(e, ERR_MEMORY, "no memory to write a checkpoint");
    if (l->n_pages)
        memcpy(l->rest + l->n_rest, l->pages, (size_t)l->n_pages * sizeof *l->pages);
    return 0;
}

static int list_pieces(const struct checkpoint *c, struct listing *l, struct err *e) {
    const struct stored_apart apart = {.arg = l, .put_bytes = list_bytes, .put_pages = list_pages};
    struct str form = {0};
    int rc = checkpoint_put(c, &apart, &form, e);
    str_fini(&form);
    return rc ? rc : join_pieces(l, e);
}

// The head of a checkpoint's record.
static int describe(const struct checkpoint *c, const struct record_text *text, struct record *r,
                    struct err *e) {
    struct ram_copy shape;
    int64_t len = checkpoint_len(c);
    int rc = ram_copy_shape(c, &shape, NULL, e);
    if (rc)
        return rc;
    r->n_tail = text->n_tail;
    rc = record_of(r, text->identity, &shape, NULL, 0, e);
    free(shape.form);
    if (rc)
        return rc;
    r->key = record_key(r->kind, checkpoint_tokens(c), len, r->sparse_end);
    r->tokens = malloc((size_t)max_i64(len + r->n_tail, 1) * sizeof *r->tokens);
    if (!r->tokens)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    if (len)
        memcpy(r->tokens, checkpoint_tokens(c), (size_t)len * sizeof *r->tokens);
    if (r->n_tail)
        memcpy(r->tokens + len, text->tail, (size_t)r->n_tail * sizeof *r->tokens);
    return 0;
}

int record_save(const struct checkpoint *c, const struct record_text *text,
                const struct record_sink *to, struct err *e) {
    struct listing l = {0};
    struct record r = {0};
    int rc = checkpoint_wait(c, e);
    if (!rc)
        rc = describe(c, text, &r, e);
    if (!rc)
        rc = list_pieces(c, &l, e);
    const struct record_data d = {l.rest, l.n_rest, l.n_rest + l.n_pages};
    if (!rc)
        rc = record_write_data(&r, &d, to, e);
    if (!rc)
        rc = checkpoint_wait(c, e);
    record_fini(&r);
    free(l.rest);
    free(l.pages);
    return rc;
}

// Reading: the rest is in memory, pages come from the source.
struct loading {
    const struct record *r;
    const struct record_source *from;
    unsigned char *rest;
    size_t at; // of the rest
    int group;
    int64_t page; // of all that the record has
    unsigned char *buffer;
    size_t buffer_bytes;
};

static int damaged(struct err *e) {
    return err_set(e, ERR_FORMAT, "the checkpoint is damaged; make it again");
}

static int load_rest(struct loading *w, struct err *e) {
    size_t n = w->r->rest_bytes;
    w->rest = malloc(max_size(n, 1));
    if (!w->rest)
        return err_set(e, ERR_MEMORY, "no memory to read a checkpoint");
    int rc = n ? w->from->source(w->from->arg, w->rest, n, e) : 0;
    return rc || hash_bytes(w->rest, n, 0) == w->r->sums[0] ? rc : damaged(e);
}

// The next page into w->buffer.
static int load_page(struct loading *w, size_t bytes, struct err *e) {
    if (bytes > w->buffer_bytes) {
        unsigned char *more = realloc(w->buffer, bytes);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory to read a checkpoint");
        w->buffer = more;
        w->buffer_bytes = bytes;
    }
    int rc = w->from->source(w->from->arg, w->buffer, bytes, e);
    return rc || hash_bytes(w->buffer, bytes, 0) == w->r->sums[1 + w->page++] ? rc : damaged(e);
}

static const void *get_bytes(void *arg, size_t n) {
    struct loading *w = arg;
    if (n > w->r->rest_bytes - w->at)
        return NULL;
    w->at += n;
    return w->rest + w->at - n;
}

static int get_pages(void *arg, struct exec *x, struct kv *k, int64_t len, struct err *e) {
    struct loading *w = arg;
    const struct record_group *g = w->group < w->r->n_groups ? &w->r->groups[w->group++] : NULL;
    const struct kv_layout *layout = kv_pool_layout(k->pool);
    if (!g || g->len != len || g->page_bytes != (uint64_t)layout->page_bytes ||
        g->first * KV_PAGE != k->len)
        return damaged(e);
    int rc = 0;
    for (int64_t i = g->first; i * KV_PAGE < len && !rc; i++) { // full ones may go to host memory
        int64_t n = min_i64(len - k->len, KV_PAGE);
        rc = kv_reserve(k, n, e);
        if (!rc)
            rc = load_page(w, (size_t)g->page_bytes, e);
        if (!rc && !stored_page_finite(layout, w->buffer))
            rc = damaged(e);
        if (rc)
            break;
        exec_ops(x)->upload(x, k->pages[i], w->buffer, (size_t)g->page_bytes);
        kv_advance(k, n);
    }
    return rc;
}

static int skip(void *arg, uint32_t groups, uint64_t bytes, struct err *e) {
    struct loading *w = arg;
    int rc = groups > (uint32_t)(w->r->n_groups - w->group) || bytes > w->r->rest_bytes - w->at
                 ? damaged(e)
                 : 0;
    for (; !rc && groups > 0; groups--) {
        const struct record_group *g = &w->r->groups[w->group++];
        for (int64_t i = g->first; i * KV_PAGE < g->len && !rc; i++)
            rc = load_page(w, (size_t)g->page_bytes, e);
    }
    w->at += bytes;
    return rc;
}

// What the head says of a checkpoint that is whole.
static int check_head(const struct record *r, const struct record_text *text, struct err *e) {
    int rc = identity_check(r->identity, text->identity, e);
    if (rc)
        return rc;
    if (r->base)
        return err_set(e, ERR_MISMATCH,
                       "it is a file of a prefix cache that goes on from another one; only saved "
                       "texts can be read alone");
    for (int64_t i = 0; i < r->len + r->n_tail; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= text->vocab)
            return damaged(e);
    return record_key(r->kind, r->tokens, r->len, r->sparse_end) == r->key ? 0 : damaged(e);
}

static int take_tail(const struct record *r, struct record_text *text, struct err *e) {
    size_t bytes = (size_t)r->n_tail * sizeof *r->tokens;
    text->tail = malloc(max_size(bytes, 1));
    if (!text->tail)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    if (bytes)
        memcpy(text->tail, r->tokens + r->len, bytes);
    text->n_tail = r->n_tail;
    return 0;
}

// The data of a record whose head has been read.
static int load_data(struct checkpoint **out, const struct sequence_spec *spec,
                     const struct record *r, const struct record_source *from, struct err *e) {
    struct loading w = {.r = r, .from = from};
    const struct stored_apart apart = {
        .arg = &w, .get_bytes = get_bytes, .get_pages = get_pages, .skip = skip, .check = true};
    const struct checkpoint_parts parts = {r->len, r->sparse_end, r->tokens, r->form,
                                           r->form_bytes};
    int rc = load_rest(&w, e);
    if (!rc)
        rc = checkpoint_get(out, spec, &parts, &apart, e);
    if (!rc && (w.at != r->rest_bytes || w.group != r->n_groups)) {
        checkpoint_destroy(*out);
        *out = NULL;
        rc = damaged(e);
    }
    free(w.rest);
    free(w.buffer);
    return rc;
}

int record_load(struct checkpoint **out, const struct sequence_spec *spec, struct record_text *text,
                const struct record_source *from, struct err *e) {
    struct record r;
    text->tail = NULL;
    text->n_tail = 0;
    int rc = record_read(&r, from, e);
    if (rc)
        return rc;
    rc = check_head(&r, text, e);
    if (!rc)
        rc = take_tail(&r, text, e);
    if (!rc)
        rc = load_data(out, spec, &r, from, e);
    if (rc) {
        free(text->tail);
        text->tail = NULL;
        text->n_tail = 0;
    }
    record_fini(&r);
    return rc;
}
