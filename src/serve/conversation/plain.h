// SPDX-License-Identifier: Apache-2.0
// From a conversation to the one that a chat template can say: functions and their calls, results
// and texts. Free text of custom tools becomes an argument named "input"; calls and results of
// kinds unknown here become calls and results of a tool of that name; other unknown parts are named
// in brackets; lines that only count or bill, and would make every prompt a new one, go. Images and
// other media are refused.
#ifndef COPPICE_SERVE_CONVERSATION_PLAIN_H
#define COPPICE_SERVE_CONVERSATION_PLAIN_H

#include "serve/request/error.h"
#include "text/chat/conversation.h"

// Makes v plain: its turns and its tools are new ones then, functions, those of groups among them,
// and custom ones. False with x filled, and v is good for conversation_fini only.
bool conversation_plain(struct conversation *v, struct api_error *x);

// Tools of a group ("namespace") are called by the group's name and their own in one word. Parts
// such a name: true, with *name the tool's own and *group its group's, where `tools` (as they were
// declared, or NULL) has them; else both are as they were.
bool conversation_part_name(const struct json *tools, struct words *name, struct words *group);

#endif
