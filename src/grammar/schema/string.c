// SPDX-License-Identifier: Apache-2.0
// Strings of a schema: lengths, patterns and formats. Without a pattern a string may use
// every escape of JSON; with one, characters are escaped only where they must be, so that the
// pattern can be read as bytes.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "grammar/schema/schema.h"
#include "text/tools/set.h"

// Code points of a string with a pattern and a length: each is up to 20 states. A maxLength above
// LONG is lowered to it, or to what the shortest text of the pattern needs.
enum { LONG = 1024, LONGEST = 4096, MORE = 64 };

#define HOST_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
#define HOST       HOST_LABEL "(?:\\." HOST_LABEL "){0,3}"
#define YEAR       "(?:\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)"
#define DAY                                                                                        \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"          \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 "(?:" BYTE "\\.){3}" BYTE
#define H16  "[0-9a-fA-F]{1,4}"

// a regular expression, NULL: not known
static const char *schema_format(const char *name) {
    static const struct {
        const char *name, *regex;
    } formats[] = {
        {"date", YEAR "-" DAY},
        {"time", TIME},
        {"date-time", YEAR "-" DAY "T" TIME},
        {"duration",
         "P(?:\\d{1,6}W|(?:\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|\\d{1,6}M(?:\\d{1,6}D)?|"
         "\\d{1,6}D)(?:T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|"
         "\\d{1,6}S))?|T(?:\\d{1,6}H(?:\\d{1,6}M(?:\\d{1,6}S)?)?|\\d{1,6}M(?:\\d{1,6}S)?|"
         "\\d{1,6}S))"},
        {"email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,10}){0,2}@" HOST},
        {"hostname", HOST},
        {"ipv4", IPV4},
        {"ipv6", "(?:" H16 ":){7}" H16 "|(?:" H16 ":){6}:" H16 "|(?:" H16 ":){5}(?::" H16
                 "){1,2}|(?:" H16 ":){4}(?::" H16 "){1,3}|(?:" H16 ":){3}(?::" H16 "){1,4}|(?:" H16
                 ":){2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?::" H16 "){1,7}|(?:" H16
                 ":){1,7}:|::|(?:" H16 ":){6}" IPV4 "|::(?:" H16 ":){0,5}" IPV4},
        {"uuid", "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
        {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,19}://" HOST
                "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
                "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
        {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].regex;
    return NULL;
}

uint32_t schema_regex(struct schema *s, const struct json *at, const char *text, size_t n,
                      bool anchored, enum build_coding coding) {
    struct err e = {0};
    uint32_t x;
    if (s->b->e.code)
        return BUILD_NEVER;
    x = build_regex(s->b, text, n, anchored, coding, "the pattern");
    if (s->b->e.code) { // said again with its place
        build_error(s->b, &e);
        s->b->e.code = 0;
        schema_fail(s, e.code, at, NULL, e.text);
    }
    return x;
}

uint32_t schema_text(struct schema *s) {
    static const struct build_chars any[] = {{0, 0x10FFFF}};
    return build_class(s->b, any, 1, BUILD_JSON);
}

// What all patterns and formats say of the text, if there are *any.
static uint32_t match_patterns(struct schema *s, const struct conj *c, enum build_coding coding,
                               bool *any) {
    uint32_t x = BUILD_EMPTY;
    for (int64_t i = 0; i < c->count && !s->b->e.code; i++) {
        const struct json *v = c->list[i].schema, *given = json_get(v, "pattern");
        const char *format = json_str(json_get(v, "format"), NULL);
        size_t n;
        const char *text = json_str(given, &n);
        if (given && !text)
            return schema_fail(s, ERR_FORMAT, v, "pattern", "it must be a string");
        for (int k = 0; k < 2; k++) {
            const char *regex = k == 0 ? text : format ? schema_format(format) : NULL;
            if (!regex)
                continue;
            uint32_t one = schema_regex(s, v, regex, k == 0 ? n : strlen(regex), k == 1, coding);
            x = *any ? build_and(s->b, x, one) : one;
            *any = true;
        }
    }
    return x;
}

uint32_t schema_escaped(struct schema *s, const char *text, size_t n) {
    struct json_writer w = {0};
    jw_str(&w, text, n);
    uint32_t x = w.out.failed ? build_fail(s->b, ERR_MEMORY, "no memory for a schema")
                              : build_bytes(s->b, w.out.data + 1, w.out.len - 2);
    str_fini(&w.out);
    return x;
}

// Texts that a plain `not` of a member leaves out.
static uint32_t left_out(struct schema *s, const struct json *v, enum build_coding coding) {
    const struct json *no = json_get(v, "not"), *list = json_get(no, "enum");
    size_t n;
    const char *text = json_str(json_get(no, "pattern"), &n);
    if (text)
        return schema_regex(s, v, text, n, false, coding);
    uint32_t *parts = calloc(json_len(list) + 1, sizeof *parts);
    if (!parts)
        return build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    for (size_t i = 0; i < json_len(list); i++) {
        text = json_str(json_at(list, i), &n);
        parts[i] = coding == BUILD_JSON ? schema_escaped(s, text, n) : build_bytes(s->b, text, n);
    }
    uint32_t x = build_alt(s->b, parts, json_len(list));
    free(parts);
    return x;
}

// x, which is not any text, with a length.
static uint32_t string_with_length(struct schema *s, const struct conj *c, uint32_t x, int64_t min,
                                   int64_t max) {
    struct build_extent e = s->b->e.code ? (struct build_extent){0} : build_extent(s->b, x, 0);
    const struct json *at = c->list[0].schema;
    for (int64_t i = 0; i < c->count; i++)
        at = json_has(c->list[i].schema, "minLength") ? c->list[i].schema : at;
    if (min > LONGEST)
        return schema_fail(
            s, ERR_LIMIT, at, "minLength",
            "together with a pattern, a format or a not it can be 4096 at most; ask for "
            "the length in the pattern");
    if (max != BUILD_ENDLESS && e.max <= max) // a character is a byte at least
        max = BUILD_ENDLESS;
    int64_t maximum = max_i64(max_i64(LONG, min), e.least + MORE);
    if (max > maximum) {
        max = maximum;
        s->lowered = true;
    }
    if (min == 0 && max == BUILD_ENDLESS)
        return x;
    return build_and(s->b, x, build_repeat(s->b, schema_text(s), min, max));
}

uint32_t schema_string_text(struct schema *s, const struct conj *c) {
    int64_t min = schema_count(s, c, "minLength", true, 0);
    int64_t max = schema_count(s, c, "maxLength", false, BUILD_ENDLESS);
    bool any = false, out = false;
    uint32_t x = match_patterns(s, c, BUILD_JSON, &any),
             all = build_repeat(s->b, schema_text(s), 0, BUILD_ENDLESS);
    for (int64_t i = 0; i < c->count; i++)
        out |= schema_plain_not(c->list[i].schema);
    if (!any && out) { // one way to write each text
        x = all;
        any = true;
    }
    if (!any)
        return build_repeat(s->b, build_json_char(s->b), min, max);
    if (x == all)
        x = build_repeat(s->b, schema_text(s), min, max);
    else
        x = string_with_length(s, c, x, min, max);
    for (int64_t i = 0; i < c->count && out; i++)
        if (schema_plain_not(c->list[i].schema))
            x = build_without(s->b, x, left_out(s, c->list[i].schema, BUILD_JSON));
    return x;
}

// A rule of what patterns or lengths may make large, named by its place for the sentence then.
static uint32_t schema_large(struct schema *s, const struct conj *c, uint32_t x) {
    enum { LOOKED = 1 << 18 }; // a place is looked for in the whole schema
    struct str path = {0};
    if (s->b->e.code || x <= BUILD_EMPTY || s->b->exprs[x].kind == EXPR_CALL || s->looked >= LOOKED)
        return build_shared(s->b, x);
    str_puts(&path, "#");
    schema_place(s, c->list[c->count - 1].schema, &path);
    if (path.failed) // or rules would share a name
        build_fail(s->b, ERR_MEMORY, "no memory for the texts of a grammar");
    uint32_t rule = build_rule(s->b, path.failed ? "" : path.data);
    build_define(s->b, rule, x);
    str_fini(&path);
    return build_call(s->b, rule);
}

uint32_t schema_string(struct schema *s, const struct conj *c) {
    static const char *const words[] = {"minLength", "maxLength", "pattern"};
    uint32_t quote = build_text(s->b, "\""), x;
    bool any = false;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema;
        const char *format = json_str(json_get(v, "format"), NULL);
        any |= schema_plain_not(v) || (format && schema_format(format));
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            any |= json_has(v, words[k]);
    }
    if (!any)
        return build_json_string(s->b);
    x = schema_string_text(s, c);
    return schema_large(s, c, build_seq(s->b, (uint32_t[]){quote, x, quote}, 3));
}

// Strings of a schema that stand between marks, as calls of tools write them: the text itself,
// without quotes and escapes, which does not hold the closing mark. Where another type may
// stand there too, what would be read as that type is no string.

enum { BARE_LONG = 1024 }; // of a string with a pattern and a greatest length

#define BLANKS "[ \\t\\r\\n]*"
#define NUMBER "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

// The reader takes a text for one of these types where it is written like one.
static uint32_t bare_unlike(struct schema *s, const struct conj *c, uint32_t x) {
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
            x = build_without(s->b, x,
                              schema_regex(s, c->list[0].schema, looks[i].text,
                                           strlen(looks[i].text), true, BUILD_PLAIN));
    return x;
}

bool schema_is_bare(const struct conj *c) {
    return c->count > 0 && c->list[0].done & SCHEMA_BARE;
}

uint32_t schema_bare(struct schema *s, const struct conj *c) {
    int64_t min = schema_count(s, c, "minLength", true, 0);
    int64_t max = schema_count(s, c, "maxLength", false, BUILD_ENDLESS);
    bool any = false;
    uint32_t x = match_patterns(s, c, BUILD_PLAIN, &any);
    if (any && max != BUILD_ENDLESS && max > BARE_LONG && min <= BARE_LONG)
        max = BARE_LONG;
    uint32_t text = build_text_without(s->b, s->bare, min, max);
    x = any ? build_and(s->b, x, text) : text;
    for (int64_t i = 0; i < c->count; i++)
        if (schema_plain_not(c->list[i].schema))
            x = build_without(s->b, x, left_out(s, c->list[i].schema, BUILD_PLAIN));
    return schema_large(s, c, bare_unlike(s, c, x));
}

uint32_t schema_marked(struct schema *s, const struct conj *c) {
    uint32_t mark = build_text(s->b, s->b->how.marks);
    return build_seq(s->b, (uint32_t[]){mark, schema_bare(s, c), mark}, 3);
}

uint32_t schema_bare_value(struct schema *s, const struct conj *c, const char *text, size_t n) {
    return build_and(s->b, n ? build_bytes(s->b, text, n) : (uint32_t)BUILD_EMPTY,
                     schema_bare(s, c));
}
