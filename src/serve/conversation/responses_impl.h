// SPDX-License-Identifier: Apache-2.0
// What reader and writer of responses.h share: which members of an object have a name
// in the form.
#ifndef COPPICE_SERVE_CONVERSATION_RESPONSES_IMPL_H
#define COPPICE_SERVE_CONVERSATION_RESPONSES_IMPL_H

#include <stdbool.h>

// NULL stands behind the last.
extern const char *const responses_of_message[];
extern const char *const responses_of_text[];
extern const char *const responses_of_refusal[];
extern const char *const responses_of_reasoning[];
extern const char *const responses_of_call[];
extern const char *const responses_of_custom_call[];
extern const char *const responses_of_result[];
extern const char *const responses_of_function[];
extern const char *const responses_of_custom[];

// Whether an item of this kind, which is unknown here, is what came of a call.
bool responses_is_result(const char *type);

#endif
