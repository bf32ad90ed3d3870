// SPDX-License-Identifier: Apache-2.0
// The grammars of calls of tools, as each family of models writes them (text/tools/calls.h): what
// follows a family's mark, with the names of the tools and arguments by their schemas, and a whole
// reply that is calls. What they allow, the reader of replies reads as calls.
#ifndef COPPICE_GRAMMAR_TOOL_GRAMMAR_H
#define COPPICE_GRAMMAR_TOOL_GRAMMAR_H

#include "base/json/json.h"
#include "grammar/grammar.h"
#include "text/tools/calls.h"

struct tool_grammar_tool {
    const char *name; // [n], borrowed
    size_t n;
    const struct json *schema; // of its arguments; NULL: any. What no grammar can hold: any object
    bool freeform;             // one text, in the parameter "input"
    bool strict; // a schema that no grammar holds is refused; a oneOf is not taken as anyOf
};

enum { TOOL_GRAMMAR_MARKS = 2 };

// Zeroed is valid.
struct tool_grammar {
    int n; // marks after which the grammar of the same number holds; free text before and after
    const char *marks[TOOL_GRAMMAR_MARKS];
    struct grammar *rest[TOOL_GRAMMAR_MARKS];
    bool first[TOOL_GRAMMAR_MARKS]; // the mark counts at the beginning of a reply only
    struct grammar *whole;          // a reply that is one call, or several; blanks may come first
};

// several: calls may follow each other in `whole`. otherwise: NULL, or a schema of what a whole
// reply may be in place of calls. ERR_LIMIT for schemas that grow too large, ERR_UNSUPPORTED with
// the place for those of strict tools that cannot be held, ERR_MEMORY, ERR_CANCELLED.
// tool_grammar_fini in any case.
struct tool_grammar_how {
    bool several;
    const struct json *otherwise;
    bool otherwise_strict;     // a oneOf in it is not taken as anyOf
    struct grammar_work *work; // NULL, or who waits, and the steps of all parts together
};
int tool_grammar_create(struct tool_grammar *out, enum tool_family f,
                        const struct tool_grammar_tool *tools, int n,
                        const struct tool_grammar_how *how, struct err *e);
// A reply that calls nothing: only `whole`, any text without the family's marks of calls. Not for
// families whose replies are framed (harmony).
bool tool_grammar_can_refuse(enum tool_family f);
int tool_grammar_refuse(struct tool_grammar *out, enum tool_family f, struct err *e);
void tool_grammar_fini(struct tool_grammar *g);

#endif
