// Why a request is refused, independent of the transport. HTTP and gRPC each have a column of statuses.
#pragma once
#include "base/err.h"

enum kserve_code {
    KSERVE_OK,
    KSERVE_INVALID,
    KSERVE_NOT_FOUND,
    KSERVE_LIMITED,     // a limit of the owner is reached
    KSERVE_UNAVAILABLE, // the server is full, shuts down, or has no memory: try later
    KSERVE_CANCELLED,   // the client is gone
    KSERVE_UNSUPPORTED, // an extension that Parley lacks
    KSERVE_INTERNAL,
    KSERVE_CODES
};

struct kserve_status {
    int http, grpc;
};
extern const struct kserve_status kserve_statuses[KSERVE_CODES];

int kserve_no_memory(struct err *err); // sets E_NOMEM, and returns it

enum kserve_code kserve_code_of_err(const struct err *err);      // while reading a request
enum kserve_code kserve_code_of_session(const char *error_code); // of the session service
