// SPDX-License-Identifier: Apache-2.0
// The readers of a call's arguments, for the machine of calls.h. A reader goes on from where it
// stood in the held text, and appends JSON to the arguments.
#ifndef COPPICE_TEXT_TOOLS_ARGS_H
#define COPPICE_TEXT_TOOLS_ARGS_H

#include "text/tools/calls.h"

enum {
    TOOL_MAX_HEAD = 512,     // bytes before the arguments, of a name or a key
    TOOL_MAX_BLANKS = 256,   // before what may be a mark: they are looked at again and again
    TOOL_MAX_MEMBERS = 4096, // of arguments between tags, with those that come again
};

enum tool_step { TOOL_MORE, TOOL_OK, TOOL_BAD };

struct tool_args {
    struct json_pieces json;
    int state, depth;
    bool first;     // nothing stands before the next member or element
    bool begun;     // arguments: their value has begun
    unsigned types; // TAGGED: of the parameter
    struct str key, name, value;
    bool objects[JSON_PIECES_DEPTH];
    int n_members;           // TAGGED: read so far
    struct tool_span *spans; // TAGGED: of the members, to find one that comes twice
    int n_spans, cap_spans;
};
void tool_args_reset(struct tool_args *a);
void tool_args_fini(struct tool_args *a);

// Whether a mark stands at `at` of the held text: 1 yes, 0 not yet known, -1 no.
int tool_stands(const struct tool_calls *c, size_t at, const char *mark);
size_t tool_blanks(const struct tool_calls *c, size_t at); // how many from there

// Readers: from c->at on, to c->args. OK: the arguments are whole. end: no more text comes.
enum tool_step tool_read_json(struct tool_calls *c, bool end);
enum tool_step tool_read_named(struct tool_calls *c, bool end);
enum tool_step tool_read_tagged(struct tool_calls *c, bool end);
enum tool_step tool_read_gemma(struct tool_calls *c, bool end);

#endif
