// SPDX-License-Identifier: Apache-2.0
// The table of pre-tokenisers and its execution. Expressions are written out of a few shared
// parts; white space is spelled as Unicode's 25 White_Space characters, because \s of PCRE2
// also holds U+180E, which the tokenizers of the models do not count. UTF-8 is validated by the
// caller, once. Match limits are linear in the text: an expression that would need more ends in
// an error, not in a hang.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define MAX_STAGES 3

// White space, to stand inside a class.
#define S                                                                                          \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"    \
    "\\x{205F}\\x{3000}"

#define BLANK       "[" S "]+(?![^" S "])|[" S "]+"
#define SPACES      "[" S "]*[\\r\\n]+|" BLANK
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define ONE_BEFORE  "[^\\r\\n\\p{L}\\p{N}]?"
#define SYMBOLS     " ?[^" S "\\p{L}\\p{N}]+"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CAMEL_1     ONE_BEFORE UPPER "*" LOWER "+"
#define CAMEL_2     ONE_BEFORE UPPER "+" LOWER "*"

#define GPT2  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" BLANK
#define QWEN2 CONTRACTION "|" ONE_BEFORE "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|" SPACES
#define QWEN35                                                                                     \
    CONTRACTION "|" ONE_BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^" S                                     \
                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define LLAMA3 CONTRACTION "|" ONE_BEFORE "\\p{L}+|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" SPACES
#define GPT4O                                                                                      \
    CAMEL_1 CONTRACTION "?|" CAMEL_2 CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" SPACES
#define TEKKEN CAMEL_1 "|" CAMEL_2 "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" SPACES
#define DEEPSEEK3                                                                                  \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"      \
    "[\\r\\n]*|" SPACES

struct split_rule {
    const char *names; // one or more, separated by a space; the first is the rule's own
    const char *stage[MAX_STAGES];
    bool whole_pieces, add_bos;
};

static const struct split_rule rules[] = {
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     .stage = {QWEN2}},
    {.names = "qwen35", .stage = {QWEN35}},
    {.names = "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion "
              "granite-docling roberta-bpe jina-es jina-de jina-v2-code",
     .stage = {GPT2}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .stage = {LLAMA3},
     .whole_pieces = true,
     .add_bos = true},
    {.names = "smaug-bpe dbrx glm4 chatglm-bpe", .stage = {LLAMA3}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .stage = {GPT4O}},
    {.names = "tekken", .stage = {TEKKEN}, .whole_pieces = true, .add_bos = true},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .stage = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
               DEEPSEEK3}},
    {.names = "laguna", .stage = {"[^\\n]+|[\\n]+", QWEN2}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b",
     .stage = {"\\p{N}", GPT2}},
};

#define N_RULES (sizeof rules / sizeof *rules)

struct split {
    const struct split_rule *rule;
    pcre2_code *code[MAX_STAGES];
    int n_stages;
};

struct split_job {
    const struct split *split;
    pcre2_match_data *data;
    pcre2_match_context *context;
    split_piece_fn *fn;
    void *arg;
};

static bool names_hold(const char *names, const char *name, size_t n) {
    for (const char *at = names; *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, name, n) == 0)
            return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

static const struct split_rule *find_rule(const char *name, size_t n, struct err *e) {
    for (size_t i = 0; i < N_RULES; i++) {
        if (names_hold(rules[i].names, name, n))
            return &rules[i];
    }
    struct str known = {0};
    for (size_t i = 0; i < N_RULES; i++) {
        if (i > 0)
            str_puts(&known, ", ");
        str_append(&known, rules[i].names, strcspn(rules[i].names, " "));
    }
    err_set(e, ERR_UNSUPPORTED,
            "pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known here; known are %s and "
            "their synonyms",
            n < 64 ? (int)n : 64, name, known.failed ? "qwen2, qwen35" : known.data);
    str_fini(&known);
    return NULL;
}

static int compile(pcre2_code **out, const char *expression, struct err *e) {
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR text[128];
    *out = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
    if (!*out) {
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ERR_UNSUPPORTED,
                       "this PCRE2 does not take a pre-tokenizer's expression (%s at %zu); "
                       "install PCRE2 10.39 or newer",
                       (const char *)text, (size_t)at);
    }
    // Without JIT (hardened systems forbid it) matching is slower and gives the same.
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return 0;
}

int split_create(struct split **out, const char *pre, size_t n_pre, struct err *e) {
    *out = NULL;
    const struct split_rule *rule = find_rule(pre, n_pre, e);
    if (!rule)
        return ERR_UNSUPPORTED;
    struct split *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the pre-tokenizer; free some memory");
    s->rule = rule;
    int rc = 0;
    while (!rc && s->n_stages < MAX_STAGES && rule->stage[s->n_stages]) {
        rc = compile(&s->code[s->n_stages], rule->stage[s->n_stages], e);
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
    for (int i = 0; i < MAX_STAGES; i++)
        pcre2_code_free(s->code[i]);
    free(s);
}

bool split_whole_pieces(const struct split *s) {
    return s->rule->whole_pieces;
}

bool split_add_bos(const struct split *s) {
    return s->rule->add_bos;
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

static int run_stage(struct split_job *j, int stage, const char *text, size_t n, struct err *e);

static int deliver(struct split_job *j, int stage, const char *text, size_t n, struct err *e) {
    if (n == 0)
        return 0;
    if (stage == j->split->n_stages)
        return j->fn(j->arg, text, n, e);
    return run_stage(j, stage, text, n, e);
}

// Matches and the gaps between them go to the next stage. The depth of the recursion is the
// number of stages. No expression of the table matches the empty string.
static int run_stage(struct split_job *j, int stage, const char *text, size_t n, struct err *e) {
    const pcre2_code *code = j->split->code[stage];
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(j->data);
    size_t at = 0;
    while (at < n) {
        int found =
            pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, j->data, j->context);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0)
            return match_failed(found, at, e);
        size_t begin = span[0], end = span[1];
        int rc = deliver(j, stage + 1, text + at, begin - at, e);
        if (!rc)
            rc = deliver(j, stage + 1, text + begin, end - begin, e);
        if (rc)
            return rc;
        at = end;
    }
    return deliver(j, stage + 1, text + at, n - at, e);
}

int split_text(struct split_job *j, const char *text, size_t n, split_piece_fn *fn, void *arg,
               struct err *e) {
    // Every expression tries a handful of alternatives, each at most once over a stretch.
    uint64_t limit = 1000000 + 16 * (uint64_t)n;
    pcre2_set_match_limit(j->context, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    j->fn = fn;
    j->arg = arg;
    return deliver(j, 0, text, n, e);
}
