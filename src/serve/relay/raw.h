// SPDX-License-Identifier: Apache-2.0
// Compressed chats as raw prompts: the body of a chat request as one of /v1/completions, rendered
// by the target's chat template, and answers of completions in the shape of chat completions, whole
// or event by event. A raw prompt cannot say which of its marks the template wrote: what a message
// spells as a control token is one for the upstream.
#ifndef COPPICE_SERVE_RELAY_RAW_H
#define COPPICE_SERVE_RELAY_RAW_H

#include "base/json/json.h"
#include "base/str.h"
#include "text/chat/chat.h"

// Whether a request can go so: nothing in it has a meaning in chats alone (log-probabilities, forms
// of the answer, audio, a conversation that ends in the assistant's words).
bool relay_raw_fits(const struct json *body);
// The body of the completion, with these messages in place of the request's: `prompt`, the other
// members as they were spelt, max_completion_tokens as max_tokens; what only a template reads goes
// into the template. model: NULL: as the request names it. Errors of chat_render, ERR_MEMORY.
int relay_raw_body(const struct chat_template *t, const struct json *body,
                   const struct json *messages, const char *model, struct str *out, struct err *e);

// A whole answer, or *out empty where it is no completion (an error, say): it is then as it should
// be. False: no memory.
bool relay_raw_answer(const char *text, size_t n, struct str *out);

// Events of a stream. Zeroed is valid and at the begin.
struct relay_raw_stream {
    struct str line; // that has not ended yet
    bool spoke;      // somebody has been told who speaks
};
// Appends to out what these bytes make of the stream: lines that hold a chunk are written anew, all
// others stay as they are. False: no memory, or a line of more than 64 MiB.
bool relay_raw_push(struct relay_raw_stream *s, const char *bytes, size_t n, struct str *out);
void relay_raw_fini(struct relay_raw_stream *s);

#endif
