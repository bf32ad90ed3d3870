// SPDX-License-Identifier: Apache-2.0
// How each family of models writes calls of tools: the one description of marks, order and
// escaping, for the reader of replies (calls.h), the grammars that hold replies to it
// (grammar/tool_grammar.h), and the writer of prompts for templates without tools (write.h). Which
// family a model is of, the text of its chat template tells.
#ifndef COPPICE_TEXT_TOOLS_FORMATS_H
#define COPPICE_TEXT_TOOLS_FORMATS_H

#include <stdbool.h>
#include <stddef.h>

enum tool_family {
    TOOLS_HERMES,       // <tool_call>{"name": ..., "arguments": ...}</tool_call>
    TOOLS_QWEN,         // <tool_call><function=N><parameter=K>V</parameter></function></tool_call>
    TOOLS_LAGUNA,       // <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call>
    TOOLS_LLAMA,        // {"name": ..., "parameters": ...}, perhaps after <|python_tag|>
    TOOLS_GEMMA,        // <|tool_call>call:N{k:v}<tool_call|>
    TOOLS_HARMONY,      // <|channel|>commentary to=functions.N<|message|>{...}<|call|>
    TOOLS_DEEPSEEK,     // V3.1: N<|tool_sep|>{...} within its marks
    TOOLS_DEEPSEEK_V3,  // V3, R1: function<|tool_sep|>N and a block of code
    TOOLS_KIMI,         // functions.N:0<|tool_call_argument_begin|>{...} within its marks
    TOOLS_MISTRAL,      // [TOOL_CALLS]N[ARGS]{...}
    TOOLS_MISTRAL_LIST, // [TOOL_CALLS][{"name": ..., "arguments": ...}]
    TOOLS_FAMILIES,
};

// The family that the text of a chat template speaks of; HERMES when it speaks of none.
enum tool_family tool_family_of_template(const char *text, size_t n);
// The family of a name; TOOLS_FAMILIES for none.
enum tool_family tool_family_of_name(const char *name);
// Whether this text of a control token is a mark of the family, which the reader must see.
bool tool_family_mark(enum tool_family f, const char *text, size_t n);

// Harmony: text/chat/reasoning.h puts these bytes, which no UTF-8 holds, around messages to tools,
// which have this in their header.
#define TOOL_FRAME     "\xff"
#define TOOL_FRAME_END "\xfe"
#define HARMONY_TO     " to=functions."
// The marks that end a message in harmony.
enum { HARMONY_ENDS = 3 };
extern const char *const harmony_ends[HARMONY_ENDS];

enum tool_args_kind {
    TOOL_ARGS_JSON,   // an object
    TOOL_ARGS_NAMED,  // an object that holds the name besides the arguments
    TOOL_ARGS_TAGGED, // a pair of tags for each parameter
    TOOL_ARGS_GEMMA,  // an object in Gemma's own notation
};

struct tool_format {
    const char *name;                  // of the family, for options and answers
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
    const char *arguments; // NAMED: the key of the arguments
    const char *quote;     // GEMMA: on both sides of a string
    const char *id;        // between the name and the arguments, with an id after it
    // TAGGED: <key>K<key_end><value>V<value_end>; lines: a line end on either side is no value
    const char *key, *key_end, *value, *value_end;
    bool lines;
    const char *before_close; // a line end that may stand there; NULL: none
    const char *close;        // of a call; "": nothing
    bool single;              // a reply has one call only
    bool adjacent;            // nothing stands between calls, not even a line end
    bool own_section;         // each call has a section of its own, or several with `between`
    bool first_only;          // without a mark a call stands at the beginning of the content
    const char *speaks[3];    // what a template of the family has, all of them
};
extern const struct tool_format tool_formats[TOOLS_FAMILIES];

#endif
