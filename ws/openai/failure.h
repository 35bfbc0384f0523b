// Refusals and failures in OpenAI's form. A completion_failure has their codes and members, or the neutral
// ones, whose codes get their names as it is written.
#pragma once
#include "base/json.h"
#include "ws/completion/http_completion.h"

// The first failure is the cause: later ones change nothing. They return E_*, for TRY.
int openai_fail(struct completion_failure *f, int status, const char *code,
                const char *param /* NULL: none */, const char *message);
// 400 with code: "PARAM WHAT".
int openai_refuse(struct completion_failure *f, const char *code, const char *param,
                  const char *what);
int openai_bad(struct completion_failure *f, const char *param, const char *what); // invalid_value
int openai_no_memory(struct completion_failure *f);                                // 503. E_NOMEM
int openai_fail_model(struct completion_failure *f, const char *name);             // 404
// Gives a neutral request's member the protocol's name. names: pairs, the last one NULL.
void openai_name_param(struct completion_failure *f, const char *const names[][2]);
const char *openai_code(int status, const char *code); // their name of a code
// {"error":{"message","type","param","code"}}
void openai_write_failure(struct buf *out, const struct completion_failure *f);
void openai_reply_failure(struct http *h, const struct completion_failure *f);
// The last event of a stream; of struct dialect.
void openai_write_stream_failure(const struct http_completion *x,
                                 const struct completion_failure *f, struct buf *out);
void openai_stream_failure(struct http *h, const struct completion_failure *f); // sends it
