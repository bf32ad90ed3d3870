// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"0da37fc5a1dba197941337f31569d3fd\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-GPHpUVymEmn8yxY3RBVwairUCQX36leRUq8jzozsDIk='; " \
    "style-src 'sha256-ISJJJ9dmteXrLChWLpsFQAVBRn2eIVgaBwKZ8YRIGC4='; " \
    "img-src data:; " \
    "connect-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; " \
    "require-trusted-types-for 'script'; " \
    "trusted-types page; " \
    "frame-ancestors 'none'"
// clang-format on

#endif
