// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sequences: pages by reference, the recurrent save, and attachments at rest.
// Restoring makes every part first and puts all of them in place when nothing can fail any more.
#include "state/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

struct checkpoint {
    struct sequence_spec spec;
    uint64_t written; // as of a sequence
    int32_t *tokens;  // [len]
    int64_t len;
    int64_t sparse_end;
    struct view_choices choices;
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
    if (!rc && c->len >= c->sparse_end)
        rc = view_choices_copy(&c->choices, &s->choices, &s->spec.view, c->len / KV_PAGE, e);
    if (rc) {
        checkpoint_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

void checkpoint_stay(struct checkpoint *c) {
    for (int i = 0; i < c->spec.n_groups; i++)
        kv_stay(&c->kv[i]);
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
    int64_t n = (int64_t)sizeof *c + c->len * (int64_t)sizeof *c->tokens +
                c->choices.cap * (int64_t)sizeof *c->choices.pages;
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
    view_choices_fini(&c->choices);
    free(c->tokens);
    free(c);
}

static bool same_spec(const struct sequence_spec *a, const struct sequence_spec *b) {
    bool same = a->x == b->x && a->n_groups == b->n_groups && a->n_recurrent == b->n_recurrent &&
                a->n_attached == b->n_attached && sparse_rule_same(&a->sparse, &b->sparse) &&
                view_rule_same(&a->view, &b->view);
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
    struct view_choices choices;
};

static int make_parts(struct parts *p, const struct checkpoint *c, struct err *e) {
    const struct sequence_spec *sp = &c->spec;
    int rc = view_choices_copy(&p->choices, &c->choices, &sp->view, c->len / KV_PAGE, e);
    for (int i = 0; !rc && i < sp->n_groups; i++) {
        kv_init(&p->kv[i], sp->groups[i].pool, sp->groups[i].window);
        rc = kv_share(&p->kv[i], &c->kv[i], c->len, e);
    }
    for (int i = 0; !rc && i < sp->n_attached; i++)
        rc = c->attached[i]->kind->copy(c->attached[i], c->len, false, &p->attached[i], e);
    return rc;
}

static void exchange_parts(struct sequence *s, struct parts *p) {
    const struct view_choices choices = s->choices;
    s->choices = p->choices;
    p->choices = choices;
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
    view_choices_fini(&p.choices);
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_fini(&p.kv[i]);
    for (int i = 0; i < s->spec.n_attached; i++)
        attachment_destroy(p.attached[i]);
    return rc;
}

// Parts: the serial form is what groups, recurrent save and attachments put, in that order. Each
// attachment's is a section that says how many groups and bytes of devices are kept apart for it,
// so that it can be passed over.

struct putting {
    const struct checkpoint *c;
    int i; // attachment
};

static void put_attached(struct stored_out *o, const void *arg) {
    const struct putting *w = arg;
    const struct attachment *a = w->c->attached[w->i];
    const struct stored_out before = *o;
    o->measure = true;
    a->kind->write(a, o);
    uint32_t groups = (uint32_t)(o->groups - before.groups);
    uint64_t rest = o->rest - before.rest;
    *o = before;
    stored_put_text(o, a->kind->name);
    stored_put_u32(o, groups);
    stored_put_u64(o, rest);
    a->kind->write(a, o);
}

// Where pages are chosen: u64 page of positions of the first list, u32 lists, u32 pages of each.
static void put_choices(struct stored_out *o, const struct checkpoint *c) {
    const struct view_choices *y = &c->choices;
    stored_put_u64(o, (uint64_t)y->first);
    stored_put_u32(o, (uint32_t)y->n);
    for (int64_t i = 0; i < y->n * c->spec.view.chosen; i++)
        stored_put_u32(o, (uint32_t)y->pages[i]);
}

// A list is ascending and of pages between the sinks and the newest. The last one is of the length.
static void get_choices(struct stored_in *in, struct checkpoint *c) {
    const struct view_rule *r = &c->spec.view;
    struct view_choices *y = &c->choices;
    const uint64_t first = stored_get_u64(in);
    const uint32_t n = stored_get_u32(in);
    const bool some = c->len >= c->sparse_end && view_skipped(r, c->len);
    const uint64_t last = (uint64_t)(c->len / KV_PAGE);
    if (in->rc || (!n && !some))
        return;
    if (!some || first > last || n != last - first + 1 ||
        view_skipped(r, (int64_t)first * KV_PAGE) <= 0) {
        stored_damaged(in);
        return;
    }
    y->first = (int64_t)first;
    in->rc = vec_reserve(&y->pages, &y->cap, (int64_t)n * r->chosen, sizeof *y->pages, &in->err);
    for (; !in->rc && y->n < (int64_t)n; y->n++) {
        int32_t *list = y->pages + y->n * r->chosen;
        const int64_t end = view_candidates(r, (y->first + y->n) * KV_PAGE) + 1;
        for (int64_t i = 0; i < r->chosen && !in->rc; i++) {
            list[i] = (int32_t)stored_get_u32(in);
            if (list[i] <= (i ? list[i - 1] : 0) || list[i] >= end)
                stored_damaged(in);
        }
    }
}

int checkpoint_wait(const struct checkpoint *c, struct err *e) {
    int rc = exec_status(c->spec.x, e);
    for (int i = 0; !rc && i < c->spec.n_attached; i++)
        if (c->spec.attached[i]->x != c->spec.x)
            rc = exec_status(c->spec.attached[i]->x, e);
    return rc;
}

static int to_str(void *arg, const void *data, size_t n, struct err *e) {
    struct str *s = arg;
    str_append(s, data, n);
    return s->failed ? err_set(e, ERR_MEMORY, "no memory for the form of a checkpoint") : 0;
}

int checkpoint_put(const struct checkpoint *c, const struct stored_apart *apart, struct str *form,
                   struct err *e) {
    const struct sequence_spec *s = &c->spec;
    struct stored_out o = {.sink = to_str, .arg = form, .apart = apart};
    int rc = check_checkpoint(c, e);
    if (rc)
        return rc;
    for (int i = 0; i < s->n_groups; i++)
        stored_put_kv(&o, s->x, &c->kv[i]);
    if (c->recurrent.block)
        stored_put_device(&o, s->x, c->recurrent.block,
                          (size_t)recurrent_save_bytes(&s->shape, s->n_recurrent));
    if (s->view.chosen)
        put_choices(&o, c);
    stored_put_u32(&o, (uint32_t)s->n_attached);
    for (struct putting w = {c, 0}; w.i < s->n_attached; w.i++)
        stored_section(&o, "ATTD", put_attached, &w);
    return o.rc ? err_set(e, o.rc, "%s", o.err.text) : 0;
}

static void get_attached(struct stored_in *in, struct checkpoint *c) {
    const struct sequence_spec *s = &c->spec;
    char name[STORED_TEXT + 1];
    int i = 0;
    stored_enter_as(in, "ATTD");
    stored_get_text(in, name);
    const uint32_t groups = stored_get_u32(in);
    const uint64_t rest = stored_get_u64(in);
    while (i < s->n_attached && strcmp(s->attached[i]->name, name) != 0)
        i++;
    if (i == s->n_attached) {
        stored_skip(in);
        if (!in->rc)
            in->rc = in->apart->skip(in->apart->arg, groups, rest, &in->err);
    } else if (c->attached[i]) {
        stored_damaged(in);
    } else if (!in->rc) {
        s->attached[i]->read(s->attached[i], in, c->len, &c->attached[i]);
    }
    stored_leave(in);
}

static void get_parts(struct stored_in *in, struct checkpoint *c) {
    const struct sequence_spec *s = &c->spec;
    in->left = INT64_MAX; // the form is no section; its source ends it
    for (int i = 0; i < s->n_groups; i++) {
        kv_init(&c->kv[i], s->groups[i].pool, s->groups[i].window);
        stored_get_kv(in, s->x, &c->kv[i], c->len);
    }
    if (s->n_recurrent && c->len && !in->rc) {
        in->rc = recurrent_save_make(&c->recurrent, s->x, &s->shape, s->n_recurrent, &in->err);
        stored_get_floats(in, s->x, c->recurrent.block,
                          recurrent_save_bytes(&s->shape, s->n_recurrent) / (int64_t)sizeof(float));
    }
    if (s->view.chosen && !in->rc)
        get_choices(in, c);
    const uint32_t n = stored_get_u32(in);
    for (uint32_t i = 0; !in->rc && i < n; i++)
        get_attached(in, c);
    for (int i = 0; i < s->n_attached; i++)
        if (!c->attached[i])
            stored_damaged(in); // the identity says that it is there
}

struct form_source {
    const unsigned char *data;
    size_t left;
};

static int from_form(void *arg, void *data, size_t n, struct err *e) {
    struct form_source *f = arg;
    if (n > f->left)
        return stored_ends_early(e);
    memcpy(data, f->data, n);
    f->data += n;
    f->left -= n;
    return 0;
}

static int copy_tokens(struct checkpoint *c, const struct checkpoint_parts *from, struct err *e) {
    size_t bytes = (size_t)from->len * sizeof *c->tokens;
    c->len = from->len;
    c->sparse_end = from->sparse_end;
    c->tokens = malloc(max_size(bytes, 1));
    if (!c->tokens)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a checkpoint");
    if (bytes)
        memcpy(c->tokens, from->tokens, bytes);
    return 0;
}

int checkpoint_get(struct checkpoint **out, const struct sequence_spec *spec,
                   const struct checkpoint_parts *from, const struct stored_apart *apart,
                   struct err *e) {
    struct form_source form = {from->form, from->form_bytes};
    struct stored_in in = {.source = from_form, .arg = &form, .apart = apart};
    if (from->len > spec->max_len)
        return err_set(e, ERR_LIMIT, "a checkpoint of %lld tokens does not fit a context of %lld",
                       (long long)from->len, (long long)spec->max_len);
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint");
    c->spec = *spec;
    c->written = exec_epoch(spec->x);
    in.rc = copy_tokens(c, from, &in.err);
    if (spec->n_recurrent && from->len % GDN_BLOCK)
        stored_damaged(&in);
    if (!in.rc)
        get_parts(&in, c);
    if (form.left)
        stored_damaged(&in);
    if (!in.rc)
        in.rc = checkpoint_wait(c, &in.err);
    if (in.rc) {
        checkpoint_destroy(c);
        return err_set(e, in.rc, "%s", in.err.text);
    }
    *out = c;
    return 0;
}
