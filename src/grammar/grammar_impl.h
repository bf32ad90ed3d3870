// SPDX-License-Identifier: Apache-2.0
// What the parts of the grammar engine share: expressions as they are built, the graph that they
// become, and the compiled form, a pushdown automaton over bytes. Each rule is a graph of nodes;
// edges read a byte, read nothing, or call a rule and go on at `to` when it has ended.
#ifndef COPPICE_GRAMMAR_IMPL_H
#define COPPICE_GRAMMAR_IMPL_H

#include "base/map.h"
#include "base/memory/arena.h"
#include "grammar/expression/build.h"
#include "grammar/grammar.h"

enum { NO_NODE = UINT32_MAX };

int grammar_work_look(struct grammar_work *w, struct err *e);
// Counts steps: 0, ERR_LIMIT or ERR_CANCELLED.
static inline int grammar_work(struct grammar_work *w, int64_t steps, struct err *e) {
    w->steps += steps;
    return w->steps >= w->ask ? grammar_work_look(w, e) : 0;
}

enum expr_kind {
    EXPR_NEVER,
    EXPR_EMPTY,
    EXPR_BYTES,   // a: offset in data, b: length
    EXPR_RANGE,   // lo, hi
    EXPR_CALL,    // a: rule
    EXPR_SEQ,     // a: first of kids, b: their number
    EXPR_ALT,     // the same
    EXPR_REPEAT,  // a: part; min, max (-1: endless); written out
    EXPR_CHAIN,   // the same as the whole of a rule, one node a time, with `like`
    EXPR_TEXT,    // min to max code points without a text in them: kid a is that text, behind it
                  // stand b kids, one for each of its bytes: what begins none of it there
    EXPR_GRAPH,   // a: of build.graphs, from its node 0 to the ends in it; no calls
    EXPR_AND,     // a, b
    EXPR_WITHOUT, // a, b
};

struct expr {
    uint8_t kind, lo, hi;
    uint32_t a, b;
    int32_t min, max;
    uint32_t size; // nodes that it takes, about; BUILD_SIZE_MOST at most
};

enum { BUILD_SIZE_MOST = 1 << 28 };

// Bytes of the shortest and of the longest text, as far as they are known.
struct build_extent {
    int64_t least, most;
};

struct rule {
    uint32_t expr; // BUILD_NEVER until defined
    bool defined;
    bool clear;       // too small to be a frame of its own for masks (matcher_mask.c)
    uint32_t name, n; // in data
    // Found once, however many ways lead here. Of a rule that is still being looked at: what always
    // holds (it is not known to be empty, it is as it is, of any length).
    uint8_t nullable;           // enum, grammar/expression/repeat.c; 0: not asked yet
    uint32_t some;              // its texts but the empty one; 0: not asked yet, else index + 1
    bool measured;              // extent is known
    struct build_extent extent; // grammar/expression/extent.c
};

struct graph;
struct build {
    struct err e;
    struct grammar_work *work, own;
    struct expr *exprs;
    int64_t expr_count, expr_cap;
    uint32_t *kids;
    int64_t kid_count, kid_cap;
    struct rule *rules;
    int64_t rule_count, rule_cap;
    struct graph *graphs;
    int64_t graph_count, graph_cap;
    struct str data;
    struct grammar_json how;
    // Parts of JSON that were made already; 0: not yet.
    uint32_t space, chars, strings, numbers, integers, values, objects, arrays;
    uint32_t value_rule;
    char place[320]; // what the sentence says when no text can satisfy the grammar
};

uint32_t build_expr(struct build *b, struct expr x); // a new one; BUILD_NEVER: an error
// A call of a rule of an expression that a chain calls once a time.
uint32_t build_small_rule(struct build *b, uint32_t part);
struct build_extent build_extent(struct build *b, uint32_t expr, int depth); // depth: 0

// ---- graphs (grammar/automaton/graph.c): nodes with lists of edges, growing.

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

uint32_t build_graph(struct build *b, struct graph *g); // takes it over, after errors too
uint32_t graph_node(struct graph *g, struct err *e);    // NO_NODE: error
int graph_edge(struct graph *g, uint32_t from, struct graph_edge edge, struct err *e);
void graph_fini(struct graph *g);

// Makes each node's choice of bytes and calls unique where that takes at most `most` nodes: returns
// 1 and a new graph whose node 0 is the start, 0 when it would take more nodes or more than `steps`
// steps, or an error.
int graph_determinise(const struct graph *g, uint32_t start, int64_t most, int64_t steps,
                      struct graph *out, struct err *e);
// Both must have unique choices and no calls. without: of one but not of the other.
int graph_product(const struct graph *one, const struct graph *other, bool without,
                  struct graph *out, struct err *e);

// Writes an expression between two nodes (grammar/automaton/emit.c). regular: calls are written
// out.
struct emit {
    struct build *b;
    struct graph *g;
    bool regular;
    int depth;
};
int emit_expr(struct emit *m, uint32_t expr, uint32_t from, uint32_t to);
// How much of text[n] stands at the end of its first k bytes and this one.
enum { EXPR_TEXT_BYTES = 32 }; // of the text that an EXPR_TEXT is without, at most
uint32_t emit_matched(const char *text, uint32_t k, char byte);
int emit_rule(struct emit *m, uint32_t rule, uint32_t *start); // into m->g, which may hold others

// ---- the compiled form

struct edge {
    uint32_t to, call; // call: first node of the rule
    uint8_t kind, lo, hi;
};
struct node {
    uint32_t edge, bytes, edges; // the first one, how many that read a byte come first, and all
    uint32_t like;
    uint16_t height; // frames that the text to the end of the rule needs at least
                     // (grammar/automaton/heights.c)
    bool accept, clear;
    bool last; // accepts, and nothing can follow in its rule
};
struct grammar {
    _Atomic int refs;
    uint32_t start, node_count, edge_count;
    struct node *nodes;
    struct edge *edges;
    uint8_t class_of[256]; // bytes that no edge tells apart share a class
    int classes;
};

enum { GRAMMAR_DEPTH = 2048 }; // frames of a text, the whole text's among them
// Fills in the heights. ERR_LIMIT where every text needs more than GRAMMAR_DEPTH frames.
int grammar_heights(struct grammar *g, struct grammar_work *work, struct err *e);
// ERR_LIMIT where too many parts that may be empty follow one another. nullable: [node]: its rule
// can end there without reading (grammar/automaton/empties.c).
int grammar_check_empties(const struct grammar *g, const uint8_t *nullable,
                          struct grammar_work *work, struct err *e);

#endif
