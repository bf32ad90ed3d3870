// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"e681af921ae2b032c31961f3f3c1530c\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-HnF6g9B66s1IGNA2vNgvsia3GWNZJDDcAhUuueMPbcg='; " \
    "style-src 'sha256-VFzePaZze0kqjUuB3uv4UqG/IEDGJD+/RX3nbVc3o8E='; " \
    "img-src data:; " \
    "connect-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; " \
    "require-trusted-types-for 'script'; " \
    "trusted-types page; " \
    "frame-ancestors 'none'"
// clang-format on

#endif
