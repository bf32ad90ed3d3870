// SPDX-License-Identifier: Apache-2.0
// Conversations in the words of chat completions: reader and writer of `messages`, `tools` and
// `tool_choice`. What has no place there is written under names of other servers
// (reasoning_content, reasoning_details) or plain ones (is_error), which the reader knows.
#ifndef COPPICE_SERVE_CONVERSATION_CHAT_H
#define COPPICE_SERVE_CONVERSATION_CHAT_H

#include "serve/conversation/conversation.h"

// Appends what an array holds to v. What is wrong in form is messages_check's to refuse
// (check.h) and passed over here. v->failed: memory was short.
void conversation_read_chat(struct conversation *v, const struct json *messages);
// NULL pointers are absent. parallel: of parallel_tool_calls.
void conversation_read_chat_tools(struct conversation *v, const struct json *tools,
                                  const struct json *choice, const struct json *parallel);
// The older form of both: one call at most.
void conversation_read_chat_functions(struct conversation *v, const struct json *functions,
                                      const struct json *call);

// One array each, and one value.
void conversation_write_chat(const struct conversation *v, struct json_writer *w);
void conversation_write_chat_tools(const struct conversation *v, struct json_writer *w);
void conversation_write_chat_tool(const struct conversation_tool *t, struct json_writer *w);
void conversation_write_chat_choice(const struct conversation *v, struct json_writer *w);

#endif
