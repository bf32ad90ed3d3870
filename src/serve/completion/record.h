// SPDX-License-Identifier: Apache-2.0
// What is counted (metrics) and logged of a request for text. Loop thread only.
#ifndef COPPICE_SERVE_COMPLETION_RECORD_H
#define COPPICE_SERVE_COMPLETION_RECORD_H

#include "serve/completion/completion.h"

// n tokens of a choice have been taken in.
void record_tokens(struct choice *k, int64_t n);
// The end of everything: counts it and writes its line. why: NULL or zeroed where all went well.
void record_end(struct completion *c, const struct api_error *why);

#endif
