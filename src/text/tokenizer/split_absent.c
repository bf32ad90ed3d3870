// SPDX-License-Identifier: Apache-2.0
// Stands in for pre-tokenisation in a build of the engine alone. Tokenizers still open and turn ids
// into text, and generation still ends at their end tokens; only text to ids is refused.
#include "text/tokenizer/split.h"

#include <stdlib.h>

#include "text/tokenizer/rules.h"

struct split {
    const struct split_rule *rule;
};

int split_create(struct split **out, const char *pre, size_t n_pre, struct err *e) {
    const struct split_rule *rule;
    *out = NULL;
    int rc = split_rule_find(&rule, pre, n_pre, e);
    if (rc)
        return rc;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_set(e, ERR_MEMORY, "no memory for the tokenizer; free some memory");
    (*out)->rule = rule;
    return 0;
}

void split_destroy(struct split *s) {
    free(s);
}

bool split_whole_pieces(const struct split *s) {
    return s->rule->whole_pieces;
}

bool split_add_bos(const struct split *s) {
    return s->rule->add_bos;
}

int split_begin(struct split_job **out, const struct split *s, struct err *e) {
    (void)s;
    *out = NULL;
    return err_set(
        e, ERR_UNSUPPORTED,
        "this program was built without a tokenizer for text; give token ids with --ids");
}

void split_end(struct split_job *j) {
    (void)j;
}

void split_expressions_only(struct split_job *j) {
    (void)j;
}

int split_text(struct split_job *j, const char *text, size_t n, split_piece_fn *fn, void *arg,
               struct err *e) {
    (void)j;
    (void)text;
    (void)n;
    (void)fn;
    (void)arg;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without a tokenizer for text");
}
