// SPDX-License-Identifier: Apache-2.0
// The tools of a conversation as the reader of replies needs them: which may be called, whether one
// must be, whether the reply ends with its first call. Nothing is borrowed.
#ifndef COPPICE_SERVE_CONVERSATION_TOOLS_H
#define COPPICE_SERVE_CONVERSATION_TOOLS_H

#include "serve/request/error.h"
#include "text/chat/conversation.h"
#include "text/tools/calls.h"

// Zeroed is valid: no tools.
struct request_tools {
    struct tool_set set;     // those that may be called; none where the choice is none
    enum tool_family family; // how the model writes calls
    const char *format;      // as chat_template_tool_format, where the request has tools; or NULL
    bool required;           // at least one call
    bool one_call;           // the reply ends with its first call
    bool constrained;        // a grammar holds calls (serve/completion/constraint.h)
};

// Out of v's tools, choice and parallel. False with x filled: a choice that names nothing, or what
// is not declared; a call required without tools. request_tools_fini in any case.
bool request_tools_take(struct request_tools *r, const struct conversation *v, struct api_error *x);
void request_tools_fini(struct request_tools *r);

#endif
