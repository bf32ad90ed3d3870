// SPDX-License-Identifier: Apache-2.0
// One request for generated text (struct completion), the choices of its answer, and what the
// interfaces differ in (struct dialect). Types only: lifecycle.h runs them.
#ifndef COPPICE_SERVE_COMPLETION_COMPLETION_H
#define COPPICE_SERVE_COMPLETION_COMPLETION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/rng.h"
#include "serve/conversation/plain.h"
#include "serve/conversation/tools.h"
#include "serve/reply/answer.h"
#include "serve/reply/logprobs.h"
#include "serve/reply/text.h"
#include "serve/service.h"

struct completion_prompt {
    struct token_list tokens;
    bool over;                               // there are more than tokens.max, and none are kept
    bool in_reasoning;                       // it ends in an open block of reasoning
    int64_t positions[CHAT_SPLIT_POSITIONS]; // where other prompts are likely to part from it
    int n_positions;
};

// Whether a request is one that is being answered already, sent again by a client that has lost the
// answer: the same bytes under the same key, and marked as such. An Idempotency-Key says which
// request is meant. The count of retries that the SDKs send does not: of equal requests (several
// samples of one prompt, an evaluation, users of one key) it may be any of them, so it counts only
// for one whose client has closed its connection. Keys and bodies are held as hashes.
struct resend_mark {
    uint64_t key;     // of the API key that was shown; 0: none
    uint64_t once;    // of the Idempotency-Key; 0: none
    int count;        // of retries, as the client counts them
    size_t n;         // bytes of the body
    uint64_t body[2]; // its hashes
};

struct choice;
struct completion;

// The differences of the interfaces. Their reader makes the prompts of a body in a text worker;
// their writer puts the answer into words of its own in the loop thread.
struct dialect {
    enum endpoint endpoint;
    const char *path, *id_prefix;
    // Bytes of what is kept here that a body refers to, which make its text longer; NULL: none.
    size_t (*referred)(struct service *s, const struct json *body);
    // Reads the conversation of a body whose fields p holds, some of which it may set; false with x
    // filled. Any thread. NULL: there is none.
    bool (*read)(struct service *s, struct params *p, const struct json *body,
                 struct conversation *v, struct api_error *x);
    // Makes the prompts, in a text worker; false with c->error filled.
    bool (*prepare)(struct completion *c);
    // Makes them again of what stays of a long prompt, in the thread for that; false likewise.
    bool (*shorten)(struct completion *c);
    void (*drop)(struct completion *c); // frees c->own; NULL: there is none

    // A streamed answer. Each appends its events to c->s->out (serve/http/sse.h), which is sent
    // after it. NULL: nothing is said at that point. start, alive and error may be called
    // before c->prepared, and must then not look at prompts and choices.
    void (*start)(struct completion *c);
    // The items of a choice, one after the other: what a reply is made of.
    void (*item_begin)(struct completion *c, struct choice *k, const struct answer_item *it);
    void (*item_delta)(struct completion *c, struct choice *k, const struct answer_item *it,
                       const struct item_text *p);
    void (*item_end)(struct completion *c, struct choice *k, const struct answer_item *it);
    void (*finish)(struct completion *c, struct choice *k); // of a choice; k->end says why
    void (*end)(struct completion *c);                      // of all of them
    void (*error)(struct completion *c, const struct api_error *why); // in place of the end
    void (*alive)(struct completion *c); // a keep-alive while nothing comes

    // The answer in one piece, into an empty writer.
    void (*whole)(struct completion *c, struct json_writer *w);
    bool keeps_text; // items hold all of their text: `whole`, or an event, needs it
};

struct choice {
    struct completion *c;
    int index;
    struct stream *stream;
    struct reply_text text;        // of the loop thread
    struct reply_text engine_text; // of the stop hook, in the engine thread
    int64_t seen;                  // tokens taken into the text
    double newest_ms;              // ms, when the newest one was; 0: none yet
    int64_t shown;                 // tokens whose log-probabilities have been written
    int64_t offset;                // characters of text before them
    struct token_match match;      // tokens whose words have been found in items, or were a call's
    bool echoed;                   // the prompt has been written
    struct answer_items items;
    int64_t max_tokens; // as the engine has it
    bool ended;         // all of it has been taken in
    struct stream_end end;
};

struct completion {
    struct service *s;
    const struct dialect *d;
    struct completion *prev, *next;
    struct exchange *x; // NULL: given back
    char id[RANDOM_ID];
    int64_t created; // seconds since 1970
    double arrived;  // ms
    double written;  // ms, of the newest chunk
    double ended;    // ms; 0: not yet

    char peer[64];
    struct resend_mark mark;
    struct http_task handed;   // of the worker, when it is prepared
    struct http_memory memory; // the memory of all that the body became
    size_t body_bytes;
    struct str text;   // the body as it came, until it has been read
    struct json *body; // the same, while p borrows from it
    struct params p;
    struct request_tools tools;
    struct conversation said; // borrows from body; plain (serve/conversation/plain.h)
    void *own;                // of the dialect
    struct prefill_report compression;
    struct completion_prompt *prompts;
    int n_prompts;
    enum reasoning_family family;
    struct constraint *constraint; // of each choice; NULL: none
    struct str rendered;           // --log-prompts
    struct {                       // --keep-requests: the constraint, as JSON; empty: none
        struct str tools, format, thinking;
        bool tools_held; // the tools' grammar is part of it
    } rules;
    struct api_error error;

    struct choice *choices; // [n_choices], those of a prompt next to each other
    int n_choices, open;    // open: not ended
    uint64_t *hashes;       // [n_choices] of answers, where requested; NULL: not
    bool streaming;         // the head of the answer has been sent
    // The request has been read and does not change any more: a stream may begin although
    // its prompts are still being made.
    atomic_bool readable;
    atomic_bool disconnected;   // the client has, or the answer has been cut off
    struct cancel_check client; // reads it: for work on the request's text
    // The same for work on grammars of its reply, which steps aside where it has taken long since
    // workers_mark. ERR_CANCELLED then also means that too much of such work waits.
    struct cancel_check yield_check;
    atomic_bool posted; // a task for what the engine has published is on its way
    bool prepared, dead;

    struct exchange *watcher; // of its trees; NULL: none
    bool watched;             // there has been one
};

#endif
