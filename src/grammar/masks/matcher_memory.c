// SPDX-License-Identifier: Apache-2.0
// The memory of a matcher: when the tables have grown past a bound, they are made anew from the
// states that are held, and everything else is forgotten, masks too.
#include <stdlib.h>

#include "grammar/masks/matcher.h"

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
static uint32_t move_set(const struct tables *old, struct tables *t, uint32_t set, uint32_t *made) {
    if (set <= SET_OPEN || made[set])
        return set <= SET_OPEN ? set : made[set] - 1;
    uint32_t n = old->sets[set].count;
    struct pair *list = malloc(n * sizeof *list);
    for (uint32_t i = 0; i < n && list; i++) {
        list[i] = old->pairs[old->sets[set].at + i];
        if (list[i].node < NODE_OPEN)
            list[i].set = move_set(old, t, list[i].set, made);
    }
    uint32_t moved = list && !t->rc ? tables_set(t, list, n) : (uint32_t)STATE_ERROR;
    free(list);
    if (moved == STATE_ERROR)
        t->rc = ERR_MEMORY;
    else
        made[set] = moved + 1;
    return moved;
}

static uint32_t move_state(const struct tables *old, struct tables *t, uint32_t state,
                           uint32_t *made) {
    const struct state *s = &old->states[state];
    struct pair *list = malloc((s->count + 1) * sizeof *list);
    for (uint32_t i = 0; i < s->count && list; i++) {
        list[i] = old->pairs[s->at + i];
        list[i].set = move_set(old, t, list[i].set, made);
    }
    uint32_t moved = STATE_ERROR;
    if (list && !t->rc)
        moved = tables_state(t, list, s->count, s->may_end, s->open);
    free(list);
    if (moved == STATE_ERROR)
        t->rc = ERR_MEMORY;
    return moved;
}

// Without memory for the new tables the old ones stay.
static void forget(struct grammar_matcher *m) {
    struct tables fresh;
    struct err e;
    uint32_t *made = calloc((size_t)m->t.set_count, sizeof *made);
    if (!made || tables_init(&fresh, m->g, MATCHER_BYTES, &e)) {
        free(made);
        return;
    }
    for (struct grammar_state *s = m->held; s && !fresh.rc; s = s->next)
        if (!s->ended)
            move_state(&m->t, &fresh, s->number, made);
    if (fresh.rc) {
        tables_fini(&fresh);
        free(made);
        return;
    }
    for (struct grammar_state *s = m->held; s; s = s->next)
        if (!s->ended) {
            s->number = move_state(&m->t, &fresh, s->number, made);
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
        forget(m);
    m->t.begun = m->t.all_work;
    m->t.rc = 0;
}
