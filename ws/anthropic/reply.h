// Headers of replies, and errors: their status, sentence and headers. Net thread.
#pragma once
#include "ws/net/http.h"

#define REQUEST_ID_MAX 40
void anthropic_request_id(char out[REQUEST_ID_MAX]); // a new one, "req_" and random digits
// Appends header lines: request-id, and anthropic-ratelimit-* if the owner has limits.
void anthropic_put_headers(struct buf *extra, const struct http *h, const char *request_id);
// Replies 200 with these lines; takes body.
void anthropic_reply(struct http *h, struct buf *body);
// An error's status in this protocol, by its HTTP status and its code (completion.h): 529 if the server is full.
int anthropic_status(int status, const char *code);
// The sentence as clients know it: they look for "prompt is too long". Points to message or to out.
const char *anthropic_sentence(const char *code, const char *message, char out[600]);
