// SPDX-License-Identifier: Apache-2.0
// Sequences and checkpoints for callers of the public interface: transcripts and bookmarks of the
// engine under their public names.
#include <stdlib.h>

#include "api/api.h"

// A handle around t, which it takes over also when it fails.
static int wrap(struct coppice_sequence **out, struct coppice_model *m, struct transcript *t,
                struct err *e) {
    struct coppice_sequence *s = malloc(sizeof *s);
    if (!s) {
        transcript_destroy(t);
        return err_set(e, ERR_MEMORY, "no memory for a sequence");
    }
    *s = (struct coppice_sequence){.m = m, .t = t};
    *out = s;
    return 0;
}

int coppice_sequence_create(struct coppice_sequence **out, struct coppice_model *m,
                            struct coppice_error *error) {
    struct err e = {0};
    struct transcript *t = NULL;
    int rc = transcript_create(&t, m->s, &e);
    if (!rc)
        rc = wrap(out, m, t, &e);
    return api_result(rc, &e, error);
}

void coppice_sequence_free(struct coppice_sequence *s) {
    if (!s)
        return;
    transcript_destroy(s->t);
    free(s);
}

int64_t coppice_sequence_length(const struct coppice_sequence *s) {
    return transcript_len(s->t);
}

const int32_t *coppice_sequence_tokens(const struct coppice_sequence *s) {
    return transcript_tokens(s->t);
}

int64_t coppice_sequence_ready(const struct coppice_sequence *s) {
    return transcript_ready(s->t);
}

int coppice_sequence_append(struct coppice_sequence *s, const int32_t *ids, int64_t n,
                            struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_append(s->t, ids, n, &e), &e, error);
}

int coppice_sequence_cut(struct coppice_sequence *s, int64_t n, struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_cut(s->t, n, &e), &e, error);
}

int coppice_sequence_fork(const struct coppice_sequence *s, struct coppice_sequence **out,
                          struct coppice_error *error) {
    struct err e = {0};
    struct transcript *t = NULL;
    int rc = transcript_fork(s->t, &t, &e);
    if (!rc)
        rc = wrap(out, s->m, t, &e);
    return api_result(rc, &e, error);
}

int coppice_checkpoint_create(struct coppice_checkpoint **out, const struct coppice_sequence *s,
                              struct coppice_error *error) {
    struct err e = {0};
    struct coppice_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? transcript_save(s->t, &c->b, &e)
               : err_set(&e, ERR_MEMORY, "no memory for a checkpoint");
    if (rc)
        coppice_checkpoint_free(c);
    else
        *out = c;
    return api_result(rc, &e, error);
}

int coppice_checkpoint_restore(const struct coppice_checkpoint *c, struct coppice_sequence *s,
                               struct coppice_error *error) {
    struct err e = {0};
    return api_result(transcript_restore(s->t, c->b, &e), &e, error);
}

int coppice_checkpoint_save(const struct coppice_checkpoint *c, const char *path,
                            struct coppice_error *error) {
    struct err e = {0};
    return api_result(bookmark_write(c->b, path, &e), &e, error);
}

int coppice_checkpoint_load(struct coppice_checkpoint **out, struct coppice_model *m,
                            const char *path, struct coppice_error *error) {
    struct err e = {0};
    struct coppice_checkpoint *c = calloc(1, sizeof *c);
    int rc = c ? bookmark_read(&c->b, m->s, path, &e)
               : err_set(&e, ERR_MEMORY, "no memory for a checkpoint");
    if (rc)
        coppice_checkpoint_free(c);
    else
        *out = c;
    return api_result(rc, &e, error);
}

int64_t coppice_checkpoint_bytes(const struct coppice_checkpoint *c) {
    return bookmark_bytes(c->b);
}

void coppice_checkpoint_free(struct coppice_checkpoint *c) {
    if (!c)
        return;
    bookmark_destroy(c->b);
    free(c);
}
