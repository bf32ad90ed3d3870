// SPDX-License-Identifier: Apache-2.0
// The answer of a request for text: chunks while it comes, or one body. Loop thread only.
#ifndef COPPICE_SERVE_COMPLETION_WRITE_H
#define COPPICE_SERVE_COMPLETION_WRITE_H

#include "serve/completion.h"

// Head of a streamed answer and the first chunks, which say that somebody is there.
void completion_write_begin(struct completion *c);
// What of a choice has been taken in and not been written; with its end where it has ended.
void completion_write_chunk(struct completion *c, struct choice *k);
// A chunk without words, where nothing has been written for a while.
void completion_write_alive(struct completion *c);
// Gives the exchange back: usage where asked for and the end mark, or the whole answer.
void completion_write_end(struct completion *c);
// Gives the exchange back with an error, in whatever form is still possible.
void completion_write_error(struct completion *c, const struct api_error *why);

// Sums over the choices; whole once all have ended.
struct answer_totals completion_totals(const struct completion *c);

#endif
