// SPDX-License-Identifier: Apache-2.0
// Numbers of a schema. Those within bounds, or multiples of a number, are the texts of an automaton
// that reads digit by digit: how many there were, what they leave modulo the multiple, and how they
// compare with as many digits of the bounds. Numbers that are no integers are whole numbers of
// tenths to millionths, written with a point: at most 15 digits, so that a reader's doubles compare
// as the digits do.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

enum { DIGITS = 17, MULTIPLES = 4096, FRACTION = 6, LISTED = 1000 };
static const int64_t LARGEST = 99999999999999999; // 17 digits

struct bounds {
    long double min, max; // whole numbers of 64 bits exactly
    bool above, below;    // min, max themselves are left out
};

static void read_bounds(const struct conj *c, struct bounds *b) {
    *b = (struct bounds){-INFINITY, INFINITY, false, false};
    for (int64_t i = 0; i < c->count; i++) {
        static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum",
                                            "exclusiveMaximum"};
        for (int k = 0; k < 4; k++) {
            const struct json *v = json_get(c->list[i].schema, names[k]);
            long double x = schema_real(v, NAN), *bound = k < 2 ? &b->min : &b->max;
            bool *out = k < 2 ? &b->above : &b->below;
            // Draft 4: true says that the bound next to it is left out.
            bool exclusive = k % 2 && json_bool(v, false) &&
                             schema_real(json_get(c->list[i].schema, names[k - 1]), NAN) == *bound;
            *out |= exclusive;
            if (isnan(x) || (k < 2 ? x < *bound : x > *bound))
                continue;
            *out = x == *bound ? *out || k % 2 : k % 2;
            *bound = x;
        }
    }
}

// x as a whole number of the largest parts that it has, of ones to millionths; false: of smaller
// ones, or too large.
static bool decimal(double x, int64_t *parts, int *places) {
    double scale = 1;
    for (*places = 0; *places <= FRACTION; ++*places, scale *= 10) {
        double n = round(x * scale);
        if (fabs(n) < 1e15 && n / scale == x) {
            *parts = (int64_t)n;
            return true;
        }
    }
    return false;
}

static int64_t power_of_ten(int n) {
    int64_t x = 1;
    while (n-- > 0)
        x *= 10;
    return x;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

// As decimals, so that 0.07 is a multiple of 0.01; whole numbers of 64 bits exactly.
static bool is_multiple(long double x, double m) {
    int64_t a, b;
    int place_a = 0, place_b;
    bool whole = x == floorl(x) && fabsl(x) < 0x1p63L;
    if (whole)
        a = (int64_t)x;
    if ((!whole && !decimal((double)x, &a, &place_a)) || !decimal(m, &b, &place_b) ||
        b > 1000000000)
        return x / m == floorl(x / m);
    int places = place_a > place_b ? place_a : place_b;
    b *= power_of_ten(places - place_b);
    return a % b * power_of_ten(places - place_a) % b == 0;
}

static bool within(const struct bounds *x, long double v) {
    return v >= x->min && v <= x->max && !(x->above && v == x->min) && !(x->below && v == x->max);
}

bool schema_number_ok(const struct conj *c, const struct json *v) {
    struct bounds b;
    long double x = schema_real(v, 0);
    read_bounds(c, &b);
    if (!within(&b, x))
        return false;
    for (int64_t i = 0; i < c->count; i++) {
        double m = json_num(json_get(c->list[i].schema, "multipleOf"), 0);
        if (m > 0 && !is_multiple(x, m))
            return false;
    }
    return true;
}

// ---- digits

// A bound: the digits of its whole part, and those after the point.
struct limit {
    char whole[24], part[24];
    int n; // digits of the whole part
};

// Where a text has come to: digits of the whole part (0 .. DIGITS), or DIGITS + 1 and those after
// the point; what they leave; how they compare with as many digits of the bounds.
struct at {
    int place;
    int64_t rest;
    int lo, hi; // -1, 0, 1
};

struct digits {
    struct build *b;
    struct graph g;
    int64_t multiple;
    int point; // digits after the point
    struct limit lo, hi;
    uint32_t *seen; // [place][rest][lo][hi]: node + 2; 1: leads nowhere; 0: not yet known
};

static int order(int a, int b) {
    return (a > b) - (a < b);
}

static void limit_of(struct limit *l, int64_t n, int point) {
    const int64_t scale = power_of_ten(point);
    l->n = snprintf(l->whole, sizeof l->whole, "%lld", (long long)(n / scale));
    l->part[point] = '\0';
    for (int64_t part = n % scale; point-- > 0; part /= 10)
        l->part[point] = (char)('0' + part % 10);
}

// A whole part of `digits` digits against a bound's.
static int against(const struct limit *l, int digits, int so_far) {
    return digits == l->n ? so_far : order(digits, l->n);
}

static bool may_end(const struct digits *d, const struct at *a) {
    if (a->rest)
        return false;
    if (a->place <= DIGITS)
        return !d->point && against(&d->lo, a->place, a->lo) >= 0 &&
               against(&d->hi, a->place, a->hi) <= 0;
    return a->place == DIGITS + 1 + d->point && a->lo >= 0 && a->hi <= 0;
}

static uint32_t digits_from(struct digits *d, const struct at *a);

// After the point; NO_NODE: it cannot come here.
static uint32_t after_point(struct digits *d, const struct at *a) {
    const struct at next = {DIGITS + 1, a->rest, against(&d->lo, a->place, a->lo),
                            against(&d->hi, a->place, a->hi)};
    bool comes = d->point && a->place <= DIGITS && next.lo >= 0 && next.hi <= 0;
    return comes ? digits_from(d, &next) : (uint32_t)NO_NODE;
}

static uint32_t after_digit(struct digits *d, const struct at *a, char c) {
    struct at next = {a->place + 1, (a->rest * 10 + (c - '0')) % d->multiple, a->lo, a->hi};
    const int i = a->place <= DIGITS ? a->place : a->place - DIGITS - 1;
    if (a->place <= DIGITS) {
        if (i >= d->hi.n)
            return NO_NODE;
        next.lo = i >= d->lo.n ? 1 : next.lo ? next.lo : order(c, d->lo.whole[i]);
        next.hi = next.hi ? next.hi : order(c, d->hi.whole[i]);
    } else {
        if (i >= d->point)
            return NO_NODE;
        next.lo = next.lo ? next.lo : order(c, d->lo.part[i]);
        next.hi = next.hi ? next.hi : order(c, d->hi.part[i]);
        if (next.lo < 0 || next.hi > 0)
            return NO_NODE;
    }
    return digits_from(d, &next);
}

static void digit_edge(struct digits *d, uint32_t from, uint32_t to, char lo, char hi) {
    struct graph_edge edge = {.to = to, .kind = EDGE_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi};
    if (to != NO_NODE && !d->b->e.code)
        graph_edge(&d->g, from, edge, &d->b->e);
}

// The node of what may follow; NO_NODE: nothing, or an error.
static uint32_t digits_from(struct digits *d, const struct at *a) {
    size_t slot = ((size_t)a->place * (size_t)d->multiple + (size_t)a->rest) * 9 +
                  (size_t)(3 * (a->lo + 1) + a->hi + 1);
    uint32_t to[11], node;
    bool any = may_end(d, a);
    if (d->seen[slot] || !build_work(d->b, 10))
        return d->seen[slot] > 1 ? d->seen[slot] - 2 : (uint32_t)NO_NODE;
    for (char c = '0'; c <= '9'; c++)
        any |= (to[c - '0'] = after_digit(d, a, c)) != NO_NODE;
    any |= (to[10] = after_point(d, a)) != NO_NODE;
    node = any && !d->b->e.code ? graph_node(&d->g, &d->b->e) : (uint32_t)NO_NODE;
    d->seen[slot] = node == NO_NODE ? 1 : node + 2;
    if (node == NO_NODE)
        return node;
    d->g.nodes[node].accept = may_end(d, a);
    for (int i = 0; i < 10;) {
        int k = i;
        while (k < 9 && to[k + 1] == to[i])
            k++;
        digit_edge(d, node, to[i], (char)('0' + i), (char)('0' + k));
        i = k + 1;
    }
    digit_edge(d, node, to[10], '.', '.');
    return node;
}

// After a first digit 0 no other one may follow.
static void from_zero(struct digits *d) {
    const struct at a = {1, 0, order('0', d->lo.whole[0]), order('0', d->hi.whole[0])};
    uint32_t point = after_point(d, &a);
    if (point == NO_NODE && !may_end(d, &a))
        return;
    uint32_t zero = graph_node(&d->g, &d->b->e);
    if (zero == NO_NODE)
        return;
    d->g.nodes[zero].accept = may_end(d, &a);
    digit_edge(d, zero, point, '.', '.');
    digit_edge(d, 0, zero, '0', '0');
}

// The multiples from lo to hi, 0 <= lo <= hi, without a sign; the last `point` digits stand after
// a point.
static uint32_t multiples(struct build *b, int64_t lo, int64_t hi, int64_t multiple, int point) {
    struct digits d = {.b = b, .g = {.work = b->work}, .multiple = multiple, .point = point};
    const struct at start = {0};
    if (b->e.code)
        return BUILD_NEVER;
    limit_of(&d.lo, lo, point);
    limit_of(&d.hi, hi, point);
    d.seen = calloc((size_t)(DIGITS + 2 + point) * (size_t)multiple * 9, sizeof *d.seen);
    if (!d.seen)
        return build_fail(b, ERR_MEMORY, "no memory for a schema");
    if (graph_node(&d.g, &b->e) != NO_NODE) {
        from_zero(&d);
        for (char c = '1'; c <= '9'; c++)
            digit_edge(&d, 0, after_digit(&d, &start, c), c, c);
    }
    free(d.seen);
    return build_graph(b, &d.g);
}

static uint32_t one_number(struct build *b, int64_t n, int point) {
    char text[48];
    const int64_t scale = power_of_ten(point);
    snprintf(text, sizeof text, point ? "%lld.%0*lld" : "%lld", (long long)(n / scale), point,
             (long long)(n % scale));
    return build_text(b, text);
}

// The same, where the automaton would be large: few multiples one by one, and tens as zeros.
static uint32_t natural(struct build *b, int64_t lo, int64_t hi, int64_t multiple, int point) {
    int64_t first = (lo + multiple - 1) / multiple, last = hi / multiple;
    struct build_list list = {0};
    if (first > last)
        return BUILD_NEVER;
    if (last - first < 10 || (multiple > MULTIPLES && last - first < LISTED)) {
        for (int64_t i = first; i <= last && !b->e.code; i++)
            build_add(b, &list, one_number(b, i * multiple, point));
        return build_list_alt(b, &list);
    }
    if (point || multiple % 10)
        return multiples(b, lo, hi, multiple, point);
    uint32_t some = build_cat(b, natural(b, max_i64((lo + 9) / 10, 1), hi / 10, multiple / 10, 0),
                              build_text(b, "0"));
    return lo ? some : build_or(b, build_text(b, "0"), some);
}

static uint32_t whole(struct build *b, int64_t lo, int64_t hi, int64_t multiple, int point) {
    uint32_t minus = BUILD_NEVER, plus = BUILD_NEVER, sign = build_text(b, "-");
    if (lo == -hi && hi > 0) { // one automaton for both signs
        uint32_t some = natural(b, 1, hi, multiple, point);
        some = build_cat(b, build_or(b, BUILD_EMPTY, sign), some);
        return build_or(b, one_number(b, 0, point), some);
    }
    if (lo < 0 && lo <= hi)
        minus = build_cat(b, sign, natural(b, hi < 0 ? -hi : 1, -lo, multiple, point));
    if (hi >= 0 && lo <= hi)
        plus = natural(b, lo > 0 ? lo : 0, hi, multiple, point);
    return build_or(b, minus, plus);
}

static int64_t clamp_whole(long double x) {
    return (int64_t)fmaxl(-(long double)LARGEST, fminl(x, (long double)LARGEST));
}

static uint32_t integers(struct build *b, const struct bounds *x, int64_t multiple) {
    long double min = ceill(x->min), max = floorl(x->max);
    min += x->above && min == x->min;
    max -= x->below && max == x->max;
    if (!(min <= max) || min > (long double)LARGEST || max < -(long double)LARGEST)
        return BUILD_NEVER;
    return build_shared(b, whole(b, clamp_whole(min), clamp_whole(max), multiple, 0));
}

// ---- other numbers

// Numbers with k digits after the point, as whole numbers of parts; `multiple` is in parts of
// 10^-places, and at least one of these.
static uint32_t with_places(struct build *b, const struct bounds *x, int k, int64_t multiple,
                            int places) {
    const int64_t maximum = 999999999999999;
    double scale = pow(10, k);
    double lo = fmax((double)x->min * scale, -(double)maximum);
    double hi = fmin((double)x->max * scale, (double)maximum);
    if (!(lo <= hi))
        return BUILD_NEVER;
    // The product may have been rounded: the first and the last one within the bounds, as doubles.
    int64_t first = max_i64((int64_t)floor(lo) - 1, -maximum);
    int64_t last = min_i64((int64_t)ceil(hi) + 1, maximum);
    while (first <= last && !within(x, (double)first / scale))
        first++;
    while (last >= first && !within(x, (double)last / scale))
        last--;
    if (k < places)
        multiple /= common_divisor(multiple, power_of_ten(places - k));
    return whole(b, first, last, multiple, k);
}

// places: of the multiple; 0: any number.
static uint32_t numbers(struct build *b, const struct bounds *x, int64_t multiple, int places) {
    uint32_t parts[FRACTION + 1];
    int max = places ? places : FRACTION;
    for (int k = 0; k <= max; k++)
        parts[k] = with_places(b, x, k, multiple, places);
    return build_shared(b, build_alt(b, parts, (size_t)max + 1));
}

// The least common multiple of all members', in parts of 10^-places; false: an error, or too large.
static bool read_multiple(struct schema *s, const struct conj *c, int64_t *multiple, int *places) {
    const int64_t max = 1000000000000000;
    *multiple = 0;
    *places = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *at = c->list[i].schema, *v = json_get(at, "multipleOf");
        double m = json_num(v, 0);
        int64_t parts = 0;
        int k = 0;
        if (!v)
            continue;
        if (!(m > 0)) {
            schema_fail(s, ERR_FORMAT, at, "multipleOf", "it must be a number above 0");
            return false;
        }
        bool decidable = decimal(m, &parts, &k) && m < 1e9;
        int common = k > *places ? k : *places;
        int64_t a = *multiple * power_of_ten(common - *places),
                b = decidable ? parts * power_of_ten(common - k) : 0;
        if (decidable && a) {
            int64_t one = a / common_divisor(a, b);
            decidable = one <= max / b;
            b = decidable ? one * b : 0;
        }
        if (!decidable) {
            schema_fail(s, ERR_UNSUPPORTED, at, "multipleOf",
                        "it, or the common multiple with others that hold here, must be below "
                        "1,000,000,000 and have at most 6 digits after the point");
            return false;
        }
        *multiple = b;
        *places = common;
    }
    return true;
}

// Can multiples be decided digit by digit, or listed?
static bool decidable(int64_t multiple, const struct bounds *x, double scale) {
    double count = (double)(x->max - x->min) * scale / (double)multiple;
    while (multiple % 10 == 0)
        multiple /= 10;
    return multiple <= MULTIPLES || count < LISTED - 2;
}

uint32_t schema_number(struct schema *s, const struct conj *c, bool integer) {
    struct bounds x;
    int64_t multiple;
    int places;
    if (!read_multiple(s, c, &multiple, &places))
        return BUILD_NEVER;
    read_bounds(c, &x);
    bool bounded = isfinite(x.min) || isfinite(x.max);
    if (multiple && (integer || places == 0)) { // whole numbers are all that there are
        multiple /= common_divisor(multiple, power_of_ten(places));
        places = 0;
        integer = true;
    }
    if (multiple && !decidable(multiple, &x, (double)power_of_ten(places)))
        return schema_fail(s, ERR_UNSUPPORTED, c->list[c->count - 1].schema, NULL,
                           "multipleOf: in units of its last digit and without zeros at its end "
                           "it can be 4,096 at most, or up to 1,000 multiples can lie within "
                           "minimum and maximum");
    if (integer && (bounded || multiple > 1))
        return integers(s->b, &x, multiple ? multiple : 1);
    if (integer)
        return build_json_integer(s->b);
    if (!bounded && !multiple)
        return build_json_number(s->b);
    if (!multiple &&
        (x.min >= 1e15 || x.max <= -1e15)) // too large for a fraction that can be decided
        return integers(s->b, &x, 1);
    x.min = x.min <= -1e15 ? -INFINITY : x.min;
    x.max = x.max >= 1e15 ? INFINITY : x.max;
    return numbers(s->b, &x, multiple ? multiple : 1, multiple ? places : 0);
}
