// SPDX-License-Identifier: Apache-2.0
// Finds the calls of tools in the content of a reply while it comes, in the format of the model's
// family (formats.h). A call becomes a name
// and arguments in strict JSON, typed by what the tool declares where the format has no types. Only
// a whole call of a declared tool is one: everything else comes back as the text that it was, byte
// for byte. It holds back what may still become a call, and parts no reasoning
// (text/chat/reasoning.h).
#ifndef COPPICE_TEXT_TOOLS_CALLS_H
#define COPPICE_TEXT_TOOLS_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "text/tools/formats.h"
#include "text/tools/json_pieces.h"
#include "text/tools/set.h"

// Where the parts of the content go, in order. Strings last for the call. Pieces of arguments join
// to one JSON object; of a freeform tool, to its text.
struct tool_sink {
    void *arg;
    void (*text)(void *arg, const char *s, size_t n);
    void (*begin)(void *arg, const struct tool *t);
    void (*arguments)(void *arg, const char *s, size_t n);
    void (*end)(void *arg, bool whole); // false: the reply ended or broke off within the call
};

struct tool_calls {
    enum tool_family family;
    const struct tool_set *set; // borrowed
    // Calls are known to be well-formed, as under a grammar: arguments go out as they come, of
    // freeform tools their text.
    // Otherwise a call goes out when all of it has come, so that a bad one can be given back.
    bool constrained;
    // The reply is calls and nothing else, as where one is required under a grammar: what is not
    // of a call is no text. Set after tool_calls_init.
    bool only;
    bool cut; // at the end: it was cut off
    int state;
    bool called;     // a call went out
    bool said;       // text went out since the beginning
    bool open;       // begin went out
    bool closed;     // after a call: the end of its section has been seen
    struct str held; // undecided: what came from the first byte that may belong to a call
    size_t at;       // how much of it has been read
    size_t again;    // bytes that were held and given back
    const struct tool *tool;
    struct str args;       // of the open call, not yet gone out
    struct freeform input; // of a freeform tool whose text goes out as it comes
    struct str said_input; // a piece of it
    struct tool_args *reader;
    bool failed; // memory was short
};

// set NULL or empty: everything is text. ERR_MEMORY.
int tool_calls_init(struct tool_calls *c, enum tool_family f, const struct tool_set *set,
                    bool constrained, struct err *e);
void tool_calls_fini(struct tool_calls *c); // zeroed is allowed

// Content as it comes, cut between characters (reasoning_push of text/chat/reasoning.h does).
void tool_calls_push(struct tool_calls *c, const char *text, size_t n, const struct tool_sink *s);
// The reply has ended: what was held back goes out. cut: not by itself, but by a limit or because
// it is not needed any more; then three bytes and more at its end that begin a mark are no text.
void tool_calls_end(struct tool_calls *c, bool cut, const struct tool_sink *s);

#endif
