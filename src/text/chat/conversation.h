// SPDX-License-Identifier: Apache-2.0
// One form for conversations of requests, of files and of the command line. Interfaces are readers
// into it (read.h, others in serve/conversation), and chat.h makes the values of a
// template of it: there is no form between. Nothing that came is dropped: members that the form has
// no name for stay with what they belonged to, and parts of unknown kinds stay as they came.
// Strings and JSON are borrowed from the body that was read, which must outlive the form; the rest
// lies in its arena. It renders nothing and does not depend on HTTP.
//
// The order of an assistant's turn is reasoning, then text, then calls. What comes in another order
// is another turn, and turns that follow each other in this order are one (unless the first is
// empty), so that an interface of messages and one of loose items mean the same. Results of tools
// that follow each other are one turn.
#ifndef COPPICE_TEXT_CHAT_CONVERSATION_H
#define COPPICE_TEXT_CHAT_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/memory/arena.h"

enum conversation_role {
    CONVERSATION_SYSTEM,
    CONVERSATION_DEVELOPER,
    CONVERSATION_USER,
    CONVERSATION_ASSISTANT,
    CONVERSATION_TOOL, // a turn of results
    CONVERSATION_FUNCTION,
    CONVERSATION_ROLES,
};
extern const char *const conversation_roles[CONVERSATION_ROLES]; // "system", ...
// The role that a message names; CONVERSATION_ROLES where it is none of them.
enum conversation_role conversation_role_of(const struct json *message);

enum conversation_kind {
    PART_TEXT,
    PART_REFUSAL,   // text in which the model declined
    PART_REASONING, // of the assistant
    PART_CALL,      // of a tool, by the assistant
    PART_RESULT,    // of a call, in a turn of CONVERSATION_TOOL
    PART_MEDIA,     // an image, sound, a file: `raw`, which no model here reads
    PART_OTHER,     // of a kind that is not known: `raw`
};

// Bytes of UTF-8; s NULL: absent.
struct words {
    const char *s;
    size_t n;
};

// Members that came with an object and have no name here, in their order; none is null.
struct extra {
    const char *key;
    const struct json *value;
};
struct extras {
    struct extra *at;
    int n, cap;
};

struct conversation_part {
    enum conversation_kind kind;
    // TEXT, REFUSAL: the words. REASONING: what was thought, as far as it may be shown. CALL: its
    // arguments, a text of JSON, or, custom, free.
    struct words text;
    struct words summary;       // REASONING: a shorter form of it
    struct words signature;     // REASONING: opaque, to be given back (also: encrypted content)
    struct words id;            // CALL, RESULT: what joins them
    struct words name;          // CALL: the tool's
    bool custom;                // CALL, RESULT: of a tool that takes free text
    bool is_error;              // RESULT: the tool failed
    bool object;                // CALL: the arguments came as an object, not as its text
    bool older;                 // CALL: as function_call, without an id, and so are its results
    const struct json *raw;     // MEDIA, OTHER, and CALL where `object` is set
    const struct json *as_came; // CALL: all of it, see below
    struct extras extras;

    struct conversation_part *parts; // RESULT: TEXT, MEDIA, OTHER
    int n_parts, cap_parts;
    bool list; // RESULT: see below
};

struct conversation_turn {
    enum conversation_role role;
    struct conversation_part *parts;
    int n_parts, cap_parts;
    struct extras extras; // of a message as a whole
    // Of files, which templates are to see as they are (and may print whole): the message, whose
    // unnamed members and their order count in place of extras; the content came as a list.
    const struct json *as_came;
    bool list;
};

enum tool_kind {
    TOOL_FUNCTION, // arguments by a JSON schema
    TOOL_CUSTOM,   // one free text
    TOOL_OTHER,    // the server's own, or unknown: `raw`, never called here
};

struct conversation_tool {
    enum tool_kind kind;
    struct words name, description;
    const struct json *schema; // FUNCTION: of the arguments; NULL: any
    const struct json *format; // CUSTOM: of the text; NULL: any
    int strict;                // FUNCTION: 1, -1 not, 0 not said
    const struct json *raw;    // as it came
    bool chat;                 // raw is of the form that templates read; so it is with OTHER
    bool withdrawn;            // within a reader: a later turn has taken it away
    struct extras extras;
};

enum conversation_choice {
    CHOICE_UNSAID,
    CHOICE_AUTO,
    CHOICE_NONE,
    CHOICE_REQUIRED,
    CHOICE_NAMED,   // `name`
    CHOICE_ALLOWED, // of a list, or of kinds unknown here: `raw`; counts as auto
};

// A zeroed one is valid and empty.
struct conversation {
    struct arena arena;
    struct adopted *adopted;
    bool failed;       // memory was short: something is missing
    const char *where; // what the interface calls its messages, for sentences; NULL: "messages"
    struct conversation_turn *turns;
    int n_turns, cap_turns;
    struct conversation_tool *tools;
    int n_tools, cap_tools;
    struct {
        enum conversation_choice kind;
        struct words name;
        bool custom; // NAMED: a custom tool
        const struct json *raw;
    } choice;
    int parallel; // calls in one reply: 1 several, -1 one, 0 not said
};
void conversation_fini(struct conversation *v);

// The string of a value; absent unless it is one.
struct words words_of(const struct json *v);
struct words words_of_text(const char *s); // NULL is absent
bool words_equal(struct words a, const char *s);
// The member `type` of an object; "" unless it is a string.
const char *conversation_type_of(const struct json *v);
// true: 1, false: -1, anything else: 0.
int words_tristate(const struct json *v);
// Whether a list of names, NULL after the last, has this one.
bool words_among(const char *const *list, const char *name);
void words_put(struct json_writer *w, const char *key, struct words t); // unless absent
// Has a document freed with v, which borrows from it; at once, with NULL and v->failed set, when
// memory is short.
const struct json *conversation_adopt(struct conversation *v, struct json *document);
// A copy in the arena; absent, with v->failed set, when memory is short.
struct words conversation_copy(struct conversation *v, const char *s, size_t n);
// The same of a text, which is empty then.
struct words conversation_take(struct conversation *v, struct str *s);
// The same of a value, as JSON.
struct words conversation_printed(struct conversation *v, const struct json *value);

// The turn that a message of this role is put into: the last one where they are one, else new.
// first: what the message begins with; TEXT also where it has extras. NULL with v->failed set: no
// memory.
struct conversation_turn *conversation_turn(struct conversation *v, enum conversation_role role,
                                            enum conversation_kind first);
struct conversation_turn *conversation_new_turn(struct conversation *v,
                                                enum conversation_role role); // in any case
// The place of a kind in an assistant's turn: 0 reasoning, 1 content, 2 calls.
int conversation_rank(enum conversation_kind kind);
bool conversation_is_content(const struct conversation_part *p); // neither reasoning nor a call
// A message of a conversation as chats have them: a turn, or a result of a turn of them.
struct conversation_message {
    struct conversation_turn *turn;
    struct conversation_part *result; // or NULL
    struct conversation_part *parts;  // of its content, and what else a turn has
    int n_parts;
    int at, inner; // of the turn, of the result in it
};
// The next message; the first one after a zeroed m. False: there are no more.
bool conversation_next(const struct conversation *v, struct conversation_message *m);
// A new part after the others; parts of results likewise. NULL as above, or when t is NULL.
struct conversation_part *conversation_part(struct conversation *v, struct conversation_turn *t,
                                            enum conversation_kind kind);
struct conversation_part *conversation_inner(struct conversation *v,
                                             struct conversation_part *result,
                                             enum conversation_kind kind);
// Fills TEXT and REFUSAL from a string or an object, others with `raw`. p may be NULL.
void conversation_fill(struct conversation *v, struct conversation_part *p,
                       const struct json *from);
struct conversation_tool *conversation_tool(struct conversation *v, enum tool_kind kind);

// Keeps the members of an object that are not among `known` (names, NULL after the last).
void extras_take(struct conversation *v, struct extras *out, const struct json *object,
                 const char *const *known);
// Writes them, but those among `known`, which the writer has names for.
void extras_put(struct json_writer *w, const struct extras *x, const char *const *known);

#endif
