// SPDX-License-Identifier: Apache-2.0
// The fields that requests may have: one row each, from which bodies are read (params.h) and the
// OpenAPI document is written (serve/api/openapi.h). Rows are read in their order, so of several
// spellings of one thing the last counts. What becomes of fields without a row is body.c's to say.
#ifndef COPPICE_SERVE_REQUEST_FIELDS_H
#define COPPICE_SERVE_REQUEST_FIELDS_H

#include <stddef.h>

#include "serve/request/params.h"

extern const struct field fields[];
extern const size_t fields_count;

// Fields of the object `coppice` of generating requests.
extern const struct field fields_extra[];
extern const size_t fields_extra_count;

// What rows need besides a check of kind and range: readers.c, tokens.c, reply_format.c.
field_read_fn field_read_model, field_read_prompt, field_read_text, field_read_stream_options,
    field_read_top_p, field_read_top_k;
field_read_fn field_read_seed, field_read_stop, field_read_stop_ids, field_read_logit_bias,
    field_read_n, field_read_best_of, field_read_suffix;
field_read_fn field_read_response_format, field_read_tools, field_read_parallel,
    field_read_tool_choice, field_read_functions, field_read_function_call;
field_read_fn field_read_schema, field_read_grammar, field_read_regex, field_read_choice,
    field_read_structured;
// The value of a field of another interface that is as response_format is.
bool field_read_format(struct params *p, const char *field, const struct json *v,
                       struct api_error *x);
field_read_fn field_read_generation_prompt, field_read_continue_final, field_read_effort,
    field_read_thinking, field_read_enable_thinking, field_read_budget;
field_read_fn field_read_system, field_read_anthropic_thinking, field_read_output_config,
    field_read_anthropic_choice, field_read_thread, field_read_compaction, field_read_modalities;
field_read_fn field_read_parse_special, field_read_speculate, field_read_session;
field_read_fn field_read_input, field_read_noted, field_read_metadata, field_read_reasoning;
field_read_fn field_read_text_options;
field_read_fn field_read_background, field_read_unkept, field_read_include,
    field_read_cache_options;

#endif
