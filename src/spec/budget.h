// SPDX-License-Identifier: Apache-2.0
// How many guesses a step should verify. A pass takes longer the more rows it has, and a node of
// the tree pays only as often as the target walks over it. Both are learnt: times of passes by
// their rows (measured at the start, corrected by every step), and how often nodes of a score were
// on the path. From them comes the budget with the most tokens per second, down to none: then
// drafting rests, and is tried again now and then. How deep the draft itself should reach is chosen
// as well, from the time that it takes and the length of the newest walks. Only speed depends on
// all this, never the output.
#ifndef COPPICE_SPEC_BUDGET_H
#define COPPICE_SPEC_BUDGET_H

#include <stdbool.h>

#include "base/err.h"
#include "spec/ddtree.h"
#include "spec/walk.h"

struct budget;

// max_rows: of a verify pass, 1..TREE_MAX_ROWS.
int budget_create(struct budget **out, int max_rows, struct err *e);
void budget_destroy(struct budget *b); // NULL is allowed

// Row counts whose passes are to be measured, rising, the first one 1; 0 behind the last.
int budget_rows(const struct budget *b, int i);

// A pass of that many rows took this long, in milliseconds. To be called for budget_rows(0), (1),
// and so on; whoever cannot wait may stop early, and longer passes are taken to grow on as the last
// ones did.
void budget_measured(struct budget *b, int rows, double ms);
bool budget_ready(const struct budget *b); // at least two were measured
// Of a pass of that many rows: as the next larger one that was measured. Kernels work on tiles of
// rows, so that times climb in stairs whose edges nobody here knows.
double budget_pass_ms(const struct budget *b, int rows);

// Depths of guesses whose drafts are to be measured, of a draft that reaches `most`, falling, the
// first one `most`; 0 behind the last.
int budget_draft_depth(int most, int i);
// A draft of guesses that deep took this long, in milliseconds. To be called for
// budget_draft_depth(most, 0), (most, 1), and so on; the deepest may be all that is measured.
void budget_draft_measured(struct budget *b, int depth, double ms);
// How deep the guesses of the next draft should reach: one of the measured depths; 0 when none was.
int budget_depth(struct budget *b);

// A new text begins: drafting gets another chance, and what guesses were worth counts less.
void budget_begin(struct budget *b);

// Whether this step should draft.
bool budget_drafts(struct budget *b);

// How many nodes beside the root, in their order, this drafted tree should keep.
int budget_nodes(const struct budget *b, const struct ddtree *t);

// What came of a step: the tree as it was verified, the walk, and the milliseconds that the draft
// took (0: none was asked) and all that followed it.
void budget_note(struct budget *b, const struct ddtree *t, const struct walk *w, double draft_ms,
                 double pass_ms);

#endif
