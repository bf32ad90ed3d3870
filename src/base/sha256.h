// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes that come in pieces: what published files are checked by.
#ifndef COPPICE_BASE_SHA256_H
#define COPPICE_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t len;            // bytes so far
    unsigned char block[64]; // the last len % 64 of them
};
void sha256_begin(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *data, size_t n);
// The digest of all so far in lower-case hexadecimal digits and a NUL. h is used up.
void sha256_end(struct sha256 *h, char hex[65]);

#endif
