// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"1cbeabc08ef9e46dd166c6389935ce97\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-96zwrK1KlMZpmT1DLPC8v7C++9mp1jM3mdwtu7TFL6s='; " \
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
