// SPDX-License-Identifier: Apache-2.0
// A compressor with all that it stands on: file, tokenizer, scorer, and perhaps a backend, which go
// when it is closed.
#include "compress/open.h"

#include <stdlib.h>

// A scorer that owns what it was made from.
struct opened {
    struct scorer base;
    struct scorer *inner;
    struct exec *own; // NULL: borrowed
    struct gguf *g;
    struct tokenizer *t;
};

static int opened_score(struct scorer *s, const struct score_call *c, struct err *e) {
    struct scorer *inner = ((struct opened *)s)->inner;
    return inner->kind->score(inner, c, e);
}

static void opened_rest(struct scorer *s) {
    struct scorer *inner = ((struct opened *)s)->inner;
    if (inner->kind->rest)
        inner->kind->rest(inner);
}

static void opened_destroy(struct scorer *s) {
    struct opened *o = (struct opened *)s;
    if (o->inner)
        o->inner->kind->destroy(o->inner);
    tokenizer_destroy(o->t);
    if (o->g)
        gguf_close(o->g);
    if (o->own)
        exec_destroy(o->own);
    free(o);
}

static int open_all(struct opened *o, struct exec *x, const char *path,
                    const struct score_options *so, struct err *e) {
    int rc = gguf_open(&o->g, path, e);
    if (!rc && !x)
        rc = exec_create_cpu(&o->own, NULL, 0, e);
    if (rc)
        return rc;
    rc = score_open(&o->inner, x ? x : o->own, o->g, so, e);
    if (!rc)
        rc = tokenizer_create(&o->t, o->g, e);
    return rc ? err_prefix(e, "scorer %.200s", path) : 0;
}

int compressor_open(struct compressor **out, struct exec *x, const char *path,
                    const struct score_options *o, struct err *e) {
    static const struct scorer_kind kind = {opened_score, opened_destroy, opened_rest};
    struct opened *made = calloc(1, sizeof *made);
    *out = NULL;
    if (!made)
        return err_set(e, ERR_MEMORY, "no memory for a scorer");
    made->base.kind = &kind;
    int rc = open_all(made, x, path, o, e);
    if (!rc)
        return compressor_create(out, &made->base, made->t, e);
    opened_destroy(&made->base);
    return rc;
}
