// SPDX-License-Identifier: Apache-2.0
// The parts of a sequence move together here: whatever can fail (pages, memory) is done before the
// first change. Checkpoints of sequences are in checkpoint.c.
#include "state/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

int sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err *e) {
    struct sequence *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a sequence");
    s->spec = *spec;
    s->written = exec_epoch(spec->x);
    for (int i = 0; i < spec->n_groups; i++)
        kv_init(&s->kv[i], spec->groups[i].pool, spec->groups[i].window);
    int rc = recurrent_init(&s->recurrent, spec->x, &spec->shape, spec->n_recurrent, e);
    for (int i = 0; !rc && i < spec->n_attached; i++)
        rc = spec->attached[i]->create(spec->attached[i], &s->attached[i], e);
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
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_fini(&s->kv[i]);
    recurrent_fini(&s->recurrent);
    for (int i = 0; i < s->spec.n_attached; i++)
        attachment_destroy(s->attached[i]);
    view_choices_fini(&s->choices);
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
    bool usable = !exec_epoch_failed(s->spec.x, s->written);
    for (int i = 0; i < s->spec.n_attached; i++)
        usable = usable && attachment_usable(s->attached[i]);
    return usable;
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
    if (rc)
        return rc;
    s->written = exec_epoch(s->spec.x);
    for (int i = 0; i < s->spec.n_attached; i++)
        attachment_write(s->attached[i]);
    return 0;
}

int sequence_sparse(struct sequence *s, int64_t end, struct err *e) {
    if (!sequence_spec_ruled(&s->spec))
        return 0;
    if (min_i64(s->len, end) != min_i64(s->len, s->sparse_end))
        return err_set(e, ERR_STATE,
                       "the state of these %lld tokens was read as a prompt up to token %lld and "
                       "cannot go on as if up to %lld; run the tokens again",
                       (long long)s->len, (long long)s->sparse_end, (long long)end);
    if (end == s->len && end != s->sparse_end && s->spec.view.chosen &&
        view_skipped(&s->spec.view, end))
        return err_set(e, ERR_STATE,
                       "what a reply after these %lld tokens sees was not chosen; run the last of "
                       "them again",
                       (long long)end);
    if (end > s->len)
        view_choices_cut(&s->choices, -1);
    s->sparse_end = end;
    return 0;
}

int64_t sequence_skipped(const struct sequence *s) {
    return s->len < s->sparse_end ? 0 : view_skipped(&s->spec.view, s->len);
}

int64_t sequence_view_end(const struct sequence *s) {
    return view_end(&s->spec.view, s->sparse_end, s->len);
}

struct kv_view sequence_view(const struct sequence *s, int group, unsigned char **table) {
    const struct view_rule *r = &s->spec.view;
    return view_of(&s->kv[group], sequence_skipped(s),
                   view_choices_at(&s->choices, r, s->len / KV_PAGE), r->chosen, table);
}

bool sequence_must_choose(const struct sequence *s) {
    return s->spec.view.chosen && sequence_skipped(s) &&
           !view_choices_at(&s->choices, &s->spec.view, s->len / KV_PAGE);
}

void sequence_choose(struct sequence *s, const int32_t *pages) {
    view_choices_add(&s->choices, &s->spec.view, s->len / KV_PAGE, pages);
}

int sequence_reserve(struct sequence *s, int64_t n, struct err *e) {
    if (n < 0 || s->len + n > s->spec.max_len)
        return err_set(e, ERR_LIMIT,
                       "%lld more tokens do not fit after %lld in a context of %lld; shorten the "
                       "text or raise the context size",
                       (long long)n, (long long)s->len, (long long)s->spec.max_len);
    int rc = sequence_write(s, e);
    if (rc)
        return rc;
    rc = vec_reserve(&s->tokens, &s->cap, s->len + n, sizeof *s->tokens, e);
    for (int i = 0; !rc && i < s->spec.n_groups; i++)
        rc = kv_reserve(&s->kv[i], n, e);
    if (!rc && s->spec.view.chosen)
        rc = view_choices_reserve(&s->choices, &s->spec.view, (s->len + n) / KV_PAGE, e);
    for (int i = 0; !rc && i < s->spec.n_attached; i++)
        rc = s->attached[i]->kind->reserve(s->attached[i], n, e);
    if (rc)
        sequence_unreserve(s); // what one part has and another lacks is of no use
    return rc;
}

void sequence_unreserve(struct sequence *s) {
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_release(&s->kv[i], ceil_div(s->len, KV_PAGE));
    for (int i = 0; i < s->spec.n_attached; i++)
        s->attached[i]->kind->release(s->attached[i]);
}

void sequence_append(struct sequence *s, const int32_t *token, const int32_t *index,
                     int64_t count) {
    for (int64_t i = 0; i < count; i++)
        s->tokens[s->len + i] = token[index[i]];
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_advance(&s->kv[i], count);
    for (int i = 0; i < s->spec.n_attached; i++)
        s->attached[i]->kind->append(s->attached[i], token, index, count);
    s->len += count;
    s->version++;
}

struct attachment *sequence_attached(const struct sequence *s, const struct attachment_kind *k) {
    for (int i = 0; i < s->spec.n_attached; i++)
        if (s->spec.attached[i] == k)
            return s->attached[i];
    return NULL;
}

int64_t sequence_resume(const struct sequence *s) {
    return s->spec.n_recurrent ? s->len / GDN_BLOCK * GDN_BLOCK : s->len;
}

// Whether all parts but the recurrent one can be cut to n.
static bool keeps_parts(const struct sequence *s, int64_t n) {
    bool all = true;
    for (int i = 0; i < s->spec.n_groups; i++)
        all = all && kv_keeps(&s->kv[i], n);
    for (int i = 0; i < s->spec.n_attached; i++)
        all = all && s->attached[i]->kind->keeps(s->attached[i], n);
    return all;
}

// Everything that is only a length; the recurrent state is the caller's.
static void cut_lengths(struct sequence *s, int64_t n) {
    for (int i = 0; i < s->spec.n_groups; i++)
        kv_truncate(&s->kv[i], n);
    for (int i = 0; i < s->spec.n_attached; i++)
        s->attached[i]->kind->cut(s->attached[i], n);
    view_choices_cut(&s->choices, n < s->sparse_end ? -1 : n / KV_PAGE);
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
    int64_t h = sequence_resume(s);
    *kept = n == s->len ? n : s->spec.n_recurrent == 0 ? n : h <= n ? h : 0;
    if (n == s->len)
        return 0;
    if (!keeps_parts(s, *kept))
        *kept = 0;
    if (*kept == 0)
        recurrent_reset(&s->recurrent);
    else
        recurrent_rewind(&s->recurrent);
    cut_lengths(s, *kept);
    return 0;
}

// Pages that were written when ops failed are cleared when they are next taken (kv.c), and what is
// waiting in attachments is after their length.
void sequence_renew(struct sequence *s) {
    s->written = exec_epoch(s->spec.x);
    for (int i = 0; i < s->spec.n_attached; i++)
        attachment_write(s->attached[i]);
    recurrent_reset(&s->recurrent);
    cut_lengths(s, 0);
}

int sequence_fork(const struct sequence *s, struct sequence **out, struct err *e) {
    struct sequence_spec alone = s->spec;
    struct sequence *f = NULL;
    alone.n_attached = 0; // these are copied
    int rc = sequence_check(s, e);
    if (!rc)
        rc = sequence_create(&f, &alone, e);
    if (rc)
        return rc;
    f->spec = s->spec;
    rc = vec_reserve(&f->tokens, &f->cap, s->len, sizeof *f->tokens, e);
    for (int i = 0; !rc && i < s->spec.n_groups; i++)
        rc = kv_share(&f->kv[i], &s->kv[i], s->len, e);
    for (int i = 0; !rc && i < s->spec.n_attached; i++)
        rc = s->attached[i]->kind->copy(s->attached[i], s->len, false, &f->attached[i], e);
    if (!rc)
        rc = view_choices_copy(&f->choices, &s->choices, &s->spec.view, s->len / KV_PAGE, e);
    if (rc) {
        sequence_destroy(f);
        return rc;
    }
    recurrent_copy(&f->recurrent, &s->recurrent);
    if (s->len)
        memcpy(f->tokens, s->tokens, (size_t)s->len * sizeof *f->tokens);
    f->len = s->len;
    f->sparse_end = s->sparse_end;
    *out = f;
    return 0;
}
