// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"67ccb9cad8ca805962ee117f9a35930e\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-3QOmQyoSmb31osVi+1NYjA/POhuFiF5novigTiYgriM='; " \
    "style-src 'sha256-pf6gX9ZeU4uGyFvbwe8tVtVSAW40WEseGweky3Wx+1k='; " \
    "img-src data:; " \
    "connect-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; " \
    "require-trusted-types-for 'script'; " \
    "trusted-types page; " \
    "frame-ancestors 'none'"
// clang-format on

#endif
