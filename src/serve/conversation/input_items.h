// SPDX-License-Identifier: Apache-2.0
// What a kept response answered, as a list in pages. Each item of a known kind has an id there, its
// own or one that tells the response and the place: "msg_DIGITS_i2".
#ifndef COPPICE_SERVE_CONVERSATION_INPUT_ITEMS_H
#define COPPICE_SERVE_CONVERSATION_INPUT_ITEMS_H

#include <stdbool.h>

#include "base/json/json.h"
#include "serve/conversation/conversation.h"

struct input_page {
    const char *response; // its id
    bool ascending;       // else the newest item first
    size_t limit;         // items at most
    struct words after;   // goes on behind the item of that id; none: at the beginning
};

// Writes the page of these items as a list object. False: no item has the id `after`.
bool input_items_write(const struct json *items, const struct input_page *page,
                       struct json_writer *w);
// Writes the item of that id, as the list has it. False: there is none.
bool input_items_find(const struct json *items, const char *response, struct words id,
                      struct json_writer *w);

#endif
