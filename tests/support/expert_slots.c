// SPDX-License-Identifier: Apache-2.0
// See expert_slots.h.
#include "support/expert_slots.h"

#include "ops/args/mlp.h"

static void warm_experts(struct expert_pool *p, int layer, const uint32_t *count, int64_t n,
                         int used) {
    uint32_t *uses = p->uses + (int64_t)layer * p->experts;
    bool halve = p->rows[layer] + (uint64_t)n >= EXPERT_HALF;
    for (int i = 0; i < p->experts; i++)
        uses[i] = (uses[i] + count[i] * EXPERT_USE) >> (halve ? 1 : 0);
    p->total[layer] = (p->total[layer] + (uint32_t)(n * used) * EXPERT_USE) >> (halve ? 1 : 0);
    p->rows[layer] = halve ? 0 : p->rows[layer] + (uint32_t)n;
}

// Who gets slots in a call: experts of `layer`, but not from those that count says `kept` needs,
// nor, if it is ahead, from others of `layer`.
struct slot_taking {
    int layer, kept;
    const uint32_t *count;
    bool ahead;
};

// What has to go first: its part above, slot below; free slots before all others, those that are
// needed never.
static uint64_t rank_of(const struct expert_pool *p, const struct slot_taking *t, int64_t s) {
    int32_t owner = p->owner[s];
    if (owner < 0)
        return (uint64_t)s;
    int layer = owner / p->experts;
    if ((layer == t->kept && t->count[owner % p->experts]) || (t->ahead && layer == t->layer))
        return UINT64_MAX;
    uint64_t part = expert_part(p->uses[owner], p->total[layer], p->experts);
    return (part + 1) << 31 | (uint64_t)s;
}

// The slot that goes first of those after `last`; UINT64_MAX: there is none.
static uint64_t first_after(const struct expert_pool *p, const struct slot_taking *t, bool any,
                            uint64_t last) {
    uint64_t best = UINT64_MAX;
    for (int64_t s = 0; s < p->slots; s++) {
        uint64_t r = rank_of(p, t, s);
        if (r < best && (any || r > last))
            best = r;
    }
    return best;
}

static int take_slots(struct expert_pool *p, const struct slot_taking *t, int max,
                      struct expert_move *moves) {
    int32_t *place = p->place + (int64_t)t->layer * p->experts;
    int missing = 0;
    uint64_t last = 0;
    for (int i = 0; i < p->experts && missing < max; i++) {
        if ((!t->ahead && !t->count[i]) || place[i] >= 0)
            continue;
        last = first_after(p, t, missing == 0, last);
        if (last == UINT64_MAX)
            break;
        moves[missing++] = (struct expert_move){i, (int32_t)(last & INT32_MAX)};
    }
    for (int i = 0; i < missing; i++) { // only now, so that ranks stayed as they were
        int32_t *owner = &p->owner[moves[i].slot];
        if (*owner >= 0)
            p->place[*owner] = -1;
        *owner = t->layer * p->experts + moves[i].expert;
        place[moves[i].expert] = moves[i].slot;
    }
    return missing;
}

int expert_pool_choose(struct expert_pool *p, int layer, const int32_t *ids, int64_t n, int used,
                       struct expert_move *moves) {
    uint32_t count[OPS_EXPERTS_MAX] = {0};
    for (int64_t i = 0; i < n * used; i++)
        count[ids[i]]++;
    warm_experts(p, layer, count, n, used);
    return take_slots(p, &(struct slot_taking){layer, layer, count, false}, p->experts, moves);
}

int expert_pool_ahead(struct expert_pool *p, int layer, const struct expert_now *now,
                      struct expert_move *moves) {
    uint32_t count[OPS_EXPERTS_MAX] = {0};
    for (int64_t i = 0; now && i < now->entries; i++)
        count[now->ids[i]]++;
    const struct slot_taking t = {layer, now ? now->layer : -1, count, true};
    return take_slots(p, &t, expert_pool_max_ahead(p->experts), moves);
}

void expert_pool_back(struct expert_pool *p, int64_t slots) {
    for (int64_t s = p->slots; s < slots; s++)
        p->owner[s] = -1;
    p->slots = slots;
}
