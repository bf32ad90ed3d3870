// SPDX-License-Identifier: Apache-2.0
// Compression of prompts from the options; see compression.h.
#include "cli/models/compression.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "compress/compress.h"
#include "engine/session/plan.h"
#include "ops/experts/pool.h"
#include "ops/parking.h"

static int read_keep_budget(const struct options *o, struct select_options *s, struct err *e) {
    const char *curve = options_str(o, OPT_PREFILL_CURVE);
    bool ratio = options_given(o, OPT_PREFILL_KEEP), mass = options_given(o, OPT_PREFILL_MASS);
    if (ratio + mass + (curve != NULL) > 1)
        return err_set(e, ERR_USAGE,
                       "--prefill-keep-ratio, --prefill-curve and --prefill-mass each say how much "
                       "to keep; give one of them");
    s->mass = options_float(o, OPT_PREFILL_MASS);
    s->least = options_float(o, OPT_PREFILL_LEAST);
    s->most = options_float(o, OPT_PREFILL_MOST);
    if (ratio) {
        s->budget = SELECT_RATIO;
        s->keep = options_float(o, OPT_PREFILL_KEEP);
    }
    int rc = curve ? select_curve_read(s, curve, strlen(curve), e) : 0;
    return rc ? err_prefix(e, "--prefill-curve") : select_options_check(s, e);
}

int compression_keep_options(const struct options *o, struct compress_options *out, struct err *e) {
    *out = compress_options_default();
    out->select.anchors = !options_flag(o, OPT_PREFILL_NO_ANCHORS);
    if (options_flag(o, OPT_PREFILL_FLOWKV))
        out->continued = COMPRESS_FLOW;
    return read_keep_budget(o, &out->select, e);
}

int compression_scorer_options(const struct options *o, struct score_options *out, struct err *e) {
    *out = score_options_default();
    out->layers = (int)options_int(o, OPT_PREFILL_LAYERS);
    out->last = (int)options_int(o, OPT_PREFILL_SCORE_LAYERS);
    out->dense = options_flag(o, OPT_PREFILL_DENSE);
    out->keep = options_int(o, OPT_PREFILL_MEMORY);
    out->sparse.alpha = (float)options_float(o, OPT_PREFILL_ALPHA);
    out->sparse.density = (float)options_float(o, OPT_PREFILL_DENSITY);
    return score_options_check(out, e);
}

enum { LONGEST = 131072 };

int compression_options(struct compression *k, const struct cli_args *a, struct err *e) {
    static const int needless[] = {OPT_PREFILL_DRAFTER, OPT_PREFILL_KEEP,       OPT_PREFILL_CURVE,
                                   OPT_PREFILL_MASS,    OPT_PREFILL_NO_ANCHORS, OPT_PREFILL_GAP,
                                   OPT_PREFILL_FLOWKV,  OPT_PREFILL_THRESHOLD,  OPT_PREFILL_ADAPT,
                                   OPT_PREFILL_MEMORY};
    const struct options *o = &a->opt;
    *k = (struct compression){.options = prefill_options_default()};
    k->options.mode = (enum prefill_mode)options_int(o, OPT_PREFILL_COMPRESSION); // in enum order
    for (size_t i = 0; i < sizeof needless / sizeof *needless && !k->options.mode; i++)
        if (options_given(o, needless[i]))
            return err_set(e, ERR_USAGE,
                           "--%s is for compressed prompts; give --prefill-compression auto or "
                           "always as well",
                           cli_options[needless[i]].name);
    if (k->options.mode == PREFILL_OFF)
        return 0;
    if (!options_given(o, OPT_PREFILL_DRAFTER))
        return err_set(e, ERR_USAGE,
                       "--prefill-compression needs a scorer: give --prefill-drafter FILE, a small "
                       "qwen3 model (GGUF)");
    k->path = options_str(o, OPT_PREFILL_DRAFTER);
    k->options.threshold = options_int(o, OPT_PREFILL_THRESHOLD);
    k->options.gap = options_str(o, OPT_PREFILL_GAP);
    k->options.adapt = options_flag(o, OPT_PREFILL_ADAPT);
    int rc = compression_keep_options(o, &k->options.compress, e);
    return rc ? rc : compression_scorer_options(o, &k->scorer, e);
}

// Said where a pair's plan is said, too.
static void show_scorer_plan(const struct compression *k, const struct cli_args *a) {
    char weights[SIZE_TEXT], rest[SIZE_TEXT];
    const struct exec *x = runtime_exec(k->device);
    if (options_flag(&a->opt, OPT_JSON) ||
        !(exec_is_device(x) || options_flag(&a->opt, OPT_VERBOSE)))
        return;
    size_text(weights, k->plan.weights);
    size_text(rest, k->plan.total - k->plan.weights + k->plan.own);
    fprintf(stderr, "memory of the scorer on %s: weights %s, %s more for a prompt of %d tokens\n",
            exec_label(x), weights, rest, LONGEST);
}

struct device_options compression_device(const struct options *o) {
    return (struct device_options){.name = options_str(o, OPT_DEVICE),
                                   .cpu_level = options_str(o, OPT_CPU_LEVEL),
                                   .threads = (int)options_int(o, OPT_THREADS),
                                   .cuda_path = (enum cuda_path)options_int(o, OPT_CUDA_PATH),
                                   .vram_limit = options_int(o, OPT_VRAM_LIMIT)};
}

int compression_open(struct compression *k, const struct cli_args *a, struct err *e) {
    const struct options *o = &a->opt;
    const char *where = options_str(o, OPT_PREFILL_DEVICE);
    struct device_options d = compression_device(o);
    d.name = where ? where : d.name;
    if (k->options.mode == PREFILL_OFF)
        return 0;
    int rc = runtime_create(&k->runtime, e);
    if (!rc)
        rc = runtime_device(k->runtime, &d, &k->device, e);
    if (!rc)
        rc = scorer_reserve(k->device, k->path, &k->scorer, LONGEST, &k->plan, &k->reservation, e);
    if (!rc)
        rc = compressor_open(&k->c, runtime_exec(k->device), k->path, &k->scorer, e);
    if (!rc)
        show_scorer_plan(k, a);
    return rc;
}

// Whether a pair fits into a limit; *plan is filled also where it does not.
static int measure_share(const struct session_options *o, const struct scorer_share *share,
                         struct memory_plan *plan, struct err *e) {
    struct session_options alone = *o;
    alone.vram_limit = share->limit;
    alone.park = share->park;
    alone.lend = share->lend;
    alone.note = NULL;
    return session_measure(&alone, plan, e);
}

static int refuse_share(const struct compression *k, const struct memory_plan *plan, int64_t all,
                        struct err *e) {
    char need[SIZE_TEXT], weights[SIZE_TEXT], have[SIZE_TEXT];
    size_text(need, scorer_stays(&k->plan) + scorer_takes(&k->plan));
    size_text(weights, plan->weights + plan->draft);
    size_text(have, all);
    return err_set(e, ERR_MEMORY,
                   "the scorer takes %s for a prompt of %d tokens and the target's weights %s; %s "
                   "may be taken, which is not enough even while these weights wait in the host's "
                   "memory; give a smaller --max-ctx or run the scorer elsewhere (--prefill-device "
                   "cpu)",
                   need, LONGEST, weights, have);
}

// Bytes of slots of a plan that can be lent, whole pieces of them.
static int64_t lendable_bytes(const struct memory_plan *plan) {
    struct expert_layout l;
    if (plan->resident >= plan->experts)
        return 0;
    expert_layout_of(&l, &plan->slots, plan->among_slots);
    return max_i64(expert_layout_max(&l, &plan->slots) - 2 * PARK_PIECE, 0);
}

// Where not all experts fit together with the scorer: the target has all of the memory but while a
// text is scored, when its slots make room. False: it has no slots then, or not enough.
static bool try_lent_slots(const struct compression *k, const struct session_options *o,
                           int64_t all, struct scorer_share *share) {
    struct scorer_share try = {.limit = all - scorer_stays(&k->plan), .lend = 1};
    struct memory_plan plan = {0};
    struct err none;
    if (try.limit <= 0 || measure_share(o, &try, &plan, &none) || plan.resident >= plan.experts)
        return false;
    int64_t weights = plan.weights - plan.resident + plan.draft;
    if (!scorer_share_slots(&k->plan, all, lendable_bytes(&plan), weights, &try))
        return false;
    *share = try;
    return true;
}

static void tell_share(const struct scorer_share *share) {
    char slots[SIZE_TEXT], weights[SIZE_TEXT];
    size_text(slots, share->lend);
    size_text(weights, share->park);
    if (share->lend)
        fprintf(stderr, "coppice: %s of the slots of experts make room while a prompt is scored\n",
                slots);
    if (share->park)
        fprintf(stderr,
                "coppice: %s of the target's weights wait in the host's memory while a prompt is "
                "scored\n",
                weights);
}

int compression_share(struct compression *k, const struct cli_args *a, struct session_options *o,
                      struct err *e) {
    struct exec_memory m;
    struct memory_plan plan = {0};
    struct scorer_share share;
    if (!k->reservation || options_given(&a->opt, OPT_PREFILL_DEVICE))
        return 0;
    // Its weights are there already, and count as used.
    exec_memory_of(runtime_exec(k->device), &m);
    int64_t left = m.free + m.used;
    int64_t all = o->vram_limit > 0 ? min_i64(o->vram_limit, left) : left;
    int rc = ERR_MEMORY;
    if (scorer_share(&k->plan, all, 0, &share))
        rc = measure_share(o, &share, &plan, e);
    else
        (void)measure_share(o, &(struct scorer_share){.limit = all}, &plan, e);
    int64_t weights = plan.weights + plan.draft;
    bool lends =
        (!rc || rc == ERR_MEMORY) && (rc ? plan.experts > 0 : plan.resident < plan.experts);
    if (lends && try_lent_slots(k, o, all, &share)) {
        rc = 0;
    } else if (rc == ERR_MEMORY) {
        if (!weights || !scorer_share(&k->plan, all, weights, &share))
            return refuse_share(k, &plan, all, e);
        rc = measure_share(o, &share, &plan, e);
        if (rc == ERR_MEMORY)
            return refuse_share(k, &plan, all, e);
    }
    if (rc)
        return rc;
    o->vram_limit = share.limit;
    o->park = k->park = share.park;
    o->lend = k->lend = share.lend;
    tell_share(&share);
    return 0;
}

static int park_session(void *arg, struct err *e) {
    return session_park(arg, e);
}

static int unpark_session(void *arg, struct err *e) {
    return session_unpark(arg, e);
}

void compression_lend(struct compression *k, struct session *s) {
    if (k->park || k->lend)
        compressor_turns(k->c, &(struct compress_turns){park_session, unpark_session, s});
}

void compression_close(struct compression *k) {
    compressor_close(k->c);
    if (k->device)
        runtime_release(k->device, k->reservation);
    runtime_destroy(k->runtime);
    *k = (struct compression){0};
}

void compression_show(const struct prefill_report *r) {
    if (r->tried && r->reason)
        fprintf(stderr, "coppice: the prompt of %lld tokens is not compressed: %s\n",
                (long long)r->from, r->reason);
    else if (r->tried)
        fprintf(stderr,
                "coppice: the prompt is compressed from %lld to %lld tokens in %.1f ms%s%s\n",
                (long long)r->from, (long long)r->to, r->ms,
                r->parked_ms > 0 ? ", while the target made room" : "",
                r->adapted > 0 ? ", by how earlier answers were guessed" : "");
}
