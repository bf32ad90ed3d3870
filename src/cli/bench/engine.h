// SPDX-License-Identifier: Apache-2.0
// `bench --sequences LIST --engine`: what the engine thread costs beside a batch alone.
#ifndef COPPICE_CLI_BENCH_ENGINE_H
#define COPPICE_CLI_BENCH_ENGINE_H

#include "cli/bench/report.h"

// Every mode with each number of requests of random prompts, whole runs with their prompts, as a
// batch and through an engine on the same session in turns. Counts replies that differ in
// b->different.
int bench_engine(struct bench *b, struct err *e);

#endif
