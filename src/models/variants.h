// SPDX-License-Identifier: Apache-2.0
// What makes a file another model than its architecture says: keys of relatives that change the
// result, tensors of layers that the metadata does not count, tensors that some layers have and
// others lack. Each is refused by its name.
#ifndef COPPICE_MODELS_VARIANTS_H
#define COPPICE_MODELS_VARIANTS_H

#include "base/err.h"
#include "formats/gguf/gguf.h"
#include "models/model.h"

// p: as the architecture has read it. Keys before its tensors are loaded, tensors behind that, so
// that what is simply missing is told as such. ERR_UNSUPPORTED; ERR_MISMATCH.
int variants_refuse_keys(const struct model_params *p, const struct gguf *g, struct err *e);
int variants_refuse_tensors(const struct model_params *p, const struct gguf *g, struct err *e);

#endif
