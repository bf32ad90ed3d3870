// SPDX-License-Identifier: Apache-2.0
// The block's state of a sequence, an attachment: keys and values of its one layer, and the hidden
// states of the newest tokens. A row needs the token after it, so the newest position always waits;
// others are absorbed when a draft begins or when the tail is full. Of a row only its key and value
// are ever needed, so a prompt costs a projection and no attention.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/mtp/impl.h"
#include "state/stored.h"

static struct mtp *block_of(const struct attachment *a) {
    return a->kind->owner;
}

static struct mtp_state *state_of(struct attachment *a) {
    return (struct mtp_state *)a;
}

static int64_t width(const struct mtp *m) {
    return m->target->params.dim;
}

struct mtp_state *mtp_state_of(const struct mtp *m, const struct sequence *s) {
    return (struct mtp_state *)sequence_attached(s, &m->kind);
}

int32_t mtp_tail_slot(const struct mtp_state *s, int64_t pos) {
    return (int32_t)(s->rest ? pos - s->from : pos % MTP_TAIL);
}

// Positions 0 .. last-1 could be absorbed of n.
static int64_t last_of(int64_t n) {
    return max_i64(n - 1, 0);
}

// Makes room in the workspace's arrays, at `at`, for n positions from s->absorbed on.
static void place_rows(struct mtp *m, struct mtp_state *s, int64_t n, int64_t at) {
    for (int64_t i = at; i < at + n; i++) {
        m->pos[i] = s->absorbed++;
        m->parent[i] = -1; // nothing is asked of other rows
        m->seq[i] = 0;
        m->store[i] = kv_slot_at(&s->kv, m->pos[i]);
    }
    kv_advance(&s->kv, n);
}

// Keys and values of n such rows, whose tokens are in m->token and hidden states in m->u.
static void store_rows(struct mtp *m, int64_t n) {
    if (n < 1)
        return;
    struct rows rows = mtp_pass(m, n);
    mtp_store(m, &rows);
}

// The waiting positions before `end`, of which the token at `end` is `next`, as rows at `at`: how
// many.
static int64_t take_tail(struct mtp *m, struct mtp_state *s, int64_t end, int32_t next,
                         int64_t at) {
    const size_t row = (size_t)width(m) * sizeof(float);
    const int64_t n = end - s->absorbed;
    for (int64_t i = 0; i < n; i++) {
        const int64_t pos = s->absorbed + i;
        m->index[i] = mtp_tail_slot(s, pos);
        m->token[at + i] = pos + 1 < end ? s->token[(pos + 1) % MTP_TAIL] : next;
    }
    if (n < 1)
        return 0;
    exec_ops(m->x)->copy_rows(m->x, m->u + at * width(m), row, s->tail, m->index, n, row);
    place_rows(m, s, n, at);
    return n;
}

void mtp_absorb(struct mtp *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_members; i++) {
        struct mtp_state *s = m->members[i].state;
        const int64_t end = last_of(s->base.len);
        if (!m->members[i].ready)
            continue;
        if (n + MTP_TAIL > m->n_rows) {
            store_rows(m, n);
            n = 0;
        }
        n += take_tail(m, s, end, s->token[end % MTP_TAIL], n);
    }
    store_rows(m, n);
}

// rows: of the tail; a live one has MTP_TAIL.
static int make_state(struct mtp *m, int64_t rows, struct mtp_state **out, struct err *e) {
    struct mtp_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the prediction block's state of a sequence");
    s->base.kind = &m->kind;
    attachment_write(&s->base);
    kv_init(&s->kv, m->pool, 0);
    size_t bytes = (size_t)(rows * width(m)) * sizeof(float);
    s->tail = bytes ? exec_alloc(m->x, ARENA_STATES, bytes) : NULL;
    if (bytes && !s->tail) {
        free(s);
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes of hidden states", bytes);
    }
    *out = s;
    return 0;
}

static int mtp_state_create(const struct attachment_kind *k, struct attachment **out,
                            struct err *e) {
    struct mtp_state *s = NULL;
    int rc = make_state(k->owner, MTP_TAIL, &s, e);
    if (!rc)
        *out = &s->base;
    return rc;
}

static void mtp_state_destroy(struct attachment *a) {
    struct mtp_state *s = state_of(a);
    struct mtp *m = block_of(a);
    kv_fini(&s->kv);
    if (s->tail)
        exec_ops(m->x)->free(m->x, s->tail);
    free(s);
}

static void mtp_state_release(struct attachment *a) {
    kv_release(&state_of(a)->kv, ceil_div(a->len, KV_PAGE));
}

static int mtp_state_reserve(struct attachment *a, int64_t n, struct err *e) {
    struct mtp_state *s = state_of(a);
    int rc = kv_reserve(&s->kv, a->len + n - s->absorbed, e);
    if (rc)
        mtp_state_release(a);
    return rc;
}

// Puts the hidden states of n more positions into the tail, of which the newest stay.
static void keep_tail(struct mtp *m, struct mtp_state *s, const int32_t *token,
                      const int32_t *index, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const int64_t dim = width(m), skip = max_i64(n - MTP_TAIL, 0);
    const size_t row = (size_t)dim * sizeof(float);
    for (int64_t i = skip, part; i < n; i += part) { // at most two parts
        const int32_t slot = mtp_tail_slot(s, s->base.len + i);
        part = min_i64(n - i, MTP_TAIL - slot);
        for (int64_t j = 0; j < part; j++)
            s->token[slot + j] = token[index[i + j]];
        ops->copy_rows(m->x, s->tail + slot * dim, row, m->features, index + i, part, row);
    }
    s->base.len += n;
    s->from = max_i64(s->from, s->base.len - MTP_TAIL);
}

// A long piece of a prompt: all that waits and all of the piece but its last row are absorbed, the
// latter from where they are.
static void append_piece(struct mtp *m, struct mtp_state *s, const int32_t *token,
                         const int32_t *index, int64_t count) {
    const size_t row = (size_t)width(m) * sizeof(float);
    store_rows(m, take_tail(m, s, s->base.len, token[index[0]], 0));
    for (int64_t at = 0, n; at < count - 1; at += n) {
        n = min_i64(count - 1 - at, m->absorb_rows);
        for (int64_t i = 0; i < n; i++)
            m->token[i] = token[index[at + i + 1]];
        exec_ops(m->x)->copy_rows(m->x, m->u, row, m->features, index + at, n, row);
        place_rows(m, s, n, 0);
        store_rows(m, n);
    }
    keep_tail(m, s, token, index, count);
}

static void mtp_state_append(struct attachment *a, const int32_t *token, const int32_t *index,
                             int64_t count) {
    struct mtp_state *s = state_of(a);
    struct mtp *m = block_of(a);
    if (count <= 0)
        return;
    if (a->len - s->absorbed + count > MTP_TAIL)
        append_piece(m, s, token, index, count);
    else
        keep_tail(m, s, token, index, count);
}

static bool mtp_state_keeps(const struct attachment *a, int64_t n) {
    (void)a;
    (void)n;
    return true; // there is no window
}

// Positions that stay absorbed when only n stay: the last one's row is of a token that has gone.
static int64_t absorbed_at(const struct mtp_state *s, int64_t n) {
    return min_i64(s->absorbed, last_of(n));
}

// Beyond the tail the hidden state of the newest position is gone. Zeros stand in for it: one key
// of the block is then not what it would be, which drafts may notice and outputs cannot.
static void mtp_state_cut(struct attachment *a, int64_t n) {
    struct mtp_state *s = state_of(a);
    struct mtp *m = block_of(a);
    s->absorbed = absorbed_at(s, n);
    kv_truncate(&s->kv, s->absorbed);
    if (n > 0 && n <= s->from) {
        exec_ops(m->x)->zero(m->x, s->tail + mtp_tail_slot(s, n - 1) * width(m),
                             (size_t)width(m) * sizeof(float));
        s->from = n - 1;
    }
    s->from = min_i64(s->from, last_of(n));
    a->len = n;
}

// Hidden states of positions first .. n-1 into another's tail.
static void copy_tail(struct mtp *m, struct mtp_state *to, const struct mtp_state *from,
                      int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const int64_t dim = width(m);
    const size_t row = (size_t)dim * sizeof(float);
    for (int64_t pos = first, part; pos < n; pos += part) {
        const int32_t a = mtp_tail_slot(from, pos), b = mtp_tail_slot(to, pos);
        part = n - pos;
        part = from->rest ? part : min_i64(part, MTP_TAIL - a);
        part = to->rest ? part : min_i64(part, MTP_TAIL - b);
        ops->copy(m->x, to->tail + b * dim, from->tail + a * dim, (size_t)part * row);
    }
}

// The first position whose hidden state one at rest has: all that wait, and where sequences may be
// cut to any length those before them, too.
static int64_t rest_from(const struct mtp *m, const struct mtp_state *s, int64_t n) {
    const bool recurrent = m->target->params.n_full < m->target->params.n_layers;
    return recurrent ? absorbed_at(s, n) : min_i64(s->from, last_of(n));
}

static int mtp_state_copy(const struct attachment *a, int64_t n, bool at_rest,
                          struct attachment **out, struct err *e) {
    const struct mtp_state *s = (const struct mtp_state *)a;
    struct mtp *m = block_of(a);
    struct mtp_state *c = NULL;
    const int64_t absorbed = absorbed_at(s, n), from = at_rest ? rest_from(m, s, n) : s->from;
    int rc = make_state(m, at_rest ? n - from : MTP_TAIL, &c, e);
    if (!rc && (rc = kv_share(&c->kv, &s->kv, absorbed, e)))
        mtp_state_destroy(&c->base);
    if (rc)
        return rc;
    c->absorbed = absorbed;
    c->rest = at_rest;
    c->base.len = n;
    c->from = min_i64(from, last_of(n));
    memcpy(c->token, s->token, sizeof c->token);
    copy_tail(m, c, s, max_i64(from, s->from), n); // zeros stand in as in a cut
    *out = &c->base;
    return 0;
}

// Of one at rest.
static int64_t mtp_state_bytes(const struct attachment *a) {
    const struct mtp_state *s = (const struct mtp_state *)a;
    return (int64_t)sizeof *s + (a->len - s->from) * width(block_of(a)) * (int64_t)sizeof(float);
}

static void write_state(const struct attachment *a, struct stored_out *o) {
    const struct mtp_state *s = (const struct mtp_state *)a;
    struct mtp *m = block_of(a);
    stored_put_u64(o, mtp_content(m));
    stored_put_u64(o, (uint64_t)s->absorbed);
    stored_put_u64(o, (uint64_t)s->from);
    stored_put_kv(o, m->x, &s->kv);
    for (int64_t pos = s->from; pos < a->len; pos++)
        stored_put_u32(o, (uint32_t)s->token[pos % MTP_TAIL]);
    stored_put_device(o, m->x, s->tail, (size_t)((a->len - s->from) * width(m)) * sizeof(float));
}

static void read_state(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                       struct attachment **out) {
    struct mtp *m = k->owner;
    struct mtp_state *s = NULL;
    if (stored_get_u64(in) != mtp_content(m))
        stored_fail(in, ERR_MISMATCH,
                    "the checkpoint was made with another prediction block; load that one, or "
                    "none");
    const uint64_t absorbed = stored_get_u64(in), from = stored_get_u64(in);
    if (absorbed > (uint64_t)last_of(len) || from > absorbed || (uint64_t)len - from > MTP_TAIL)
        stored_damaged(in);
    if (!in->rc)
        in->rc = make_state(m, len - (int64_t)from, &s, &in->err);
    if (in->rc)
        return;
    s->absorbed = (int64_t)absorbed;
    s->from = (int64_t)from;
    s->rest = true;
    s->base.len = len;
    stored_get_kv(in, m->x, &s->kv, s->absorbed);
    for (int64_t pos = s->from; pos < len; pos++) {
        const uint32_t id = stored_get_u32(in);
        if (id >= (uint64_t)m->target->params.vocab)
            stored_damaged(in);
        s->token[pos % MTP_TAIL] = in->rc ? 0 : (int32_t)id;
    }
    stored_get_floats(in, m->x, s->tail, (len - s->from) * width(m));
    if (in->rc)
        mtp_state_destroy(&s->base);
    else
        *out = &s->base;
}

void mtp_state_kind(struct mtp *m) {
    m->kind = (struct attachment_kind){.name = "mtp",
                                       .owner = m,
                                       .x = m->x,
                                       .create = mtp_state_create,
                                       .destroy = mtp_state_destroy,
                                       .reserve = mtp_state_reserve,
                                       .release = mtp_state_release,
                                       .append = mtp_state_append,
                                       .keeps = mtp_state_keeps,
                                       .cut = mtp_state_cut,
                                       .copy = mtp_state_copy,
                                       .bytes = mtp_state_bytes,
                                       .write = write_state,
                                       .read = read_state};
}
