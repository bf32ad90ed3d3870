// SPDX-License-Identifier: Apache-2.0
// Planning a pair for a device: dry loads give the numbers of a plan (plan.h), which fixes the
// context and the rows of a prompt's pass before anything large is loaded.
#ifndef COPPICE_ENGINE_SESSION_PAIR_H
#define COPPICE_ENGINE_SESSION_PAIR_H

#include "engine/session/plan.h"
#include "engine/session/runtime.h"
#include "models/draft/dflash.h"

struct pair_request {
    struct runtime_device *device;
    const struct gguf *file; // of the target, open
    const char *model;       // its path, for sentences
    const char *draft;       // NULL: none
    struct model_options target;
    struct dflash_options dflash;
    int slots; // of experts for each layer of them; 0: as many as fit
    // Layers whose experts are the CPU's (target.cpu, which is there if this is not 0), or
    // CPU_EXPERTS_AUTO.
    int cpu_experts;
    int64_t most;  // bytes that the pair may take on a GPU, beside other limits; 0: no limit
    int chunk;     // most prompt tokens a pass; 0: what suits the device
    int64_t spare; // bytes that the plan leaves, for what blocks of memory round up
    bool always;   // plan also where no limit is known
};

// Decides r->chunk, r->target.experts and cpu_experts, and r->target.max_rows and max_ctx where
// they are 0; fewer rows are taken where the context would not fit beside them, and then fewer
// experts are resident. *planned: whether there was a limit, or r->always; if not, *p stays zeroed
// and max_ctx as it is. ERR_MEMORY where it does not fit: *p is filled all the same, and the
// sentence says who holds what.
int plan_pair(struct memory_plan *p, bool *planned, struct pair_request *r, struct err *e);

// What a plan claims of its device, for plan->own beside it: pages are what is left of `available`
// (runtime_available now: other programs may have taken some since the plan), or with `share` what
// one sequence of the plan's context takes.
struct claim plan_claim(const struct memory_plan *p, int64_t available, const char *who,
                        bool share);

#endif
