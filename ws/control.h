// The control socket: a Unix socket for the user who runs the server. One JSON line in, one out, then
// the connection ends. README.md has the messages. Net thread only.
#pragma once
#include "base/err.h"

struct control;
struct hosting;
struct serve_config;
struct service;

// The socket's path: control_socket, "auto" beside the database. "": there is none (a database in
// memory, or "off").
#define CONTROL_PATH_MAX 4300
const char *control_path(const char *setting, const char *db, char out[CONTROL_PATH_MAX]);

// *out NULL: there is none. A socket that a dead server left is replaced. E_BUSY: another server
// listens there; E_EXISTS: a file that is no socket; E_LIMIT: the path is too long for a socket. With
// `auto` these are warnings, and there is none.
int control_open(struct control **out, struct hosting *h, struct service *s, struct err *err);
void control_close(struct control *c); // removes the socket; while the loop still runs
