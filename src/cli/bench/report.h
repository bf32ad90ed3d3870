// SPDX-License-Identifier: Apache-2.0
// Sums over the runs of `bench`, per group of prompts and mode of decoding, and their two forms.
#ifndef COPPICE_CLI_BENCH_REPORT_H
#define COPPICE_CLI_BENCH_REPORT_H

#include "cli/bench/accept.h"
#include "cli/bench/modes.h"
#include "cli/bench/prompts.h"

// Sums over runs of one mode.
struct tally {
    int64_t prompts, prompt_tokens, tokens, steps, committed, drafted, different;
    int64_t grams, distinct;
    double worst_distinct; // lowest share of distinct 4-grams of one continuation
    uint64_t hash;         // of the only run, else mixed over all
    struct step_times ms;
    struct bench_accept accept;
};

struct bench {
    const struct cli_args *a;
    struct session *s;
    struct bench_prompts prompts;
    struct bench_modes modes;
    struct tally *tallies;   // [groups + 1][BENCH_MODES]; the last row is all prompts
    struct json_writer rows; // the runs one by one
    int64_t different;
    struct sequence *prefix; // of the last random prompt
};

// Adds one run to its group and to all prompts. same: it equals plain decoding.
int bench_add(struct bench *b, const struct bench_prompt *p, int mode, const struct request *r,
              const struct reply *y, bool same, struct err *e);

// Decoding milliseconds a token, for other reports.
double bench_ms_per_step(const struct tally *t);

int bench_print_table(const struct bench *b, struct err *e);
int bench_print_json(struct bench *b, struct err *e);

#endif
