// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions, and the rendering of conversations that POST /apply-template shares.
#ifndef COPPICE_SERVE_API_CHAT_H
#define COPPICE_SERVE_API_CHAT_H

#include "serve/completion/completion.h"

extern const struct dialect api_chat_dialect;

// Checks and renders the messages of p. False with x filled. Any thread; out needs chat_text_fini
// in any case.
bool api_chat_render(const struct service *s, const struct params *p, struct chat_text *out,
                     struct api_error *x);
// The same to tokens, without the text.
bool api_chat_encode(const struct service *s, const struct params *p, struct completion_prompt *out,
                     struct api_error *x);

#endif
