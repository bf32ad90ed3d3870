// SPDX-License-Identifier: Apache-2.0
// What `coppice serve` needs of HTTP whatever it serves, a model or another server: addresses,
// keys, limits from the options, one line of log for each request, how to try it.
#ifndef COPPICE_CLI_SERVE_HTTP_H
#define COPPICE_CLI_SERVE_HTTP_H

#include "cli/cli.h"
#include "serve/http/http.h"

// Words of an option, each ending in a NUL in `text`.
struct serve_words {
    struct str text;
    const char **at; // [n]
    size_t n;
};

// Lists that the options of a server point at. Zeroed is valid.
struct serve_http {
    struct serve_words keys, origins, names;
};
void serve_http_fini(struct serve_http *v);

// Fills h, which points into v; the caller frees v in any case.
int serve_http_options(const struct cli_args *a, struct serve_http *v, struct http_options *h,
                       struct err *e);

// One line to standard error.
void serve_http_log(void *arg, const char *text, size_t n);
// How to ask it by curl, and with a page where there is one.
void serve_http_show_try(const struct serve_http *v, const char *address, bool page);

// Serves what --prefill-upstream-base names, until it is told to stop.
int serve_relay(const struct cli_args *a, struct err *e);

#endif
