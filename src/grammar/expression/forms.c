// SPDX-License-Identifier: Apache-2.0
// Grammars of one part alone: any JSON object, a regular expression.
#include "grammar/expression/build.h"
#include "grammar/grammar.h"

int grammar_json_object(struct grammar **out, const struct grammar_json *how,
                        struct grammar_work *work, struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, work, 0, e);
    if (rc)
        return rc;
    if (how)
        build_json_how(b, how);
    rc = build_finish(b, build_json_object(b), out, e);
    build_destroy(b);
    return rc;
}

int grammar_from_regex(struct grammar **out, const char *text, size_t n, struct grammar_work *work,
                       struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, work, n, e);
    if (rc)
        return rc;
    uint32_t root = build_regex(b, text, n, true, BUILD_PLAIN, "the regular expression");
    rc = build_finish(b, root, out, e);
    build_destroy(b);
    return rc;
}
