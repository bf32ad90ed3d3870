// SPDX-License-Identifier: Apache-2.0
// The page that the server shows at "/": one HTML file with everything in it, built from web/ and
// linked into the program. Bytes and headers only; it answers no requests.
#ifndef COPPICE_SERVE_PAGE_PAGE_H
#define COPPICE_SERVE_PAGE_PAGE_H

#include <stddef.h>

struct page {
    const char *html; // UTF-8, `size` bytes, no terminator
    size_t size;
    const char *etag;   // value of ETag, quotes included; changes with any byte of the page
    const char *policy; // value of Content-Security-Policy
};

// The page; all of it is there as long as the program.
struct page page_get(void);

#endif
