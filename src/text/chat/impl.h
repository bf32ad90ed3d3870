// SPDX-License-Identifier: Apache-2.0
// What the files of text/chat/chat.h share: the template with what is known of it, and the steps of
// a rendering.
#ifndef COPPICE_TEXT_CHAT_IMPL_H
#define COPPICE_TEXT_CHAT_IMPL_H

#include "text/chat/chat.h"

// Members of messages that a conversation has names for; NULL after the last.
enum chat_members { OF_MESSAGE, OF_ANSWER, OF_DETAILED_ANSWER, OF_RESULT, OF_CALL };
extern const char *const chat_members[][10];

// The treatment of contents that are lists of parts.
enum chat_parts {
    CHAT_PARTS_JOIN, // it takes strings only
    CHAT_PARTS_KEEP, // it takes both
    CHAT_PARTS_NEED, // it takes lists only
};

enum chat_system {
    CHAT_SYSTEM_ANYWHERE,
    CHAT_SYSTEM_FIRST, // one message, in front
    CHAT_SYSTEM_NEVER, // its words stand before those of the user
};

// What the probes at its creation found in a template, and what follows from it.
struct chat_traits {
    bool developer;                            // it has the role
    enum chat_parts parts[CONVERSATION_ROLES]; // per role
    enum chat_system system;
    bool text_arguments; // of calls; otherwise objects
    bool null_content;   // besides calls; otherwise ""
    bool short_ids;      // ids of calls have nine letters and digits
    bool one_of_both;    // besides calls, content or reasoning
    // What it refuses or loses, so that the words go elsewhere:
    bool join_users, join_answers; // neighbours of one speaker become one
    bool user_first;               // an answer in front: an empty message of the user before it
    bool user_after;               // words of the user after a result: go into the result
    bool single_calls;             // several calls of a message: one message each, with its result
    bool plain_calls;              // calls: words of the assistant
    bool plain_results;            // results: words of the user
    bool lone_system;              // nothing but a message of the system: is the user's
    bool tools_lost;               // declarations of tools: none come out
    bool described; // of tools_lost or as an option has it: the words of the system say the tools
    // Tools and documents that are absent are undefined; otherwise none, as in transformers.
    bool undefined_lists;
};

struct chat_template {
    struct jinja *program;
    struct str text;
    struct str bos, eos; // empty: none
    bool has_tokens;     // bos and eos are those of a vocabulary
    enum reasoning_family family;
    enum tool_family calls; // how replies write calls; where tools are described, in prompts too
    struct str closing;     // between reasoning and content; empty where it has no reasoning
    struct chat_traits traits;
    struct token_list guarded;      // user-defined tokens that the text names
    struct chat_template *tool_use; // in its place where there are tools; or NULL
};

static inline bool is_system_role(enum conversation_role role) {
    return role == CONVERSATION_SYSTEM || role == CONVERSATION_DEVELOPER;
}

// Fills t->traits and t->closing. Only ERR_MEMORY is an error.
int chat_probe(struct chat_template *t, struct err *e);

// A conversation's messages in the form that the template takes. *last: the last message, when it
// is the assistant's own words, else absent.
int chat_repair(const struct chat_template *t, struct jinja_context *c, const struct chat_input *in,
                struct jinja_value *out, struct jinja_value *last, struct err *e);
// Its tools.
int chat_tools(struct jinja_context *c, const struct conversation *v, struct jinja_value *out,
               struct err *e);

#endif
