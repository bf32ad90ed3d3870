// SPDX-License-Identifier: Apache-2.0
// Parsing of --modes and --drafter, and the request that a mode stands for.
#include "cli/bench/modes.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "spec/draft/oracle.h"

// "name" or "name:number" of n bytes. A chain's number is the draft's block: the root and number-1
// guesses; a tree's is its budget.
static int parse_mode(struct bench_mode *w, const char *s, size_t n, struct err *e) {
    static const struct {
        const char *name;
        enum speculate how;
        bool sized, chain;
    } known[] = {{"off", SPECULATE_OFF, false, false},
                 {"lookup", SPECULATE_LOOKUP, true, false},
                 {"chain", SPECULATE_CHAIN, true, true},
                 {"tree", SPECULATE_TREE, true, false}};
    const char *colon = memchr(s, ':', n);
    size_t stem = colon ? (size_t)(colon - s) : n;
    *w = (struct bench_mode){.budget = -1, .error_rate = -1};
    for (size_t i = 0; n < sizeof w->name && i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != stem || memcmp(known[i].name, s, stem) != 0)
            continue;
        char *end = NULL;
        memcpy(w->name, s, n);
        w->how = known[i].how;
        w->chain = known[i].chain;
        w->choose = colon && known[i].sized && !strcmp(w->name + stem + 1, "auto");
        if (w->choose)
            return 0;
        long number = colon ? strtol(w->name + stem + 1, &end, 10) : 0;
        if (colon && (!known[i].sized || *end || number < 1 || number > TREE_MAX_BUDGET))
            break;
        if (colon)
            w->budget = (int)number - known[i].chain;
        return 0;
    }
    return err_set(e, ERR_USAGE,
                   "'%.*s' is no mode of decoding; use off, lookup, chain, tree, with a size up to "
                   "%d or auto as in chain:16, tree:60 or tree:auto",
                   (int)(n < 40 ? n : 40), s, TREE_MAX_BUDGET);
}

static int parse_list(struct bench_modes *b, const char *s, struct err *e) {
    for (size_t n; *s; s += n + (s[n] == ',')) {
        n = strcspn(s, ",");
        if (b->n == BENCH_MODES)
            return err_set(e, ERR_USAGE, "--modes names more than %d modes", BENCH_MODES);
        int rc = parse_mode(&b->mode[b->n], s, n, e);
        if (rc)
            return rc;
        b->n++;
    }
    if (b->n == 0 || b->mode[0].how != SPECULATE_OFF)
        return err_set(e, ERR_USAGE,
                       "--modes must begin with off, which the others are compared with");
    return 0;
}

// Rates with slashes between them.
static bool parse_rates(struct bench_oracle *o, const char *s, char **end) {
    for (;; s = *end + 1) {
        double rate = strtod(s, end);
        if (*end == s || !(rate >= 0 && rate <= 1) || o->n_rates == BENCH_RATES)
            return false;
        o->rate[o->n_rates++] = rate;
        if (**end != '/')
            return true;
    }
}

// A mean accept length.
static bool parse_length(double *length, const char *s, char **end) {
    *length = strtod(s, end);
    return *end != s && *length >= 1 && *length <= TREE_MAX_DEPTH + 1;
}

// Rates of depths, of which none is above the one before.
static bool parse_depths(struct bench_oracle *o, const char *s, char **end) {
    for (double before = 1;; s = *end + 1) {
        double rate = strtod(s, end);
        if (*end == s || !(rate >= 0 && rate <= before) || o->n_synth == TREE_MAX_DEPTH)
            return false;
        o->synth_rate[o->n_synth++] = before = rate;
        if (**end != '/')
            return true;
    }
}

static const char *after(const char *s, const char *prefix) {
    return !strncmp(s, prefix, strlen(prefix)) ? s + strlen(prefix) : NULL;
}

static int parse_oracle(struct bench_oracle *o, const char *s, struct err *e) {
    const char *text = s, *value;
    char *end = NULL;
    bool ok = false;
    if (!strcmp(s, "draft"))
        return 0;
    *o = (struct bench_oracle){.on = true, .seed = 1};
    if ((value = after(s, "oracle:al=")))
        ok = parse_length(&o->accept_length, value, &end);
    else if ((value = after(s, "oracle:errors=")))
        ok = parse_rates(o, value, &end);
    else if ((value = after(s, "oracle:synth-len=")))
        ok = parse_length(&o->synth_length, value, &end);
    else if ((value = after(s, "oracle:synth-rates=")))
        ok = parse_depths(o, value, &end);
    if (ok && !strncmp(end, ",seed=", 6)) {
        s = end + 6;
        o->seed = strtoull(s, &end, 10);
        ok = end != s;
    }
    if (ok && !*end)
        return 0;
    return err_set(
        e, ERR_USAGE,
        "--drafter '%.40s' is not known; use draft, oracle:al=A[,seed=N] with a mean "
        "accept length A from 1 to %d, oracle:errors=R[/R]...[,seed=N] with rates up to 1, or "
        "oracle:synth-len=A and oracle:synth-rates=P[/P]..., whose chances P do not rise",
        text, TREE_MAX_DEPTH + 1);
}

// The label of invented guesses; the mode is renamed so that no table shows it otherwise.
static void call_oracle(struct bench_mode *w) {
    char name[sizeof w->name];
    memcpy(name, w->name, sizeof name);
    snprintf(w->name, sizeof w->name, "oracle %.20s", name);
    w->how = SPECULATE_ORACLE;
}

// Each mode of the oracle once for each of its rates; with several rates the names say which.
static int repeat_for_rates(struct bench_modes *b, struct err *e) {
    struct bench_mode given[BENCH_MODES];
    int n = b->n;
    memcpy(given, b->mode, sizeof given);
    b->n = 0;
    for (int r = 0; r < b->oracle.n_rates || r == 0; r++) {
        for (int i = 0; i < n; i++) {
            struct bench_mode *w = &b->mode[b->n];
            if (r > 0 && given[i].how != SPECULATE_ORACLE)
                continue;
            if (b->n == BENCH_MODES)
                return err_set(e, ERR_USAGE, "%d modes at %d rates are more than %d runs", n,
                               b->oracle.n_rates, BENCH_MODES);
            *w = given[i];
            if (w->how == SPECULATE_ORACLE && b->oracle.n_rates > 0)
                w->error_rate = b->oracle.rate[r];
            if (w->how == SPECULATE_ORACLE && b->oracle.n_rates > 1)
                snprintf(w->name, sizeof w->name, "%.24s @%g", given[i].name, b->oracle.rate[r]);
            b->n++;
        }
    }
    return 0;
}

int bench_modes_best(const struct bench_modes *b, int mode, const double *per_second) {
    const struct bench_mode *chosen = &b->mode[mode];
    int best = 0;
    for (int i = 1; i < b->n; i++) {
        const struct bench_mode *w = &b->mode[i];
        bool rival = w->how == chosen->how && w->chain == chosen->chain && !w->choose &&
                     !(w->error_rate < chosen->error_rate) && !(w->error_rate > chosen->error_rate);
        if (rival && per_second[i] > per_second[best])
            best = i;
    }
    return best;
}

int bench_modes_read(struct bench_modes *b, const struct cli_args *a, bool has_draft,
                     struct err *e) {
    const char *list = options_str(&a->opt, OPT_MODES);
    *b = (struct bench_modes){0};
    int rc = parse_oracle(&b->oracle, options_str(&a->opt, OPT_DRAFTER), e);
    if (!rc && !list)
        list = has_draft || b->oracle.on ? "off,lookup,chain,tree" : "off,lookup";
    if (!rc)
        rc = parse_list(b, list, e);
    for (int i = 0; !rc && i < b->n; i++) {
        bool drafted = b->mode[i].how == SPECULATE_CHAIN || b->mode[i].how == SPECULATE_TREE;
        if (drafted && !has_draft && !b->oracle.on)
            return err_set(e, ERR_USAGE,
                           "mode %s needs a draft; give one with -d, or --drafter oracle:al=A",
                           b->mode[i].name);
        if (drafted && b->oracle.synth_length > b->mode[i].budget + 1.0 && b->mode[i].budget > 0)
            return err_set(e, ERR_USAGE,
                           "mode %s cannot have an accept length of %g: with %d guesses it is %d "
                           "at most",
                           b->mode[i].name, b->oracle.synth_length, b->mode[i].budget,
                           b->mode[i].budget + 1);
        if (drafted && b->oracle.on)
            call_oracle(&b->mode[i]);
    }
    return rc ? rc : repeat_for_rates(b, e);
}

int bench_modes_profile(struct bench_modes *b, const struct cli_args *a, struct err *e) {
    *b =
        (struct bench_modes){.n = 2, .mode = {{.name = "off", .how = SPECULATE_OFF, .budget = -1}}};
    int rc = parse_oracle(&b->oracle, options_str(&a->opt, OPT_DRAFTER), e);
    if (rc)
        return rc;
    if (!b->oracle.on)
        b->oracle = (struct bench_oracle){.on = true, .accept_length = 8, .seed = 1};
    if (b->oracle.n_rates > 1)
        return err_set(e, ERR_USAGE, "a profile is of one tree; give the oracle one rate");
    b->mode[1] = (struct bench_mode){.how = SPECULATE_TREE,
                                     .budget = -1,
                                     .error_rate = b->oracle.n_rates ? b->oracle.rate[0] : -1};
    snprintf(b->mode[1].name, sizeof b->mode[1].name, "tree:%.20s",
             options_str(&a->opt, OPT_BUDGET));
    call_oracle(&b->mode[1]);
    return 0;
}

static bool any_chosen(const struct bench_modes *b) {
    for (int i = 0; i < b->n; i++)
        if (b->mode[i].choose)
            return true;
    return false;
}

// Sets the rate at which this very run is accepted as requested. With a chosen budget among them
// all trees get one rate, at which 22 nodes are accepted so: each at a rate of its own, the
// smallest tree would always be the best.
static void calibrate(const struct bench_modes *b, int mode, const struct session *s,
                      struct request *r, const struct reply *plain, int32_t *recording) {
    const struct draft *draft = session_draft(s);
    int depth = draft ? draft_traits(draft).max_depth : TREE_MAX_DEPTH;
    memcpy(recording, r->prompt, (size_t)r->n_prompt * sizeof *recording);
    memcpy(recording + r->n_prompt, plain->ids, (size_t)plain->n * sizeof *recording);
    r->oracle = (struct draft_config){.recording = recording,
                                      .n_recording = r->n_prompt + plain->n,
                                      .seed = b->oracle.seed,
                                      .error_rate = b->mode[mode].error_rate,
                                      .with_draft = draft != NULL};
    const struct bench_oracle *o = &b->oracle;
    int guesses = min_i32(depth, TREE_MAX_DEPTH);
    if (!b->mode[mode].choose && r->tree.budget > 0)
        guesses = min_i32(guesses, r->tree.budget);
    if (o->synth_length > 0)
        oracle_use_length(&r->oracle, o->synth_length, guesses);
    else if (o->n_synth > 0)
        oracle_use_rates(&r->oracle, o->synth_rate, o->n_synth);
    if (r->oracle.n_right > 0)
        r->oracle.error_rate = 0;
    if (r->oracle.error_rate >= 0)
        return;
    struct oracle_goal goal = {.tree = r->tree,
                               .vocab = model_params_of(session_model(s))->vocab,
                               .first = r->n_prompt,
                               .accept_length = b->oracle.accept_length};
    enum { COMPARED = 22 };
    goal.tree.max_depth = min_i32(depth, TREE_MAX_DEPTH);
    if (any_chosen(b) && !b->mode[mode].chain)
        goal.tree.budget = COMPARED;
    oracle_calibrate(&r->oracle, &goal);
}

void bench_mode_request(const struct bench_modes *b, int mode, const struct cli_args *a,
                        const struct session *s, const struct reply *plain, int32_t *recording,
                        struct request *r) {
    const struct bench_mode *w = &b->mode[mode];
    struct request base = *r;
    decode_request(a, s, r);
    r->prompt = base.prompt;
    r->n_prompt = base.n_prompt;
    r->max_tokens = base.max_tokens;
    r->prefix = base.prefix;
    r->logit_hash = base.logit_hash;
    r->how = w->how;
    if (w->budget >= 0) {
        r->tree.budget = w->budget;
        r->auto_budget = false;
    }
    if (w->choose) {
        r->tree.budget = w->chain ? TREE_MAX_DEPTH : REQUEST_AUTO_BUDGET;
        r->auto_budget = true;
        if (!options_given(&a->opt, OPT_MIN_PROB))
            r->tree.min_prob = 0;
    }
    if (w->how != SPECULATE_ORACLE)
        return;
    if (w->chain) {
        r->tree.k = 1;
        if (w->budget < 0)
            r->tree.budget = TREE_MAX_DEPTH;
    }
    if (!options_given(&a->opt, OPT_MIN_PROB)) // its likelihoods mean nothing: whole budgets
        r->tree.min_prob = 0;
    calibrate(b, mode, s, r, plain, recording);
}
