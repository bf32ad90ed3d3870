// SPDX-License-Identifier: Apache-2.0
// The draft's state of a sequence, an attachment: keys and values of its one layer, and the hidden
// states of the newest tokens. A row needs the token after it, so the newest position always waits;
// others are absorbed when a draft begins or when the tail is full. Of a row only its key and value
// are ever needed, so a prompt costs a projection and no attention.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/path/impl.h"
#include "state/identity.h"
#include "state/stored.h"

static struct path *draft_of(const struct attachment *a) {
    return a->kind->owner;
}

static struct path_state *state_of(struct attachment *a) {
    return (struct path_state *)a;
}

struct path_state *path_state_of(const struct path *d, const struct sequence *s) {
    return (struct path_state *)sequence_attached(s, &d->kind);
}

int32_t path_tail_slot(const struct path_state *s, int64_t pos) {
    return (int32_t)(s->rest ? pos - s->from : pos % PATH_TAIL);
}

struct rows path_pass(const struct path *d, int64_t n) {
    return (struct rows){n, d->token, d->parent, d->seq, d->pos, exec_pass(d->x)};
}

// Positions 0 .. last-1 could be absorbed of n.
static int64_t last_of(int64_t n) {
    return max_i64(n - 1, 0);
}

// Makes room in the workspace's arrays, at `at`, for n positions from s->absorbed on.
static void place_rows(struct path *d, struct path_state *s, int64_t n, int64_t at) {
    for (int64_t i = at; i < at + n; i++) {
        d->pos[i] = s->absorbed++;
        d->parent[i] = -1; // nothing is asked of other rows
        d->seq[i] = 0;
        d->store[i] = kv_slot_at(&s->kv, d->pos[i]);
    }
    kv_advance(&s->kv, n);
}

// Keys and values of n such rows, whose tokens are in d->token and hidden states in d->u.
static void store_rows(struct path *d, int64_t n) {
    if (n < 1)
        return;
    struct rows rows = path_pass(d, n);
    d->block->store(d, &rows);
}

// The waiting positions before `end`, of which the token at `end` is `next`, as rows at `at`: how
// many.
static int64_t take_tail(struct path *d, struct path_state *s, int64_t end, int32_t next,
                         int64_t at) {
    const size_t row = (size_t)d->dim * sizeof(float);
    const int64_t n = end - s->absorbed;
    for (int64_t i = 0; i < n; i++) {
        const int64_t pos = s->absorbed + i;
        d->index[i] = path_tail_slot(s, pos);
        d->token[at + i] = pos + 1 < end ? s->token[(pos + 1) % PATH_TAIL] : next;
    }
    if (n < 1)
        return 0;
    exec_ops(d->x)->copy_rows(d->x, d->u + at * d->dim, row, s->tail, d->index, n, row);
    place_rows(d, s, n, at);
    return n;
}

void path_absorb(struct path *d) {
    int64_t n = 0;
    for (int i = 0; i < d->n_members; i++) {
        struct path_state *s = d->members[i].state;
        const int64_t end = last_of(s->base.len);
        if (!d->members[i].ready)
            continue;
        if (n + PATH_TAIL > d->n_rows) {
            store_rows(d, n);
            n = 0;
        }
        n += take_tail(d, s, end, s->token[end % PATH_TAIL], n);
    }
    store_rows(d, n);
}

// rows: of the tail; a live one has PATH_TAIL.
static int make_state(struct path *d, int64_t rows, struct path_state **out, struct err *e) {
    struct path_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the state of a sequence's %s", d->block->what);
    s->base.kind = &d->kind;
    attachment_write(&s->base);
    kv_init(&s->kv, d->pool, 0);
    size_t bytes = (size_t)(rows * d->dim) * sizeof(float);
    s->tail = bytes ? exec_alloc(d->x, ARENA_STATES, bytes) : NULL;
    if (bytes && !s->tail) {
        free(s);
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes of hidden states", bytes);
    }
    *out = s;
    return 0;
}

static int path_state_create(const struct attachment_kind *k, struct attachment **out,
                             struct err *e) {
    struct path_state *s = NULL;
    int rc = make_state(k->owner, PATH_TAIL, &s, e);
    if (!rc)
        *out = &s->base;
    return rc;
}

static void path_state_destroy(struct attachment *a) {
    struct path_state *s = state_of(a);
    struct path *d = draft_of(a);
    kv_fini(&s->kv);
    if (s->tail)
        exec_ops(d->x)->free(d->x, s->tail);
    free(s);
}

static void path_state_release(struct attachment *a) {
    kv_release(&state_of(a)->kv, ceil_div(a->len, KV_PAGE));
}

static int path_state_reserve(struct attachment *a, int64_t n, struct err *e) {
    struct path_state *s = state_of(a);
    int rc = kv_reserve(&s->kv, a->len + n - s->absorbed, e);
    if (rc)
        path_state_release(a);
    return rc;
}

// Puts the hidden states of n more positions into the tail, of which the newest stay.
static void keep_tail(struct path *d, struct path_state *s, const int32_t *token,
                      const int32_t *index, int64_t n) {
    const int64_t skip = max_i64(n - PATH_TAIL, 0);
    for (int64_t i = skip, part; i < n; i += part) { // at most two parts
        const int32_t slot = path_tail_slot(s, s->base.len + i);
        part = min_i64(n - i, PATH_TAIL - slot);
        for (int64_t j = 0; j < part; j++)
            s->token[slot + j] = token[index[i + j]];
        d->block->hidden(d, index + i, part, s->tail + slot * d->dim);
    }
    s->base.len += n;
    s->from = max_i64(s->from, s->base.len - PATH_TAIL);
}

// A long piece of a prompt: all that waits and all of the piece but its last row are absorbed, the
// latter from where they are.
static void append_piece(struct path *d, struct path_state *s, const int32_t *token,
                         const int32_t *index, int64_t count) {
    store_rows(d, take_tail(d, s, s->base.len, token[index[0]], 0));
    for (int64_t at = 0, n; at < count - 1; at += n) {
        n = min_i64(count - 1 - at, d->absorb_rows);
        for (int64_t i = 0; i < n; i++)
            d->token[i] = token[index[at + i + 1]];
        d->block->hidden(d, index + at, n, d->u);
        place_rows(d, s, n, 0);
        store_rows(d, n);
    }
    keep_tail(d, s, token, index, count);
}

// Whether the draft has already stored the position that waits for `next`, and nothing has changed
// that since.
static bool root_holds(const struct path *d, const struct path_state *s, int32_t next) {
    const struct path_root *r = &s->root;
    return r->page && r->token == next && kv_slot_at(&s->kv, s->absorbed).page == r->page &&
           !exec_epoch_failed(d->x, r->epoch);
}

static void path_state_append(struct attachment *a, const int32_t *token, const int32_t *index,
                              int64_t count) {
    struct path_state *s = state_of(a);
    struct path *d = draft_of(a);
    if (count <= 0)
        return;
    if (root_holds(d, s, token[index[0]])) {
        s->absorbed++;
        kv_advance(&s->kv, 1);
    }
    s->root.page = NULL;
    if (a->len - s->absorbed + count > PATH_TAIL)
        append_piece(d, s, token, index, count);
    else
        keep_tail(d, s, token, index, count);
}

static bool path_state_keeps(const struct attachment *a, int64_t n) {
    (void)a;
    (void)n;
    return true; // there is no window
}

// Positions that stay absorbed when only n stay: the last one's row is of a token that has gone.
static int64_t absorbed_at(const struct path_state *s, int64_t n) {
    return min_i64(s->absorbed, last_of(n));
}

// Beyond the tail the hidden state of the newest position is gone. Zeros stand in for it: one key
// of the draft is then not what it would be, which drafts may notice and outputs cannot.
static void path_state_cut(struct attachment *a, int64_t n) {
    struct path_state *s = state_of(a);
    struct path *d = draft_of(a);
    s->absorbed = absorbed_at(s, n);
    s->root.page = NULL;
    kv_truncate(&s->kv, s->absorbed);
    if (n > 0 && n <= s->from) {
        exec_ops(d->x)->zero(d->x, s->tail + path_tail_slot(s, n - 1) * d->dim,
                             (size_t)d->dim * sizeof(float));
        s->from = n - 1;
    }
    s->from = min_i64(s->from, last_of(n));
    a->len = n;
}

// Hidden states of positions first .. n-1 into another's tail.
static void copy_tail(struct path *d, struct path_state *to, const struct path_state *from,
                      int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(d->x);
    const int64_t dim = d->dim;
    const size_t row = (size_t)dim * sizeof(float);
    for (int64_t pos = first, part; pos < n; pos += part) {
        const int32_t a = path_tail_slot(from, pos), b = path_tail_slot(to, pos);
        part = n - pos;
        part = from->rest ? part : min_i64(part, PATH_TAIL - a);
        part = to->rest ? part : min_i64(part, PATH_TAIL - b);
        ops->copy(d->x, to->tail + b * dim, from->tail + a * dim, (size_t)part * row);
    }
}

// The first position whose hidden state one at rest has: all that wait, and where sequences may be
// cut to any length those before them, too.
static int64_t rest_from(const struct path *d, const struct path_state *s, int64_t n) {
    const bool recurrent = d->target->params.n_full < d->target->params.n_layers;
    return recurrent ? absorbed_at(s, n) : min_i64(s->from, last_of(n));
}

static int path_state_copy(const struct attachment *a, int64_t n, bool at_rest,
                           struct attachment **out, struct err *e) {
    const struct path_state *s = (const struct path_state *)a;
    struct path *d = draft_of(a);
    struct path_state *c = NULL;
    const int64_t absorbed = absorbed_at(s, n), from = at_rest ? rest_from(d, s, n) : s->from;
    int rc = make_state(d, at_rest ? n - from : PATH_TAIL, &c, e);
    if (!rc && (rc = kv_share(&c->kv, &s->kv, absorbed, e)))
        path_state_destroy(&c->base);
    if (rc)
        return rc;
    c->absorbed = absorbed;
    c->rest = at_rest;
    c->base.len = n;
    c->from = min_i64(from, last_of(n));
    memcpy(c->token, s->token, sizeof c->token);
    copy_tail(d, c, s, max_i64(from, s->from), n); // zeros stand in as in a cut
    *out = &c->base;
    return 0;
}

// Of one at rest.
static int64_t path_state_bytes(const struct attachment *a) {
    const struct path_state *s = (const struct path_state *)a;
    return (int64_t)sizeof *s + (a->len - s->from) * draft_of(a)->dim * (int64_t)sizeof(float);
}

static void describe_state(const struct attachment_kind *k, struct str *text) {
    struct path *d = k->owner;
    identity_content(text, d->block->what, d->block->content(d));
    identity_group(text, kv_pool_layout(d->pool), 0);
}

static void write_state(const struct attachment *a, struct stored_out *o) {
    const struct path_state *s = (const struct path_state *)a;
    struct path *d = draft_of(a);
    stored_put_u64(o, (uint64_t)s->absorbed);
    stored_put_u64(o, (uint64_t)s->from);
    stored_put_kv(o, d->x, &s->kv);
    for (int64_t pos = s->from; pos < a->len; pos++)
        stored_put_u32(o, (uint32_t)s->token[pos % PATH_TAIL]);
    stored_put_device(o, d->x, s->tail, (size_t)((a->len - s->from) * d->dim) * sizeof(float));
}

static void read_state(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                       struct attachment **out) {
    struct path *d = k->owner;
    struct path_state *s = NULL;
    const uint64_t absorbed = stored_get_u64(in), from = stored_get_u64(in);
    if (absorbed > (uint64_t)last_of(len) || from > absorbed || (uint64_t)len - from > PATH_TAIL)
        stored_damaged(in);
    if (!in->rc)
        in->rc = make_state(d, len - (int64_t)from, &s, &in->err);
    if (in->rc)
        return;
    s->absorbed = (int64_t)absorbed;
    s->from = (int64_t)from;
    s->rest = true;
    s->base.len = len;
    stored_get_kv(in, d->x, &s->kv, s->absorbed);
    for (int64_t pos = s->from; pos < len; pos++) {
        const uint32_t id = stored_get_u32(in);
        if (id >= (uint64_t)d->target->params.vocab)
            stored_damaged(in);
        s->token[pos % PATH_TAIL] = in->rc ? 0 : (int32_t)id;
    }
    stored_get_floats(in, d->x, s->tail, (len - s->from) * d->dim);
    if (in->rc)
        path_state_destroy(&s->base);
    else
        *out = &s->base;
}

void path_state_kind(struct path *d) {
    d->kind = (struct attachment_kind){.name = d->block->kind,
                                       .owner = d,
                                       .x = d->x,
                                       .create = path_state_create,
                                       .destroy = path_state_destroy,
                                       .reserve = path_state_reserve,
                                       .release = path_state_release,
                                       .append = path_state_append,
                                       .keeps = path_state_keeps,
                                       .cut = path_state_cut,
                                       .copy = path_state_copy,
                                       .bytes = path_state_bytes,
                                       .describe = describe_state,
                                       .write = write_state,
                                       .read = read_state};
}
