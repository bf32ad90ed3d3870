// SPDX-License-Identifier: Apache-2.0
// Grammars put together from parts: expressions over bytes, named rules that may call each other,
// and what JSON and regular expressions are made of. An expression is a number; what was built may
// be used any number of times. Errors are kept: after the first one, calls do nothing and return
// BUILD_NEVER, so a caller composes freely and looks once, at build_finish.
#ifndef COPPICE_GRAMMAR_EXPRESSION_BUILD_H
#define COPPICE_GRAMMAR_EXPRESSION_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json/json.h"
#include "grammar/grammar.h"

struct build;

enum { BUILD_NEVER = 0, BUILD_EMPTY = 1 }; // no text at all; the empty text
enum { BUILD_ENDLESS = -1 };               // as a greatest count

// work: borrowed until build_destroy; NULL: as zeroed. bytes: of the text that it is for.
int build_create(struct build **out, struct grammar_work *work, size_t bytes, struct err *e);
void build_destroy(struct build *b);
// The grammar whose text is `root`. Returns the first error of all calls so far. ERR_UNSUPPORTED
// for a rule that can call itself before it has read anything, ERR_MISMATCH where no text can
// satisfy the grammar, ERR_LIMIT for more than 2^20 states.
int build_finish(struct build *b, uint32_t root, struct grammar **out, struct err *e);

// Keeps an error of the caller's, unless there is one already. Returns BUILD_NEVER.
uint32_t build_fail(struct build *b, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int build_error(const struct build *b, struct err *e); // 0, or the error so far
// Counts steps; false after an error, of this call too: there is nothing more to do.
bool build_work(struct build *b, int64_t steps);

uint32_t build_bytes(struct build *b, const char *bytes, size_t n); // exactly these
uint32_t build_text(struct build *b, const char *text);             // NUL-terminated
uint32_t build_range(struct build *b, uint8_t lo, uint8_t hi);      // one byte
uint32_t build_seq(struct build *b, const uint32_t *parts, size_t n);
uint32_t build_alt(struct build *b, const uint32_t *parts, size_t n);
uint32_t build_cat(struct build *b, uint32_t first, uint32_t second); // build_seq of two
uint32_t build_or(struct build *b, uint32_t one, uint32_t other);     // build_alt of two

// Parts that are met one by one; a zeroed list is empty. However many they are, they become one
// sequence or one choice: put together two at a time they would be as many deep. Both ways of
// closing a list free it, after errors too.
struct build_list {
    uint32_t *parts;
    int64_t count, cap;
};
void build_add(struct build *b, struct build_list *list, uint32_t part);
uint32_t build_list_seq(struct build *b, struct build_list *list);
uint32_t build_list_alt(struct build *b, struct build_list *list);

// From min to max times. A max above 65,536 is lowered to that, a min above it is ERR_LIMIT.
uint32_t build_repeat(struct build *b, uint32_t part, int64_t min, int64_t max);

// Texts of both; texts of the first that are none of the second. Only for what is regular: calls of
// rules in them are written out, so they must not recur.
uint32_t build_and(struct build *b, uint32_t one, uint32_t other);
uint32_t build_without(struct build *b, uint32_t one, uint32_t other);

// Rules: declared, used by their calls, defined once. An undefined one is ERR_FORMAT at the end.
uint32_t build_rule(struct build *b, const char *name); // returns the rule's number
void build_define(struct build *b, uint32_t rule, uint32_t expression);
uint32_t build_call(struct build *b, uint32_t rule);
// Rules by two numbers each, i below of_i and k below of_k, written when they are called for.
struct build_grid {
    struct build *b;
    uint32_t (*write)(void *arg, int64_t i, int64_t k);
    void *arg;
    int64_t of_i, of_k;
    uint32_t *rules; // rule + 1
};
// A call of a rule, for `write`.
uint32_t build_grid_call(struct build_grid *g, int64_t i, int64_t k);
// A call of rule 0, 0, after it and all that it leads to were written.
uint32_t build_grid(struct build_grid *g);
// An expression as a rule of its own, so that using it often costs one state each.
uint32_t build_shared(struct build *b, uint32_t expression);

// One code point out of ranges, in rising order, as it is written in:
struct build_chars {
    uint32_t lo, hi; // surrogates are left out
};
enum build_coding {
    BUILD_PLAIN, // UTF-8
    BUILD_JSON,  // inside of a JSON string, with escapes only where there must be one
};
uint32_t build_class(struct build *b, const struct build_chars *ranges, size_t n,
                     enum build_coding coding);

// A regular expression; anchored: it matches whole texts even without ^ and $. where: put before
// the sentence of an error ("the pattern at /properties/x").
uint32_t build_regex(struct build *b, const char *text, size_t n, bool anchored,
                     enum build_coding coding, const char *where);

// UTF-8 text that does not hold `end` (not empty) before it comes, and then `end` itself.
uint32_t build_until(struct build *b, const char *end);

// UTF-8 text of min to max code points (BUILD_ENDLESS: any number) that does not hold `without`,
// which is ASCII. Each of them is a state for each byte of `without`: where that are more than
// 2^17, max does not count, and min is ERR_LIMIT.
uint32_t build_text_without(struct build *b, const char *without, int64_t min, int64_t max);

// JSON. build_json_string is any string, with all escapes; build_json_quote exactly one, escaped
// where it must be.
void build_json_how(struct build *b, const struct grammar_json *how); // zeroed at first
uint32_t build_json_value(struct build *b);
uint32_t build_json_object(struct build *b);
uint32_t build_json_array(struct build *b);
uint32_t build_json_string(struct build *b);
uint32_t build_json_char(struct build *b); // one code point of such a string, without quotes
uint32_t build_json_number(struct build *b);
uint32_t build_json_integer(struct build *b);
uint32_t build_json_quote(struct build *b, const char *s, size_t n);
uint32_t build_json_name(struct build *b, const char *s, size_t n); // of a member
// Whether such a name stands alone under `marks`; and any that do.
bool build_is_word(const char *s, size_t n);
uint32_t build_word(struct build *b);
uint32_t build_json_space(struct build *b); // after an opening bracket, before a closing one
uint32_t build_json_comma(struct build *b); // with the space after it
uint32_t build_json_colon(struct build *b);

// About as many bytes as a value of JSON is long.
size_t schema_bytes(const struct json *v);

// The texts that a JSON Schema allows (grammar_from_schema). The schema is borrowed for the call.
uint32_t build_schema(struct build *b, const struct json *schema);
// The same for a value that stands between marks: a string is its own text, without quotes and
// escapes, and does not hold `end`; other values are JSON. No string looks like a value of `others`
// (TOOL_... of text/tools/set.h), for which its reader would take it.
uint32_t build_schema_bare(struct build *b, const struct json *schema, const char *end,
                           unsigned others);

// Sets of code points that are put together from ranges in any order. Errors are kept in the build.

// Zeroed: empty. Taken up by chars_class.
struct chars {
    struct build_chars *ranges;
    int64_t count, cap;
};

void chars_add(struct build *b, struct chars *set, const struct build_chars *ranges, size_t n);
void chars_invert(struct build *b, struct chars *set);
// One code point of the set (build_class), which is empty afterwards.
uint32_t chars_class(struct build *b, struct chars *set, enum build_coding coding);

#endif
