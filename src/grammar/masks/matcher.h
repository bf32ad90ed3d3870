// SPDX-License-Identifier: Apache-2.0
// What a matcher holds: tables, states that callers hold, and masks that were made. A mask is put
// together from "local" masks. A local mask is that of readings whose lower stack is not known:
// most tokens are decided within the frames that it has, and so are the same wherever the rule is
// called; for the rest it keeps the places of the trie where the frame ends.
#ifndef COPPICE_GRAMMAR_MASKS_MATCHER_H
#define COPPICE_GRAMMAR_MASKS_MATCHER_H

#include "grammar/automaton/tables.h"
#include "grammar/masks/vocab.h"

struct grammar_state {
    int64_t refs;
    uint32_t number;                   // in the tables
    bool ended;                        // after a token that ends
    struct grammar_state *next, *prev; // of all that are held
};

struct local_mask {
    uint32_t *bits; // [words], or NULL:
    int32_t *ids;   // [count] tokens
    int32_t count;
    uint32_t *exits;    // places in the trie after which the frame has ended, and there is more
    int64_t exit_count; // below them
    int64_t exit_cap;
    bool other;    // only tokens that are not plain were looked at: the plain ones are known
    uint32_t deep; // frames that were come to or would have been needed
    int64_t cost;  // of its walk; above WALK_COST nothing of it counts
    size_t bytes;
};

struct whole_mask {
    uint32_t state; // 0: none
    uint64_t used;
    uint32_t *bits;
};
enum { PLAIN_ROWS = 18, WHOLE_MASKS = 128, MATCHER_BYTES = 512 << 20 }; // bytes of tables, at most
// What a walk may take: NODE_COST for each place of the trie, and 1 for each entry of the stacks of
// the readings there, or MANY_COST where they are more than FEW. It follows from the state alone,
// never from what was worked out before.
enum { NODE_COST = 1, FEW = 16, MANY_COST = 4, WALK_COST = 4 << 20 };

struct grammar_matcher {
    struct grammar *g;
    const struct grammar_vocab *v;
    struct tables t;
    struct grammar_state *held;  // list
    struct grammar_state *ended; // the state after the end; NULL: not yet
    struct grammar_state *start; // before the first byte
    // The first one of which a call is unfinished: until it is finished, or its state was dropped
    // it, nothing is forgotten. NULL: none.
    const struct grammar_state *going;
    struct local_mask *locals;
    int64_t local_count, local_cap;
    size_t local_bytes;
    struct whole_mask whole[WHOLE_MASKS];
    uint64_t uses;
    uint32_t *bits;                  // [words], being made
    uint8_t starts[PLAIN_ROWS][129]; // plain_prepare: a byte of each class, after their number
    // Of the call that is running:
    struct frame {
        uint32_t tail, node, set;
    } *frames;
    int64_t frame_cap;
    struct pair *readings;
    int64_t reading_cap;
    uint32_t deep;  // frames, of the local mask that is being made
    int64_t walked; // places of the trie, so far
};

// Walks the part [begin, end) of the trie from a state and marks the tokens that it allows
// (mask.c).
struct walk {
    bool other; // passes by what has only plain tokens
    uint32_t begin, end, state;
    uint32_t *bits;           // NULL: only counted
    struct local_mask *exits; // NULL: not kept
    int32_t max, count, last; // stops after `max` tokens; how many there were, and the last one
    int depth;                // bytes of the longest token that is looked at; 0: of any
    int64_t cost;             // so far
};

// How many plain code points may follow one another from a state, whatever they are, at most
// PLAIN_CHARS. *closed: after that many none may follow, and no reading has left its frame
// (matcher.c).
int plain_run(struct grammar_matcher *m, uint32_t state, bool *closed);
void plain_prepare(struct grammar_matcher *m); // once, before the first plain_run

// Notes how many frames the steps from a state have come to.
static inline void matcher_deep(struct grammar_matcher *m, uint32_t state) {
    m->deep = m->deep > m->t.states[state].deep ? m->deep : m->t.states[state].deep;
}

void local_mask_fini(struct local_mask *l);
void masks_forget(struct grammar_matcher *m); // all that were made

void matcher_begin(struct grammar_matcher *m); // a call: no error yet, and room in the tables
// A mask of a state, or a state after one, has been made.
static inline void matcher_finished(struct grammar_matcher *m, const struct grammar_state *from) {
    m->going = m->going == from ? NULL : m->going;
}
// The one that the call from a state met, of which it may not be finished.
int matcher_error(struct grammar_matcher *m, const struct grammar_state *from, struct err *e);

#endif
