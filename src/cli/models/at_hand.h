// SPDX-License-Identifier: Apache-2.0
// Models that need not be named: the pair that comes with the program when no model is given, and
// the one draft beside a target that fits it.
#ifndef COPPICE_CLI_MODELS_AT_HAND_H
#define COPPICE_CLI_MODELS_AT_HAND_H

#include "engine/session/session.h"

// The path of the bundled target: in the data folder beside the program (../share/coppice/models),
// in that of the installation, or in the source folder that the build was configured in. ERR_IO
// with the places that were looked at, ERR_MEMORY.
int at_hand_model(struct str *out, struct err *e);

// The draft beside o->model (GGUF files of its folder): its path, or nothing when there is none or
// several fit. What was found, and why one is not used, goes to o->note. o->draft is not looked at.
// ERR_MEMORY; a folder that cannot be read has no drafts.
int at_hand_draft(const struct session_options *o, struct str *out, struct err *e);

#endif
