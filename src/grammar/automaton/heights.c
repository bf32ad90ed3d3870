// SPDX-License-Identifier: Apache-2.0
// How many frames the shortest way down needs: a node's height is the least number of frames above
// its own that some text from there to the end of its rule needs. Stacks are bounded, and a reading
// whose height does not fit any more is left out (tables.c), so what is left can be completed.
// Found level by level, after Knuth ("A Generalization of Dijkstra's Algorithm", 1977).
#include <stdlib.h>

#include "base/num.h"
#include "grammar/automaton/incoming.h"
#include "grammar/grammar_impl.h"

enum { UNKNOWN = UINT16_MAX };

struct heights {
    struct grammar *g;
    struct incoming in;
    uint32_t *todo, *later; // nodes of this level, and of the next
    int64_t todo_count, later_count;
    uint16_t level;
};

static void mark(struct heights *h, uint32_t node) {
    if (h->g->nodes[node].height != UNKNOWN)
        return;
    h->g->nodes[node].height = h->level;
    h->todo[h->todo_count++] = node;
}

// An edge of which the last end has got its height.
static void consider(struct heights *h, uint32_t at) {
    const struct edge *edge = &h->g->edges[at];
    const struct node *to = &h->g->nodes[edge->to];
    uint16_t height = to->height, called;
    if (height == UNKNOWN || h->g->nodes[h->in.from[at]].height != UNKNOWN)
        return;
    if (edge->kind == EDGE_CALL) {
        called = h->g->nodes[edge->call].height;
        if (called == UNKNOWN)
            return;
        called += !to->last;
        height = height > called ? height : called;
    }
    if (height <= h->level)
        mark(h, h->in.from[at]);
    else
        h->later[h->later_count++] = h->in.from[at];
}

static void spread_level(struct heights *h) {
    while (h->todo_count) {
        uint32_t node = h->todo[--h->todo_count];
        for (uint32_t k = h->in.first[node]; k; k = h->in.next[k - 1])
            consider(h, k - 1);
        for (uint32_t k = h->in.calls[node]; k; k = h->in.call_next[k - 1])
            consider(h, k - 1);
    }
}

static void link_edges(struct heights *h) {
    const struct grammar *g = h->g;
    for (uint32_t i = 0; i < g->node_count; i++)
        for (uint32_t k = g->nodes[i].edge; k < g->nodes[i].edge + g->nodes[i].edges; k++) {
            const struct edge *edge = &g->edges[k];
            incoming_add(&h->in, k, i, edge->to, edge->kind == EDGE_CALL ? edge->call : NO_NODE);
        }
}

static void find(struct heights *h) {
    link_edges(h);
    for (uint32_t i = 0; i < h->g->node_count; i++) {
        h->g->nodes[i].height = UNKNOWN;
        if (h->g->nodes[i].accept)
            mark(h, i);
    }
    spread_level(h);
    while (h->later_count && h->level < GRAMMAR_DEPTH) {
        h->level++;
        int64_t n = h->later_count;
        h->later_count = 0;
        for (int64_t i = 0; i < n; i++)
            mark(h, h->later[i]);
        spread_level(h);
    }
}

int grammar_heights(struct grammar *g, struct grammar_work *work, struct err *e) {
    size_t n = g->node_count, m = (size_t)g->edge_count + 1;
    struct heights h = {.g = g};
    int rc = grammar_work(work, (int64_t)n + g->edge_count, e);
    rc = rc ? rc : incoming_init(&h.in, n, g->edge_count, e);
    h.todo = calloc(n, sizeof(uint32_t));
    h.later = calloc(2 * m, sizeof(uint32_t)); // an edge is looked at from both of its ends
    if (!rc && (!h.todo || !h.later))
        rc = err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
    if (!rc)
        find(&h);
    if (!rc && g->nodes[g->start].height >= GRAMMAR_DEPTH)
        rc = err_set(e, ERR_LIMIT,
                     "every text of the grammar has more than %d rules within each other",
                     GRAMMAR_DEPTH);
    incoming_fini(&h.in);
    free(h.todo);
    free(h.later);
    return rc;
}
