// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and the prompt of POST /v1/messages/count_tokens: Anthropic's interface to the
// same model. The body is read into the one form of conversations (serve/conversation/messages.h),
// and the answer is written as content blocks (serve/reply/messages.h).
#ifndef COPPICE_SERVE_API_MESSAGES_H
#define COPPICE_SERVE_API_MESSAGES_H

#include "serve/completion/completion.h"

extern const struct dialect api_messages_dialect;

// Checks and renders a body whose fields p holds. False with x filled. Any thread; out needs
// chat_text_fini in any case.
bool api_messages_render(const struct service *s, const struct params *p, const struct json *body,
                         struct chat_text *out, struct api_error *x);

#endif
