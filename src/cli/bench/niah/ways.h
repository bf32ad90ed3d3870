// SPDX-License-Identifier: Apache-2.0
// The ways in which `bench niah` gives a text to the target: whole, or shortened by a scorer
// without or with anchors, or, as a control, to random pieces of as many tokens. It runs no target.
#ifndef COPPICE_CLI_BENCH_NIAH_WAYS_H
#define COPPICE_CLI_BENCH_NIAH_WAYS_H

#include "cli/bench/niah/case.h"
#include "cli/models/prefill.h"

enum niah_way {
    NIAH_DENSE,   // whole
    NIAH_SCORER,  // what scores alone keep
    NIAH_ANCHORS, // what scores and the question's own words keep
    NIAH_RANDOM,  // pieces by chance: as many tokens as the way before it that was shortened
    NIAH_WAYS
};
const char *niah_way_name(enum niah_way w);

// Zeroed is valid.
struct niah_ways {
    enum niah_way list[NIAH_WAYS];
    size_t n;
    struct compress_options options;
    struct compressor *scorer, *chance;
    double share; // of the tokens that the newest shortened text kept; 0: none was
};

// --ways: without it whole texts, and with a scorer all of them. ERR_USAGE: an unknown way, one
// twice, a scorer's way without --prefill-drafter, a scorer that no way uses.
int niah_ways_read(struct niah_ways *w, const struct cli_args *a, struct err *e);
// Opens what they need. x and t (the target's) must live as long.
int niah_ways_open(struct niah_ways *w, const struct cli_args *a, struct exec *x,
                   const struct tokenizer *t, struct err *e);
void niah_ways_close(struct niah_ways *w);

// What is left of a case; zeroed is valid.
struct niah_short {
    struct str text;
    int64_t kept;     // facts whose value is whole
    int64_t from, to; // tokens, as who shortened it counts them
};
int niah_shorten(struct niah_ways *w, enum niah_way way, const struct niah_case *c,
                 struct niah_short *out, struct err *e);
void niah_short_fini(struct niah_short *s);

#endif
