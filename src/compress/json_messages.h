// SPDX-License-Identifier: Apache-2.0
// Conversations as OpenAI's requests spell them: an array of messages with a role and a content
// that is a text, an array of parts, or absent. Texts are read for compression and replaced by what
// stays of them; everything else goes through as it is.
#ifndef COPPICE_COMPRESS_JSON_MESSAGES_H
#define COPPICE_COMPRESS_JSON_MESSAGES_H

#include "base/json/json.h"
#include "base/memory/arena.h"
#include "compress/compress.h"

// Zeroed is valid; texts are borrowed from the JSON.
struct json_messages {
    struct compress_conversation v;
    const struct json *from;
    struct arena arena;
};

// ERR_FORMAT with the number of the message: no array of objects, a role that is no text, a content
// of another kind, a part of type "text" without a text. Call json_messages_fini in any case.
int json_messages_read(struct json_messages *m, const struct json *messages, struct err *e);
// The array with what stays of the texts; gap: see compress_kept.
void json_messages_write(const struct json_messages *m, const struct compress_result *r,
                         const char *gap, struct json_writer *w);
void json_messages_fini(struct json_messages *m);

#endif
