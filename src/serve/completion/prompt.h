// SPDX-License-Identifier: Apache-2.0
// The prompt of a conversation, the same way for all interfaces that have one: what a template can
// say of it (serve/conversation/plain.h), rendered, and encoded; and how far it is compressed. Text
// workers.
#ifndef COPPICE_SERVE_COMPLETION_PROMPT_H
#define COPPICE_SERVE_COMPLETION_PROMPT_H

#include "serve/completion/completion.h"

// Renders a conversation, which is plain then, with what p says of its prompt. False with x filled;
// chat_text_fini in any case.
bool prompt_render(const struct service *s, const struct params *p, struct conversation *v,
                   struct chat_text *out, struct api_error *x);
// Its tokens, with the places where others may part from them.
bool prompt_encode(const struct service *s, const struct params *p, struct conversation *v,
                   struct completion_prompt *out, struct api_error *x);
// The same of a conversation that has been made plain, which a second time would change.
bool prompt_encode_plain(const struct service *s, const struct params *p,
                         const struct conversation *v, struct completion_prompt *out,
                         struct api_error *x);

// Bounds the work on a prompt, of a conversation or not, that has no tokens yet: it ends when the
// client disconnects, and what is far beyond the context is not tokenised to its end.
void prompt_bound(const struct completion *c, struct completion_prompt *prompt);

// c's one prompt, of the conversation that c->d reads or of c->said as it has been read: `prepare`
// of struct dialect. False with c->error filled.
bool prompt_make(struct completion *c);
bool prompt_make_of(struct completion *c);
// The same again of what compression leaves of it: `shorten` of struct dialect.
bool prompt_shorten(struct completion *c);

// The thread that compresses: the server's options, with the session's ratio (compress/prefill.h)
// where they follow sessions and the request names one (0: none).
struct prefill_options prompt_compression(struct service *s, uint64_t session);
// Loop thread: tells that thread what an answer of the session took. Nothing for answers without
// guesses, nor while that thread has too much to do.
void prompt_note_answer(struct service *s, uint64_t session, const struct answer_totals *t);

#endif
