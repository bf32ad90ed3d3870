// SPDX-License-Identifier: Apache-2.0
// The draft's state of a sequence, an attachment: keys and values of the context in its own
// groups, and features of the newest tokens, which become keys and values when the draft next runs
// or when too many wait. Plain decoding with a draft thus pays one projection per 64 tokens.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/draft/dflash/impl.h"
#include "state/identity.h"
#include "state/stored.h"

static struct dflash *draft_of(const struct attachment *a) {
    return a->kind->owner;
}

static struct dflash_state *state_of(struct attachment *a) {
    return (struct dflash_state *)a;
}

static int64_t feature_dim(const struct dflash *d) {
    return d->params.n_taps * d->target->params.dim;
}

struct dflash_state *dflash_state_of(const struct dflash *d, const struct sequence *s) {
    return (struct dflash_state *)sequence_attached(s, &d->kind);
}

struct rows dflash_rows(const struct dflash *d, int64_t n) {
    return (struct rows){n, d->token, d->parent, d->seq, d->pos, exec_pass(d->x)};
}

// Features [n][taps][D], each tap normed by its own weights, in d->normed.
static const float *norm_taps(struct dflash *d, const float *features, int64_t n) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    size_t row = (size_t)p->dim * sizeof(float), all = row * (size_t)p->n_taps;
    for (int t = 0; t < p->n_taps; t++) {
        for (int64_t i = 0; i < n; i++)
            d->index[i] = (int32_t)(i * p->n_taps + t);
        ops->copy_rows(d->x, d->h, row, features, d->index, n, row);
        ops->norm(
            d->x,
            &(struct norm_args){
                .in = d->h, .w = d->tap_norm[t], .eps = p->eps, .n = n, .k = p->dim, .out = d->h});
        for (int64_t i = 0; i < n; i++)
            d->index[i] = (int32_t)i;
        ops->copy_rows(d->x, d->normed + t * p->dim, all, d->h, d->index, n, row);
    }
    return d->normed;
}

// What the draft makes of the features of each row alone: out[n][D].
static void join_taps(struct dflash *d, const float *features, int64_t n, float *out) {
    const struct dflash_params *p = &d->params;
    struct linear_job fc = {.w = d->fc, .out = out};
    if (d->norms_taps)
        features = norm_taps(d, features, n);
    exec_ops(d->x)->to_act(d->x, features, n, p->n_taps * p->dim, d->act_taps);
    exec_ops(d->x)->linear(d->x, &fc, 1, d->act_taps, n);
}

static void precompute(void *owner, int64_t n) {
    struct dflash *d = owner;
    d->precomputed_pass = 0;
    if (n > DFLASH_PENDING)
        return;
    join_taps(d, d->features, n, d->precomputed);
    d->precomputed_pass = d->target->pass.number;
    d->precomputed_epoch = exec_epoch(d->x);
}

static bool was_precomputed(const struct dflash *d, const struct dflash_state *s, int64_t n) {
    return d->precomputed_pass && s->n_seen == n && s->seen_pass == d->precomputed_pass &&
           !exec_epoch_failed(d->x, d->precomputed_epoch);
}

// Keeps which rows of the pass the newest n waiting features are, after `held` others.
static void note_seen(const struct dflash *d, struct dflash_state *s, const int32_t *index,
                      int64_t n, int64_t held) {
    const uint64_t pass = d->target->pass.number;
    if (held == 0) {
        s->n_seen = 0;
        s->seen_pass = pass;
    }
    if (s->n_seen != held || s->seen_pass != pass) {
        s->n_seen = -1;
        return;
    }
    memcpy(s->seen + held, index, (size_t)n * sizeof *index);
    s->n_seen += n;
}

static struct attention_call store_call(const struct dflash *d, int i, const struct rows *rows,
                                        const struct attention_buffers *buf) {
    const struct dflash_layer *y = &d->layers[i];
    return (struct attention_call){.shape = &d->shape,
                                   .block = &y->attention,
                                   .buf = buf,
                                   .rows = rows,
                                   .layout = &d->layout[y->group],
                                   .layer = y->index,
                                   .store = d->store[y->group],
                                   .in = d->act_d};
}

// Keys and values of all layers from the same rows: projections of several layers in one call.
static void store_together(struct dflash *d, const struct rows *rows) {
    const int64_t size = DFLASH_PENDING * d->params.n_kv * d->params.head_dim;
    for (int first = 0; first < d->params.n_layers; first += DFLASH_TOGETHER) {
        const int count = min_i32(d->params.n_layers - first, DFLASH_TOGETHER);
        struct attention_buffers buf[DFLASH_TOGETHER];
        struct attention_call call[DFLASH_TOGETHER];
        struct linear_job jobs[2 * DFLASH_TOGETHER];
        for (int i = 0; i < count; i++) {
            buf[i] = d->attention;
            buf[i].k = d->stored + 2 * i * size;
            buf[i].v = buf[i].k + size;
            call[i] = store_call(d, first + i, rows, &buf[i]);
            attention_store_jobs(&call[i], &jobs[2 * i]);
        }
        exec_ops(d->x)->linear(d->x, jobs, 2 * count, d->act_d, rows->n);
        for (int i = 0; i < count; i++)
            attention_store_rows(d->x, &call[i]);
    }
}

// The same layer by layer, for more rows, and where each layer has its own norm.
static void store_apart(struct dflash *d, const struct rows *rows) {
    const struct dflash_params *p = &d->params;
    for (int i = 0; i < p->n_layers; i++) {
        if (p->norms_context)
            exec_ops(d->x)->norm_to_act(d->x, d->h, d->layers[i].mixer_norm, p->eps, rows->n,
                                        p->dim, d->act_d);
        struct attention_call c = store_call(d, i, rows, &d->attention);
        attention_store(d->x, &c);
    }
}

void dflash_absorb(struct dflash *d, struct dflash_state *s, const float *features) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    int64_t n = s->base.len - s->absorbed;
    if (n <= 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        d->pos[i] = s->absorbed + i;
        d->parent[i] = (int32_t)(i - 1);
        d->seq[i] = d->token[i] = 0;
        for (int g = 0; g < d->n_groups; g++)
            d->store[g][i] = kv_slot_at(&s->kv[g], d->pos[i]);
    }
    struct rows rows = dflash_rows(d, n);
    size_t row = (size_t)p->dim * sizeof(float);
    if (was_precomputed(d, s, n))
        ops->copy_rows(d->x, d->h, row, d->precomputed, s->seen, n, row);
    else
        join_taps(d, features, n, d->h);
    if (p->norms_context)
        ops->norm(
            d->x,
            &(struct norm_args){
                .in = d->h, .w = d->hidden_norm, .eps = p->eps, .n = n, .k = p->dim, .out = d->h});
    else
        ops->norm_to_act(d->x, d->h, d->hidden_norm, p->eps, n, p->dim, d->act_d);
    if (p->norms_context || n > DFLASH_PENDING)
        store_apart(d, &rows);
    else
        store_together(d, &rows);
    for (int g = 0; g < d->n_groups; g++)
        kv_advance(&s->kv[g], n);
    s->absorbed += n;
    s->n_seen = 0;
}

// Rows of features that a state at rest keeps; a live one may need all.
static int make_state(struct dflash *d, int64_t rows, struct dflash_state **out, struct err *e) {
    struct dflash_state *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the draft's state of a sequence");
    s->base.kind = &d->kind;
    attachment_write(&s->base);
    for (int g = 0; g < d->n_groups; g++)
        kv_init(&s->kv[g], d->pool[g], d->window[g]);
    size_t bytes = (size_t)(rows * feature_dim(d)) * sizeof(float);
    s->pending = bytes ? exec_alloc(d->x, ARENA_STATES, bytes) : NULL;
    if (bytes && !s->pending) {
        free(s);
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes of draft features", bytes);
    }
    *out = s;
    return 0;
}

static int draft_state_create(const struct attachment_kind *k, struct attachment **out,
                              struct err *e) {
    struct dflash_state *s = NULL;
    int rc = make_state(k->owner, DFLASH_PENDING, &s, e);
    if (!rc)
        *out = &s->base;
    return rc;
}

static void draft_state_destroy(struct attachment *a) {
    struct dflash *d = draft_of(a);
    struct dflash_state *s = state_of(a);
    for (int g = 0; g < d->n_groups; g++)
        kv_fini(&s->kv[g]);
    if (s->pending)
        exec_ops(d->x)->free(d->x, s->pending);
    free(s);
}

static void draft_state_release(struct attachment *a) {
    for (int g = 0; g < draft_of(a)->n_groups; g++)
        kv_release(&state_of(a)->kv[g], ceil_div(a->len, KV_PAGE));
}

static int draft_state_reserve(struct attachment *a, int64_t n, struct err *e) {
    struct dflash_state *s = state_of(a);
    int rc = 0;
    for (int g = 0; !rc && g < draft_of(a)->n_groups; g++)
        rc = kv_reserve(&s->kv[g], a->len + n - s->absorbed, e);
    if (rc)
        draft_state_release(a);
    return rc;
}

int dflash_state_reserve(struct dflash_state *s, struct err *e) {
    // A checkpoint or fork may have come to share the page that pending tokens go to.
    return draft_state_reserve(&s->base, 0, e);
}

// How many of the next rows are a piece that is absorbed where it is, or 0: whole steps of what may
// be pending and not the last row, so that what is pending is what it is without this, and cuts
// find it.
static int64_t direct_rows(const struct dflash *d, const struct dflash_state *s,
                           const int32_t *index, int64_t count) {
    int64_t n = min_i64(d->absorb_rows, (count - 1) / DFLASH_PENDING * DFLASH_PENDING);
    if (n <= DFLASH_PENDING || s->base.len != s->absorbed)
        return 0;
    for (int64_t i = 1; i < n; i++)
        if (index[i] != index[0] + i)
            return 0;
    return n;
}

static void draft_state_append(struct attachment *a, const int32_t *token, const int32_t *index,
                               int64_t count) {
    (void)token; // features have what is to be known of them
    struct dflash *d = draft_of(a);
    struct dflash_state *s = state_of(a);
    int64_t dim = feature_dim(d);
    size_t row = (size_t)dim * sizeof(float);
    while (count > 0) {
        int64_t held = a->len - s->absorbed, free_rows = DFLASH_PENDING - held;
        int64_t n = min_i64(count, free_rows), direct = direct_rows(d, s, index, count);
        if (free_rows == 0) {
            dflash_absorb(d, s, s->pending);
            continue;
        }
        if (direct) {
            n = direct;
            a->len += n;
            dflash_absorb(d, s, d->features + index[0] * dim);
        } else {
            exec_ops(d->x)->copy_rows(d->x, s->pending + held * dim, row, d->features, index, n,
                                      row);
            a->len += n;
            note_seen(d, s, index, n, held);
        }
        index += n;
        count -= n;
    }
}

static bool draft_state_keeps(const struct attachment *a, int64_t n) {
    const struct dflash_state *s = (const struct dflash_state *)a;
    bool all = true;
    for (int g = 0; n < s->absorbed && g < draft_of(a)->n_groups; g++)
        all = all && kv_keeps(&s->kv[g], n);
    return all;
}

static void draft_state_cut(struct attachment *a, int64_t n) {
    struct dflash_state *s = state_of(a);
    s->absorbed = min_i64(s->absorbed, n);
    s->n_seen = -1;
    for (int g = 0; g < draft_of(a)->n_groups; g++)
        kv_truncate(&s->kv[g], s->absorbed);
    a->len = n;
}

static int draft_state_copy(const struct attachment *a, int64_t n, bool at_rest,
                            struct attachment **out, struct err *e) {
    const struct dflash_state *s = (const struct dflash_state *)a;
    struct dflash *d = draft_of(a);
    struct dflash_state *c = NULL;
    int64_t absorbed = min_i64(s->absorbed, n), held = n - absorbed;
    int rc = make_state(d, at_rest ? held : DFLASH_PENDING, &c, e);
    if (rc)
        return rc;
    for (int g = 0; !rc && g < d->n_groups; g++)
        rc = kv_share(&c->kv[g], &s->kv[g], absorbed, e);
    if (rc) {
        draft_state_destroy(&c->base);
        return rc;
    }
    if (held)
        exec_ops(d->x)->copy(d->x, c->pending, s->pending,
                             (size_t)(held * feature_dim(d)) * sizeof(float));
    c->absorbed = absorbed;
    c->base.len = n;
    *out = &c->base;
    return 0;
}

// Of one at rest.
static int64_t draft_state_bytes(const struct attachment *a) {
    const struct dflash_state *s = (const struct dflash_state *)a;
    return (int64_t)sizeof *s +
           (a->len - s->absorbed) * feature_dim(draft_of(a)) * (int64_t)sizeof(float);
}

static void describe_state(const struct attachment_kind *k, struct str *text) {
    struct dflash *d = k->owner;
    identity_content(text, "draft", dflash_content(d));
    for (int g = 0; g < d->n_groups; g++)
        identity_group(text, kv_pool_layout(d->pool[g]), d->window[g]);
}

static void write_state(const struct attachment *a, struct stored_out *o) {
    const struct dflash_state *s = (const struct dflash_state *)a;
    struct dflash *d = draft_of(a);
    stored_put_u64(o, (uint64_t)s->absorbed);
    for (int g = 0; g < d->n_groups; g++)
        stored_put_kv(o, d->x, &s->kv[g]);
    stored_put_device(o, d->x, s->pending,
                      (size_t)((a->len - s->absorbed) * feature_dim(d)) * sizeof(float));
}

static void read_state(const struct attachment_kind *k, struct stored_in *in, int64_t len,
                       struct attachment **out) {
    struct dflash *d = k->owner;
    struct dflash_state *s = NULL;
    uint64_t absorbed = stored_get_u64(in);
    if (absorbed > (uint64_t)len || (uint64_t)len - absorbed > DFLASH_PENDING)
        stored_damaged(in);
    if (!in->rc)
        in->rc = make_state(d, len - (int64_t)absorbed, &s, &in->err);
    if (in->rc)
        return;
    s->absorbed = (int64_t)absorbed;
    s->base.len = len;
    for (int g = 0; g < d->n_groups; g++)
        stored_get_kv(in, d->x, &s->kv[g], s->absorbed);
    stored_get_floats(in, d->x, s->pending, (len - s->absorbed) * feature_dim(d));
    if (in->rc)
        draft_state_destroy(&s->base);
    else
        *out = &s->base;
}

void dflash_state_kind(struct dflash *d) {
    d->kind = (struct attachment_kind){.name = "draft",
                                       .owner = d,
                                       .x = d->x,
                                       .create = draft_state_create,
                                       .destroy = draft_state_destroy,
                                       .reserve = draft_state_reserve,
                                       .release = draft_state_release,
                                       .append = draft_state_append,
                                       .precompute = precompute,
                                       .keeps = draft_state_keeps,
                                       .cut = draft_state_cut,
                                       .copy = draft_state_copy,
                                       .bytes = draft_state_bytes,
                                       .describe = describe_state,
                                       .write = write_state,
                                       .read = read_state};
}
