// SPDX-License-Identifier: Apache-2.0
// States as callers hold them, and the memory of a matcher: when the tables have grown past a
// bound, they are made anew from the states that are held, and everything else is forgotten.
#include "grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

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

// ---- states

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

struct grammar_state *grammar_state_ref(struct grammar_state *s) {
    s->refs++;
    return s;
}

void grammar_state_unref(struct grammar_matcher *m, struct grammar_state *s) {
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
    matcher_begin(m);
    uint32_t number = tables_start(&m->t);
    return number == STATE_ERROR ? NULL : hold(m, number, false);
}

static int accept(struct grammar_matcher *m, const struct grammar_state *from, const char *bytes,
                  size_t n, struct grammar_state **to, struct err *e) {
    matcher_begin(m);
    uint32_t state = from->number;
    for (size_t i = 0; i < n; i++) {
        state = tables_step(&m->t, state, (uint8_t)bytes[i]);
        if (state == STATE_DEAD)
            return 0;
        if (state == STATE_ERROR)
            return matcher_error(m, e);
    }
    *to = hold(m, state, false);
    return *to ? 1 : err_set(e, ERR_MEMORY, "no memory for a state of a grammar");
}

int grammar_accept_bytes(struct grammar_matcher *m, const struct grammar_state *from,
                         const char *bytes, size_t n, struct grammar_state **to, struct err *e) {
    *to = NULL;
    return from->ended ? 0 : accept(m, from, bytes, n, to, e);
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

int grammar_forced_bytes(struct grammar_matcher *m, const struct grammar_state *s, size_t most,
                         struct str *append, struct err *e) {
    if (s->ended)
        return 0;
    matcher_begin(m);
    uint32_t state = s->number;
    for (size_t i = 0; i < most && !m->t.rc; i++) {
        int byte = only_byte(m, state, &state);
        if (byte < 0)
            break;
        str_putc(append, (char)byte);
    }
    if (append->failed)
        return err_set(e, ERR_MEMORY, "no memory for a text that a grammar forces");
    return m->t.rc ? matcher_error(m, e) : 0;
}
