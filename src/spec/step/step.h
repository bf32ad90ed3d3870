// SPDX-License-Identifier: Apache-2.0
// One step of n >= 1 members in one pass of the target. A member is a text in progress: a piece of
// its prompt is run, or its drafters propose, the best tree is verified, the target's own choices
// are followed and the path is committed; without guesses that is a plain decoding step. Each
// member has its own sampling parameters, limits, drafters, budget and logit hash, and gets what it
// would get alone, to the bit (docs/exactness.md). Members may join, leave, be cut back, forked or
// exchanged between any two steps. One text is n = 1: there is no second path.
#ifndef COPPICE_SPEC_STEP_STEP_H
#define COPPICE_SPEC_STEP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "models/model.h"
#include "spec/constraint/constraint.h"
#include "spec/draft/drafter.h"
#include "spec/sampler.h"
#include "spec/tree/budget.h"
#include "spec/tree/ddtree.h"
#include "spec/tree/mix.h"

enum { STEP_MAX_DRAFTERS = 4 };
enum { STEP_DRAFT_FAILURES = 3 }; // in a row, after which a shared drafter is not called any more

// Wall-clock milliseconds by phase. Where choices are made together (on a device), one wait covers
// the pass and its choices, and both count as verify.
struct step_times {
    double prompt, draft, verify, sample, commit;
};
void step_times_add(struct step_times *sum, const struct step_times *more);

struct member_config {
    struct sample_params sample;
    struct tree_options tree; // most of what is verified; max_depth is a further limit
    struct drafter *drafters[STEP_MAX_DRAFTERS]; // of this member alone, borrowed; all add up
    int n_drafters;
    // NULL, or what the tokens that are chosen must satisfy, from the first chosen one on.
    struct constraint *constraint;
    unsigned drafts;       // which of the step's shared drafters propose for it too, a bit each
    struct budget *budget; // NULL, or chooses how much of the tree is verified; borrowed
    bool share_noise;      // let drafters use the sampling noise
    bool hash;             // keep a hash over the sampled logit rows
    bool logprobs;         // log-probabilities of what is chosen, and of known tokens
    int n_best;            // with those of that many best tokens, 0 .. OPS_LOGPROBS_MAX
};

enum member_phase {
    MEMBER_PROMPT, // a piece of its prompt is run
    MEMBER_DECODE, // its newest token has been chosen and not been run
};

// Between member_init and member_fini the fields up to `limits` are the caller's to set before each
// step, and those below the step's to fill.
struct member {
    struct member_config c;
    struct sequence *seq; // borrowed; distinct within a step
    enum member_phase phase;
    const int32_t *piece; // MEMBER_PROMPT: [n_piece] the next tokens, 1 or more
    int64_t n_piece;
    bool choose; // MEMBER_PROMPT: choose the token after the piece, too
    // MEMBER_PROMPT: log-probabilities of piece[1 .. n_known], which must be readable, are wanted;
    // at most n_piece, one less where a token is chosen. 0 without c.logprobs.
    int64_t n_known;
    int32_t root;              // MEMBER_DECODE: the newest token
    struct walk_limits limits; // where something is chosen

    // 0, or why this member took no part in the step: nothing of it has changed. Where its
    // constraint allows nothing, or fails, nothing was chosen, but its piece or root may be run.
    int rc;
    struct err err;     // with its sentence
    struct walk walk;   // what was chosen and committed; count is 0 where nothing was chosen
    struct ddtree tree; // that was verified; of a piece, its last token
    // XXH64 over the f32 bytes of the sampled rows in the order of the chosen tokens, each seeded
    // with the hash before; 0 before the first. A row after which the constraint allows one token
    // only has decided nothing, and is left out.
    uint64_t hash;
    bool drafted;                           // drafters were called in the last step
    unsigned asked;                         // of the shared ones these
    struct mix_record record[PRICE_DRAFTS]; // what guesses of theirs came true for this text
    // From the very rows after which they stand; NULL without c.logprobs.
    struct sample_logprobs *logprobs; // of walk.chosen
    struct sample_logprobs *known;    // [n_known] of piece[1], piece[2], ...

    struct sampler *sampler;
    struct masks *masks;  // NULL without a constraint
    int32_t first;        // its rows in the pass
    int32_t first_logits; // the first row of its tree among those whose logits are requested; after
                          // those of known tokens
};

// Checks the configuration and makes what the member needs; seq and the rest are the caller's.
// model: the target of the steps that it will take part in. Errors: ERR_USAGE, ERR_MEMORY.
int member_init(struct member *m, const struct model *model, const struct member_config *c,
                struct err *e);
void member_fini(struct member *m); // zeroed is allowed

struct step_config {
    struct model *model;
    struct drafter *drafts[PRICE_DRAFTS]; // [n_drafts] of all members that use them; borrowed
    int n_drafts;
    struct price *price; // what passes and drafts take; NULL where no member has a budget; borrowed
    struct price *prompts; // NULL, or learns what passes with pieces of prompts take; borrowed
    int max_members;       // at most the model's max_seqs and max_verify
};

struct step;

int step_create(struct step **out, const struct step_config *c, struct err *e);
void step_destroy(struct step *s); // NULL is allowed

// One step of members[n], 1 <= n <= max_members. Pieces and roots together must fit a pass
// (model_max_rows), choices and known tokens step_max_verify; trees shrink so that all fit. A
// member that cannot have the memory it needs, or whose sequence may not be used, is left out with
// its own rc; the others go on. An error of the whole step: nothing was chosen and no tree
// committed, but pieces, and roots without guesses, may have become part of their sequences: cut
// those back, and the step can be run again. After a fault of the device sequences say themselves
// that they may not be used any more.
int step_run(struct step *s, struct member *const *members, int n, struct err *e);

// Most rows among them after which a token is chosen or known: trees, ends of prompts, and what
// log-probabilities are wanted of.
int64_t step_max_verify(const struct step *s);

// Times of the last step, in milliseconds; a pass of nothing but pieces counts as prompt.
struct step_times step_times_of(const struct step *s);

#endif
