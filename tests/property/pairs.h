// SPDX-License-Identifier: Apache-2.0
// Random tiny model pairs for the exactness test, each loaded once per number of threads.
#ifndef COPPICE_TESTS_PROPERTY_PAIRS_H
#define COPPICE_TESTS_PROPERTY_PAIRS_H

#include "base/err.h"
#include "models/draft/draft.h"
#include "spec/tree/price.h"
#include "state/host/kv_host.h"
#include "support/tap_reader.h"

enum { PAIR_BACKENDS = 3, PAIR_CONTEXT = 320, PAIR_FEW = 48 };

struct pair_backend {
    struct exec *x, *cpu; // the second of experts whose place is on a CPU; NULL: there are none
    struct model *model;
    // DFlash of any kind; then the prediction block of the target's file; then EAGLE-3.
    struct draft *drafts[PRICE_DRAFTS];
    int n_drafts;
    struct kv_budget pages;    // with host memory in every eighth pair, of b[1] and b[2]
    struct tap_reader *hidden; // of hidden states after the output norm; NULL: none reads them
};

// b[0]: one thread, without a draft attached. b[1]: one thread. b[2]: two threads, or a device's
// other path. On a device they differ in how many experts are resident, too. In every other pair
// with experts those of some layers are computed by a CPU concurrently with it. Hidden states are
// read in four of five pairs by b[1] and b[2], in two of these by b[0] too.
struct pair {
    struct gguf *file;
    struct pair_backend b[PAIR_BACKENDS];
    int vocab, index;
    bool block, eagle3; // b[1] and b[2] have such drafts
    bool brief;         // in little memory: few experts, passes of PAIR_FEW rows of two sequences
    bool viewed;        // rows see a window of a page (struct view_rule)
    bool chosen;        // and one page besides that is chosen
    bool lends;         // b[1] lends slots of experts to passes of more than PAIR_FEW rows
    char name[96];      // for messages: weight type, KV type, heads
};

// Pair number `index`: everything about it follows from the index. level: NULL for the best kernels
// of this CPU, or in every eighth pair the scalar ones; otherwise as for device_open.
int pair_open(struct pair *p, int index, const char *level, bool brief, struct err *e);
void pair_close(struct pair *p);

#endif
