// SPDX-License-Identifier: Apache-2.0
// What grammars are compiled to: graphs of nodes and edges, which grow and may have many choices,
// and the compiled form, a pushdown automaton over bytes. Each rule is a graph of nodes; edges read
// a byte, read nothing, or call a rule and go on at `to` when it has ended.
#ifndef COPPICE_GRAMMAR_AUTOMATON_GRAPH_H
#define COPPICE_GRAMMAR_AUTOMATON_GRAPH_H

#include "grammar/grammar.h"

enum { NO_NODE = UINT32_MAX };

int grammar_work_look(struct grammar_work *w, struct err *e);
// Counts steps: 0, ERR_LIMIT or ERR_CANCELLED.
static inline int grammar_work(struct grammar_work *w, int64_t steps, struct err *e) {
    w->steps += steps;
    return w->steps >= w->ask ? grammar_work_look(w, e) : 0;
}

// ---- graphs: nodes with lists of edges, growing.

enum edge_kind { EDGE_BYTES, EDGE_EMPTY, EDGE_CALL };

struct graph_edge {
    uint32_t to, next; // next: index + 1 of the node's next edge, 0: none
    uint32_t rule;
    uint8_t kind, lo, hi;
};
struct graph_node {
    uint32_t first; // index + 1 of its first edge
    uint32_t like;  // a node that allows the same for GRAMMAR_TOKEN_BYTES bytes; itself
    bool accept;
};
struct graph {
    struct grammar_work *work; // nodes and edges are counted there
    struct graph_node *nodes;
    int64_t node_count, node_cap;
    struct graph_edge *edges;
    int64_t edge_count, edge_cap;
};
enum { GRAPH_NODES = 1 << 20, GRAPH_EDGES = 1 << 22 }; // at most

uint32_t graph_node(struct graph *g, struct err *e); // NO_NODE: error
int graph_edge(struct graph *g, uint32_t from, struct graph_edge edge, struct err *e);
void graph_fini(struct graph *g);

// Makes each node's choice of bytes and calls unique where that takes at most `max` nodes: returns
// 1 and a new graph whose node 0 is the start, 0 when it would take more nodes or more than `steps`
// steps, or an error.
int graph_determinise(const struct graph *g, uint32_t start, int64_t max, int64_t steps,
                      struct graph *out, struct err *e);
// Both must have unique choices and no calls. without: of one but not of the other.
int graph_product(const struct graph *one, const struct graph *other, bool without,
                  struct graph *out, struct err *e);

// ---- the compiled form

struct edge {
    uint32_t to, call; // call: first node of the rule
    uint8_t kind, lo, hi;
};
struct node {
    uint32_t edge, bytes, edges; // the first one, how many that read a byte come first, and all
    uint32_t like;
    uint16_t min_depth; // frames that the text to the end of the rule needs at least //
                        // (grammar/automaton/compile.c)
    bool accept, clear;
    bool last; // accepts, and nothing can follow in its rule
};
struct grammar {
    _Atomic int refs;
    uint32_t start, node_count, edge_count;
    struct node *nodes;
    struct edge *edges;
    uint8_t class_of[256]; // bytes that no edge distinguishes share a class
    int classes;
};

enum { GRAMMAR_DEPTH = 2048 }; // frames of a text, the whole text's among them

#endif
