// SPDX-License-Identifier: Apache-2.0
// Kept responses (serve/reply/store.h) as clients get them: one, its events again, the items
// that it answered in pages; and as requests refer to them. Any thread.
#ifndef COPPICE_SERVE_API_KEPT_H
#define COPPICE_SERVE_API_KEPT_H

#include "serve/request/error.h"
#include "serve/service.h"
#include "text/chat/conversation.h"

// The stored response, or a part of it, as JSON. False with x filled: no memory, or too much of it.
bool kept_parse(const struct str *text, struct json **out, struct api_error *x);
bool kept_no_memory(struct api_error *x); // false

// The responses that a request's items refer to, each read once.
struct kept_references {
    struct response_store *store;
    struct kept *list;
    size_t n, looked; // responses; their items that were looked at
};
// Writes the item of that id: one of a kept response's output, or of what it answered. False: there
// is none, or x is filled with why the response cannot be read.
bool kept_find_item(struct kept_references *r, const char *id, struct json_writer *w,
                    struct api_error *x);
void kept_references_fini(struct kept_references *r);
// "resp_" and the digits of an item's id: "msg_" and the digits of the response. False: it has
// none.
bool kept_response_of_item(const char *id, char response[static RANDOM_ID]);

// A page of what a kept response answered. Each item of a known kind has an id there, its own or
// one that tells the response and the place: "msg_DIGITS_i2".
struct input_page {
    const char *response; // its id
    bool ascending;       // else the newest item first
    size_t limit;         // items at most
    struct words after;   // goes on after the item of that id; none: at the beginning
};

// Writes the page of these items as a list object. False: no item has the id `after`.
bool input_items_write(const struct json *items, const struct input_page *page,
                       struct json_writer *w);

// The parameters of a GET of a kept response.
struct response_view {
    const char *rest, *query; // after "/v1/responses/"; of the request
};
bool response_view_streams(const struct response_view *v); // as events
// Appends the answer's body to an empty text. False with x filled.
bool api_response_write(struct service *s, const struct response_view *v, struct str *out,
                        struct api_error *x);
// Bytes that are kept of what `rest` names; 0: nothing.
size_t api_response_size(struct service *s, const char *rest);

#endif
