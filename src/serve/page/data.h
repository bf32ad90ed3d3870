// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"01aef4df4545a606f3b164a3ba07c000\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-TSz6QtpiUdftofdPwEhiB2vg8o19couRADhtahzIWDQ='; " \
    "style-src 'sha256-YwS6iWqMgLG49J73kb6klINJBtaK8LAu7B9M3MudVZE='; " \
    "img-src data:; " \
    "connect-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; " \
    "require-trusted-types-for 'script'; " \
    "trusted-types page; " \
    "frame-ancestors 'none'"
// clang-format on

#endif
