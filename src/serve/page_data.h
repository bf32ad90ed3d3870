// SPDX-License-Identifier: Apache-2.0
// Headers that go with page.html; web/build.mjs writes both.
#ifndef COPPICE_SERVE_PAGE_DATA_H
#define COPPICE_SERVE_PAGE_DATA_H

#define PAGE_ETAG "\"bbdf4e5c8ca68393301e521650b5e013\""
// clang-format off
#define PAGE_POLICY \
    "default-src 'none'; " \
    "script-src 'sha256-UJZ18GqNGxKEqrc/jbCSKCUT7wOW2EMkbOlVFZaGooM='; " \
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
