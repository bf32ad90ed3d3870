// SPDX-License-Identifier: Apache-2.0
// Conversations written in the words of each interface, and compared, so that tests can read them
// again: what readers keep, and nothing but that, comes back.
#ifndef COPPICE_TESTS_SUPPORT_CONVERSATION_WORDS_H
#define COPPICE_TESTS_SUPPORT_CONVERSATION_WORDS_H

#include "text/chat/conversation.h"

// Chat completions and Responses: `messages`, an array of tools, and the value of tool_choice.
void conversation_write_chat(const struct conversation *v, struct json_writer *w);
void conversation_write_chat_tools(const struct conversation *v, struct json_writer *w);
void conversation_write_chat_choice(const struct conversation *v, struct json_writer *w);
void conversation_write_responses_tools(const struct conversation *v, struct json_writer *w);
void conversation_write_responses_choice(const struct conversation *v, struct json_writer *w);

// The tools as templates get them; the caller's.
struct json *conversation_tools_of_template(const struct conversation *v);

// Anthropic's Messages: the members `messages`, and `tools` and `tool_choice` where there are any,
// of an open object. What has no place there is written under plain names (refusal, custom).
void conversation_write_messages(const struct conversation *v, struct json_writer *w);
void conversation_write_messages_tools(const struct conversation *v, struct json_writer *w);

// What differs first between two conversations, as "turns[2].parts[0].text"; empty: nothing. The
// spelling in which arguments came (`object`) and raw forms of tools are no difference. ERR_MEMORY.
int conversation_differs(const struct conversation *a, const struct conversation *b,
                         struct str *where, struct err *e);

#endif
