// SPDX-License-Identifier: Apache-2.0
// Tells the service manager how the server is: one datagram to the socket that systemd names in
// NOTIFY_SOCKET (sd_notify(3)). Without that variable nothing happens.
#ifndef COPPICE_CLI_NOTIFY_H
#define COPPICE_CLI_NOTIFY_H

// state: lines of NAME=VALUE as "READY=1" or "STOPPING=1". What cannot be sent is lost, since a
// manager that does not listen must not keep the server from working.
void notify_manager(const char *state);

#endif
