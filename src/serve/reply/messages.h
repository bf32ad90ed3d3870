// SPDX-License-Identifier: Apache-2.0
// The writer of Anthropic's Messages interface: content blocks as server-sent events, or one
// message with them. It is the answer side of struct dialect (serve/completion/completion.h); one
// choice a request. Loop thread only.
#ifndef COPPICE_SERVE_REPLY_MESSAGES_H
#define COPPICE_SERVE_REPLY_MESSAGES_H

#include "serve/completion/completion.h"

// As struct dialect has them.
void blocks_start(struct completion *c);
void blocks_item_begin(struct completion *c, struct choice *k, const struct answer_item *it);
void blocks_item_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                       const struct answer_piece *p);
void blocks_item_end(struct completion *c, struct choice *k, const struct answer_item *it);
void blocks_end(struct completion *c);
void blocks_error(struct completion *c, const struct api_error *why);
void blocks_alive(struct completion *c);
void blocks_whole(struct completion *c, struct json_writer *w);

#endif
