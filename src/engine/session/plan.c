// SPDX-License-Identifier: Apache-2.0
// See plan.h. Advice goes from what costs least to what costs most: a shorter context, smaller keys
// and values, smaller files.
#include "engine/session/plan.h"

#include <stdio.h>

#include "base/memory/slabs.h"
#include "base/num.h"
#include "ops/args/args.h"

enum { SMALLEST = 4 * KV_PAGE };

static int64_t pages(int64_t tokens) {
    return ceil_div(tokens, KV_PAGE);
}

int64_t plan_kv(const struct memory_plan *p, int64_t n) {
    return kv_needs_most(&p->kv, n, p->step);
}

// What lies beside so many bytes of pages: behind the last ones of slabs, and where pages of one
// size have gone and a larger one does not fit in their place.
static int64_t beside_pages(const struct memory_plan *p, int64_t bytes) {
    int64_t behind = 0, largest = 0;
    bool one_size = true;
    for (int i = 0; p->slabs && i < p->kv.n; i++) {
        int64_t page = p->kv.of[i].page_bytes;
        behind = max_i64(behind, slabs_vain_filled(bytes, page));
        largest = max_i64(largest, page);
        one_size = one_size && page == p->kv.of[0].page_bytes;
    }
    return behind + (one_size ? 0 : largest);
}

int64_t plan_kv_held(const struct memory_plan *p, int64_t n) {
    int64_t bytes = plan_kv(p, n);
    return bytes + beside_pages(p, bytes);
}

int64_t plan_pages_in(const struct memory_plan *p, int64_t memory) {
    return max_i64(max_i64(memory - beside_pages(p, memory), 1),
                   plan_kv_held(p, p->context) <= memory ? plan_kv(p, p->context) : 0);
}

static int64_t fixed(const struct memory_plan *p) {
    return p->weights + p->draft + p->scratch + p->state;
}

int64_t plan_pages(const struct memory_plan *p) {
    int64_t left = p->available - fixed(p);
    return p->available <= 0 ? 0 : left > 0 ? left : 1;
}

int64_t plan_total(const struct memory_plan *p) {
    return fixed(p) + plan_kv_held(p, p->context);
}

int64_t plan_longest(const struct memory_plan *p) {
    int64_t left = p->available - fixed(p), lo = 0, hi = pages(p->trained);
    if (p->available <= 0 || left >= plan_kv_held(p, p->trained))
        return p->trained;
    while (lo < hi) { // the most pages that fit lie in lo .. hi
        int64_t mid = (lo + hi + 1) / 2;
        if (plan_kv_held(p, mid * KV_PAGE) <= left)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo * KV_PAGE >= SMALLEST ? lo * KV_PAGE : 0;
}

void plan_size(char text[PLAN_SIZE], int64_t bytes) {
    if (bytes >= (int64_t)1 << 30)
        snprintf(text, PLAN_SIZE, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else
        snprintf(text, PLAN_SIZE, "%.2f MiB", (double)bytes / (double)(1 << 20));
}

// What would fit, for the end of a sentence.
static void advise(const struct memory_plan *p, int64_t wanted, char *text, size_t size) {
    struct memory_plan small = *p;
    int64_t now = plan_longest(p), q8 = 0;
    small.kv = kv_needs_q8(&p->kv);
    if (plan_kv(&small, wanted) < plan_kv(p, wanted))
        q8 = plan_longest(&small);
    if (now > 0 && q8 >= wanted)
        snprintf(text, size, "use --max-ctx %lld or --kv-type q8_0", (long long)now);
    else if (now > 0)
        snprintf(text, size, "use --max-ctx %lld or a smaller file", (long long)now);
    else if (q8 > 0)
        snprintf(text, size, "use --kv-type q8_0 with --max-ctx %lld, or a smaller file",
                 (long long)q8);
    else
        snprintf(text, size, "use a smaller file%s", p->draft ? ", or none for the draft" : "");
}

int plan_fit_context(struct memory_plan *p, int64_t wanted, struct err *e) {
    int64_t fits = plan_longest(p);
    p->context = wanted ? wanted : fits ? fits : min_i64(SMALLEST, p->trained);
    if (p->available <= 0 || plan_total(p) <= p->available)
        return 0;
    char need[PLAN_SIZE], have[PLAN_SIZE], missing[PLAN_SIZE], advice[96];
    plan_size(need, plan_total(p));
    plan_size(have, p->available);
    plan_size(missing, plan_total(p) - p->available);
    advise(p, p->context, advice, sizeof advice);
    return err_set(e, ERR_MEMORY,
                   "with a context of %lld tokens %s of memory are needed and %s may be taken, %s "
                   "too little; %s",
                   (long long)p->context, need, have, missing, advice);
}

// Beside the slots: who has them, heats and addresses, and what slabs of others may leave unused:
// slots take all that is left.
static int64_t beside_slots(const struct memory_plan *p, int64_t rest) {
    enum { EACH = 24, ROUND = 4 << 20 };
    const struct expert_classes *c = &p->slots;
    return (int64_t)expert_classes_layers(c) * c->experts * EACH + (int64_t)c->n * ROUND +
           slabs_vain_beyond(rest + p->draft) + slabs_vain_beyond(p->scratch) +
           slabs_vain_beyond(p->state);
}

int plan_fewer_experts(struct memory_plan *p, int64_t wanted, int64_t slots_each, struct err *e) {
    enum { USUAL = 16384 };
    int64_t rest = p->weights - p->resident;
    rest += beside_slots(p, rest);
    int64_t held =
        fixed(p) - p->weights + plan_kv_held(p, wanted ? wanted : min_i64(USUAL, p->trained));
    int64_t left = p->available > 0 ? p->available - held - rest : p->experts;
    int rc = slots_each ? expert_classes_per_layer(&p->slots, slots_each, e)
                        : expert_classes_share(&p->slots, left, e);
    if (rc)
        return rc;
    p->resident = expert_classes_held(&p->slots);
    p->weights = rest + p->resident;
    return 0;
}

int64_t plan_host_experts(const struct memory_plan *p) {
    return p->cpu_experts + (p->resident < p->experts ? p->experts : 0);
}

static void print_cpu_experts(const struct memory_plan *p, struct str *out) {
    char some[PLAN_SIZE];
    plan_size(some, p->cpu_experts);
    if (p->cpu_layers)
        str_printf(out, "; the experts of %d of %d layers, %s, are the CPU's", p->cpu_layers,
                   p->expert_layers, some);
    if (p->rates.cpu > 0)
        str_printf(out, "%s CPU reads experts at %.0f GB/s and the bus brings %.0f",
                   p->cpu_layers ? "; this" : "; the", p->rates.cpu, p->rates.bus);
}

static void print_experts(const struct memory_plan *p, struct str *out) {
    char some[PLAN_SIZE], all[PLAN_SIZE];
    if (p->resident >= p->experts)
        return;
    plan_size(some, p->resident);
    plan_size(all, p->experts);
    str_printf(out, " (of the experts' %s %.0f %% are resident, %s", all,
               100.0 * (double)p->resident / (double)p->experts, some);
    if (p->lent_rows)
        str_printf(out, ", and make room for passes of up to %lld rows of prompts",
                   (long long)p->lent_rows);
    str_putc(out, ')');
}

void plan_print(const struct memory_plan *p, struct str *out) {
    const struct {
        const char *before;
        int64_t bytes;
        bool always;
    } parts[] = {{"weights ", p->weights, true},
                 {", draft ", p->draft, false},
                 {", KV per 1K tokens ", kv_needs_per_1k(&p->kv), true},
                 {", KV within windows ", kv_needs_windows(&p->kv, p->context, p->step), false},
                 {", state ", p->state, true},
                 {", workspace ", p->scratch, true}};
    char size[PLAN_SIZE];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        plan_size(size, parts[i].bytes);
        if (parts[i].always || parts[i].bytes)
            str_printf(out, "%s%s", parts[i].before, size);
        if (i == 0)
            print_experts(p, out);
    }
    plan_size(size, plan_total(p));
    str_printf(out, "; %s with a context of %lld tokens", size, (long long)p->context);
    if (p->available > 0) {
        plan_size(size, p->available - plan_total(p));
        str_printf(out, ", which leaves %s free", size);
    }
    print_cpu_experts(p, out);
}
