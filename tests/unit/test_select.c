// SPDX-License-Identifier: Apache-2.0
// Selection without a model: where texts are cut, that the kept set grows with the budget, that it
// keeps within it, head, tail and anchors, curves, and what is refused. Random texts of prose,
// code, other scripts and rubbish, with tokens cut anywhere.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/str.h"
#include "base/utf8.h"
#include "compress/select/chunks.h"
#include "compress/select/select.h"
#include "unit/test.h"

enum { TOKENS = 6000 };

struct doc {
    struct str text;
    size_t at[TOKENS + 1];
    int32_t ids[TOKENS];
    float score[TOKENS];
    int64_t n_tokens;
    struct select_part parts[16];
    int n_parts;
};

static const char *const words[] = {
    "the",
    "harbour",
    "of",
    "Mr.",
    "3.14",
    "1,000",
    "don't",
    "e.g.",
    "river",
    "\"quoted",
    "end.\"",
    "Why?",
    "No!",
    "so.",
    "x = y;",
    "foo(a, b);",
    "    if (p",
    "&& q) {",
    "}",
    "http://a.b/c",
    "\xC3\xA9t\xC3\xA9",
    "caf\xC3\xA9.",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82",
    "\xE4\xB8\x96\xE7\x95\x8C",
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80",
    "e\xCC\x81t",
    "<tag a=\"b c\">",
    "<|im_start|>",
};
static const char *const gaps[] = {" ", " ", " ", " ", "\n", "\n\n", "\r\n", "  ", "\n    ", ""};

// Words until `bytes`, then tokens of one to nine bytes.
static void make_doc(struct doc *d, struct rng *g, size_t bytes) {
    str_clear(&d->text);
    while (d->text.len < bytes) {
        str_puts(&d->text, words[rng_below(g, sizeof words / sizeof *words)]);
        str_puts(&d->text, gaps[rng_below(g, sizeof gaps / sizeof *gaps)]);
        if (rng_below(g, 400) == 0)
            for (int i = 0; i < 1500; i++)
                str_putc(&d->text, (char)('a' + i % 26));
    }
    d->n_tokens = 0;
    for (size_t at = 0; at < d->text.len; d->n_tokens++) {
        assert_true(d->n_tokens < TOKENS);
        d->at[d->n_tokens] = at;
        d->ids[d->n_tokens] = (int32_t)rng_below(g, 50);
        d->score[d->n_tokens] = rng_unit(rng_next(g)) * (rng_below(g, 50) ? 0.01f : 1);
        size_t len = 1 + rng_below(g, 9);
        at += len < d->text.len - at ? len : d->text.len - at;
    }
    d->at[d->n_tokens] = d->text.len;
    d->n_parts = 1;
    d->parts[0] = (struct select_part){0, d->text.len, false};
}

static struct select_input input_of(const struct doc *d) {
    return (struct select_input){
        .text = {d->text.data, d->text.len, d->at, d->n_tokens, d->parts, d->n_parts},
        .score = d->score,
        .ids = d->ids,
        .query = d->n_tokens,
        .query_end = d->n_tokens,
    };
}

// Cuts the document into parts at random places of characters; some are whole.
static void cut_parts(struct doc *d, struct rng *g) {
    d->n_parts = 0;
    size_t from = 0;
    while (from < d->text.len && d->n_parts < 15) {
        size_t to = from + 1 + rng_below(g, (uint32_t)d->text.len / 3);
        while (to < d->text.len && !border_of_character(d->text.data, d->text.len, to))
            to++;
        if (to > d->text.len)
            to = d->text.len;
        d->parts[d->n_parts++] = (struct select_part){from, to, rng_below(g, 6) == 0};
        from = to + rng_below(g, 2) * 3;
        while (from < d->text.len && !border_of_character(d->text.data, d->text.len, from))
            from++;
    }
}

static bool has(const struct selection *s, int64_t part, size_t begin, size_t end) {
    for (int64_t i = 0; i < s->n_spans; i++)
        if (s->spans[i].part == part && s->spans[i].begin <= begin && end <= s->spans[i].end)
            return true;
    return false;
}

// Spans are in order, apart, inside their parts, cut at borders; every part has some; whole ones
// are whole.
static void check_spans(const struct doc *d, const struct selection *s) {
    size_t last = 0;
    int64_t part = -1;
    for (int64_t i = 0; i < s->n_spans; i++) {
        const struct select_span *p = &s->spans[i];
        const struct select_part *q = &d->parts[p->part];
        assert_true(p->begin < p->end && p->begin >= q->begin && p->end <= q->end);
        assert_true(p->part > part || (p->part == part && p->begin > last));
        assert_true(p->part <= part + 1); // none without words
        const char *text = d->text.data + q->begin;
        size_t n = q->end - q->begin, cuts[2] = {p->begin - q->begin, p->end - q->begin};
        for (int k = 0; k < 2; k++) {
            assert_true(border_of_character(text, n, cuts[k]));
            assert_true(cuts[k] == 0 || border_kind(text, n, cuts[k]) != BORDER_NONE ||
                        (cuts[k] > BORDER_WORD_MAX));
        }
        last = p->end;
        part = p->part;
    }
    assert_int_equal(part + 1, d->n_parts);
    for (int i = 0; i < d->n_parts; i++)
        if (d->parts[i].whole)
            assert_true(has(s, i, d->parts[i].begin, d->parts[i].end));
}

static void select_ok(const struct doc *d, const struct select_options *o, struct selection *s) {
    struct select_input in = input_of(d);
    in.query = d->n_tokens - 30;
    struct err e = {0};
    assert_int_equal(select_spans(&in, o, s, &e), 0);
    check_spans(d, s);
}

// Options that keep more and more.
static struct select_options step(int way, int i) {
    struct select_options o = select_options_default();
    double f = 0.01 + 0.11 * i;
    o.budget = way == 0 ? SELECT_RATIO : SELECT_MASS;
    o.keep = f;
    if (way == 1)
        o.mass = f;
    if (way == 2) {
        o.least = f;
        o.most = 1;
    }
    if (way == 3) {
        o.most = f + 0.02;
        o.mass = 1;
    }
    return o;
}

static void test_grows(void **state) {
    (void)state;
    static struct doc d;
    struct rng g = {3};
    int64_t grown = 0;
    for (int round = 0; round < 60; round++) {
        make_doc(&d, &g, 200 + rng_below(&g, 20000));
        if (round % 3)
            cut_parts(&d, &g);
        struct selection old = {0};
        for (int i = 0; i < 9; i++) {
            struct selection s;
            struct select_options o = step(round % 4, i);
            o.anchors = round % 2;
            select_ok(&d, &o, &s);
            for (int64_t k = 0; k < old.n_spans; k++)
                assert_true(has(&s, old.spans[k].part, old.spans[k].begin, old.spans[k].end));
            assert_true(s.kept >= old.kept);
            grown += s.kept > old.kept;
            selection_fini(&old);
            old = s;
        }
        selection_fini(&old);
    }
    assert_in_range(grown, 150, 500);
    str_fini(&d.text);
}

// With one part and no more to keep than that: never above the budget, and not far below.
static void test_budget(void **state) {
    (void)state;
    static struct doc d;
    struct rng g = {4};
    for (int round = 0; round < 20; round++) {
        make_doc(&d, &g, 20000);
        struct selection s;
        struct select_options o = select_options_default();
        o.budget = SELECT_RATIO;
        o.keep = 0.1 + 0.04 * round;
        select_ok(&d, &o, &s);
        assert_true((double)s.kept <= s.budget && (double)s.kept > s.budget - 400);
        assert_true(fabs(s.budget - o.keep * (double)d.n_tokens) <= 1);
        selection_fini(&s);
    }
    str_fini(&d.text);
}

// Lines "line 17 of the text.\n" of eight tokens each, all scores equal.
static void make_lines(struct doc *d, int lines) {
    str_clear(&d->text);
    d->n_tokens = 0;
    for (int i = 0; i < lines; i++) {
        size_t begin = d->text.len;
        str_printf(&d->text, "line %06d of the text.\n", i);
        for (int k = 0; k < 8; k++) {
            d->at[d->n_tokens] = begin + (size_t)k * 3;
            d->ids[d->n_tokens] = k == 2 ? 100 + i : k;
            d->score[d->n_tokens++] = 0.01f;
        }
    }
    d->at[d->n_tokens] = d->text.len;
    d->n_parts = 1;
    d->parts[0] = (struct select_part){0, d->text.len, false};
}

static bool has_line(const struct doc *d, const struct selection *s, int line) {
    size_t len = d->text.len / ((size_t)d->n_tokens / 8);
    return has(s, 0, len * (size_t)line, len * (size_t)(line + 1));
}

static void test_needle(void **state) {
    (void)state;
    static struct doc d;
    make_lines(&d, 700);
    for (int k = 0; k < 8; k++)
        d.score[8 * 333 + k] = 0.5f;
    struct select_options o = select_options_default();
    o.budget = SELECT_RATIO;
    o.keep = 0.05;
    struct selection s;
    select_ok(&d, &o, &s);
    assert_true(has_line(&d, &s, 333));
    assert_true(has_line(&d, &s, 699)); // the tail, and
    assert_true(has_line(&d, &s, 0));   // the head
    selection_fini(&s);
    o.budget = SELECT_MASS; // little is enough here
    select_ok(&d, &o, &s);
    assert_true(has_line(&d, &s, 333));
    assert_in_range(s.kept, 112, 250);
    selection_fini(&s);
    for (int64_t i = 0; i < d.n_tokens; i++)
        d.score[i] = 0.01f; // flat: as much as may be
    select_ok(&d, &o, &s);
    assert_in_range(s.kept, 2700, 2800);
    selection_fini(&s);
    d.score[100] = NAN;
    d.score[200] = INFINITY;
    d.score[300] = -1;
    select_ok(&d, &o, &s);
    selection_fini(&s);
    str_fini(&d.text);
}

// Four tokens of the query at one place, at many, and nowhere.
static void test_anchors(void **state) {
    (void)state;
    static struct doc d;
    make_lines(&d, 700);
    d.ids[8 * 698 + 4] = 100 + 222; // the query: lines 698 and 699; its run is "3 322 4 5" of ...
    for (int k = 0; k < 5; k++)
        d.ids[8 * 699 + k] = d.ids[8 * 222 + k];
    struct select_input in = input_of(&d);
    in.query = 8 * 698;
    struct select_options o = select_options_default();
    o.budget = SELECT_RATIO;
    o.keep = 0.04;
    struct selection s;
    struct err e = {0};
    assert_int_equal(select_spans(&in, &o, &s, &e), 0);
    assert_true(has_line(&d, &s, 222));
    assert_true(s.kept <= (int64_t)s.budget);
    selection_fini(&s);
    o.anchors = false;
    assert_int_equal(select_spans(&in, &o, &s, &e), 0);
    assert_false(has_line(&d, &s, 222));
    selection_fini(&s);
    o.anchors = true;
    for (int i = 300; i < 340; i++) // now the run stands at too many places
        for (int k = 0; k < 5; k++)
            d.ids[8 * i + k] = d.ids[8 * 222 + k];
    assert_int_equal(select_spans(&in, &o, &s, &e), 0);
    assert_false(has_line(&d, &s, 222));
    selection_fini(&s);
    str_fini(&d.text);
}

static void test_curve(void **state) {
    (void)state;
    struct select_options o = select_options_default();
    struct err e = {0};
    const char *text = "10000:.5 40000:.2,100000:.1";
    assert_int_equal(select_curve_read(&o, text, strlen(text), &e), 0);
    assert_int_equal(o.n_points, 3);
    assert_true(fabs(select_ratio(&o, 1) - 0.5) < 1e-12);
    assert_true(fabs(select_ratio(&o, 25000) - 0.35) < 1e-12);
    assert_true(fabs(select_ratio(&o, 70000) - 0.15) < 1e-12);
    assert_true(fabs(select_ratio(&o, 1000000) - 0.1) < 1e-12);
    static const char *const bad[] = {
        "",      "10:0.5 10:0.2", "20:.5 10:.2", "10:0",     "10:1.5", "10",
        "10:",   "ten:.5",        "10:.5x",      "-1:.5",    "10:-1",  "nan:.5",
        "1:nan", "10:.5 20",      "10:.5:.20",   "1e999:.5",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct select_options before = o;
        assert_int_equal(select_curve_read(&o, bad[i], strlen(bad[i]), &e), ERR_USAGE);
        assert_memory_equal(&before, &o, sizeof o);
        assert_true(strlen(e.text) > 20);
    }
    char many[400] = "";
    for (int i = 0; i <= SELECT_POINTS; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%d:.5 ", i);
    assert_int_equal(select_curve_read(&o, many, strlen(many), &e), ERR_USAGE);
}

static void test_refused(void **state) {
    (void)state;
    static const double bad[] = {0, -0.5, 1.0001, NAN, INFINITY};
    struct err e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct select_options o = select_options_default();
        o.budget = SELECT_RATIO;
        o.keep = bad[i];
        assert_int_equal(select_options_check(&o, &e), ERR_USAGE);
        o = select_options_default();
        o.mass = bad[i];
        assert_int_equal(select_options_check(&o, &e), ERR_USAGE);
        o = select_options_default();
        o.most = bad[i];
        assert_int_equal(select_options_check(&o, &e), ERR_USAGE);
    }
    struct select_options o = select_options_default();
    o.least = 0.6;
    assert_int_equal(select_options_check(&o, &e), ERR_USAGE);
    o = select_options_default();
    o.head = -1;
    assert_int_equal(select_options_check(&o, &e), ERR_USAGE);
    o = select_options_default();
    assert_int_equal(select_options_check(&o, &e), 0);
}

struct border_case {
    const char *before, *after;
    enum border kind;
};

static void test_borders(void **state) {
    (void)state;
    static const struct border_case cases[] = {
        {"It ends. ", "Then", BORDER_SENTENCE},
        {"(It ends.) ", "Then", BORDER_SENTENCE},
        {"\xE2\x80\x9CIt ends?\xE2\x80\x9D ", "Then", BORDER_SENTENCE},
        {"see e.g. ", "there", BORDER_WORD},
        {"a line\n", "next", BORDER_LINE},
        {"a line\n", "    next", BORDER_LINE},
        {"a line\n    ", "next", BORDER_LINE},
        {"a line\n\n", "next", BORDER_SENTENCE},
        {"a line\r", "\nnext", BORDER_NONE},
        {"two ", "words", BORDER_WORD},
        {"two", " words", BORDER_NONE},
        {"wo", "rd", BORDER_NONE},
        {"\xC3", "\xA9", BORDER_NONE},
        {"e", "\xCC\x81", BORDER_NONE},
        {"\xF0\x9F\x91\xA9\xE2\x80\x8D", "\xF0\x9F\x9A\x80", BORDER_NONE},
        {"\xE4\xBD\xA0", "\xE5\xA5\xBD", BORDER_WORD},
        {"\xE5\xA5\xBD", "\xE3\x80\x82", BORDER_NONE},
        {"\xE5\xA5\xBD\xE3\x80\x82", "\xE4\xBD\xA0", BORDER_SENTENCE},
        {"f(a,", "b)", BORDER_MARK},
        {"1,", "000", BORDER_NONE},
        {"a <tag b=\"c ", "d\"> e", BORDER_NONE},
        {"<|im_", "start|>", BORDER_NONE},
        {"if (a < b) ", "c();", BORDER_WORD},
        {"all", "", BORDER_END},
        {"", "all", BORDER_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s%s", cases[i].before, cases[i].after);
        enum border kind = border_kind(text, strlen(text), strlen(cases[i].before));
        if (kind != cases[i].kind)
            fail_msg("'%s|%s' is a border of kind %d", cases[i].before, cases[i].after, (int)kind);
    }
    const char *code = "x();\n    y();";
    assert_int_equal(border_near(code, strlen(code), 4), 5); // indentation goes with its line
    assert_int_equal(border_near(code, strlen(code), 7), 5);
    assert_int_equal(border_near("ab   cd", 7, 2), 5); // other blanks with what is before them
}

static void test_smooth(void **state) {
    (void)state;
    float in[40];
    double out[40];
    struct rng g = {9};
    for (int n = 1; n <= 40; n++) {
        for (int i = 0; i < n; i++)
            in[i] = rng_unit(rng_next(&g));
        select_smooth(in, n, out);
        for (int i = 0; i < n; i++) {
            double sum = 0;
            int taps = 0;
            for (int j = i - 6; j <= i + 6; j++) {
                sum += j >= 0 && j < n ? (double)in[j] : 0;
                taps += j >= 0 && j < n;
            }
            assert_true(fabs(out[i] - sum / taps) < 1e-12);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders), cmocka_unit_test(test_grows),
        cmocka_unit_test(test_budget),  cmocka_unit_test(test_needle),
        cmocka_unit_test(test_anchors), cmocka_unit_test(test_curve),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_smooth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
