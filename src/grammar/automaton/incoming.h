// SPDX-License-Identifier: Apache-2.0
// Edges by where they lead: for what spreads from the ends of rules backwards. Internal to this
// folder.
#ifndef COPPICE_GRAMMAR_AUTOMATON_INCOMING_H
#define COPPICE_GRAMMAR_AUTOMATON_INCOMING_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Lists of edges, each as index + 1, 0 at the end: into a node first[node], then next[edge]; that
// call the rule which starts at a node calls[node], then call_next[edge].
struct incoming {
    uint32_t *from; // [edge] its node
    uint32_t *first, *next;
    uint32_t *calls, *call_next;
};

int incoming_init(struct incoming *in, size_t nodes, size_t edges, struct err *e); // ERR_MEMORY
// called: the start of the rule that the edge calls, or NO_NODE.
void incoming_add(struct incoming *in, uint32_t edge, uint32_t from, uint32_t to, uint32_t called);
void incoming_fini(struct incoming *in);

#endif
