// SPDX-License-Identifier: Apache-2.0
// How much of the attention of a reply's rows lies on what a pool of pages lets them see
// (--kv-pool), measured with all keys at every choice: for benchmarks, since it reads the text's
// keys to the host.
#ifndef COPPICE_MODELS_RECALL_H
#define COPPICE_MODELS_RECALL_H

#include <stdint.h>

// Sums over choices of the mean share over query heads of the layers that choose: of the queries
// that chose, of those of the last row that sees a choice, and of the first ones on as many of the
// newest pages.
struct model_recall {
    int64_t n, n_last;
    double chosen, last, newest;
};

struct model;
// From now on it is measured; nothing happens where the model's rule chooses no pages.
void model_recall_begin(struct model *m);
struct model_recall model_recall_of(const struct model *m); // so far

#endif
