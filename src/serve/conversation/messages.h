// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of Anthropic's Messages: reader and writer of `system`, `messages`,
// `tools` and `tool_choice`, and the check of what clients send. Content blocks are parts; a user's
// message with results of tools is a turn of results and one of words. What has no place there is
// written under plain names (refusal, custom) that the reader knows.
#ifndef COPPICE_SERVE_CONVERSATION_MESSAGES_H
#define COPPICE_SERVE_CONVERSATION_MESSAGES_H

#include "serve/conversation/conversation.h"
#include "serve/request/error.h"

// Whether a body's `system` and `messages` have the form, and nothing that a model of text cannot
// do without: a picture or a document that is no text, from the user. False with x filled, which
// names the place.
bool messages_body_check(const struct json *body, struct api_error *x);

// Appends what a body holds to v. What is wrong in form is messages_body_check's to refuse and
// passed over here. v->failed: memory was short.
void conversation_read_messages(struct conversation *v, const struct json *body);
// Tools and the choice among them, with what turns of the system add and take away. Those without a
// schema run on Anthropic's servers (TOOL_OTHER).
void conversation_read_messages_tools(struct conversation *v, const struct json *body);

// Tools of Anthropic's own that clients run (bash_*, text_editor_*, memory_*) become functions with
// a schema of this server's: models here do not know them by heart. False with x filled: no memory.
bool conversation_know_tools(struct conversation *v, struct api_error *x);

// Whether a tool of this type is one of them. NULL is allowed.
bool conversation_knows_tool(const char *type);

#endif
