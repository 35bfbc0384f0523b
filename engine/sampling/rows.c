// The rows themselves. See rows.h.
#include "engine/sampling/rows.h"
#include "engine/sampling/beams.h"
#include <string.h>

#define AT(field) offsetof(struct sampling_params, field)
#define OURS (SAMPLING_SERVER | SAMPLING_COMMAND | SAMPLING_FORM)
#define EVERYWHERE (OURS | SAMPLING_OPENAI)

const struct sampling_row sampling_rows[] = {
    {"temperature", NULL, SAMPLING_FLOAT, AT(temperature), 0, 100, false, 1, 0.1, EVERYWHERE,
     "Temperature", NULL,
     "Higher values make answers more varied; 0 always takes the most likely token."},
    {"top_k", NULL, SAMPLING_INT, AT(top_k), 0, INT32_MAX, false, 0, 1, EVERYWHERE, "Top k", "off",
     "Sample from this many of the most likely tokens; 0 means all."},
    {"top_p", NULL, SAMPLING_FLOAT, AT(top_p), 0, 1, true, 1, 0.05, EVERYWHERE, "Top p", NULL,
     "Sample from the most likely tokens whose probabilities add up to this; 1 means all."},
    {"top_p_decay", NULL, SAMPLING_FLOAT, AT(top_p_decay), 0, 1, true, 1, 0.05, OURS, "Top p decay",
     NULL, "Top p is multiplied by this after each token of the answer; 1 keeps it."},
    {"top_p_min", NULL, SAMPLING_FLOAT, AT(top_p_min), 0, 1, true, 1e-6, 0.05, OURS,
     "Top p minimum", NULL, "Top p does not decay below this."},
    {"top_p_reset_ids", NULL, SAMPLING_INT, AT(top_p_reset_ids), -1, INT32_MAX, false, -1, 1,
     SAMPLING_SERVER | SAMPLING_COMMAND, "Top p reset token", NULL,
     "Token id after which a decayed top p has its first value again; -1 means none."},
    {"min_p", NULL, SAMPLING_FLOAT, AT(min_p), 0, 1, false, 0, 0.01, EVERYWHERE, "Min p", "off",
     "Drop tokens less likely than this share of the most likely token's probability; 0 means "
     "none."},
    {"repetition_penalty", NULL, SAMPLING_FLOAT, AT(repetition_penalty), 0.01, 100, false, 1, 0.05,
     EVERYWHERE, "Repetition penalty", NULL,
     "Above 1, tokens already in the session become less likely; 1 means off."},
    {"presence_penalty", NULL, SAMPLING_FLOAT, AT(presence_penalty), -100, 100, false, 0, 0.1,
     EVERYWHERE, "Presence penalty", NULL,
     "Lowers the logit of every token already in this answer, once; 0 means off."},
    {"frequency_penalty", NULL, SAMPLING_FLOAT, AT(frequency_penalty), -100, 100, false, 0, 0.1,
     EVERYWHERE, "Frequency penalty", NULL,
     "Lowers a token's logit for each time it is already in this answer; 0 means off."},
    {"seed", NULL, SAMPLING_SEED, AT(seed), 0, 0, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_FORM | SAMPLING_OPENAI, "Seed", "random",
     "Same seed and settings, same answer."},
    {"max_tokens", "max_completion_tokens", SAMPLING_INT, AT(max_tokens), 0, INT32_MAX, false, 0, 1,
     EVERYWHERE, "Max answer length (tokens)", "no limit",
     "The answer stops after this many tokens; 0 means no limit."},
    {"min_tokens", NULL, SAMPLING_INT, AT(min_tokens), 0, INT32_MAX, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_OPENAI, "Min answer length (tokens)", "off",
     "Nothing but its limits ends the answer before this many tokens."},
    {"stop", NULL, SAMPLING_WORDS, AT(stop), 0, SAMPLING_MAX_WORDS, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_FORM | SAMPLING_OPENAI, "Stop strings", "none",
     "The answer stops before this text, or after this list of token ids."},
    {"stop_in", NULL, SAMPLING_INT, AT(stop_in), 0, N_STOP_IN - 1, false, 0, 1, 0,
     "Where stop strings apply", NULL,
     "1: everywhere. 2: behind the thinking. 3: behind the thinking, outside of tool calls. 0: as "
     "the turn's kind asks."},
    {"logit_bias", NULL, SAMPLING_BIASES, AT(bias), -100, 100, false, 0, 1, 0, "Logit bias", "none",
     "Added to the logits of tokens: an object of token id and bias."},
    {"bad_words", NULL, SAMPLING_WORDS, AT(bad_words), 0, SAMPLING_MAX_WORDS, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_FORM, "Bad words", "none",
     "The answer never contains this word, or this list of token ids."},
    {"ignore_eos", NULL, SAMPLING_BOOL, AT(ignore_eos), 0, 1, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_OPENAI, "Ignore end of sequence", NULL,
     "Continue past the end-of-sequence token."},
    {"start_id", NULL, SAMPLING_INT, AT(start_id), -1, INT32_MAX, false, -1, 1, SAMPLING_COMMAND,
     "Start token", NULL,
     "Token id that an empty session begins with, if the input is empty; -1 means none."},
    {"end_id", NULL, SAMPLING_INT, AT(end_id), -1, INT32_MAX, false, -1, 1, SAMPLING_COMMAND,
     "End token", NULL,
     "Token id that ends the answer instead of the model's end-of-sequence tokens; -1 means "
     "theirs."},
    {"logprobs", NULL, SAMPLING_BOOL, AT(logprobs), 0, 1, false, 0, 1, 0, "Log-probabilities", NULL,
     "Send the log-probability of each token."},
    {"top_logprobs", NULL, SAMPLING_INT, AT(top_logprobs), 0, SAMPLING_MAX_TOP_LOGPROBS, false, 0,
     1, 0, "Alternatives", "none", "How many alternatives to send with each token."},
    {"context_logprob", NULL, SAMPLING_BOOL, AT(context_logprob), 0, 1, false, 0, 1,
     SAMPLING_COMMAND, "Log-probability of the input", NULL,
     "Also give the log-probability of the input, each token given all before it."},
    {"context_embedding", NULL, SAMPLING_BOOL, AT(context_embedding), 0, 1, false, 0, 1,
     SAMPLING_COMMAND, "Embedding of the input", NULL,
     "Also give the sum of the last layer's hidden states over the input, before the final norm."},
    {"context_pooling", NULL, SAMPLING_INT, AT(context_pooling), POOLING_SUM, POOLING_FIRST, false,
     POOLING_SUM, 1, SAMPLING_COMMAND, "Pooling of the embedding", NULL,
     "0: the sum, before the final norm. After it: 1: the mean. 2: the last token's. 3: the "
     "first token's."},
    {"deadline_ms", NULL, SAMPLING_MS, AT(deadline_us), 0, 86400000, false, 0, 1, 0,
     "Deadline (ms)", "none", "The turn stops after this many milliseconds; 0 means no limit."},
    {"n", NULL, SAMPLING_INT, AT(n), 1, BEAMS_MAX, false, 1, 1, SAMPLING_COMMAND | SAMPLING_FORM,
     "Answers", NULL, "Draw this many independent answers; the session continues with the first."},
    {"beam_width", NULL, SAMPLING_INT, AT(beam_width), 1, BEAMS_MAX, false, 1, 1,
     SAMPLING_COMMAND | SAMPLING_FORM, "Beams", NULL,
     "Beam search over this many beams instead of drawing; the best becomes the answer; 1 means "
     "off."},
    {"len_penalty", NULL, SAMPLING_FLOAT, AT(len_penalty), -10, 10, false, 1, 0.1,
     SAMPLING_COMMAND | SAMPLING_FORM, "Beam length penalty", NULL,
     "A beam's score is its log-probability divided by its length to this power."},
    {"beam_search_diversity_rate", NULL, SAMPLING_FLOAT, AT(beam_search_diversity_rate), -100, 100,
     false, 0, 0.1, SAMPLING_COMMAND, "Beam diversity", NULL,
     "Added to a candidate's rank for each better candidate of its beam; below 0, beams differ "
     "more."},
    {"early_stopping", NULL, SAMPLING_BOOL, AT(early_stopping), 0, 1, false, 1, 1, SAMPLING_COMMAND,
     "Stop beams early", NULL,
     "End the beam search once as many beams have ended as it is wide, even if a longer one might "
     "score higher."},
    {"draft_tokens", NULL, SAMPLING_INT, AT(draft_tokens), 0, SAMPLING_MAX_DRAFTS, false, 0, 1,
     OURS, "Drafted tokens", "off",
     "Tokens that a step may draft from earlier text and check at once; the answer stays the "
     "same."},
    {"thinking_budget", "thinking_token_budget", SAMPLING_INT, AT(thinking_budget), -1, INT32_MAX,
     false, -1, 1, EVERYWHERE, "Thinking budget (tokens)", NULL,
     "The model's thinking is closed after this many tokens; 0 means at once, -1 no limit."},
    {"json_schema", NULL, SAMPLING_GRAMMAR, AT(grammar), 0, 0, false, 0, 1, SAMPLING_COMMAND,
     "JSON schema", "none", "The answer is JSON that this schema accepts."},
    {"grammar", NULL, SAMPLING_GRAMMAR, AT(grammar), 0, 0, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_OPENAI, "Grammar", "none",
     "The answer matches this grammar, in llama.cpp's GBNF."},
    {"regex", "guided_regex", SAMPLING_GRAMMAR, AT(grammar), 0, 0, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_OPENAI, "Regular expression", "none",
     "The whole answer matches this regular expression."},
    {"choice", "guided_choice", SAMPLING_GRAMMAR, AT(grammar), 0, 0, false, 0, 1,
     SAMPLING_COMMAND | SAMPLING_OPENAI, "Choice", "none",
     "The answer is one of this JSON list of texts."},
};
const int n_sampling_rows = sizeof sampling_rows / sizeof *sampling_rows;
_Static_assert(sizeof sampling_rows / sizeof *sampling_rows <= 64, "turn_sampling.set has 64 bits");

const char *sampling_row_option(const struct sampling_row *row) {
    static const struct {
        size_t offset;
        const char *option;
    } others[] = {{AT(len_penalty), "length_penalty"},
                  {AT(beam_search_diversity_rate), "beam_diversity"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].offset == row->offset) return others[i].option;
    return row->name;
}

const struct sampling_row *sampling_row_find(const char *name) {
    for (int i = 0; i < n_sampling_rows; i++)
        if (strcmp(sampling_rows[i].name, name) == 0) return &sampling_rows[i];
    return NULL;
}

enum grammar_kind sampling_row_kind(const struct sampling_row *row) {
    int kind = 0;
    while (strcmp(grammar_kind_name(kind), row->name) != 0) kind++;
    return kind;
}

uint64_t sampling_rows_of(enum sampling_type type) {
    uint64_t keys = 0;
    for (int i = 0; i < n_sampling_rows; i++)
        if (sampling_rows[i].type == type) keys |= (uint64_t)1 << i;
    return keys;
}

uint64_t sampling_rows_in(unsigned place) {
    uint64_t keys = 0;
    for (int i = 0; i < n_sampling_rows; i++)
        if (sampling_rows[i].places & place) keys |= (uint64_t)1 << i;
    return keys;
}
