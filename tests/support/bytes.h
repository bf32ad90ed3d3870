// SPDX-License-Identifier: Apache-2.0
// Stored checkpoints in memory: bytes that are a sink and a source (state/stored.h).
#ifndef COPPICE_TESTS_SUPPORT_BYTES_H
#define COPPICE_TESTS_SUPPORT_BYTES_H

#include "state/stored.h"

// Zeroed is empty; free data.
struct bytes {
    unsigned char *data;
    size_t n, at, cap; // at: read so far
    size_t full;       // ERR_IO when it would come to hold that many; 0: never
};

stored_sink bytes_sink;
int bytes_over(void *arg, int64_t at, const void *data, size_t n, struct err *e); // as record_sink
stored_source bytes_source;

#endif
