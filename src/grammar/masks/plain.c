// SPDX-License-Identifier: Apache-2.0
// Asks a state whether it takes any ordinary text: inside of a JSON string the answer is yes for
// all plain tokens at once, or for those of at most so many code points where the length is
// bounded.
#include "grammar/masks/matcher.h"

// UTF-8 without control characters, quote and backslash, as an automaton: rows of a form are taken
// together; the form 0 is a whole code point.
static const struct plain_row {
    uint8_t form, lo, hi, next;
} rows[PLAIN_ROWS] = {
    {1, 0x20, 0x21, 0}, {1, 0x23, 0x5B, 0}, {1, 0x5D, 0x7F, 0}, {1, 0xC2, 0xDF, 2},
    {1, 0xE0, 0xE0, 4}, {1, 0xE1, 0xEC, 3}, {1, 0xED, 0xED, 5}, {1, 0xEE, 0xEF, 3},
    {1, 0xF0, 0xF0, 6}, {1, 0xF1, 0xF3, 7}, {1, 0xF4, 0xF4, 8}, {2, 0x80, 0xBF, 0},
    {3, 0x80, 0xBF, 2}, {4, 0xA0, 0xBF, 2}, {5, 0x80, 0x9F, 2}, {6, 0x90, 0xBF, 3},
    {7, 0x80, 0xBF, 3}, {8, 0x80, 0x8F, 3},
};
enum { MOST_STATES = 8 };

struct run {
    struct grammar_matcher *m;
    uint32_t next[MOST_STATES];
    int count;
    bool any, all; // some code point may follow; every one may, into few states
};

static void add_next(struct run *r, uint32_t state) {
    int k = 0;
    r->any = true;
    while (k < r->count && r->next[k] != state)
        k++;
    if (k == MOST_STATES)
        r->all = false;
    else
        r->next[k] = state;
    r->count += k == r->count && k < MOST_STATES;
}

static void take(struct run *r, uint32_t state, uint8_t form);

// One byte of a form, after which its `next` follows.
static void take_byte(struct run *r, uint32_t state, uint8_t byte, uint8_t next) {
    uint32_t to = tables_step(&r->m->t, state, byte);
    matcher_deep(r->m, state);
    if (to == STATE_ERROR)
        return;
    const struct state *s = &r->m->t.states[to];
    if (s->count == 0 && !s->open)
        r->all = false;
    else if (next)
        take(r, to, next);
    else
        add_next(r, to);
}

// Ends when the answer is known.
static void take(struct run *r, uint32_t state, uint8_t form) {
    for (int i = 0; i < PLAIN_ROWS; i++) {
        const uint8_t *starts = r->m->starts[i];
        if (rows[i].form != form)
            continue;
        for (int k = 1; k <= starts[0]; k++)
            take_byte(r, state, starts[k], rows[i].next);
        if ((!r->all && r->any) || r->m->t.rc)
            return;
    }
}

void plain_prepare(struct grammar_matcher *m) {
    const uint8_t *class_of = m->g->class_of;
    for (int i = 0; i < PLAIN_ROWS; i++)
        for (int byte = rows[i].lo; byte <= rows[i].hi; byte++) // bytes of a class lie together
            if (byte == rows[i].lo || class_of[byte] != class_of[byte - 1])
                m->starts[i][++m->starts[i][0]] = (uint8_t)byte;
}

int plain_run(struct grammar_matcher *m, uint32_t state, bool *closed) {
    uint32_t now[MOST_STATES] = {state};
    int count = 1, chars = 0;
    bool open = false;
    *closed = false;
    for (; chars < PLAIN_CHARS; chars++) {
        struct run r = {.m = m, .all = true};
        for (int i = 0; i < count && !m->t.rc; i++) {
            open |= m->t.states[now[i]].open;
            take(&r, now[i], 1);
        }
        if (!r.all || m->t.rc) {
            *closed = !r.any && !open;
            return chars;
        }
        bool same = r.count == count;
        for (int i = 0; i < count && same; i++)
            same = r.next[i] == now[i];
        if (same)
            return PLAIN_CHARS;
        for (int i = 0; i < r.count; i++)
            now[i] = r.next[i];
        count = r.count;
    }
    return PLAIN_CHARS;
}
