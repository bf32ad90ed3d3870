// SPDX-License-Identifier: Apache-2.0
// Following the target's own choices through a verified tree: what gets committed, what was chosen
// last, and whether generation ends. The tokens that a walk yields are the choices of the rows on
// its path, one per row, so the output never depends on what was drafted.
#ifndef COPPICE_SPEC_TREE_WALK_H
#define COPPICE_SPEC_TREE_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "spec/tree/ddtree.h"

enum end_reason {
    END_NONE,    // generation goes on
    END_STOP,    // a stop token was chosen (it is the last token of the output)
    END_LENGTH,  // the token limit is reached
    END_CONTEXT, // the context is full
    END_CALLER,  // the caller's function asked to stop
};

// Name for output: "none", "stop", "length", "context", "caller".
const char *end_reason_name(enum end_reason r);

typedef bool walk_stop_fn(void *arg, int32_t token);

struct walk_limits {
    int64_t tokens_left;  // choices that the request still allows, >= 1
    int64_t context_left; // choices for which the context still has a position, >= 1
    walk_stop_fn *stop;   // NULL: nothing stops
    void *stop_arg;
};

struct walk {
    int count;                          // rows on the path, >= 1: the accept length
    int32_t path[TREE_MAX_DEPTH + 1];   // rows, the root first; these are to be committed
    int32_t chosen[TREE_MAX_DEPTH + 1]; // chosen[i] = choice of row path[i]: the new tokens
    enum end_reason end;                // why chosen[count - 1] is the last one
};

// choice: [t->n] the target's choice after each row; only rows that the walk reaches are read. One
// below 0 says that nothing can be chosen there: the walk ends before that row, and has a count of
// 0 where it is the root. The
// last chosen token is the next root (it has not been run); when a limit or a stop token cuts the
// path short, the path ends at the row that chose the last allowed token.
void walk_tree(const struct ddtree *t, const int32_t *choice, const struct walk_limits *limits,
               struct walk *out);

#endif
