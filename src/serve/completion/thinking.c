// SPDX-License-Identifier: Apache-2.0
// Ends of reasoning; see thinking.h.
#include "serve/completion/thinking.h"

#include <string.h>

#include "base/num.h"
#include "spec/constraint/thinking_limit.h"

// Of the room for thinking, in eighths.
static int64_t share_of(const char *effort) {
    if (!strcmp(effort, "low") || !strcmp(effort, "minimal"))
        return 1;
    return !strcmp(effort, "medium") ? 4 : 8;
}

int64_t thinking_tokens(const struct params *p, int64_t room) {
    int64_t most = room - min_i64(room / 4, THINKING_REPLY);
    bool effort = p->effort[0] && strcmp(p->effort, "none") != 0;
    if (p->thinking == 0)
        return 0;
    if (p->thinking_tokens < 0 && !effort)
        return -1;
    if (effort)
        most = most * share_of(p->effort) / 8;
    return p->thinking_tokens >= 0 ? min_i64(p->thinking_tokens, most) : most;
}

bool thinking_constrain(struct completion *c) {
    const struct completion_prompt *prompt = c->prompts;
    int64_t room = c->s->n_ctx - (int64_t)prompt->tokens.count;
    struct thinking_limit o = {
        .t = c->s->tokenizer, .family = c->family, .inside = prompt->in_reasoning};
    struct constraint *limited = NULL;
    struct err e = {0};
    if (c->p.max_tokens >= 0)
        room = min_i64(room, c->p.max_tokens);
    if (c->family == REASONING_NONE || !o.t)
        return true;
    o.tokens = thinking_tokens(&c->p, room);
    o.closing = chat_template_closing(c->s->chat, &o.n_closing);
    if (o.tokens < 0 || (c->p.thinking == 0 && !o.inside))
        return true;
    if (thinking_limit_create(&limited, &o, c->constraint, &e)) {
        api_error_of(&c->error, &e);
        return false;
    }
    constraint_drop(c->constraint);
    c->constraint = limited;
    return true;
}
