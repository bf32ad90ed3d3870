// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sequences: pages by reference, the recurrent save, and attachments at rest.
// Restoring makes every part first and puts all of them in place when nothing can fail any more.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "state/checkpoint_impl.h"

int sequence_checkpoint(const struct sequence *s, struct checkpoint **out, struct err *e) {
    int rc = sequence_check(s, e);
    if (rc)
        return rc;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint");
    c->spec = s->spec;
    c->written = exec_stretch(s->spec.x);
    c->len = sequence_resume(s);
    c->sparse_end = s->sparse_end;
    size_t bytes = (size_t)c->len * sizeof *c->tokens;
    c->tokens = malloc(bytes ? bytes : 1);
    if (!c->tokens)
        rc = err_set(e, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    else if (bytes)
        memcpy(c->tokens, s->tokens, bytes);
    for (int i = 0; !rc && i < s->spec.n_groups; i++) {
        kv_init(&c->kv[i], s->spec.groups[i].pool, s->spec.groups[i].window);
        rc = kv_share(&c->kv[i], &s->kv[i], c->len, e);
    }
    if (!rc && c->len > 0)
        rc = recurrent_save_init(&c->recurrent, &s->recurrent, c->len, e);
    for (int i = 0; !rc && i < s->spec.n_attached; i++)
        rc = s->attached[i]->kind->copy(s->attached[i], c->len, true, &c->attached[i], e);
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

int64_t checkpoint_sparse_end(const struct checkpoint *c) {
    return c->sparse_end;
}

int64_t checkpoint_bytes(const struct checkpoint *c) {
    int64_t n = (int64_t)sizeof *c + c->len * (int64_t)sizeof *c->tokens;
    if (c->recurrent.block)
        n += recurrent_save_bytes(&c->spec.shape, c->spec.n_recurrent);
    for (int i = 0; i < c->spec.n_attached; i++)
        n += c->attached[i]->kind->bytes(c->attached[i]);
    return n;
}

bool checkpoint_usable(const struct checkpoint *c) {
    bool usable = !exec_spoilt(c->spec.x, c->written);
    for (int i = 0; i < c->spec.n_attached; i++)
        usable = usable && attachment_usable(c->attached[i]);
    return usable;
}

void checkpoint_destroy(struct checkpoint *c) {
    if (!c)
        return;
    for (int i = 0; i < c->spec.n_groups; i++)
        kv_fini(&c->kv[i]);
    recurrent_save_fini(&c->recurrent);
    for (int i = 0; i < c->spec.n_attached; i++)
        attachment_destroy(c->attached[i]);
    free(c->tokens);
    free(c);
}

static bool same_spec(const struct sequence_spec *a, const struct sequence_spec *b) {
    bool same = a->x == b->x && a->n_groups == b->n_groups && a->n_recurrent == b->n_recurrent &&
                a->n_attached == b->n_attached && sparse_rule_same(&a->sparse, &b->sparse);
    for (int i = 0; same && i < a->n_groups; i++)
        same = a->groups[i].pool == b->groups[i].pool && a->groups[i].window == b->groups[i].window;
    for (int i = 0; same && i < a->n_attached; i++)
        same = a->attached[i] == b->attached[i];
    return same;
}

static int check(const struct sequence *s, const struct checkpoint *c, struct err *e) {
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
    if (c->len > s->spec.max_len)
        return err_set(e, ERR_LIMIT, "a checkpoint of %lld tokens does not fit a context of %lld",
                       (long long)c->len, (long long)s->spec.max_len);
    return 0;
}

// What takes the place of a sequence's parts.
struct parts {
    struct kv kv[SEQ_GROUPS];
    struct attachment *attached[SEQ_ATTACHED];
};

static int make_parts(struct parts *p, const struct checkpoint *c, struct err *e) {
    const struct sequence_spec *sp = &c->spec;
    int rc = 0;
    for (int i = 0; !rc && i < sp->n_groups; i++) {
        kv_init(&p->kv[i], sp->groups[i].pool, sp->groups[i].window);
        rc = kv_share(&p->kv[i], &c->kv[i], c->len, e);
    }
    for (int i = 0; !rc && i < sp->n_attached; i++)
        rc = c->attached[i]->kind->copy(c->attached[i], c->len, false, &p->attached[i], e);
    return rc;
}

static void exchange(struct sequence *s, struct parts *p) {
    for (int i = 0; i < s->spec.n_groups; i++) {
        struct kv old = s->kv[i];
        s->kv[i] = p->kv[i];
        p->kv[i] = old;
    }
    for (int i = 0; i < s->spec.n_attached; i++) {
        struct attachment *old = s->attached[i];
        s->attached[i] = p->attached[i];
        p->attached[i] = old;
    }
}

int sequence_restore(struct sequence *s, const struct checkpoint *c, struct err *e) {
    struct parts p = {0};
    int rc = check(s, c, e);
    if (!rc)
        rc = sequence_write(s, e);
    if (!rc)
        rc = vec_reserve(&s->tokens, &s->cap, c->len, sizeof *s->tokens, e);
    if (!rc)
        rc = make_parts(&p, c, e);
    if (!rc && c->len > 0)
        rc = recurrent_restore(&s->recurrent, &c->recurrent, c->len, e);
    if (!rc) {
        if (c->len == 0)
            recurrent_reset(&s->recurrent);
        else
            memcpy(s->tokens, c->tokens, (size_t)c->len * sizeof *s->tokens);
        exchange(s, &p);
        s->len = c->len;
        s->sparse_end = c->sparse_end;
        s->version++;
    }
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_fini(&p.kv[i]);
    for (int i = 0; i < s->spec.n_attached; i++)
        attachment_destroy(p.attached[i]);
    return rc;
}
