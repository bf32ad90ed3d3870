// SPDX-License-Identifier: Apache-2.0
// Messages as chat completions have them, in requests and in files, read into a conversation and
// checked on the way.
#ifndef COPPICE_TEXT_CHAT_READ_H
#define COPPICE_TEXT_CHAT_READ_H

#include "text/chat/conversation.h"

// Appends what an array holds to v, memory that is short in v->failed. ERR_FORMAT with a sentence
// and its place, "messages[2].role", which the sentence begins with: unknown roles, content that is
// neither text nor null nor a list of text parts, images and other media, broken calls. request:
// as an interface has them, where only answers may lack a content, and calls may be of custom
// tools; turns are joined as above. Else as a template takes them: each message is a turn, and its
// unnamed members stay as they came.
enum { CONVERSATION_PLACE = 64 };
int conversation_read(struct conversation *v, const struct json *messages, bool request,
                      char place[static CONVERSATION_PLACE], struct err *e);
// Appends an array of tools that templates read; NULL and null are none. ERR_FORMAT.
int conversation_read_raw_tools(struct conversation *v, const struct json *tools, struct err *e);
// Whether a part of this type is an image, sound or a file, in any interface's word for it.
bool conversation_is_media(const char *type);

#endif
