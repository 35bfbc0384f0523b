// The items of an evaluation, from its data file, and how each is judged.
//
//   lambada     JSON lines with "text", or a text a line: predict the last word, which follows the last
//               space. Scored: the last k tokens, if the text has k more tokens than without that word.
//   squad       the SQuAD file (versions 1.1 and 2.0), or JSON lines with "context", "question" and
//               "answers" (a list of texts) or "answer": answer the question
//   perplexity  any text, in pieces of at most piece_tokens: predict each token of a piece but its first
#pragma once
#include "ws/cli/cli.h"

enum eval_task { EVAL_LAMBADA, EVAL_SQUAD, EVAL_PERPLEXITY, N_EVAL_TASKS };
extern const char *const eval_task_names[N_EVAL_TASKS];

struct eval_item {
    char *id;     // SQuAD's; NULL: none
    int32_t *ids; // (n_ids) the prompt, or the text whose last n_scored tokens are scored
    int64_t n_ids, n_scored;
    char **answers; // (n_answers) SQuAD's
    size_t n_answers;
};
struct eval_items {
    struct eval_item *list; // (n)
    size_t n, cap;
    int64_t n_cut;    // items whose beginning was left out, because they are too long
    size_t n_bytes;   // of the data file
    uint64_t data_id; // a hash of it
};
// max_tokens: of an item; piece_tokens: of a piece of a text. E_FORMAT names the item. On an error nothing is to
// be released.
int eval_items_read(struct eval_items *items, enum eval_task task, const char *path,
                    const struct engine *e, int64_t max_tokens, int64_t piece_tokens,
                    struct err *err);
void eval_items_release(struct eval_items *items);

// --- SQuAD's measures

// As its evaluate-v2.0.py has them: texts in lower case, without punctuation, without the
// words a, an and the, and with single spaces. Only ASCII letters and punctuation are changed.

void eval_normalize(const char *text, struct buf *out);
bool eval_exact(const char *answer, const char *truth);
// Of the words of both: the harmonic mean of precision and recall. Both empty: 1.
double eval_f1(const char *answer, const char *truth);
