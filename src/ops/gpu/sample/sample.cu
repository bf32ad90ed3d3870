// SPDX-License-Identifier: Apache-2.0
// Choices and candidates: sample and head_topk, two launches each (ops/cpu/sample/ops.c is the
// specification; noise, penalties and probabilities have the same bits there and here).
// `scan_logits` goes over all logits once and keeps the best element of every group of 128, with
// noise where that already is the choice. `choose` and `rank`, one block a row, look again only at
// groups that can matter: the k-th best group bounds the k best elements from below, and so does
// the largest score minus a depth for top-p. What passes the bound goes to a short list; if it does
// not fit, the same selection runs over the whole row.
//
// Sets are cut by radix selection in the order (score descending, id ascending). Probabilities are
// summed as integers, multiples of 2^-40, so that no sum depends on the order in which threads
// come.
#include "ops/gpu/sample/scan.cuh"

// What the threads of choose and rank share.
struct sample_shared {
    uint64_t bins[BINS], part[THREADS / WARP];
    uint64_t found; // bin and what comes before it, of the last histogram
    uint64_t before, inside;
    uint64_t list[LIST]; // elements
    int n;               // elements that passed the bound; more than LIST: the list is of no use
    uint32_t filter[FILTER / 32];
};

// Largest value, or sum, over the block; every thread gets it.
template <bool SUM> static __device__ uint64_t block_all(struct sample_shared &m, uint64_t v) {
    for (int d = 16; d; d /= 2) {
        uint64_t o = warp_across(v, d);
        v = SUM ? v + o : larger(v, o);
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        m.part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = m.part[0];
    for (int i = 1; i < THREADS / WARP; i++)
        v = SUM ? v + m.part[i] : larger(v, m.part[i]);
    return v;
}

// Finds the bin, from the highest down, in which the running sum reaches target (1 .. sum of all):
// m.found; m.before: the sum above it; m.inside: its own.
static __device__ void find_bin(struct sample_shared &m, uint64_t target) {
    int t = (int)threadIdx.x, lane = t % WARP;
    int hi = BINS - 1 - 2 * t, lo = hi - 1; // two bins a thread, in descending order
    uint64_t own = m.bins[hi] + m.bins[lo], sum = own;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        uint64_t o = warp_below(sum, d);
        sum += lane >= d ? o : 0;
    }
    if (lane == WARP - 1)
        m.part[t / WARP] = sum;
    __syncthreads();
    for (int i = 0; i < t / WARP; i++)
        sum += m.part[i];
    uint64_t before = sum - own;
    if (before < target && target <= sum) {
        bool first = target <= before + m.bins[hi];
        m.found = (uint64_t)(first ? hi : lo);
        m.before = first ? before : before + m.bins[hi];
        m.inside = m.bins[first ? hi : lo];
    }
    __syncthreads();
}

// The value at which the running weight of visited elements, in descending order of value, reaches
// target. visit(f) calls f(value, weight) for each element. *missing: what the elements with that
// value must still contribute; *there: their weight.
template <typename V>
static __device__ uint32_t select_bin(struct sample_shared &m, uint64_t target, uint64_t *missing,
                                      uint64_t *there, V visit) {
    uint32_t prefix = 0, mask = 0;
    const int shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
#pragma unroll 1
    for (int digit = 0; digit < 3; digit++) {
        int shift = shifts[digit];
        uint32_t low = (1u << bits[digit]) - 1;
        for (int i = (int)threadIdx.x; i < BINS; i += THREADS)
            m.bins[i] = 0;
        __syncthreads();
        visit([&](uint32_t value, uint64_t weight) {
            if (weight && (value & mask) == prefix)
                atomicAdd((unsigned long long *)&m.bins[value >> shift & low], weight);
        });
        __syncthreads();
        find_bin(m, target);
        target -= m.before;
        prefix |= (uint32_t)m.found << shift;
        mask |= low << shift;
    }
    *missing = target;
    *there = m.inside;
    __syncthreads();
    return prefix;
}

// Calls f(element) for the elements of one group; a warp together.
template <typename F>
static __device__ void each_of(const struct job &j, const struct row_view &v, int group, F f) {
#pragma unroll
    for (int e = 0; e < GROUP / WARP; e++) {
        int64_t id = (int64_t)group * GROUP + e * WARP + (int)threadIdx.x % WARP;
        if (!v.has(id))
            continue;
        float z = v.score(id);
        if (v.d->noise)
            z += noise_of(v.d, id);
        f(element(key_of(z), id));
    }
}

// Calls f(element) for elements of groups whose best is at least `least`, or for those of the list.
template <typename F>
static __device__ void each(const struct sample_shared &m, const struct job &j,
                            const struct row_view &v, const uint64_t *best, bool listed,
                            uint32_t least, F f) {
    if (listed) {
        for (int i = (int)threadIdx.x; i < m.n; i += THREADS)
            f(m.list[i]);
        return;
    }
    int lane = (int)threadIdx.x % WARP;
    for (int first = (int)threadIdx.x / WARP * WARP; first < j.groups; first += THREADS) {
        int own = first + lane;
        bool in = own < j.groups && (uint32_t)(best[own] >> 32) >= least;
        for (warp_mask left = warp_vote(in); left; left &= left - 1)
            each_of(j, v, first + mask_first(left), f);
    }
}

// The elements of a row that are still in question: those not after `last`.
struct selection {
    const struct job &j;
    const struct row_view &v;
    const uint64_t *best; // [groups]
    bool listed;
    uint32_t least; // groups below it hold nothing
    uint64_t last;
};

template <typename F>
static __device__ void each_in(const struct sample_shared &m, const struct selection &s, F f) {
    each(m, s.j, s.v, s.best, s.listed, s.least, [&](uint64_t e) {
        if (e >= s.last)
            f(e);
    });
}

// e^(score - max) in units of 2^-40.
static __device__ uint64_t mass_of(uint32_t key, float max) {
    return __float2ull_rz(row_exp(score_of(key) - max) * 0x1p40f);
}

// Narrows the selection to the shortest prefix of its order whose weight reaches target (at least 1
// and at most the weight of all). MASS: weights are probabilities, otherwise ones.
template <bool MASS>
static __device__ void narrow(struct sample_shared &m, struct selection *s, float max,
                              uint64_t target) {
    uint64_t missing, there;
    uint32_t key = select_bin(m, target, &missing, &there, [&](auto add) {
        each_in(m, *s,
                [&](uint64_t e) { add((uint32_t)(e >> 32), MASS ? mass_of(e >> 32, max) : 1); });
    });
    uint64_t one = MASS ? mass_of(key, max) : 1; // equal keys weigh the same
    uint64_t wanted = (missing + one - 1) / one, equal = there / one;
    uint32_t low = 0;
    if (wanted < equal)
        low = select_bin(m, wanted, &missing, &there, [&](auto add) {
            each_in(m, *s, [&](uint64_t e) { add((uint32_t)e, (uint32_t)(e >> 32) == key); });
        });
    s->last = larger(s->last, (uint64_t)key << 32 | low);
    s->least = key > s->least ? key : s->least;
}

// The key that at least k elements reach: that of the k-th best group; 0 with fewer groups.
static __device__ uint32_t bound_of(struct sample_shared &m, const uint64_t *best, int groups,
                                    int k) {
    uint64_t missing, there;
    if (k > groups)
        return 0;
    return select_bin(m, (uint64_t)k, &missing, &there, [&](auto add) {
        for (int g = (int)threadIdx.x; g < groups; g += THREADS)
            add((uint32_t)(best[g] >> 32), 1);
    });
}

// The same for k <= 32, mostly a little lower and much sooner: that of the k-th best warp, each
// warp having the best of its share of the groups. Few groups go round the warps, so that each has
// some: a warp without one would leave no bound where k is more than the others.
static __device__ uint32_t quick_bound(struct sample_shared &m, const uint64_t *best, int groups,
                                       int k) {
    int lane = (int)threadIdx.x % WARP, before = 0;
    uint32_t own = 0;
    const int round = lane * (THREADS / WARP) + (int)threadIdx.x / WARP;
    for (int g = groups < THREADS ? round : (int)threadIdx.x; g < groups; g += THREADS) {
        uint32_t key = (uint32_t)(best[g] >> 32);
        own = key > own ? key : own;
    }
    own = warp_largest(own);
    __syncthreads();
    if (lane == 0)
        m.part[threadIdx.x / WARP] = own;
    __syncthreads();
    own = (uint32_t)m.part[lane];
    for (int i = 0; i < 32; i++) {
        uint32_t o = (uint32_t)m.part[i];
        before += o > own || (o == own && i < lane);
    }
    warp_mask kth = warp_vote(before == k - 1);
    return warp_from(own, mask_first(kth));
}

// Lists the elements whose key is at least s->least and that are not after s->last.
static __device__ void gather_list(struct sample_shared &m, struct selection *s) {
    if (threadIdx.x == 0)
        m.n = 0;
    __syncthreads();
    uint32_t least = s->least;
    each_in(m, *s, [&](uint64_t e) {
        if ((uint32_t)(e >> 32) < least)
            return;
        int at = atomicAdd(&m.n, 1);
        if (at < LIST)
            m.list[at] = e;
    });
    __syncthreads();
    s->listed = m.n <= LIST;
}

static __device__ uint64_t row_best(struct sample_shared &m, const uint64_t *best, int groups) {
    uint64_t v = 0;
    for (int g = (int)threadIdx.x; g < groups; g += THREADS)
        v = larger(v, best[g]);
    return block_all<false>(m, v);
}

// The mass of the whole row, from the sums of its groups.
static __device__ uint64_t row_mass(struct sample_shared &m, const uint64_t *best, const float *sum,
                                    int groups, float max) {
    uint64_t v = 0;
    for (int g = (int)threadIdx.x; g < groups; g += THREADS)
        v += __float2ull_rz(sum[g] * row_exp(score_of((uint32_t)(best[g] >> 32)) - max) * 0x1p40f);
    return block_all<true>(m, v);
}

// Mass or number of the elements in the selection.
template <bool MASS>
static __device__ uint64_t weight_of(struct sample_shared &m, const struct selection &s,
                                     float max) {
    uint64_t v = 0;
    each_in(m, s, [&](uint64_t e) { v += MASS ? mass_of((uint32_t)(e >> 32), max) : 1; });
    return block_all<true>(m, v);
}

// Leaves what top-k and top-p keep.
static __device__ void cut_row(struct sample_shared &m, struct selection *s, const float *sum,
                               float max) {
    const struct draw *d = s->v.d;
    if (d->top_k)
        s->least = bound_of(m, s->best, s->j.groups, d->top_k);
    else if (d->top_p)
        s->least = key_of(max - d->depth);
    else if (d->least > 1e-30f) // with a margin for rounding; each element is looked at anyway
        s->least = key_of(max + row_log(d->least) - 0.01f - 1e-6f * fabsf(max));
    if (d->top_k || d->top_p)
        gather_list(m, s);
    if (!s->listed && (d->top_k || d->top_p))
        s->least = 0;
    if (d->top_k) {
        uint64_t all = weight_of<false>(m, *s, max), k = (uint64_t)d->top_k;
        narrow<false>(m, s, max, k < all ? k : all);
    }
    if (d->top_p) {
        uint64_t here = weight_of<true>(m, *s, max);
        uint64_t all = d->top_k ? here : row_mass(m, s->best, sum, s->j.groups, max);
        uint64_t target = __double2ull_ru((double)d->share * (double)all);
        target = target < 1 ? 1 : target > here ? here : target;
        if (here)
            narrow<true>(m, s, max, target);
    }
}

static __global__ void __launch_bounds__(THREADS) choose_token(struct job j) {
    __shared__ struct sample_shared m;
    gpu_await();
    int64_t row = blockIdx.x;
    const uint64_t *best = j.best + row * j.groups;
    const struct draw *d = &j.draws[row];
    uint64_t top = row_best(m, best, j.groups); // 0, whose id is -1, where nothing is allowed
    if (d->cut && top) {
        struct row_view v = view_of(j, row, m.filter);
        float max = score_of((uint32_t)(top >> 32)), least = d->least;
        struct selection s = {j, v, best, false, 0, 0};
        uint64_t winner = 0;
        cut_row(m, &s, j.sum + row * j.groups, max);
        each_in(m, s, [&](uint64_t e) {
            float z = score_of((uint32_t)(e >> 32));
            if (least <= 0 || row_exp(z - max) >= least)
                winner =
                    larger(winner, element(key_of(z + row_gumbel(d->key, id_of(e))), id_of(e)));
        });
        winner = block_all<false>(m, winner);
        top = winner ? winner : top;
    }
    if (threadIdx.x == 0)
        j.ids[row] = id_of(top);
}

// log of the sum of e^score over the row.
static __device__ float log_sum(struct sample_shared &m, const uint64_t *best, const float *sum,
                                int groups, float max) {
    float v = 0;
    for (int g = (int)threadIdx.x; g < groups; g += THREADS)
        v += sum[g] * row_exp(score_of((uint32_t)(best[g] >> 32)) - max);
    v = warp_sum(v);
    float *part = (float *)m.part;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < THREADS / WARP; i++)
        v += part[i];
    return max + row_log(v);
}

static __global__ void __launch_bounds__(THREADS) rank_tokens(struct job j) {
    __shared__ struct sample_shared m;
    gpu_await();
    int64_t row = blockIdx.x;
    const uint64_t *best = j.best + row * j.groups;
    float max = score_of((uint32_t)(row_best(m, best, j.groups) >> 32));
    float lse = log_sum(m, best, j.sum + row * j.groups, j.groups, max);
    struct row_view v = view_of(j, row, m.filter);
    struct selection s = {j, v, best, false, 0, 0};
    bool few = j.k <= 32;
    s.least = few ? quick_bound(m, best, j.groups, j.k) : bound_of(m, best, j.groups, j.k);
    gather_list(m, &s);
    if (!s.listed) { // many equal scores: cut first, so that k elements are left
        s.least = 0;
        narrow<false>(m, &s, max, (uint64_t)(j.k < j.vocab ? j.k : j.vocab));
        gather_list(m, &s);
    }
    if (j.chosen && threadIdx.x == 0)
        j.chosen_logp[row] = j.chosen[row] < 0 ? -INFINITY : v.logits[j.chosen[row]] - lse;
    int32_t *ids = j.ids + row * j.k;
    float *logp = j.logp + row * j.k;
    for (int i = m.n + (int)threadIdx.x; i < j.k; i += THREADS) {
        ids[i] = -1;
        logp[i] = -INFINITY;
    }
    for (int i = (int)threadIdx.x; i < m.n; i += THREADS) {
        int before = 0;
        for (int o = 0; o < m.n; o++)
            before += m.list[o] > m.list[i];
        if (before >= j.k)
            continue;
        ids[before] = id_of(m.list[i]);
        logp[before] = score_of((uint32_t)(m.list[i] >> 32)) - lse;
    }
}

// Device form of the parameters of one row; false after a fault.
static bool fill_draw(struct gpu *g, const struct sample_row *s, int64_t vocab, struct draw *d) {
    bool warm = s->temperature > 0;
    *d = (struct draw){};
    if (s->given)
        return true;
    d->temperature = s->temperature;
    d->key = warm ? rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos) : 0; // else the same every step
    d->top_k = warm && s->top_k > 0 && s->top_k < vocab ? s->top_k : 0;
    d->top_p = warm && s->top_p < 1;
    d->share = s->top_p > 0 ? s->top_p : 0;
    d->least = s->min_p < 1 ? s->min_p : 1;
    d->depth = d->top_p ? row_log((float)vocab / (1 - d->share) + 1) : 0;
    d->cut = d->top_k || d->top_p || (warm && s->min_p > 0);
    d->noise = warm && !d->cut;
    d->sum = d->top_p && !d->top_k;
    d->repeat = s->repeat;
    d->frequency = s->frequency;
    d->presence = s->presence;
    bool penalties = s->repeat != 1 || s->frequency != 0 || s->presence != 0;
    d->n_seen = penalties ? s->n_seen : 0;
    d->n_bias = s->n_bias;
    d->n_changed = d->n_seen + d->n_bias;
    size_t seen = (size_t)d->n_seen * sizeof *d->seen, bias = (size_t)d->n_bias * sizeof *d->bias;
    if (s->allow)
        d->allow = (const uint32_t *)gpu_stage(g, s->allow, (size_t)(vocab + 31) / 32 * 4);
    if (seen) {
        d->seen = (const int32_t *)gpu_stage(g, s->seen, seen);
        d->count = (const int32_t *)gpu_stage(g, s->seen_count, seen);
    }
    if (bias)
        d->bias = (const struct logit_bias *)gpu_stage(g, s->bias, bias);
    return (!s->allow || d->allow) && (!seen || (d->seen && d->count)) && (!bias || d->bias);
}

// Scratch for n rows; results go to the host's memory, whose writes a wait sees: copying them down
// would take as long as the wait itself.
static bool share_scratch(struct gpu *g, struct job *j, int64_t n) {
    static_assert(2 * ANSWERS + BATCH <= ANSWER_WORDS, "answers have room");
    size_t cells = (size_t)n * (size_t)j->groups;
    unsigned char *p = (unsigned char *)gpu_scratch(g, cells * 12);
    if (!p)
        return false;
    j->best = (uint64_t *)(void *)p;
    j->sum = (float *)(void *)(p + cells * 8);
    j->ids = gpu_answers(g);
    return true;
}

extern "C" size_t sample_scratch(const struct exec_limits *l) {
    size_t groups = (size_t)(l->vocab + GROUP - 1) / GROUP;
    return BATCH * groups * 12;
}

static bool run_scan(struct gpu *g, struct job *j, const struct draw *draws, int64_t n) {
    j->draws = (const struct draw *)gpu_stage(g, draws, (size_t)n * sizeof *draws);
    if (!j->draws)
        return false;
    enum { EACH = SCAN_THREADS / WARP * SPAN }; // groups of a block
    dim3 grid((unsigned)((j->groups + EACH - 1) / EACH), (unsigned)n);
    bool vec = j->vocab % 4 == 0 && (uintptr_t)j->logits % 16 == 0;
    gpu_launch_early(g, "scan of the logits", vec ? scan_logits<true> : scan_logits<false>, grid,
                     SCAN_THREADS, 0, *j);
    return g->fault == GPU_OK;
}

// Waits for what has been queued; false after a fault, and there are no answers. What was left for
// the device to do meanwhile is queued after it.
static bool fetch(struct gpu *g, const char *op) {
    const struct overlapped_work left = exec_take_overlapped(&g->base);
    if (!left.run || g->fault != GPU_OK)
        return g->fault == GPU_OK && gpu_check(g, gpu_stream_wait(g->stream), op);
    if ((!g->rows_sent && !gpu_check(g, gpu_order_event_create(&g->rows_sent), op)) ||
        !gpu_check(g, gpu_event_record(g->rows_sent, g->stream), op))
        return false;
    left.run(left.arg);
    return gpu_check(g, gpu_event_wait(g->rows_sent), op);
}

// The best of rows [first, first + count), whose answers have room; chosen and chosen_logp (host,
// [count]): of those rows, or NULL.
static bool rank_rows(struct gpu *g, const struct topk_args *a, int64_t first, int64_t count,
                      const int32_t *chosen, float *chosen_logp) {
    struct draw draws[BATCH];
    size_t cells = (size_t)(count * a->k); // answers: ids, logp, that of the chosen
    struct job j = {};
    j.logits = a->logits + first * a->vocab;
    j.vocab = a->vocab;
    j.groups = (int)((a->vocab + GROUP - 1) / GROUP);
    j.k = a->k;
    if (!share_scratch(g, &j, count))
        return false;
    j.logp = (float *)(void *)(j.ids + cells);
    if (chosen) {
        j.chosen = (const int32_t *)gpu_stage(g, chosen, (size_t)count * sizeof *chosen);
        j.chosen_logp = j.logp + cells;
        if (!j.chosen)
            return false;
    }
    for (int64_t i = 0; i < count; i++) {
        const struct sample_row *s = a->noise ? &a->noise[first + i] : NULL;
        draws[i] = (struct draw){};
        draws[i].sum = true;
        draws[i].noise = s && s->temperature > 0;
        draws[i].temperature = draws[i].noise ? s->temperature : 0;
        draws[i].key = draws[i].noise ? rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos) : 0;
        draws[i].ids_of = a->ids_of;
    }
    if (!run_scan(g, &j, draws, count))
        return false;
    gpu_launch_early(g, "head_topk", rank_tokens, (unsigned)count, THREADS, 0, j);
    if (!fetch(g, "head_topk"))
        return false;
    __builtin_memcpy(a->ids + first * a->k, j.ids, cells * sizeof *j.ids);
    __builtin_memcpy(a->logp + first * a->k, j.logp, cells * sizeof *j.logp);
    if (chosen)
        __builtin_memcpy(chosen_logp, j.chosen_logp, (size_t)count * sizeof(float));
    return true;
}

// Log-probabilities of rows that were chosen for: a rank of the plain logits. What one row needs
// does not depend on what others need, since a longer list begins with the shorter one.
static void fill_logprobs(struct gpu *g, const struct topk_args *plain,
                          const struct sample_row *rows, const int32_t *choice) {
    enum { MOST = ANSWERS / OPS_LOGPROBS_MAX };
    int32_t ids[ANSWERS];
    float logp[ANSWERS], chosen[MOST];
    for (int64_t first = 0, count; first < plain->n; first += count) {
        struct topk_args a = *plain;
        a.logits += first * a.vocab;
        a.n = count = min_i64(plain->n - first, MOST);
        a.k = 0;
        for (int64_t i = first; i < first + count; i++) {
            struct sample_logprobs *p = rows[i].logprobs;
            a.k = p && p->n > a.k ? p->n : p && a.k == 0 ? 1 : a.k;
        }
        if (a.k == 0)
            continue;
        a.ids = ids;
        a.logp = logp;
        bool done = rank_rows(g, &a, 0, count, choice + first, chosen);
        for (int64_t i = 0; i < count; i++) {
            struct sample_logprobs *p = rows[first + i].logprobs;
            if (!p)
                continue;
            p->chosen = done ? chosen[i] : -INFINITY;
            for (int e = 0; e < p->n; e++) {
                p->ids[e] = done ? ids[i * a.k + e] : -1;
                p->logp[e] = done ? logp[i * a.k + e] : -INFINITY;
            }
        }
    }
}

// The rows of [first, n) that share a launch: what they have seen and may choose, and their biases,
// fit into the stage, and the launch in front has ended (fetch), so that the stage may begin anew.
static int64_t batch_of(struct gpu *g, const struct sample_row *rows, int64_t vocab, int64_t first,
                        int64_t n) {
    int64_t count = 0, max = min_i64(n - first, BATCH);
    size_t bytes = BATCH * sizeof(struct draw);
    for (; count < max; count++) {
        const struct sample_row *s = &rows[first + count];
        bytes += (size_t)s->n_seen * 2 * sizeof(int32_t) + 64;
        bytes += (size_t)s->n_bias * sizeof(struct logit_bias);
        bytes += s->allow ? (size_t)(vocab + 31) / 32 * sizeof(uint32_t) : 0;
        if (count && bytes > STAGE_OP)
            break;
    }
    gpu_stage_reserve(g, STAGE_OP);
    return count;
}

// Chooses after rows [0, n), which share a launch.
static void choose_rows(struct gpu *g, struct job *j, const struct sample_row *rows, int64_t n,
                        int32_t *choice) {
    struct draw draws[BATCH];
    bool ready = share_scratch(g, j, n);
    for (int64_t i = 0; i < n; i++)
        ready = ready && fill_draw(g, &rows[i], j->vocab, &draws[i]);
    if (!ready || !run_scan(g, j, draws, n))
        return;
    gpu_launch_early(g, "sample", choose_token, (unsigned)n, THREADS, 0, *j);
    if (fetch(g, "sample"))
        __builtin_memcpy(choice, j->ids, (size_t)n * sizeof *choice);
}

extern "C" void cuda_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                            const struct sample_row *rows, int32_t *choice) {
    struct gpu *g = gpu_of(x);
    for (int64_t first = 0, count; first < n; first += count) {
        struct job j = {};
        bool all_given = true;
        count = batch_of(g, rows, vocab, first, n);
        j.logits = logits + first * vocab;
        j.vocab = vocab;
        j.groups = (int)((vocab + GROUP - 1) / GROUP);
        for (int64_t i = first; i < first + count; i++) {
            choice[i] = 0; // what a fault leaves
            all_given = all_given && rows[i].given;
        }
        if (!all_given)
            choose_rows(g, &j, rows + first, count, choice + first);
        for (int64_t i = first; i < first + count; i++)
            choice[i] = rows[i].given ? rows[i].token : choice[i];
    }
    struct topk_args plain = {};
    plain.logits = logits;
    plain.n = n;
    plain.vocab = vocab;
    fill_logprobs(g, &plain, rows, choice);
}

extern "C" void cuda_head_topk(struct exec *x, const struct topk_args *a) {
    int64_t max = min_i64(ANSWERS / a->k, BATCH);
    for (int64_t i = 0; i < a->n * a->k; i++) { // what a fault leaves
        a->ids[i] = -1;
        a->logp[i] = -INFINITY;
    }
    for (int64_t first = 0; first < a->n; first += max)
        rank_rows(gpu_of(x), a, first, min_i64(a->n - first, max), NULL, NULL);
}
