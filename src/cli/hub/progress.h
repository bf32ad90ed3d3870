// SPDX-License-Identifier: Apache-2.0
// How far a download is, on standard error: one line that is redrawn on a terminal, a line for each
// tenth elsewhere; sizes as people read them.
#ifndef COPPICE_CLI_HUB_PROGRESS_H
#define COPPICE_CLI_HUB_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

// Zeroed, with total and have, before the first call.
struct hub_progress {
    int64_t total, have; // bytes, of all files
    int64_t first;       // have when it began
    double begun, shown; // ms
    int tenth;           // the last one that was said
    bool open;           // a line without its end is on the terminal
};
void hub_progress_show(struct hub_progress *p, int64_t have);
// Ends the line.
void hub_progress_end(struct hub_progress *p);

// "15.7 MB", "2.50 GB" (powers of 1000, as the Hub's pages have them).
struct hub_size {
    char text[24];
};
struct hub_size hub_size(int64_t bytes);

#endif
