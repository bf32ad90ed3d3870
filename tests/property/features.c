// SPDX-License-Identifier: Apache-2.0
// The table of features and its report; see features.h.
#include "property/features.h"

#include <stdio.h>
#include <string.h>

#include "models/draft/dflash/dflash.h"

static const char *const forms[DRAFTER_FORMS] = {"lookup",
                                                 "prediction block",
                                                 "EAGLE-3",
                                                 "DFlash, lucebox",
                                                 "DFlash, beellama",
                                                 "DFlash, upstream",
                                                 "DFlash of Laguna",
                                                 "DFlash, some tokens",
                                                 "JetSpec",
                                                 "DFlash2",
                                                 "DSpark",
                                                 "DSpark, gated",
                                                 "Domino"};

static bool all_causal(const struct dflash_params *p) {
    for (int i = 0; i < p->n_layers; i++)
        if (!p->layer_causal[i])
            return false;
    return true;
}

static unsigned dflash_forms(const struct dflash *d) {
    const struct dflash_params *p = dflash_params_of(d);
    const bool has[DRAFTER_FORMS] = {[DRAFTER_LUCEBOX] = strcmp(p->dialect, "lucebox") == 0,
                                     [DRAFTER_BEELLAMA] = strcmp(p->dialect, "beellama") == 0,
                                     [DRAFTER_UPSTREAM] = strcmp(p->dialect, "upstream") == 0,
                                     [DRAFTER_GATED] = p->norms_context,
                                     [DRAFTER_MAPPED] = dflash_head(d)->ids != NULL,
                                     [DRAFTER_CAUSAL] = !p->norms_context && all_causal(p),
                                     [DRAFTER_DFLASH2] = p->pairs == DFLASH_PAIRS_SELECTOR,
                                     [DRAFTER_DSPARK] = p->pairs == DFLASH_PAIRS_MARKOV,
                                     [DRAFTER_DSPARK_GATED] = p->pairs == DFLASH_PAIRS_GATED,
                                     [DRAFTER_DOMINO] = p->gru_width > 0};
    unsigned bits = 0;
    for (int i = 0; i < DRAFTER_FORMS; i++)
        bits |= has[i] ? 1u << i : 0;
    return bits;
}

unsigned drafter_forms(const struct draft *d) {
    const struct dflash *dflash = draft_dflash(d);
    if (dflash)
        return dflash_forms(dflash);
    return 1u << (strcmp(draft_traits(d).name, "mtp") == 0 ? DRAFTER_BLOCK : DRAFTER_EAGLE3);
}

// Features first .. last (last 0: only the first) must occur cases / share + least times each;
// share 0: `min` times.
static const struct row {
    int first, last;
    const char *name; // the number of an accept length follows
    int share, min;
} rows[] = {
    {FEATURE_ACCEPT + 1, FEATURE_ACCEPT + 16, "accept length", 40, 0},
    {FEATURE_ACCEPT + 17, FEATURE_ACCEPT + TREE_MAX_DEPTH, "accept length", 0, 0},
    {FEATURE_ACCEPT + TREE_MAX_DEPTH + 1, FEATURE_ACCEPT + TREE_MAX_DEPTH + 1, "accept length", 200,
     0},
    {FEATURE_BASE_CROSSING, 0, "commits across a multiple of 32", 4, 0},
    {FEATURE_PAGE_CROSSING, 0, "commits across a page end", 8, 0},
    {FEATURE_SPLIT_TREE, 0, "trees with two recurrent bases", 4, 0},
    {FEATURE_BRANCHED, 0, "paths that left the first branch", 4, 0},
    {FEATURE_STOP_INSIDE, 0, "stop token inside a tree", 40, 1},
    {FEATURE_END + END_STOP, 0, "stop token behind guesses", 40, 1},
    {FEATURE_END + END_LENGTH, 0, "token limit behind guesses", 40, 1},
    {FEATURE_END + END_CONTEXT, 0, "full context behind guesses", 40, 1},
    {FEATURE_TRUNCATED, 0, "cut back and run again", 4, 0},
    {FEATURE_ASTRAY, 0, "went another way and back", 10, 0},
    {FEATURE_CUT_INSIDE, 0, "cut to no multiple of 32", 40, 0},
    {FEATURE_RESTORED, 0, "restored from a checkpoint", 40, 1},
    {FEATURE_CARRIED, 0, "checkpoints written and read", 100, 0},
    {FEATURE_FORKED, 0, "forked", 4, 0},
    {FEATURE_STREAMED, 0, "passes that read pages in host memory", 8, 0},
    {FEATURE_VIEWED, 0, "commits of guesses in a window", 8, 0},
    {FEATURE_CHOSEN, 0, "runs with chosen budgets", 40, 1},
    {FEATURE_PRICED, 0, "lookup alone by price", 40, 0},
    {FEATURE_PRICED_TREE, 0, "passes of it with guesses", 0, 0}, // as clocks say
    {FEATURE_REDRAFTED, 0, "drafts compared with undisturbed ones", 4, 0},
    {FEATURE_HOT, 0, "cases at a temperature above 0", 4, 0},
    {FEATURE_PENALISED, 0, "cases with penalties", 10, 0},
    {FEATURE_BIASED, 0, "cases with biases", 8, 0},
    {FEATURE_STOP_AFTER, 0, "stops of two tokens behind guesses", 80, 0},
    {FEATURE_LOGPROBS, 0, "log-probabilities on paths through trees", 2, 0},
    {FEATURE_KNOWN, 0, "log-probabilities of prompts beside trees", 4, 0},
    {FEATURE_KNOWN_AGAIN, 0, "log-probabilities of prompts, once more", 4, 0},
    {FEATURE_MIXED, 0, "passes with pieces of prompts and trees", 8, 0},
    {FEATURE_MIXED_PLAIN, 0, "passes with plain decoding and trees", 8, 0},
    {FEATURE_WIDE, 0, "passes of 8 members or more", 4, 0},
    {FEATURE_CANCELLED, 0, "members cancelled", 40, 0},
    {FEATURE_PARKED, 0, "members parked", 8, 0},
    {FEATURE_MASKED, 0, "tokens under masks on paths through trees", 1, 0},
    {FEATURE_FORCED, 0, "tokens that were the only ones there", 1, 0},
    {FEATURE_FORCED_PATH, 0, "paths of such", 4, 0},
    {FEATURE_BLOCK_TREE, 0, "trees of one draft by the path, with branches", 1, 0},
    {FEATURE_BLOCK_PATH, 0, "paths of its guesses", 10, 0},
    {FEATURE_SEVERAL, 0, "runs with several drafts", 10, 0},
    {FEATURE_SEVERAL_TREE, 0, "trees with guesses of each of two alone", 1, 0},
    {FEATURE_THREE_TREE, 0, "trees with guesses of each of three alone", 20, 0},
    {FEATURE_SEVERAL_PATH, 0, "paths with guesses of two drafts", 80, 0},
    {FEATURE_ALONE, FEATURE_ALONE + DRAFTER_FORMS - 1, "trees of one drafter", 200, 0},
    {FEATURE_BESIDE, FEATURE_BESIDE + DRAFTER_FORMS - 1, "beside others", 100, 0},
    {FEATURE_LIMITED, FEATURE_LIMITED + DRAFTER_FORMS - 1, "under a constraint", 200, 0},
    {FEATURE_HIDDEN, 0, "hidden states compared", 1, 0},
    {FEATURE_HIDDEN_GROUP, 0, "hidden states of members of groups", 20, 0},
    {FEATURE_DEAD, 0, "replies ended by an automaton", 200, 0},
};

static int report_row(const struct features *f, const struct row *r) {
    int64_t minimum = r->share ? f->cases / r->share + r->min : r->min;
    int bad = 0;
    for (int i = r->first; i == r->first || i <= r->last; i++) {
        char name[64];
        int n = snprintf(name, sizeof name, "%s", r->name);
        if (r->first >= FEATURE_ALONE && r->last)
            snprintf(name, sizeof name, "%s: %s", forms[i - r->first], r->name);
        else if (r->last)
            snprintf(name + n, sizeof name - (size_t)n, " %d", i - FEATURE_ACCEPT);
        printf("  %-52s %8lld (at least %lld)%s\n", name, (long long)f->count[i],
               (long long)minimum, f->count[i] < minimum ? "  TOO FEW" : "");
        bad += f->count[i] < minimum;
    }
    return bad;
}

int features_report(const struct features *f) {
    int bad = 0;
    printf("%lld cases, %lld runs beside plain ones, %lld tokens\n", (long long)f->cases,
           (long long)f->runs, (long long)f->tokens);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        bad += report_row(f, &rows[i]);
    return bad;
}
