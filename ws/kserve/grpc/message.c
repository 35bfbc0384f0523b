// Packing and unpacking. See message.h.
#include "ws/kserve/grpc/message.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

// A field of two bytes, such as an empty message in a list, becomes a struct and a pointer to it.
#define BYTES_PER_BYTE 32
#define BYTES_AT_LEAST 65536

static void *take(void *budget, size_t size) {
    size_t *left = budget;
    if (size > *left) return NULL;
    *left -= size;
    return malloc(size);
}

static void give_back(void *budget, void *pointer) {
    free(pointer);
}

void *message_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len) {
    size_t left = BYTES_AT_LEAST + len * BYTES_PER_BYTE;
    ProtobufCAllocator allocator = {take, give_back, &left};
    return protobuf_c_message_unpack(type, &allocator, len, bytes);
}

void message_free(void *message) {
    ProtobufCAllocator allocator = {take, give_back, NULL};
    if (message) protobuf_c_message_free_unpacked(message, &allocator);
}

int message_check_text(const char *what, const char *text, struct err *err) {
    if (utf8_valid(text, strlen(text))) return 0;
    return err_set(err, E_INVAL, "%s is not valid UTF-8", what);
}

void message_pack(const void *message, struct buf *out) {
    size_t size = protobuf_c_message_get_packed_size(message);
    if (buf_reserve(out, size + 1) < 0) return;
    out->len += protobuf_c_message_pack(message, (uint8_t *)out->data + out->len);
    out->data[out->len] = '\0';
}
