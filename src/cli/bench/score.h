// SPDX-License-Identifier: Apache-2.0
// `coppice bench score`: how long a scorer takes for texts of random ids, what each of its ops
// takes, and with a target the time until the first token behind what is kept. It works on ids, so
// that files without a tokenizer (`coppice synth`) can be measured.
#ifndef COPPICE_CLI_BENCH_SCORE_H
#define COPPICE_CLI_BENCH_SCORE_H

#include "cli/cli.h"

int bench_score(const struct cli_args *a, struct err *e);

#endif
