// SPDX-License-Identifier: Apache-2.0
// A hash of what a model file says, by which state that was computed with it is recognised. Not for
// cryptography: it distinguishes other models, fine-tunes and quantisations, but not forgeries.
#ifndef COPPICE_FORMATS_CONTENT_H
#define COPPICE_FORMATS_CONTENT_H

#include <stdbool.h>

#include "base/hash.h"
#include "formats/gguf/gguf.h"

// Adds name, type, shape and data: all of it up to 64 KiB, of larger tensors sixteen pieces of
// 4 KiB at equal distances, the first and the last among them. For what changes no bit of an
// answer: guesses, costs.
void content_add_tensor(struct hash *h, const struct tensor *t);
// Of an open file: every metadata entry and that of every tensor, in file order. Where the file
// lies, how it is split and padded does not matter.
uint64_t content_sketch(const struct gguf *g);

// The same with every byte of every tensor, by several threads (as of pool_create). Memory that is
// only the file's is given back as it goes. stop: NULL, or called between pieces of some MiB; 0 is
// returned once it says so, and where there is no memory.
struct content_stop {
    bool (*ask)(void *arg);
    void *arg;
};
uint64_t content_whole(const struct gguf *g, int threads, const struct content_stop *stop);

// The identity of a file and its state: device, inode, size and both times to the
// nanosecond of every part. It changes as well where nothing that counts does, such as the number
// of links. settled: seconds that must have passed since the last change, 0: any. False: they have
// not, or it is memory and no file.
bool content_stamp(const struct gguf *g, int64_t settled, uint64_t *stamp);

// content_whole by one thread that all others go before, so that no other thread that computes
// loses time to it; waits for its end.
uint64_t content_whole_aside(const struct gguf *g, const struct content_stop *stop);

// A folder remembers what content_whole has said of a file, as long as it is not written to, moved
// or given other times: by its stamp.
// False, 0: nothing is remembered. A file that was changed within the last two seconds is not,
// since a change right after it might have the same times.
bool content_known(const struct gguf *g, const char *folder, uint64_t *content);
// If it can; the 64 files that were requested last stay remembered.
void content_remember(const struct gguf *g, const char *folder, uint64_t content);

#endif
