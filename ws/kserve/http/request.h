// Reads KServe's requests from the bodies of HTTP requests. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

// Where a request was sent to, and its body.
struct kserve_source {
    enum infer_form form;
    enum infer_model model;
    const char *name;
    const struct served_model *served; // the request takes its hold, unless reading returns NULL
    const char *body, *header_len; // header_len: Inference-Header-Content-Length, "": all is JSON
    size_t len;
};

// Reads source->body. NULL: no memory. A refused request has a code.
struct infer_request *kserve_request_read(const struct kserve_source *source);
