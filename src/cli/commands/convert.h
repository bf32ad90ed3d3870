// SPDX-License-Identifier: Apache-2.0
// What the subcommands `convert` and `quantize` share.
#ifndef COPPICE_CLI_COMMANDS_CONVERT_H
#define COPPICE_CLI_COMMANDS_CONVERT_H

#include "cli/cli.h"
#include "convert/convert.h"

// The recipe of that name; ERR_USAGE with a list of all when there is none.
int cli_recipe(const char *name, const struct convert_recipe **out, struct err *e);

// Progress on standard error: one line redrawn on a terminal, else a line per tenth. arg: int64_t
// that begins as -1. Stops the conversion after ctrl-C.
int cli_convert_progress(void *arg, const char *name, int64_t done, int64_t total);

#endif
