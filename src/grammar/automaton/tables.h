// SPDX-License-Identifier: Apache-2.0
// What a matcher has worked out so far. A text read so far has readings: each is a node of the
// grammar with a stack of nodes to return to. A state is a set of readings, and the stacks of one
// node are kept together as a "stack set": entries of a return node and the stack set below it.
// Both are stored once and known by a number, so that a state is a number, equal states have equal
// numbers, and a step that was taken once is a table look-up: the grammar's deterministic
// automaton, made as far as it is needed. (The idea of stacks that share their parts is Tomita's,
// "An Efficient Augmented-Context-Free Parsing Algorithm", 1987.)
#ifndef COPPICE_GRAMMAR_AUTOMATON_TABLES_H
#define COPPICE_GRAMMAR_AUTOMATON_TABLES_H

#include "grammar/automaton/graph.h"

enum { STATE_DEAD = 0, STATE_ERROR = UINT32_MAX }; // no reading is left; tables.rc says why
enum { SET_END = 0, SET_OPEN = 1 }; // the text ends below; what is below is not known
// Return nodes that are none: of the two sets above.
#define NODE_END  (UINT32_MAX - 1)
#define NODE_OPEN (UINT32_MAX - 2)

enum { WEIGHED = 1 << 16, WEIGHED_LEVELS = 4 }; // entries that are counted at most, about; how deep

struct pair {
    uint32_t node, set;
};
struct stack_set {
    int64_t at; // its entries in pairs, by rising nodes
    uint32_t count, depth;
    uint32_t hash; // of its entries
};
struct state {
    int64_t at; // its readings in pairs, by rising nodes, only such as read a byte
    uint32_t count;
    uint32_t weight; // entries of its readings' stack sets, and of those some levels below
    uint32_t row;    // index + 1 of its row in rows, 0: none yet
    uint32_t local;  // index + 1 of its mask in the matcher's list of local masks, 0: none yet
    uint32_t hash;   // of its readings and flags
    uint8_t run;     // 1 + plain_run, 0: not computed yet
    bool may_end;
    bool open;     // a reading has come to where nothing is known (SET_OPEN)
    uint32_t deep; // frames that a step from here came to or would have needed, at most
    struct grammar_state *held;
};

// One that is being collected: what its stacks are, and what has come since, a list in `more`.
struct reading {
    uint32_t node, set, more; // set: NO_SET at first; more: index + 1
};
struct more {
    uint32_t set, next;
};
#define NO_SET UINT32_MAX

struct tables {
    const struct grammar *g;
    struct pair *pairs;
    int64_t pair_count, pair_cap;
    struct stack_set *sets;
    int64_t set_count, set_cap;
    struct state *states;
    int64_t state_count, state_cap;
    uint32_t *rows; // [row][classes]: state + 1, 0: not yet known
    int64_t row_count, row_cap;
    uint32_t *slots[2]; // hash tables of sets and of states: number + 1
    int64_t slot_cap[2];
    // The readings that are being collected.
    struct reading *list;
    int64_t list_count, list_cap;
    uint32_t *todo; // places in list, a queue
    int64_t todo_first, todo_count, todo_cap;
    struct more *more;
    int64_t more_count, more_cap;
    struct pair *joined;
    int64_t joined_cap;
    uint32_t *turn_of, *place; // [node]
    uint32_t turn;
    bool may_end, open;
    uint32_t deepest; // frames, of the step that is running
    int64_t work;     // of it
    int64_t all_work; // of all steps so far,
    int64_t begun;    // and before the call that is running
    int64_t allowed;  // all_work may come to
    struct {
        uint32_t a, b, both;
    } *unions;  // [UNIONS] that were made last
    size_t max; // bytes
    int rc;
    struct err e;
};
enum { UNIONS = 1024 };

int tables_init(struct tables *t, const struct grammar *g, size_t max, struct err *e);
void tables_fini(struct tables *t);
size_t tables_bytes(const struct tables *t);

// All of these return STATE_ERROR (tables.rc, tables.e) when memory or a limit is passed.
uint32_t tables_start(struct tables *t);
uint32_t tables_step_slow(struct tables *t, uint32_t state, uint8_t byte);
// The state of readings that have come to the end of a frame: where the entries of `set` go on.
uint32_t tables_return(struct tables *t, uint32_t set);
uint32_t tables_set(struct tables *t, const struct pair *entries, uint32_t n);
uint32_t tables_push(struct tables *t, uint32_t node, uint32_t below);
// A state of readings that read a byte each, by rising nodes.
uint32_t tables_state(struct tables *t, const struct pair *readings, uint32_t n, bool may_end,
                      bool open);

// The state after a byte.
static inline uint32_t tables_step(struct tables *t, uint32_t state, uint8_t byte) {
    uint32_t row = t->states[state].row;
    if (row) {
        uint32_t to = t->rows[(int64_t)(row - 1) * t->g->classes + t->g->class_of[byte]];
        if (to)
            return to - 1;
    }
    return tables_step_slow(t, state, byte);
}

#endif
