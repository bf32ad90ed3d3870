// SPDX-License-Identifier: Apache-2.0
// Whether results of tools belong to calls: what official interfaces refuse, too, so that a client
// that has lost a call hears of it.
#ifndef COPPICE_SERVE_CONVERSATION_IDS_H
#define COPPICE_SERVE_CONVERSATION_IDS_H

#include "serve/api/error.h"
#include "serve/conversation/conversation.h"

// Refuses a result with an id that no call before it has, by that id; where: the field that holds
// the conversation. A result without an id belongs to whatever stands before it. Any size of
// conversation in about the time of reading it.
bool conversation_ids_check(const struct conversation *v, const char *where, struct api_error *x);

#endif
