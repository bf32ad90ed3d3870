// SPDX-License-Identifier: Apache-2.0
// Command lines over the program's own table: arguments are the lines of the input, the first byte
// picks the subcommand. The first line is read as a list of types for `quantize` as well.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "convert/convert.h"
#include "formats/quant/quant.h"

enum { ARGS_MAX = 64 };

void fuzz_setup(void) {
}

static void check_values(const struct options *o) {
    for (int row = 0; row < CLI_OPTION_COUNT; row++) {
        const struct option *opt = &cli_options[row];
        if (!options_given(o, row))
            continue;
        size_t n;
        double v = opt->kind == OPTION_FLOAT ? options_float(o, row) : (double)options_int(o, row);
        if (opt->kind == OPTION_INT || opt->kind == OPTION_FLOAT)
            FUZZ_CHECK(v >= opt->lo && v <= opt->hi);
        if (opt->kind != OPTION_LIST)
            continue;
        const int32_t *list = options_list(o, row, &n);
        for (size_t i = 0; i < n; i++)
            FUZZ_CHECK(list[i] >= opt->lo && list[i] <= opt->hi);
    }
}

static void check_overrides(const char *text, bool fragile) {
    enum { LIMIT = 8 };
    struct convert_override list[LIMIT];
    struct err e = {0};
    int n = 0, rc = convert_overrides(text, list, LIMIT, &n, &e);
    fuzz_sentence(rc, &e);
    FUZZ_CHECK(rc == 0 || rc == ERR_USAGE || (fragile && rc == ERR_MEMORY));
    FUZZ_CHECK(rc != 0 || (n >= 0 && n <= LIMIT));
    for (int i = 0; i < n && rc == 0; i++)
        FUZZ_CHECK(quant_format(list[i].type) && memchr(list[i].part, 0, sizeof list[i].part));
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    char *text = malloc(size + 1), *argv[ARGS_MAX], *rest = NULL;
    if (!text)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    int argc = 0;
    uint64_t group = CLI_BIT(size ? data[0] % CLI_HELP : 0);
    char *from = size ? text + 1 : text;
    for (char *arg = strtok_r(from, "\n", &rest); arg && argc < ARGS_MAX;
         arg = strtok_r(NULL, "\n", &rest))
        argv[argc++] = arg;
    struct options o;
    struct err e = {0};
    int rc = options_parse(&o, &cli_option_set, group, argc, argv, &e);
    fuzz_result(rc, &e, fragile);
    FUZZ_CHECK(rc == 0 || rc == ERR_USAGE || rc == ERR_MEMORY);
    FUZZ_CHECK(rc != 0 || o.n_operands <= argc);
    if (rc == 0)
        check_values(&o);
    options_fini(&o);
    if (argc)
        check_overrides(argv[0], fragile);
    free(text);
}
