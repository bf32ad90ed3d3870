// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a scorer next to a target.
#include "engine/session/scorer_reservation.h"

#include <stdio.h>

#include "base/num.h"
#include "engine/session/plan.h"

// Tokens for which the scorer's plan fits into `bytes`: all but its weights and its chunk grows
// evenly with them, whole chunks of them here.
static int64_t longest_text(const struct score_plan *p, int64_t tokens, int64_t bytes) {
    int64_t fixed = scorer_stays(p), each = scorer_takes(p);
    return bytes > fixed && each > 0
               ? (int64_t)((double)(bytes - fixed) / (double)each * (double)tokens) / SCORE_CHUNK *
                     SCORE_CHUNK
               : 0;
}

static int refuse_scorer(const struct runtime_device *d, const struct score_plan *p, int64_t tokens,
                         struct err *e) {
    char need[SIZE_TEXT], weights[SIZE_TEXT], have[SIZE_TEXT];
    int64_t available = runtime_available(d), fits = longest_text(p, tokens, available);
    size_text(need, p->total + p->own);
    size_text(weights, p->weights);
    size_text(have, available);
    if (fits > 0)
        err_set(e, ERR_MEMORY,
                "a prompt of %lld tokens takes %s with the scorer's weights, and %s may be taken: "
                "enough for %lld tokens; run fewer layers (--prefill-layers) or elsewhere "
                "(--prefill-device cpu)",
                (long long)tokens, need, have, (long long)fits);
    else
        err_set(e, ERR_MEMORY,
                "the scorer's weights take %s and what a chunk of a prompt needs comes on top, but "
                "%s may be taken; run it elsewhere (--prefill-device cpu)",
                weights, have);
    reservations_blame(runtime_reservations(d), e);
    return ERR_MEMORY;
}

int64_t scorer_stays(const struct score_plan *p) {
    return p->weights + p->chunk + p->own;
}

int64_t scorer_takes(const struct score_plan *p) {
    return p->total + p->own - scorer_stays(p);
}

bool scorer_share(const struct score_plan *p, int64_t all, int64_t weights,
                  struct scorer_share *out) {
    out->lend = 0;
    out->park = min_i64(scorer_takes(p), weights);
    out->limit = all - scorer_stays(p) - scorer_takes(p) + out->park;
    return out->limit > 0;
}

bool scorer_share_slots(const struct score_plan *p, int64_t all, int64_t slots, int64_t weights,
                        struct scorer_share *out) {
    out->limit = all - scorer_stays(p);
    out->lend = min_i64(scorer_takes(p), max_i64(slots, 0));
    out->park = scorer_takes(p) - out->lend;
    return out->park <= weights && out->limit > 0;
}

int scorer_reserve(struct runtime_device *d, const char *path, const struct score_options *o,
                   int64_t tokens, struct score_plan *plan, struct reservation **out,
                   struct err *e) {
    struct gguf *g;
    *out = NULL;
    int rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = score_plan_of(plan, runtime_exec(d), g, o, tokens, e);
    gguf_close(g);
    if (rc)
        return err_prefix(e, "scorer %.200s", path);
    if (!runtime_limited(d))
        return 0;
    struct reservation c = {
        .bytes = {[ARENA_WEIGHTS] = plan->weights, [ARENA_WORK] = plan->total - plan->weights}};
    snprintf(c.who, sizeof c.who, "%s", path);
    rc = runtime_reserve(d, &c, plan->own, runtime_available(d), out, e);
    return rc == ERR_MEMORY ? refuse_scorer(d, plan, tokens, e) : rc;
}
