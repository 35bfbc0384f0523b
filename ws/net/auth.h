// Who may come in. A token file names the callers; without one there is a single caller, "local",
// and the server listens on loopback only (serve_config_check). Also the two questions that keep
// web pages of other sites out: is this Host one of ours (DNS rebinding), may this Origin connect
// (cross-site WebSocket hijacking).
//
// Tokens are kept as SHA-256 digests and compared with all entries in constant time.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct auth;

#define AUTH_NAME_MAX 64
#define AUTH_TOKEN_MIN 16
#define AUTH_TOKEN_MAX 512
#define AUTH_LOCAL "local" // the owner where no token file is used

// path "" or NULL: everybody is "local". Errors name file and line, never a token.
int auth_open(struct auth **out, const char *path, struct err *err);
void auth_close(struct auth *a);
// Reads the file again; on an error the old tokens stay. Connections that are already in are not
// asked again.
int auth_reload(struct auth *a, struct err *err);

bool auth_needs_token(const struct auth *a);
// The owner's name, borrowed until the next auth_reload, or NULL for an invalid token.
const char *auth_owner(const struct auth *a, const char *token, size_t len);
// The token in an Authorization header's value ("Bearer TOKEN"), or NULL; *len is its length.
const char *auth_bearer(const char *header, size_t *len);
// Sec-WebSocket-Protocol: true when it offers the sub-protocol `name`. *token gets the decoded token
// of a `bearer.BASE64URL` entry, "" when there is none. E_FORMAT in *rc when such an entry does not
// decode.
bool auth_subprotocols(const char *header, const char *name, char token[AUTH_TOKEN_MAX + 1],
                       int *rc);

// Host header ("name:port") against IP literals, localhost and the configured list (names without
// port match any).
bool auth_host_allowed(const char *host, const char *allowed_hosts);
// Origin header against the request's own host and the configured list. Not to be asked without an
// Origin.
bool auth_origin_allowed(const char *origin, const char *host, bool tls,
                         const char *allowed_origins);
