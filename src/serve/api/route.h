// SPDX-License-Identifier: Apache-2.0
// A row of the table of paths: requests are answered by it, and the OpenAPI document lists it.
#ifndef COPPICE_SERVE_API_ROUTE_H
#define COPPICE_SERVE_API_ROUTE_H

#include "serve/request/params.h"
#include "serve/service.h"

struct route {
    const char *method, *path; // a path that ends in "/" takes what follows as its `rest`
    service_handler *handle;
    const char *summary; // NULL: another spelling of a path that is listed
    enum endpoint body;  // fields of the body that it takes; 0: none
    const char *answer;  // schema of 200 as JSON; NULL: not JSON
    const char *type;    // of the answer where it is not JSON
    const char *rest;    // name of the rest in the document, "{model}", and how it must end,
                         // "{id}/trees"; NULL: none
};

#endif
