// SPDX-License-Identifier: Apache-2.0
// Grows by doubling; see vec.h.
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

int vec_reserve(void *array, int64_t *cap, int64_t n, size_t size, struct err *e) {
    enum { LEAST = 16 };
    if (n <= *cap)
        return 0;
    int64_t more = *cap > INT64_MAX / 2 ? n : max_i64(max_i64(2 * *cap, LEAST), n);
    void *old, *grown = NULL;
    memcpy(&old, array, sizeof old); // the pointer's own type is the caller's
    if ((uint64_t)more <= PTRDIFF_MAX / size)
        grown = realloc(old, (size_t)more * size);
    if (!grown)
        return err_set(e, ERR_MEMORY, "no memory for a list of %lld entries", (long long)more);
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return 0;
}
