// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a plan, then the search for one. Advice goes from what costs least to what
// costs most: a shorter context, smaller keys and values, smaller files.
#include "engine/session/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/memory/slabs.h"
#include "base/num.h"
#include "ops/args/args.h"
#include "ops/experts/pool.h"

enum { SMALLEST = 4 * KV_PAGE };

static int64_t pages_of_tokens(int64_t tokens) {
    return ceil_div(tokens, KV_PAGE);
}

int64_t plan_kv(const struct memory_plan *p, int64_t n) {
    return kv_needs_max(&p->kv, n, p->step);
}

// What lies next to that many bytes of pages: after the last ones of slabs, and where pages of one
// size have gone and a larger one does not fit in their place.
static int64_t bytes_besides_pages(const struct memory_plan *p, int64_t bytes) {
    int64_t after = 0, largest = 0;
    bool one_size = true;
    for (int i = 0; p->slabs && i < p->kv.n; i++) {
        int64_t page = p->kv.of[i].page_bytes;
        after = max_i64(after, slabs_vain_filled(bytes, page));
        largest = max_i64(largest, page);
        one_size = one_size && page == p->kv.of[0].page_bytes;
    }
    return after + (one_size ? 0 : largest);
}

// The same with what lies next to pages in a device's slabs.
static int64_t plan_kv_held(const struct memory_plan *p, int64_t n) {
    int64_t bytes = plan_kv(p, n);
    return bytes + bytes_besides_pages(p, bytes);
}

int64_t plan_pages_in(const struct memory_plan *p, int64_t memory) {
    return max_i64(max_i64(memory - bytes_besides_pages(p, memory), 1),
                   plan_kv_held(p, p->context) <= memory ? plan_kv(p, p->context) : 0);
}

static int64_t fixed_bytes(const struct memory_plan *p) {
    return p->weights + p->draft + p->scratch + p->state;
}

// Bytes left for keys and values of all sequences together, and what lies next to them; 0: no
// limit is known.
static int64_t plan_pages(const struct memory_plan *p) {
    int64_t left = p->available - fixed_bytes(p);
    return p->available <= 0 ? 0 : left > 0 ? left : 1;
}

int64_t plan_total(const struct memory_plan *p) {
    return fixed_bytes(p) + plan_kv_held(p, p->context);
}

struct kv_needs plan_kv_beyond(const struct memory_plan *p) {
    struct kv_needs kv = p->kv;
    kv.host = p->kv_host;
    return kv;
}

static int64_t longest(const struct memory_plan *p) {
    int64_t left = p->available - fixed_bytes(p), lo = 0, hi = pages_of_tokens(p->trained);
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

int64_t plan_longest(const struct memory_plan *p) {
    struct memory_plan all = *p;
    all.kv = plan_kv_beyond(p);
    return longest(&all);
}

// The largest size that would fit, for the end of a sentence.
static void advise_user(const struct memory_plan *p, int64_t wanted, char *text, size_t size) {
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
    p->kv.host = 0;
    if (p->available > 0 && plan_total(p) > p->available)
        p->kv = plan_kv_beyond(p);
    if (p->available <= 0 || plan_total(p) <= p->available)
        return 0;
    char need[SIZE_TEXT], have[SIZE_TEXT], missing[SIZE_TEXT], advice[96];
    size_text(need, plan_total(p));
    size_text(have, p->available);
    size_text(missing, plan_total(p) - p->available);
    advise_user(p, p->context, advice, sizeof advice);
    return err_set(e, ERR_MEMORY,
                   "with a context of %lld tokens %s of memory are needed and %s may be taken, %s "
                   "too little; %s",
                   (long long)p->context, need, have, missing, advice);
}

// Besides the slots: who has them, uses and addresses, and what slabs of others may leave unused:
// slots take all that is left.
static int64_t bytes_besides_slots(const struct memory_plan *p, int64_t rest) {
    enum { EACH = 24, ROUND = 4 << 20 };
    const struct expert_classes *c = &p->slots;
    return (int64_t)expert_classes_layers(c) * c->experts * EACH + (int64_t)c->n * ROUND +
           slabs_vain_beyond(rest + p->draft) + slabs_vain_beyond(p->scratch) +
           slabs_vain_beyond(p->state);
}

int plan_fewer_experts(struct memory_plan *p, int64_t wanted, int64_t slots_each, struct err *e) {
    enum { USUAL = 16384 };
    int64_t rest = p->weights - p->resident;
    rest += bytes_besides_slots(p, rest);
    int64_t held =
        fixed_bytes(p) - p->weights + plan_kv_held(p, wanted ? wanted : min_i64(USUAL, p->trained));
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
    char some[SIZE_TEXT];
    size_text(some, p->cpu_experts);
    if (p->cpu_layers)
        str_printf(out, "; the experts of %d of %d layers, %s, are the CPU's", p->cpu_layers,
                   p->expert_layers, some);
    if (p->rates.cpu > 0)
        str_printf(out, "%s CPU reads experts at %.0f GB/s and the bus brings %.0f",
                   p->cpu_layers ? "; this" : "; the", p->rates.cpu, p->rates.bus);
}

static void print_experts(const struct memory_plan *p, struct str *out) {
    char some[SIZE_TEXT], all[SIZE_TEXT];
    if (p->resident >= p->experts)
        return;
    size_text(some, p->resident);
    size_text(all, p->experts);
    str_printf(out, " (of the experts' %s %.0f %% are resident, %s", all,
               100.0 * (double)p->resident / (double)p->experts, some);
    if (p->lent_rows)
        str_printf(out, ", and make room for passes of up to %lld rows of prompts",
                   (long long)p->lent_rows);
    str_putc(out, ')');
}

// Of several, each.
static void print_drafts(const struct memory_plan *p, struct str *out) {
    char size[SIZE_TEXT];
    for (int i = 0; p->n_drafts > 1 && i < p->n_drafts; i++) {
        size_text(size, p->drafts[i].bytes);
        str_printf(out, "%s%s %s%s", i ? ", " : " (", p->drafts[i].name, size,
                   i + 1 < p->n_drafts ? "" : ")");
    }
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
    char size[SIZE_TEXT];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_text(size, parts[i].bytes);
        if (parts[i].always || parts[i].bytes)
            str_printf(out, "%s%s", parts[i].before, size);
        if (i == 0)
            print_experts(p, out);
        if (i == 1)
            print_drafts(p, out);
    }
    size_text(size, plan_total(p));
    str_printf(out, "; %s with a context of %lld tokens, keys as %s and values as %s", size,
               (long long)p->context, kv_codec_of(p->codec_k)->name, kv_codec_of(p->codec_v)->name);
    if (p->available > 0) {
        size_text(size, p->available - plan_total(p));
        str_printf(out, ", which leaves %s free", size);
    }
    if (p->rows < p->usual_rows)
        str_printf(out, "; passes of prompts have %d rows in place of %d, so that it fits", p->rows,
                   p->usual_rows);
    if (p->fp16_kv < p->usual_fp16_kv) {
        size_text(size, p->usual_fp16_kv);
        str_printf(out,
                   "; there is no room of %s for keys and values of a layer as fp16, which long "
                   "prompts are faster with, so that it fits",
                   size);
    }
    size_text(size, kv_needs_hosted(&p->kv, p->context, p->step));
    if (p->kv.host)
        str_printf(out, "; %s of its keys and values are in host memory, so that it fits", size);
    print_cpu_experts(p, out);
}

// The available bytes: those that others leave of the device, and no more than the caller allows
// itself.
static int64_t available_to(const struct pair_request *r) {
    int64_t left = runtime_available(r->device), own = r->target.memory_limit;
    if (left > 0)
        left = max_i64(1, left - r->free_bytes);
    if (left > 0 && r->max > 0)
        left = min_i64(left, r->max);
    if (exec_is_device(runtime_exec(r->device)) || own <= 0)
        return left;
    return left > 0 ? min_i64(left, own) : own;
}

// What the drafts take, in *p; their keys and values and what they need of the backend, in *t.
static int plan_drafts(struct memory_plan *p, struct model_plan *t, const struct pair_request *r,
                       struct err *e) {
    struct exec *x = runtime_exec(r->device);
    for (int i = 0; i < r->n_drafts; i++) {
        struct draft_plan_args args = {x, r->file, &r->target, &r->drafts[i]};
        struct draft_plan d = {0};
        int rc = draft_measure(&d, &args, e);
        if (rc)
            return rc;
        exec_limits_join(&t->limits, &d.limits);
        kv_needs_join(&t->kv, &d.kv);
        p->drafts[p->n_drafts].name = d.name;
        p->drafts[p->n_drafts++].bytes = d.weights;
        p->draft += d.weights;
        p->scratch += d.scratch;
        p->state += d.pending;
    }
    return 0;
}

static int fill_plan(struct memory_plan *p, const struct pair_request *r, struct err *e) {
    struct exec *x = runtime_exec(r->device);
    const struct model_options *o = &r->target;
    struct model_params params;
    struct model_plan t;
    struct memory_plan drafts = {0};
    int rc = model_plan(&t, &params, x, r->file, o, e);
    if (rc)
        return err_prefix(e, "%s", r->model);
    rc = plan_drafts(&drafts, &t, r, e);
    if (rc)
        return rc;
    int64_t own = exec_own_bytes(x, &t.limits);
    int64_t more = max_i64(own - runtime_reservations(r->device)->own, 0);
    *p = (struct memory_plan){.weights = t.weights,
                              .draft = drafts.draft,
                              .n_drafts = drafts.n_drafts,
                              .scratch = t.scratch + drafts.scratch + more,
                              .own = own,
                              .own_more = more,
                              .state = (t.recurrent + drafts.state) * max_i64(o->max_seqs, 1),
                              .kv = t.kv,
                              .step = t.step,
                              .slabs = exec_is_device(x),
                              .available = available_to(r),
                              .trained = min_i64(params.context, MODEL_MAX_CTX),
                              .codec_k = o->codec_k,
                              .codec_v = o->codec_v,
                              .fp16_kv = t.limits.fp16_kv};
    for (int i = 0; i < t.kv.n; i++)
        if (t.kv.of[i].staged)
            p->kv_host = r->kv_host;
    memcpy(p->drafts, drafts.drafts, sizeof p->drafts);
    if (exec_is_device(x)) {
        p->experts = p->resident = t.expert_bytes;
        p->slots = t.experts;
        p->expert_layers = t.expert_layers;
        p->cpu_layers = o->cpu_experts;
        p->cpu_experts = t.host_bytes;
    }
    return 0;
}

enum { ROWS = 512, DEVICE_ROWS = 3072, LARGE_ROWS = 8192 };

// From here on a device's memory is one in which the workspace of LARGE_ROWS is not missed.
static const int64_t LARGE_DEVICE = (int64_t)72 << 30;

// Rows of passes for which slots may be lent: whole tiles of 192, and somewhat more than prompts
// of round lengths. Beyond the last one computing takes longer than bringing most of the experts.
// A draft keeps what it reads of a pass besides the slots, all the time: with one they end at 4224.
static const int LENT[] = {1536, 3072, 4224, 6144, 8448};
enum { LENT_DRAFT = 4224 };
enum { LENT_N = sizeof LENT / sizeof *LENT };
_Static_assert((int)LENT_N < (int)MODEL_WORKSPACES, "a workspace for each");

// Rows of a prompt's pass. On a device many share the unpacking of the weights: 8192 where there is
// memory, else 3072, whole tiles of 192 and of 256 rows.
static int rows_for(const struct pair_request *r) {
    if (!exec_is_device(runtime_exec(r->device)))
        return ROWS;
    const bool slots = r->slots || r->max; // larger passes borrow what these have
    return !slots && available_to(r) >= LARGE_DEVICE ? LARGE_ROWS : DEVICE_ROWS;
}

// Keys and values of a layer as fp16 take no more than one in so many of the available bytes.
enum { FP16_SHARE = 64 };

// How a plan is tried: rows of a prompt's pass, and whether experts may lie beyond the device.
struct attempt {
    int chunk;
    bool rows_open, fewer, lends;
    bool lean; // no room for keys and values as fp16
    bool host; // pages may lie in host memory
};

static int plan_once(struct memory_plan *p, struct pair_request *r, const struct attempt *a,
                     struct err *e) {
    r->chunk = a->chunk;
    if (a->rows_open)
        r->target.max_rows = a->chunk;
    r->target.lent_rows = a->lends ? r->n_drafts ? LENT_DRAFT : LENT[LENT_N - 1] : 0;
    const bool device = exec_is_device(runtime_exec(r->device));
    r->target.fp16_kv = device && !a->lean ? available_to(r) / FP16_SHARE : 0;
    int rc = fill_plan(p, r, e);
    const int64_t kv_host = p->kv_host;
    if (!a->host)
        p->kv_host = 0;
    if (!rc && a->fewer && p->slots.n)
        rc = plan_fewer_experts(p, r->target.max_ctx, r->slots, e);
    if (!rc)
        rc = plan_fit_context(p, r->target.max_ctx, e);
    p->kv_host = kv_host; // what engines may use
    return rc;
}

static int plan_less(struct memory_plan *p, struct pair_request *r, struct attempt a, bool open,
                     struct err *e) {
    int rc = plan_once(p, r, &a, e);
    const int64_t fp16_kv = p->fp16_kv;
    if (rc == ERR_MEMORY && fp16_kv) {
        a.lean = true;
        rc = plan_once(p, r, &a, e);
    }
    while (rc == ERR_MEMORY && open && a.chunk > ROWS) {
        a.chunk = a.chunk == LARGE_ROWS ? DEVICE_ROWS : a.chunk / 2;
        rc = plan_once(p, r, &a, e);
    }
    p->usual_fp16_kv = fp16_kv;
    return rc;
}

// A context that is wanted uses host memory only where it does not fit otherwise.
static int plan_rows(struct memory_plan *p, struct pair_request *r, struct attempt a, bool open,
                     struct err *e) {
    a.host = r->kv_host && !r->target.max_ctx;
    int rc = plan_less(p, r, a, open, e);
    if (rc != ERR_MEMORY || a.host || !r->kv_host)
        return rc;
    a.host = true;
    return plan_less(p, r, a, open, e);
}

// Slots, or memory for them, that were requested: of a model and on a device that can have them.
static int refuse_slots(const char *why, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "--spark-slots and --spark-vram are for models of experts on a GPU, and %s; "
                   "leave them out",
                   why);
}

// How it is to be tried, and then with fewer experts where that was open.
struct course {
    struct attempt a;
    bool open;     // the rows of a prompt's pass
    bool no_slots; // all experts of the device have to fit
};

static int plan_slots(struct memory_plan *p, struct pair_request *r, struct course *c,
                      struct err *e) {
    struct attempt a = c->a;
    int rc = plan_rows(p, r, a, c->open, e);
    if (rc == ERR_MEMORY && !a.fewer && !c->no_slots && p->slots.n) {
        a.fewer = true;
        a.lends = c->open && a.rows_open;
        if (c->open && a.chunk == LARGE_ROWS)
            a.chunk = DEVICE_ROWS;
        rc = plan_rows(p, r, a, c->open, e);
    }
    return rc;
}

// What a pass of that many rows takes in the place of slots; usual: scratch of usual ones, which is
// there anyway.
static int room_of(int64_t *bytes, const struct pair_request *r, int rows, int64_t usual,
                   struct err *e) {
    struct exec *x = runtime_exec(r->device);
    struct model_options o = r->target;
    struct model_plan t;
    o.max_rows = rows;
    int rc = model_plan(&t, NULL, x, r->file, &o, e);
    int64_t scratch = rc ? 0 : exec_room_scratch(x, &t.limits);
    *bytes = rc ? 0 : t.room + (scratch > usual ? scratch : 0);
    return rc;
}

// Which larger passes slots can be lent to, and whether they would bring less for any prompt.
static int plan_lending(struct memory_plan *p, struct pair_request *r, struct err *e) {
    struct exec *x = runtime_exec(r->device);
    const int own = r->target.max_rows, max = r->target.lent_rows;
    struct model_lending *l = &r->target.lending;
    struct expert_layout layout;
    struct model_plan t;
    r->target.lent_rows = 0;
    if (!max)
        return 0;
    int rc = model_plan(&t, NULL, x, r->file, &r->target, e);
    expert_layout_of(&layout, &p->slots, rc ? 0 : t.rows);
    for (int i = 0; i < LENT_N && !rc; i++) {
        struct expert_loan loan;
        struct err none;
        int64_t bytes = 0;
        if (LENT[i] <= own || LENT[i] > max)
            continue;
        rc = room_of(&bytes, r, LENT[i], exec_room_scratch(x, &t.limits), e);
        if (rc || expert_layout_lend(&layout, &p->slots, bytes, &loan, &none))
            break; // larger ones have no room, either
        const struct expert_passes way = {LENT[i], loan.slot_bytes};
        if (expert_loan_choose(&p->slots, own, &way, 1, LENT[i]) < 0)
            continue;
        l->pass[l->n].rows = LENT[i];
        l->pass[l->n++].bytes = bytes;
        p->lent_rows = LENT[i];
    }
    if (l->n)
        l->own = p->among_slots = t.rows;
    return rc;
}

// The fewest layers of the CPU with which the rest fits, which more of them always leave room for.
static int fewest_layers(struct memory_plan *p, struct pair_request *r, struct course *c,
                         struct err *e) {
    int lo = 1, hi = p->expert_layers;
    struct err first = *e;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        r->target.cpu_experts = mid;
        int rc = plan_slots(p, r, c, e);
        if (rc && rc != ERR_MEMORY)
            return rc;
        if (rc)
            lo = mid + 1;
        else
            hi = mid;
    }
    *e = first;
    r->target.cpu_experts = lo;
    return plan_slots(p, r, c, e);
}

static int plan_auto(struct memory_plan *p, struct pair_request *r, struct course *c,
                     struct err *e) {
    struct expert_rates rates = {0};
    r->target.cpu_experts = 0;
    int rc = plan_slots(p, r, c, e);
    bool fits = !rc && p->resident >= p->experts;
    if (fits || (rc && rc != ERR_MEMORY) || !p->expert_layers || r->slots)
        return rc;
    int measured = expert_rates(&rates, runtime_exec(r->device), r->target.cpu, e);
    if (measured)
        return measured;
    c->no_slots = rates.cpu >= (double)CPU_FASTER * rates.bus;
    if (rc || c->no_slots)
        rc = fewest_layers(p, r, c, e);
    p->rates = rates;
    return rc;
}

static int refuse_cpu_experts(const char *why, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "--cpu-experts is for models of experts on a GPU, and %s; leave it out", why);
}

int plan_pair(struct memory_plan *p, bool *planned, struct pair_request *r, struct err *e) {
    struct exec *x = runtime_exec(r->device);
    bool open = r->chunk == 0, rows_open = r->target.max_rows == 0;
    int chunk = open ? rows_for(r) : r->chunk;
    *p = (struct memory_plan){0};
    if ((r->slots || r->max) && !exec_is_device(x))
        return refuse_slots("the CPU is used", e);
    if (r->cpu_experts && !exec_is_device(x))
        return refuse_cpu_experts("the CPU is used", e);
    *planned = r->always || r->slots || runtime_limited(r->device) || r->target.memory_limit > 0;
    if (!*planned) {
        r->chunk = chunk;
        if (rows_open)
            r->target.max_rows = chunk;
        return 0;
    }
    struct course c = {.a = {.chunk = chunk,
                             .rows_open = rows_open,
                             .fewer = r->slots > 0,
                             .lends = r->slots > 0 && open && rows_open},
                       .open = open};
    r->target.cpu_experts = r->cpu_experts > 0 ? r->cpu_experts : 0;
    int rc = r->cpu_experts == CPU_EXPERTS_AUTO ? plan_auto(p, r, &c, e) : plan_slots(p, r, &c, e);
    if (!rc && !p->expert_layers && r->slots)
        rc = refuse_slots("this model has no experts", e);
    if (!rc && !p->expert_layers && r->cpu_experts)
        rc = refuse_cpu_experts("this model has none", e);
    if (rc == ERR_MEMORY)
        reservations_blame(runtime_reservations(r->device), e);
    if (rc)
        return rc;
    r->target.max_ctx = p->context;
    p->rows = r->chunk;
    p->usual_rows = open ? chunk : r->chunk;
    if (p->resident >= p->experts) {
        r->target.lent_rows = 0;
        return 0;
    }
    r->target.experts = p->slots;
    return plan_lending(p, r, e);
}

struct reservation plan_reservation(const struct memory_plan *p, int64_t available, const char *who,
                                    bool share) {
    int64_t pool = p->resident < p->experts ? p->resident : 0;
    struct reservation c = {.bytes = {[ARENA_WORK] = p->scratch - p->own_more - p->among_slots,
                                      [ARENA_SLOTS] = pool + p->among_slots,
                                      [ARENA_WEIGHTS] = p->weights - pool + p->draft,
                                      [ARENA_STATES] = p->state}};
    int64_t one = plan_kv_held(p, p->context);
    int64_t max = available > 0 ? available - p->own_more - reservation_bytes(&c) : INT64_MAX;
    bool all = !share && p->available > 0;
    c.bytes[ARENA_PAGES] = all ? max_i64(min_i64(plan_pages(p), max), one) : one;
    snprintf(c.who, sizeof c.who, "%s", who);
    return c;
}
