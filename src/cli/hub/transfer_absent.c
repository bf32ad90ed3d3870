// SPDX-License-Identifier: Apache-2.0
// Stands in for transfer.c in a build without libcurl: nothing is fetched.
#include "cli/hub/transfer.h"

int transfer_open(struct transfer **out, struct err *e) {
    *out = 0;
    return err_set(
        e, ERR_UNSUPPORTED,
        "this program was built without libcurl and cannot fetch models: install "
        "libcurl4-openssl-dev and build it again, or fetch files by other means and name "
        "them by their paths");
}

void transfer_close(struct transfer *t) {
    (void)t;
}

int transfer_run(struct transfer *t, struct transfer_job *job, struct err *e) {
    (void)t, (void)job;
    return err_set(e, ERR_UNSUPPORTED, "this program was built without libcurl");
}
