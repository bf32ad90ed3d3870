// SPDX-License-Identifier: Apache-2.0
// Stands in for normalisation (norm.h) and pre-tokenisation (split.h) in a build of the engine
// alone. Tokenizers still open and turn ids into text, and generation still ends at their end
// tokens; only text to ids is refused.
#include <stdlib.h>

#include "text/tokenizer/norm.h"
#include "text/tokenizer/rules.h"
#include "text/tokenizer/split.h"

bool norm_is_plain(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

int norm_nfc(struct str *out, const char *s, size_t n, struct err *e) {
    (void)out;
    (void)s;
    (void)n;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without a tokenizer for text");
}

size_t norm_map_case(uint32_t code, enum norm_case how, uint32_t out[NORM_CASE_MAX]) {
    bool upper = how == NORM_UPPER_CASE || how == NORM_TITLE_CASE;
    bool other = upper ? code >= 'a' && code <= 'z' : code >= 'A' && code <= 'Z';
    out[0] = other ? code ^ 0x20 : code;
    return 1;
}

unsigned norm_class(uint32_t code) {
    if (code >= '0' && code <= '9')
        return NORM_DECIMAL | NORM_NUMBER;
    if (code >= 'A' && code <= 'Z')
        return NORM_LETTER | NORM_UPPER;
    return code >= 'a' && code <= 'z' ? NORM_LETTER | NORM_LOWER : 0;
}

bool norm_is_printable(uint32_t code) {
    return code >= 0x20 && code < 0x7F;
}

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

const struct split_rule *split_rule_of(const struct split *s) {
    return s->rule;
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
