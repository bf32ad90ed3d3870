// SPDX-License-Identifier: Apache-2.0
// The modes of decoding that `bench` and `profile` compare: what --modes and --drafter say.
#ifndef COPPICE_CLI_BENCH_MODES_H
#define COPPICE_CLI_BENCH_MODES_H

#include "cli/models/decode.h"

enum { BENCH_MODES = 64, BENCH_RATES = 16 };

struct bench_mode {
    char name[40]; // as shown; guesses of the oracle are always called so
    enum speculate how;
    int budget; // nodes besides the root; -1: that of --budget
    bool chain;
    bool choose;       // as many nodes as pay
    double error_rate; // of the oracle's guesses; -1: by accept length
};

// --drafter oracle:al=A[,seed=N] or oracle:errors=R[/R]...[,seed=N]: guesses come from a recording
// of plain decoding with errors, at each rate R in turn or at that which makes each mode accept A
// rows a step. oracle:synth-len=L or oracle:synth-rates=P[/P]...: errors as llama.cpp's options
// --spec-synth-len and --spec-synth-rates invent them (spec/draft/oracle.h).
struct bench_oracle {
    bool on;
    double accept_length;
    double rate[BENCH_RATES];
    int n_rates;         // 0: by accept_length
    double synth_length; // 0: none
    double synth_rate[TREE_MAX_DEPTH];
    int n_synth;
    uint64_t seed;
};

struct bench_modes {
    struct bench_mode mode[BENCH_MODES]; // the first is plain decoding
    int n;
    struct bench_oracle oracle;
};

// Reads both options; without --modes: off, lookup, and chain and tree when there is a draft.
int bench_modes_read(struct bench_modes *b, const struct cli_args *a, bool has_draft,
                     struct err *e);

// The mode without a chosen budget that was fastest of those with this one's error rate and kind,
// plain decoding among them; per_second: [n] tokens per second of every mode.
int bench_modes_best(const struct bench_modes *b, int mode, const double *per_second);

// Plain decoding and one tree of --budget, whose guesses are the oracle's (without --drafter for an
// accept length of 8).
int bench_modes_profile(struct bench_modes *b, const struct cli_args *a, struct err *e);

// The request of one mode. r: as decode_request made it. plain: the reply of plain decoding, from
// which the oracle takes its recording; recording: caller's array of r->n_prompt + plain->n ids
// that must stay valid as long as the request.
void bench_mode_request(const struct bench_modes *b, int mode, const struct cli_args *a,
                        const struct session *s, const struct reply *plain, int32_t *recording,
                        struct request *r);

#endif
