// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sequences: pages by reference, the recurrent save, and attachments at rest.
// Restoring makes every part first and puts all of them in place when nothing can fail any more.
#include "state/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "state/identity.h"

struct checkpoint {
    struct sequence_spec spec;
    uint64_t written; // as of a sequence
    int32_t *tokens;  // [len]
    int64_t len;
    int64_t sparse_end;
    struct kv kv[SEQ_GROUPS];
    struct recurrent_save recurrent;
    struct attachment *attached[SEQ_ATTACHED];
};

int sequence_checkpoint(const struct sequence *s, struct checkpoint **out, struct err *e) {
    int rc = sequence_check(s, e);
    if (rc)
        return rc;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint");
    c->spec = s->spec;
    c->written = exec_epoch(s->spec.x);
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
    bool usable = !exec_epoch_failed(c->spec.x, c->written);
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

static int check_checkpoint(const struct checkpoint *c, struct err *e) {
    if (checkpoint_usable(c))
        return 0;
    return err_set(e, ERR_STATE,
                   "the checkpoint of %lld tokens was made when the device failed or ran out of "
                   "memory; drop it and run the tokens again",
                   (long long)c->len);
}

static int check_restorable(const struct sequence *s, const struct checkpoint *c, struct err *e) {
    if (!same_spec(&s->spec, &c->spec))
        return err_set(e, ERR_MISMATCH,
                       "the checkpoint belongs to another model or draft; make a "
                       "new one with this model");
    int rc = check_checkpoint(c, e);
    if (rc)
        return rc;
    if (c->len > s->spec.max_len)
        return err_set(e, ERR_LIMIT, "a checkpoint of %lld tokens does not fit a context of %lld",
                       (long long)c->len, (long long)s->spec.max_len);
    return 0;
}

// The new parts of a sequence.
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

static void exchange_parts(struct sequence *s, struct parts *p) {
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
    int rc = check_restorable(s, c, e);
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
        exchange_parts(s, &p);
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

// The sections of a stored checkpoint: IDEN says what it is of, HEAD how much of it there is, TOKN
// has the tokens, KVGR one group each, RECU the recurrent save, ATTD one attachment each, DONE ends
// it.

static const char magic[8] = {'c', 'o', 'p', 'p', 'c', 'k', 'p', 't'};
enum { VERSION = 2, TOKENS = 4096 }; // of the form; moved at once

struct writing {
    const struct checkpoint *c;
    const struct checkpoint_form *f;
    int i; // group or attachment
};

static void put_identity(struct stored_out *o, const void *arg) {
    const struct writing *w = arg;
    stored_put(o, w->f->identity, strlen(w->f->identity));
}

static void put_head(struct stored_out *o, const void *arg) {
    const struct writing *w = arg;
    const struct sequence_spec *s = &w->c->spec;
    stored_put_u64(o, (uint64_t)w->c->len);
    stored_put_u64(o, (uint64_t)w->f->n_tail);
    stored_put_u64(o, (uint64_t)w->c->sparse_end);
    stored_put_u32(o, (uint32_t)s->n_attached);
}

static void put_tokens(struct stored_out *o, const void *arg) {
    const struct writing *w = arg;
    for (int64_t i = 0; i < w->c->len && !w->f->apart; i++)
        stored_put_u32(o, (uint32_t)w->c->tokens[i]);
    for (int64_t i = 0; i < w->f->n_tail; i++)
        stored_put_u32(o, (uint32_t)w->f->tail[i]);
}

static void put_group(struct stored_out *o, const void *arg) {
    const struct writing *w = arg;
    stored_put_kv(o, w->c->spec.x, &w->c->kv[w->i]);
}

static void put_recurrent(struct stored_out *o, const void *arg) {
    const struct checkpoint *c = ((const struct writing *)arg)->c;
    stored_put_device(o, c->spec.x, c->recurrent.block,
                      (size_t)recurrent_save_bytes(&c->spec.shape, c->spec.n_recurrent));
}

static void put_attached(struct stored_out *o, const void *arg) {
    const struct writing *w = arg;
    const struct attachment *a = w->c->attached[w->i];
    stored_put_text(o, a->kind->name);
    a->kind->write(a, o);
}

static void put_nothing(struct stored_out *o, const void *arg) {
    (void)o;
    (void)arg;
}

static void put_all(struct stored_out *o, struct writing *w) {
    const struct sequence_spec *s = &w->c->spec;
    stored_put(o, magic, sizeof magic);
    stored_put_u32(o, VERSION);
    if (!w->f->apart)
        stored_section(o, "IDEN", put_identity, w);
    stored_section(o, "HEAD", put_head, w);
    stored_section(o, "TOKN", put_tokens, w);
    for (w->i = 0; w->i < s->n_groups; w->i++)
        stored_section(o, "KVGR", put_group, w);
    if (w->c->recurrent.block)
        stored_section(o, "RECU", put_recurrent, w);
    for (w->i = 0; w->i < s->n_attached; w->i++)
        stored_section(o, "ATTD", put_attached, w);
}

// What was queued on any device of the checkpoint has been done, and done well.
static int wait_for_devices(const struct checkpoint *c, struct err *e) {
    int rc = exec_status(c->spec.x, e);
    for (int i = 0; !rc && i < c->spec.n_attached; i++)
        if (c->spec.attached[i]->x != c->spec.x)
            rc = exec_status(c->spec.attached[i]->x, e);
    return rc;
}

int checkpoint_write(const struct checkpoint *c, const struct checkpoint_form *f,
                     const struct checkpoint_sink *to, struct err *e) {
    struct writing w = {c, f, 0};
    struct stored_out o = {.sink = to->sink, .arg = to->arg, .apart = f->apart};
    int rc = f->apart ? 0 : wait_for_devices(c, e);
    if (!rc)
        rc = check_checkpoint(c, e);
    if (rc)
        return rc;
    put_all(&o, &w);
    if (!o.rc && !f->apart)
        o.rc = wait_for_devices(c, &o.err);
    stored_section(&o, "DONE", put_nothing, NULL);
    stored_out_fini(&o);
    return o.rc ? err_set(e, o.rc, "%s", o.err.text) : 0;
}

static void check_version(struct stored_in *in) {
    char found[sizeof magic];
    in->left = sizeof magic + 4;
    stored_get(in, found, sizeof found);
    if (memcmp(found, magic, sizeof magic) != 0)
        stored_fail(in, ERR_FORMAT, "this is no checkpoint of coppice");
    uint32_t version = stored_get_u32(in);
    if (version != VERSION)
        stored_fail(in, ERR_UNSUPPORTED,
                    "the checkpoint has version %u of the form and this program reads %d; make it "
                    "again",
                    version, VERSION);
}

struct head {
    uint64_t len, n_tail, sparse_end;
    uint32_t n_attached;
};

// Whether the identity that is there may stand for the own one.
static void check_identity(struct stored_in *in, const char *own) {
    stored_enter_as(in, "IDEN");
    size_t n = in->left <= IDENTITY_MAX ? (size_t)in->left : 0;
    char *text = calloc(1, n + 1);
    if (!text)
        stored_fail(in, ERR_MEMORY, "no memory to read a checkpoint");
    else
        stored_get(in, text, n);
    for (size_t i = 0; i < n && text && !in->rc; i++)
        if (text[i] != '\n' && (text[i] < ' ' || text[i] > '~')) // it may be shown
            stored_damaged(in);
    stored_leave(in);
    if (!in->rc)
        in->rc = identity_check(text, own, &in->err);
    free(text);
}

static void get_head(struct stored_in *in, const struct sequence_spec *s, struct head *h) {
    stored_enter_as(in, "HEAD");
    h->len = stored_get_u64(in);
    h->n_tail = stored_get_u64(in);
    h->sparse_end = stored_get_u64(in);
    h->n_attached = stored_get_u32(in);
    stored_leave(in);
    if (h->len > (uint64_t)s->max_len)
        stored_fail(in, ERR_LIMIT, "a checkpoint of %llu tokens does not fit a context of %lld",
                    (unsigned long long)h->len, (long long)s->max_len);
    if ((s->n_recurrent && h->len % GDN_BLOCK) || h->sparse_end > INT64_MAX)
        stored_damaged(in);
}

// n tokens; memory is taken as they come.
static int32_t *get_ids(struct stored_in *in, uint64_t n, int64_t vocab) {
    int32_t *ids = NULL;
    int64_t cap = 0;
    for (uint64_t done = 0; !in->rc && done < n;) {
        int64_t some = n - done < TOKENS ? (int64_t)(n - done) : TOKENS;
        in->rc = vec_reserve(&ids, &cap, (int64_t)done + some, sizeof *ids, &in->err);
        for (int64_t i = 0; !in->rc && i < some; i++, done++) {
            uint32_t id = stored_get_u32(in);
            if (id >= (uint64_t)vocab)
                stored_damaged(in);
            ids[done] = (int32_t)id;
        }
    }
    return ids;
}

// The tokens that are kept apart.
static int32_t *take_ids(struct stored_in *in, const struct checkpoint_form *f, int64_t n) {
    if (n > f->n_tokens)
        stored_damaged(in);
    if (in->rc || !n)
        return NULL;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids)
        stored_fail(in, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    return ids ? memcpy(ids, f->tokens, (size_t)n * sizeof *ids) : NULL;
}

static void get_attached(struct stored_in *in, struct checkpoint *c) {
    const struct sequence_spec *s = &c->spec;
    char name[STORED_TEXT + 1];
    int i = 0;
    stored_enter_as(in, "ATTD");
    stored_get_text(in, name);
    while (i < s->n_attached && strcmp(s->attached[i]->name, name) != 0)
        i++;
    if (i == s->n_attached)
        stored_skip(in);
    else if (c->attached[i])
        stored_damaged(in);
    else if (!in->rc)
        s->attached[i]->read(s->attached[i], in, c->len, &c->attached[i]);
    stored_leave(in);
}

static void get_parts(struct stored_in *in, struct checkpoint *c, const struct head *h) {
    const struct sequence_spec *s = &c->spec;
    for (int i = 0; i < s->n_groups; i++) {
        stored_enter_as(in, "KVGR");
        kv_init(&c->kv[i], s->groups[i].pool, s->groups[i].window);
        stored_get_kv(in, s->x, &c->kv[i], c->len);
        stored_leave(in);
    }
    if (s->n_recurrent && c->len) {
        stored_enter_as(in, "RECU");
        if (!in->rc)
            in->rc = recurrent_save_make(&c->recurrent, s->x, &s->shape, s->n_recurrent, &in->err);
        stored_get_floats(in, s->x, c->recurrent.block,
                          recurrent_save_bytes(&s->shape, s->n_recurrent) / (int64_t)sizeof(float));
        stored_leave(in);
    }
    for (uint32_t i = 0; !in->rc && i < h->n_attached; i++)
        get_attached(in, c);
    for (int i = 0; i < s->n_attached; i++)
        if (!c->attached[i])
            stored_fail(in, ERR_MISMATCH,
                        "the checkpoint has no state of the %s; load the model without it, or make "
                        "the checkpoint again with it",
                        s->attached[i]->name);
    stored_enter_as(in, "DONE");
    stored_leave(in);
}

int checkpoint_read(struct checkpoint **out, const struct sequence_spec *spec,
                    struct checkpoint_form *f, const struct checkpoint_source *from,
                    struct err *e) {
    struct stored_in in = {.source = from->source, .arg = from->arg, .apart = f->apart};
    struct head h = {0};
    struct checkpoint *c = calloc(1, sizeof *c);
    f->tail = NULL;
    f->n_tail = 0;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint");
    c->spec = *spec;
    c->written = exec_epoch(spec->x);
    check_version(&in);
    if (!f->apart)
        check_identity(&in, f->identity);
    get_head(&in, spec, &h);
    stored_enter_as(&in, "TOKN");
    c->sparse_end = (int64_t)h.sparse_end;
    c->len = in.rc ? 0 : (int64_t)h.len;
    c->tokens = f->apart ? take_ids(&in, f, c->len) : get_ids(&in, (uint64_t)c->len, f->vocab);
    f->tail = get_ids(&in, h.n_tail, f->vocab);
    if (!in.rc)
        stored_leave(&in);
    if (!in.rc)
        get_parts(&in, c, &h);
    if (!in.rc)
        in.rc = wait_for_devices(c, &in.err);
    stored_in_fini(&in);
    if (in.rc) {
        checkpoint_destroy(c);
        free(f->tail);
        f->tail = NULL;
        return err_set(e, in.rc, "%s", in.err.text);
    }
    f->n_tail = (int64_t)h.n_tail;
    *out = c;
    return 0;
}
