// SPDX-License-Identifier: Apache-2.0
// Rule E (docs/exactness.md) as a property: random tiny models, prompts, sampling parameters and
// limits are decoded plainly and then in random other ways, alone and up to 16 in the same passes;
// tokens, the bits of every sampled logits row, and the reason of the end must be the same. What
// happened is counted, and the test fails when an accept length from 1 to 16, a crossing or an end
// inside a path was too rare for its absence of failures to mean anything.
#include "property/exact.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "property/features.h"
#include "property/gen.h"
#include "property/pairs.h"
#include "support/device.h"

enum { PAIRS = 40, WAYS = 3, GROUP_EVERY = 12, BIASES = 24 };

struct scenario {
    int32_t prompt[GEN_PROMPT_MAX];
    struct logit_bias bias[BIASES];
    struct gen_request r;
};

static int64_t pick_length(struct rng *g) {
    static const int64_t near[] = {32, 64, 96, 128};
    switch (rng_below(g, 3)) {
    case 0:
        return 1 + rng_below(g, 24);
    case 1:
        return near[rng_below(g, 4)] - 1 + rng_below(g, 3);
    default:
        return near[rng_below(g, 4)] - rng_below(g, 20);
    }
}

// Prompts repeat parts of themselves, so that lookup has something to find.
static void pick_prompt(struct scenario *s, const struct pair *p, struct rng *g) {
    const int vocab = p->vocab;
    int64_t n = pick_length(g);
    if (p->lends && n <= PAIR_FEW) // longer than passes that borrow nothing
        n += PAIR_FEW;
    if (p->viewed) // of which some is out of sight
        n = p->chosen ? 3 * KV_PAGE + n % (KV_PAGE + 12) : n + 2 * KV_PAGE;
    for (int64_t i = 0; i < n;) {
        int64_t run = 1 + rng_below(g, 12);
        bool copy = i > 12 && rng_below(g, 2);
        int64_t from = copy ? rng_below(g, (uint32_t)(i - 12)) : 0;
        for (int64_t j = 0; j < run && i < n; j++, i++)
            s->prompt[i] = copy ? s->prompt[from + j] : (int32_t)rng_below(g, (uint32_t)vocab);
    }
    s->r.prompt = s->prompt;
    s->r.n_prompt = n;
}

static void pick_sampling(struct sample_params *p, struct rng *g) {
    static const double temperatures[] = {0, 0, 0.3, 0.8, 1, 1.5};
    sample_params_init(p);
    p->temperature = temperatures[rng_below(g, 6)];
    p->seed = rng_next(g);
    if (p->temperature > 0) {
        p->top_k = rng_below(g, 3) ? 0 : 5 + rng_below(g, 40);
        p->top_p = rng_below(g, 3) ? 1 : 0.9;
        p->min_p = rng_below(g, 3) ? 0 : 0.05;
    }
    if (rng_below(g, 3) == 0) {
        static const int64_t windows[] = {4, 64, 256};
        p->repeat = rng_below(g, 2) ? 1.2 : 1;
        p->frequency = rng_below(g, 2) ? 0.3 : 0;
        p->presence = rng_below(g, 2) ? 0.4 : 0;
        p->window = windows[rng_below(g, 3)];
    }
}

static void pick_bias(struct scenario *s, int vocab, struct rng *g) {
    static const float biases[] = {-INFINITY, -100, -3, 2, 5, 8};
    int n = 1 + (int)rng_below(g, BIASES), step = vocab / n;
    for (int i = 0; i < n; i++)
        s->bias[i] = (struct logit_bias){.id = i * step + (int32_t)rng_below(g, (uint32_t)step),
                                         .bias = biases[rng_below(g, 6)]};
    s->r.sample.bias = s->bias;
    s->r.sample.n_bias = n;
}

static void pick_scenario(struct scenario *s, const struct pair *p, struct rng *g) {
    static const int best[] = {0, 1, 5, 20};
    pick_prompt(s, p, g);
    pick_sampling(&s->r.sample, g);
    if (rng_below(g, 3) == 0)
        pick_bias(s, p->vocab, g);
    s->r.n_best = rng_below(g, 3) ? -1 : best[rng_below(g, 4)];
    s->r.prompt_logprobs = rng_below(g, 4) == 0;
    s->r.stop_after = -1;
    s->r.automaton = NULL;
    s->r.max_tokens = 20 + rng_below(g, 60);
    s->r.max_ctx = PAIR_CONTEXT;
    s->r.stop = -1;
}

// One in four replies must satisfy an automaton.
static int pick_automaton(struct scenario *s, int vocab, struct err *e) {
    struct rng g = {rng_mix(s->r.sample.seed)};
    if (rng_below(&g, 4))
        return 0;
    return automaton_create(&s->r.automaton, vocab, rng_below(&g, 8) == 0, rng_next(&g), e);
}

// Gives it back; whether all of its states were dropped.
static int drop_automaton(struct scenario *s, struct err *e) {
    struct automaton *a = s->r.automaton;
    int64_t live = a ? a->live : 0;
    constraint_drop(a ? a->constraint : NULL);
    s->r.automaton = NULL;
    return live ? err_set(e, ERR_STATE, "%lld states were not dropped", (long long)live) : 0;
}

// Moves the end into the recorded continuation: a stop token, a token limit, or a full context.
static void pick_end(struct scenario *s, const struct gen_result *plain, struct rng *g) {
    if (!plain->n)
        return;
    int64_t at = rng_below(g, (uint32_t)plain->n);
    switch (rng_below(g, 5)) {
    case 0:
        s->r.stop = plain->ids[at];
        if (at && rng_below(g, 2))
            s->r.stop_after = plain->ids[at - 1];
        break;
    case 1:
        s->r.max_tokens = at + 1;
        break;
    case 2:
        s->r.max_ctx = s->r.n_prompt + at + 1;
        break;
    default:
        break;
    }
}

static int64_t pick_chunk(const struct pair *p, struct rng *g) {
    static const int64_t chunks[] = {1, 64, 512, 7, 33};
    int64_t chunk = chunks[rng_below(g, 5)];
    return p->brief && chunk == 1 ? 512 : chunk;
}

// Few tokens, and so few passes.
static void shorten(struct scenario *s) {
    enum { PROMPT = 40, NEW = 12 };
    s->r.n_prompt = s->r.n_prompt < PROMPT ? s->r.n_prompt : PROMPT;
    s->r.max_tokens = 4 + s->r.max_tokens % (NEW - 4);
}

static void pick_tree(struct tree_options *t, struct rng *g) {
    static const double probs[] = {0, 0, 0, 0.02};
    *t = (struct tree_options){.budget = 1 + (int)rng_below(g, 32),
                               .k = 1 + (int)rng_below(g, 8),
                               .max_depth = TREE_MAX_DEPTH,
                               .chain_seed = rng_below(g, 3) == 0,
                               .min_prob = probs[rng_below(g, 4)]};
    if (rng_below(g, 12) == 0)
        t->budget = (int)rng_below(g, TREE_MAX_BUDGET + 1);
}

// Of those with a draft; the one that lends slots more often than another.
static const struct pair_backend *pick_backend(const struct pair *p, struct rng *g) {
    return &p->b[p->lends ? 1 + (rng_below(g, 4) == 0) : 1 + rng_below(g, 2)];
}

// Which drafts guess: one, or all that there are, or of three any two.
static void pick_drafts(struct gen_way *w) {
    const unsigned n = (unsigned)w->n_drafts, by = (unsigned)(w->seed >> 16 & 0xffff);
    w->drafts = (1u << n) - 1;
    if (w->seed / 2 % 5 < 2)
        w->drafts = 1u << by % n;
    else if (n > 2 && by % 2)
        w->drafts &= ~(1u << by / 2 % n);
}

static int count_drafts(const struct gen_way *w) {
    int n = 0;
    for (unsigned bits = w->drafts; bits; bits &= bits - 1)
        n++;
    return n;
}

// One of the ways in which the output may be made.
static void pick_way(struct gen_way *w, const struct pair *p, int kind, struct rng *g) {
    static const double errors[] = {0, 0.02, 0.1, 0.3};
    static const char *const names[] = {"chain",        "tree",        "lookup",
                                        "oracle chain", "oracle tree", "oracle tree with lookup"};
    const struct pair_backend *b = pick_backend(p, g);
    *w = (struct gen_way){.name = names[kind],
                          .model = b->model,
                          .draft = b->drafts,
                          .n_drafts = b->n_drafts,
                          .hidden = b->hidden,
                          .share_noise = rng_below(g, 2),
                          .chunk = pick_chunk(p, g),
                          .surgery = rng_below(g, 3) == 0,
                          .seed = rng_next(g)};
    w->choose = w->seed % 8 == 0;
    if (p->lends && w->chunk < 64 && w->seed % 2) // so that passes borrow slots
        w->chunk = 512;
    pick_tree(&w->tree, g);
    w->oracle.error_rate = errors[rng_below(g, 4)];
    w->oracle.seed = rng_next(g);
    w->kinds[0] = kind <= 1 ? DRAFT_MODEL : kind == 2 ? DRAFT_LOOKUP : DRAFT_ORACLE;
    w->kinds[1] = DRAFT_LOOKUP;
    w->choose = w->choose || (kind == 2 && w->seed % 2); // what `auto` is without a draft
    w->n_kinds = kind == 5 || (kind == 1 && rng_below(g, 2)) ? 2 : 1;
    if (kind == 0 || kind == 3)
        w->tree.k = 1;
    if (kind <= 1)
        pick_drafts(w);
}

// Of positions that both have; the last ones depend on how a way ends.
static int64_t hidden_of_both(const struct gen_result *a, const struct gen_result *b) {
    return a->n_hidden < b->n_hidden ? a->n_hidden : b->n_hidden;
}

static bool same(const struct gen_result *a, const struct gen_result *b) {
    return a->n == b->n && a->end == b->end && a->failed == b->failed && a->hash == b->hash &&
           a->logprobs == b->logprobs && memcmp(a->prompt, b->prompt, sizeof a->prompt) == 0 &&
           memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0 &&
           memcmp(a->hidden, b->hidden, (size_t)hidden_of_both(a, b) * sizeof *a->hidden) == 0;
}

static void explain(const struct pair *p, int number, const struct scenario *s,
                    const struct gen_way *w, const struct gen_result *a,
                    const struct gen_result *b) {
    int64_t at = 0;
    while (at < a->n && at < b->n && a->ids[at] == b->ids[at])
        at++;
    fprintf(stderr,
            "case %d (%s): %s (drafts %x) differs from plain decoding: prompt %lld, chunk %lld, "
            "budget %d, k %d, T %g, surgery %d\n  tokens %lld and %lld, equal up to %lld; ends %s "
            "and %s; "
            "hashes %016llx and %016llx; log-probabilities %016llx and %016llx, of the prompt %s; "
            "hidden states %s\n",
            number, p->name, w->name, w->drafts, (long long)s->r.n_prompt, (long long)w->chunk,
            w->tree.budget, w->tree.k, s->r.sample.temperature, w->surgery, (long long)a->n,
            (long long)b->n, (long long)at, end_reason_name(a->end), end_reason_name(b->end),
            (unsigned long long)a->hash, (unsigned long long)b->hash,
            (unsigned long long)a->logprobs, (unsigned long long)b->logprobs,
            memcmp(a->prompt, b->prompt, sizeof a->prompt) ? "not equal" : "equal",
            memcmp(a->hidden, b->hidden, (size_t)hidden_of_both(a, b) * sizeof *a->hidden)
                ? "not equal"
                : "equal");
}

// The recording for oracles: prompt and continuation by position.
static void record(struct gen_way *w, int32_t *tokens, const struct scenario *s,
                   const struct gen_result *r) {
    memcpy(tokens, s->prompt, (size_t)s->r.n_prompt * sizeof *tokens);
    memcpy(tokens + s->r.n_prompt, r->ids, (size_t)r->n * sizeof *tokens);
    w->oracle.recording = tokens;
    w->oracle.n_recording = s->r.n_prompt + r->n;
}

// A sequence that was cut, restored or forked must also draft as if nothing had happened: its
// context is the same.
static int check_drafts(const struct gen_request *r, const struct gen_way *w,
                        const struct gen_result *cut, struct features *f, struct err *e) {
    struct gen_way undisturbed = *w;
    struct features ignored = {0};
    struct gen_result whole;
    if (!w->surgery || w->choose) // what is chosen depends on clocks
        return 0;
    undisturbed.surgery = false;
    int rc = gen_run(r, &undisturbed, &whole, &ignored, e);
    f->count[FEATURE_REDRAFTED]++;
    if (!rc && whole.trees != cut->trees)
        rc = err_set(e, ERR_STATE, "the %s drafter guessed otherwise on an undisturbed sequence",
                     w->name);
    return rc;
}

static int run_ways(const struct pair *p, int number, struct scenario *s, struct rng *g,
                    struct features *f, struct err *e) {
    struct gen_result full, plain, other;
    struct features ignored = {0};
    int32_t tokens[GEN_PROMPT_MAX + GEN_MAX];
    struct gen_way off = {
        .name = "plain", .model = p->b[0].model, .hidden = p->b[0].hidden, .chunk = 512};
    int rc = gen_run(&s->r, &off, &full, &ignored, e);
    if (rc)
        return rc;
    pick_end(s, &full, g);
    off.chunk = pick_chunk(p, g);
    off.model = p->b[2].model;
    off.hidden = p->b[2].hidden;
    rc = gen_run(&s->r, &off, &plain, &ignored, e);
    if (rc)
        return rc;
    if (memcmp(plain.ids, full.ids, (size_t)plain.n * sizeof *plain.ids) != 0) {
        explain(p, number, s, &off, &full, &plain);
        return err_set(e, ERR_STATE, "plain decoding depends on chunks, threads or limits");
    }
    f->cases++;
    f->count[FEATURE_HOT] += s->r.sample.temperature > 0;
    f->count[FEATURE_BIASED] += s->r.sample.n_bias > 0;
    f->count[FEATURE_PENALISED] += s->r.sample.repeat != 1 || s->r.sample.frequency != 0;
    for (int i = 0; i < WAYS; i++) {
        struct gen_way w;
        pick_way(&w, p, i == 0 ? (int)rng_below(g, 3) : 3 + (int)rng_below(g, 3), g);
        record(&w, tokens, s, &full); // beyond the end: trees must not run past it
        rc = gen_run(&s->r, &w, &other, f, e);
        if (rc)
            return rc;
        f->runs++;
        f->tokens += other.n;
        f->count[FEATURE_SEVERAL] += count_drafts(&w) > 1;
        f->count[FEATURE_HIDDEN] += hidden_of_both(&plain, &other) > 0;
        if (!same(&plain, &other)) {
            explain(p, number, s, &w, &plain, &other);
            return err_set(e, ERR_STATE, "a way of guessing changed the output");
        }
        rc = check_drafts(&s->r, &w, &other, f, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int run_case(const struct pair *p, int number, struct features *f, struct err *e) {
    struct rng g = {rng_mix((uint64_t)number)};
    struct scenario s = {0};
    pick_scenario(&s, p, &g);
    if (p->brief)
        shorten(&s);
    int rc = pick_automaton(&s, p->vocab, e);
    if (!rc)
        rc = run_ways(p, number, &s, &g, f, e);
    int kept = drop_automaton(&s, rc ? NULL : e);
    return rc ? rc : kept;
}

// One member of a group: what it should give, and how it is decoded together with the others.
struct part {
    struct scenario s;
    struct gen_way w;
    struct gen_result full, plain, got;
    int32_t tokens[GEN_PROMPT_MAX + GEN_MAX];
};

static int pick_part(struct part *t, const struct pair *p, const struct pair_backend *b,
                     struct rng *g, struct err *e) {
    struct features ignored = {0};
    struct gen_way off = {
        .name = "plain", .model = p->b[0].model, .hidden = p->b[0].hidden, .chunk = 512};
    int kind = (int)rng_below(g, 7);
    pick_scenario(&t->s, p, g);
    t->s.r.prompt = t->s.prompt;
    int rc = pick_automaton(&t->s, p->vocab, e);
    if (!rc)
        rc = gen_run(&t->s.r, &off, &t->full, &ignored, e);
    if (rc)
        return rc;
    pick_end(&t->s, &t->full, g);
    rc = gen_run(&t->s.r, &off, &t->plain, &ignored, e);
    pick_way(&t->w, p, kind < 6 ? kind : 0, g);
    if (kind == 6) { // plainly
        t->w.n_kinds = 0;
        t->w.tree.budget = 0;
        t->w.name = "plain";
    }
    t->w.model = b->model;
    t->w.draft = b->drafts;
    t->w.hidden = b->hidden;
    record(&t->w, t->tokens, &t->s, &t->full);
    return rc;
}

// Whether a member that was cancelled has got a beginning of what it should get.
static bool begins(const struct gen_result *whole, const struct gen_result *cut) {
    return cut->n <= whole->n &&
           memcmp(whole->ids, cut->ids, (size_t)cut->n * sizeof *cut->ids) == 0;
}

static int compare_group(const struct pair *p, int number, const struct part *t,
                         const struct gen_member *m, int n, struct features *f, struct err *e) {
    for (int i = 0; i < n; i++) {
        f->runs++;
        f->tokens += t[i].got.n;
        f->count[FEATURE_HIDDEN_GROUP] += hidden_of_both(&t[i].plain, &t[i].got) > 0;
        bool cancelled = m[i].leaves >= 0 && t[i].got.end == END_NONE && !t[i].got.failed;
        if (cancelled ? begins(&t[i].plain, &t[i].got) : same(&t[i].plain, &t[i].got))
            continue;
        fprintf(stderr, "member %d of %d:\n", i, n);
        explain(p, number, &t[i].s, &t[i].w, &t[i].plain, &t[i].got);
        return err_set(e, ERR_STATE, "a member of a batch got other tokens than alone");
    }
    return 0;
}

// Up to 16 scenarios in the same passes, each with its own parameters, way, time of joining and
// perhaps of leaving.
static int run_group(const struct pair *p, int number, struct features *f, struct err *e) {
    struct rng g = {rng_mix((uint64_t)number + 1000003)};
    struct gen_member m[GEN_MEMBERS] = {0};
    int n = rng_below(&g, 2) ? GEN_MEMBERS : 2 + (int)rng_below(&g, GEN_MEMBERS - 1), rc = 0;
    const struct pair_backend *b = pick_backend(p, &g);
    struct part *t = calloc((size_t)n, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for a group of %d", n);
    for (int i = 0; i < n && !rc; i++) {
        rc = pick_part(&t[i], p, b, &g, e);
        m[i] = (struct gen_member){.r = &t[i].s.r, .w = &t[i].w, .leaves = -1, .out = &t[i].got};
        m[i].joins = rng_below(&g, 2) ? (int)rng_below(&g, 8) : 0;
        m[i].parks = rng_below(&g, 2);
        if (rng_below(&g, 5) == 0)
            m[i].leaves = m[i].joins + 1 + (int)rng_below(&g, 15);
    }
    if (!rc)
        rc = gen_run_many(m, n, rng_next(&g), f, e);
    if (!rc)
        rc = compare_group(p, number, t, m, n, f, e);
    for (int i = 0; i < n; i++)
        if (drop_automaton(&t[i].s, rc ? NULL : e) && !rc)
            rc = ERR_STATE;
    free(t);
    return rc;
}

static int run_pair(const struct exact_options *o, int index, struct features *f,
                    struct exact_result *out, struct err *e) {
    int *failed = &out->failed;
    struct pair p;
    int64_t kept[PAIR_BACKENDS] = {0};
    int rc = pair_open(&p, index, o->level, o->brief, e);
    for (int b = 0; b < PAIR_BACKENDS && !rc; b++)
        kept[b] = device_kept(p.b[b].x);
    for (int i = o->first; i < o->first + o->cases && !rc; i++)
        if (i % PAIRS == index && (o->only < 0 || i == o->only))
            *failed +=
                run_case(&p, i, f, e) ||
                (!o->brief && i % GROUP_EVERY == i / PAIRS % GROUP_EVERY && run_group(&p, i, f, e));
    for (int b = 0; b < PAIR_BACKENDS && !rc; b++) {
        int64_t now = device_kept(p.b[b].x);
        if (now != kept[b])
            fprintf(stderr, "pair %d: ops hold %lld bytes where %lld were reserved\n", index,
                    (long long)now, (long long)kept[b]);
        *failed += now != kept[b];
    }
    const struct expert_store *lender = !rc && p.lends ? model_experts(p.b[1].model) : NULL;
    int64_t loans = lender ? (int64_t)expert_store_lent(lender).loans : 0;
    out->loans += loans;
    out->lending += lender != NULL;
    out->lent += loans > 0;
    pair_close(&p);
    return rc;
}

int exact_run(const struct exact_options *o, struct exact_result *out, struct err *e) {
    struct features f = {0};
    int rc = 0;
    *out = (struct exact_result){0};
    for (int index = 0; index < PAIRS && index < o->cases && !rc; index++) {
        int pair = (o->first + index) % PAIRS;
        if (o->only < 0 || o->only % PAIRS == pair)
            rc = run_pair(o, pair, &f, out, e);
    }
    out->cases = f.cases;
    if (o->only < 0 && !rc)
        out->rare = features_report(&f);
    return rc;
}
