// Refusals and failures in OpenAI's form: a status, a code and the member of the request they are about.
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "ws/completion/completion.h"
#include "ws/net/http.h"

struct openai_failure { // plain data
    int status;         // 0: none
    char code[48];
    const char *param; // a literal; NULL: none
    char message[512];
    int64_t retry_after_ms; // 0: none
};

// The first failure is the cause: later ones change nothing. They return E_INVAL, for TRY.
int openai_fail(struct openai_failure *f, int status, const char *code, const char *param,
                const char *message);
// 400: "PARAM WHAT".
int openai_bad(struct openai_failure *f, const char *param, const char *what);
// 404: no model has this name.
int openai_fail_model(struct openai_failure *f, const char *name);
int openai_no_memory(struct openai_failure *f); // 503
// The session service's answer in their words.
void openai_fail_session(struct openai_failure *f, const struct session_answer *a);
void openai_fail_completion(struct openai_failure *f, const struct completion_failure *from);
const char *openai_code(int status, const char *code); // their name of a code
// {"error":{"message","type","param","code"}}
void openai_write_failure(struct buf *out, const struct openai_failure *f);
void openai_reply_failure(struct http *h, const struct openai_failure *f);
