// SPDX-License-Identifier: Apache-2.0
// The table of pre-tokenisers: which expressions, in which stages, a name in `tokenizer.ggml.pre`
// stands for, and what the name says besides them; and the same for ASCII text without a
// regular-expression engine (ascii.c), several times as fast on English and code. A match that
// another character may change is left to the expression.
#ifndef COPPICE_TEXT_TOKENIZER_RULES_H
#define COPPICE_TEXT_TOKENIZER_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Kinds of bytes; those of an expression's class are added up.
enum split_ascii_bytes {
    SPLIT_UPPER = 1,
    SPLIT_LOWER = 2,
    SPLIT_DIGIT = 4,
    SPLIT_BLANK = 8, // white space that ends no line
    SPLIT_NEWLINE = 16,
    SPLIT_PUNCT = 32, // \p{P}
    SPLIT_SIGN = 64,  // \p{S}
    SPLIT_CONTROL = 128,
    SPLIT_WIDE = 256, // part of a character outside ASCII
    SPLIT_LED = 512,  // of a piece: white space only as its first byte, and others after it
    SPLIT_LETTER = SPLIT_UPPER | SPLIT_LOWER,
    SPLIT_SPACE = SPLIT_BLANK | SPLIT_NEWLINE,
};

enum split_ascii_kind {
    SPLIT_WORDS = 1, // the alternation of words, numbers, symbols and white space
    SPLIT_RUNS,      // runs of one class
    SPLIT_LINES,     // [^\n]+|[\n]+
    SPLIT_TAIL,      // \s+$
};
enum split_ascii_contraction { SPLIT_EXACT_CASE = 1, SPLIT_ANY_CASE, SPLIT_AFTER_WORD };
enum split_ascii_prefix {
    SPLIT_ONE_BEFORE,       // any character but a letter, digit or line end may begin a word
    SPLIT_BLANK_BEFORE,     // a blank may
    SPLIT_NO_SYMBOL_BEFORE, // as the first, but symbols only begin words of ASCII letters
};
enum {
    SPLIT_ANY_NUMBER = 0x7FFFFFFF,
    SPLIT_MANY_DIGITS = -1, // " ?\p{N}+"
};

struct split_ascii {
    enum split_ascii_kind kind;

    // Runs: of `min` to `max` bytes of these kinds, after one white space if there is one.
    unsigned bytes;
    int min, max;
    bool space_before;

    // Words.
    enum split_ascii_contraction contraction; // 0: none
    enum split_ascii_prefix prefix;
    bool camel;        // a word ends before an upper-case letter that follows a lower-case one
    int digits;        // longest run of digits in a piece; 0: the expression takes none
    const char *trail; // characters that symbols take along; NULL: none
    bool newlines;     // white space ends after its last line end
};

enum split_ascii_found { SPLIT_UNDECIDED, SPLIT_FOUND, SPLIT_ABSENT };

struct split_span {
    size_t begin, end;
    unsigned bytes; // kinds of bytes that may be inside; 0: unknown
};

// Searches text[0..n) from `at` < n, the end of the match before or 0, and fills span.
// SPLIT_ABSENT: there is no match. Time is linear over all matches of a text.
enum split_ascii_found split_ascii_find(const struct split_ascii *a, const char *text, size_t n,
                                        size_t at, struct split_span *span);

// Whether the expression leaves a piece of such bytes in one: it matches nothing in it, or all.
bool split_ascii_idle(const struct split_ascii *a, unsigned bytes);

enum { SPLIT_MAX_STAGES = 6 };

struct split_stage {
    const char *expression;
    const struct split_ascii *ascii; // the same for ASCII text, or NULL
};

struct split_rule {
    const char *names; // one or more, separated by a space; the first is the rule's own
    struct split_stage stage[SPLIT_MAX_STAGES]; // up to the first without an expression
    bool whole_pieces;                          // a piece that is a token is not merged
    bool add_bos;                               // the default where the file is silent
};

// The rule of a name. ERR_UNSUPPORTED (and *out NULL) for one that is not in the table, with the
// names that are.
int split_rule_find(const struct split_rule **out, const char *name, size_t n, struct err *e);

#endif
