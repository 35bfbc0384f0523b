// Unpacks and packs protobuf messages (inference.proto). Any thread.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <protobuf-c/protobuf-c.h>

// Allocates at most 64 KiB and 32 bytes for each byte of the message. NULL: it is malformed, or there is no
// memory. The caller frees it with message_free(); NULL is fine.
void *message_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len);
void message_free(void *message);
// Checks that text, which goes into answers and sessions, is UTF-8. E_INVAL names `what`.
int message_check_text(const char *what, const char *text, struct err *err);
// Appends the message's bytes. A failure stays in out.
void message_pack(const void *message, struct buf *out);
