// SPDX-License-Identifier: Apache-2.0
// What a request for generated text says, out of its JSON body by the table of fields.h: all
// sampling fields of the OpenAI interface and the spellings of other servers. null counts as
// absent, what cannot be honoured is refused with the field's name, and what has no effect is
// listed in the answer (body.h), never dropped silently. Messages and prompts stay in the body
// (serve/conversation/, serve/api/completions.c).
#ifndef COPPICE_SERVE_REQUEST_PARAMS_H
#define COPPICE_SERVE_REQUEST_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/json/json.h"
#include "base/str.h"
#include "engine/batch/request.h"
#include "serve/reply/stop_match.h"
#include "serve/request/error.h"
#include "text/tokenizer/tokenizer.h"

enum endpoint { // bits
    ENDPOINT_CHAT = 1,
    ENDPOINT_COMPLETIONS = 2,
    ENDPOINT_TEMPLATE = 4, // POST /apply-template
    ENDPOINT_TOKENIZE = 8,
    ENDPOINT_DETOKENIZE = 16,
    ENDPOINT_ANTHROPIC = 32, // POST /v1/messages
    ENDPOINT_COUNT = 64,     // POST /v1/messages/count_tokens
    ENDPOINT_RESPONSES = 128,
    ENDPOINT_INPUT_TOKENS = 256, // POST /v1/responses/input_tokens
    ENDPOINT_TEXT = ENDPOINT_CHAT | ENDPOINT_COMPLETIONS | ENDPOINT_ANTHROPIC |
                    ENDPOINT_RESPONSES, // that generate
    ENDPOINT_MESSAGES = ENDPOINT_CHAT | ENDPOINT_TEMPLATE,
};

enum {
    PARAMS_MAX_MODEL = 1024,  // bytes of `model`, which is echoed
    PARAMS_MAX_SESSION = 256, // of `session_id`
    PARAMS_MAX_CHOICES = 256, // prompts times n
    PARAMS_MAX_BIAS = 1024,
    PARAMS_MAX_LOGPROBS = 20,
    PARAMS_MAX_TOOLS = 1024,
};

// The server's values, and the defaults of requests.
struct params_limits {
    int vocab;                         // token ids are below
    const struct tokenizer *tokenizer; // NULL: the model's file has none
    int slots;                         // max choices of one prompt
    bool has_draft;                    // a draft model is loaded
    struct sample_params sample;       // defaults
    enum speculate how;                // default
};

// The header of an answer that names the members of its request that did nothing, with commas
// between.
#define PARAMS_IGNORED_HEADER "x-ignored-fields"

struct params {
    struct sample_params sample;
    int64_t max_tokens; // -1: as many as the context has room for
    int64_t n;          // choices of a prompt
    bool stream, include_usage;
    bool ignore_eos, echo;
    bool logprobs;        // of each token
    int64_t top_logprobs; // likeliest ones besides the chosen one; -1: no log-probabilities
    struct str ignored;   // names of what did nothing (body.h)
    struct stop_set stops;
    int32_t *stop_ids; // [n_stop_ids] tokens that end the reply, too
    int n_stop_ids;
    bool keeps_stop;         // what ended the reply is part of its text
    int64_t min_tokens;      // before which neither ends it
    struct logit_bias *bias; // [n_bias] distinct tokens
    int n_bias;
    char *model;           // NULL where the request names none
    int thinking;          // 1 on, 0 off, -1 not said: for the template
    bool prewarms;         // the prompt is read for the cache, and nothing is answered
    bool omits_thinking;   // its text goes out within signatures only (serve/api/messages.c)
    char effort[32];       // "": not said
    char format_field[48]; // the field that says what the reply must be; "": none does
    enum structured_form format;
    bool format_strict; // a schema of which nothing may be taken in a wider sense
    struct str format_text;
    int64_t thinking_tokens; // max tokens of reasoning; -1: no end to it
    // add_generation_prompt and continue_final_message: 1 true, -1 false, 0 not said.
    int open_reply, continue_last;
    bool add_special, no_special, with_pieces; // of /v1/tokenize
    // In the body, or NULL; prompt is a string or an array, text a string, the others arrays,
    // kwargs an object.
    const struct json *messages, *tools, *documents, *kwargs, *prompt, *text, *tokens;
    const struct json *tool_choice; // a string or an object
    const struct json *parallel;    // parallel_tool_calls
    // The older form of tools and tool_choice; the answer's call is of that form, too.
    const struct json *functions, *function_call;
    enum speculate how;
    bool logit_hash, token_ids, trees;
    const struct cancel_check
        *client;      // whether the client waits for the answer; the caller's, NULL: yes
    uint64_t session; // adapt_id of the conversation's name; 0: not said
};

void params_fini(struct params *p);

// Adds the place of a member that does nothing, "input[3].status", to p->ignored.
void params_ignore(struct params *p, const char *place);

enum field_kind {
    FIELD_BOOL,   // bool
    FIELD_INT,    // int64_t, within lo..hi
    FIELD_NUM,    // double, within lo..hi
    FIELD_STRING, // read() only; at most hi characters where that is not 0
    FIELD_ARRAY,  // const struct json *
    FIELD_OBJECT, // const struct json *
    FIELD_ANY,    // read() only; `schema` says what it may be
};

struct field;
// One value that is being read: not null, and of its row's kind.
struct reading {
    struct params *p;
    const struct field *f;
    const struct json *v;
    const struct params_limits *l;
    struct api_error *x;
};
// False with x filled to refuse the value.
typedef bool field_read_fn(const struct reading *r);

struct field {
    const char *name;
    unsigned endpoints; // bits of enum endpoint
    enum field_kind kind;
    double lo, hi;
    size_t offset;       // in struct params, for kinds that have a place and no read()
    field_read_fn *read; // NULL: stored at offset; a number is then checked against lo..hi
    const char *schema;  // for the document, as in openapi.c; NULL: as kind, lo and hi say
    const char *help;    // one sentence
};

// Reads the rows of a table for this endpoint from an object.
bool fields_read(struct params *p, const struct field *rows, size_t n, const struct json *object,
                 enum endpoint endpoint, const struct params_limits *l, struct api_error *x);

#endif
