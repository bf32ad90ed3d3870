// SPDX-License-Identifier: Apache-2.0
// Runs the expressions of a pre-tokeniser, stage by stage: rules.c has them, ascii.c
// finds the matches that only ASCII decides, PCRE2 the others. UTF-8 is validated by the caller,
// once. Match limits are linear in the text: an expression that would need more ends in an error,
// not in a hang.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/split.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>

#include "text/tokenizer/rules.h"

struct split {
    const struct split_rule *rule;
    pcre2_code *code[SPLIT_MAX_STAGES];
    int n_stages;
};

struct split_piece {
    const char *bytes;
    size_t n;
};

enum { NO_MATCH, MATCH };

struct split_job {
    const struct split *split;
    pcre2_match_data *data;
    pcre2_match_context *context;
    split_piece_fn *fn;
    void *arg;
    bool expressions_only;
};

static int compile_expression(pcre2_code **out, const char *expression, struct err *e) {
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[128];
    *out = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
    if (!*out) {
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return err_set(e, ERR_MEMORY, "no memory for the pre-tokenizer; free some memory");
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ERR_UNSUPPORTED,
                       "this PCRE2 does not take a pre-tokenizer's expression (%s at %zu); "
                       "install PCRE2 10.40 or newer",
                       (const char *)text, (size_t)at);
    }
    // Without JIT (hardened systems forbid it) matching is slower and gives the same.
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return 0;
}

int split_create(struct split **out, const char *pre, size_t n_pre, struct err *e) {
    *out = NULL;
    const struct split_rule *rule;
    int rc = split_rule_find(&rule, pre, n_pre, e);
    if (rc)
        return rc;
    struct split *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the pre-tokenizer; free some memory");
    s->rule = rule;
    while (!rc && s->n_stages < SPLIT_MAX_STAGES && rule->stage[s->n_stages].expression) {
        rc = compile_expression(&s->code[s->n_stages], rule->stage[s->n_stages].expression, e);
        s->n_stages++;
    }
    if (rc) {
        split_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void split_destroy(struct split *s) {
    if (!s)
        return;
    for (int i = 0; i < SPLIT_MAX_STAGES; i++)
        pcre2_code_free(s->code[i]);
    free(s);
}

const struct split_rule *split_rule_of(const struct split *s) {
    return s->rule;
}

int split_begin(struct split_job **out, const struct split *s, struct err *e) {
    struct split_job *j = calloc(1, sizeof *j);
    *out = j;
    if (j) {
        j->split = s;
        j->data = pcre2_match_data_create(1, NULL);
        j->context = pcre2_match_context_create(NULL);
    }
    if (!j || !j->data || !j->context) {
        split_end(j);
        *out = NULL;
        return err_set(e, ERR_MEMORY, "no memory to split the text; free some memory");
    }
    pcre2_set_heap_limit(j->context, 64 * 1024); // KiB, for the interpreter only
    return 0;
}

void split_end(struct split_job *j) {
    if (!j)
        return;
    pcre2_match_data_free(j->data);
    pcre2_match_context_free(j->context);
    free(j);
}

static int match_failed(int code, size_t at, struct err *e) {
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(code, text, sizeof text);
    int kind = code == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_LIMIT;
    return err_set(e, kind,
                   "splitting the text into pieces failed at byte %zu of a stretch (%s); "
                   "break the text up there",
                   at, (const char *)text);
}

static int run_stage(struct split_job *j, int stage, const struct split_piece *whole,
                     unsigned bytes, struct err *e);

// Gives a piece to the next stage that may cut it; bytes: the kinds of bytes in it, 0 for unknown.
static int deliver_piece(struct split_job *j, int stage, const struct split_piece *piece,
                         unsigned bytes, struct err *e) {
    const struct split_stage *stages = j->split->rule->stage;
    if (piece->n == 0)
        return 0;
    while (bytes && stage < j->split->n_stages && stages[stage].ascii &&
           split_ascii_idle(stages[stage].ascii, bytes))
        stage++;
    if (stage == j->split->n_stages)
        return j->fn(j->arg, piece->bytes, piece->n, e);
    return run_stage(j, stage, piece, bytes, e);
}

// The next match of a stage's expression after `at`.
static int find_match(struct split_job *j, int stage, const struct split_piece *text, size_t at,
                      struct split_span *span, struct err *e) {
    const struct split_ascii *ascii = j->split->rule->stage[stage].ascii;
    if (ascii && !j->expressions_only) {
        enum split_ascii_found found = split_ascii_find(ascii, text->bytes, text->n, at, span);
        if (found != SPLIT_UNDECIDED)
            return found == SPLIT_FOUND ? MATCH : NO_MATCH;
    }
    int rc = pcre2_match(j->split->code[stage], (PCRE2_SPTR)text->bytes, text->n, at,
                         PCRE2_NO_UTF_CHECK, j->data, j->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return NO_MATCH;
    if (rc < 0)
        return match_failed(rc, at, e);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(j->data);
    *span = (struct split_span){found[0], found[1], 0};
    return MATCH;
}

// Matches and the gaps between them go to the next stage; what is known of the whole piece's bytes
// holds for its parts. The depth of the recursion is the number of stages. No expression of the
// table matches the empty string.
static int run_stage(struct split_job *j, int stage, const struct split_piece *whole,
                     unsigned bytes, struct err *e) {
    struct split_span span = {0};
    size_t at = 0;
    while (at < whole->n) {
        int found = find_match(j, stage, whole, at, &span, e);
        if (found == NO_MATCH)
            break;
        const struct split_piece gap = {whole->bytes + at, span.begin - at};
        const struct split_piece match = {whole->bytes + span.begin, span.end - span.begin};
        int rc = found < 0 ? found : deliver_piece(j, stage + 1, &gap, bytes, e);
        if (!rc)
            rc = deliver_piece(j, stage + 1, &match, span.bytes ? span.bytes : bytes, e);
        if (rc)
            return rc;
        at = span.end;
    }
    const struct split_piece rest = {whole->bytes + at, whole->n - at};
    return deliver_piece(j, stage + 1, &rest, bytes, e);
}

void split_expressions_only(struct split_job *j) {
    j->expressions_only = true;
}

int split_text(struct split_job *j, const char *text, size_t n, split_piece_fn *fn, void *arg,
               struct err *e) {
    // Every expression tries a handful of alternatives, each at most once over a stretch.
    uint64_t limit = 1000000 + 16 * (uint64_t)n;
    pcre2_set_match_limit(j->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    j->fn = fn;
    j->arg = arg;
    const struct split_piece whole = {text, n};
    return deliver_piece(j, 0, &whole, 0, e);
}
