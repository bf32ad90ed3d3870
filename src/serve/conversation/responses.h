// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of the Responses interface: reader and writer of `input`; tools
// are read as in chat.h. Loose items become turns as conversation.h says; kinds of
// items that are unknown stay as they came.
#ifndef COPPICE_SERVE_CONVERSATION_RESPONSES_H
#define COPPICE_SERVE_CONVERSATION_RESPONSES_H

#include "serve/conversation/conversation.h"
#include "serve/request/error.h"

// Appends a string, or the items of an array. False with x filled, by place in `input`: what is no
// string, array or object, messages without a known role, calls and results that lack what makes
// them such. v->failed: memory was short.
bool conversation_read_responses(struct conversation *v, const struct json *input,
                                 struct api_error *x);

// One array of items.
void conversation_write_responses(const struct conversation *v, struct json_writer *w);

#endif
