// Base64 (RFC 4648, with padding): carries binary data inside JSON.
#pragma once
#include "base/buf.h"
#include <stddef.h>

int base64_encode(struct buf *out, const void *bytes, size_t len); // appends
// Appends the bytes that text encodes. E_FORMAT unless text is complete, padded and canonical: no
// white space, no set bits after the last byte. E_NOMEM, E_LIMIT from the buffer.
int base64_decode(struct buf *out, const char *text, size_t len);
