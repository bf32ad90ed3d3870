// SPDX-License-Identifier: Apache-2.0
// References to a compiled grammar.
#include "grammar/grammar.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "grammar/grammar_impl.h"

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
