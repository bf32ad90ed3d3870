// SPDX-License-Identifier: Apache-2.0
// The form that a request wants of its replies, as a constraint of them.
#ifndef COPPICE_SERVE_COMPLETION_REPLY_FORM_H
#define COPPICE_SERVE_COMPLETION_REPLY_FORM_H

#include "serve/completion/completion.h"

// Sets c->constraint where the request says what the reply must be; in a text worker, when the
// prompts are made. A block of reasoning before it stays free. False with c->error filled: the text
// of the field is refused, in its name.
bool reply_form_constrain(struct completion *c);

#endif
