// SPDX-License-Identifier: Apache-2.0
// Grammars as callers have them: references, and the forms that need no text to be read.
#include "grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "grammar/grammar_impl.h"

struct grammar *grammar_ref(struct grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_unref(struct grammar *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    free(g->nodes);
    free(g->edges);
    free(g);
}

size_t grammar_bytes(const struct grammar *g) {
    return g->bytes;
}

int grammar_json_object(struct grammar **out, const struct grammar_json *how, struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, e);
    if (rc)
        return rc;
    if (how)
        build_json_how(b, how);
    rc = build_finish(b, build_json_object(b), out, e);
    build_destroy(b);
    return rc;
}

int grammar_from_regex(struct grammar **out, const char *text, size_t n, struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, e);
    if (rc)
        return rc;
    uint32_t root = build_regex(b, text, n, true, BUILD_PLAIN, "the regular expression");
    rc = build_finish(b, root, out, e);
    build_destroy(b);
    return rc;
}
