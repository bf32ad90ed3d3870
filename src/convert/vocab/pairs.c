// SPDX-License-Identifier: Apache-2.0
// Pairs of tokenizer.json: its vocabulary, added tokens and merges, byte-level ones with the name
// of their splitting, and those of Gemma 4 over text in which U+2581 stands for a blank.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/vocab/vocab.h"
#include "text/tokenizer/norm.h"

// The step of that type: the given one, or one in its list.
static const struct json *find_step(const struct json *step, const char *list, const char *type) {
    const char *t = json_str(json_get(step, "type"), NULL);
    if (t && !strcmp(t, type))
        return step;
    const struct json *steps = json_get(step, list);
    for (size_t i = 0; i < json_len(steps); i++) {
        const struct json *s = json_at(steps, i);
        t = json_str(json_get(s, "type"), NULL);
        if (t && !strcmp(t, type))
            return s;
    }
    return NULL;
}

// How tokenizer.json cuts texts becomes a name in the file: chains of steps are known by their
// expressions, letter by letter, as published folders have them. Some of these spell a line end as
// itself and others as an escape, and copies may be in another normal form; both are the same here.

#define HEAD  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
#define MARKS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define TAIL  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 HEAD "\\p{L}+|\\p{N}" MARKS TAIL

#define CASES      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define NO_LETTER  "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS   "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WITH_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL

#define EAST_ASIAN "[一-龥ࠀ-一가-퟿]+"
#define CASED                                                                                      \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ"                                 \
    "ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-"                                 \
    "Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-"                                 \
    "ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

enum { SPLITS_MAX = 5 };
// Whether a piece that is a token is not merged. Where vocabularies are made from ranks, as for
// gpt-4o, merging it gives the token as well.
enum whole { MERGED, WHOLE, EITHER };

// The steps of type Split, one after the other; `digits`: then each digit alone.
static const struct splitting {
    const char *expression[SPLITS_MAX], *name;
    enum whole whole;
    bool digits, with_next; // with_next: what the first finds begins the text after it
} splittings[] = {
    {{QWEN2}, .name = "qwen2"},
    {{HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL}, .name = "qwen35"},
    {{HEAD "[\\p{M}\\p{L}]+|\\p{N}| ?[^\\s\\p{M}\\p{L}\\p{N}]+[\\r\\n]*|" TAIL}, .name = "qwen35"},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, .name = "llama-bpe", .whole = WHOLE},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, .name = "smaug-bpe"},
    {{NO_LETTER CAPITALS "*" SMALL "+" CASES "|" NO_LETTER CAPITALS "+" SMALL "*" CASES
                         "|\\p{N}{1,3}" WITH_SLASH},
     .name = "gpt-4o",
     .whole = EITHER},
    {{NO_LETTER CAPITALS "*" SMALL "+|" NO_LETTER CAPITALS "+" SMALL "*|\\p{N}" WITH_SLASH},
     .name = "tekken",
     .whole = WHOLE},
    {{"(?:\\r?\\n)+(?!\\r?\\n)", QWEN2}, .name = "laguna", .with_next = true},
    {{"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL},
     .name = "deepseek-v3"},
    {{"[\\r\\n]", "\\s?[" CASED "]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", EAST_ASIAN},
     .name = "deepseek-llm",
     .digits = true},
    {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN},
     .name = "deepseek-coder",
     .digits = true},
};

// Brings an expression into the form of the table. Most are plain ASCII, which is its own normal
// form, so that a build without Unicode's tables converts them too.
static int spell_expression(struct vocab *v, const char *re, size_t n, struct str *out) {
    struct str normal = {0};
    int rc = 0;
    if (norm_is_plain(re, n))
        str_append(&normal, re, n);
    else
        rc = norm_nfc(&normal, re, n, v->e);
    str_clear(out);
    for (size_t i = 0; i < normal.len && !rc; i++) {
        char c = normal.data[i];
        if (c == '\r' || c == '\n')
            str_puts(out, c == '\r' ? "\\r" : "\\n");
        else
            str_putc(out, c);
    }
    rc = rc || !(normal.failed || out->failed) ? rc : vocab_no_memory(v);
    str_fini(&normal);
    return rc;
}

// What a step does with what it finds: pieces of their own, however that is put.
static bool cuts_out(const struct json *step) {
    const char *how = json_str(json_get(step, "behavior"), NULL);
    bool invert = json_bool(json_get(step, "invert"), false);
    return how && !strcmp(how, "Removed") ? invert : !invert && (!how || !strcmp(how, "Isolated"));
}

static bool joins_next(const struct json *step) {
    const char *how = json_str(json_get(step, "behavior"), NULL);
    return how && !strcmp(how, "MergedWithNext") && !json_bool(json_get(step, "invert"), false);
}

// The chain of a folder, its expressions spelt as in the table.
struct chain {
    struct str expression[SPLITS_MAX];
    int splits;
    bool digits, with_next, whole, strange; // strange: a step that no row has
};

static int read_split(struct vocab *v, const struct json *step, struct chain *c) {
    size_t n = 0;
    const char *re = json_str(json_get(json_get(step, "pattern"), "Regex"), &n);
    bool next = c->splits == 0 && joins_next(step);
    c->strange |= !re || c->splits == SPLITS_MAX || c->digits || (!next && !cuts_out(step));
    if (c->strange)
        return 0;
    c->with_next |= next;
    return spell_expression(v, re, n, &c->expression[c->splits++]);
}

static int read_chain(struct vocab *v, const struct json *steps, struct chain *c) {
    int rc = 0;
    for (size_t i = 0; i < json_len(steps) && !rc; i++) {
        const struct json *step = json_at(steps, i);
        const char *type = json_str(json_get(step, "type"), NULL);
        bool digits = type && !strcmp(type, "Digits");
        if (type && !strcmp(type, "Split"))
            rc = read_split(v, step, c);
        else if (!digits && (!type || strcmp(type, "ByteLevel") || i + 1 < json_len(steps)))
            c->strange = true;
        c->strange |= digits && !json_bool(json_get(step, "individual_digits"), false);
        c->digits |= digits;
    }
    return rc;
}

static bool is_row(const struct chain *c, const struct splitting *s) {
    bool same = s->digits == c->digits && s->with_next == c->with_next &&
                (s->whole == EITHER || (s->whole == WHOLE) == c->whole);
    for (int i = 0; i < SPLITS_MAX && same; i++)
        same = i < c->splits ? s->expression[i] && !strcmp(s->expression[i], c->expression[i].data)
                             : !s->expression[i];
    return same;
}

// Without an expression of its own the step ByteLevel splits as gpt-2 does, with a step for digits
// as smollm does. NULL: not known.
static const char *find_splitting_name(const struct chain *c, const struct json *level) {
    bool own = json_bool(json_get(level, "use_regex"), true);
    if (!level || c->strange || json_bool(json_get(level, "add_prefix_space"), false))
        return NULL;
    if (!c->splits)
        return !own || c->whole ? NULL : c->digits ? "smollm" : "gpt-2";
    for (size_t i = 0; i < sizeof splittings / sizeof *splittings; i++)
        if (!json_bool(json_get(level, "use_regex"), false) && is_row(c, &splittings[i]))
            return splittings[i].name;
    return NULL;
}

// The name of tokenizer.json's splitting, known by its expressions. ERR_UNSUPPORTED for others.
static int name_splitting(struct vocab *v, const char **pre) {
    const struct json *step = hf_get(&v->tokenizer, "pre_tokenizer");
    struct chain c = {.whole = json_bool(hf_get(&v->tokenizer, "model.ignore_merges"), false)};
    int rc = read_chain(v, json_get(step, "pretokenizers"), &c);
    *pre = rc ? NULL : find_splitting_name(&c, find_step(step, "pretokenizers", "ByteLevel"));
    for (int i = 0; i < SPLITS_MAX; i++)
        str_fini(&c.expression[i]);
    if (rc || *pre)
        return rc;
    return vocab_refuse(v, "a pre-tokenizer (or ignore_merges) other than that of qwen2, qwen35, "
                           "llama-bpe, gpt-2, smollm, gpt-4o, tekken, laguna, deepseek-v3, "
                           "deepseek-llm or deepseek-coder");
}

static int add_vocab_entry(void *arg, const char *key, size_t n, const struct json *value) {
    return vocab_add(arg, key, n, json_int(value, -1), TOKEN_NORMAL);
}

// tokenizer.json's vocabulary with its added tokens.
static int read_tokens(struct vocab *v) {
    const struct json *vocab = hf_get(&v->tokenizer, "model.vocab");
    const struct json *added = hf_get(&v->tokenizer, "added_tokens");
    if (json_kind_of(vocab) != JSON_OBJECT)
        return vocab_refuse(v, "no vocabulary object");
    int rc = json_each(vocab, add_vocab_entry, v);
    for (size_t i = 0; i < json_len(added) && !rc; i++) {
        const struct json *t = json_at(added, i);
        size_t n = 0;
        const char *s = json_str(json_get(t, "content"), &n);
        if (!s || !n)
            return vocab_refuse(v, "an added token without text");
        rc = vocab_add(v, s, n, json_int(json_get(t, "id"), -1),
                       vocab_added_type(s, n, json_bool(json_get(t, "special"), false)));
    }
    return rc;
}

// Appends one half of a merge; a space in it is written as its byte-level stand-in U+0120.
static void append_merge_half(struct str *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ')
            str_puts(out, "\xc4\xa0");
        else
            str_putc(out, s[i]);
    }
}

static int add_merge(struct vocab *v, const struct json *m) {
    struct str joined = {0};
    size_t n = 0, k = 0;
    const char *s = json_str(m, &n);
    if (json_kind_of(m) == JSON_ARRAY && json_len(m) == 2) {
        const char *left = json_str(json_at(m, 0), &n), *right = json_str(json_at(m, 1), &k);
        if (left && right && n && k) {
            append_merge_half(&joined, left, n);
            str_putc(&joined, ' ');
            append_merge_half(&joined, right, k);
        }
        s = joined.data;
        n = joined.len;
    }
    const char *space = s && n > 2 ? memchr(s + 1, ' ', n - 2) : NULL;
    const char *kept = space && !joined.failed ? arena_strndup(&v->arena, s, n) : NULL;
    bool failed = joined.failed;
    str_fini(&joined);
    if (!space && !failed)
        return err_set(v->e, ERR_FORMAT,
                       "merge %" PRIu64 " in %s is not two texts: get the file "
                       "again",
                       v->merges, v->where.data);
    if (!kept)
        return vocab_no_memory(v);
    v->merge[v->merges] = kept;
    v->merge_length[v->merges++] = n;
    return 0;
}

static int read_merges(struct vocab *v) {
    const struct json *merges = hf_get(&v->tokenizer, "model.merges");
    size_t n = json_len(merges);
    int rc = 0;
    v->merge = calloc(n + 1, sizeof *v->merge);
    v->merge_length = calloc(n + 1, sizeof *v->merge_length);
    if (!v->merge || !v->merge_length)
        return vocab_no_memory(v);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_merge(v, json_at(merges, i));
    return rc;
}

static int check_pairs_of_words(const struct vocab *v) {
    const struct hf_file *f = &v->tokenizer;
    const char *suffix = json_str(hf_get(f, "model.end_of_word_suffix"), NULL);
    const char *prefix = json_str(hf_get(f, "model.continuing_subword_prefix"), NULL);
    if (!hf_string_is(f, "model.type", "BPE"))
        return vocab_refuse(v, "a model that is not BPE");
    if ((suffix && *suffix) || (prefix && *prefix))
        return vocab_refuse(v, "word prefixes or suffixes");
    return 0;
}

static int check_pairs_model(struct vocab *v, bool *nfc) {
    const struct hf_file *f = &v->tokenizer;
    const struct json *normalizer = hf_get(f, "normalizer");
    int rc = check_pairs_of_words(v);
    if (rc)
        return rc;
    if (json_bool(hf_get(f, "model.byte_fallback"), false))
        return vocab_refuse(v, "byte_fallback and no tokenizer.model next to it");
    const struct json *steps = json_get(normalizer, "normalizers"); // there may be none in it
    *nfc = find_step(normalizer, "normalizers", "NFC") != NULL;
    if (normalizer && (steps ? json_len(steps) != *nfc : !*nfc))
        return vocab_refuse(v, "a normaliser other than NFC");
    return 0;
}

// Where digits stand alone, files say that runs of them do not merge with others: the same only if
// no two of them merge.
static int check_digits(struct vocab *v) {
    for (uint64_t i = 0; i < v->merges; i++)
        if (strspn(v->merge[i], "0123456789 ") == v->merge_length[i])
            return vocab_refuse(v, "digits that stand alone and merges of digits");
    return 0;
}

int vocab_put_pairs(struct gguf_writer *w, struct vocab *v) {
    bool nfc = false;
    int rc = check_pairs_model(v, &nfc);
    const char *pre = NULL;
    if (!rc)
        rc = name_splitting(v, &pre);
    if (!rc)
        rc = read_tokens(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (!rc)
        rc = read_merges(v);
    if (!rc && !strcmp(pre, "deepseek-llm"))
        rc = check_digits(v);
    if (rc)
        return rc;
    vocab_write_pairs(w, v, pre);
    if (nfc)
        gguf_put_bool(w, "tokenizer.ggml.normalizer.nfc", true);
    return 0;
}

// Gemma 4: pairs over text in which U+2581 stands for a blank, with a token for each byte that no
// other token covers. A GGUF file says all of it with the name "gemma4", so everything that name
// implies is checked: how text is normalised and cut, that no merge crosses a line end, that merges
// and bytes have their tokens.

#define BLANK "\xE2\x96\x81"
#define SCORE -1000.0f // files have scores, which no reader uses where there are merges

// The step itself, or the only one of a sequence.
static const struct json *only_step(const struct json *step, const char *list) {
    const struct json *steps = json_get(step, list);
    return json_len(steps) == 1 ? json_at(steps, 0) : step;
}

// Blanks become U+2581 and nothing else happens; text is not cut, or at blanks, of which there are
// none left.
static int check_escaped_form(struct vocab *v) {
    const struct hf_file *f = &v->tokenizer;
    const struct json *normal = only_step(hf_get(f, "normalizer"), "normalizers");
    const struct json *cut = only_step(hf_get(f, "pre_tokenizer"), "pretokenizers");
    int rc = check_pairs_of_words(v);
    if (rc)
        return rc;
    if (json_bool(hf_get(f, "model.ignore_merges"), false))
        return vocab_refuse(v, "ignore_merges, which gemma4 does not have");
    if (!hf_is(json_get(normal, "type"), "Replace") ||
        !hf_is(json_get(json_get(normal, "pattern"), "String"), " ") ||
        !hf_is(json_get(normal, "content"), BLANK))
        return vocab_refuse(v, "a normaliser other than that blanks become U+2581");
    if (cut && (!hf_is(json_get(cut, "type"), "Split") ||
                !hf_is(json_get(json_get(cut, "pattern"), "String"), " ")))
        return vocab_refuse(v, "a pre-tokenizer other than a Split at blanks");
    return 0;
}

// Tokens of calls and thoughts belong to a reply's text, whatever their flag.
static bool is_visible(const char *s, size_t n) {
    static const char *const names[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                        "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                        "<|\"|>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && !memcmp(s, names[i], n))
            return true;
    return false;
}

static int check_escaped_added(struct vocab *v) {
    const struct json *added = hf_get(&v->tokenizer, "added_tokens");
    for (size_t i = 0; i < json_len(added); i++) {
        const char *s = json_str(json_get(json_at(added, i), "content"), NULL);
        if (s && (strchr(s, ' ') || strstr(s, BLANK)))
            return vocab_refuse(v, "an added token with a blank in it");
    }
    return 0;
}

static int set_escaped_types(struct vocab *v) {
    char name[8];
    uint32_t id;
    for (int byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        if (!map_find(&v->ids, name, 6, &id))
            return vocab_refuse(v, "not a token for each byte (<0x00> to <0xFF>)");
        v->type[id] = TOKEN_BYTE;
    }
    for (int64_t i = 0; i < v->rows; i++) {
        v->score[i] = SCORE;
        if (v->type[i] == TOKEN_CONTROL && is_visible(v->text[i], v->length[i]))
            v->type[i] = TOKEN_USER;
    }
    return 0;
}

static bool is_escaped_token(const struct vocab *v, const char *s, size_t n) {
    uint32_t id;
    return map_find(&v->ids, s, n, &id);
}

// Both parts and what they make must be tokens, and line ends merge with line ends only: files of
// this kind are read line by line.
static int check_escaped_merge(struct vocab *v, uint64_t i, struct str *joined) {
    const char *s = v->merge[i];
    size_t n = v->merge_length[i], left = (size_t)((const char *)memchr(s + 1, ' ', n - 1) - s);
    str_clear(joined);
    str_append(joined, s, left);
    str_append(joined, s + left + 1, n - left - 1);
    if (joined->failed)
        return vocab_no_memory(v);
    if (!is_escaped_token(v, s, left) || !is_escaped_token(v, s + left + 1, n - left - 1) ||
        !is_escaped_token(v, joined->data, joined->len))
        return err_set(v->e, ERR_FORMAT,
                       "merge %" PRIu64 " in %s has a part that is no token: get the file again", i,
                       v->where.data);
    size_t ends = 0;
    for (size_t k = 0; k < joined->len; k++)
        ends += joined->data[k] == '\n';
    return ends && ends < joined->len
               ? vocab_refuse(v, "a merge of a line end with another character")
               : 0;
}

static int check_escaped_merges(struct vocab *v) {
    struct str joined = {0};
    int rc = 0;
    for (uint64_t i = 0; i < v->merges && !rc; i++)
        rc = check_escaped_merge(v, i, &joined);
    str_fini(&joined);
    return rc;
}

int vocab_put_escaped(struct gguf_writer *w, struct vocab *v) {
    int rc = check_escaped_form(v);
    if (!rc)
        rc = check_escaped_added(v);
    if (!rc)
        rc = read_tokens(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (!rc)
        rc = set_escaped_types(v);
    if (!rc)
        rc = read_merges(v);
    if (!rc)
        rc = check_escaped_merges(v);
    if (rc)
        return rc;
    v->always_bos = true;
    gguf_put_str(w, "tokenizer.ggml.model", "gemma4", 6);
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->score, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    gguf_put_str_array(w, "tokenizer.ggml.merges", v->merge, v->merge_length, v->merges);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    return 0;
}
