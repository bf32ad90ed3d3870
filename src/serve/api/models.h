// SPDX-License-Identifier: Apache-2.0
// What is served: GET /v1/models, /v1/models/{id}, and LM Studio's /api/v0/models.
#ifndef COPPICE_SERVE_API_MODELS_H
#define COPPICE_SERVE_API_MODELS_H

#include "serve/service.h"

service_handler api_models;
service_handler api_model;
service_handler api_lmstudio_models;
service_handler api_lmstudio_model;

#endif
