// SPDX-License-Identifier: Apache-2.0
// What the subcommands about token ids share: a model's tokenizer without its weights.
#ifndef COPPICE_CLI_MODELS_TOKENS_H
#define COPPICE_CLI_MODELS_TOKENS_H

#include "cli/cli.h"
#include "text/tokenizer/tokenizer.h"

// The tokenizer of the file that -m names; ERR_USAGE without -m. Errors name the file.
int cli_open_tokenizer(const struct cli_args *a, struct tokenizer **out, struct err *e);

#endif
