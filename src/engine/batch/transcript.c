// SPDX-License-Identifier: Apache-2.0
// Tokens besides a sequence that holds the first of them. The one rule: the sequence is always a
// beginning of the tokens. It may be shorter at any time, and absent.
#include "engine/batch/transcript.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "engine/batch/batch.h"
#include "models/checkpoint.h"

struct transcript {
    struct session *s;
    struct sequence *seq; // NULL: nothing was run
    int32_t *ids;         // [n]
    int64_t n, cap;
    // Where the first prompt ended, which is read sparsely if the session does that; 0: nothing was
    // chosen yet. It stays when the state is dropped or cut, so that the text would be read again
    // as it was. Where replies have a rule of views it is where the newest prompt ended, which is
    // all that stands before the newest reply.
    int64_t first;
    // State at the newest prompt's end or shortly before, where replies have a rule of views and
    // states cannot be cut to it; NULL: none.
    struct checkpoint *mark;
};

struct snapshot {
    struct session *s;
    struct checkpoint *point; // NULL: nothing was run
    int32_t *ids;             // [n]
    int64_t n, first;
};

int transcript_create(struct transcript **out, struct session *s, struct err *e) {
    struct transcript *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for a transcript");
    t->s = s;
    *out = t;
    return 0;
}

void transcript_destroy(struct transcript *t) {
    if (!t)
        return;
    sequence_destroy(t->seq);
    checkpoint_destroy(t->mark);
    free(t->ids);
    free(t);
}

int64_t transcript_len(const struct transcript *t) {
    return t->n;
}

const int32_t *transcript_tokens(const struct transcript *t) {
    return t->ids;
}

static bool has_state(const struct transcript *t) {
    return t->seq && sequence_usable(t->seq);
}

int64_t transcript_ready(const struct transcript *t) {
    return has_state(t) ? sequence_len(t->seq) : 0;
}

// Drops a state that a failure has made invalid; the tokens are run again when they are needed.
static void drop_invalid(struct transcript *t) {
    if (has_state(t))
        return;
    sequence_destroy(t->seq);
    t->seq = NULL;
}

static void append_tokens(struct transcript *t, const int32_t *ids, int64_t n) {
    if (n)
        memcpy(t->ids + t->n, ids, (size_t)n * sizeof *ids);
    t->n += n;
}

// Shortens the sequence, if there is one, to at most n tokens.
static int cut_state(struct transcript *t, int64_t n, struct err *e) {
    int64_t kept;
    drop_invalid(t);
    if (transcript_ready(t) <= n)
        return 0;
    return sequence_truncate(t->seq, n, &kept, e);
}

// Tokens, first ones, that are read as a prompt.
static int64_t sparse_end(int64_t first) {
    return first ? first : INT64_MAX;
}

static void keep_mark(void *arg, struct checkpoint *c, const struct err *e) {
    struct transcript *t = arg;
    (void)e; // without one the text is read from its begin
    checkpoint_destroy(t->mark);
    t->mark = c;
}

// Goes on from the mark, where it has more than the state.
static void use_mark(struct transcript *t) {
    if (t->mark && t->seq && checkpoint_usable(t->mark) &&
        transcript_ready(t) < checkpoint_len(t->mark))
        (void)sequence_restore(t->seq, t->mark, NULL);
}

// The text is all prompt from now on; state of replies has been cut off.
static int begin_prompt(struct transcript *t, struct err *e) {
    t->first = 0;
    use_mark(t);
    return t->seq ? sequence_sparse(t->seq, sparse_end(0), e) : 0;
}

// Replies become part of a prompt, which sees more than they did.
static int read_replies_again(struct transcript *t, struct err *e) {
    if (!t->first || !model_spec(session_model(t->s)).view.window)
        return 0;
    int rc = cut_state(t, t->first, e);
    return rc ? rc : begin_prompt(t, e);
}

int transcript_append(struct transcript *t, const int32_t *ids, int64_t n, struct err *e) {
    int64_t vocab = model_params_of(session_model(t->s))->vocab;
    if (n < 0)
        return err_set(e, ERR_USAGE, "cannot append %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return err_set(e, ERR_MISMATCH, "token id %d at place %lld is not within 0 to %lld",
                           ids[i], (long long)i, (long long)vocab - 1);
    int rc = vec_reserve(&t->ids, &t->cap, t->n + n, sizeof *t->ids, e);
    if (!rc && n)
        rc = read_replies_again(t, e);
    if (!rc)
        append_tokens(t, ids, n);
    return rc;
}

int transcript_cut(struct transcript *t, int64_t n, struct err *e) {
    if (n < 0 || n > t->n)
        return err_set(e, ERR_USAGE, "cannot cut a text of %lld tokens to %lld", (long long)t->n,
                       (long long)n);
    int rc = cut_state(t, n, e);
    if (rc)
        return rc;
    t->n = n;
    if (t->mark && checkpoint_len(t->mark) > n)
        keep_mark(t, NULL, NULL);
    return n > t->first ? 0 : begin_prompt(t, e);
}

// Room for what a request may choose is made before it runs, so that none of it can be lost.
static int prepare_request(struct transcript *t, const struct request *r, int64_t n,
                           struct err *e) {
    int64_t max = min_i64(r->max_tokens, model_max_ctx(session_model(t->s)) - t->n);
    int rc = max > 0 ? vec_reserve(&t->ids, &t->cap, t->n + max, sizeof *t->ids, e) : 0;
    if (!rc)
        rc = cut_state(t, n - 1, e); // a request runs one token at least
    return rc || t->seq ? rc : model_sequence(session_model(t->s), &t->seq, e);
}

static bool wants_mark(const struct transcript *t) {
    const struct sequence_spec spec = model_spec(session_model(t->s));
    return spec.view.window > 0 && spec.n_recurrent > 0;
}

int transcript_generate(struct transcript *t, const struct request *r, struct reply *out,
                        struct err *e) {
    struct request q = *r;
    int64_t n = t->n, first = t->first;
    *out = (struct reply){0};
    if (n == 0)
        return err_set(e, ERR_USAGE, "the text is empty; append at least one token");
    if (r->max_tokens == 0 && --n <= transcript_ready(t)) {
        out->end = END_LENGTH;
        return 0;
    }
    int rc = prepare_request(t, r, n, e);
    if (rc)
        return rc;
    q.prompt = t->ids;
    q.n_prompt = n;
    q.prefix = NULL;
    q.in_place = t->seq;
    if (r->max_tokens > 0 && !first)
        first = n;
    q.sparse_end = sparse_end(first);
    if (first == n && r->max_tokens > 0 && !r->n_checkpoints && wants_mark(t)) {
        q.checkpoint_at = &n;
        q.n_checkpoints = 1;
        q.checkpoint = keep_mark;
        q.checkpoint_arg = t;
    }
    rc = session_generate(t->s, &q, out, e);
    append_tokens(t, out->ids, out->n);
    if (out->n)
        t->first = first;
    else // what was read is a part of a prompt that may still grow
        (void)sequence_sparse(t->seq, sparse_end(t->first), NULL);
    if (rc) { // what else went wrong is known then
        exec_status(model_exec(session_model(t->s)), NULL);
        drop_invalid(t);
    }
    return rc;
}

int transcript_fork(const struct transcript *t, struct transcript **out, struct err *e) {
    struct transcript *f = NULL;
    int rc = transcript_create(&f, t->s, e);
    if (!rc)
        rc = vec_reserve(&f->ids, &f->cap, t->n, sizeof *f->ids, e);
    if (!rc && has_state(t))
        rc = sequence_fork(t->seq, &f->seq, e);
    if (rc) {
        transcript_destroy(f);
        return rc;
    }
    append_tokens(f, t->ids, t->n);
    f->first = t->first;
    *out = f;
    return 0;
}

int transcript_save(const struct transcript *t, struct snapshot **out, struct err *e) {
    struct snapshot *b = calloc(1, sizeof *b);
    size_t bytes = (size_t)t->n * sizeof *t->ids;
    if (b)
        b->ids = malloc(bytes ? bytes : 1);
    int rc = b && b->ids ? 0 : err_set(e, ERR_MEMORY, "no memory to save a text");
    if (!rc && has_state(t))
        rc = sequence_checkpoint(t->seq, &b->point, e);
    if (rc) {
        snapshot_destroy(b);
        return rc;
    }
    if (bytes)
        memcpy(b->ids, t->ids, bytes);
    b->s = t->s;
    b->n = t->n;
    b->first = t->first;
    *out = b;
    return 0;
}

int transcript_restore(struct transcript *t, const struct snapshot *b, struct err *e) {
    if (b->s != t->s)
        return err_set(e, ERR_MISMATCH,
                       "what was saved belongs to another loaded model; restore "
                       "it into a text of the model that made it");
    struct transcript fresh = {.s = t->s, .first = b->first};
    bool point = b->point && checkpoint_usable(b->point);
    int rc = vec_reserve(&fresh.ids, &fresh.cap, b->n, sizeof *fresh.ids, e);
    drop_invalid(t);
    if (!rc && point && !t->seq)
        rc = model_sequence(session_model(t->s), &t->seq, e);
    if (!rc && point)
        rc = sequence_restore(t->seq, b->point, e);
    if (rc) {
        free(fresh.ids);
        return rc;
    }
    if (!point) {
        sequence_destroy(t->seq);
        t->seq = NULL;
    }
    append_tokens(&fresh, b->ids, b->n);
    free(t->ids);
    checkpoint_destroy(t->mark);
    fresh.seq = t->seq;
    *t = fresh;
    return 0;
}

// A checkpoint of no tokens, for a text of which nothing was run.
static int empty_point(struct model *m, int64_t first, struct checkpoint **out, struct err *e) {
    struct sequence *seq = NULL;
    int rc = model_sequence(m, &seq, e);
    if (!rc)
        rc = sequence_sparse(seq, sparse_end(first), e);
    if (!rc)
        rc = sequence_checkpoint(seq, out, e);
    sequence_destroy(seq);
    return rc;
}

int snapshot_write(const struct snapshot *b, const char *path, struct err *e) {
    struct model *m = session_model(b->s);
    struct checkpoint *empty = NULL;
    const struct checkpoint *point = b->point;
    int rc = 0;
    if (!point || !checkpoint_usable(point)) {
        rc = empty_point(m, b->first, &empty, e);
        point = empty;
    }
    if (!rc) {
        int64_t run = checkpoint_len(point);
        struct token_tail tail = {b->ids + run, b->n - run};
        rc = model_checkpoint_save(m, point, &tail, path, e);
    }
    checkpoint_destroy(empty);
    return rc;
}

int snapshot_read(struct snapshot **out, struct session *s, const char *path, struct err *e) {
    struct snapshot *b = calloc(1, sizeof *b);
    struct token_tail tail = {0};
    if (!b)
        return err_set(e, ERR_MEMORY, "no memory for a saved text");
    int rc = model_checkpoint_load(session_model(s), path, &b->point, &tail, e);
    if (rc) {
        snapshot_destroy(b);
        return rc;
    }
    int64_t run = checkpoint_len(b->point);
    int64_t end = checkpoint_sparse_end(b->point);
    b->s = s;
    b->first = end < INT64_MAX ? end : 0;
    b->n = run + tail.n;
    b->ids = malloc((size_t)(b->n ? b->n : 1) * sizeof *b->ids);
    if (b->ids && run)
        memcpy(b->ids, checkpoint_tokens(b->point), (size_t)run * sizeof *b->ids);
    if (b->ids && tail.n)
        memcpy(b->ids + run, tail.ids, (size_t)tail.n * sizeof *b->ids);
    free(tail.ids);
    if (!b->ids) {
        snapshot_destroy(b);
        return err_set(e, ERR_MEMORY, "no memory for a saved text of its length");
    }
    *out = b;
    return 0;
}

int64_t snapshot_ready(const struct snapshot *b) {
    return b->point && checkpoint_usable(b->point) ? checkpoint_len(b->point) : 0;
}

int64_t snapshot_prompt(const struct snapshot *b) {
    const struct sequence_spec spec = model_spec(session_model(b->s));
    return sequence_spec_ruled(&spec) && b->first ? b->first : b->n;
}

int64_t snapshot_bytes(const struct snapshot *b) {
    return (int64_t)sizeof *b + b->n * (int64_t)sizeof *b->ids +
           (b->point ? checkpoint_bytes(b->point) : 0);
}

void snapshot_destroy(struct snapshot *b) {
    if (!b)
        return;
    checkpoint_destroy(b->point);
    free(b->ids);
    free(b);
}
