// SPDX-License-Identifier: Apache-2.0
// The ways of decoding that `bench` and `profile` compare: what --modes and --drafter say.
#ifndef COPPICE_CLI_BENCH_WAYS_H
#define COPPICE_CLI_BENCH_WAYS_H

#include "cli/decode.h"

enum { BENCH_WAYS = 64, BENCH_RATES = 16 };

struct bench_way {
    char name[40]; // as shown; guesses of the oracle are always called so
    enum speculate how;
    int budget; // nodes beside the root; -1: that of --budget
    bool chain;
    bool choose;       // as many nodes as pay
    double error_rate; // of the oracle's guesses; -1: by accept length
};

// --drafter oracle:al=A[,seed=N] or oracle:errors=R[/R]...[,seed=N]: guesses come from a recording
// of plain decoding with errors, at each rate R in turn or at that which makes each way accept A
// rows a step.
struct bench_oracle {
    bool on;
    double accept_length;
    double rate[BENCH_RATES];
    int n_rates; // 0: by accept_length
    uint64_t seed;
};

struct bench_ways {
    struct bench_way way[BENCH_WAYS]; // the first is plain decoding
    int n;
    struct bench_oracle oracle;
};

// Reads both options; without --modes: off, lookup, and chain and tree when there is a draft.
int bench_ways_read(struct bench_ways *b, const struct cli_args *a, bool has_draft, struct err *e);

// The way without a chosen budget that was fastest of those with this one's error rate and kind,
// plain decoding among them; per_second: [n] tokens per second of every way.
int bench_ways_best(const struct bench_ways *b, int way, const double *per_second);

// Plain decoding and one tree of --budget, whose guesses are the oracle's (without --drafter for an
// accept length of 8).
int bench_ways_profile(struct bench_ways *b, const struct cli_args *a, struct err *e);

// The request of one way. r: as decode_request made it. plain: the reply of plain decoding, from
// which the oracle takes its recording; recording: caller's array of r->n_prompt + plain->n ids
// that must live as long as the request.
void bench_way_request(const struct bench_ways *b, int way, const struct cli_args *a,
                       const struct session *s, const struct reply *plain, int32_t *recording,
                       struct request *r);

#endif
