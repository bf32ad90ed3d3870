// SPDX-License-Identifier: Apache-2.0
// Conversations as OpenAI's interface has them in JSON, for the compressor: their texts go in, and
// the same messages come out with what stays of each text. Nothing else of a message is looked at
// or changed.
#ifndef COPPICE_COMPRESS_COMPRESS_JSON_H
#define COPPICE_COMPRESS_COMPRESS_JSON_H

#include "base/json.h"
#include "compress/compress.h"

// A conversation that borrows from an array of messages. Zeroed is valid and empty.
struct compress_json {
    struct compress_conversation v;
    struct compress_message *messages; // [v.n]
    struct compress_part *parts;
    const struct json *from;
};

// Contents that are text, and parts of contents that are strings or have a `text`, are texts; what
// else there is has none. ERR_FORMAT: no array of objects with a role; ERR_MEMORY.
int compress_json_read(struct compress_json *c, const struct json *messages, struct err *e);
void compress_json_fini(struct compress_json *c);

// Writes the array of messages with what stays of their texts, `gap` (NULL: nothing) wherever
// something was left out.
void compress_json_write(struct json_writer *w, const struct compress_json *c,
                         const struct compress_result *r, const char *gap);

#endif
