// SPDX-License-Identifier: Apache-2.0
// What the files of calls.h share: a row for each family, and the readers of arguments. A
// reader goes on from where it stood in the held text, and appends JSON to the arguments.
#ifndef COPPICE_TEXT_TOOLS_IMPL_H
#define COPPICE_TEXT_TOOLS_IMPL_H

#include "text/tools/calls.h"
#include "text/tools/json_pieces.h"

// Harmony: text/chat/reasoning.h puts these bytes, which no UTF-8 holds, around messages to tools.
#define TOOL_FRAME     "\xff"
#define TOOL_FRAME_END "\xfe"

enum {
    TOOL_MOST_HEAD = 512,     // bytes before the arguments, of a name or a key
    TOOL_MOST_BLANKS = 256,   // before what may be a mark: they are looked at again and again
    TOOL_MOST_MEMBERS = 4096, // of arguments between tags, with those that come again
};

enum tool_step { TOOL_MORE, TOOL_OK, TOOL_BAD };

enum tool_args_kind {
    TOOL_ARGS_JSON,   // an object
    TOOL_ARGS_NAMED,  // an object that holds the name beside the arguments
    TOOL_ARGS_TAGGED, // a pair of tags for each parameter
    TOOL_ARGS_GEMMA,  // an object in Gemma's own notation
};

struct tool_format {
    const char *name;
    const char *section, *section_end; // around one or several calls; NULL: none
    const char *open;                  // of a call; "": nothing marks it
    const char *list;                  // before the first call in a section, such as "["
    const char *between;               // between calls, in place of `open`
    const char *prefix;                // may stand before the name
    bool prefix_needed;
    const char *name_end[3]; // one of them ends the name; none: TOOL_ARGS_NAMED
    bool keep_end;           // which is not taken, but left to the arguments
    // Picks the name out of what stands before name_end; NULL: all of it. NULL for no name.
    const char *(*pick)(const char *head, size_t *n);
    enum tool_args_kind args;
    // TAGGED: <key>K<key_end><value>V<value_end>; lines: a line end on either side is no value
    const char *key, *key_end, *value, *value_end;
    bool lines;
    const char *close;     // of a call; "": nothing
    bool first_only;       // without a mark a call stands at the beginning of the content
    const char *speaks[3]; // what a template of the family has, all of them
};
extern const struct tool_format tool_formats[TOOLS_FAMILIES];

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
// Bytes at the end of s that may become the mark.
size_t tool_partial(const char *s, size_t n, const char *mark);

// Readers: from c->at on, to c->args. OK: the arguments are whole. end: no more text comes.
enum tool_step tool_read_json(struct tool_calls *c, bool end);
enum tool_step tool_read_named(struct tool_calls *c, bool end);
enum tool_step tool_read_tagged(struct tool_calls *c, bool end);
enum tool_step tool_read_gemma(struct tool_calls *c, bool end);

#endif
