// See answer_head.h.
#include "ws/openai/answer_head.h"

void answer_head_open(struct json_writer *w, const struct answer_head *h, const char *object) {
    json_open(w, NULL, '{');
    json_put_string(w, "id", h->id);
    json_put_string(w, "object", object);
    json_put_int(w, "created", h->created_s);
    json_put_string(w, "model", h->model);
    json_put_string(w, "system_fingerprint", h->fingerprint);
}

void answer_usage_open(struct json_writer *w, int64_t prompt_tokens, int64_t cached_tokens,
                       int64_t completion_tokens) {
    json_open(w, "usage", '{');
    json_put_int(w, "prompt_tokens", prompt_tokens);
    json_put_int(w, "completion_tokens", completion_tokens);
    json_put_int(w, "total_tokens", prompt_tokens + completion_tokens);
    json_open(w, "prompt_tokens_details", '{');
    json_put_int(w, "cached_tokens", cached_tokens);
    json_close(w, '}');
}
