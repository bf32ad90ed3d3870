// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of each interface, by file of this folder. What has no place in the
// interface is written, and read, under names of other servers (reasoning_content,
// reasoning_details) or plain ones (is_error, refusal, custom). v->failed: memory was short.
#ifndef COPPICE_SERVE_CONVERSATION_INTERFACES_H
#define COPPICE_SERVE_CONVERSATION_INTERFACES_H

#include "serve/request/error.h"
#include "serve/request/params.h"
#include "text/chat/conversation.h"

enum { MESSAGES_MAX = 65536 };

// chat.c: `messages`, `tools` and `tool_choice` of chat completions.

// As text/chat/conversation.h reads them; false with x filled, by the place.
bool conversation_read_chat(struct conversation *v, const struct json *messages,
                            struct api_error *x);
// Tools and the choice among them, of chat completions and of Responses, which may each come in the
// form of the other. NULL pointers are absent; parallel: of parallel_tool_calls. chat: what has no
// type is a function. Nothing is refused.
void conversation_read_tools(struct conversation *v, const struct json *tools,
                             const struct json *choice, const struct json *parallel, bool chat);
// All of these and their older form, for what a chat completion's body says. False with x filled.
bool conversation_read_chat_body(struct conversation *v, const struct params *p,
                                 struct api_error *x);

// messages.c: `system`, `messages`, `tools` and `tool_choice` of Anthropic's Messages. Content
// blocks are parts; a user's message with results of tools is a turn of results and one of words.

// Appends what a body holds to v. False with x filled, by the place: `system`, `messages` or
// `tools` without their form, and what a model of text cannot do without: a picture or a document
// that is no text, from the user.
bool conversation_read_messages(struct conversation *v, const struct json *body,
                                struct api_error *x);
// Tools and the choice among them, with what turns of the system add and take away. Those without a
// schema run on Anthropic's servers (TOOL_OTHER).
void conversation_read_messages_tools(struct conversation *v, const struct json *body);

// Tools of Anthropic's own that clients run (bash_*, text_editor_*, memory_*) become functions with
// a schema of this server's: models here have not learned them. False with x filled: no memory.
bool conversation_know_tools(struct conversation *v, struct api_error *x);

// responses.c: `input` of Responses, whose tools are read as those of chat completions. Loose items
// become turns as conversation.h says; kinds of items that are unknown stay as they came.

// Appends a string, or the items of an array. False with x filled, by place in `input`: what is no
// string, array or object, messages without a known role, calls and results that lack what makes
// them such.
bool conversation_read_responses(struct conversation *v, const struct json *input,
                                 struct api_error *x);

// One array of items.
void conversation_write_responses(const struct conversation *v, struct json_writer *w);

#endif
