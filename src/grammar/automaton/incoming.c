// SPDX-License-Identifier: Apache-2.0
// See incoming.h.
#include "grammar/automaton/incoming.h"

#include <stdlib.h>

#include "grammar/grammar_impl.h"

int incoming_init(struct incoming *in, size_t nodes, size_t edges, struct err *e) {
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

void incoming_add(struct incoming *in, uint32_t edge, uint32_t from, uint32_t to, uint32_t called) {
    in->from[edge] = from;
    in->next[edge] = in->first[to];
    in->first[to] = edge + 1;
    if (called == NO_NODE)
        return;
    in->call_next[edge] = in->calls[called];
    in->calls[called] = edge + 1;
}

void incoming_fini(struct incoming *in) {
    free(in->from);
    free(in->first);
    free(in->next);
    free(in->calls);
    free(in->call_next);
    *in = (struct incoming){0};
}
