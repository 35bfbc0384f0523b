// Base64 (RFC 4648, with padding): bytes that are no text, inside JSON.
#pragma once
#include "base/buf.h"
#include <stddef.h>

int base64_encode(struct buf *out, const void *bytes, size_t len); // appends
// Appends what text stands for. E_FORMAT unless it is whole, padded and in the one form that
// encoding gives: no white space, no set bits behind the end. E_NOMEM, E_LIMIT from the buffer.
int base64_decode(struct buf *out, const char *text, size_t len);
