// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions, and the rendering of conversations that POST /apply-template shares.
#ifndef COPPICE_SERVE_API_CHAT_H
#define COPPICE_SERVE_API_CHAT_H

#include "serve/completion.h"

extern const struct dialect api_chat_dialect;

// Checks the messages of p and appends their tokens. False with x filled. Any thread.
bool api_chat_prompt(const struct service *s, const struct params *p, struct token_list *out,
                     struct api_error *x);

#endif
