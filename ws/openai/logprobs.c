// See logprobs.h.
#include "ws/openai/logprobs.h"
#include "base/json_form.h"
#include <math.h>

#define LOGPROB_LEAST (-9999.0f) // of a token that cannot be: JSON has no infinity

static void put_token(struct json_writer *w, const char *bytes, size_t len, float logprob) {
    json_form(w, "{token:%.*s", (int)(bytes ? len : 0), bytes ? bytes : "");
    json_put_float(w, "logprob", isfinite(logprob) ? logprob : LOGPROB_LEAST);
    json_open(w, "bytes", '[');
    for (size_t i = 0; bytes && i < len; i++) json_put_int(w, NULL, (unsigned char)bytes[i]);
    json_close(w, ']');
}

void openai_put_logprobs(struct json_writer *w, const struct completion_token *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct completion_token *t = &tokens[i];
        put_token(w, t->bytes, t->len, t->logprob);
        json_open(w, "top_logprobs", '[');
        for (int32_t k = 0; k < t->n_alternatives; k++) {
            const struct completion_token *a = &t->alternatives[k];
            if (a->id < 0) continue;
            put_token(w, a->bytes, a->len, a->logprob);
            json_close(w, '}');
        }
        json_form(w, "]}");
    }
}
