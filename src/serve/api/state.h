// SPDX-License-Identifier: Apache-2.0
// How the server is: GET /health, /props, /slots, /metrics.
#ifndef COPPICE_SERVE_API_STATE_H
#define COPPICE_SERVE_API_STATE_H

#include "serve/service.h"

service_handler api_health;
service_handler api_props;
service_handler api_slots;
service_handler api_metrics;

#endif
