// SPDX-License-Identifier: Apache-2.0
// Who guessed what was verified, and what of it became tokens: by drafter, by how deep the guess
// was, and by the tokens before the pass. Sums of one reply, of all of an engine, or of a
// measurement.
#ifndef COPPICE_ENGINE_BATCH_GUESSES_H
#define COPPICE_ENGINE_BATCH_GUESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/str.h"
#include "spec/step/step.h"

// A guess that two or more made counts once, as of both, and for none of them alone.
enum guess_by {
    GUESS_BY_DRAFT, // the first draft, or what stands for it; the next ones follow
    GUESS_BY_LOOKUP = GUESS_BY_DRAFT + PRICE_DRAFTS, // what repeats the text
    GUESS_BY_BOTH,
    GUESS_BY_CONSTRAINT, // what a grammar expects next, or the only token that it allows
    GUESS_KINDS,
};

// Spans of context: tokens that were committed before a pass.
enum { GUESS_SPANS = 5 };
struct guess_span {
    const char *name;
    int64_t from, to; // `to` not included; 0: no end
};
extern const struct guess_span guess_spans[GUESS_SPANS];
int guess_span_of(int64_t context);

// Zeroed is empty.
struct guess_counts {
    int64_t verified[GUESS_KINDS][TREE_MAX_DEPTH]; // nodes of depth i + 1,
    int64_t accepted[GUESS_KINDS][TREE_MAX_DEPTH]; // of which became tokens
    int64_t passes[GUESS_SPANS], tokens[GUESS_SPANS];
    // Tokens that were chosen where a draft guessed, and of these such as it can never guess
    // (--draft-vocab).
    int64_t drafted_for[PRICE_DRAFTS], unknown[PRICE_DRAFTS];
};

// The member's step, which has been walked and committed, not one of its prompt. drafts:
// [PRICE_DRAFTS] of the session, NULL after the last.
void guess_counts_add(struct guess_counts *c, const struct member *m, struct draft *const *drafts);
void guess_counts_join(struct guess_counts *sum, const struct guess_counts *more);

// Over all depths.
int64_t guess_counts_verified(const struct guess_counts *c, enum guess_by by);
int64_t guess_counts_accepted(const struct guess_counts *c, enum guess_by by);

int64_t guess_counts_unknown(const struct guess_counts *c); // of all drafts

// "lookup", "both", "constraint", or a draft's own name, of names[PRICE_DRAFTS] (NULL: "draft").
const char *guess_by_name(enum guess_by by, const char *const *names);

// A value: an object with {"verified": [...], "accepted": [...]} by depth for each drafter of which
// something was verified; that of a draft has "unknown" too, if there were such tokens, and is
// there for their sake alone, too.
void guess_counts_json(const struct guess_counts *c, const char *const *names,
                       struct json_writer *w);
// "mtp 120 of 400 (80/173 30/120 10/107), lookup 5 of 9 (5/9)", then how many tokens were unknown;
// nothing where there is nothing of either.
void guess_counts_text(const struct guess_counts *c, const char *const *names, struct str *out);

#endif
