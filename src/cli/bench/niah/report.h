// SPDX-License-Identifier: Apache-2.0
// Sums of `bench niah` by group of cases and way, and how they are shown.
#ifndef COPPICE_CLI_BENCH_NIAH_REPORT_H
#define COPPICE_CLI_BENCH_NIAH_REPORT_H

#include "cli/bench/niah/sweep.h"
#include "cli/bench/niah/ways.h"

struct niah_sums {
    int64_t cases, facts, kept;  // all of them; facts whose value was given to the target
    int64_t from, to;            // tokens before and after shortening
    int64_t asked, sought;       // cases that were asked; their facts
    int64_t found;               // in the answers
    int64_t too_long;            // for the target's context
    int64_t prompt_tokens;       // of those asked
    double shorten_ms, first_ms; // of all; of those asked, from the text to the first token
};
void niah_sums_add(struct niah_sums *to, const struct niah_sums *one);

// Zeroed is valid.
struct niah_report {
    const struct niah_sweep *sweep; // borrowed
    const struct niah_ways *ways;
    struct niah_sums *sums; // [groups][ways->n]
    struct json_writer runs;
};
int niah_report_open(struct niah_report *r, const struct niah_sweep *sweep,
                     const struct niah_ways *ways, struct err *e);
void niah_report_close(struct niah_report *r);

// Adds one case. answer: NULL when it was not asked.
void niah_report_add(struct niah_report *r, size_t group, size_t way, const struct niah_spec *s,
                     const struct niah_sums *one, const struct str *answer);

void niah_report_table(const struct niah_report *r, struct str *out);
// Members "overall" (an object for each way), "groups" and "runs".
void niah_report_json(const struct niah_report *r, struct json_writer *w);

#endif
