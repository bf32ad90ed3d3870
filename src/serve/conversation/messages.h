// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of Anthropic's Messages: reader of `system`, `messages`, `tools` and
// `tool_choice`. Content blocks are parts; a user's message with results of tools is a turn of
// results and one of words. What has no place there comes under plain names (refusal, custom).
#ifndef COPPICE_SERVE_CONVERSATION_MESSAGES_H
#define COPPICE_SERVE_CONVERSATION_MESSAGES_H

#include "serve/conversation/conversation.h"
#include "serve/request/error.h"

// Appends what a body holds to v. False with x filled, by the place: `system`, `messages` or
// `tools` without their form, and what a model of text cannot do without: a picture or a document
// that is no text, from the user. v->failed: memory was short.
bool conversation_read_messages(struct conversation *v, const struct json *body,
                                struct api_error *x);
// Tools and the choice among them, with what turns of the system add and take away. Those without a
// schema run on Anthropic's servers (TOOL_OTHER).
void conversation_read_messages_tools(struct conversation *v, const struct json *body);

// Tools of Anthropic's own that clients run (bash_*, text_editor_*, memory_*) become functions with
// a schema of this server's: models here do not know them by heart. False with x filled: no memory.
bool conversation_know_tools(struct conversation *v, struct api_error *x);

// Whether a tool of this type is one of them. NULL is allowed.
bool conversation_knows_tool(const char *type);

#endif
