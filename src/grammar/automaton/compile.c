// SPDX-License-Identifier: Apache-2.0
// From expressions to the compiled form: the rules that the root needs are written as graphs, given
// unique choices where that is cheap, and put into one graph; what can never be finished is cut
// off, so that every state that is reached can be completed; rules that would call themselves
// without reading are refused.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/expression/expr.h"

// Edges by where they lead: for what spreads from the ends of rules backwards.
// Lists of edges, each as index + 1, 0 at the end: into a node first[node], then next[edge]; that
// call the rule which starts at a node calls[node], then call_next[edge].
struct incoming {
    uint32_t *from; // [edge] its node
    uint32_t *first, *next;
    uint32_t *calls, *call_next;
};

static void incoming_fini(struct incoming *in) {
    free(in->from);
    free(in->first);
    free(in->next);
    free(in->calls);
    free(in->call_next);
    *in = (struct incoming){0};
}

static int incoming_init(struct incoming *in, size_t nodes, size_t edges, struct err *e) {
    in->from = calloc(edges + 1, sizeof *in->from);
    in->first = calloc(nodes + 1, sizeof *in->first);
    in->next = calloc(edges + 1, sizeof *in->next);
    in->calls = calloc(nodes + 1, sizeof *in->calls);
    in->call_next = calloc(edges + 1, sizeof *in->call_next);
    if (in->from && in->first && in->next && in->calls && in->call_next)
        return 0;
    incoming_fini(in);
    return err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
}

static void incoming_add(struct incoming *in, uint32_t edge, uint32_t from, uint32_t to,
                         uint32_t called) {
    in->from[edge] = from;
    in->next[edge] = in->first[to];
    in->first[to] = edge + 1;
    if (called == NO_NODE)
        return;
    in->call_next[edge] = in->calls[called];
    in->calls[called] = edge + 1;
}

// How many frames the shortest way down needs: a node's minimum depth is the least number of frames
// above its own that some text from there to the end of its rule needs. Stacks are bounded, and a
// reading whose minimum depth does not fit any more is left out (tables.c), so what is left can be
// completed. Found level by level, after Knuth ("A Generalization of Dijkstra's Algorithm", 1977).

enum { UNKNOWN = UINT16_MAX };

struct min_depths {
    struct grammar *g;
    struct incoming in;
    uint32_t *todo, *later; // nodes of this level, and of the next
    int64_t todo_count, later_count;
    uint16_t level;
};

static void set_min_depth(struct min_depths *h, uint32_t node) {
    if (h->g->nodes[node].min_depth != UNKNOWN)
        return;
    h->g->nodes[node].min_depth = h->level;
    h->todo[h->todo_count++] = node;
}

// An edge of which the minimum depth of the last end is known.
static void try_edge(struct min_depths *h, uint32_t at) {
    const struct edge *edge = &h->g->edges[at];
    const struct node *to = &h->g->nodes[edge->to];
    uint16_t min_depth = to->min_depth, called;
    if (min_depth == UNKNOWN || h->g->nodes[h->in.from[at]].min_depth != UNKNOWN)
        return;
    if (edge->kind == EDGE_CALL) {
        called = h->g->nodes[edge->call].min_depth;
        if (called == UNKNOWN)
            return;
        called += !to->last;
        min_depth = min_depth > called ? min_depth : called;
    }
    if (min_depth <= h->level)
        set_min_depth(h, h->in.from[at]);
    else
        h->later[h->later_count++] = h->in.from[at];
}

static void spread_level(struct min_depths *h) {
    while (h->todo_count) {
        uint32_t node = h->todo[--h->todo_count];
        for (uint32_t k = h->in.first[node]; k; k = h->in.next[k - 1])
            try_edge(h, k - 1);
        for (uint32_t k = h->in.calls[node]; k; k = h->in.call_next[k - 1])
            try_edge(h, k - 1);
    }
}

static void link_edges(struct min_depths *h) {
    const struct grammar *g = h->g;
    for (uint32_t i = 0; i < g->node_count; i++)
        for (uint32_t k = g->nodes[i].edge; k < g->nodes[i].edge + g->nodes[i].edges; k++) {
            const struct edge *edge = &g->edges[k];
            incoming_add(&h->in, k, i, edge->to, edge->kind == EDGE_CALL ? edge->call : NO_NODE);
        }
}

static void spread_min_depths(struct min_depths *h) {
    link_edges(h);
    for (uint32_t i = 0; i < h->g->node_count; i++) {
        h->g->nodes[i].min_depth = UNKNOWN;
        if (h->g->nodes[i].accept)
            set_min_depth(h, i);
    }
    spread_level(h);
    while (h->later_count && h->level < GRAMMAR_DEPTH) {
        h->level++;
        int64_t n = h->later_count;
        h->later_count = 0;
        for (int64_t i = 0; i < n; i++)
            set_min_depth(h, h->later[i]);
        spread_level(h);
    }
}

// ERR_LIMIT where every text needs more than GRAMMAR_DEPTH frames.
static int find_min_depths(struct grammar *g, struct grammar_work *work, struct err *e) {
    size_t n = g->node_count, m = (size_t)g->edge_count + 1;
    struct min_depths h = {.g = g};
    int rc = grammar_work(work, (int64_t)n + g->edge_count, e);
    rc = rc ? rc : incoming_init(&h.in, n, g->edge_count, e);
    h.todo = calloc(n, sizeof(uint32_t));
    h.later = calloc(2 * m, sizeof(uint32_t)); // an edge is looked at from both of its ends
    if (!rc && (!h.todo || !h.later))
        rc = err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
    if (!rc)
        spread_min_depths(&h);
    if (!rc && g->nodes[g->start].min_depth >= GRAMMAR_DEPTH)
        rc = err_set(e, ERR_LIMIT,
                     "every text of the grammar has more than %d rules within each other",
                     GRAMMAR_DEPTH);
    incoming_fini(&h.in);
    free(h.todo);
    free(h.later);
    return rc;
}

// Parts that may be empty, of a compiled grammar: where many of them stand one after the other it
// is refused, because a step would take the square of their number. Of a repetition that would be
// so there is none (grammar/expression/build.c).

enum { IN_A_ROW = 512 };

struct nullable_walk {
    const struct grammar *g;
    const uint8_t *nullable; // [node]
    uint32_t *turn_of, *todo;
    uint32_t turn;
    int64_t steps;
};

// Calls that may be empty on the ways from a node without reading.
static int64_t calls_from(struct nullable_walk *s, uint32_t node) {
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

// nullable: [node]: its rule can end there without reading.
static int refuse_many_empties(const struct grammar *g, const uint8_t *nullable,
                               struct grammar_work *work, struct err *e) {
    struct nullable_walk s = {.g = g, .nullable = nullable};
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

enum { RULE_STEPS = 1 << 18 }; // that making the choices of a rule unique may take

struct compile {
    struct build *b;
    struct graph g;
    uint32_t *start; // [rule]: its first node, NO_NODE: not yet written
    uint8_t *clear;  // [node]
    int64_t clear_cap;
    uint32_t *rule_of; // [node]
    int64_t rule_of_cap;
    uint8_t *ends, *nullable; // [node]: can reach its rule's end; without reading
    struct err *e;
};

// Appends a rule's graph to the whole one.
static int append_part(struct compile *c, const struct graph *part, uint32_t rule, bool clear) {
    uint32_t base = (uint32_t)c->g.node_count;
    int64_t n = c->g.node_count + part->node_count;
    int rc = vec_reserve(&c->clear, &c->clear_cap, n, sizeof *c->clear, c->e);
    rc = rc ? rc : vec_reserve(&c->rule_of, &c->rule_of_cap, n, sizeof *c->rule_of, c->e);
    for (int64_t i = 0; i < part->node_count && !rc; i++) {
        uint32_t at = graph_node(&c->g, c->e);
        if (at == NO_NODE)
            return c->e->code;
        c->clear[at] = clear;
        c->rule_of[at] = rule;
        c->g.nodes[at].accept = part->nodes[i].accept;
        c->g.nodes[at].like = base + part->nodes[i].like;
    }
    for (int64_t i = 0; i < part->node_count && !rc; i++)
        for (uint32_t k = part->nodes[i].first; k && !rc; k = part->edges[k - 1].next) {
            struct graph_edge edge = part->edges[k - 1];
            edge.to += base;
            rc = graph_edge(&c->g, base + (uint32_t)i, edge, c->e);
        }
    return rc;
}

static int add_rule(struct compile *c, uint32_t rule) {
    struct graph part = {.work = c->b->work}, unique = {0};
    struct emit m = {.b = c->b, .g = &part};
    uint32_t start, base = (uint32_t)c->g.node_count;
    const struct rule *r = &c->b->rules[rule];
    int rc = emit_rule(&m, rule, &start);
    if (rc == ERR_LIMIT && r->n) { // said again with its place
        struct err e = *c->e;
        err_set(c->e, rc, "'%.*s': %.300s", (int)min_i64(r->n, 150), c->b->data.data + r->name,
                e.text);
    }
    if (rc)
        goto out;
    int kind = c->b->exprs[r->expr].kind;
    bool chain = kind == EXPR_CHAIN || kind == EXPR_TEXT;
    int made = chain ? 0
                     : graph_determinise(&part, start, 2 * part.node_count + 64, RULE_STEPS,
                                         &unique, c->e);
    if (made < 0) {
        rc = made;
        goto out;
    }
    if (made && unique.edge_count > 2 * part.edge_count + 64)
        made = 0;
    rc = append_part(c, made ? &unique : &part, rule, r->clear);
    c->start[rule] = made ? base : base + start;
out:
    graph_fini(&part);
    graph_fini(&unique);
    return rc;
}

static int write_rules(struct compile *c, uint32_t root) {
    int64_t seen = 0;
    int rc = add_rule(c, root);
    while (!rc && seen < c->g.edge_count) {
        const struct graph_edge *edge = &c->g.edges[seen++];
        if (edge->kind == EDGE_CALL && c->start[edge->rule] == NO_NODE)
            rc = add_rule(c, edge->rule);
    }
    return rc;
}

// ---- what can be finished

struct spread {
    struct compile *c;
    struct incoming in;
    uint32_t *todo;
    uint8_t *marked;
    bool reading; // edges that read count too
    int64_t depth;
};

static void spread_mark(struct spread *s, uint32_t node) {
    if (s->marked[node])
        return;
    s->marked[node] = 1;
    s->todo[s->depth++] = node;
}

static void spread_from(struct spread *s, uint32_t node) {
    const struct graph *g = &s->c->g;
    for (uint32_t k = s->in.first[node]; k; k = s->in.next[k - 1]) {
        const struct graph_edge *edge = &g->edges[k - 1];
        bool passes = edge->kind == EDGE_BYTES   ? s->reading
                      : edge->kind == EDGE_EMPTY ? true
                                                 : s->marked[s->c->start[edge->rule]];
        if (passes)
            spread_mark(s, s->in.from[k - 1]);
    }
    for (uint32_t k = s->in.calls[node]; k; k = s->in.call_next[k - 1])
        if (s->marked[g->edges[k - 1].to])
            spread_mark(s, s->in.from[k - 1]);
}

// Marks the nodes from which their rule's end can be reached.
static int spread_ends(struct compile *c, bool reading, uint8_t *marked) {
    const struct graph *g = &c->g;
    size_t n = (size_t)g->node_count;
    struct spread s = {.c = c, .reading = reading, .marked = marked};
    int rc = grammar_work(c->b->work, g->node_count + g->edge_count, c->e);
    rc = rc ? rc : incoming_init(&s.in, n, (size_t)g->edge_count, c->e);
    s.todo = calloc(n + 1, sizeof *s.todo);
    if (!rc && !s.todo)
        rc = err_set(c->e, ERR_MEMORY, "no memory for the states of a grammar");
    for (uint32_t i = 0; i < n && !rc; i++)
        for (uint32_t k = g->nodes[i].first; k; k = g->edges[k - 1].next) {
            const struct graph_edge *edge = &g->edges[k - 1];
            incoming_add(&s.in, k - 1, i, edge->to,
                         edge->kind == EDGE_CALL ? c->start[edge->rule] : NO_NODE);
        }
    for (uint32_t i = 0; i < n && !rc; i++)
        if (g->nodes[i].accept)
            spread_mark(&s, i);
    while (s.depth)
        spread_from(&s, s.todo[--s.depth]);
    incoming_fini(&s.in);
    free(s.todo);
    return rc;
}

static bool edge_ends(const struct compile *c, const struct graph_edge *edge) {
    return c->ends[edge->to] && (edge->kind != EDGE_CALL || c->ends[c->start[edge->rule]]);
}

// ---- left recursion: rules that begin with calls of each other, in a circle

struct cycle {
    const struct compile *c;
    uint8_t *colour; // [rule] 0 new, 1 on the way, 2 done
    uint8_t *seen;   // [node]
    uint32_t *todo;  // nodes that a rule reaches without reading, being looked at
    uint32_t *calls; // rules that rules on the way begin with, each rule's after its number
    int64_t call_count, call_cap;
};

static int add_call(struct cycle *y, uint32_t rule) {
    int rc = vec_reserve(&y->calls, &y->call_cap, y->call_count + 1, sizeof *y->calls, y->c->e);
    if (!rc)
        y->calls[y->call_count++] = rule;
    return rc;
}

// Appends the rules that a rule may call before it has read anything.
static int first_calls(struct cycle *y, uint32_t rule) {
    const struct compile *c = y->c;
    uint32_t depth = 0;
    int rc = 0;
    y->seen[c->start[rule]] = 1;
    y->todo[depth++] = c->start[rule];
    while (depth && !rc) {
        uint32_t at = y->todo[--depth];
        for (uint32_t k = c->g.nodes[at].first; k && !rc; k = c->g.edges[k - 1].next) {
            const struct graph_edge *edge = &c->g.edges[k - 1];
            if (edge->kind == EDGE_BYTES || !edge_ends(c, edge))
                continue;
            if (edge->kind == EDGE_CALL)
                rc = add_call(y, edge->rule);
            bool goes_on = edge->kind == EDGE_EMPTY || c->nullable[c->start[edge->rule]];
            if (goes_on && !y->seen[edge->to]) {
                y->seen[edge->to] = 1;
                y->todo[depth++] = edge->to;
            }
        }
    }
    return rc;
}

// In calls: the rule's own number, after which its calls come.
#define RULE_DONE (1u << 31)

static int find_cycle(struct cycle *y, uint32_t root) {
    int rc = add_call(y, root);
    while (y->call_count && !rc) {
        uint32_t rule = y->calls[--y->call_count];
        if (rule & RULE_DONE) {
            y->colour[rule & ~RULE_DONE] = 2;
        } else if (y->colour[rule] == 1) {
            const struct rule *r = &y->c->b->rules[rule];
            return err_set(y->c->e, ERR_UNSUPPORTED,
                           "the rule '%.*s' can call itself before it has read anything (left "
                           "recursion); write it as a repetition",
                           (int)r->n, y->c->b->data.data + r->name);
        } else if (y->colour[rule] == 0) {
            y->colour[rule] = 1;
            rc = add_call(y, rule | RULE_DONE);
            rc = rc ? rc : first_calls(y, rule);
        }
    }
    return rc;
}

static int check_cycles(struct compile *c) {
    size_t n = (size_t)c->g.node_count, rules = (size_t)c->b->rule_count;
    struct cycle y = {.c = c};
    int rc = 0;
    y.colour = calloc(rules, 1);
    y.seen = calloc(n, 1);
    y.todo = calloc(n, sizeof *y.todo);
    if (!y.colour || !y.seen || !y.todo)
        rc = err_set(c->e, ERR_MEMORY, "no memory for the states of a grammar");
    for (uint32_t i = 0; i < rules && !rc; i++)
        if (c->start[i] != NO_NODE && y.colour[i] == 0)
            rc = find_cycle(&y, i);
    free(y.colour);
    free(y.seen);
    free(y.todo);
    free(y.calls);
    return rc;
}

// ---- the compiled form

static void find_classes(struct grammar *g) {
    uint8_t begins[257] = {0};
    int n = 0;
    for (uint32_t i = 0; i < g->edge_count; i++)
        if (g->edges[i].kind == EDGE_BYTES)
            begins[g->edges[i].lo] = begins[g->edges[i].hi + 1] = 1;
    for (int i = 0; i < 256; i++) {
        n += i > 0 && begins[i];
        g->class_of[i] = (uint8_t)n;
    }
    g->classes = n + 1;
}

static void pack_node(const struct compile *c, struct grammar *g, uint32_t i) {
    const struct graph_node *from = &c->g.nodes[i];
    struct node *node = &g->nodes[i];
    *node = (struct node){
        .edge = g->edge_count, .like = from->like, .accept = from->accept, .clear = c->clear[i]};
    for (int reads = 1; reads >= 0; reads--) {
        for (uint32_t k = from->first; k; k = c->g.edges[k - 1].next) {
            const struct graph_edge *edge = &c->g.edges[k - 1];
            if ((edge->kind == EDGE_BYTES) != reads || !edge_ends(c, edge))
                continue;
            g->edges[g->edge_count++] =
                (struct edge){.to = edge->to,
                              .call = edge->kind == EDGE_CALL ? c->start[edge->rule] : 0,
                              .kind = edge->kind,
                              .lo = edge->lo,
                              .hi = edge->hi};
        }
        if (reads)
            node->bytes = g->edge_count - node->edge;
    }
    node->edges = g->edge_count - node->edge;
    node->last = node->accept && node->edges == 0;
}

static int pack_grammar(const struct compile *c, uint32_t start, struct grammar **out) {
    struct grammar *g = calloc(1, sizeof *g);
    size_t nodes = (size_t)c->g.node_count, edges = (size_t)c->g.edge_count + 1;
    *out = g;
    if (g) {
        atomic_init(&g->refs, 1);
        g->nodes = calloc(nodes, sizeof *g->nodes);
        g->edges = calloc(edges, sizeof *g->edges);
    }
    if (!g || !g->nodes || !g->edges) {
        grammar_unref(g);
        *out = NULL;
        return err_set(c->e, ERR_MEMORY, "no memory for the states of a grammar");
    }
    g->start = start;
    g->node_count = (uint32_t)nodes;
    for (uint32_t i = 0; i < g->node_count; i++)
        pack_node(c, g, i);
    find_classes(g);
    int rc = find_min_depths(g, c->b->work, c->e);
    rc = rc ? rc : refuse_many_empties(g, c->nullable, c->b->work, c->e);
    if (rc) {
        grammar_unref(g);
        *out = NULL;
    }
    return rc;
}

static int finish_compiling(struct compile *c, uint32_t rule, struct grammar **out) {
    int rc = write_rules(c, rule);
    if (rc)
        return rc;
    size_t n = (size_t)c->g.node_count;
    c->ends = calloc(n, 1);
    c->nullable = calloc(n, 1);
    if (!c->ends || !c->nullable)
        return err_set(c->e, ERR_MEMORY, "no memory for the states of a grammar");
    rc = spread_ends(c, true, c->ends);
    rc = rc ? rc : spread_ends(c, false, c->nullable);
    if (!rc && !c->ends[c->start[rule]])
        rc = err_set(c->e, ERR_MISMATCH, "no text can satisfy the grammar%s", c->b->place);
    rc = rc ? rc : check_cycles(c);
    return rc ? rc : pack_grammar(c, c->start[rule], out);
}

int build_finish(struct build *b, uint32_t root, struct grammar **out, struct err *e) {
    struct compile c = {.b = b, .g = {.work = b->work}, .e = &b->e};
    uint32_t rule = build_rule(b, "root");
    *out = NULL;
    build_define(b, rule, root);
    if (b->e.code)
        return build_error(b, e);
    size_t n = (size_t)b->rule_count;
    c.start = malloc(n * sizeof *c.start);
    if (!c.start)
        build_fail(b, ERR_MEMORY, "no memory for the rules of a grammar");
    else
        memset(c.start, 0xFF, n * sizeof *c.start);
    if (!b->e.code)
        finish_compiling(&c, rule, out);
    free(c.start);
    free(c.clear);
    free(c.rule_of);
    free(c.ends);
    free(c.nullable);
    graph_fini(&c.g);
    return build_error(b, e);
}

struct grammar *grammar_ref(struct grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_unref(struct grammar *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    free(g->nodes);
    free(g->edges);
    free(g);
}
