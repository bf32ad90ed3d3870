// SPDX-License-Identifier: Apache-2.0
// JSON as it is written (RFC 8259), bounded where a model could go on for ever: blanks between
// tokens, digits of a number. Numbers are finite in a double. A \u escape of half a surrogate pair
// is not allowed.
#include <string.h>

#include "grammar/expression/expr.h"

enum {
    BLANKS = 64,   // after a line end
    DIGITS = 16,   // of a whole part, after the first: 17 in all
    FRACTION = 17, // digits
    EXPONENT = 2,  // digits
    WORD = 64,     // bytes of a name that stands alone
};

uint32_t build_json_space(struct build *b) {
    if (b->how.space == GRAMMAR_SPACE_COMPACT)
        return BUILD_EMPTY;
    if (!b->space) {
        uint32_t blanks = build_repeat(b, build_text(b, " "), 0, BLANKS);
        uint32_t line = build_cat(b, build_text(b, "\n"), blanks);
        uint32_t all[] = {BUILD_EMPTY, build_text(b, " "), line};
        b->space = build_alt(b, all, 3);
    }
    return b->space;
}

uint32_t build_json_comma(struct build *b) {
    return build_cat(b, build_text(b, ","), build_json_space(b));
}

uint32_t build_json_colon(struct build *b) {
    if (b->how.space == GRAMMAR_SPACE_COMPACT)
        return build_text(b, ":");
    return build_or(b, build_text(b, ":"), build_text(b, ": "));
}

static uint32_t hex(struct build *b, const char *ranges) {
    uint32_t parts[4];
    size_t n = 0;
    for (; *ranges; ranges += 2)
        parts[n++] = build_range(b, (uint8_t)ranges[0], (uint8_t)ranges[1]);
    return build_alt(b, parts, n);
}

// \uXXXX of a code point that is no surrogate, or of a pair of them.
static uint32_t unicode_escape(struct build *b) {
    uint32_t any = hex(b, "09AFaf"), u = build_text(b, "\\u"), d = hex(b, "DDdd");
    uint32_t not_d = hex(b, "09ACEFac"), low = hex(b, "07");
    not_d = build_or(b, not_d, hex(b, "ef"));
    uint32_t plain[] = {u, not_d, any, any, any};
    uint32_t below[] = {u, d, low, any, any};
    uint32_t pair[] = {u, d, hex(b, "89ABab"), any, any, u, d, hex(b, "CFcf"), any, any};
    uint32_t all[] = {build_seq(b, plain, 5), build_seq(b, below, 5), build_seq(b, pair, 10)};
    return build_alt(b, all, 3);
}

uint32_t build_json_char(struct build *b) {
    static const struct build_chars plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    if (!b->chars) {
        uint32_t letters[8], n = 0;
        for (const char *c = "\"\\/bfnrt"; *c; c++)
            letters[n++] = build_range(b, (uint8_t)*c, (uint8_t)*c);
        uint32_t escape = build_cat(b, build_text(b, "\\"), build_alt(b, letters, n));
        uint32_t all[] = {build_class(b, plain, 3, BUILD_PLAIN), escape, unicode_escape(b)};
        b->chars = build_alt(b, all, 3);
    }
    return b->chars;
}

uint32_t build_word(struct build *b) {
    static const struct build_chars chars[] = {
        {'-', '-'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    return build_repeat(b, build_class(b, chars, 5, BUILD_PLAIN), 1, WORD);
}

bool build_is_word(const char *s, size_t n) {
    bool word = n > 0 && n <= WORD;
    for (size_t i = 0; i < n && word; i++)
        word = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') ||
               (s[i] >= 'a' && s[i] <= 'z') || s[i] == '-' || s[i] == '_';
    return word;
}

uint32_t build_json_string(struct build *b) {
    if (!b->strings && b->how.marks) {
        uint32_t mark = build_text(b, b->how.marks);
        uint32_t text = build_text_without(b, b->how.marks, 0, BUILD_ENDLESS);
        b->strings = build_shared(b, build_seq(b, (uint32_t[]){mark, text, mark}, 3));
    } else if (!b->strings) {
        uint32_t quote = build_text(b, "\"");
        uint32_t text = build_repeat(b, build_json_char(b), 0, BUILD_ENDLESS);
        b->strings = build_shared(b, build_seq(b, (uint32_t[]){quote, text, quote}, 3));
    }
    return b->strings;
}

uint32_t build_json_integer(struct build *b) {
    if (!b->integers) {
        uint32_t digit = build_range(b, '0', '9');
        uint32_t more = build_repeat(b, digit, 0, DIGITS);
        uint32_t whole = build_cat(b, build_range(b, '1', '9'), more);
        whole = build_or(b, build_text(b, "0"), whole);
        b->integers = build_cat(b, build_or(b, BUILD_EMPTY, build_text(b, "-")), whole);
    }
    return b->integers;
}

uint32_t build_json_number(struct build *b) {
    if (!b->numbers) {
        uint32_t digit = build_range(b, '0', '9');
        uint32_t fraction = build_repeat(b, digit, 1, FRACTION);
        fraction = build_cat(b, build_text(b, "."), fraction);
        uint32_t sign = build_or(b, build_text(b, "+"), build_text(b, "-"));
        uint32_t exponent[] = {build_or(b, build_text(b, "e"), build_text(b, "E")),
                               build_or(b, BUILD_EMPTY, sign), build_repeat(b, digit, 1, EXPONENT)};
        uint32_t parts[] = {build_json_integer(b), build_or(b, BUILD_EMPTY, fraction),
                            build_or(b, BUILD_EMPTY, build_seq(b, exponent, 3))};
        b->numbers = build_shared(b, build_seq(b, parts, 3));
    }
    return b->numbers;
}

// OPEN, any number of items with commas between them, CLOSE.
static uint32_t list_of(struct build *b, const char *open, uint32_t item, const char *close) {
    uint32_t space = build_json_space(b);
    uint32_t next = build_cat(b, build_json_comma(b), item);
    uint32_t items[] = {space, item, build_repeat(b, next, 0, BUILD_ENDLESS)};
    uint32_t inner = build_or(b, BUILD_EMPTY, build_seq(b, items, 3));
    uint32_t all[] = {build_text(b, open), inner, space, build_text(b, close)};
    return build_shared(b, build_seq(b, all, 4));
}

uint32_t build_json_value(struct build *b) {
    if (b->e.code) // or the parts would call each other for ever
        return BUILD_NEVER;
    if (!b->values) {
        uint32_t rule = build_rule(b, "value");
        b->values = build_call(b, rule);
        uint32_t kinds[] = {
            build_json_string(b),  build_json_number(b),  build_json_object(b),
            build_json_array(b),   build_text(b, "true"), build_text(b, "false"),
            build_text(b, "null"),
        };
        build_define(b, rule, build_alt(b, kinds, sizeof kinds / sizeof *kinds));
    }
    return b->values;
}

uint32_t build_json_object(struct build *b) {
    if (b->e.code)
        return BUILD_NEVER;
    if (!b->objects) {
        build_json_value(b); // its rule comes first: the two need each other
        if (b->objects)
            return b->objects;
        uint32_t member[] = {b->how.marks ? build_word(b) : build_json_string(b),
                             build_json_colon(b), build_json_value(b)};
        b->objects = list_of(b, "{", build_seq(b, member, 3), "}");
    }
    return b->objects;
}

uint32_t build_json_array(struct build *b) {
    if (b->e.code)
        return BUILD_NEVER;
    if (!b->arrays) {
        build_json_value(b);
        if (!b->arrays)
            b->arrays = list_of(b, "[", build_json_value(b), "]");
    }
    return b->arrays;
}

uint32_t build_json_quote(struct build *b, const char *s, size_t n) {
    struct json_writer w = {0};
    if (b->how.marks && memmem(s, n, b->how.marks, strlen(b->how.marks)))
        return BUILD_NEVER;
    if (b->how.marks) {
        uint32_t mark = build_text(b, b->how.marks);
        return build_seq(b, (uint32_t[]){mark, build_bytes(b, s, n), mark}, 3);
    }
    jw_str(&w, s, n);
    uint32_t quoted = build_bytes(b, w.out.data, w.out.len);
    if (w.out.failed)
        quoted = build_fail(b, ERR_MEMORY, "no memory for the texts of a grammar");
    str_fini(&w.out);
    return quoted;
}

uint32_t build_json_name(struct build *b, const char *s, size_t n) {
    return b->how.marks && build_is_word(s, n) ? build_bytes(b, s, n) : build_json_quote(b, s, n);
}

uint32_t build_until(struct build *b, const char *end) {
    static const struct build_chars any[] = {{0, 0x10FFFF}};
    uint32_t one = build_class(b, any, 1, BUILD_PLAIN);
    uint32_t text = build_repeat(b, one, 0, BUILD_ENDLESS), last = build_text(b, end);
    uint32_t early = build_seq(b, (uint32_t[]){text, last, one, text}, 4);
    return build_shared(b, build_without(b, build_cat(b, text, last), early));
}

int grammar_json_object(struct grammar **out, const struct grammar_json *how,
                        struct grammar_work *work, struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, work, 0, e);
    if (rc)
        return rc;
    if (how)
        build_json_how(b, how);
    rc = build_finish(b, build_json_object(b), out, e);
    build_destroy(b);
    return rc;
}
