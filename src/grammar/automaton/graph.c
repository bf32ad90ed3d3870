// SPDX-License-Identifier: Apache-2.0
// Graphs of nodes and edges, and two constructions on them: unique choices by sets of nodes (Rabin
// and Scott, "Finite Automata and Their Decision Problems", 1959), where a call counts as a letter,
// and the product of two graphs that have unique choices. Both stop at a given number of nodes and
// of steps, because sets can be exponentially many.
#include "grammar/automaton/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory/arena.h"
#include "base/num.h"
#include "base/vec.h"

int grammar_work_look(struct grammar_work *w, struct err *e) {
    w->ask = min_i64(w->steps + GRAMMAR_ASK, w->max + 1);
    if (w->steps > w->max)
        return err_set(
            e, ERR_LIMIT,
            "the grammar takes more than %lld steps to work out; use fewer choices next to each "
            "other, smaller counts and simpler patterns",
            (long long)w->max);
    return cancel_requested(w->cancel)
               ? err_set(e, ERR_CANCELLED, "the grammar is not needed any more")
               : 0;
}

uint32_t graph_node(struct graph *g, struct err *e) {
    if (grammar_work(g->work, 2, e))
        return NO_NODE;
    if (g->node_count >= GRAPH_NODES) {
        err_set(e, ERR_LIMIT, "the grammar needs more than %d states", GRAPH_NODES);
        return NO_NODE;
    }
    if (vec_reserve(&g->nodes, &g->node_cap, g->node_count + 1, sizeof *g->nodes, e))
        return NO_NODE;
    g->nodes[g->node_count] = (struct graph_node){.like = (uint32_t)g->node_count};
    return (uint32_t)g->node_count++;
}

int graph_edge(struct graph *g, uint32_t from, struct graph_edge edge, struct err *e) {
    if (g->edge_count >= GRAPH_EDGES)
        return err_set(e, ERR_LIMIT, "the grammar needs more than %d transitions", GRAPH_EDGES);
    int rc = grammar_work(g->work, 1, e);
    rc = rc ? rc : vec_reserve(&g->edges, &g->edge_cap, g->edge_count + 1, sizeof *g->edges, e);
    if (rc)
        return rc;
    edge.next = g->nodes[from].first;
    g->edges[g->edge_count++] = edge;
    g->nodes[from].first = (uint32_t)g->edge_count;
    return 0;
}

void graph_fini(struct graph *g) {
    free(g->nodes);
    free(g->edges);
    *g = (struct graph){.work = g->work};
}

// ---- unique choices

// A letter is an interval of bytes or a rule.
struct letter {
    uint32_t rule, to;
    uint8_t call, lo, hi;
};

struct subsets {
    const struct graph *g;
    struct graph *out;
    struct map seen;    // the nodes of a set -> its number
    struct arena arena; // of them
    uint32_t **sets;    // [number]: count, then nodes in rising order
    int64_t set_cap;
    uint32_t *mark; // [node]: `turn` when it is in the set that is being made
    uint32_t turn;
    uint32_t *list, *stack;
    struct letter *letters;
    int64_t letter_count, letter_cap, max;
    int64_t steps, max_steps;
    struct err *e;
};

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// Adds a node and what it reaches by empty edges to the list, whose new length it returns. Nodes
// with nothing but empty edges are left out: sets that differ only in these are the same.
static uint32_t close_over(struct subsets *s, uint32_t node, uint32_t n) {
    uint32_t depth = 0;
    if (s->mark[node] == s->turn)
        return n;
    s->mark[node] = s->turn;
    s->stack[depth++] = node;
    while (depth) {
        uint32_t at = s->stack[--depth];
        bool counts = s->g->nodes[at].accept;
        s->steps++;
        for (uint32_t k = s->g->nodes[at].first; k; k = s->g->edges[k - 1].next) {
            const struct graph_edge *edge = &s->g->edges[k - 1];
            s->steps++;
            counts |= edge->kind != EDGE_EMPTY;
            if (edge->kind != EDGE_EMPTY || s->mark[edge->to] == s->turn)
                continue;
            s->mark[edge->to] = s->turn;
            s->stack[depth++] = edge->to;
        }
        if (counts)
            s->list[n++] = at;
    }
    return n;
}

// The number of the set that is in the list, in *number: 1, 0 when there would be too many, or an
// error.
static int intern(struct subsets *s, uint32_t n, uint32_t *number) {
    qsort(s->list, n, sizeof *s->list, by_number);
    if (map_find(&s->seen, (const char *)s->list, n * sizeof *s->list, number))
        return 1;
    if (s->out->node_count >= s->max)
        return 0;
    uint32_t *set = arena_array(&s->arena, n + 1, sizeof *set);
    if (!set)
        return err_set(s->e, ERR_MEMORY, "no memory for the states of a grammar");
    int rc = vec_reserve(&s->sets, &s->set_cap, s->out->node_count + 1, sizeof *s->sets, s->e);
    if (rc)
        return rc;
    set[0] = n;
    memcpy(set + 1, s->list, n * sizeof *set);
    *number = graph_node(s->out, s->e);
    if (*number == NO_NODE)
        return s->e->code;
    if (map_insert(&s->seen, (const char *)(set + 1), n * sizeof *set, *number) < 0)
        return err_set(s->e, ERR_MEMORY, "no memory for the states of a grammar");
    s->sets[*number] = set;
    for (uint32_t i = 0; i < n; i++)
        s->out->nodes[*number].accept |= s->g->nodes[s->list[i]].accept;
    return 1;
}

static int letter_order(const void *a, const void *b) {
    const struct letter *x = a, *y = b;
    if (x->call != y->call)
        return x->call - y->call;
    if (x->call)
        return (x->rule > y->rule) - (x->rule < y->rule);
    return x->lo - y->lo;
}

static int collect_letters(struct subsets *s, const uint32_t *set) {
    s->letter_count = 0;
    for (uint32_t i = 1; i <= set[0]; i++)
        for (uint32_t k = s->g->nodes[set[i]].first; k; k = s->g->edges[k - 1].next) {
            const struct graph_edge *edge = &s->g->edges[k - 1];
            if (edge->kind == EDGE_EMPTY)
                continue;
            int rc = vec_reserve(&s->letters, &s->letter_cap, s->letter_count + 1,
                                 sizeof *s->letters, s->e);
            if (rc)
                return rc;
            s->letters[s->letter_count++] = (struct letter){.rule = edge->rule,
                                                            .to = edge->to,
                                                            .call = edge->kind == EDGE_CALL,
                                                            .lo = edge->lo,
                                                            .hi = edge->hi};
        }
    if (s->letter_count > 1)
        qsort(s->letters, (size_t)s->letter_count, sizeof *s->letters, letter_order);
    return 0;
}

// One edge from a set for the letters in [from, until) that hold `lo`, or for that call.
static int follow(struct subsets *s, uint32_t at, int64_t from, int64_t until,
                  struct graph_edge edge) {
    uint32_t n = 0, to;
    const int64_t before_steps = s->steps;
    s->turn++;
    for (int64_t i = from; i < until; i++) {
        const struct letter *l = &s->letters[i];
        s->steps++;
        if (l->call || (l->lo <= edge.lo && l->hi >= edge.lo))
            n = close_over(s, l->to, n);
    }
    int rc = grammar_work(s->g->work, (s->steps - before_steps) / 2 + 2 * n + 4, s->e);
    if (rc || n == 0)
        return rc ? rc : 1;
    rc = s->steps > s->max_steps ? 0 : intern(s, n, &to);
    if (rc <= 0)
        return rc;
    edge.to = to;
    uint32_t before = s->out->nodes[at].first;
    if (edge.kind == EDGE_BYTES && before) {
        struct graph_edge *last = &s->out->edges[before - 1];
        if (last->kind == EDGE_BYTES && last->to == to && last->hi + 1 == edge.lo) {
            last->hi = edge.hi;
            return 1;
        }
    }
    rc = graph_edge(s->out, at, edge, s->e);
    return rc ? rc : 1;
}

static int follow_bytes(struct subsets *s, uint32_t at, int64_t n) {
    uint8_t begins[257] = {0};
    int rc = 1;
    for (int64_t i = 0; i < n; i++) {
        begins[s->letters[i].lo] = 1;
        begins[s->letters[i].hi + 1] = 1;
    }
    for (int lo = 0; lo < 256 && rc == 1;) {
        int hi = lo;
        while (hi < 255 && !begins[hi + 1])
            hi++;
        struct graph_edge edge = {.kind = EDGE_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi};
        rc = follow(s, at, 0, n, edge);
        lo = hi + 1;
    }
    return rc;
}

static int follow_set(struct subsets *s, uint32_t at) {
    int rc = collect_letters(s, s->sets[at]);
    if (rc)
        return rc;
    int64_t bytes = 0;
    while (bytes < s->letter_count && !s->letters[bytes].call)
        bytes++;
    rc = bytes ? follow_bytes(s, at, bytes) : 1;
    for (int64_t i = bytes; i < s->letter_count && rc == 1;) {
        int64_t j = i + 1;
        while (j < s->letter_count && s->letters[j].rule == s->letters[i].rule)
            j++;
        rc =
            follow(s, at, i, j, (struct graph_edge){.kind = EDGE_CALL, .rule = s->letters[i].rule});
        i = j;
    }
    return rc;
}

int graph_determinise(const struct graph *g, uint32_t start, int64_t max, int64_t steps,
                      struct graph *out, struct err *e) {
    struct subsets s = {.g = g, .out = out, .max = max, .max_steps = steps, .e = e};
    size_t n = (size_t)g->node_count;
    int rc = 1;
    uint32_t number;
    out->work = g->work;
    s.mark = calloc(n, sizeof *s.mark);
    s.list = calloc(n, sizeof *s.list);
    s.stack = calloc(n, sizeof *s.stack);
    if (!s.mark || !s.list || !s.stack)
        rc = err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
    if (rc == 1) {
        s.turn = 1;
        rc = intern(&s, close_over(&s, start, 0), &number);
    }
    for (int64_t i = 0; i < out->node_count && rc == 1; i++)
        rc = follow_set(&s, (uint32_t)i);
    if (rc != 1)
        graph_fini(out);
    free(s.mark);
    free(s.list);
    free(s.stack);
    free(s.sets);
    free(s.letters);
    map_fini(&s.seen);
    arena_fini(&s.arena);
    return rc;
}

// ---- products

struct product {
    const struct graph *one, *other;
    struct graph *out;
    bool without;
    struct map seen;    // the pair -> its number
    struct arena arena; // of pairs
    uint32_t **pairs;   // [number]: one, other; other is NO_NODE where that has ended
    int64_t pair_cap;
    struct err *e;
};

static uint32_t pair_node(struct product *p, uint32_t a, uint32_t b) {
    uint32_t key[2] = {a, b}, number;
    if (map_find(&p->seen, (const char *)key, sizeof key, &number))
        return number;
    uint32_t *pair = arena_alloc(&p->arena, sizeof key);
    if (!pair) {
        err_set(p->e, ERR_MEMORY, "no memory for the states of a grammar");
        return NO_NODE;
    }
    memcpy(pair, key, sizeof key);
    if (vec_reserve(&p->pairs, &p->pair_cap, p->out->node_count + 1, sizeof *p->pairs, p->e))
        return NO_NODE;
    number = graph_node(p->out, p->e);
    if (number == NO_NODE)
        return NO_NODE;
    if (map_insert(&p->seen, (const char *)pair, sizeof key, number) < 0) {
        err_set(p->e, ERR_MEMORY, "no memory for the states of a grammar");
        return NO_NODE;
    }
    bool in_other = b != NO_NODE && p->other->nodes[b].accept;
    p->pairs[number] = pair;
    p->out->nodes[number].accept = p->one->nodes[a].accept && in_other != p->without;
    return number;
}

static int pair_edge(struct product *p, uint32_t at, uint32_t a, uint32_t b, int lo, int hi) {
    if (grammar_work(p->out->work, 4, p->e))
        return p->e->code;
    uint32_t to = pair_node(p, a, b);
    if (to == NO_NODE)
        return p->e->code;
    struct graph_edge edge = {.to = to, .kind = EDGE_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi};
    return graph_edge(p->out, at, edge, p->e);
}

// The other's edge that holds `lo`, or the end of the gap before its next one, in *hi.
static uint32_t other_at(const struct product *p, uint32_t b, int lo, int *hi) {
    for (uint32_t k = b == NO_NODE ? 0 : p->other->nodes[b].first; k;
         k = p->other->edges[k - 1].next) {
        const struct graph_edge *edge = &p->other->edges[k - 1];
        if (edge->lo <= lo && edge->hi >= lo) {
            *hi = min_i32(*hi, edge->hi);
            return edge->to;
        }
        if (edge->lo > lo)
            *hi = min_i32(*hi, edge->lo - 1);
    }
    return NO_NODE;
}

static int follow_pair(struct product *p, uint32_t at) {
    uint32_t a = p->pairs[at][0], b = p->pairs[at][1];
    int rc = 0;
    for (uint32_t k = p->one->nodes[a].first; k && !rc; k = p->one->edges[k - 1].next) {
        const struct graph_edge *edge = &p->one->edges[k - 1];
        for (int lo = edge->lo; lo <= edge->hi && !rc;) {
            int hi = edge->hi;
            uint32_t to = other_at(p, b, lo, &hi);
            if (to != NO_NODE || p->without)
                rc = pair_edge(p, at, edge->to, to, lo, hi);
            lo = hi + 1;
        }
    }
    return rc;
}

int graph_product(const struct graph *one, const struct graph *other, bool without,
                  struct graph *out, struct err *e) {
    struct product p = {.one = one, .other = other, .out = out, .without = without, .e = e};
    out->work = one->work;
    int rc = pair_node(&p, 0, 0) == NO_NODE ? e->code : 0;
    for (int64_t i = 0; i < out->node_count && !rc; i++)
        rc = follow_pair(&p, (uint32_t)i);
    free(p.pairs);
    map_fini(&p.seen);
    arena_fini(&p.arena);
    return rc;
}
