// SPDX-License-Identifier: Apache-2.0
// How tokenizer.json cuts texts becomes a name in the file: chains of steps are known by their
// expressions, letter by letter, as published folders have them. Some of these spell a line end as
// itself and others as an escape, and copies may be in another normal form; both are the same here.
#include <string.h>

#include "convert/vocab/vocab.h"
#include "text/tokenizer/norm.h"

const struct json *vocab_find_step(const struct json *step, const char *list, const char *type) {
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

enum { MOST_SPLITS = 5 };
// Whether a piece that is a token is not merged. Where vocabularies are made from ranks, as for
// gpt-4o, merging it gives the token as well.
enum whole { MERGED, WHOLE, EITHER };

// The steps of type Split, one behind the other; `digits`: then each digit alone.
static const struct splitting {
    const char *expression[MOST_SPLITS], *name;
    enum whole whole;
    bool digits, with_next; // with_next: what the first finds begins the text behind it
} splittings[] = {
    {{QWEN2}, "qwen2", MERGED, false, false},
    {{HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL},
     "qwen35",
     MERGED,
     false,
     false},
    {{HEAD "[\\p{M}\\p{L}]+|\\p{N}| ?[^\\s\\p{M}\\p{L}\\p{N}]+[\\r\\n]*|" TAIL},
     "qwen35",
     MERGED,
     false,
     false},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, "llama-bpe", WHOLE, false, false},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, "smaug-bpe", MERGED, false, false},
    {{NO_LETTER CAPITALS "*" SMALL "+" CASES "|" NO_LETTER CAPITALS "+" SMALL "*" CASES
                         "|\\p{N}{1,3}" WITH_SLASH},
     "gpt-4o",
     EITHER,
     false,
     false},
    {{NO_LETTER CAPITALS "*" SMALL "+|" NO_LETTER CAPITALS "+" SMALL "*|\\p{N}" WITH_SLASH},
     "tekken",
     WHOLE,
     false,
     false},
    {{"(?:\\r?\\n)+(?!\\r?\\n)", QWEN2}, "laguna", MERGED, false, true},
    {{"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL},
     "deepseek-v3",
     MERGED,
     false,
     false},
    {{"[\\r\\n]", "\\s?[" CASED "]+", "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", EAST_ASIAN},
     "deepseek-llm",
     MERGED,
     true,
     false},
    {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN}, "deepseek-coder", MERGED, true, false},
};

// Brings an expression into the form of the table. Most are plain ASCII, which is its own normal
// form, so that a build without Unicode's tables converts them too.
static int spell(struct vocab *v, const char *re, size_t n, struct str *out) {
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
    struct str expression[MOST_SPLITS];
    int splits;
    bool digits, with_next, whole, strange; // strange: a step that no row has
};

static int read_split(struct vocab *v, const struct json *step, struct chain *c) {
    size_t n = 0;
    const char *re = json_str(json_get(json_get(step, "pattern"), "Regex"), &n);
    bool next = c->splits == 0 && joins_next(step);
    c->strange |= !re || c->splits == MOST_SPLITS || c->digits || (!next && !cuts_out(step));
    if (c->strange)
        return 0;
    c->with_next |= next;
    return spell(v, re, n, &c->expression[c->splits++]);
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
    for (int i = 0; i < MOST_SPLITS && same; i++)
        same = i < c->splits ? s->expression[i] && !strcmp(s->expression[i], c->expression[i].data)
                             : !s->expression[i];
    return same;
}

// Without an expression of its own the step ByteLevel splits as gpt-2 does, with a step for digits
// as smollm does. NULL: not known.
static const char *name_of(const struct chain *c, const struct json *level) {
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

int vocab_splitting(struct vocab *v, const char **pre) {
    const struct json *step = hf_get(&v->tokenizer, "pre_tokenizer");
    struct chain c = {.whole = json_bool(hf_get(&v->tokenizer, "model.ignore_merges"), false)};
    int rc = read_chain(v, json_get(step, "pretokenizers"), &c);
    *pre = rc ? NULL : name_of(&c, vocab_find_step(step, "pretokenizers", "ByteLevel"));
    for (int i = 0; i < MOST_SPLITS; i++)
        str_fini(&c.expression[i]);
    if (rc || *pre)
        return rc;
    return vocab_refuse(v, "a pre-tokenizer (or ignore_merges) other than that of qwen2, qwen35, "
                           "llama-bpe, gpt-2, smollm, gpt-4o, tekken, laguna, deepseek-v3, "
                           "deepseek-llm or deepseek-coder");
}
