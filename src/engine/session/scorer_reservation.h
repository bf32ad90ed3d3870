// SPDX-License-Identifier: Apache-2.0
// A scorer's part of a device's memory: its weights and what a prompt of some length takes are
// reserved before it is loaded, as a pair's plan is (runtime.h), so that what is loaded besides
// it is planned in what is left.
#ifndef COPPICE_ENGINE_SESSION_SCORER_RESERVATION_H
#define COPPICE_ENGINE_SESSION_SCORER_RESERVATION_H

#include "compress/score/score.h"
#include "engine/session/runtime.h"

// Plans the scorer in the file `path` for prompts of that many tokens, and reserves that where a
// limit of the device's memory is known (else *out is NULL). ERR_MEMORY says how many tokens would
// fit, or what the weights alone take, and who holds what; other errors as score_open, with the
// path.
int scorer_reserve(struct runtime_device *d, const char *path, const struct score_options *o,
                   int64_t tokens, struct score_plan *plan, struct reservation **out,
                   struct err *e);

// Bytes that a scorer holds between texts, and that a text of the plan's length takes besides that.
int64_t scorer_stays(const struct score_plan *p);
int64_t scorer_takes(const struct score_plan *p);

// How a target and a scorer share `all` bytes of a device.
struct scorer_share {
    int64_t limit; // bytes for the target, with what it lends
    int64_t park;  // of its weights that make room while a text is scored; 0: none need to
    int64_t lend;  // of the slots of its experts that do
};
// weights: of the target, and its draft, if they may be parked, else 0. False: nothing is left for
// a target.
bool scorer_share(const struct score_plan *p, int64_t all, int64_t weights,
                  struct scorer_share *out);
// The same for a target with slots of experts: those make room first, `slots` bytes of them at
// most. False: slots and weights together are not enough.
bool scorer_share_slots(const struct score_plan *p, int64_t all, int64_t slots, int64_t weights,
                        struct scorer_share *out);

#endif
