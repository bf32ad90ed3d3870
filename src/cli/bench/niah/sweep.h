// SPDX-License-Identifier: Apache-2.0
// Which cases the options of `bench niah` name: every length with every number of needles, filler,
// kind and depth. Cases that differ in their depth only are a group.
#ifndef COPPICE_CLI_BENCH_NIAH_SWEEP_H
#define COPPICE_CLI_BENCH_NIAH_SWEEP_H

#include "cli/bench/niah/case.h"
#include "cli/cli.h"

// Zeroed is valid.
struct niah_sweep {
    const int32_t *lengths, *counts, *depths; // of the options
    size_t n_lengths, n_counts, n_depths;
    enum niah_filler fillers[NIAH_FILLERS];
    enum niah_kind kinds[NIAH_KINDS];
    size_t n_fillers, n_kinds;
    uint64_t seed;
    struct str text; // of --filler-file
};

// The words of an option's list as indices below n, whose names are name(0..n-1); out: [n]. How
// many, or ERR_USAGE for a word that is none of them or comes twice.
int niah_words(const char *option, const char *list, const char *(*name)(int), int n, int *out,
               struct err *e);

// ERR_USAGE for words that are no filler or kind or come twice, and for an empty file.
int niah_sweep_read(struct niah_sweep *s, const struct cli_args *a, struct err *e);
void niah_sweep_fini(struct niah_sweep *s);

size_t niah_sweep_groups(const struct niah_sweep *s);
// The case at a depth (its index) of a group.
struct niah_spec niah_sweep_spec(const struct niah_sweep *s, size_t group, size_t depth);

#endif
