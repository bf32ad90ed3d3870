// SPDX-License-Identifier: Apache-2.0
// What this build is. The commit stands in a header that every build looks at again, so nothing
// else may include it.
#include "cli/cli.h"
#include "commit.h"
#include "ops/device_choice.h"

#define STRING_OF(x) #x
#define STRING(x)    STRING_OF(x)
#if defined(__clang__)
#define COMPILER                                                                                   \
    "clang " STRING(__clang_major__) "." STRING(__clang_minor__) "." STRING(__clang_patchlevel__)
#elif defined(__GNUC__)
#define COMPILER "gcc " STRING(__GNUC__) "." STRING(__GNUC_MINOR__) "." STRING(__GNUC_PATCHLEVEL__)
#else
#define COMPILER "unknown"
#endif

void cli_version(struct str *out) {
    int cuda;
    const char *architectures = exec_cuda_built(&cuda);
    str_printf(out,
               "coppice " COPPICE_VERSION "\ncommit      " COPPICE_COMMIT "\ncompiler    " COMPILER
               "\nCPU levels  %s\n",
               exec_cpu_levels());
    if (architectures)
        str_printf(out, "CUDA        %d.%d, kernels for %s\n", cuda / 1000, cuda % 1000 / 10,
                   architectures);
    else
        str_puts(out, "CUDA        none\n");
}

void cli_build_labels(struct str *out) {
    int cuda;
    const char *architectures = exec_cuda_built(&cuda);
    str_printf(out,
               "version=\"" COPPICE_VERSION "\",commit=\"" COPPICE_COMMIT "\",compiler=\"" COMPILER
               "\",cpu_levels=\"%s\",cuda_architectures=\"%s\"",
               exec_cpu_levels(), architectures ? architectures : "");
}
