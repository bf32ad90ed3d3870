// SPDX-License-Identifier: Apache-2.0
// POST /v1/messages and POST /v1/messages/count_tokens: Anthropic's interface to the same model.
// The body becomes the messages of a chat (anthropic_read.h) and is rendered like those; the answer
// is written as content blocks (answer_messages.h).
#ifndef COPPICE_SERVE_API_MESSAGES_H
#define COPPICE_SERVE_API_MESSAGES_H

#include "serve/completion.h"

extern const struct dialect api_messages_dialect;

// A body whose fields have been read, as a chat.
struct messages_chat {
    struct json *messages, *tools;
};
// Puts the conversation and the tools of the body into p, which borrows them from `out`. False with
// x filled. Any thread; messages_chat_fini in any case.
bool messages_chat_read(struct messages_chat *out, struct params *p, const struct json *body,
                        struct api_error *x);
void messages_chat_fini(struct messages_chat *m);

#endif
