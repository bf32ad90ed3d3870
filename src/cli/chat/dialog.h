// SPDX-License-Identifier: Apache-2.0
// What `chat` and `generate --chat` share: the template that the options name, the messages so far,
// and what the model is to read of them. It runs no model.
#ifndef COPPICE_CLI_CHAT_DIALOG_H
#define COPPICE_CLI_CHAT_DIALOG_H

#include "cli/cli.h"
#include "cli/models/compression.h"
#include "engine/session/session.h"
#include "text/chat/chat.h"

// A zeroed one is valid and empty.
struct dialog {
    const struct tokenizer *t; // borrowed
    struct chat_template *form;
    struct json *variables; // of the template, from the options; or NULL
    struct conversation conversation;
};

// The template of the options, else that of a text of its own, else the model's; ERR_UNSUPPORTED
// without tokenizer or template.
int dialog_open(struct dialog *c, const struct cli_args *a, const struct session *s, struct err *e);
void dialog_close(struct dialog *c);

// A template from a file of its own; t: see chat_template_create. Errors name the file.
int dialog_template(const char *path, const struct tokenizer *t, struct chat_template **out,
                    struct err *e);
// That of a model's file with its vocabulary; no weights are read.
int dialog_template_of_model(const char *path, struct tokenizer **t, struct chat_template **out,
                             struct err *e);

// Appends a message. reasoning: of the assistant, or NULL. ERR_FORMAT when a text is not UTF-8.
int dialog_say(struct dialog *c, enum conversation_role role, const struct str *text,
               const struct str *reasoning, struct err *e);
void dialog_cut(struct dialog *c, int n); // keeps the first n messages

// The prompt of the next answer.
int dialog_render(const struct dialog *c, struct chat_text *out, struct err *e);
// The prompt of `generate --chat`: the text of -p or -f as a user's message, after --system, or
// the conversation of --messages.
// The kept part of a long one where k compresses; report: what became of it.
int dialog_prompt(const struct cli_args *a, const struct session *s, const struct compression *k,
                  struct token_list *out, struct prefill_report *report, struct err *e);
// Where k compresses, what stays of the messages takes their place if they are long for the
// options, or for `room` tokens. report: what became of it, in tokens of the model.
int dialog_shorten(struct dialog *c, const struct compression *k, int64_t room,
                   struct prefill_report *report, struct err *e);
// A JSON object from a file; ERR_FORMAT names it.
int dialog_read_file(const char *path, struct json **out, struct err *e);

#endif
