// SPDX-License-Identifier: Apache-2.0
// Text that does not hold another text, with a least and a greatest length: the places in it are
// rows of an automaton after Knuth, Morris and Pratt (grammar/automaton/emit.c writes it), one row
// for each code point, so that far from its ends one row's masks serve all.
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/expression/chars.h"
#include "grammar/grammar_impl.h"

enum { TEXT_NODES = 1 << 17 };

// What may stand where k bytes of a text have come and the next one begins none of it.
static uint32_t apart_from(struct build *b, const char *text, uint32_t n, uint32_t k) {
    struct chars set = {0};
    for (uint32_t i = 0; i < n; i++)
        if (emit_matched(text, k, text[i])) {
            uint32_t code = (uint8_t)text[i];
            chars_add(b, &set, &(struct build_chars){code, code}, 1);
        }
    chars_invert(b, &set);
    return build_small_rule(b, chars_class(b, &set, BUILD_PLAIN));
}

uint32_t build_text_without(struct build *b, const char *without, int64_t min, int64_t max) {
    size_t n = strlen(without);
    bool ascii = n > 0 && n <= EXPR_TEXT_BYTES;
    uint32_t kids[EXPR_TEXT_BYTES + 1];
    for (size_t i = 0; i < n; i++)
        ascii &= (unsigned char)without[i] < 0x80;
    if (!ascii)
        return build_fail(b, ERR_UNSUPPORTED, "text cannot be kept free of '%s'", without);
    int64_t most = TEXT_NODES / (int64_t)n - 1;
    if (min > most)
        return build_fail(b, ERR_LIMIT,
                          "a text is to have at least %lld characters; at most %lld can be asked "
                          "for between marks",
                          (long long)min, (long long)most);
    if (max > most)
        max = BUILD_ENDLESS;
    min = max_i64(min, 0);
    if (b->e.code || (max != BUILD_ENDLESS && max < min))
        return BUILD_NEVER;
    kids[0] = build_bytes(b, without, n);
    for (uint32_t k = 0; k < n; k++)
        kids[k + 1] = apart_from(b, without, (uint32_t)n, k);
    if (b->e.code ||
        vec_reserve(&b->kids, &b->kid_cap, b->kid_count + 1 + (int64_t)n, sizeof *b->kids, &b->e))
        return BUILD_NEVER;
    int64_t size = (max_i64(min, max) + 1) * (int64_t)n;
    uint32_t rule = build_rule(b, ""), at = (uint32_t)b->kid_count;
    memcpy(b->kids + at, kids, (n + 1) * sizeof *kids);
    b->kid_count += 1 + (int64_t)n;
    build_define(b, rule,
                 build_expr(b, (struct expr){.kind = EXPR_TEXT,
                                             .a = at,
                                             .b = (uint32_t)n,
                                             .min = (int32_t)min,
                                             .max = (int32_t)max,
                                             .size = (uint32_t)size}));
    if (!b->e.code)
        b->rules[rule].clear = true;
    return build_call(b, rule);
}
