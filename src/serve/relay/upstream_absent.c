// SPDX-License-Identifier: Apache-2.0
// Stands in for upstream.c in a build without libcurl: no client can be made.
#include "serve/relay/upstream.h"

int upstream_create(struct upstream **out, struct http *h, const struct upstream_options *o,
                    struct err *e) {
    (void)h, (void)o;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without libcurl and cannot pass requests on: install "
                   "libcurl4-openssl-dev and build it again");
}

void upstream_destroy(struct upstream *u) {
    (void)u;
}

const char *upstream_name(const struct upstream *u) {
    (void)u;
    return "";
}

bool upstream_has_key(const struct upstream *u) {
    (void)u;
    return false;
}

int upstream_start(struct upstream *u, const struct upstream_request *r,
                   const struct upstream_events *events, void *arg, struct upstream_call **out,
                   struct err *e) {
    (void)u, (void)r, (void)events, (void)arg;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without libcurl");
}

void upstream_resume(struct upstream_call *c) {
    (void)c;
}

void upstream_cancel(struct upstream_call *c) {
    (void)c;
}
