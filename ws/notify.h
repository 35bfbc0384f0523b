// Reports the server's state to a service manager: the datagrams of sd_notify(3), for systemd's
// Type=notify and WatchdogSec. Without NOTIFY_SOCKET in the environment nothing is sent.
#pragma once
#include <stdbool.h>

// Sends "READY=1", "STOPPING=1" or "WATCHDOG=1", further lines behind '\n'. Never blocks. 0; 1: no
// manager listens; E_INVAL, E_IO: the address is wrong or the datagram was not taken.
int notify_send(const char *state);
// Whether the manager restarts this process unless it sends WATCHDOG=1 (WATCHDOG_USEC,
// WATCHDOG_PID).
bool notify_is_watched(void);
