// Answers as messages. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

#define REPLY_MESSAGE_MAX_BYTES (256 << 20)

enum reply_kind {
    REPLY_ONLY,  // of ModelInfer
    REPLY_PIECE, // of ModelStreamInfer: more follow
    REPLY_FINAL
};

// Appends the outputs as a message to out; REPLY_FINAL may have none. false: no memory, or too long.
bool reply_outputs(const struct infer_request *r, enum reply_kind kind,
                   const struct tensors_out *outputs, struct buf *out);
// The answer to a failed request of a stream. id may be NULL. false: no memory.
bool reply_stream_error(const char *id, const char *message, struct buf *out);
// google.rpc.Status (status: gRPC's) with RetryInfo. 0 or a negative E_*.
int reply_retry_details(int status, const char *message, int64_t retry_after_ms, struct buf *out);
