// SPDX-License-Identifier: Apache-2.0
// Stands in for normalisation in a build of the engine alone, where no text is tokenised.
#include "text/norm.h"

bool norm_is_plain(const char *s, size_t n) {
    (void)s;
    (void)n;
    return false;
}

int norm_nfc(struct str *out, const char *s, size_t n, struct err *e) {
    (void)out;
    (void)s;
    (void)n;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without a tokenizer for text");
}
