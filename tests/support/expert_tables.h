// SPDX-License-Identifier: Apache-2.0
// What owners of slots and places of experts must always be to each other (expert_pool.h); behind
// test.h.
#ifndef COPPICE_TESTS_SUPPORT_EXPERT_TABLES_H
#define COPPICE_TESTS_SUPPORT_EXPERT_TABLES_H

#include "ops/expert_pool.h"

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
