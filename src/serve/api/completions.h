// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions: prompts as text or token ids, continued as they are.
#ifndef COPPICE_SERVE_API_COMPLETIONS_H
#define COPPICE_SERVE_API_COMPLETIONS_H

#include "serve/completion/completion.h"

extern const struct dialect api_completions_dialect;

// Appends an array of ids below `vocab`. False with x filled; name: of the array, for the sentence.
bool api_token_ids(const struct json *array, int vocab, const char *name, struct token_list *out,
                   struct api_error *x);

#endif
