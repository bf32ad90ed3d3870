// SPDX-License-Identifier: Apache-2.0
// Checks the conversation of a request before a template sees it, so that what is wrong gets a
// sentence with its place. It changes nothing: repairs belong to the rendering (text/chat/chat.h).
#ifndef COPPICE_SERVE_CONVERSATION_CHECK_H
#define COPPICE_SERVE_CONVERSATION_CHECK_H

#include "base/json/json.h"
#include "serve/api/error.h"

enum { MESSAGES_MAX = 65536 };

// messages: an array with at least one element. Unknown roles, content that is neither text nor
// null nor an array of text parts, images and other media, broken tool calls: false with x filled.
// Unknown fields and part types that carry text pass.
bool messages_check(const struct json *messages, struct api_error *x);

#endif
