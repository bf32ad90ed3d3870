// SPDX-License-Identifier: Apache-2.0
// What filters and methods do to text: case, stripping, splitting, replacing, padding. All keep the
// provenance of every byte.
#ifndef COPPICE_TEXT_JINJA_STRINGS_H
#define COPPICE_TEXT_JINJA_STRINGS_H

#include "text/jinja/value.h"

enum jinja_case { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE };
int jinja_change_case(struct jinja_context *c, const struct jinja_string *s, enum jinja_case how,
                      struct jinja_value *out);

// sides: 1 left, 2 right, 3 both. chars: the set to remove, NULL for white space.
int jinja_strip(struct jinja_context *c, const struct jinja_string *s,
                const struct jinja_string *chars, int sides, struct jinja_value *out);
// The first `max` (negative: all) places of `old` become `new`.
int jinja_replace(struct jinja_context *c, const struct jinja_string *s,
                  const struct jinja_string *old, const struct jinja_string *new, int64_t max,
                  struct jinja_value *out);
// Python's split and rsplit; separator NULL: at runs of white space. max < 0: everywhere.
int jinja_split(struct jinja_context *c, const struct jinja_string *s,
                const struct jinja_string *separator, int64_t max, bool from_right,
                struct jinja_value *out);
int jinja_split_lines(struct jinja_context *c, const struct jinja_string *s, bool keep_ends,
                      struct jinja_value *out);
// The next line of s from *at on: its end without the line's end; *at moves past that. False at
// the end of s.
bool jinja_next_line(const struct jinja_string *s, size_t *at, size_t *end);

// Where `part` is in s[from, to) for the first time, in linear time; *found is SIZE_MAX when it
// is not.
int jinja_find(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
               const struct jinja_string *part, size_t *found);
// The same for the last time. What repeats itself takes longer, which is counted.
int jinja_find_last(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
                    const struct jinja_string *part, size_t *found);
// An untrusted or trusted string of one repeated fill is put `times`.
int jinja_put_times(struct jinja_context *c, const struct jinja_string *fill, int64_t times);

#endif
