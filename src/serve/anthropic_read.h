// SPDX-License-Identifier: Apache-2.0
// The conversation of a body of Anthropic's Messages interface as the messages and tools of a chat
// (what text/chat.h renders): blocks become words, reasoning, calls and results, in their order.
// What clients send and no model here can read (blocks and tools of Anthropic's own servers) is
// passed over or named in brackets, so that a conversation that has it goes on; a picture or
// document from the user is refused, because an answer without it would be a wrong one.
#ifndef COPPICE_SERVE_ANTHROPIC_READ_H
#define COPPICE_SERVE_ANTHROPIC_READ_H

#include "base/json.h"
#include "serve/api_error.h"

// *messages: an array for the caller to free. The body's `system` comes first, without lines that
// change from request to request and tell the model nothing. False with x filled, which names the
// place; ids, names and counts are not checked here.
bool anthropic_read_messages(const struct json *body, struct json **messages, struct api_error *x);

// *tools: an array of functions for the caller to free, NULL: none. Tools that run on Anthropic's
// servers are left out; those of its own that clients run get their schema here.
bool anthropic_read_tools(const struct json *tools, struct json **out, struct api_error *x);

#endif
