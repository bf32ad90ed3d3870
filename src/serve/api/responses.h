// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses and the prompt of POST /v1/responses/input_tokens, with the kept responses:
// GET and DELETE /v1/responses/{id}, and GET /v1/responses/{id}/input_items. What is refused in its
// own words: POST /v1/responses/{id}/cancel and /v1/responses/compact. The body's items
// become a conversation (serve/conversation/responses.h) that is rendered as a chat; the answer is
// written as typed events or one object (serve/reply/responses.h).
#ifndef COPPICE_SERVE_API_RESPONSES_H
#define COPPICE_SERVE_API_RESPONSES_H

#include "serve/completion/completion.h"

extern const struct dialect api_responses_dialect;

// Checks and renders a body whose fields p holds, with what previous_response_id stands for. False
// with x filled. Any thread; out needs chat_text_fini in any case.
bool api_responses_render(struct service *s, const struct params *p, const struct json *body,
                          struct chat_text *out, struct api_error *x);

// Bytes of kept responses that a body refers to, or at least WORKERS_LONG of more. Any thread.
size_t api_responses_behind(struct service *s, const struct json *body);

// What a GET asks of a kept response.
struct response_view {
    const char *rest, *query; // behind "/v1/responses/"; of the request
};
bool response_view_streams(const struct response_view *v); // as events
// Appends the answer's body to an empty text. False with x filled. Any thread.
bool api_response_write(struct service *s, const struct response_view *v, struct str *out,
                        struct api_error *x);
// Bytes that are kept of what `rest` names; 0: nothing. Any thread.
size_t api_response_size(struct service *s, const char *rest);

service_handler api_response_delete, api_response_cancel, api_responses_compact;

#endif
