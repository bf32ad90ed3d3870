// SPDX-License-Identifier: Apache-2.0
// The specification of src/ops/gpu/moe/fetch.cu, slot by slot: which experts get which slots.
#ifndef COPPICE_TESTS_SUPPORT_EXPERT_SLOTS_H
#define COPPICE_TESTS_SUPPORT_EXPERT_SLOTS_H

#include "ops/experts/pool.h"

// The experts that n rows of `used` entries chose (ids [n][used]) become hotter, and those that are
// not resident get slots: free ones first, then those of the coldest experts that this layer does
// not need now, equal ones by slot. moves: [experts]; how many. Needs slots >= experts.
int expert_pool_choose(struct expert_pool *p, int layer, const int32_t *ids, int64_t n, int used,
                       struct expert_move *moves);

// Experts of `layer` that are not resident, lowest first, get slots as above: at most
// expert_pool_max_ahead of them, from none of their own layer, and from none that `now`, the
// choice of another layer of this class (NULL: it is of another class), needs. Nothing becomes
// hotter. moves: [experts]; how many.
struct expert_now {
    int layer;
    const int32_t *ids;
    int64_t entries;
};
int expert_pool_ahead(struct expert_pool *p, int layer, const struct expert_now *now,
                      struct expert_move *moves);

// It has that many slots again; what was lent is free.
void expert_pool_back(struct expert_pool *p, int64_t slots);

#endif
