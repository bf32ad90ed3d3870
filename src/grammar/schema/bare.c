// SPDX-License-Identifier: Apache-2.0
// Strings of a schema that stand between marks, as calls of tools write them: the text itself,
// without quotes and escapes, which does not hold the closing mark. Where another type may stand
// there too, what would be read as that type is no string.
#include <stdlib.h>
#include <string.h>

#include "grammar/schema/schema.h"
#include "text/tools/set.h"

enum { LONG = 1024 }; // of a string with a pattern and a greatest length

#define BLANKS "[ \\t\\r\\n]*"
#define NUMBER "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

static uint32_t any_text(struct schema *s) {
    return build_text_without(s->b, s->bare, 0, BUILD_ENDLESS);
}

static uint32_t regex(struct schema *s, const struct json *at, const char *text, size_t n,
                      bool anchored) {
    return schema_regex(s, at, text, n, anchored, BUILD_PLAIN);
}

static uint32_t patterns(struct schema *s, const struct conj *c, uint32_t x) {
    for (int64_t i = 0; i < c->count && !s->b->e.code; i++) {
        const struct json *v = c->list[i].schema, *given = json_get(v, "pattern");
        const char *name = json_str(json_get(v, "format"), NULL);
        const char *format = name ? schema_format(name) : NULL;
        size_t n = 0;
        const char *text = json_str(given, &n);
        if (given && !text)
            return schema_fail(s, ERR_FORMAT, v, "pattern", "it must be a string");
        if (text)
            x = build_and(s->b, x, regex(s, v, text, n, false));
        if (format)
            x = build_and(s->b, x, regex(s, v, format, strlen(format), true));
    }
    return x;
}

// Texts that a plain `not` of a member leaves out.
static uint32_t without(struct schema *s, const struct json *v, uint32_t x) {
    const struct json *no = json_get(v, "not"), *list = json_get(no, "enum");
    size_t n = 0;
    const char *text = json_str(json_get(no, "pattern"), &n);
    if (text)
        return build_without(s->b, x, regex(s, v, text, n, false));
    for (size_t i = 0; i < json_len(list) && !s->b->e.code; i++) {
        text = json_str(json_at(list, i), &n);
        x = build_without(s->b, x, build_bytes(s->b, text, n));
    }
    return x;
}

// The reader takes a text for one of these types where it is written like one.
static uint32_t unlike(struct schema *s, const struct conj *c, uint32_t x) {
    static const struct {
        unsigned types;
        const char *text;
    } looks[] = {
        {TOOL_NUMBER, BLANKS NUMBER BLANKS},
        {TOOL_BOOL, BLANKS "(?:true|false)" BLANKS "|True|False"},
        {TOOL_NULL, BLANKS "null" BLANKS "|None"},
        {TOOL_ARRAY, BLANKS "\\[[\\s\\S]*"},
        {TOOL_OBJECT, BLANKS "\\{[\\s\\S]*"},
    };
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (s->others & looks[i].types)
            x = build_without(
                s->b, x, regex(s, c->list[0].schema, looks[i].text, strlen(looks[i].text), true));
    return x;
}

bool schema_is_bare(const struct conj *c) {
    return c->count > 0 && c->list[0].done & SCHEMA_BARE;
}

uint32_t schema_bare(struct schema *s, const struct conj *c) {
    int64_t min = schema_count(s, c, "minLength", true, 0);
    int64_t max = schema_count(s, c, "maxLength", false, BUILD_ENDLESS);
    uint32_t any = any_text(s), x = patterns(s, c, any);
    if (min > 0 || max != BUILD_ENDLESS) {
        bool alone = x == any;
        if (!alone && max > LONG && min <= LONG)
            max = LONG;
        uint32_t counted = build_text_without(s->b, s->bare, min, max);
        x = alone ? counted : build_and(s->b, x, counted);
    }
    for (int64_t i = 0; i < c->count; i++)
        if (schema_plain_not(c->list[i].schema))
            x = without(s, c->list[i].schema, x);
    return schema_large(s, c, unlike(s, c, x));
}

uint32_t schema_marked(struct schema *s, const struct conj *c) {
    uint32_t mark = build_text(s->b, s->b->how.marks);
    return build_seq(s->b, (uint32_t[]){mark, schema_bare(s, c), mark}, 3);
}

uint32_t schema_bare_value(struct schema *s, const struct conj *c, const char *text, size_t n) {
    return build_and(s->b, n ? build_bytes(s->b, text, n) : (uint32_t)BUILD_EMPTY,
                     schema_bare(s, c));
}
