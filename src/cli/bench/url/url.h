// SPDX-License-Identifier: Apache-2.0
// `bench --url`: a load generator for OpenAI servers.
#ifndef COPPICE_CLI_BENCH_URL_URL_H
#define COPPICE_CLI_BENCH_URL_URL_H

#include "cli/cli.h"

// Whether the options ask for it. ERR_USAGE (in *rc): options of the two kinds of bench are mixed.
bool bench_url_wanted(const struct cli_args *a, int *rc, struct err *e);

// Runs it and prints the report. ERR_STATE: requests failed, which the report tells first.
int bench_url(const struct cli_args *a, struct err *e);

#endif
