// SPDX-License-Identifier: Apache-2.0
// Conversations to text to tokens, by a model's chat template. A request is brought into the form
// that the template understands (which one that is, a few probes at its creation find), rendered,
// and encoded so that only what the template itself wrote can be control tokens: whatever a
// message, a name, a tool or its result spells stays text. It reads no files and generates nothing.
#ifndef COPPICE_TEXT_CHAT_CHAT_H
#define COPPICE_TEXT_CHAT_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "text/chat/conversation.h"
#include "text/chat/reasoning.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/calls.h"

// A template, and what is known of it; read-only, threads may share it.
struct chat_template;

// From a template's text (copied). t: the vocabulary, whose BOS and EOS the template sees as
// bos_token and eos_token; NULL for renderings that are not encoded. ERR_FORMAT for what is no
// template or empty.
int chat_template_create(struct chat_template **out, const char *text, size_t n,
                         const struct tokenizer *t, struct err *e);
// The templates of a model's file: tokenizer.chat_template, and its variant named tool_use where
// there are tools; ChatML when the file has none (an empty one is none) and the vocabulary its
// marks, else ERR_UNSUPPORTED. Nothing of g is needed afterwards.
int chat_template_of_gguf(struct chat_template **out, const struct gguf *g,
                          const struct tokenizer *t, struct err *e);
void chat_template_free(struct chat_template *t); // NULL is allowed

const char *chat_template_text(const struct chat_template *t, size_t *n);
enum reasoning_family chat_template_reasoning(const struct chat_template *t);
// How replies call tools, by the template that is used where there are any.
enum tool_family chat_template_calls(const struct chat_template *t);

// Templates that do not print the tools of a conversation. Unless it is said otherwise, the tools
// are then described in the words of the system, in the format of the template's family, hermes
// where it has none; calls and results that it does not print either are words of that format.
// Whether the template prints no tools.
bool chat_template_loses_tools(const struct chat_template *t);
// Another way, before the template is shared. format: "auto"; "none", tools that the template does
// not print are lost; or the name of a family, in whose format all tools, calls and results are
// described, whatever the template has. ERR_USAGE for other names, and for harmony.
int chat_template_set_tool_format(struct chat_template *t, const char *format, struct err *e);
// The name of the family whose format prompts describe; "none": tools are lost; NULL: the template
// has them.
const char *chat_template_tool_format(const struct chat_template *t);

// The text that ends a block of reasoning, its mark with the blanks that the template itself writes
// around it; NULL: the template has no reasoning.
const char *chat_template_closing(const struct chat_template *t, size_t *n);

// The input of the rendering; everything is borrowed, NULL is absent. Strings of it are never
// trusted.
struct chat_input {
    const struct conversation *said; // turns that the template reads, of words alone; and tools
    const struct json *documents;    // array
    // An object whose members become variables, as chat_template_kwargs, in place of those that
    // are set here but messages, tools, documents and add_generation_prompt.
    const struct json *kwargs;
    // Likewise enable_thinking and reasoning_effort, unless kwargs have them: 1 on, -1 off, 0
    // nothing; NULL or "" nothing.
    int thinking;
    const char *effort;
    // The answer of the assistant is to begin. When the last message is the assistant's own words,
    // it is continued instead; one of the assistant without words, reasoning and calls is left out.
    bool add_generation_prompt;
    bool keep_last;                    // the last message is whole though it is the assistant's
    const struct cancel_check *cancel; // ERR_CANCELLED once the result is not needed
};

// Rendered text, by origin: spans partition it, and neighbours differ. Zeroed is valid.
struct chat_text {
    struct str text;
    struct jinja_span *spans;
    size_t n_spans;
    const struct chat_template *of; // that it was rendered by; must live as long
    bool in_reasoning;              // it ends in an open block of reasoning
};
void chat_text_fini(struct chat_text *x);

// Renders a request with repairs: developer is system where the template does not have it, parts of
// text are joined, arguments of calls are objects or text as the template takes them, reasoning
// stands under the names it reads, missing contents and ids are filled in, system messages go where
// the template takes them. Any thread. ERR_FORMAT: there are none, or the other members are not of
// the form; ERR_USAGE: the template refuses them (its own words); ERR_LIMIT: too much.
int chat_render(const struct chat_template *t, const struct chat_input *in, struct chat_text *out,
                struct err *e);

// Renders an object whose members are the variables of the template, as they are: messages, tools,
// documents, add_generation_prompt and any others.
int chat_render_raw(const struct chat_template *t, const struct json *variables,
                    struct chat_text *out, struct err *e);

// Appends the ids of a rendered text, with BOS in front where the vocabulary has one and the text
// does not begin with it. Control tokens, and user-defined ones that the template's text names, are
// recognised only in what the template wrote. After an error out is as it was.
int chat_encode(const struct tokenizer *t, const struct chat_text *x, struct token_list *out,
                struct err *e);

// Where other conversations are likely to part from this one, as numbers of ids[] of its encoding,
// rising, at most CHAT_SPLIT_POSITIONS: after system and tools, before the last user's words, and
// before the opening of the reply. Returns how many there are; 0 also where the template does not
// say.
enum { CHAT_SPLIT_POSITIONS = 3 };
int chat_split_positions(const struct chat_template *t, const struct chat_input *in,
                         const struct chat_text *x, const struct tokenizer *k,
                         const struct token_list *ids, int64_t at[CHAT_SPLIT_POSITIONS]);

// The same after tokens that stand for an earlier rendering and its answer: *keep of ids[0..n)
// begin the text as well and may stay, tokens of the answer as they were chosen; the ids of what
// follows them are appended.
struct chat_tokens {
    const int32_t *ids;
    size_t n;
};
int chat_encode_after(const struct tokenizer *t, const struct chat_text *x,
                      const struct chat_tokens *before, size_t *keep, struct token_list *out,
                      struct err *e);

#endif
