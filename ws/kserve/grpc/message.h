// Messages of protobuf (inference.proto), out of bytes and into them. Any thread.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <protobuf-c/protobuf-c.h>

// Allocates in proportion to len at most, however the message is made up. NULL: it is malformed, or there
// is no memory. Freed with message_free(); NULL is fine.
void *message_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len);
void message_free(void *message);
// Text goes into answers and sessions: E_INVAL names what is not UTF-8.
int message_check_text(const char *what, const char *text, struct err *err);
// Appends the message's bytes. A failure stays in out.
void message_pack(const void *message, struct buf *out);
