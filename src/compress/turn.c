// SPDX-License-Identifier: Apache-2.0
// The last user turn and its closing lines.
#include "compress/turn.h"

#include <string.h>

#include "compress/select/borders.h"

enum { CLOSING_LEAST = 16, PARAGRAPH_LEAST = 4 };

static int64_t count_of(const struct reading *r, int64_t message) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_parts; i++)
        n += r->parts[i].message == message ? r->parts[i].count : 0;
    return n;
}

// The last message with text of a user, or of anybody.
static int64_t last_turn(const struct reading *r) {
    for (int64_t i = r->n_parts - 1; i >= 0; i--)
        if (r->roles[r->parts[i].message] == READING_USER)
            return r->parts[i].message;
    return r->n_parts ? r->parts[r->n_parts - 1].message : -1;
}

static bool empty_line(const char *text, size_t at) {
    return at > 1 && text[at - 1] == '\n' &&
           (text[at - 2] == '\n' || (at > 3 && text[at - 2] == '\r' && text[at - 3] == '\n'));
}

// The byte of the part's text where its closing lines begin.
static size_t closing(const struct reading *r, const struct reading_part *p) {
    const char *text = r->text.data + p->begin;
    size_t n = p->end - p->begin, sentence = 0, word = 0;
    int64_t end = p->first + p->count;
    for (int64_t k = 1; k <= TURN_CLOSING && k < p->count; k++) {
        size_t at = border_near(text, n, r->at[end - k] - p->begin);
        enum border kind = border_kind(text, n, at);
        if (at == n || kind == BORDER_NONE)
            continue;
        if (k >= PARAGRAPH_LEAST && empty_line(text, at))
            return at;
        if (k > TURN_QUERIES)
            continue;
        if (!sentence && k >= CLOSING_LEAST && kind >= BORDER_LINE)
            sentence = at;
        word = at;
    }
    return sentence ? sentence : word;
}

// Whether a part says nothing, as the line end behind a closing mark in a rendered prompt.
static bool is_blank(const struct reading *r, const struct reading_part *p) {
    size_t at = p->begin;
    while (at < p->end && strchr(" \t\r\n", r->text.data[at]))
        at++;
    return at == p->end;
}

struct turn turn_find(const struct reading *r, int64_t whole) {
    struct turn t = {.message = last_turn(r)};
    if (t.message < 0)
        return t;
    int64_t count = count_of(r, t.message), last = r->n_parts - 1;
    while (r->parts[last].message != t.message)
        last--;
    while (last > 0 && is_blank(r, &r->parts[last]) && r->parts[last - 1].message == t.message)
        last--;
    t.part = last;
    t.end = r->parts[last].first + r->parts[last].count;
    const struct reading_part *p = &r->parts[last];
    if (count <= whole || count * 2 <= r->n)
        while (t.part > 0 && p[-1].message == t.message) {
            t.part--;
            p--;
        }
    else if (p->count > whole)
        t.begin = closing(r, p);
    t.first = p->first;
    while (t.first < t.end && r->at[t.first + 1] <= p->begin + t.begin)
        t.first++;
    t.begin += p->begin;
    return t;
}
