// SPDX-License-Identifier: Apache-2.0
// The OpenAPI 3.1 document of the server, from the table of paths and the table of fields, so that
// it cannot say anything else than they do. docs/openapi.json is a copy; a test compares them.
#ifndef COPPICE_SERVE_API_OPENAPI_H
#define COPPICE_SERVE_API_OPENAPI_H

#include "serve/request/params.h"
#include "serve/service.h"

struct text_task;
typedef void text_work(struct text_task *t); // text.c

// A row of the table of paths: requests are answered by it, and the document lists it.
struct route {
    const char *method, *path; // a path that ends in "/" takes what follows as its `rest`
    service_handler *handle;   // NULL: `dialect`, which generates text, or `work`
    const char *summary;       // NULL: another spelling of a path that is listed
    const struct dialect *dialect;
    text_work *work;    // of a text worker with the fields of `body`
    enum endpoint body; // fields of the body that it takes; 0: none
    const char *answer; // schema of 200 as JSON; NULL: not JSON
    const char *type;   // of the answer where it is not JSON
    const char *rest;   // name of the rest in the document, "{model}", and how it must end,
                        // "{id}/trees"; NULL: none
};

// Appends the document: JSON with a line for each field and path.
void openapi_write(struct str *out, const struct route *routes, size_t n);

#endif
