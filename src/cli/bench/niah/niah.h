// SPDX-License-Identifier: Apache-2.0
// `coppice bench niah`: needles in a haystack. Makes cases (case.h), writes them to a
// file, or asks the target and says how long the first token took and how many facts were found.
#ifndef COPPICE_CLI_BENCH_NIAH_NIAH_H
#define COPPICE_CLI_BENCH_NIAH_NIAH_H

#include "cli/cli.h"

// Whether the operand asks for it; *rc: ERR_USAGE for another operand, for options that mean
// nothing there, and for those of cases without it.
bool bench_niah_wanted(const struct cli_args *a, int *rc, struct err *e);
int bench_niah(const struct cli_args *a, struct err *e);

#endif
