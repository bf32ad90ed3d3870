// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back, and conversations to text, without generating: POST /v1/tokenize,
// /v1/detokenize, /apply-template, /v1/messages/count_tokens, /v1/responses/input_tokens; and kept
// responses, which may be long: GET /v1/responses/{id}. Each is done by a text worker.
#ifndef COPPICE_SERVE_API_TEXT_H
#define COPPICE_SERVE_API_TEXT_H

#include "serve/service.h"

service_handler api_tokenize;
service_handler api_detokenize;
service_handler api_apply_template;
service_handler api_count_tokens;
service_handler api_input_tokens;
service_handler api_response_get;

#endif
