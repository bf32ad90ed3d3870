// SPDX-License-Identifier: Apache-2.0
// See reply_form.h.
#include "serve/completion/reply_form.h"

#include <stdio.h>

#include "serve/workers.h"

bool reply_form_constrain(struct completion *c) {
    const struct params *p = &c->p;
    const struct session *s = engine_session(c->s->engine);
    struct err e = {0};
    if (!p->form_field[0])
        return true;
    bool schema = p->form == STRUCTURED_SCHEMA || p->form == STRUCTURED_OBJECT;
    if (c->tools.set.n > 0 && (c->tools.required || (c->constraint && schema)))
        return true; // a call must come, or tool_constrain has seen to it
    if (c->tools.set.n > 0)
        return api_refuse(&c->error, p->form_field,
                          "%s beside tools that may be called is not supported: send "
                          "tool_choice none with it, a JSON schema, or leave one of them out",
                          p->form_field);
    if (!s) {
        api_fail(&c->error, 503, NULL, "the model is being loaded");
        return false;
    }
    struct structured w = {.form = p->form,
                           .text = p->form_text.data ? p->form_text.data : "",
                           .n = p->form_text.len,
                           .closing = reasoning_closing(c->family),
                           .inside = c->prompts->in_reasoning,
                           .one_of_as_any = !p->form_strict,
                           .gone = &c->patience};
    if (p->thinking != 0)
        w.opening = reasoning_opening(c->family);
    workers_mark(c->s->workers);
    if (!structured_make(session_structured(s), &w, &c->constraint, &e))
        return true;
    if (e.code == ERR_MEMORY || e.code == ERR_CANCELLED) {
        api_error_of(&c->error, &e);
        return false;
    }
    return api_refuse(&c->error, p->form_field, "%s: %s", p->form_field, e.text);
}
