// SPDX-License-Identifier: Apache-2.0
// States as callers hold them, and the memory of a matcher: when the tables have grown past a
// bound, they are made anew from the states that are held, and everything else is forgotten.
#include "grammar/masks/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

static struct grammar_state *hold(struct grammar_matcher *m, uint32_t number, bool ended) {
    struct grammar_state *s = ended ? m->ended : m->t.states[number].held;
    if (s) {
        s->refs++;
        return s;
    }
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct grammar_state){.refs = 1, .number = number, .ended = ended, .next = m->held};
    if (m->held)
        m->held->prev = s;
    m->held = s;
    if (ended)
        m->ended = s;
    else
        m->t.states[number].held = s;
    return s;
}

int grammar_matcher_create(struct grammar_matcher **out, struct grammar *g,
                           const struct grammar_vocab *v, struct err *e) {
    struct grammar_matcher *m = calloc(1, sizeof *m);
    int rc = 0;
    *out = NULL;
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a grammar");
    m->g = grammar_ref(g);
    m->v = v;
    m->bits = calloc((size_t)v->words + 1, sizeof *m->bits);
    if (!m->bits)
        rc = err_set(e, ERR_MEMORY, "no memory for a mask");
    rc = rc ? rc : tables_init(&m->t, g, MATCHER_BYTES, e);
    plain_prepare(m);
    uint32_t start = rc ? (uint32_t)STATE_ERROR : tables_start(&m->t);
    if (!rc && start == STATE_ERROR)
        rc = matcher_error(m, NULL, e);
    if (!rc && !(m->start = hold(m, start, false)))
        rc = err_set(e, ERR_MEMORY, "no memory for a state of a grammar");
    if (rc)
        grammar_matcher_destroy(m);
    else
        *out = m;
    return rc;
}

void grammar_matcher_destroy(struct grammar_matcher *m) {
    if (!m)
        return;
    while (m->held) {
        struct grammar_state *s = m->held;
        m->held = s->next;
        free(s);
    }
    masks_forget(m);
    for (int i = 0; i < WHOLE_MASKS; i++)
        free(m->whole[i].bits);
    free(m->locals);
    free(m->bits);
    free(m->frames);
    free(m->readings);
    tables_fini(&m->t);
    grammar_unref(m->g);
    free(m);
}

size_t grammar_matcher_bytes(const struct grammar_matcher *m) {
    size_t bytes = tables_bytes(&m->t) + m->local_bytes;
    for (int i = 0; i < WHOLE_MASKS; i++)
        bytes += m->whole[i].bits ? (size_t)m->v->words * sizeof(uint32_t) : 0;
    return bytes;
}

int64_t grammar_matcher_work(const struct grammar_matcher *m) {
    enum { PLACES = 8 };
    return m->t.all_work + m->walked / PLACES;
}

void grammar_matcher_allow(struct grammar_matcher *m, int64_t steps) {
    m->t.allowed = steps < INT64_MAX - m->t.all_work ? m->t.all_work + steps : INT64_MAX;
}

// ---- states

struct grammar_state *grammar_state_ref(struct grammar_state *s) {
    s->refs++;
    return s;
}

void grammar_state_unref(struct grammar_matcher *m, struct grammar_state *s) {
    if (s && m->going == s) // who waited for it may be the one that is gone
        m->going = NULL;
    if (!s || --s->refs > 0)
        return;
    if (s->ended)
        m->ended = NULL;
    else
        m->t.states[s->number].held = NULL;
    if (s->prev)
        s->prev->next = s->next;
    else
        m->held = s->next;
    if (s->next)
        s->next->prev = s->prev;
    free(s);
}

struct grammar_state *grammar_start(struct grammar_matcher *m) {
    return grammar_state_ref(m->start);
}

// ---- states with too many readings

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

// The first half and the last half of a list, `max` in all; how many are left.
static uint32_t halves(struct pair *list, uint32_t n, uint32_t max) {
    if (n <= max)
        return n;
    memmove(list + (max + 1) / 2, list + n - max / 2, max / 2 * sizeof *list);
    return max;
}

static struct pair *copy_pairs(const struct tables *from, int64_t at, uint32_t n,
                               struct tables *t) {
    struct pair *list = malloc((size_t)n * sizeof *list + 1);
    if (list)
        memcpy(list, from->pairs + at, (size_t)n * sizeof *list);
    else
        t->rc = err_set(&t->e, ERR_MEMORY, "no memory for a state of a grammar");
    return list;
}

static uint32_t narrow_set(struct grammar_matcher *m, uint32_t set, uint32_t max, int levels) {
    if (set <= SET_OPEN || levels == 0 || m->t.rc)
        return set;
    uint32_t n = m->t.sets[set].count;
    struct pair *list = copy_pairs(&m->t, m->t.sets[set].at, n, &m->t);
    if (!list)
        return STATE_ERROR;
    n = halves(list, n, max);
    for (uint32_t i = 0; i < n && !m->t.rc; i++)
        list[i].set = narrow_set(m, list[i].set, max_u32(max / n, 1), levels - 1);
    uint32_t few = m->t.rc ? (uint32_t)STATE_ERROR : tables_set(&m->t, list, n);
    free(list);
    return few;
}

// The same state, or one with some of its readings: all that can follow them can follow the state.
// What follows a token is narrowed and nothing else, so a mask is that of single steps still.
static uint32_t narrow_state(struct grammar_matcher *m, uint32_t state) {
    enum { ENTRIES = 1 << 12 };
    const struct state s = m->t.states[state];
    if (s.weight <= WEIGHED_LEVELS * ENTRIES)
        return state;
    struct pair *list = copy_pairs(&m->t, s.at, s.count, &m->t);
    if (!list)
        return STATE_ERROR;
    uint32_t n = halves(list, s.count, ENTRIES), few;
    for (uint32_t i = 0; i < n && !m->t.rc; i++)
        list[i].set = narrow_set(m, list[i].set, max_u32(ENTRIES / n, 1), WEIGHED_LEVELS);
    few = m->t.rc ? (uint32_t)STATE_ERROR : tables_state(&m->t, list, n, s.may_end, s.open);
    free(list);
    return few;
}

static int accept(struct grammar_matcher *m, const struct grammar_state *from, const char *bytes,
                  size_t n, struct grammar_state **to, struct err *e) {
    matcher_begin(m);
    uint32_t state = from->number;
    for (size_t i = 0; i < n && state != STATE_DEAD && state != STATE_ERROR; i++)
        state = tables_step(&m->t, state, (uint8_t)bytes[i]);
    if (state != STATE_DEAD && state != STATE_ERROR)
        state = narrow_state(m, state);
    if (state == STATE_ERROR)
        return matcher_error(m, from, e);
    matcher_finished(m, from);
    if (state == STATE_DEAD)
        return 0;
    *to = hold(m, state, false);
    return *to ? 1 : err_set(e, ERR_MEMORY, "no memory for a state of a grammar");
}

enum { PIECE = 8 }; // bytes, about a token

int grammar_accept_bytes(struct grammar_matcher *m, const struct grammar_state *from,
                         const char *bytes, size_t n, struct grammar_state **to, struct err *e) {
    struct grammar_state *s = NULL, *next;
    size_t at = 0;
    int rc;
    *to = NULL;
    if (from->ended)
        return 0;
    do { // in pieces, so that readings stay few, and what was worked out may be forgotten
        size_t piece = min_size(n - at, PIECE);
        rc = accept(m, s ? s : from, bytes + at, piece, &next, e);
        grammar_state_unref(m, s);
        s = rc == 1 ? next : NULL;
        at += piece;
    } while (rc == 1 && at < n);
    *to = s;
    return rc;
}

int grammar_accept(struct grammar_matcher *m, const struct grammar_state *from, int32_t token,
                   struct grammar_state **to, struct err *e) {
    const char *bytes;
    *to = NULL;
    if (from->ended || token < 0 || token >= m->v->size)
        return 0;
    if (vocab_ends(m->v, token)) {
        if (!grammar_may_end(m, from))
            return 0;
        *to = hold(m, STATE_DEAD, true);
        return *to ? 1 : err_set(e, ERR_MEMORY, "no memory for a state of a grammar");
    }
    size_t n = vocab_bytes(m->v, token, &bytes);
    return n ? accept(m, from, bytes, n, to, e) : 0;
}

bool grammar_may_end(const struct grammar_matcher *m, const struct grammar_state *s) {
    return !s->ended && m->t.states[s->number].may_end;
}

bool grammar_must_end(const struct grammar_matcher *m, const struct grammar_state *s) {
    return s->ended || m->t.states[s->number].count == 0;
}

// The only byte that may follow, or -1.
static int only_byte(struct grammar_matcher *m, uint32_t state, uint32_t *to) {
    int found = -1;
    if (m->t.states[state].may_end)
        return -1;
    for (int byte = 0; byte < 256; byte++) {
        uint32_t next = tables_step(&m->t, state, (uint8_t)byte);
        if (next == STATE_DEAD)
            continue;
        if (next == STATE_ERROR || found >= 0)
            return -1;
        found = byte;
        *to = next;
    }
    return found;
}

int grammar_forced_bytes(struct grammar_matcher *m, const struct grammar_state *s, size_t max,
                         struct str *append, struct err *e) {
    if (s->ended)
        return 0;
    matcher_begin(m);
    uint32_t state = s->number;
    for (size_t i = 0; i < max && !m->t.rc; i++) {
        int byte = only_byte(m, state, &state);
        if (byte < 0)
            break;
        str_putc(append, (char)byte);
    }
    if (append->failed)
        return err_set(e, ERR_MEMORY, "no memory for a text that a grammar forces");
    return m->t.rc ? matcher_error(m, s, e) : 0;
}

// The memory of a matcher: when the tables have grown past a bound, they are made anew from the
// states that are held, and everything else is forgotten, masks too.

enum { SOFT = 64 << 20 }; // bytes of tables and local masks

int matcher_error(struct grammar_matcher *m, const struct grammar_state *from, struct err *e) {
    if (m->t.rc == ERR_UNFINISHED && !m->going)
        m->going = from;
    return err_set(e, m->t.rc, "%s", m->t.e.text);
}

void local_mask_fini(struct local_mask *l) {
    free(l->bits);
    free(l->ids);
    free(l->exits);
}

void masks_forget(struct grammar_matcher *m) {
    for (int64_t i = 0; i < m->local_count; i++)
        local_mask_fini(&m->locals[i]);
    m->local_count = 0;
    m->local_bytes = 0;
    for (int i = 0; i < WHOLE_MASKS; i++)
        m->whole[i].state = STATE_DEAD;
}

// The number of an old stack set in new tables. `made`: [old set] new number + 1.
static uint32_t rebuild_set(const struct tables *old, struct tables *t, uint32_t set,
                            uint32_t *made) {
    if (set <= SET_OPEN || made[set])
        return set <= SET_OPEN ? set : made[set] - 1;
    uint32_t n = old->sets[set].count;
    struct pair *list = copy_pairs(old, old->sets[set].at, n, t);
    for (uint32_t i = 0; i < n && list; i++)
        if (list[i].node < NODE_OPEN)
            list[i].set = rebuild_set(old, t, list[i].set, made);
    uint32_t moved = list && !t->rc ? tables_set(t, list, n) : (uint32_t)STATE_ERROR;
    free(list);
    if (moved == STATE_ERROR)
        t->rc = ERR_MEMORY;
    else
        made[set] = moved + 1;
    return moved;
}

static uint32_t rebuild_state(const struct tables *old, struct tables *t, uint32_t state,
                              uint32_t *made) {
    const struct state *s = &old->states[state];
    struct pair *list = copy_pairs(old, s->at, s->count, t);
    for (uint32_t i = 0; i < s->count && list; i++)
        list[i].set = rebuild_set(old, t, list[i].set, made);
    uint32_t moved = STATE_ERROR;
    if (list && !t->rc)
        moved = tables_state(t, list, s->count, s->may_end, s->open);
    free(list);
    if (moved == STATE_ERROR)
        t->rc = ERR_MEMORY;
    return moved;
}

// Without memory for the new tables the old ones stay.
static void rebuild_tables(struct grammar_matcher *m) {
    struct tables fresh;
    struct err e;
    uint32_t *made = calloc((size_t)m->t.set_count, sizeof *made);
    if (!made || tables_init(&fresh, m->g, MATCHER_BYTES, &e)) {
        free(made);
        return;
    }
    for (struct grammar_state *s = m->held; s && !fresh.rc; s = s->next)
        if (!s->ended)
            rebuild_state(&m->t, &fresh, s->number, made);
    if (fresh.rc) {
        tables_fini(&fresh);
        free(made);
        return;
    }
    for (struct grammar_state *s = m->held; s; s = s->next)
        if (!s->ended) {
            s->number = rebuild_state(&m->t, &fresh, s->number, made);
            fresh.states[s->number].held = s;
        }
    free(made);
    masks_forget(m);
    fresh.all_work += m->t.all_work;
    fresh.allowed = m->t.allowed;
    tables_fini(&m->t);
    m->t = fresh;
}

void matcher_begin(struct grammar_matcher *m) {
    m->t.rc = 0;
    if (!m->going && tables_bytes(&m->t) + m->local_bytes > SOFT)
        rebuild_tables(m);
    m->t.begun = m->t.all_work;
    m->t.rc = 0;
}

// Whether a state takes any ordinary text: inside of a JSON string the answer is yes for
// all plain tokens at once, or for those of at most that many code points where the length is
// bounded.

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
enum { MAX_STATES = 8 };

struct run {
    struct grammar_matcher *m;
    uint32_t next[MAX_STATES];
    int count;
    bool any, all; // some code point may follow; every one may, into few states
};

static void add_plain_state(struct run *r, uint32_t state) {
    int k = 0;
    r->any = true;
    while (k < r->count && r->next[k] != state)
        k++;
    if (k == MAX_STATES)
        r->all = false;
    else
        r->next[k] = state;
    r->count += k == r->count && k < MAX_STATES;
}

static void take(struct run *r, uint32_t state, uint8_t form);

// One byte of a form, after which its `next` follows.
static void plain_after_byte(struct run *r, uint32_t state, uint8_t byte, uint8_t next) {
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
        add_plain_state(r, to);
}

// Ends when the answer is known.
static void take(struct run *r, uint32_t state, uint8_t form) {
    for (int i = 0; i < PLAIN_ROWS; i++) {
        const uint8_t *starts = r->m->starts[i];
        if (rows[i].form != form)
            continue;
        for (int k = 1; k <= starts[0]; k++)
            plain_after_byte(r, state, starts[k], rows[i].next);
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
    uint32_t now[MAX_STATES] = {state};
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
