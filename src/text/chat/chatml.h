// SPDX-License-Identifier: Apache-2.0
// ChatML, the form in which many models read conversations: <|im_start|>, the role, a line end, the
// words, <|im_end|>, a line end. It turns messages into tokens; only the marks set here are control
// tokens, never text of a message. It knows no other form and no templates.
#ifndef COPPICE_TEXT_CHAT_CHATML_H
#define COPPICE_TEXT_CHAT_CHATML_H

#include <stdbool.h>

#include "text/tokenizer/tokenizer.h"

struct chatml {
    const struct tokenizer *t; // borrowed
    int32_t start, end;        // <|im_start|>, <|im_end|>
};

// ERR_UNSUPPORTED when the vocabulary lacks the marks.
int chatml_init(struct chatml *c, const struct tokenizer *t, struct err *e);

// Appends a whole message. ERR_FORMAT when text is not UTF-8. After an error out may have grown.
int chatml_message(const struct chatml *c, const char *role, const char *text, size_t n,
                   struct token_list *out, struct err *e);

// Appends the beginning of a message, whose words follow from elsewhere.
int chatml_open(const struct chatml *c, const char *role, struct token_list *out, struct err *e);

// Appends what ends such a message. ended: its tokens end in <|im_end|> already.
int chatml_close(const struct chatml *c, bool ended, struct token_list *out, struct err *e);

#endif
