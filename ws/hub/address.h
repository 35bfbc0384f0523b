// Addresses of the hub and of the hosts that it redirects to: which are allowed, and which may have the token.
#pragma once
#include "base/err.h"
#include <stdbool.h>

#define ADDRESS_BYTES 8192

// E_DENIED, what names it: the scheme is neither https, nor http to this machine or with plain_http.
// E_NOTFOUND: the machine has no libcurl, whose other functions may be called after a success.
int address_check(const char *url, bool plain_http, const char *what, struct err *err);
// Whether scheme, host and port are equal.
bool address_same_origin(const char *a, const char *b);
bool address_is_https(const char *url);
// Appends text to out, which has room for ADDRESS_BYTES, with all but letters, digits and "-._~" (and "/" if slashes)
// as %XX. False: no room.
bool address_add(char out[ADDRESS_BYTES], const char *text, bool slashes);
