// SPDX-License-Identifier: Apache-2.0
// Stands in for normalisation in a build of the engine alone, where no text is tokenised.
#include "text/tokenizer/norm.h"

bool norm_is_plain(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

int norm_nfc(struct str *out, const char *s, size_t n, struct err *e) {
    (void)out;
    (void)s;
    (void)n;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without a tokenizer for text");
}

size_t norm_map_case(uint32_t code, enum norm_case how, uint32_t out[NORM_CASE_MAX]) {
    bool upper = how == NORM_UPPER_CASE || how == NORM_TITLE_CASE;
    bool other = upper ? code >= 'a' && code <= 'z' : code >= 'A' && code <= 'Z';
    out[0] = other ? code ^ 0x20 : code;
    return 1;
}

unsigned norm_class(uint32_t code) {
    if (code >= '0' && code <= '9')
        return NORM_DECIMAL | NORM_NUMBER;
    if (code >= 'A' && code <= 'Z')
        return NORM_LETTER | NORM_UPPER;
    return code >= 'a' && code <= 'z' ? NORM_LETTER | NORM_LOWER : 0;
}

bool norm_is_printable(uint32_t code) {
    return code >= 0x20 && code < 0x7F;
}

bool norm_begins_name(uint32_t code) {
    return code == '_' || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

bool norm_continues_name(uint32_t code) {
    return norm_begins_name(code) || (code >= '0' && code <= '9');
}
