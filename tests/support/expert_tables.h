// SPDX-License-Identifier: Apache-2.0
// A small pool of experts with its tables, and what owners of slots and places of experts must
// always be to each other (ops/experts/pool.h); after test.h.
#ifndef COPPICE_TESTS_SUPPORT_EXPERT_TABLES_H
#define COPPICE_TESTS_SUPPORT_EXPERT_TABLES_H

#include <string.h>

#include "support/expert_slots.h"

enum { RIG_LAYERS = 6, RIG_EXPERTS = 12, RIG_MAX = RIG_LAYERS * RIG_EXPERTS };

struct expert_rig {
    struct expert_pool p;
    int32_t owner[RIG_MAX], place[RIG_MAX];
    uint32_t uses[RIG_MAX], total[RIG_LAYERS], rows[RIG_LAYERS];
    struct expert_move moves[RIG_EXPERTS];
};

// Cold and not filled, of that many layers.
static inline void open_expert_rig(struct expert_rig *r, int layers, int64_t slots) {
    memset(r, 0, sizeof *r);
    r->p = (struct expert_pool){layers,   RIG_EXPERTS, slots,    r->owner,
                                r->place, r->uses,     r->total, r->rows};
}

static inline void check_expert_tables(const struct expert_pool *p) {
    const int all = p->layers * p->experts;
    int64_t resident = 0, owned = 0;
    for (int i = 0; i < all; i++) {
        assert_in_range(p->place[i] + 1, 0, p->slots);
        if (p->place[i] >= 0)
            assert_int_equal(p->owner[p->place[i]], i);
        resident += p->place[i] >= 0;
    }
    for (int64_t s = 0; s < p->slots; s++)
        owned += p->owner[s] >= 0;
    assert_int_equal(resident, owned);
}

#endif
