// SPDX-License-Identifier: Apache-2.0
// Stack sets, states and steps; see tables.h. The heart is a closure: readings are added to a list
// with one place per node, calls push, ends pop, and a place whose stacks have grown is looked at
// again. Places wait in a queue, and what comes to a place while it waits is joined at once: a
// repetition that may stand at thousands of its positions costs as many steps, not their square. It
// ends because no rule begins with a call of itself.
//
// Stacks have at most GRAMMAR_DEPTH frames. A reading that could not be completed within that many
// is left out, so a text that has come far down can always go up again.
#include "grammar/automaton/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "base/vec.h"

enum { MAX_WORK = GRAMMAR_STEP_WORK, CALL_WORK = 1 << 24, SETS = 0, STATES = 1 }; // of a call

static uint32_t fail_step(struct tables *t, int code, const char *text) {
    if (!t->rc)
        t->rc = err_set(&t->e, code, "%s", text);
    return STATE_ERROR;
}

// Keeps the error of a reservation.
static uint32_t fail_full(struct tables *t) {
    t->rc = t->e.code;
    return STATE_ERROR;
}

size_t tables_bytes(const struct tables *t) {
    return (size_t)t->pair_cap * sizeof *t->pairs + (size_t)t->set_cap * sizeof *t->sets +
           (size_t)t->state_cap * sizeof *t->states + (size_t)t->row_cap * sizeof *t->rows +
           (size_t)(t->slot_cap[0] + t->slot_cap[1]) * sizeof(uint32_t) +
           (size_t)t->g->node_count * 2 * sizeof(uint32_t);
}

int tables_init(struct tables *t, const struct grammar *g, size_t max, struct err *e) {
    *t = (struct tables){.g = g, .max = max, .allowed = INT64_MAX};
    t->turn_of = calloc(g->node_count, sizeof *t->turn_of);
    t->place = calloc(g->node_count, sizeof *t->place);
    t->unions = calloc(UNIONS, sizeof *t->unions);
    struct pair end = {NODE_END, 0}, open = {NODE_OPEN, 0}; // no readings: any address does
    bool made = t->turn_of && t->place && t->unions && tables_set(t, &end, 1) == SET_END &&
                tables_set(t, &open, 1) == SET_OPEN &&
                tables_state(t, &end, 0, false, false) == STATE_DEAD;
    if (made)
        return 0;
    tables_fini(t);
    return err_set(e, ERR_MEMORY, "no memory for the states of a grammar");
}

void tables_fini(struct tables *t) {
    free(t->pairs);
    free(t->sets);
    free(t->states);
    free(t->rows);
    free(t->slots[0]);
    free(t->slots[1]);
    free(t->list);
    free(t->todo);
    free(t->more);
    free(t->joined);
    free(t->turn_of);
    free(t->place);
    free(t->unions);
    *t = (struct tables){0};
}

// ---- what is stored once

static uint32_t hash_of(const struct pair *list, uint32_t n, uint64_t seed) {
    return (uint32_t)hash_bytes(list, n * sizeof *list, seed);
}

static bool grow_slots(struct tables *t, int kind, int64_t count) {
    if (4 * (count + 1) <= 3 * t->slot_cap[kind])
        return true;
    int64_t cap = max_i64(2 * t->slot_cap[kind], 64);
    uint32_t *slots = calloc((size_t)cap, sizeof *slots);
    if (!slots)
        return false;
    for (int64_t i = 0; i < count; i++) {
        uint32_t hash = kind == SETS ? t->sets[i].hash : t->states[i].hash;
        uint64_t at = hash & (uint64_t)(cap - 1);
        while (slots[at])
            at = (at + 1) & (uint64_t)(cap - 1);
        slots[at] = (uint32_t)i + 1;
    }
    free(t->slots[kind]);
    t->slots[kind] = slots;
    t->slot_cap[kind] = cap;
    return true;
}

// The pairs after those that are stored; *at: where.
static bool keep_pairs(struct tables *t, const struct pair *list, uint32_t n, int64_t *at) {
    if (tables_bytes(t) > t->max) {
        fail_step(t, ERR_LIMIT, "the grammar has more states than there is room for");
        return false;
    }
    if (vec_reserve(&t->pairs, &t->pair_cap, t->pair_count + n + 1, sizeof *t->pairs, &t->e)) {
        fail_full(t);
        return false;
    }
    if (n)
        memcpy(t->pairs + t->pair_count, list, n * sizeof *list);
    *at = t->pair_count;
    t->pair_count += n;
    return true;
}

static bool same_pairs(const struct tables *t, int64_t at, const struct pair *list, uint32_t n) {
    return n == 0 || memcmp(t->pairs + at, list, n * sizeof *list) == 0;
}

uint32_t tables_set(struct tables *t, const struct pair *entries, uint32_t n) {
    uint32_t depth = 0, hash = hash_of(entries, n, 0);
    if (!grow_slots(t, SETS, t->set_count))
        return fail_step(t, ERR_MEMORY, "no memory for the states of a grammar");
    uint64_t mask = (uint64_t)t->slot_cap[SETS] - 1, at = hash & mask;
    for (; t->slots[SETS][at]; at = (at + 1) & mask) {
        const struct stack_set *s = &t->sets[t->slots[SETS][at] - 1];
        if (s->hash == hash && s->count == n && same_pairs(t, s->at, entries, n))
            return t->slots[SETS][at] - 1;
    }
    for (uint32_t i = 0; i < n; i++)
        if (entries[i].node < NODE_OPEN)
            depth = depth > t->sets[entries[i].set].depth ? depth : t->sets[entries[i].set].depth;
    if (vec_reserve(&t->sets, &t->set_cap, t->set_count + 1, sizeof *t->sets, &t->e))
        return fail_full(t);
    struct stack_set *s = &t->sets[t->set_count];
    *s = (struct stack_set){.count = n, .depth = depth + 1, .hash = hash};
    if (!keep_pairs(t, entries, n, &s->at))
        return STATE_ERROR;
    t->slots[SETS][at] = (uint32_t)++t->set_count;
    return (uint32_t)t->set_count - 1;
}

uint32_t tables_push(struct tables *t, uint32_t node, uint32_t below) {
    struct pair entry = {node, below};
    return tables_set(t, &entry, 1);
}

// Entries of a stack set and of those below it, some levels down; not much more than WEIGHED.
static uint32_t weigh_state(const struct tables *t, uint32_t set, int levels) {
    const struct stack_set *s = &t->sets[set];
    uint32_t sum = s->count;
    for (uint32_t i = 0; i < s->count && levels > 1 && sum < WEIGHED; i++) {
        const struct pair *entry = &t->pairs[s->at + i];
        if (entry->node < NODE_OPEN)
            sum += weigh_state(t, entry->set, levels - 1);
    }
    return sum;
}

uint32_t tables_state(struct tables *t, const struct pair *readings, uint32_t n, bool may_end,
                      bool open) {
    uint64_t flags = (uint64_t)may_end | (uint64_t)open << 1;
    uint32_t hash = hash_of(readings, n, 1 + flags);
    if (!grow_slots(t, STATES, t->state_count))
        return fail_step(t, ERR_MEMORY, "no memory for the states of a grammar");
    uint64_t mask = (uint64_t)t->slot_cap[STATES] - 1, at = hash & mask;
    for (; t->slots[STATES][at]; at = (at + 1) & mask) {
        const struct state *s = &t->states[t->slots[STATES][at] - 1];
        if (s->hash == hash && s->count == n && s->may_end == may_end && s->open == open &&
            same_pairs(t, s->at, readings, n))
            return t->slots[STATES][at] - 1;
    }
    if (vec_reserve(&t->states, &t->state_cap, t->state_count + 1, sizeof *t->states, &t->e))
        return fail_full(t);
    struct state *s = &t->states[t->state_count];
    *s = (struct state){.count = n, .hash = hash, .may_end = may_end, .open = open};
    for (uint32_t i = 0; i < n && s->weight < WEIGHED; i++)
        s->weight += weigh_state(t, readings[i].set, WEIGHED_LEVELS);
    t->all_work += s->weight;
    if (!keep_pairs(t, readings, n, &s->at))
        return STATE_ERROR;
    t->slots[STATES][at] = (uint32_t)++t->state_count;
    return (uint32_t)t->state_count - 1;
}

// ---- what is both

static bool count_work(struct tables *t, int64_t steps) {
    t->work += steps;
    t->all_work += steps;
    if (t->work > MAX_WORK || t->all_work - t->begun > CALL_WORK)
        fail_step(
            t, ERR_LIMIT,
            "the text has more readings at once in its grammar than can be followed; make the "
            "grammar less ambiguous");
    if (t->all_work > t->allowed)
        fail_step(t, ERR_UNFINISHED, "the work on a grammar goes on later");
    return !t->rc;
}

static uint32_t union_of(struct tables *t, uint32_t a, uint32_t b);

static uint32_t merge_sets(struct tables *t, uint32_t a, uint32_t b) {
    uint32_t na = t->sets[a].count, nb = t->sets[b].count, n = 0, i = 0, j = 0;
    struct pair few[16], *list = few;
    if (na + nb > 16)
        list = malloc((na + nb) * sizeof *list);
    if (!list)
        return fail_step(t, ERR_MEMORY, "no memory for the states of a grammar");
    while (i < na || j < nb) {
        struct pair x = i < na ? t->pairs[t->sets[a].at + i] : (struct pair){UINT32_MAX, 0};
        struct pair y = j < nb ? t->pairs[t->sets[b].at + j] : (struct pair){UINT32_MAX, 0};
        i += x.node <= y.node;
        j += y.node <= x.node;
        if (x.node == y.node)
            x.set = union_of(t, x.set, y.set);
        if (t->rc)
            break;
        list[n++] = x.node <= y.node ? x : y;
    }
    uint32_t both = t->rc ? (uint32_t)STATE_ERROR : tables_set(t, list, n);
    if (list != few)
        free(list);
    return both;
}

static uint32_t union_of(struct tables *t, uint32_t a, uint32_t b) {
    if (a == b)
        return a;
    uint32_t lo = a < b ? a : b, hi = a < b ? b : a;
    size_t slot = (lo * 31u + hi) % UNIONS;
    if (hi && t->unions[slot].a == lo && t->unions[slot].b == hi)
        return t->unions[slot].both;
    if (!count_work(t, 1 + t->sets[a].count + t->sets[b].count))
        return STATE_ERROR;
    uint32_t both = merge_sets(t, lo, hi);
    if (!t->rc) {
        t->unions[slot].a = lo;
        t->unions[slot].b = hi;
        t->unions[slot].both = both;
    }
    return both;
}

// ---- closures

static void begin_readings(struct tables *t) {
    t->list_count = t->todo_count = t->todo_first = t->more_count = 0;
    t->may_end = t->open = false;
    t->work = 0;
    t->deepest = 0;
    if (++t->turn == 0) {
        memset(t->turn_of, 0, t->g->node_count * sizeof *t->turn_of);
        t->turn = 1;
    }
}

// Can a reading at a node be completed above that many frames?
static bool height_fits(struct tables *t, uint32_t depth, uint32_t node) {
    uint32_t deep = depth + t->g->nodes[node].min_depth;
    t->deepest = deep > t->deepest ? deep : t->deepest;
    return deep <= GRAMMAR_DEPTH;
}

static uint32_t reading_of(struct tables *t, uint32_t node) {
    if (t->turn_of[node] == t->turn)
        return t->place[node];
    if (vec_reserve(&t->list, &t->list_cap, t->list_count + 1, sizeof *t->list, &t->e))
        return fail_full(t);
    t->turn_of[node] = t->turn;
    t->place[node] = (uint32_t)t->list_count;
    t->list[t->list_count++] = (struct reading){.node = node, .set = NO_SET};
    return t->place[node];
}

// Adds a reading: a node and the stacks below it.
static void add_reading(struct tables *t, uint32_t node, uint32_t set) {
    if (t->rc || !count_work(t, 1) || !height_fits(t, t->sets[set].depth, node))
        return;
    uint32_t place = reading_of(t, node);
    if (place == STATE_ERROR || t->list[place].set == set)
        return;
    if (vec_reserve(&t->more, &t->more_cap, t->more_count + 1, sizeof *t->more, &t->e) ||
        vec_reserve(&t->todo, &t->todo_cap, t->todo_count + 1, sizeof *t->todo, &t->e)) {
        fail_full(t);
        return;
    }
    struct reading *there = &t->list[place];
    if (!there->more)
        t->todo[t->todo_count++] = place;
    t->more[t->more_count++] = (struct more){set, there->more};
    there->more = (uint32_t)t->more_count;
}

static int by_node_set(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->set > y->set) - (x->set < y->set);
}

static bool join_entries(struct tables *t, uint32_t set, int64_t *n) {
    uint32_t count = t->sets[set].count;
    if (!count_work(t, count))
        return false;
    if (vec_reserve(&t->joined, &t->joined_cap, *n + count, sizeof *t->joined, &t->e)) {
        fail_full(t);
        return false;
    }
    memcpy(t->joined + *n, t->pairs + t->sets[set].at, count * sizeof *t->joined);
    *n += count;
    return true;
}

// One set of the entries of many.
static uint32_t join_many_sets(struct tables *t, const struct reading *r) {
    int64_t n = 0, kept = 0;
    if (r->set != NO_SET && !join_entries(t, r->set, &n))
        return STATE_ERROR;
    for (uint32_t i = r->more; i; i = t->more[i - 1].next)
        if (!join_entries(t, t->more[i - 1].set, &n))
            return STATE_ERROR;
    qsort(t->joined, (size_t)n, sizeof *t->joined, by_node_set);
    for (int64_t i = 0; i < n && !t->rc; i++) {
        struct pair *last = kept ? &t->joined[kept - 1] : NULL;
        if (last && last->node == t->joined[i].node)
            last->set = union_of(t, last->set, t->joined[i].set);
        else
            t->joined[kept++] = t->joined[i];
    }
    return t->rc ? (uint32_t)STATE_ERROR : tables_set(t, t->joined, (uint32_t)kept);
}

// Joins what has come to a place; true: its stacks have grown.
static bool join_reading(struct tables *t, struct reading *r) {
    const struct more *first = &t->more[r->more - 1];
    uint32_t both;
    if (first->next)
        both = join_many_sets(t, r);
    else
        both = r->set == NO_SET ? first->set : union_of(t, r->set, first->set);
    r->more = 0;
    bool grown = !t->rc && both != r->set;
    r->set = both;
    return grown;
}

static void pop_frame(struct tables *t, uint32_t set) {
    for (uint32_t i = 0; i < t->sets[set].count && !t->rc; i++) {
        struct pair entry = t->pairs[t->sets[set].at + i];
        t->may_end |= entry.node == NODE_END;
        t->open |= entry.node == NODE_OPEN;
        if (entry.node < NODE_OPEN)
            add_reading(t, entry.node, entry.set);
    }
}

static void push_call(struct tables *t, const struct edge *edge, uint32_t set) {
    uint32_t depth = t->sets[set].depth;
    // A call that is the last of its rule leaves nothing to return to.
    if (!t->g->nodes[edge->to].last) {
        if (!height_fits(t, depth, edge->to) || !height_fits(t, depth + 1, edge->call))
            return;
        set = tables_push(t, edge->to, set);
    }
    if (set != STATE_ERROR)
        add_reading(t, edge->call, set);
}

static void close_over_reading(struct tables *t, uint32_t at, uint32_t set) {
    const struct node *node = &t->g->nodes[at];
    if (node->accept)
        pop_frame(t, set);
    for (uint32_t i = node->bytes; i < node->edges && !t->rc; i++) {
        const struct edge *edge = &t->g->edges[node->edge + i];
        if (edge->kind == EDGE_EMPTY)
            add_reading(t, edge->to, set);
        else
            push_call(t, edge, set);
    }
}

static int by_node(const void *a, const void *b) {
    uint32_t x = ((const struct pair *)a)->node, y = ((const struct pair *)b)->node;
    return (x > y) - (x < y);
}

static uint32_t finish_state(struct tables *t) {
    while (t->todo_first < t->todo_count && !t->rc) {
        struct reading *r = &t->list[t->todo[t->todo_first++]];
        if (join_reading(t, r))
            close_over_reading(t, r->node, r->set);
    }
    uint32_t n = 0;
    if (!t->rc && vec_reserve(&t->joined, &t->joined_cap, t->list_count, sizeof *t->joined, &t->e))
        fail_full(t);
    if (t->rc)
        return STATE_ERROR;
    for (int64_t i = 0; i < t->list_count; i++)
        if (t->g->nodes[t->list[i].node].bytes)
            t->joined[n++] = (struct pair){t->list[i].node, t->list[i].set};
    if (n > 1)
        qsort(t->joined, n, sizeof *t->joined, by_node);
    return tables_state(t, t->joined, n, t->may_end, t->open);
}

uint32_t tables_start(struct tables *t) {
    begin_readings(t);
    add_reading(t, t->g->start, SET_END);
    return finish_state(t);
}

uint32_t tables_return(struct tables *t, uint32_t set) {
    begin_readings(t);
    pop_frame(t, set);
    return finish_state(t);
}

// The place of a state's row, which is made when there is none.
static uint32_t row_of_state(struct tables *t, uint32_t state) {
    if (t->states[state].row)
        return t->states[state].row;
    int64_t n = (t->row_count + 1) * t->g->classes;
    if (tables_bytes(t) > t->max)
        return fail_step(t, ERR_LIMIT, "the grammar has more states than there is room for");
    if (vec_reserve(&t->rows, &t->row_cap, n, sizeof *t->rows, &t->e))
        return fail_full(t);
    memset(t->rows + t->row_count * t->g->classes, 0, (size_t)t->g->classes * sizeof *t->rows);
    t->states[state].row = (uint32_t)++t->row_count;
    return t->states[state].row;
}

uint32_t tables_step_slow(struct tables *t, uint32_t state, uint8_t byte) {
    if (t->rc)
        return STATE_ERROR;
    uint32_t row = row_of_state(t, state);
    if (row == STATE_ERROR)
        return STATE_ERROR;
    begin_readings(t);
    for (uint32_t i = 0; i < t->states[state].count && !t->rc; i++) {
        struct pair reading = t->pairs[t->states[state].at + i];
        const struct node *node = &t->g->nodes[reading.node];
        count_work(t, node->bytes);
        for (uint32_t k = 0; k < node->bytes; k++) {
            const struct edge *edge = &t->g->edges[node->edge + k];
            if (edge->lo <= byte && byte <= edge->hi)
                add_reading(t, edge->to, reading.set);
        }
    }
    uint32_t to = finish_state(t);
    if (t->deepest > t->states[state].deep)
        t->states[state].deep = t->deepest;
    if (to != STATE_ERROR)
        t->rows[(int64_t)(row - 1) * t->g->classes + t->g->class_of[byte]] = to + 1;
    return to;
}
