// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"031fd64579cc36180513b908a8782c87\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-/RzaRG9PcslGbbj0NACObHy/Kvr2z5zfOFiEths/Gm0='; " \
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
