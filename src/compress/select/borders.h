// SPDX-License-Identifier: Apache-2.0
// Where a text may be cut: behind lines, sentences and words, never inside a character, a word or a
// tag. A border lies behind the white space that follows what it ends, but before the indentation
// of a line, so that pieces put together again read as they did. It looks at bytes near a place
// and knows no language.
#ifndef COPPICE_COMPRESS_SELECT_BORDERS_H
#define COPPICE_COMPRESS_SELECT_BORDERS_H

#include <stdbool.h>
#include <stddef.h>

// From worst to best.
enum border {
    BORDER_NONE,
    BORDER_MARK,     // behind a comma, a semicolon or a closing bracket
    BORDER_WORD,     // behind white space, or beside an ideograph
    BORDER_LINE,     // behind a line end
    BORDER_SENTENCE, // behind a sentence or an empty line
    BORDER_END,      // the end of the text
};

// A run without any border that is longer than so many bytes is no word (base64, a file of one
// line): it may be cut between characters.
enum { BORDER_WORD_MAX = 1024 };

// Where to cut at or near byte `at` of text[0 .. n), at <= n: within the white space around it, or
// at the next character.
size_t border_near(const char *text, size_t n, size_t at);
// What kind of border byte `at` <= n is; 0 is none.
enum border border_kind(const char *text, size_t n, size_t at);
// Whether a character begins at byte `at` that does not belong to the one before.
bool border_of_character(const char *text, size_t n, size_t at);

#endif
