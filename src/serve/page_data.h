// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"49a9c870c0e4a6e98d178045bb78e63d\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-GKD4ehaBuK5szOsiAQGUtLklXYn2WBm/7oA2FxTS25Y='; " \
    "style-src 'sha256-0QouUyUeHWajiwAC5UCTIQcqMoAXV+OfP2/E8Uu1TMw='; " \
    "img-src data:; " \
    "connect-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; " \
    "require-trusted-types-for 'script'; " \
    "trusted-types page; " \
    "frame-ancestors 'none'"
// clang-format on

#endif
