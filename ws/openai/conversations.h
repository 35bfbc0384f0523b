// Conversations (conversation.h) over HTTP. user is the struct service.
//     POST               /v1/conversations
//     GET, POST, DELETE  /v1/conversations/{id}
//     GET, POST          /v1/conversations/{id}/items
//     GET, DELETE        /v1/conversations/{id}/items/{item}
#pragma once
#include "ws/net/http.h"
#include "ws/service.h"

// Members of struct http_route, for all of these addresses. decode and release on any thread.
void *openai_conversations_decode(void *user, const struct http_payload *p);
void openai_conversations_release(void *decoded);
void openai_conversations_handle(void *user, struct http *h);

#define OPENAI_CONVERSATIONS_POST(address)                                                         \
    OPENAI_ROUTE(address, HTTP_METHOD(HTTP_POST), HTTP_CONVERSATION,                               \
                 .handle = openai_conversations_handle, .decode = openai_conversations_decode,     \
                 .release = openai_conversations_release)
#define OPENAI_CONVERSATIONS_ROUTES                                                                \
    OPENAI_CONVERSATIONS_POST("/v1/conversations"),                                                \
        OPENAI_CONVERSATIONS_POST("/v1/conversations/*"),                                          \
        OPENAI_ROUTE("/v1/conversations/*", HTTP_METHOD(HTTP_GET) | HTTP_METHOD(HTTP_DELETE),      \
                     .max_body = 1024, .handle = openai_conversations_handle)
