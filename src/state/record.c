// SPDX-License-Identifier: Apache-2.0
// Heads of records, then their data from host memory or from devices. Whatever a head says is
// compared with the bytes that there are before memory is taken for it.
#include "state/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "state/identity.h"

static const char magic[8] = {'c', 'o', 'p', 'p', 's', 't', 'o', 'r'};
enum { VERSION = 3, SECTION = 20 }; // bytes of a section besides what it holds

void record_fini(struct record *r) {
    free(r->identity);
    free(r->form);
    free(r->sums);
    free(r->tokens);
    *r = (struct record){0};
}

int64_t record_memory(const struct record *r) {
    return (int64_t)(sizeof *r + r->form_bytes) + r->n_sums * (int64_t)sizeof *r->sums;
}

uint64_t record_key(uint64_t kind, const int32_t *ids, int64_t n, int64_t sparse_end) {
    return hash_bytes(ids, (size_t)n * sizeof *ids, kind ^ (uint64_t)min_i64(n, sparse_end)) | 1;
}

static int64_t pages_of(const struct record_group *g) {
    return ceil_div(g->len, KV_PAGE) - g->own;
}

int64_t record_pages(const struct record *r) {
    int64_t sum = 0;
    for (int g = 0; g < r->n_groups; g++)
        sum += pages_of(&r->groups[g]);
    return sum;
}

static int64_t tokens_of(const struct record *r) {
    return r->len - r->common + r->n_tail;
}

static int64_t head_bytes(const struct record *r, size_t identity) {
    int64_t numbers = 8 * 9 + 4 + r->n_groups * 8 * 4;
    return (int64_t)sizeof magic + 4 + 5 * SECTION + (int64_t)identity + numbers +
           tokens_of(r) * 4 + (int64_t)r->form_bytes + r->n_sums * 8;
}

// Sizes that follow from the others.
static void measure_record(struct record *r, size_t identity) {
    int64_t bytes = (int64_t)r->rest_bytes;
    r->n_sums = 1;
    for (int g = 0; g < r->n_groups; g++) {
        r->n_sums += pages_of(&r->groups[g]);
        bytes += pages_of(&r->groups[g]) * (int64_t)r->groups[g].page_bytes;
    }
    r->data = head_bytes(r, identity);
    r->bytes = r->data + bytes;
}

int record_of(struct record *r, const char *identity, const struct ram_copy *m,
              const struct record *base, int64_t common, struct err *e) {
    r->len = m->len;
    r->sparse_end = m->sparse_end;
    r->base = base ? base->key : 0;
    r->common = base ? common : 0;
    r->n_groups = m->n_groups;
    r->rest_bytes = m->rest_bytes;
    for (int g = 0; g < m->n_groups; g++) {
        const struct ram_copy_group *y = &m->groups[g];
        struct record_group *o = &r->groups[g];
        *o = (struct record_group){y->page_bytes, y->len, y->first, y->first};
        if (base && g < base->n_groups && base->groups[g].first <= y->first)
            o->own =
                max_i64(y->first, min_i64(common, min_i64(y->len, base->groups[g].len)) / KV_PAGE);
    }
    r->form_bytes = m->form_bytes;
    r->form = malloc(max_size(r->form_bytes, 1));
    r->identity = strdup(identity);
    r->kind = identity_key(identity);
    measure_record(r, strlen(identity));
    r->sums = calloc((size_t)r->n_sums, sizeof *r->sums);
    if (!r->form || !r->sums || !r->identity)
        return err_set(e, ERR_MEMORY, "no memory to write a state of %lld tokens",
                       (long long)r->len);
    if (r->form_bytes)
        memcpy(r->form, m->form, r->form_bytes);
    return 0;
}

int64_t record_page(const struct record *r, int group, int64_t page, uint64_t *sum) {
    int64_t at = r->data + (int64_t)r->rest_bytes, i = 1;
    for (int g = 0; g < group; g++) {
        at += pages_of(&r->groups[g]) * (int64_t)r->groups[g].page_bytes;
        i += pages_of(&r->groups[g]);
    }
    page -= r->groups[group].own;
    *sum = r->sums[i + page];
    return at + page * (int64_t)r->groups[group].page_bytes;
}

static void put_identity(struct stored_out *o, const void *arg) {
    const struct record *r = arg;
    stored_put(o, r->identity, strlen(r->identity));
}

static void put_head(struct stored_out *o, const void *arg) {
    const struct record *r = arg;
    const uint64_t numbers[] = {(uint64_t)r->bytes,
                                r->key,
                                r->base,
                                (uint64_t)r->len,
                                (uint64_t)r->sparse_end,
                                (uint64_t)r->common,
                                (uint64_t)r->n_tail,
                                r->form_bytes,
                                r->rest_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        stored_put_u64(o, numbers[i]);
    stored_put_u32(o, (uint32_t)r->n_groups);
    for (int g = 0; g < r->n_groups; g++) {
        const struct record_group *y = &r->groups[g];
        const int64_t own[] = {(int64_t)y->page_bytes, y->len, y->first, y->own};
        for (int i = 0; i < 4; i++)
            stored_put_u64(o, (uint64_t)own[i]);
    }
}

static void put_tokens(struct stored_out *o, const void *arg) {
    const struct record *r = arg;
    for (int64_t i = 0; i < tokens_of(r); i++)
        stored_put_u32(o, (uint32_t)r->tokens[i]);
}

static void put_form(struct stored_out *o, const void *arg) {
    const struct record *r = arg;
    stored_put(o, r->form, r->form_bytes);
}

static void put_sums(struct stored_out *o, const void *arg) {
    const struct record *r = arg;
    for (int64_t i = 0; i < r->n_sums; i++)
        stored_put_u64(o, r->sums[i]);
}

// Data: what is to be written, piece by piece.

enum { AT_ONCE = 4 << 20 }; // bytes

struct writing {
    struct record *r;
    const struct record_data *data;
    const struct record_sink *to;
    unsigned char *buffer; // [buffer_bytes] for bytes of devices
    size_t buffer_bytes;
    struct hash sum; // of the rest, or of a page that is being written
};

static int make_buffer(struct writing *w, struct err *e) {
    for (int64_t i = 0; i < w->data->n; i++) {
        const struct record_piece *p = &w->data->pieces[i];
        if (p->x)
            w->buffer_bytes =
                max_size(w->buffer_bytes, p->page ? p->bytes : min_size(p->bytes, AT_ONCE));
    }
    w->buffer = w->buffer_bytes ? calloc(1, w->buffer_bytes) : NULL;
    return !w->buffer_bytes || w->buffer ? 0 : err_set(e, ERR_MEMORY, "no memory to write a state");
}

// n bytes of a piece in host memory; of a page all are fetched.
static const unsigned char *fetch(const struct writing *w, const struct record_piece *p, size_t at,
                                  size_t n) {
    if (!p->x)
        return (const unsigned char *)p->data + at;
    exec_ops(p->x)->download(p->x, w->buffer, (const unsigned char *)p->data + at, n);
    if (p->page)
        stored_page_clear(p->page, w->buffer, p->slots);
    return w->buffer;
}

typedef int chunk_fn(struct writing *w, const unsigned char *data, size_t n, struct err *e);

static void pause_now(const struct writing *w) {
    if (w->to->pause)
        w->to->pause->call(w->to->pause->arg);
}

// Calls with a piece's bytes in chunks.
static int each_chunk(struct writing *w, const struct record_piece *p, chunk_fn *call,
                      struct err *e) {
    size_t once = p->page ? max_size(p->bytes, 1) : AT_ONCE;
    int rc = 0;
    for (size_t at = 0; at < p->bytes && !rc; at += once) {
        size_t some = min_size(p->bytes - at, once);
        rc = call(w, fetch(w, p, at, some), some, e);
    }
    return rc;
}

static int add_rest(struct writing *w, const unsigned char *data, size_t n, struct err *e) {
    (void)e;
    hash_add(&w->sum, data, n);
    pause_now(w);
    return 0;
}

static int put_chunk(struct writing *w, const unsigned char *data, size_t n, struct err *e) {
    int rc = 0;
    for (size_t at = 0, some; at < n && !rc; at += some) {
        some = min_size(n - at, AT_ONCE);
        if (w->to->rewrite)
            hash_add(&w->sum, data + at, some);
        rc = w->to->sink(w->to->arg, data + at, some, e);
        pause_now(w);
    }
    return rc;
}

static void set_sums(struct writing *w) {
    const struct record_data *d = w->data;
    hash_begin(&w->sum, 0);
    for (int64_t i = 0; i < d->n_rest; i++)
        (void)each_chunk(w, &d->pieces[i], add_rest, NULL);
    w->r->sums[0] = hash_end(&w->sum);
    for (int64_t i = d->n_rest; i < d->n; i++) {
        const struct record_piece *p = &d->pieces[i];
        w->r->sums[1 + i - d->n_rest] = hash_bytes(fetch(w, p, 0, p->bytes), p->bytes, 0);
        pause_now(w);
    }
}

static int put_sections(const struct record *r, const struct record_sink *to, struct err *e) {
    struct stored_out o = {.sink = to->sink, .arg = to->arg};
    stored_put(&o, magic, sizeof magic);
    stored_put_u32(&o, VERSION);
    stored_section(&o, "IDEN", put_identity, r);
    stored_section(&o, "HEAD", put_head, r);
    stored_section(&o, "TOKN", put_tokens, r);
    stored_section(&o, "FORM", put_form, r);
    stored_section(&o, "SUMS", put_sums, r);
    return o.rc ? err_set(e, o.rc, "%s", o.err.text) : 0;
}

// Puts the rest and the pages, and takes their sums where these can be put afterwards.
static int put_data(struct writing *w, struct err *e) {
    const struct record_data *d = w->data;
    int rc = 0;
    hash_begin(&w->sum, 0);
    for (int64_t i = 0; i < d->n_rest && !rc; i++)
        rc = each_chunk(w, &d->pieces[i], put_chunk, e);
    if (w->to->rewrite)
        w->r->sums[0] = hash_end(&w->sum);
    for (int64_t i = d->n_rest; i < d->n && !rc; i++) {
        hash_begin(&w->sum, 0);
        rc = each_chunk(w, &d->pieces[i], put_chunk, e);
        if (w->to->rewrite)
            w->r->sums[1 + i - d->n_rest] = hash_end(&w->sum);
    }
    return rc;
}

static int to_text(void *text, const void *data, size_t n, struct err *e) {
    (void)e;
    str_append(text, data, n);
    return 0;
}

// The section of sums is the last one of the head.
static int rewrite_sums(const struct record *r, const struct record_sink *to, struct err *e) {
    struct str text = {0};
    struct stored_out o = {.sink = to_text, .arg = &text};
    stored_section(&o, "SUMS", put_sums, r);
    int rc = text.failed
                 ? err_set(e, ERR_MEMORY, "no memory to write a state")
                 : to->rewrite(to->arg, r->data - (int64_t)text.len, text.data, text.len, e);
    str_fini(&text);
    return rc;
}

int record_write_data(struct record *r, const struct record_data *d, const struct record_sink *to,
                      struct err *e) {
    struct writing w = {.r = r, .data = d, .to = to};
    int rc = make_buffer(&w, e);
    if (rc)
        return rc;
    if (!to->rewrite)
        set_sums(&w);
    rc = put_sections(r, to, e);
    if (!rc)
        rc = put_data(&w, e);
    if (!rc && to->rewrite)
        rc = rewrite_sums(r, to, e);
    free(w.buffer);
    return rc;
}

int record_write(struct record *r, const struct ram_copy *m, const struct record_sink *to,
                 struct err *e) {
    struct record_piece *p = calloc((size_t)r->n_sums, sizeof *p);
    struct record_data d = {.pieces = p, .n = 1, .n_rest = 1};
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory to write a state of %lld tokens",
                       (long long)r->len);
    p[0] = (struct record_piece){.data = m->rest, .bytes = m->rest_bytes};
    for (int g = 0; g < r->n_groups; g++)
        for (int64_t i = r->groups[g].own; i < m->groups[g].n_pages; i++)
            p[d.n++] = (struct record_piece){.data = m->groups[g].pages[i]->data,
                                             .bytes = m->groups[g].page_bytes};
    int rc = record_write_data(r, &d, to, e);
    free(p);
    return rc;
}

// Reading heads.

static int64_t get_count(struct stored_in *in, int64_t max) {
    uint64_t n = stored_get_u64(in);
    if (n > (uint64_t)max)
        stored_damaged(in);
    return in->rc ? 0 : (int64_t)n;
}

static void get_identity(struct stored_in *in, struct record *r) {
    stored_enter_as(in, "IDEN");
    size_t n = in->left <= IDENTITY_MAX ? (size_t)in->left : 0;
    r->identity = calloc(1, n + 1);
    if (!r->identity) {
        stored_fail(in, ERR_MEMORY, "no memory to read a state");
        return;
    }
    stored_get(in, r->identity, n);
    for (size_t i = 0; i < n && !in->rc; i++)
        if (r->identity[i] != '\n' && (r->identity[i] < ' ' || r->identity[i] > '~'))
            stored_damaged(in); // it may be shown
    stored_leave(in);
    r->kind = identity_key(r->identity);
}

static void get_group(struct stored_in *in, struct record_group *y, int64_t len) {
    y->page_bytes = (uint64_t)get_count(in, INT64_MAX); // there may be no page
    y->len = get_count(in, len);
    y->first = get_count(in, ceil_div(y->len, KV_PAGE));
    y->own = get_count(in, ceil_div(y->len, KV_PAGE));
    if (y->own < y->first || y->page_bytes == 0)
        stored_damaged(in);
}

static void get_head(struct stored_in *in, struct record *r, int64_t bytes) {
    enum { LONGEST = 1 << 30 };
    stored_enter_as(in, "HEAD");
    if (get_count(in, INT64_MAX) != bytes)
        stored_fail(in, ERR_FORMAT, "it was cut off, or something follows it; make it again");
    r->key = stored_get_u64(in);
    r->base = stored_get_u64(in);
    r->len = get_count(in, LONGEST);
    r->sparse_end = get_count(in, INT64_MAX);
    r->common = get_count(in, r->len);
    r->n_tail = get_count(in, LONGEST);
    r->form_bytes = (size_t)get_count(in, bytes);
    r->rest_bytes = (size_t)get_count(in, bytes);
    r->n_groups = (int)stored_get_u32(in);
    if (r->n_groups < 0 || r->n_groups > RAM_COPY_GROUPS || (!r->base && r->common) ||
        tokens_of(r) > bytes / 4)
        stored_damaged(in);
    for (int g = 0; !in->rc && g < r->n_groups; g++) {
        get_group(in, &r->groups[g], r->len);
        if (!r->base && r->groups[g].own != r->groups[g].first)
            stored_damaged(in);
        if (pages_of(&r->groups[g]) > bytes / (int64_t)max_i64((int64_t)r->groups[g].page_bytes, 1))
            stored_damaged(in); // so that no sum overflows
    }
    stored_leave(in);
    if (in->rc)
        return;
    measure_record(r, strlen(r->identity));
    if (r->bytes != bytes)
        stored_damaged(in);
}

static void get_arrays(struct stored_in *in, struct record *r) {
    int64_t n = tokens_of(r);
    r->tokens = malloc((size_t)max_i64(n, 1) * sizeof *r->tokens);
    r->form = malloc(max_size(r->form_bytes, 1));
    r->sums = malloc((size_t)r->n_sums * sizeof *r->sums);
    if (!r->tokens || !r->form || !r->sums) {
        stored_fail(in, ERR_MEMORY, "no memory for the head of a state");
        return;
    }
    stored_enter_as(in, "TOKN");
    for (int64_t i = 0; i < n; i++)
        r->tokens[i] = (int32_t)stored_get_u32(in);
    stored_leave(in);
    stored_enter_as(in, "FORM");
    stored_get(in, r->form, r->form_bytes);
    stored_leave(in);
    stored_enter_as(in, "SUMS");
    for (int64_t i = 0; i < r->n_sums; i++)
        r->sums[i] = stored_get_u64(in);
    stored_leave(in);
}

// The forms before this one were two: of saved checkpoints and of the prefix cache.
static bool is_older(const char *found) {
    return !memcmp(found, "coppckpt", sizeof magic) || !memcmp(found, "coppcach", sizeof magic);
}

static void check_version(struct stored_in *in) {
    char found[sizeof magic];
    in->left = sizeof magic + 4;
    stored_get(in, found, sizeof found);
    uint32_t version = stored_get_u32(in);
    if (is_older(found) || (!memcmp(found, magic, sizeof magic) && version < VERSION))
        stored_fail(in, ERR_MISMATCH,
                    "it was written by an older version of coppice, in a form that is not read any "
                    "more (%u, here %d); make it again",
                    version, VERSION);
    else if (memcmp(found, magic, sizeof magic) != 0)
        stored_fail(in, ERR_FORMAT, "this is no stored state of coppice");
    else if (version > VERSION)
        stored_fail(in, ERR_UNSUPPORTED,
                    "it was written by a newer version of coppice, which can use it (form %u, here "
                    "%d); it stays as it is",
                    version, VERSION);
}

int record_read(struct record *r, const struct record_source *from, struct err *e) {
    struct stored_in in = {.source = from->source, .arg = from->arg};
    *r = (struct record){0};
    check_version(&in);
    if (!in.rc)
        get_identity(&in, r);
    if (!in.rc)
        get_head(&in, r, from->bytes);
    if (!in.rc)
        get_arrays(&in, r);
    if (!in.rc)
        return 0;
    record_fini(r);
    return err_set(e, in.rc, "%s", in.err.text);
}
