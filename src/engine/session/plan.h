// SPDX-License-Identifier: Apache-2.0
// Planning a pair for a device: what target, draft and one full sequence will take, how long a
// context fits, how many rows a prompt's pass has, and what to change when it does not fit. Dry
// loads give the numbers before anything large is loaded; the rest is arithmetic.
#ifndef COPPICE_ENGINE_SESSION_PLAN_H
#define COPPICE_ENGINE_SESSION_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/session/runtime.h"
#include "models/draft/draft.h"
#include "ops/experts/host.h"
#include "ops/experts/pool.h"
#include "spec/tree/price.h"
#include "state/kv.h"

// Which layers' experts are the CPU's, where the plan decides: none where all fit. Else the CPU has
// to read experts CPU_FASTER times as fast as the bus brings them: then as many layers as the GPU
// lacks room for. If not, slots do better, and only what the fewest slots leave no room for.
enum { CPU_EXPERTS_AUTO = -1, CPU_FASTER = 2 };

// Bytes, unless said otherwise.
struct memory_plan {
    int64_t weights, draft; // of the target, of all drafts
    struct {
        const char *name; // of its kind
        int64_t bytes;
    } drafts[PRICE_DRAFTS]; // [n_drafts]
    int n_drafts;
    int64_t scratch;       // workspace of both and of the backend, own_more included
    int64_t own, own_more; // what the backend needs for itself; of that it has not yet
    int64_t state;         // recurrent state and pending features of a sequence
    struct kv_needs kv;    // keys and values of a sequence, of both, reserved for at most
    int64_t step;          // that many tokens at once
    int64_t kv_host; // bytes of host memory for them; kv.host is it where it is needed, else 0
    // Of the weights: experts of a model of experts on a GPU, all of them, and those that are
    // resident, with their slots. Where that is all, `resident` is `experts` and there are no
    // slots.
    int64_t experts, resident;
    struct expert_classes slots;
    // Layers with experts; of these the first cpu_layers have them on the host's CPU, where they
    // take cpu_experts, which are not part of the weights.
    int expert_layers, cpu_layers;
    int64_t cpu_experts;
    struct expert_rates rates; // zeros: not measured
    // Where slots are lent to passes of more rows: of the workspace, what lies among the slots, and
    // the rows of the largest such pass; else 0.
    int64_t among_slots, lent_rows;
    bool slabs; // pages lie in slabs of a device (base/memory/slabs.h), which hold more than pages
    int64_t available;    // what may be taken; 0: unknown, then everything fits
    int64_t trained;      // context that the model was trained for, tokens
    int64_t context;      // tokens that the plan is for
    int rows, usual_rows; // of a prompt's pass, and those that it would have with more memory
    int64_t fp16_kv, usual_fp16_kv; // of the workspace (exec_limits.fp16_kv), and likewise
    enum kv_codec_id codec_k, codec_v;
};

// Keys and values of a sequence on its way to n tokens, in whole pages: the most that it ever
// holds.
int64_t plan_kv(const struct memory_plan *p, int64_t n);
// The bytes of pages that so much memory holds, or at least those of the plan's context.
int64_t plan_pages_in(const struct memory_plan *p, int64_t memory);
// Everything, with the plan's context.
int64_t plan_total(const struct memory_plan *p);
// What keys and values take where all of kv_host is used.
struct kv_needs plan_kv_beyond(const struct memory_plan *p);
// The longest context that fits, at most the trained one; 0: not even the smallest does.
int64_t plan_longest(const struct memory_plan *p);

// Sets the context: the one that is wanted, or with 0 the longest that fits. ERR_MEMORY with the
// amount that is missing and what would fit.
int plan_fit_context(struct memory_plan *p, int64_t wanted, struct err *e);

// Gives experts up where not all of them fit: the slots of p->slots take what is left besides the
// context that is wanted, or with 0 besides a usual one; with slots_each, that many for each layer.
// ERR_MEMORY, ERR_USAGE: those of one layer do not fit, or are too few.
int plan_fewer_experts(struct memory_plan *p, int64_t wanted, int64_t slots_each, struct err *e);

// Experts in memory of the host: those of the CPU, and all others where not all are resident.
int64_t plan_host_experts(const struct memory_plan *p);

// "weights 15.9 GiB, draft ...": the plan in one line without a newline.
void plan_print(const struct memory_plan *p, struct str *out);

struct pair_request {
    struct runtime_device *device;
    const struct gguf *file;           // of the target, open
    const char *model;                 // its path, for sentences
    const struct draft_source *drafts; // [n_drafts], at most PRICE_DRAFTS
    int n_drafts;
    struct model_options target;
    int slots; // of experts for each layer of them; 0: as many as fit
    // Layers whose experts are the CPU's (target.cpu, which is there if this is not 0), or
    // CPU_EXPERTS_AUTO.
    int cpu_experts;
    int64_t max;        // bytes that the pair may take on a GPU, besides other limits; 0: no limit
    int chunk;          // most prompt tokens a pass; 0: what suits the device
    int64_t free_bytes; // bytes that the plan leaves, for what blocks of memory round up
    int64_t kv_host;    // bytes of host memory for keys and values
    bool always;        // plan also where no limit is known
};

// Decides r->chunk, r->target.experts and cpu_experts, and r->target.max_rows and max_ctx where
// they are 0; fewer rows are taken where the context would not fit besides them, and then fewer
// experts are resident. *planned: whether there was a limit, or r->always; if not, *p stays zeroed
// and max_ctx as it is. ERR_MEMORY where it does not fit: *p is filled all the same, and the
// sentence says who holds what.
int plan_pair(struct memory_plan *p, bool *planned, struct pair_request *r, struct err *e);

// The reservation of a plan on its device, for plan->own besides it: pages are what is left of
// `available` (runtime_available now: other programs may have taken some since the plan), or with
// `share` what one sequence of the plan's context takes.
struct reservation plan_reservation(const struct memory_plan *p, int64_t available, const char *who,
                                    bool share);

#endif
