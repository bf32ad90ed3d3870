// SPDX-License-Identifier: Apache-2.0
// A draft of a loaded target, whatever its kind (class.h): opened, measured, described and closed
// through one handle.
#ifndef COPPICE_MODELS_DRAFT_DRAFT_H
#define COPPICE_MODELS_DRAFT_DRAFT_H

#include <stdint.h>

#include "base/err.h"
#include "models/draft/class.h"
#include "models/draft/dflash/dflash.h"
#include "models/draft/path/path.h"
#include "models/model.h"

struct draft;

// Loads it and attaches it to the target, whose sequences that are made from now on have a state of
// it. One sentence and a negative code where the file is missing or wrong, or does not fit.
int draft_open(struct draft **out, struct model *target, const struct draft_source *s,
               struct err *e);
// The same of a kind that is not in the table, such as one of a test.
int draft_open_class(struct draft **out, const struct draft_class *class, struct model *target,
                     const struct draft_source *s, struct err *e);
void draft_destroy(struct draft *d); // after the sequences; detaches; NULL is allowed

// Bytes that draft_open and the state of sequences will take, without loading.
struct draft_plan_args {
    const struct exec *x;      // NULL: weights at their size in the file
    const struct gguf *target; // open
    const struct model_options *target_options;
    const struct draft_source *source;
};
int draft_measure(struct draft_plan *p, const struct draft_plan_args *a, struct err *e);

struct draft_traits draft_traits(const struct draft *d);
void draft_describe(const struct draft *d, struct str *out);
bool draft_knows(const struct draft *d, int32_t token); // whether it can guess that token
struct dflash *draft_dflash(const struct draft *d);     // NULL: it is of another kind
struct path *draft_path(const struct draft *d); // NULL: it does not guess on its own guesses

// draft_class.begin and level, of a kind that has them.
int draft_begin(struct draft *d, const struct draft_level *l, int n, struct err *e);
int draft_run_level(struct draft *d, const struct draft_level *l, int n, struct draft_guesses *out,
                    struct err *e);

#endif
