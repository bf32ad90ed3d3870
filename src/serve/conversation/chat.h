// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of chat completions: reader and writer of `messages`, `tools`
// and `tool_choice`. What has no place there is written under names of other servers
// (reasoning_content, reasoning_details) or plain ones (is_error), which the reader knows.
#ifndef COPPICE_SERVE_CONVERSATION_CHAT_H
#define COPPICE_SERVE_CONVERSATION_CHAT_H

#include "base/json/json.h"
#include "serve/conversation/conversation.h"
#include "serve/request/error.h"
#include "serve/request/params.h"
enum { MESSAGES_MAX = 65536 };

// Appends what an array holds to v. Unknown roles, content that is neither text nor null nor an
// array of text parts, images and other media, broken tool calls: false with x filled, by the
// place. Unknown members and types of parts that carry text pass; nothing is repaired here
// (text/chat/chat.h). v->failed: memory was short.
bool conversation_read_chat(struct conversation *v, const struct json *messages,
                            struct api_error *x);
// Tools and the choice among them, of chat completions and of Responses, which may each come in the
// form of the other. NULL pointers are absent; parallel: of parallel_tool_calls. chat: what has no
// type is a function. Nothing is refused.
void conversation_read_tools(struct conversation *v, const struct json *tools,
                             const struct json *choice, const struct json *parallel, bool chat);
// The older form of both: one call at most.
void conversation_read_chat_functions(struct conversation *v, const struct json *functions,
                                      const struct json *call);

// All of these, for what a chat completion's body says; False with
// x filled.
bool conversation_read_chat_body(struct conversation *v, const struct params *p,
                                 struct api_error *x);

// `messages`, and an element of `tools`.
void conversation_write_chat(const struct conversation *v, struct json_writer *w);
void conversation_write_chat_tool(const struct conversation_tool *t, struct json_writer *w);

#endif
