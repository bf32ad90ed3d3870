// SPDX-License-Identifier: Apache-2.0
// Expressions to graphs, after Thompson ("Regular Expression Search Algorithm", 1968): each is
// written between two nodes. What is both of two languages, or one without another, is worked out
// on the spot as a product of two graphs with unique choices.
#include <stdlib.h>
#include <string.h>

#include "grammar/expression/expr.h"

enum { DEPTH = 2000, PRODUCT_NODES = 1 << 17 };

static int empty_edge(struct emit *m, uint32_t from, uint32_t to) {
    return graph_edge(m->g, from, (struct graph_edge){.to = to, .kind = EDGE_EMPTY}, &m->b->e);
}

static int byte_edge(struct emit *m, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi) {
    struct graph_edge edge = {.to = to, .kind = EDGE_BYTES, .lo = lo, .hi = hi};
    return graph_edge(m->g, from, edge, &m->b->e);
}

static int emit_bytes(struct emit *m, const struct expr *x, uint32_t from, uint32_t to) {
    const uint8_t *bytes = (const uint8_t *)m->b->data.data + x->a;
    int rc = 0;
    for (uint32_t i = 0; i < x->b && !rc; i++) {
        uint32_t next = i + 1 == x->b ? to : graph_node(m->g, &m->b->e);
        if (next == NO_NODE)
            return m->b->e.code;
        rc = byte_edge(m, from, next, bytes[i], bytes[i]);
        from = next;
    }
    return rc;
}

static int emit_seq(struct emit *m, const struct expr *x, uint32_t from, uint32_t to) {
    uint32_t first = x->a, n = x->b;
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        uint32_t next = i + 1 == n ? to : graph_node(m->g, &m->b->e);
        if (next == NO_NODE)
            return m->b->e.code;
        rc = emit_expr(m, m->b->kids[first + i], from, next);
        from = next;
    }
    return rc;
}

// An alternative of its own begins and ends at nodes of its own, so that a loop in one is none in
// another.
static int emit_apart(struct emit *m, uint32_t expr, uint32_t from, uint32_t to) {
    uint32_t first = graph_node(m->g, &m->b->e);
    uint32_t last = graph_node(m->g, &m->b->e);
    if (first == NO_NODE || last == NO_NODE)
        return m->b->e.code;
    int rc = empty_edge(m, from, first);
    rc = rc ? rc : emit_expr(m, expr, first, last);
    return rc ? rc : empty_edge(m, last, to);
}

struct text {
    const uint8_t *bytes;
    uint32_t n;
};

static int by_bytes(const void *a, const void *b) {
    const struct text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

// Sorted texts from one node, those with the same beginning by the same nodes; way: has room for
// the longest of them, and one more.
static int emit_trie(struct emit *m, const struct text *list, uint32_t n, uint32_t *way,
                     uint32_t to) {
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        uint32_t at = 0;
        while (i && at < list[i - 1].n && at < list[i].n &&
               list[i - 1].bytes[at] == list[i].bytes[at])
            at++;
        for (; at < list[i].n && !rc; at++) {
            way[at + 1] = graph_node(m->g, &m->b->e);
            if (way[at + 1] == NO_NODE)
                return m->b->e.code;
            rc = byte_edge(m, way[at], way[at + 1], list[i].bytes[at], list[i].bytes[at]);
        }
        rc = rc ? rc : empty_edge(m, way[list[i].n], to);
    }
    return rc;
}

// The texts among alternatives; many may begin alike.
static int emit_texts(struct emit *m, const uint32_t *kids, uint32_t n, uint32_t from,
                      uint32_t to) {
    struct text *list = calloc((size_t)n + 1, sizeof *list);
    uint32_t count = 0, longest = 0, *way = NULL;
    for (uint32_t i = 0; i < n && list; i++) {
        const struct expr *x = &m->b->exprs[kids[i]];
        if (x->kind != EXPR_BYTES)
            continue;
        list[count++] = (struct text){(const uint8_t *)m->b->data.data + x->a, x->b};
        longest = x->b > longest ? x->b : longest;
    }
    if (list)
        way = calloc((size_t)longest + 1, sizeof *way);
    int rc = way ? 0 : err_set(&m->b->e, ERR_MEMORY, "no memory for the states of a grammar");
    if (!rc) {
        way[0] = from;
        qsort(list, count, sizeof *list, by_bytes);
        rc = emit_trie(m, list, count, way, to);
    }
    free(list);
    free(way);
    return rc;
}

static int emit_alt(struct emit *m, const struct expr *x, uint32_t from, uint32_t to) {
    const uint32_t *kids = m->b->kids + x->a;
    int rc = emit_texts(m, kids, x->b, from, to);
    for (uint32_t i = 0; i < x->b && !rc; i++)
        if (m->b->exprs[kids[i]].kind != EXPR_BYTES)
            rc = emit_apart(m, kids[i], from, to);
    return rc;
}

// One time of a repetition. What reads one byte has no loop, and needs no nodes of its own.
static int emit_time(struct emit *m, uint32_t expr, uint32_t from, uint32_t to) {
    const struct expr *x = &m->b->exprs[expr];
    bool byte = x->kind == EXPR_RANGE || (x->kind == EXPR_BYTES && x->b == 1);
    return byte ? emit_expr(m, expr, from, to) : emit_apart(m, expr, from, to);
}

static int emit_repeat(struct emit *m, const struct expr *given, uint32_t from, uint32_t to) {
    struct expr x = *given;
    int rc = 0;
    uint32_t at = graph_node(m->g, &m->b->e);
    if (at == NO_NODE)
        return m->b->e.code;
    rc = empty_edge(m, from, at);
    int32_t times = x.max == BUILD_ENDLESS ? x.min : x.max;
    for (int32_t i = 0; i < times && !rc; i++) {
        uint32_t next = graph_node(m->g, &m->b->e);
        if (next == NO_NODE)
            return m->b->e.code;
        if (i >= x.min)
            rc = empty_edge(m, at, to);
        rc = rc ? rc : emit_time(m, x.a, at, next);
        at = next;
    }
    if (!rc && x.max == BUILD_ENDLESS)
        rc = emit_time(m, x.a, at, at);
    return rc ? rc : empty_edge(m, at, to);
}

static int emit_side(struct emit *m, uint32_t expr, struct graph *out) {
    struct graph g = {.work = m->b->work};
    struct emit inner = {.b = m->b, .g = &g, .regular = true, .depth = m->depth};
    struct err *e = &m->b->e;
    uint32_t from = graph_node(&g, e), to = graph_node(&g, e);
    int rc = from == NO_NODE || to == NO_NODE ? e->code : 0;
    if (!rc) {
        g.nodes[to].accept = true;
        rc = emit_expr(&inner, expr, from, to);
    }
    if (!rc) {
        rc = graph_determinise(&g, from, PRODUCT_NODES, INT64_MAX, out, e);
        if (rc == 0)
            rc = err_set(
                e, ERR_LIMIT,
                "a pattern of the grammar, with what else holds of its text, needs more than "
                "%d states; make it shorter or simpler",
                PRODUCT_NODES);
        rc = rc > 0 ? 0 : rc;
    }
    graph_fini(&g);
    return rc;
}

// Copies a graph whose start is node 0 between two nodes.
static int emit_graph(struct emit *m, const struct graph *part, uint32_t from, uint32_t to) {
    uint32_t base = (uint32_t)m->g->node_count;
    int rc = 0;
    for (int64_t i = 0; i < part->node_count; i++)
        if (graph_node(m->g, &m->b->e) == NO_NODE)
            return m->b->e.code;
    if (part->node_count)
        rc = empty_edge(m, from, base);
    for (int64_t i = 0; i < part->node_count && !rc; i++) {
        uint32_t at = base + (uint32_t)i;
        if (part->nodes[i].accept)
            rc = empty_edge(m, at, to);
        for (uint32_t k = part->nodes[i].first; k && !rc; k = part->edges[k - 1].next) {
            const struct graph_edge *edge = &part->edges[k - 1];
            rc = byte_edge(m, at, base + edge->to, edge->lo, edge->hi);
        }
    }
    return rc;
}

static int emit_product(struct emit *m, const struct expr *given, uint32_t from, uint32_t to) {
    struct expr x = *given;
    struct graph one = {0}, other = {0}, both = {0};
    int rc = emit_side(m, x.a, &one);
    rc = rc ? rc : emit_side(m, x.b, &other);
    if (!rc)
        rc = graph_product(&one, &other, x.kind == EXPR_WITHOUT, &both, &m->b->e);
    rc = rc ? rc : emit_graph(m, &both, from, to);
    graph_fini(&one);
    graph_fini(&other);
    graph_fini(&both);
    return rc;
}

static int emit_call(struct emit *m, uint32_t rule, uint32_t from, uint32_t to) {
    if (m->regular)
        return emit_expr(m, m->b->rules[rule].expr, from, to);
    struct graph_edge edge = {.to = to, .kind = EDGE_CALL, .rule = rule};
    return graph_edge(m->g, from, edge, &m->b->e);
}

// From the node that was reached after `at` code points, the last k of which are bytes of the text
// that must not come: each byte of it leads on in it, anything else to its beginning.
static int emit_text_node(struct emit *m, const struct expr *x, uint32_t from, uint32_t row,
                          uint32_t k) {
    const struct expr *without = &m->b->exprs[m->b->kids[x->a]];
    char text[EXPR_TEXT_BYTES];
    int rc = 0;
    memcpy(text, m->b->data.data + without->a, x->b);
    for (uint32_t i = 0; i < x->b && !rc; i++) {
        uint32_t next = chars_matched(text, k, text[i]);
        bool again = memchr(text, text[i], i) != NULL;
        if (next > 0 && next < x->b && !again)
            rc = byte_edge(m, from, row + next, (uint8_t)text[i], (uint8_t)text[i]);
    }
    return rc ? rc : emit_expr(m, m->b->kids[x->a + 1 + k], from, row);
}

// Rows of x.b nodes, one row for each code point. Far from both ends one row allows what another
// does, for as long as a token can be.
static int emit_text(struct emit *m, const struct expr *given, uint32_t *start) {
    struct expr x = *given;
    struct err *e = &m->b->e;
    uint32_t base = (uint32_t)m->g->node_count, width = x.b;
    int32_t last = x.max == BUILD_ENDLESS ? x.min : x.max, wide = (int32_t)width;
    int rc = 0;
    *start = base;
    for (int64_t i = 0; i < (last + 1) * (int64_t)width; i++)
        if (graph_node(m->g, e) == NO_NODE)
            return e->code;
    for (int32_t i = 0; i <= last; i++) {
        int32_t first = (i >= x.min ? x.min : 0) + wide, until = i >= x.min ? last : x.min;
        uint32_t row = base + (uint32_t)i * width, to = i < last ? row + width : row;
        for (uint32_t k = 0; k < width && !rc; k++) {
            struct graph_node *node = &m->g->nodes[row + k];
            node->accept = i >= x.min;
            if (i >= first && until - i > GRAMMAR_TOKEN_BYTES)
                node->like = base + (uint32_t)first * width + k;
            if ((int32_t)k <= i && (i < last || x.max == BUILD_ENDLESS))
                rc = emit_text_node(m, &x, row + k, to, k);
        }
    }
    return rc;
}

// As a part of something else, its ends lead to `to`.
static int emit_text_part(struct emit *m, const struct expr *x, uint32_t from, uint32_t to) {
    uint32_t start, first = (uint32_t)m->g->node_count;
    int rc = emit_text(m, x, &start);
    rc = rc ? rc : empty_edge(m, from, start);
    uint32_t end = (uint32_t)m->g->node_count;
    for (uint32_t i = first; i < end && !rc; i++)
        if (m->g->nodes[i].accept) {
            m->g->nodes[i].accept = false;
            rc = empty_edge(m, i, to);
        }
    return rc;
}

static int emit_kind(struct emit *m, const struct expr *x, uint32_t from, uint32_t to) {
    switch (x->kind) {
    case EXPR_EMPTY:
        return empty_edge(m, from, to);
    case EXPR_BYTES:
        return emit_bytes(m, x, from, to);
    case EXPR_RANGE:
        return byte_edge(m, from, to, x->lo, x->hi);
    case EXPR_CALL:
        return emit_call(m, x->a, from, to);
    case EXPR_SEQ:
        return emit_seq(m, x, from, to);
    case EXPR_ALT:
        return emit_alt(m, x, from, to);
    case EXPR_REPEAT:
    case EXPR_CHAIN:
        return emit_repeat(m, x, from, to);
    case EXPR_TEXT:
        return emit_text_part(m, x, from, to);
    case EXPR_GRAPH:
        return emit_graph(m, &m->b->graphs[x->a], from, to);
    case EXPR_AND:
    case EXPR_WITHOUT:
        return emit_product(m, x, from, to);
    default:
        return 0; // never: no edge
    }
}

int emit_expr(struct emit *m, uint32_t expr, uint32_t from, uint32_t to) {
    if (!build_work(m->b, 1))
        return m->b->e.code;
    if (m->depth >= DEPTH)
        return err_set(&m->b->e, ERR_LIMIT,
                       m->regular
                           ? "a part of the grammar that must be regular recurs or is nested "
                             "deeper than %d"
                           : "the grammar is nested deeper than %d",
                       DEPTH);
    m->depth++;
    int rc = emit_kind(m, &m->b->exprs[expr], from, to);
    m->depth--;
    return rc;
}

// A chain of calls: node i was reached after i of them. Far from both ends one position allows what
// another does, for as long as a token can be.
static int emit_chain(struct emit *m, const struct expr *given, uint32_t *start) {
    struct expr x = *given;
    struct err *e = &m->b->e;
    uint32_t base = (uint32_t)m->g->node_count;
    int32_t last = x.max == BUILD_ENDLESS ? x.min : x.max;
    int rc = 0;
    *start = base;
    for (int32_t i = 0; i <= last; i++)
        if (graph_node(m->g, e) == NO_NODE)
            return e->code;
    for (int32_t i = 0; i <= last && !rc; i++) {
        struct graph_node *node = &m->g->nodes[base + (uint32_t)i];
        int32_t first = i >= x.min ? x.min : 0, until = i >= x.min ? last : x.min;
        node->accept = i >= x.min;
        if (until - i > GRAMMAR_TOKEN_BYTES)
            node->like = base + (uint32_t)first;
        uint32_t to = base + (uint32_t)i + (i < last);
        if (i < last || x.max == BUILD_ENDLESS)
            rc = emit_call(m, m->b->exprs[x.a].a, base + (uint32_t)i, to);
    }
    return rc;
}

int emit_rule(struct emit *m, uint32_t rule, uint32_t *start) {
    const struct rule *r = &m->b->rules[rule];
    if (!r->defined)
        return err_set(&m->b->e, ERR_FORMAT, "the rule '%.*s' is used and never defined", (int)r->n,
                       m->b->data.data + r->name);
    if (m->b->exprs[r->expr].kind == EXPR_CHAIN)
        return emit_chain(m, &m->b->exprs[r->expr], start);
    if (m->b->exprs[r->expr].kind == EXPR_TEXT)
        return emit_text(m, &m->b->exprs[r->expr], start);
    uint32_t from = graph_node(m->g, &m->b->e), to = graph_node(m->g, &m->b->e);
    if (from == NO_NODE || to == NO_NODE)
        return m->b->e.code;
    m->g->nodes[to].accept = true;
    *start = from;
    return emit_expr(m, r->expr, from, to);
}
