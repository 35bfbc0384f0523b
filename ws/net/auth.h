// Who may connect. A token file names the owners and their limits; without one there is a single owner,
// "local", without limits, and the server listens on loopback only (serve_config_check). Two more checks
// keep web pages of other sites out: whether the Host is one of ours (DNS rebinding), and whether the
// Origin may connect (cross-site WebSocket hijacking).
//
// Tokens are kept as SHA-256 digests and compared with all entries in constant time.
#pragma once
#include "base/err.h"
#include "sessions/state/owners.h"

struct auth;
struct auth_token { // a line of the token file; all zero: none
    unsigned char digest[32];
    struct owner *owner;
    bool admin; // sees settings, metrics and other owners' counts
};

#define AUTH_NAME_MAX 64
#define AUTH_TOKEN_MIN 16
#define AUTH_TOKEN_MAX 512
#define AUTH_LOCAL "local" // the owner where no token file is used

// path "" or NULL: all callers are "local". Sets the limits of owners in the table: a line's own over the
// defaults. Table and defaults are borrowed. Errors name file and line, never a token.
int auth_open(struct auth **out, const char *path, struct owners *owners,
              const struct owner_limits *defaults, struct err *err);
void auth_close(struct auth *a);
// Reads the file again; on an error the old tokens and limits stay. Changed limits hold at once.
int auth_reload(struct auth *a, struct err *err);

bool auth_needs_token(const struct auth *a); // there is a token file
// Borrowed until the next auth_reload. NULL: an invalid token.
const struct auth_token *auth_find(const struct auth *a, const char *token, size_t len);
// The line of a token that was valid before auth_reload; NULL: it was removed.
const struct auth_token *auth_again(const struct auth *a, const struct auth_token *before);
bool auth_has_tokens(const struct auth *a, const struct owner *o);
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
// Origin header against the request's own host and the configured list. Only for requests with an Origin.
bool auth_origin_allowed(const char *origin, const char *host, bool tls,
                         const char *allowed_origins);
