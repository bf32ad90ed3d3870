// SPDX-License-Identifier: Apache-2.0
// The inside of a build: expressions and rules as tables, and what writes them as graphs.
#ifndef COPPICE_GRAMMAR_EXPRESSION_EXPR_H
#define COPPICE_GRAMMAR_EXPRESSION_EXPR_H

#include "base/map.h"
#include "base/memory/arena.h"
#include "grammar/automaton/graph.h"
#include "grammar/expression/build.h"

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
    EXPR_TEXT,    // min to max code points without a text in them: kid a is that text, after it
                  // stand b kids, one for each of its bytes: what begins none of it there
    EXPR_GRAPH,   // a: of build.graphs, from its node 0 to the ends in it; no calls
    EXPR_AND,     // a, b
    EXPR_WITHOUT, // a, b
};

struct expr {
    uint8_t kind, lo, hi;
    uint32_t a, b;
    int32_t min, max;
    uint32_t size; // nodes that it takes, about; BUILD_SIZE_MAX at most
};

enum { BUILD_SIZE_MAX = 1 << 28 };

// Bytes of the shortest and of the longest text, as far as they are known.
struct build_extent {
    int64_t least, max;
};

struct rule {
    uint32_t expr; // BUILD_NEVER until defined
    bool defined;
    bool clear;       // too small to be a frame of its own for masks (grammar/masks/mask.c)
    uint32_t name, n; // in data
    // Found once, however many ways lead here. Of a rule that is still being looked at: what always
    // holds (it is not known to be empty, it is as it is, of any length).
    uint8_t nullable;           // enum, grammar/expression/build.c; 0: not computed yet
    uint32_t some;              // its texts but the empty one; 0: not computed yet, else index + 1
    bool measured;              // extent is known
    struct build_extent extent; // grammar/expression/build.c
};

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
    char place[320]; // what the sentence says when no text can satisfy the grammar
};

uint32_t build_expr(struct build *b, struct expr x); // a new one; BUILD_NEVER: an error
// A call of a rule of an expression that a chain calls once a time.
uint32_t build_small_rule(struct build *b, uint32_t part);
struct build_extent build_extent(struct build *b, uint32_t expr, int depth); // depth: 0
// The graph as an expression, which takes it over, after errors too.
uint32_t build_graph(struct build *b, struct graph *g);

// Of the text that an EXPR_TEXT is without, at most; how much of it stands at the end of its first
// k bytes and this one.
enum { EXPR_TEXT_BYTES = 32 };
uint32_t chars_matched(const char *text, uint32_t k, char byte);

// Writes an expression between two nodes (grammar/automaton/emit.c). regular: calls are written
// out.
struct emit {
    struct build *b;
    struct graph *g;
    bool regular;
    int depth;
};
int emit_expr(struct emit *m, uint32_t expr, uint32_t from, uint32_t to);
int emit_rule(struct emit *m, uint32_t rule, uint32_t *start); // into m->g, which may hold others

#endif
