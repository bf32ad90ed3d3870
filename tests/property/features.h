// SPDX-License-Identifier: Apache-2.0
// What happened in the cases of the exactness test, counted by feature. One table (features.c) says
// how often each must occur for the absence of failures to mean anything.
#ifndef COPPICE_TESTS_PROPERTY_FEATURES_H
#define COPPICE_TESTS_PROPERTY_FEATURES_H

#include <stdint.h>

#include "models/draft/draft.h"
#include "spec/tree/ddtree.h"

// What guesses; a draft may be of several forms.
enum drafter_form {
    DRAFTER_LOOKUP,
    DRAFTER_BLOCK, // a prediction block
    DRAFTER_EAGLE3,
    DRAFTER_LUCEBOX, // dialects of DFlash files
    DRAFTER_BEELLAMA,
    DRAFTER_UPSTREAM,
    DRAFTER_GATED,  // Laguna's kind
    DRAFTER_MAPPED, // with a head of some tokens
    DRAFTER_CAUSAL, // JetSpec
    DRAFTER_DFLASH2,
    DRAFTER_DSPARK,
    DRAFTER_DSPARK_GATED,
    DRAFTER_DOMINO,
    DRAFTER_FORMS
};
unsigned drafter_forms(const struct draft *d); // a bit each

enum feature {
    // Of a pass that committed n rows: FEATURE_ACCEPT + n.
    FEATURE_ACCEPT,
    FEATURE_BASE_CROSSING = FEATURE_ACCEPT + TREE_MAX_DEPTH + 2, // commits across a multiple of 32
    FEATURE_PAGE_CROSSING,                                       // and of 64
    FEATURE_SPLIT_TREE,                                          // rows with different bases
    FEATURE_BRANCHED,    // paths that left the first-born line
    FEATURE_STOP_INSIDE, // stop tokens where the tree went on
    // Ends of a path of guesses for a reason r: FEATURE_END + r.
    FEATURE_END,
    FEATURE_TRUNCATED = FEATURE_END + END_CALLER + 1,
    FEATURE_ASTRAY,     // cut back, and again after other tokens
    FEATURE_CUT_INSIDE, // of models without recurrent layers, to no multiple of 32
    FEATURE_RESTORED,
    FEATURE_CARRIED, // from a checkpoint that was written and read
    FEATURE_FORKED,
    FEATURE_CHOSEN,      // runs whose budgets were chosen
    FEATURE_PRICED,      // of lookup alone, which is what `auto` is without a draft,
    FEATURE_PRICED_TREE, // and passes of such with guesses
    FEATURE_REDRAFTED,   // drafts compared with those on an undisturbed sequence
    FEATURE_HOT,         // cases at a temperature above 0
    FEATURE_PENALISED,
    FEATURE_BIASED,
    FEATURE_STOP_AFTER,  // stops of two tokens on a path of guesses
    FEATURE_LOGPROBS,    // log-probabilities of tokens that were chosen from a tree
    FEATURE_KNOWN,       // of tokens of prompts in passes with trees
    FEATURE_KNOWN_AGAIN, // of such that were run once more
    FEATURE_MIXED,       // passes with pieces of prompts and trees
    FEATURE_MIXED_PLAIN, // with members that decode plainly together with trees
    FEATURE_WIDE,        // of eight members or more
    FEATURE_CANCELLED,
    FEATURE_PARKED,
    FEATURE_MASKED,       // tokens that were chosen under a mask on paths through trees
    FEATURE_FORCED,       // of these, the only ones that were allowed
    FEATURE_FORCED_PATH,  // paths of such from the root on
    FEATURE_BLOCK_TREE,   // trees with branches of a draft whose guesses depend on the path,
    FEATURE_BLOCK_PATH,   // and paths of its guesses
    FEATURE_SEVERAL,      // runs for which several drafts guess,
    FEATURE_SEVERAL_TREE, // trees with guesses that one of them alone has, of two of them,
    FEATURE_THREE_TREE,   // and of three,
    FEATURE_SEVERAL_PATH, // and paths with guesses of two
    // Trees with guesses of a drafter of form d, FEATURE_ALONE + d where nothing else guesses,
    // FEATURE_BESIDE + d where others do, FEATURE_LIMITED + d under a constraint.
    FEATURE_ALONE,
    FEATURE_BESIDE = FEATURE_ALONE + DRAFTER_FORMS,
    FEATURE_LIMITED = FEATURE_BESIDE + DRAFTER_FORMS,
    FEATURE_HIDDEN = FEATURE_LIMITED + DRAFTER_FORMS, // runs whose hidden states were compared,
    FEATURE_HIDDEN_GROUP,                             // and members of groups
    FEATURE_STREAMED,                                 // passes that read pages in host memory
    FEATURE_VIEWED, // commits of guesses where rows did not see all
    FEATURE_DEAD,   // replies that ended because nothing was allowed
    FEATURES
};

struct features {
    int64_t count[FEATURES];
    int64_t cases, runs, tokens; // runs and tokens: of the ways besides plain decoding
};

// Prints every row of the table with its minimum. Returns how many rows are below it.
int features_report(const struct features *f);

#endif
