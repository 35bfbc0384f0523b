// See answer_head.h.
#include "ws/openai/answer_head.h"
#include "base/json_form.h"

void answer_head_open(struct json_writer *w, const struct answer_head *h, const char *object) {
    json_form(w, "{id:%s,object:%s,created:%ld,model:%s,system_fingerprint:%s", h->id, object,
              h->created_s, h->model, h->fingerprint);
}

void answer_usage_open(struct json_writer *w, int64_t prompt_tokens, int64_t cached_tokens,
                       int64_t completion_tokens) {
    json_form(w,
              "usage:{prompt_tokens:%ld,completion_tokens:%ld,total_tokens:%ld,"
              "prompt_tokens_details:{cached_tokens:%ld}",
              prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, cached_tokens);
}
