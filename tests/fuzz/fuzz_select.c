// SPDX-License-Identifier: Apache-2.0
// Selection over any bytes. The first sixteen choose options and what tokens and parts are, the
// rest is the text. Spans are in order and within their parts, cut no character, hold what is
// whole, and are more where more is to be kept. A first byte of 255 makes the rest a curve.
#include "fuzz.h"

#include <string.h>

#include "base/rng.h"
#include "compress/select/chunks.h"
#include "compress/select/select.h"

enum { HEAD = 16, LIMIT = 1 << 14 };

struct doc {
    size_t at[LIMIT + 1];
    int32_t ids[LIMIT];
    float score[LIMIT];
    struct select_part parts[8];
};

void fuzz_setup(void) {
}

static void read_curve(const char *text, size_t n, bool fragile) {
    struct select_options o = select_options_default();
    struct err e = {0};
    int rc = select_curve_read(&o, text, n, &e);
    fuzz_result(rc, &e, fragile);
    FUZZ_CHECK(rc || select_options_check(&o, &e) == 0);
    for (int64_t tokens = 1; !rc && tokens < 1 << 30; tokens *= 3)
        FUZZ_CHECK(select_ratio(&o, tokens) > 0 && select_ratio(&o, tokens) <= 1);
}

static struct select_input make(struct doc *d, const uint8_t *head, const char *text, size_t n) {
    struct rng g = {head[0]};
    uint32_t longest = 1 + head[1] % 16;
    struct select_input in = {.text = {.text = text, .n = n, .at = d->at, .parts = d->parts},
                              .score = d->score,
                              .ids = d->ids};
    for (size_t at = 0; at < n;) {
        int64_t i = in.text.n_tokens++;
        d->at[i] = at;
        d->ids[i] = (int32_t)(unsigned char)text[at] % (1 + head[2]);
        d->score[i] = rng_unit(rng_next(&g));
        size_t len = rng_below(&g, longest + 1);
        at += len < n - at ? len : n - at;
        if (in.text.n_tokens == LIMIT)
            break;
    }
    d->at[in.text.n_tokens] = n;
    size_t from = 0;
    while (from < n && in.text.n_parts < 8) {
        size_t to = from + 1 + (size_t)head[3] * rng_below(&g, 32);
        while (to < n && !border_of_character(text, n, to))
            to++;
        to = to < n ? to : n;
        d->parts[in.text.n_parts++] =
            (struct select_part){from, to, head[4] && !rng_below(&g, head[4])};
        from = to;
    }
    in.query_end = in.text.n_tokens;
    in.query = head[5] < in.query_end ? in.query_end - head[5] : in.query_end;
    return in;
}

static struct select_options options_of(const uint8_t *head, double f) {
    struct select_options o = select_options_default();
    o.budget = head[6] % 2 ? SELECT_RATIO : SELECT_MASS;
    o.keep = o.mass = f;
    o.head = head[7];
    o.tail = head[8];
    o.anchors = head[9] % 2;
    o.anchor_radius = head[10] % 4;
    o.anchor_hits = head[11];
    return o;
}

static void check(const struct select_input *in, const struct selection *s) {
    int64_t k = 0;
    for (int64_t i = 0; i < s->n_spans; i++) {
        const struct select_span *p = &s->spans[i];
        const struct select_part *q = &in->text.parts[p->part];
        FUZZ_CHECK(p->begin >= q->begin && p->begin < p->end && p->end <= q->end);
        FUZZ_CHECK(i == 0 || p->part > p[-1].part || p->begin > p[-1].end);
        FUZZ_CHECK(
            border_of_character(in->text.text + q->begin, q->end - q->begin, p->begin - q->begin));
        FUZZ_CHECK(!q->whole || (p->begin == q->begin && p->end == q->end));
        FUZZ_CHECK(p->part == k || p->part == k - 1); // no part without words
        k = p->part + 1;
    }
    FUZZ_CHECK(k == in->text.n_parts);
}

static void check_more(const struct selection *less, const struct selection *more) {
    int64_t k = 0;
    for (int64_t i = 0; i < less->n_spans; i++) {
        const struct select_span *p = &less->spans[i];
        while (k < more->n_spans && (more->spans[k].part < p->part || more->spans[k].end < p->end))
            k++;
        FUZZ_CHECK(k < more->n_spans && more->spans[k].part == p->part &&
                   more->spans[k].begin <= p->begin);
    }
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    static struct doc d;
    if (size && data[0] == 255) {
        read_curve((const char *)data + 1, size - 1, fragile);
        return;
    }
    if (size <= HEAD || size > LIMIT)
        return;
    struct select_input in = make(&d, data, (const char *)data + HEAD, size - HEAD);
    struct selection less, more;
    struct err e = {0};
    double f = (1 + data[12]) / 256.0;
    struct select_options o = options_of(data, f), wide = options_of(data, f + (1 - f) * 0.5);
    int rc = select_spans(&in, &o, &less, &e);
    fuzz_result(rc, &e, fragile);
    if (!rc) {
        check(&in, &less);
        rc = select_spans(&in, &wide, &more, &e);
        fuzz_sentence(rc, &e);
        if (!rc) {
            check(&in, &more);
            check_more(&less, &more);
        }
        selection_fini(&more);
    }
    selection_fini(&less);
}
