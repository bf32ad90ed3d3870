// SPDX-License-Identifier: Apache-2.0
// Which pages of a text its reply sees, where the rule of views leaves a choice; for files of this
// folder only.
#ifndef COPPICE_MODELS_PAGES_H
#define COPPICE_MODELS_PAGES_H

#include "models/blocks/attention.h"
#include "models/model.h"
#include "models/recall.h"

struct layer;

// The layers whose queries choose, and room for it.
enum { MODEL_PAGES_LAYERS = 8 };
struct model_pages {
    int n_layers, heads; // the latter: query heads of a layer, at most
    const struct layer *layer[MODEL_PAGES_LAYERS];
    int64_t rows, width, bounds_row; // room for queries of so many rows; numbers of a row's, of a
                                     // page's bounds in a layer, at most
    float *q;                        // [n_layers][rows][width]
    float *bounds, *scores;          // of some pages in one layer; [n_layers][heads][pages]
    int32_t *row;                    // host [rows] of the pass, whose queries are kept
    int64_t n;
    float *host;                  // [n_layers][heads][pages]
    double *total;                // [pages]
    struct view_candidate *order; // [pages]
    int32_t *chosen;              // a list
    bool recalls;                 // recall is measured
    struct model_recall recall;
};

// Choosing pages, where options.view says so: room for it; then for each pass which rows' queries
// are kept, and what a layer keeps of them; and the choice for s, whose newest row is row `row` of
// the pass, where one is due.
int model_pages_init(struct model *m, bool dry, struct err *e);
void model_pages_fini(struct model *m);
void model_pages_begin(struct model *m, const struct forest *f, struct sequence *const *seqs);
struct kept_rows model_pages_keep(const struct model *m, const struct layer *y);
void model_pages_choose(struct model *m, struct sequence *s, int32_t row);

#endif
