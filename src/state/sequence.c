// SPDX-License-Identifier: Apache-2.0
// The parts of a sequence move together here: whatever can fail (pages, memory) is done before the
// first change. Draft state may lag behind the target by the pending features, so that cutting back
// shortens the pending list first and the draft KV only when it must.
#include "state/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

struct checkpoint {
    struct sequence_spec spec;
    uint64_t written; // as of a sequence
    int32_t *tokens;  // [len]
    int64_t len;
    struct kv target;
    struct recurrent_save recurrent;
    struct kv draft[SEQ_DRAFT_GROUPS];
    int64_t draft_len;
    float *pending; // device, features of draft_len .. len-1; NULL when there are none
};

static void *dev_alloc(struct exec *x, size_t bytes) {
    return exec_alloc(x, ARENA_STATES, bytes);
}

int sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err *e) {
    struct sequence *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a sequence");
    s->spec = *spec;
    s->written = exec_stretch(spec->x);
    kv_init(&s->target, spec->target, 0);
    for (int i = 0; i < spec->n_draft; i++)
        kv_init(&s->draft[i], spec->draft[i], spec->draft_window[i]);
    int rc = recurrent_init(&s->recurrent, spec->x, &spec->shape, spec->n_recurrent, e);
    if (!rc && spec->feature_dim) {
        size_t bytes = (size_t)(SEQ_PENDING * spec->feature_dim) * sizeof(float);
        s->pending = dev_alloc(spec->x, bytes);
        if (!s->pending)
            rc = err_set(e, ERR_MEMORY, "no memory for %zu bytes of draft features", bytes);
    }
    if (rc) {
        sequence_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void sequence_destroy(struct sequence *s) {
    if (!s)
        return;
    kv_fini(&s->target);
    for (int i = 0; i < SEQ_DRAFT_GROUPS; i++)
        kv_fini(&s->draft[i]);
    recurrent_fini(&s->recurrent);
    if (s->pending)
        exec_ops(s->spec.x)->free(s->spec.x, s->pending);
    free(s->tokens);
    free(s);
}

int64_t sequence_len(const struct sequence *s) {
    return s->len;
}

const int32_t *sequence_tokens(const struct sequence *s) {
    return s->tokens;
}

bool sequence_usable(const struct sequence *s) {
    return !exec_spoilt(s->spec.x, s->written);
}

int sequence_check(const struct sequence *s, struct err *e) {
    if (sequence_usable(s))
        return 0;
    return err_set(e, ERR_STATE,
                   "the state of these %lld tokens was being changed when the device failed or ran "
                   "out of memory; drop it and run the tokens again",
                   (long long)s->len);
}

int sequence_write(struct sequence *s, struct err *e) {
    int rc = sequence_check(s, e);
    if (!rc)
        s->written = exec_stretch(s->spec.x);
    return rc;
}

int sequence_reserve(struct sequence *s, int64_t n, struct err *e) {
    if (n < 0 || s->len + n > s->spec.max_len)
        return err_set(e, ERR_LIMIT,
                       "%lld more tokens do not fit behind %lld in a context of %lld; shorten the "
                       "text or raise the context size",
                       (long long)n, (long long)s->len, (long long)s->spec.max_len);
    int64_t before[1 + SEQ_DRAFT_GROUPS] = {s->target.n_pages};
    int rc = sequence_write(s, e), groups = 0;
    if (!rc)
        rc = vec_reserve(&s->tokens, &s->cap, s->len + n, sizeof *s->tokens, e);
    if (!rc && s->spec.target)
        rc = kv_reserve(&s->target, n, e);
    for (; !rc && groups < s->spec.n_draft; groups++) {
        before[1 + groups] = s->draft[groups].n_pages;
        rc = kv_reserve(&s->draft[groups], s->len + n - s->draft_len, e);
    }
    if (!rc)
        return 0;
    kv_release(&s->target, before[0]); // what one group has and another lacks is of no use
    for (int i = 0; i < groups; i++)
        kv_release(&s->draft[i], before[1 + i]);
    return rc;
}

void sequence_unreserve(struct sequence *s) {
    int64_t pages = (s->len + KV_PAGE - 1) / KV_PAGE;
    kv_release(&s->target, pages);
    for (int i = 0; i < s->spec.n_draft; i++)
        kv_release(&s->draft[i], pages);
}

// Everything that is only a length; the recurrent state is the caller's.
static void cut(struct sequence *s, int64_t n) {
    if (s->spec.target)
        kv_truncate(&s->target, n);
    if (s->draft_len > n)
        s->draft_len = n;
    for (int i = 0; i < s->spec.n_draft; i++)
        kv_truncate(&s->draft[i], s->draft_len);
    s->len = n;
    s->version++;
}

int sequence_truncate(struct sequence *s, int64_t n, int64_t *kept, struct err *e) {
    if (n < 0 || n > s->len)
        return err_set(e, ERR_USAGE, "cannot cut a sequence of %lld tokens to %lld",
                       (long long)s->len, (long long)n);
    int rc = sequence_write(s, e);
    if (rc)
        return rc;
    int64_t h = s->len / GDN_BLOCK * GDN_BLOCK;
    *kept = n == s->len ? n : h <= n ? h : 0;
    if (n == s->len)
        return 0;
    if (*kept == 0)
        recurrent_reset(&s->recurrent);
    else
        recurrent_rewind(&s->recurrent);
    cut(s, *kept);
    return 0;
}

static void copy_features(struct exec *x, float *dst, const float *src, int64_t n, int64_t dim) {
    if (n > 0)
        exec_ops(x)->copy(x, dst, src, (size_t)(n * dim) * sizeof(float));
}

static int save_draft(const struct sequence *s, struct checkpoint *c, struct err *e) {
    const struct sequence_spec *sp = &s->spec;
    c->draft_len = s->draft_len < c->len ? s->draft_len : c->len;
    int rc = 0;
    for (int i = 0; !rc && i < sp->n_draft; i++) {
        kv_init(&c->draft[i], sp->draft[i], sp->draft_window[i]);
        rc = kv_share(&c->draft[i], &s->draft[i], c->draft_len, e);
    }
    int64_t n = c->len - c->draft_len;
    if (rc || n == 0 || sp->feature_dim == 0)
        return rc;
    c->pending = dev_alloc(sp->x, (size_t)(n * sp->feature_dim) * sizeof(float));
    if (!c->pending)
        return err_set(e, ERR_MEMORY, "no memory for the features of a checkpoint; keep fewer");
    copy_features(sp->x, c->pending, s->pending, n, sp->feature_dim);
    return 0;
}

int sequence_checkpoint(const struct sequence *s, struct checkpoint **out, struct err *e) {
    int rc = sequence_check(s, e);
    if (rc)
        return rc;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint");
    c->spec = s->spec;
    c->written = exec_stretch(s->spec.x);
    c->len = s->len / GDN_BLOCK * GDN_BLOCK;
    size_t bytes = (size_t)c->len * sizeof *c->tokens;
    c->tokens = malloc(bytes ? bytes : 1);
    if (!c->tokens)
        rc = err_set(e, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    else if (bytes)
        memcpy(c->tokens, s->tokens, bytes);
    kv_init(&c->target, s->spec.target, 0);
    if (!rc && s->spec.target)
        rc = kv_share(&c->target, &s->target, c->len, e);
    if (!rc && c->len > 0)
        rc = recurrent_save_init(&c->recurrent, &s->recurrent, c->len, e);
    if (!rc)
        rc = save_draft(s, c, e);
    if (rc) {
        checkpoint_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

int64_t checkpoint_len(const struct checkpoint *c) {
    return c->len;
}

const int32_t *checkpoint_tokens(const struct checkpoint *c) {
    return c->tokens;
}

int64_t checkpoint_bytes(const struct checkpoint *c) {
    int64_t n = (int64_t)sizeof *c + c->len * (int64_t)sizeof *c->tokens;
    if (c->recurrent.block)
        n += recurrent_save_bytes(&c->spec.shape, c->spec.n_recurrent);
    if (c->pending)
        n += (c->len - c->draft_len) * c->spec.feature_dim * (int64_t)sizeof(float);
    return n;
}

bool checkpoint_usable(const struct checkpoint *c) {
    return !exec_spoilt(c->spec.x, c->written);
}

void checkpoint_destroy(struct checkpoint *c) {
    if (!c)
        return;
    kv_fini(&c->target);
    for (int i = 0; i < SEQ_DRAFT_GROUPS; i++)
        kv_fini(&c->draft[i]);
    recurrent_save_fini(&c->recurrent);
    if (c->pending)
        exec_ops(c->spec.x)->free(c->spec.x, c->pending);
    free(c->tokens);
    free(c);
}

static bool same_spec(const struct sequence_spec *a, const struct sequence_spec *b) {
    return a->x == b->x && a->target == b->target && a->n_recurrent == b->n_recurrent &&
           a->feature_dim == b->feature_dim && a->n_draft == b->n_draft &&
           memcmp(a->draft, b->draft, sizeof a->draft) == 0;
}

// Shares the KV groups of a checkpoint into scratch tables, so that nothing is lost on failure.
static int share_groups(struct kv *fresh, const struct sequence_spec *sp,
                        const struct checkpoint *c, struct err *e) {
    int rc = 0;
    kv_init(&fresh[0], sp->target, 0);
    if (sp->target)
        rc = kv_share(&fresh[0], &c->target, c->len, e);
    for (int i = 0; !rc && i < sp->n_draft; i++) {
        kv_init(&fresh[1 + i], sp->draft[i], sp->draft_window[i]);
        rc = kv_share(&fresh[1 + i], &c->draft[i], c->draft_len, e);
    }
    return rc;
}

static void swap_kv(struct kv *a, struct kv *b) {
    struct kv t = *a;
    *a = *b;
    *b = t;
}

int sequence_restore(struct sequence *s, const struct checkpoint *c, struct err *e) {
    if (!same_spec(&s->spec, &c->spec))
        return err_set(e, ERR_MISMATCH,
                       "the checkpoint belongs to another model or draft; make a "
                       "new one with this model");
    if (!checkpoint_usable(c))
        return err_set(
            e, ERR_STATE,
            "the checkpoint of %lld tokens was made when the device failed or ran out of "
            "memory; drop it and run the tokens again",
            (long long)c->len);
    struct kv fresh[1 + SEQ_DRAFT_GROUPS] = {0};
    int rc = sequence_write(s, e);
    if (rc)
        return rc;
    rc = c->len > s->spec.max_len ? err_set(e, ERR_LIMIT,
                                            "a checkpoint of %lld tokens does not fit a context of "
                                            "%lld",
                                            (long long)c->len, (long long)s->spec.max_len)
                                  : vec_reserve(&s->tokens, &s->cap, c->len, sizeof *s->tokens, e);
    if (!rc)
        rc = share_groups(fresh, &s->spec, c, e);
    if (!rc && c->len > 0)
        rc = recurrent_restore(&s->recurrent, &c->recurrent, c->len, e);
    if (rc)
        goto out;
    if (c->len == 0)
        recurrent_reset(&s->recurrent);
    swap_kv(&s->target, &fresh[0]);
    for (int i = 0; i < s->spec.n_draft; i++)
        swap_kv(&s->draft[i], &fresh[1 + i]);
    if (c->len)
        memcpy(s->tokens, c->tokens, (size_t)c->len * sizeof *s->tokens);
    s->len = c->len;
    s->version++;
    s->draft_len = c->draft_len;
    copy_features(s->spec.x, s->pending, c->pending, c->pending ? c->len - c->draft_len : 0,
                  s->spec.feature_dim);
out:
    for (int i = 0; i < 1 + SEQ_DRAFT_GROUPS; i++)
        kv_fini(&fresh[i]);
    return rc;
}

int sequence_fork(const struct sequence *s, struct sequence **out, struct err *e) {
    struct sequence *f = NULL;
    int rc = sequence_check(s, e);
    if (!rc)
        rc = sequence_create(&f, &s->spec, e);
    if (rc)
        return rc;
    rc = vec_reserve(&f->tokens, &f->cap, s->len, sizeof *f->tokens, e);
    if (!rc && s->spec.target)
        rc = kv_share(&f->target, &s->target, s->len, e);
    for (int i = 0; !rc && i < s->spec.n_draft; i++)
        rc = kv_share(&f->draft[i], &s->draft[i], s->draft_len, e);
    if (rc) {
        sequence_destroy(f);
        return rc;
    }
    recurrent_copy(&f->recurrent, &s->recurrent);
    if (s->len)
        memcpy(f->tokens, s->tokens, (size_t)s->len * sizeof *f->tokens);
    f->len = s->len;
    f->draft_len = s->draft_len;
    copy_features(s->spec.x, f->pending, s->pending,
                  s->spec.feature_dim ? s->len - s->draft_len : 0, s->spec.feature_dim);
    *out = f;
    return 0;
}
