// SPDX-License-Identifier: Apache-2.0
// The options of prompt compression (--prefill-*), as the scorer and the compressor take them.
#ifndef COPPICE_CLI_MODELS_PREFILL_H
#define COPPICE_CLI_MODELS_PREFILL_H

#include "cli/cli.h"
#include "compress/open.h"

// ERR_USAGE: a value out of range, a curve out of order, more than one of ratio, curve and mass.
int prefill_options(const struct options *o, struct compress_options *out, struct err *e);
int prefill_scorer_options(const struct options *o, struct score_options *out, struct err *e);

#endif
