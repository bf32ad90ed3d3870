// SPDX-License-Identifier: Apache-2.0
// Text operations; see strings.h. Changes of case go code point by code point, since one may become
// several.
#include "text/jinja/strings.h"

#include <string.h>

#include "base/num.h"
#include "text/jinja/container.h"
#include "text/tokenizer/norm.h"

static int put_mapped_code(struct jinja_context *c, uint32_t code, enum norm_case how,
                           bool trusted) {
    uint32_t mapped[NORM_CASE_MAX];
    int rc = 0;
    size_t n = norm_map_case(code, how, mapped);
    for (size_t i = 0; i < n && !rc; i++)
        rc = jinja_put_code(c, mapped[i], trusted);
    return rc;
}

static bool is_ascii(const struct jinja_string *s) {
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->bytes[i] >= 0x80)
            return false;
    return true;
}

// ASCII text changes in place.
static int put_ascii_case(struct jinja_context *c, const struct jinja_string *s, bool upper) {
    size_t mark = jinja_mark(c);
    int rc = jinja_put_string(c, s);
    for (char *p = c->out.data + mark; !rc && p < c->out.data + c->out.len; p++) {
        bool other = upper ? *p >= 'a' && *p <= 'z' : *p >= 'A' && *p <= 'Z';
        *p = other ? (char)(*p ^ 0x20) : *p;
    }
    return rc;
}

// The class of the letter nearest to `at`, over what case ignores; back: before it.
static unsigned class_of_neighbour(const struct jinja_string *s, size_t at, bool back) {
    size_t len;
    while (back ? at > 0 : at < s->n) {
        at = back ? jinja_code_before(s, at) : at;
        unsigned what = norm_class(jinja_code_at(s, at, &len));
        if (!(what & NORM_IGNORED_BY_CASE))
            return what;
        at += back ? 0 : len;
    }
    return 0;
}

// A capital sigma at the end of a word has a small form of its own.
static bool is_final_sigma(const struct jinja_string *s, size_t at, uint32_t code) {
    return code == 0x3A3 && (class_of_neighbour(s, at, true) & NORM_CASED) &&
           !(class_of_neighbour(s, at + 2, false) & NORM_CASED);
}

static int put_mapped(struct jinja_context *c, const struct jinja_string *s, size_t at, size_t *len,
                      enum norm_case how) {
    uint32_t code = jinja_code_at(s, at, len);
    if (how == NORM_LOWER_CASE && is_final_sigma(s, at, code))
        return jinja_put_code(c, 0x3C2, jinja_trusted_at(s, at));
    return put_mapped_code(c, code, how, jinja_trusted_at(s, at));
}

static int put_case(struct jinja_context *c, const struct jinja_string *s, bool upper) {
    if (is_ascii(s))
        return put_ascii_case(c, s, upper);
    int rc = jinja_charge(c, s->n);
    for (size_t at = 0, len; at < s->n && !rc; at += len)
        rc = put_mapped(c, s, at, &len, upper ? NORM_UPPER_CASE : NORM_LOWER_CASE);
    return rc;
}

// The first code point in title case and the others in lower case; `words`: each word so.
static int put_words(struct jinja_context *c, const struct jinja_string *s, bool words) {
    int rc = jinja_charge(c, s->n);
    bool inside = false;
    for (size_t at = 0, len; at < s->n && !rc; at += len) {
        bool cased = (norm_class(jinja_code_at(s, at, &len)) & NORM_CASED) != 0;
        bool first = words ? cased && !inside : at == 0;
        rc = put_mapped(c, s, at, &len, first ? NORM_TITLE_CASE : NORM_LOWER_CASE);
        inside = cased;
    }
    return rc;
}

int jinja_change_case(struct jinja_context *c, const struct jinja_string *s, enum jinja_case how,
                      struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc;
    if (how == CASE_UPPER || how == CASE_LOWER)
        rc = put_case(c, s, how == CASE_UPPER);
    else
        rc = put_words(c, s, how == CASE_TITLE);
    return rc ? rc : jinja_take(c, mark, out);
}

static bool in_set(uint32_t code, const struct jinja_string *chars) {
    if (!chars)
        return jinja_code_is_space(code);
    for (size_t at = 0, len; at < chars->n; at += len)
        if (jinja_code_at(chars, at, &len) == code)
            return true;
    return false;
}

int jinja_strip(struct jinja_context *c, const struct jinja_string *s,
                const struct jinja_string *chars, int sides, struct jinja_value *out) {
    size_t from = 0, to = s->n, len;
    size_t each = chars ? chars->n / 8 : 0; // steps for a code point
    int rc = jinja_charge(c, s->n / 64);
    for (; !rc && (sides & 1) && from < to && in_set(jinja_code_at(s, from, &len), chars);
         from += len)
        rc = jinja_charge(c, each);
    while (!rc && (sides & 2) && to > from) {
        size_t at = jinja_code_before(s, to);
        if (!in_set(jinja_code_at(s, at, &len), chars))
            break;
        to = at;
        rc = jinja_charge(c, each);
    }
    if (rc)
        return rc;
    if (from == 0 && to == s->n) {
        *out = (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
        return 0;
    }
    return jinja_substring(c, s, from, to, out);
}

int jinja_find(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
               const struct jinja_string *part, size_t *found) {
    enum { PER_STEP = 8 }; // bytes that are looked at, which are few where it is soon found
    *found = SIZE_MAX;
    if (from > to || part->n > to - from)
        return 0;
    const char *p =
        part->n ? memmem(s->bytes + from, to - from, part->bytes, part->n) : s->bytes + from;
    size_t end = p ? (size_t)(p - s->bytes) : to;
    *found = p ? end : SIZE_MAX;
    return jinja_charge(c, (end - from + part->n) / PER_STEP);
}

int jinja_find_last(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
                    const struct jinja_string *part, size_t *found) {
    enum { FREE = 32 }; // bytes of a comparison that need no counting
    *found = SIZE_MAX;
    if (from > to || part->n > to - from)
        return 0;
    int rc = 0;
    size_t at = to - part->n + 1;
    while (at-- > from && !rc) {
        const char *p = s->bytes + at;
        if (part->n && (*p != part->bytes[0] || memcmp(p, part->bytes, min_size(part->n, FREE))))
            continue;
        rc = jinja_charge(c, part->n / FREE);
        if (part->n && memcmp(p, part->bytes, part->n))
            continue;
        *found = at;
        break;
    }
    size_t begin = *found == SIZE_MAX ? from : *found;
    return rc ? rc : jinja_charge(c, (to - begin) / FREE);
}

// An empty text stands between all code points and at both ends.
static int replace_nothing(struct jinja_context *c, const struct jinja_string *s,
                           const struct jinja_string *new, int64_t max) {
    int rc = 0;
    size_t at = 0, len;
    for (; (max < 0 || max > 0) && !rc; max--) {
        rc = jinja_put_string(c, new);
        if (at >= s->n)
            return rc;
        jinja_code_at(s, at, &len);
        if (!rc)
            rc = jinja_put_range(c, s, at, at + len);
        at += len;
    }
    return rc ? rc : jinja_put_range(c, s, at, s->n);
}

// What stands in place of s[from..to) is the template's only where that was.
static int put_replacement(struct jinja_context *c, const struct jinja_string *s, size_t from,
                           size_t to, const struct jinja_string *new) {
    for (size_t i = from; i < to; i++)
        if (!jinja_trusted_at(s, i))
            return jinja_put(c, new->bytes, new->n, false);
    return jinja_put_string(c, new);
}

int jinja_replace(struct jinja_context *c, const struct jinja_string *s,
                  const struct jinja_string *old, const struct jinja_string *new, int64_t max,
                  struct jinja_value *out) {
    size_t mark = jinja_mark(c), at = 0, found;
    int rc = jinja_charge(c, s->n / 16);
    if (!rc && old->n == 0) {
        rc = replace_nothing(c, s, new, max);
        return rc ? rc : jinja_take(c, mark, out);
    }
    for (; !rc && max != 0; max--) {
        rc = jinja_find(c, s, at, s->n, old, &found);
        if (rc || found == SIZE_MAX)
            break;
        rc = jinja_put_range(c, s, at, found);
        if (!rc)
            rc = put_replacement(c, s, found, found + old->n, new);
        at = found + old->n;
    }
    if (!rc)
        rc = jinja_put_range(c, s, at, s->n);
    return rc ? rc : jinja_take(c, mark, out);
}

static int push_part(struct jinja_context *c, struct jinja_list *l, const struct jinja_string *s,
                     size_t from, size_t to) {
    struct jinja_value v;
    int rc = jinja_substring(c, s, from, to, &v);
    return rc ? rc : jinja_push(c, l, v);
}

// Places where white space begins or ends, from the left.
static size_t skip_words(const struct jinja_string *s, size_t at, bool space) {
    size_t len;
    while (at < s->n && jinja_code_is_space(jinja_code_at(s, at, &len)) == space)
        at += len;
    return at;
}

static size_t skip_words_back(const struct jinja_string *s, size_t at, bool space) {
    while (at > 0) {
        size_t before = jinja_code_before(s, at), len;
        if (jinja_code_is_space(jinja_code_at(s, before, &len)) != space)
            break;
        at = before;
    }
    return at;
}

static int split_words(struct jinja_context *c, const struct jinja_string *s, int64_t max,
                       struct jinja_list *l) {
    int rc = 0;
    for (size_t at = skip_words(s, 0, true); at < s->n && !rc; max--) {
        size_t end = max == 0 ? s->n : skip_words(s, at, false);
        rc = push_part(c, l, s, at, end);
        at = max == 0 ? s->n : skip_words(s, end, true);
    }
    return rc;
}

static int split_words_back(struct jinja_context *c, const struct jinja_string *s, int64_t max,
                            struct jinja_list *l) {
    int rc = 0;
    for (size_t at = skip_words_back(s, s->n, true); at > 0 && !rc; max--) {
        size_t begin = max == 0 ? 0 : skip_words_back(s, at, false);
        rc = push_part(c, l, s, begin, at);
        at = max == 0 ? 0 : skip_words_back(s, begin, true);
    }
    return rc;
}

static int split_at(struct jinja_context *c, const struct jinja_string *s,
                    const struct jinja_string *separator, int64_t max, struct jinja_list *l) {
    size_t at = 0, found;
    int rc = 0;
    for (; !rc && max != 0; max--) {
        rc = jinja_find(c, s, at, s->n, separator, &found);
        if (rc || found == SIZE_MAX)
            break;
        rc = push_part(c, l, s, at, found);
        at = found + separator->n;
    }
    return rc ? rc : push_part(c, l, s, at, s->n);
}

static int split_at_back(struct jinja_context *c, const struct jinja_string *s,
                         const struct jinja_string *separator, int64_t max, struct jinja_list *l) {
    size_t end = s->n, found = 0;
    int rc = 0;
    for (; !rc && max != 0; max--) {
        rc = jinja_find_last(c, s, 0, end, separator, &found);
        if (rc || found == SIZE_MAX)
            break;
        rc = push_part(c, l, s, found + separator->n, end);
        end = found;
    }
    return rc ? rc : push_part(c, l, s, 0, end);
}

int jinja_split(struct jinja_context *c, const struct jinja_string *s,
                const struct jinja_string *separator, int64_t max, bool from_right,
                struct jinja_value *out) {
    if (separator && separator->n == 0)
        return jinja_fail(c, ERR_USAGE, "split() with an empty separator");
    *out = jinja_list(c, false);
    int rc = out->kind ? jinja_charge(c, s->n / 16) : c->e.code;
    if (rc)
        return rc;
    struct jinja_list *l = out->as.l;
    if (!from_right)
        return separator ? split_at(c, s, separator, max, l) : split_words(c, s, max, l);
    rc = separator ? split_at_back(c, s, separator, max, l) : split_words_back(c, s, max, l);
    for (size_t i = 0; i < l->n / 2; i++) {
        struct jinja_value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
    return rc;
}

static bool ends_line(uint32_t code) {
    return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

bool jinja_next_line(const struct jinja_string *s, size_t *at, size_t *end) {
    if (*at >= s->n)
        return false;
    size_t i = *at, len = 1;
    while (i < s->n && !ends_line(jinja_code_at(s, i, &len)))
        i += len;
    *end = i;
    if (i < s->n)
        i += s->bytes[i] == '\r' && i + 1 < s->n && s->bytes[i + 1] == '\n' ? 2 : len;
    *at = i;
    return true;
}

int jinja_split_lines(struct jinja_context *c, const struct jinja_string *s, bool keep_ends,
                      struct jinja_value *out) {
    *out = jinja_list(c, false);
    int rc = out->kind ? jinja_charge(c, s->n / 16) : c->e.code;
    for (size_t at = 0, from = 0, end; !rc && jinja_next_line(s, &at, &end); from = at)
        rc = push_part(c, out->as.l, s, from, keep_ends ? at : end);
    return rc;
}

int jinja_put_times(struct jinja_context *c, const struct jinja_string *fill, int64_t times) {
    int rc = times > 0 && fill->n > 0 && (uint64_t)times > c->limits.output / fill->n
                 ? jinja_fail(c, ERR_LIMIT, "the template writes more than %zu KiB of text",
                              c->limits.output >> 10)
                 : 0;
    for (int64_t i = 0; i < times && !rc; i++)
        rc = jinja_put_string(c, fill);
    return rc;
}
