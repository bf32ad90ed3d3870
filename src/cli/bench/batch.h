// SPDX-License-Identifier: Apache-2.0
// `bench --sequences LIST`: how the time of a step grows with the sequences that share its pass.
#ifndef COPPICE_CLI_BENCH_BATCH_H
#define COPPICE_CLI_BENCH_BATCH_H

#include "cli/bench/report.h"

// Every mode with each number of sequences. Their prompts are random and of one length; each runs
// plainly and alone first, which is what the others are compared with. Counts those that differ in
// b->different.
int bench_batch(struct bench *b, struct err *e);

#endif
