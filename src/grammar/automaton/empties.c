// SPDX-License-Identifier: Apache-2.0
// Parts that may be empty, of a compiled grammar: where many of them stand one behind the other it
// is refused, because a step would take the square of their number. Of a repetition that would be
// so there is none (grammar/expression/repeat.c).
#include <stdlib.h>

#include "grammar/grammar_impl.h"

enum { IN_A_ROW = 512 };

struct empties {
    const struct grammar *g;
    const uint8_t *nullable; // [node]
    uint32_t *turn_of, *todo;
    uint32_t turn;
    int64_t steps;
};

// Calls that may be empty on the ways from a node without reading.
static int64_t calls_from(struct empties *s, uint32_t node) {
    uint32_t depth = 0;
    int64_t calls = 0;
    s->turn_of[node] = ++s->turn;
    s->todo[depth++] = node;
    while (depth && calls <= IN_A_ROW) {
        const struct node *n = &s->g->nodes[s->todo[--depth]];
        for (uint32_t i = n->bytes; i < n->edges; i++) {
            const struct edge *edge = &s->g->edges[n->edge + i];
            bool call = edge->kind == EDGE_CALL;
            s->steps++;
            if (call && !s->nullable[edge->call])
                continue;
            calls += call;
            if (s->turn_of[edge->to] != s->turn) {
                s->turn_of[edge->to] = s->turn;
                s->todo[depth++] = edge->to;
            }
        }
    }
    return calls;
}

int grammar_check_empties(const struct grammar *g, const uint8_t *nullable,
                          struct grammar_work *work, struct err *e) {
    struct empties s = {.g = g, .nullable = nullable};
    int rc = 0;
    s.turn_of = calloc(g->node_count, sizeof *s.turn_of);
    s.todo = calloc(g->node_count, sizeof *s.todo);
    if (!s.turn_of || !s.todo)
        rc = err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
    for (uint32_t i = 0; i < g->node_count && !rc; i++) {
        const int64_t before = s.steps;
        const bool many = calls_from(&s, i) > IN_A_ROW;
        rc = grammar_work(work, s.steps - before, e);
        if (many && !rc)
            rc = err_set(e, ERR_LIMIT,
                         "more than %d parts of the grammar that may be empty follow one another; "
                         "let fewer of them be optional",
                         IN_A_ROW);
    }
    free(s.turn_of);
    free(s.todo);
    return rc;
}
