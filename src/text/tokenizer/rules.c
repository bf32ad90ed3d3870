// SPDX-License-Identifier: Apache-2.0
// Expressions are written out of a few shared parts. White space is spelled as Unicode's 25
// White_Space characters, because \s of PCRE2 also holds U+180E, which the tokenizers of the
// models do not count. Classes stand where the originals subtract sets or look ahead, so that long
// runs need no stack. Stages are those of the models' own tokenizers.
#include "text/tokenizer/rules.h"

#include <string.h>

#include "base/str.h"

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

// The same two classes without Han characters: all that is in no other category and not Han.
#define NO_HAN      "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define UPPER_OTHER "[^\\p{Ll}" NO_HAN
#define LOWER_OTHER "[^\\p{Lu}\\p{Lt}" NO_HAN

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" BLANK
#define WORDS  CONTRACTION "|" ONE_BEFORE "\\p{L}+|"
#define QWEN2  WORDS "\\p{N}|" SYMBOLS "[\\r\\n]*|" SPACES
#define LLAMA3 WORDS "\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" SPACES
#define QWEN35                                                                                     \
    CONTRACTION "|" ONE_BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^" S                                     \
                "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define GPT4O                                                                                      \
    CAMEL_1 CONTRACTION "?|" CAMEL_2 CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" SPACES
#define TEKKEN CAMEL_1 "|" CAMEL_2 "|\\p{N}|" SYMBOLS "[\\r\\n/]*|" SPACES
#define KIMI                                                                                       \
    "\\p{sc:Han}+|" ONE_BEFORE UPPER_OTHER "*" LOWER_OTHER "+" CONTRACTION                         \
    "?|" ONE_BEFORE UPPER_OTHER "+" LOWER_OTHER "*" CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS           \
    "[\\r\\n]*|" SPACES
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" S "\\p{L}\\p{N}]++"         \
    "[\\r\\n]*|[" S "]*[\\r\\n]|" BLANK
#define DEEPSEEK3                                                                                  \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"      \
    "[\\r\\n]*|" SPACES
// clang-format off
#define YOUTU                                                                                      \
    CAMEL_1 CONTRACTION "?|" CAMEL_2 CONTRACTION "?|\\p{N}|" SYMBOLS "[\\r\\n/]*|" SPACES
// clang-format on
#define MINICPM5 WORDS "\\p{N}+|" SYMBOLS "[\\r\\n]*|" SPACES

// Scripts by code point.
#define CJK        "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define EAST_ASIAN "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"     \
    "\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"       \
    "[\\x{3105}-\\x{312F}]+|" CJK

// Letters that have case, as the tokenizer of deepseek-llm lists them.
#define CASED                                                                                      \
    "[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"                 \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"         \
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"                           \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"                 \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"                  \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"         \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"                  \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"                 \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"                 \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"         \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define SYMBOLS_LLM                                                                                \
    "[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"
#define ONE_SPACE "[" S "]?"

static const struct split_ascii gpt2 = {.kind = SPLIT_WORDS,
                                        .contraction = SPLIT_EXACT_CASE,
                                        .prefix = SPLIT_BLANK_BEFORE,
                                        .digits = SPLIT_MANY_DIGITS};
// Words whose white space ends after its last line end.
#define WORDS_OF(...) {.kind = SPLIT_WORDS, .newlines = true, __VA_ARGS__}
// The same where a word ends before an upper-case letter that follows a lower-case one.
#define CAMELS(...) WORDS_OF(.camel = true, __VA_ARGS__)
static const struct split_ascii qwen =
    WORDS_OF(.contraction = SPLIT_ANY_CASE, .digits = 1, .trail = "\r\n");
static const struct split_ascii llama3 =
    WORDS_OF(.contraction = SPLIT_ANY_CASE, .digits = 3, .trail = "\r\n");
static const struct split_ascii minicpm5 =
    WORDS_OF(.contraction = SPLIT_ANY_CASE, .digits = SPLIT_ANY_NUMBER, .trail = "\r\n");
static const struct split_ascii deepseek3 =
    WORDS_OF(.prefix = SPLIT_NO_SYMBOL_BEFORE, .trail = "\r\n");
static const struct split_ascii gpt4o =
    CAMELS(.contraction = SPLIT_AFTER_WORD, .digits = 3, .trail = "\r\n/");
static const struct split_ascii youtu =
    CAMELS(.contraction = SPLIT_AFTER_WORD, .digits = 1, .trail = "\r\n/");
static const struct split_ascii kimi =
    CAMELS(.contraction = SPLIT_AFTER_WORD, .digits = 3, .trail = "\r\n");
static const struct split_ascii tekken = CAMELS(.digits = 1, .trail = "\r\n/");
// Runs of one class: which bytes, at least, at most, after white space.
#define RUNS(...) {.kind = SPLIT_RUNS, __VA_ARGS__}
static const struct split_ascii digit = RUNS(SPLIT_DIGIT, 1, 1);
static const struct split_ascii digits = RUNS(SPLIT_DIGIT, 1, 3);
static const struct split_ascii three_digits = RUNS(SPLIT_DIGIT, 3, 3);
static const struct split_ascii all_digits = RUNS(SPLIT_DIGIT, 1, SPLIT_ANY_NUMBER);
static const struct split_ascii no_ascii = RUNS(0, 1, 1);
static const struct split_ascii line_end = RUNS(SPLIT_NEWLINE, 1, 1);
static const struct split_ascii marks = RUNS(SPLIT_PUNCT | SPLIT_SIGN, 1, SPLIT_ANY_NUMBER);
static const struct split_ascii spaced_letters =
    RUNS(SPLIT_LETTER, 1, SPLIT_ANY_NUMBER, .space_before = true);
static const struct split_ascii spaced_punctuation =
    RUNS(SPLIT_PUNCT, 1, SPLIT_ANY_NUMBER, .space_before = true);
static const struct split_ascii spaced_printable =
    RUNS(SPLIT_PUNCT | SPLIT_SIGN | SPLIT_LETTER, 1, SPLIT_ANY_NUMBER, .space_before = true);
static const struct split_ascii lines = {.kind = SPLIT_LINES};
static const struct split_ascii tail = {.kind = SPLIT_TAIL};

static const struct split_rule rules[] = {
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     .stage = {{QWEN2, &qwen}}},
    {.names = "qwen35", .stage = {{QWEN35, &qwen}}},
    {.names = "gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais trillion "
              "granite-docling roberta-bpe jina-es jina-de jina-v1-en jina-v2-es jina-v2-de "
              "jina-v2-code",
     .stage = {{GPT2, &gpt2}}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .stage = {{LLAMA3, &llama3}},
     .whole_pieces = true,
     .add_bos = true},
    {.names = "smaug-bpe dbrx chatglm-bpe", .stage = {{LLAMA3, &llama3}}},
    {.names = "glm4 glm5", .stage = {{LLAMA3, &llama3}}, .whole_pieces = true},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .stage = {{GPT4O, &gpt4o}}},
    {.names = "tekken", .stage = {{TEKKEN, &tekken}}, .whole_pieces = true, .add_bos = true},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .stage = {{"\\p{N}{1,3}", &digits}, {CJK, &no_ascii}, {DEEPSEEK3, &deepseek3}}},
    {.names = "deepseek-llm",
     .stage = {{"[\\r\\n]", &line_end},
               {ONE_SPACE CASED, &spaced_letters},
               {ONE_SPACE SYMBOLS_LLM, &spaced_printable},
               {"[" S "]+$", &tail},
               {EAST_ASIAN, &no_ascii},
               {"\\p{N}+", &all_digits}}},
    {.names = "deepseek-coder",
     .stage = {{"[\\r\\n]", &line_end},
               {ONE_SPACE "\\p{L}+", &spaced_letters},
               {ONE_SPACE "\\p{P}+", &spaced_punctuation},
               {EAST_ASIAN, &no_ascii},
               {"\\p{N}", &digit}}},
    // Line ends begin what follows them.
    {.names = "laguna",
     .stage = {{"(?:\\r?+\\n)++(?:[^\\r\\n]++|\\r(?!\\n))*+", NULL}, {QWEN2, &qwen}}},
    {.names = "gemma4", .stage = {{"[^\\n]+|[\\n]+", &lines}}},
    {.names = "kimi-k2", .stage = {{KIMI, &kimi}}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .stage = {{"\\p{N}", &digit}, {GPT2, &gpt2}}},
    {.names = "falcon",
     .stage = {{"[\\p{P}\\$\\+<=>\\^~\\|`]+", &marks},
               {GPT2, &gpt2},
               {"[0-9][0-9][0-9]", &three_digits}}},
    {.names = "default",
     .stage = {{"[\\p{P}\\$\\+<=>\\^~\\|]+", NULL},
               {GPT2, &gpt2},
               {"\\p{N}+", &all_digits},
               {"[0-9][0-9][0-9]", &three_digits}}},
    {.names = "bailingmoe bailingmoe2 llada-moe", .stage = {{BAILING, &qwen}}},
    {.names = "youtu",
     .stage = {{YOUTU_SCRIPTS, &no_ascii}, {YOUTU, &youtu}},
     .whole_pieces = true},
    {.names = "minicpm5",
     .stage = {{"\\p{N}{1,3}", &digits}, {MINICPM5, &minicpm5}},
     .whole_pieces = true},
    {.names = "chameleon",
     .stage = {{"<sentinel:[0-9]+>", NULL},
               {"IMGIMG[A-I]{1,4}Z", NULL},
               {"[\\t\\n]|    |  ", NULL},
               {"\\p{N}", &digit},
               {"[\\p{P}!-/:-@\\[-`{-~]", NULL},
               {GPT2, &gpt2}},
     .add_bos = true},
};

#define N_RULES (sizeof rules / sizeof *rules)

int split_rule_find(const struct split_rule **out, const char *name, size_t n, struct err *e) {
    for (size_t i = 0; i < N_RULES; i++) {
        *out = &rules[i];
        if (str_lists(rules[i].names, name, n))
            return 0;
    }
    *out = NULL;
    struct str known = {0};
    for (size_t i = 0; i < N_RULES; i++) {
        if (i > 0)
            str_puts(&known, ", ");
        str_append(&known, rules[i].names, strcspn(rules[i].names, " "));
    }
    int rc = err_set(e, ERR_UNSUPPORTED,
                     "pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known here; known are %s "
                     "and their synonyms",
                     n < 64 ? (int)n : 64, name, known.failed ? "qwen2, qwen35" : known.data);
    str_fini(&known);
    return rc;
}
