// SPDX-License-Identifier: Apache-2.0
// See sim_budget.h.
#include "unit/sim_budget.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/rng.h"

// Measured: docs/performance.md (H200: budget.csv without the draft; CPU table) and
// docs/notes/budget-auto.md (H100, A3B, bundled pair); between and beyond the points, after their
// shape.
const struct sim_device sim_devices[] = {
    {"H200, 27B",
     PRICE_GPU,
     {{1, 6.85},
      {2, 6.92},
      {4, 7.11},
      {6, 7.34},
      {8, 7.51},
      {12, 8.20},
      {16, 8.30},
      {20, 8.78},
      {24, 8.83},
      {32, 9.97},
      {48, 12.14},
      {64, 15.58},
      {96, 23.64},
      {128, 30.68}},
     0.57,
     {1.24, 1.22, 1.21},
     0.2,
     0.01,
     0.002,
     1.6,
     {0.96, 0.99},
     {0},
     0.001},
    {"H100, 27B",
     PRICE_GPU,
     {{1, 8.33},
      {2, 8.5},
      {4, 8.7},
      {8, 9.05},
      {12, 9.65},
      {16, 9.75},
      {20, 10.2},
      {24, 10.25},
      {28, 10.95},
      {32, 11.2},
      {48, 13.0},
      {64, 16.5},
      {96, 25},
      {128, 33}},
     0.57,
     {1.53, 1.51, 1.5},
     0.2,
     0.01,
     0.002,
     1.6,
     {0.96, 0.99},
     {0},
     0.001},
    {"GPU, small model",
     PRICE_GPU,
     {{1, 1.6}, {32, 1.7}, {64, 1.9}, {128, 2.6}},
     0.05,
     {0.6, 0.6, 0.6},
     0.1,
     0.02,
     0.002,
     3,
     {0.92, 0.98},
     {0},
     0.001},
    {"CPU, bundled pair",
     PRICE_CPU,
     {{1, 0.49},
      {2, 0.50},
      {4, 0.60},
      {8, 0.92},
      {16, 1.45},
      {24, 2.0},
      {32, 2.6},
      {64, 5.2},
      {128, 10.4}},
     0.05,
     {0.44, 0.29, 0.20},
     0.7,
     0.05,
     0.03,
     1.8,
     {0.97, 0.99},
     {0},
     0.005},
    {"CPU, 0.8B Q4_K_M",
     PRICE_CPU,
     {{1, 25.2}, {2, 27}, {4, 33}, {8, 45}, {16, 66}, {23, 83.3}, {64, 205}, {128, 400}},
     3,
     {12, 8, 6},
     0.7,
     0.04,
     0.02,
     1.3,
     {0.97, 0.99},
     {0},
     0.08},
    {"CPU, 0.8B BF16",
     PRICE_CPU,
     {{1, 60.2}, {2, 61}, {8, 70}, {16, 82}, {23, 93}, {64, 160}, {128, 270}},
     3,
     {22, 19, 17},
     0.4,
     0.04,
     0.02,
     1.3,
     {0.93, 0.99},
     {0},
     0.1},
    {"H200, 35B-A3B",
     PRICE_GPU,
     {{1, 2.96},
      {4, 3.94},
      {8, 5.06},
      {12, 6.05},
      {16, 6.74},
      {24, 7.81},
      {32, 9.0},
      {48, 10.5},
      {64, 11.5},
      {96, 12.6},
      {128, 14}},
     0.3,
     {0.77, 0.70, 0.70},
     0.2,
     0.01,
     0.002,
     1.6,
     {0.95, 0.97},
     {256, 8, 0.31},
     0.001},
    // Two threads of an AMD EPYC without AVX-512, 2026-11-30: passes of an oracle that is never
    // right, the draft by its rows.
    {"AVX2, bundled pair",
     PRICE_CPU,
     {{1, 2.48},
      {2, 3.54},
      {4, 5.8},
      {8, 8.8},
      {12, 12.0},
      {16, 15.2},
      {24, 22.2},
      {32, 29},
      {64, 57},
      {128, 114}},
     0.05,
     {3.0, 1.5, 0.8},
     0.9,
     0.04,
     0.02,
     1.3,
     {0.97, 0.99},
     {0},
     0.034},
    {"AVX2, 135M Q4_1",
     PRICE_CPU,
     {{1, 9.5},
      {2, 14.5},
      {4, 21.7},
      {8, 38.3},
      {16, 73},
      {24, 110},
      {32, 148},
      {64, 296},
      {128, 592}},
     0.3,
     {23.5, 12, 6.5},
     0.9,
     0.04,
     0.02,
     1.3,
     {0.97, 0.99},
     {0},
     0.12},
};
enum { DEVICES = sizeof sim_devices / sizeof *sim_devices, DEAR = 2 };
const int sim_n_devices = DEVICES - DEAR, sim_all_devices = DEVICES;

double sim_pass_ms(const struct sim_device *d, int64_t rows, int seqs) {
    int i = 0;
    while (d->curve[i + 2][0] > 0 && d->curve[i + 1][0] < (double)rows)
        i++;
    const double *a = d->curve[i], *b = d->curve[i + 1];
    double ms = a[1] + ((double)rows - a[0]) * (b[1] - a[1]) / (b[0] - a[0]);
    return ms + (seqs - 1) * d->seq;
}

double sim_draft_ms(const struct sim_device *d, int members, int reach) {
    return d->draft[reach] * (1 + (members - 1) * d->member);
}

// The candidates of a position as the oracle drafter makes them (spec/draft/oracle.c); token 0 is
// the truth.
static void oracle_at(const struct sim_guess *g, int64_t pos, int32_t *ids, float *logp) {
    static const float best[] = {-0.5f, -0.2f, -0.05f};
    uint64_t h = rng_hash(7, (uint64_t)pos, 0, 0);
    float first = best[(h >> 20) % 3];
    int rank = 0;
    if ((double)rng_unit(h) < g->errors)
        rank = 1 + (int)(rng_mix(h) % SIM_K);
    for (int r = 0; r < SIM_K; r++) {
        ids[r] = r == rank ? 0 : r + 1;
        logp[r] = first - (float)r * (1.0f - first);
    }
}

static void guess_at(const struct sim_guess *g, int64_t pos, int32_t *ids, float *logp) {
    uint64_t h = rng_hash(7, (uint64_t)pos, 0, 0);
    double u = rng_unit(h), sum = 0;
    double power = g->confidence * exp(g->mood * (2 * rng_unit(rng_mix(h)) - 1));
    int rank = SIM_K;
    for (int r = 2; r >= 0; r--)
        sum += g->right[r];
    for (int r = 2; r >= 0; r--) {
        if (u < sum)
            rank = r;
        sum -= g->right[r];
    }
    for (int r = 0; r < SIM_K; r++) {
        double stated = r < 3 ? g->right[r] : 0.001;
        ids[r] = r == rank ? 0 : r + 1;
        logp[r] = (float)(power * log(fmax(stated, 1e-4)));
    }
}

// Of what was not recorded each guess is a third as likely as the one before.
static void recorded_at(const struct sim_record *at, int32_t *ids, float *logp) {
    for (int r = 0; r < SIM_K; r++) {
        bool known = r < SIM_RANKS;
        ids[r] = known && r == at->rank ? 0 : r + 1;
        logp[r] = known ? at->logp[r] : logp[r - 1] - 1.1f;
    }
}

static bool read_record(const char c[SIM_RANKS], struct sim_record *r) {
    int first = c[0] - '!';
    bool ok = first >= 0 && first < SIM_BESTS * (SIM_RANKS + 1);
    r->rank = first / SIM_BESTS;
    double root = SIM_BEST * (first % SIM_BESTS);
    r->logp[0] = (float)(-root * root);
    for (int k = 1; k < SIM_RANKS; k++) {
        ok = ok && c[k] >= '!' && c[k] < '!' + SIM_OTHERS;
        r->logp[k] = (float)(-SIM_OTHER * (c[k] - '!'));
    }
    return ok;
}

int sim_read_text(FILE *f, struct sim_text *t) {
    int got = fscanf(f, " text %31s %d %d", t->id, &t->prompt, &t->n);
    if (got == EOF)
        return 0;
    bool ok = got == 3 && t->n >= 1 && t->n <= SIM_TOKENS && t->prompt >= 1;
    for (int i = 0; ok && i < t->n; i++) {
        char line[SIM_RANKS * SIM_DEPTH + 1];
        ok = fscanf(f, "%45s", line) == 1 && strlen(line) % SIM_RANKS == 0;
        t->depth[i] = (int)strlen(line) / SIM_RANKS;
        for (int d = 0; ok && d < t->depth[i]; d++)
            ok = read_record(line + d * SIM_RANKS, &t->at[i][d]);
    }
    return ok ? 1 : -1;
}

// The tree of a draft at `pos`, its first `depth` positions.
static void grow(struct ddtree *t, const struct sim_guess *g, int64_t pos, int depth, int nodes) {
    int32_t ids[SIM_DEPTH * SIM_K];
    float logp[SIM_DEPTH * SIM_K];
    struct proposal p = {.depth = depth, .k = SIM_K, .ids = ids, .logp = logp};
    struct tree_options o = {.budget = nodes, .k = SIM_K, .max_depth = SIM_DEPTH};
    if (g->text && p.depth > g->text->depth[pos])
        p.depth = g->text->depth[pos];
    for (int d = 0; d < p.depth; d++)
        if (g->text)
            recorded_at(&g->text->at[pos][d], ids + d * SIM_K, logp + d * SIM_K);
        else if (g->errors >= 0)
            oracle_at(g, pos + d, ids + d * SIM_K, logp + d * SIM_K);
        else
            guess_at(g, pos + d, ids + d * SIM_K, logp + d * SIM_K);
    ddtree_build(t, 1, &p, &o, NULL);
}

double sim_noisy(const struct sim_device *d, double ms, uint64_t *state, bool first) {
    uint64_t h = *state = rng_mix(*state + 1);
    double u = 1 - rng_unit(h), v = rng_unit(rng_mix(h ^ 1)), w = rng_unit(rng_mix(h ^ 2));
    ms *= exp(d->noise * sqrt(-2 * log(u)) * cos(6.283185307 * v));
    if (w < d->disturbed)
        ms *= 1.2 + 1.8 * w / d->disturbed;
    return first ? ms * d->first : ms;
}

static void walk_truth(const struct ddtree *t, int64_t left, struct walk *out) {
    static const int32_t truth[TREE_MAX_ROWS];
    struct walk_limits l = {.tokens_left = left, .context_left = left};
    walk_tree(t, truth, &l, out);
}

// Tokens of a prompt that a first draft has to read.
static int first_unread(const struct sim_guess *g) {
    return g->text ? g->text->prompt % SIM_UNREAD : SIM_UNREAD / 2;
}

double sim_time(struct sim_run *r, int64_t *tokens) {
    double ms = 0;
    int64_t pos = 0;
    int unread = first_unread(r->guess), before = 0; // that of the step before
    for (int s = 0; r->tokens ? pos < r->tokens : s < r->steps; s++) {
        int64_t left = r->tokens ? r->tokens - pos : 1 << 20;
        int room = left - 1 < SIM_DEPTH ? (int)(left - 1) : SIM_DEPTH;
        struct ddtree t;
        struct walk w;
        struct budget_member m = {.budget = r->budget, .drafts = room > 0, .tree = &t, .walk = &w};
        struct budget_step step = {.price = r->price,
                                   .members = &m,
                                   .n = 1,
                                   .max_rows = 1 + SIM_MAX,
                                   .draft = {{.max_depth = SIM_DEPTH}}};
        int reach = r->reach, nodes = SIM_MAX;
        if (r->budget) {
            budget_drafts(&step);
            for (reach = 0; m.drafts && price_depth(SIM_DEPTH, reach) != step.draft[0].depth;)
                reach++;
        } else {
            m.drafts = r->nodes >= 0 && room > 0;
            nodes = r->nodes;
        }
        int depth = m.drafts ? price_depth(SIM_DEPTH, reach) : 0;
        grow(&t, r->guess, r->from + pos, depth < room ? depth : room, nodes);
        if (r->budget) {
            budget_share(&step);
            t.n = 1 + m.nodes;
        }
        double draft = m.drafts ? sim_draft_ms(r->device, 1, reach) : 0;
        double pass = sim_pass_ms(r->device, t.n, 1);
        walk_truth(&t, left, &w);
        if (m.drafts) { // tokens of one step are in its time
            draft += r->device->unread * (unread - before);
            unread = 0;
        }
        before = w.count;
        unread += w.count;
        if (unread > SIM_UNREAD && (r->budget || r->nodes >= 0)) {
            pass += r->device->unread * SIM_UNREAD;
            unread -= SIM_UNREAD;
            before = 0;
        }
        if (r->budget) {
            bool first = !price_ready(r->price);
            step.draft[0].ms = draft > 0 ? sim_noisy(r->device, draft, &r->noise, first) : 0;
            step.pass_ms = sim_noisy(r->device, pass, &r->noise, first);
            budget_note(&step);
        }
        ms += draft + pass;
        pos += w.count;
    }
    if (tokens)
        *tokens = pos;
    return ms;
}

// One member of a batch, within its step.
struct sim_member {
    struct ddtree tree;
    struct walk walk;
    int64_t pos; // in its reply
};

static void batch_step(struct sim_run *r, struct sim_member *m, struct budget_step *s) {
    bool first = !price_ready(r->price);
    int reach = 0, drafts = 0, rows = 0;
    for (int i = 0; i < s->n; i++)
        s->members[i] = (struct budget_member){.budget = r[i].budget,
                                               .drafts = r->tokens - m[i].pos > 1,
                                               .tree = &m[i].tree,
                                               .walk = &m[i].walk};
    budget_drafts(s);
    while (s->draft[0].depth && price_depth(SIM_DEPTH, reach) != s->draft[0].depth)
        reach++;
    for (int i = 0; i < s->n; i++) {
        int64_t room = r->tokens - m[i].pos - 1;
        int depth = s->members[i].drafts ? s->draft[0].depth : 0;
        drafts += s->members[i].drafts;
        grow(&m[i].tree, r[i].guess, r[i].from + m[i].pos, depth < room ? depth : (int)room,
             SIM_MAX);
    }
    budget_share(s);
    for (int i = 0; i < s->n; i++) {
        m[i].tree.n = 1 + s->members[i].nodes;
        rows += m[i].tree.n;
        walk_truth(&m[i].tree, r->tokens - m[i].pos, &m[i].walk);
    }
    s->draft[0].ms = drafts ? sim_draft_ms(r->device, drafts, reach) : 0;
    s->pass_ms = sim_pass_ms(r->device, rows, s->n);
    double ms[2] = {s->draft[0].ms, s->pass_ms};
    s->draft[0].ms = sim_noisy(r->device, ms[0], &r->noise, first);
    s->pass_ms = sim_noisy(r->device, ms[1], &r->noise, first);
    budget_note(s);
    s->draft[0].ms = ms[0];
    s->pass_ms = ms[1];
}

double sim_batch(struct sim_run *r, int n, int replies) {
    struct sim_member m[SIM_MEMBERS];
    double ms = 0, tokens = 0;
    for (int i = 0; i < n; i++)
        m[i].pos = i * r->tokens / n;
    while (replies > 0) {
        struct budget_member members[SIM_MEMBERS];
        struct budget_step s = {.price = r->price,
                                .members = members,
                                .n = n,
                                .max_rows = 512,
                                .draft = {{.max_depth = SIM_DEPTH}}};
        batch_step(r, m, &s);
        ms += s.draft[0].ms + s.pass_ms;
        for (int i = 0; i < n; i++) {
            tokens += m[i].walk.count;
            m[i].pos += m[i].walk.count;
            if (m[i].pos < r->tokens)
                continue;
            m[i].pos = 0;
            r[i].from += 1000;
            replies--;
            budget_begin(r[i].budget, NULL);
        }
    }
    return tokens / ms;
}

double sim_rate(const struct sim_run *r, int replies, int64_t stride) {
    double ms = 0, sum = 0;
    for (int i = 0; i < replies; i++) {
        struct sim_run one = *r;
        int64_t tokens;
        one.from += i * stride;
        ms += sim_time(&one, &tokens);
        sum += (double)tokens;
    }
    return sum / ms;
}

// A tree is the beginning of every larger one, so one tree a position serves all.
void sim_fixed(const struct sim_run *r, double ms[SIM_MAX + 1]) {
    struct walk walks[SIM_TOKENS];
    for (int pos = 0; pos < r->tokens; pos++) {
        struct ddtree t;
        int room = (int)r->tokens - pos - 1, depth = price_depth(SIM_DEPTH, r->reach);
        grow(&t, r->guess, r->from + pos, room < depth ? room : depth, SIM_MAX);
        walk_truth(&t, r->tokens - pos, &walks[pos]);
    }
    for (int nodes = 0; nodes <= SIM_MAX; nodes++) {
        ms[nodes] += r->device->unread * first_unread(r->guess);
        for (int pos = 0; pos < r->tokens;) {
            int count = 1;
            while (count < walks[pos].count && walks[pos].path[count] <= nodes)
                count++;
            bool last = pos == r->tokens - 1; // nothing can be guessed there
            ms[nodes] += sim_pass_ms(r->device, last ? 1 : 1 + nodes, 1);
            ms[nodes] += last ? 0 : sim_draft_ms(r->device, 1, r->reach);
            pos += count;
        }
    }
}

double sim_best_fixed(const struct sim_run *r, int replies, int64_t stride, int *nodes) {
    double ms[SIM_MAX + 1] = {0}, sum = (double)replies * (double)r->tokens;
    double best = 1 / sim_pass_ms(r->device, 1, 1);
    *nodes = -1;
    for (int i = 0; i < replies; i++) {
        struct sim_run one = *r;
        one.from += i * stride;
        sim_fixed(&one, ms);
    }
    for (int n = 0; n <= SIM_MAX; n++)
        if (sum / ms[n] > best) {
            best = sum / ms[n];
            *nodes = n;
        }
    return best;
}
