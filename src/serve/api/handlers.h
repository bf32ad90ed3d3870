// SPDX-License-Identifier: Apache-2.0
// What answers the paths of api.c, by file of this folder.
#ifndef COPPICE_SERVE_API_HANDLERS_H
#define COPPICE_SERVE_API_HANDLERS_H

#include "serve/api/events.h"
#include "serve/api/openapi.h"
#include "serve/completion/completion.h"

// The interfaces that generate text: completions.c, messages.c, responses.c.
extern const struct dialect api_chat_dialect, api_completions_dialect, api_messages_dialect,
    api_responses_dialect;

// responses.c: what c->own is with its dialect.
struct responses_own {
    // Fields of the request that the answer says again, an object; of the loop thread once the
    // answer is made.
    struct json *echo;
    struct response_events events;
    bool summarises;  // reasoning goes out as its own summary: the client requested one
    bool opaque;      // reasoning goes out as opaque text, too (serve/reply/opaque.h)
    bool keeps;       // the answer is kept for requests to come, with `input`
    struct str input; // JSON array of all items before the answer
};
// Bytes of kept responses that a body refers to, or at least WORKERS_LONG of more. Any thread.
size_t api_responses_referred(struct service *s, const struct json *body);

// completions.c: appends an array of ids below `vocab`. False with x filled; name: of the array,
// for the sentence.
bool api_token_ids(const struct json *array, int vocab, const char *name, struct token_list *out,
                   struct api_error *x);

// models.c: what is served, and LM Studio's words for it.
service_handler api_models, api_model, api_lmstudio_models, api_lmstudio_model;
// status.c: how the server is.
service_handler api_health, api_tokenizer_info, api_props, api_slots, api_metrics;
// text.c: text to tokens and back, conversations to text, and kept responses, which may be long.
text_work text_tokenize, text_detokenize, text_apply_template, text_count_tokens, text_input_tokens;
void text_start(struct service *s, struct exchange *x, enum endpoint endpoint, text_work *work);
service_handler api_response_get;
// kept.c: kept responses, and what is refused in words of its own.
service_handler api_response_delete, api_response_cancel, api_responses_compact;

#endif
