// SPDX-License-Identifier: Apache-2.0
// Numbers of a schema. Whole numbers within bounds, or multiples of a number, are written digit by
// digit: an expression for each count of digits that are left, with what they must add to a
// multiple, and whether the digits so far are those of a bound. Other numbers within bounds are
// whole numbers of tenths to millionths, written with a point: at most 15 digits, so that a
// reader's doubles compare as the digits do.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "grammar/schema.h"

enum { DIGITS = 17, MULTIPLES = 1000, FRACTION = 6 };
static const int64_t LARGEST = 99999999999999999; // 17 digits

struct bounds {
    double min, max;
    bool above, below; // min, max themselves are left out
};

static void read_bounds(const struct conj *c, struct bounds *b) {
    *b = (struct bounds){-INFINITY, INFINITY, false, false};
    for (int64_t i = 0; i < c->count; i++) {
        static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum",
                                            "exclusiveMaximum"};
        for (int k = 0; k < 4; k++) {
            const struct json *v = json_get(c->list[i].schema, names[k]);
            double x = json_num(v, NAN), *bound = k < 2 ? &b->min : &b->max;
            bool *out = k < 2 ? &b->above : &b->below;
            if (isnan(x) || (k < 2 ? x < *bound : x > *bound))
                continue;
            *out = x == *bound ? *out || k % 2 : k % 2;
            *bound = x;
        }
    }
}

bool schema_number_ok(const struct conj *c, const struct json *v) {
    struct bounds b;
    double x = json_num(v, 0);
    read_bounds(c, &b);
    if (x < b.min || x > b.max || (x == b.min && b.above) || (x == b.max && b.below))
        return false;
    for (int64_t i = 0; i < c->count; i++) {
        double m = json_num(json_get(c->list[i].schema, "multipleOf"), 0);
        if (m > 0 && x / m != floor(x / m))
            return false;
    }
    return true;
}

// ---- whole numbers

struct digits {
    struct build *b;
    int64_t multiple;
    char lo[24], hi[24]; // of one length
    int length, point;   // digits, and how many of them stand behind the point
    uint32_t *rules;     // [left][rest][tight]: expression + 1
};

// From min to max digits, of which the last `point` stand behind a point.
static uint32_t free_digits(struct build *b, int min, int max, int point) {
    uint32_t digit = build_range(b, '0', '9'), x = build_repeat(b, digit, min - point, max - point);
    if (point == 0)
        return x;
    x = build_cat(b, x, build_text(b, "."));
    return build_cat(b, x, build_repeat(b, digit, point, point));
}

// Texts of `left` more digits, the ones before having `rest` modulo the multiple; tight: bit 0 when
// they are those of lo, bit 1 those of hi.
static uint32_t digits_left(struct digits *d, int left, int64_t rest, int tight) {
    size_t slot = ((size_t)left * (size_t)d->multiple + (size_t)rest) * 4 + (size_t)tight;
    uint32_t parts[10], n = 0;
    if (left == 0)
        return rest == 0 ? BUILD_EMPTY : BUILD_NEVER;
    if (d->rules[slot] || d->b->e.code)
        return d->rules[slot] ? d->rules[slot] - 1 : (uint32_t)BUILD_NEVER;
    if (tight == 0 && d->multiple == 1)
        return free_digits(d->b, left, left, d->point <= left ? d->point : 0);
    int at = d->length - left;
    char lo = tight & 1 ? d->lo[at] : '0', hi = tight & 2 ? d->hi[at] : '9';
    for (char c = lo; c <= hi; c++) {
        int then = (tight & 1 && c == lo) | ((tight & 2 && c == hi) << 1);
        uint32_t rest_of = digits_left(d, left - 1, (rest * 10 + (c - '0')) % d->multiple, then);
        parts[n++] = build_cat(d->b, build_range(d->b, (uint8_t)c, (uint8_t)c), rest_of);
    }
    uint32_t x = build_alt(d->b, parts, n);
    if (d->point && left == d->point)
        x = build_cat(d->b, build_text(d->b, "."), x);
    x = build_shared(d->b, x);
    d->rules[slot] = x + 1;
    return x;
}

// Whole numbers from lo to hi, 0 <= lo <= hi, without a sign; the last `point` digits stand behind
// a point.
static uint32_t natural(struct build *b, int64_t lo, int64_t hi, int64_t multiple, int point) {
    struct digits d = {.b = b, .multiple = multiple, .point = point};
    uint32_t parts[DIGITS + 1], n = 0;
    int64_t first = 0, last = 9;
    int free_from = 0, free_to = 0; // lengths of which every number is within the bounds
    size_t bytes = (DIGITS + 1) * (size_t)multiple * 4 * sizeof *d.rules;
    d.rules = malloc(bytes);
    if (!d.rules)
        return build_fail(b, ERR_MEMORY, "no memory for a schema");
    for (d.length = 1; d.length <= DIGITS; d.length++, last = last * 10 + 9) {
        int64_t least = first, from = lo > first ? lo : first, until = hi < last ? hi : last;
        if (d.length <= point)
            continue;
        first = last + 1;
        if (from > until)
            continue;
        if (multiple == 1 && d.length > point + 1 && from == least && until == last) {
            free_from = free_from ? free_from : d.length;
            free_to = d.length;
            continue;
        }
        snprintf(d.lo, sizeof d.lo, "%0*lld", d.length, (long long)from);
        snprintf(d.hi, sizeof d.hi, "%0*lld", d.length, (long long)until);
        memset(d.rules, 0, bytes);
        parts[n++] = digits_left(&d, d.length, 0, 3);
    }
    if (free_to) {
        uint32_t rest = free_digits(b, free_from - 1, free_to - 1, point);
        parts[n++] = build_cat(b, build_range(b, '1', '9'), rest);
    }
    free(d.rules);
    return build_alt(b, parts, n);
}

static uint32_t whole(struct build *b, int64_t lo, int64_t hi, int64_t multiple, int point) {
    uint32_t minus = BUILD_NEVER, plus = BUILD_NEVER;
    if (lo < 0 && lo <= hi)
        minus =
            build_cat(b, build_text(b, "-"), natural(b, hi < 0 ? -hi : 1, -lo, multiple, point));
    if (hi >= 0 && lo <= hi)
        plus = natural(b, lo > 0 ? lo : 0, hi, multiple, point);
    return build_or(b, minus, plus);
}

static int64_t clamp_whole(double x) {
    return x<-(double)LARGEST ? -LARGEST : x>(double) LARGEST ? LARGEST : (int64_t)x;
}

static uint32_t integers(struct build *b, const struct bounds *x, int64_t multiple) {
    double min = ceil(x->min), max = floor(x->max);
    min += x->above && min == x->min;
    max -= x->below && max == x->max;
    if (!(min <= max) || min > (double)LARGEST || max < -(double)LARGEST)
        return BUILD_NEVER;
    return build_shared(b, whole(b, clamp_whole(min), clamp_whole(max), multiple, 0));
}

// ---- other numbers

static bool within(const struct bounds *x, double v) {
    return v >= x->min && v <= x->max && !(x->above && v == x->min) && !(x->below && v == x->max);
}

// Numbers with `places` digits behind the point, as whole numbers of parts.
static uint32_t with_places(struct build *b, const struct bounds *x, int places) {
    const int64_t most = 999999999999999;
    double scale = pow(10, places);
    double lo = fmax(x->min * scale, -(double)most), hi = fmin(x->max * scale, (double)most);
    if (!(lo <= hi))
        return BUILD_NEVER;
    // The product may have been rounded: the first and the last one within the bounds, as doubles.
    int64_t first = max_i64((int64_t)floor(lo) - 1, -most);
    int64_t last = min_i64((int64_t)ceil(hi) + 1, most);
    while (first <= last && !within(x, (double)first / scale))
        first++;
    while (last >= first && !within(x, (double)last / scale))
        last--;
    return whole(b, first, last, 1, places);
}

static uint32_t numbers(struct build *b, const struct bounds *x) {
    uint32_t parts[FRACTION + 1];
    for (int k = 0; k <= FRACTION; k++)
        parts[k] = with_places(b, x, k);
    return build_shared(b, build_alt(b, parts, FRACTION + 1));
}

uint32_t schema_number(struct schema *s, const struct conj *c, bool integer) {
    struct bounds x;
    int64_t multiple = 1;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = json_get(c->list[i].schema, "multipleOf");
        double m = json_num(v, 0);
        if (!v)
            continue;
        if (!(m > 0))
            return schema_fail(s, ERR_FORMAT, c->list[i].schema, "multipleOf",
                               "it must be a number above 0");
        int64_t a = multiple, b = m <= MULTIPLES ? (int64_t)m : 0;
        if (m != floor(m) || m > MULTIPLES)
            return schema_fail(s, ERR_UNSUPPORTED, c->list[i].schema, "multipleOf",
                               "only whole numbers up to 1,000 are supported");
        while (b) {
            int64_t r = a % b;
            a = b;
            b = r;
        }
        multiple = multiple / a * (int64_t)m;
        integer = true;
        if (multiple > MULTIPLES)
            return schema_fail(s, ERR_UNSUPPORTED, c->list[i].schema, "multipleOf",
                               "the common multiple is above 1,000");
    }
    read_bounds(c, &x);
    bool bounded = isfinite(x.min) || isfinite(x.max);
    if (integer && (bounded || multiple > 1))
        return integers(s->b, &x, multiple);
    if (integer)
        return build_json_integer(s->b);
    if (!bounded)
        return build_json_number(s->b);
    if (x.min >= 1e15 || x.max <= -1e15) // too large for a fraction that can be told
        return integers(s->b, &x, 1);
    x.min = x.min <= -1e15 ? -INFINITY : x.min;
    x.max = x.max >= 1e15 ? INFINITY : x.max;
    return numbers(s->b, &x);
}
