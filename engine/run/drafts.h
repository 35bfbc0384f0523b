// Drafts of an answer's next tokens, without a second model: prompt lookup (Saxena 2023). Where the log's
// last tokens occurred before, in the log itself or in a text that the caller expects as the answer, the
// tokens that followed there are drafted. The model checks all of them in one step (draft_step.c).
//
//   log   ... the cat sat on the mat . Then the cat sat      drafts: on the mat .
//             `--- a match of 3 ---' `-------'
//
// An index maps each pair of tokens to the places where it ends, the latest first, as the match finders of
// LZ77 compressors do. So a search does not depend on the log's length.
// Engine thread only. Nothing allocates after _new.
#pragma once
#include "base/err.h"
#include <stdint.h>

// Drafts in a step of a turn that expects a text and has draft_tokens 0.
enum { DRAFTS_OF_EXPECTED = 16 };

struct ngrams { // the pairs of one array of ids
    int32_t *heads,
        *prev; // (1 << bits): the last place of a pair with this hash; (cap): the one before; -1: none
    int32_t n, cap, bits; // places [0, n) are in the index
};

struct drafts {
    int32_t most;    // drafts in a step
    int32_t expects; // how many to draft after the shortest match; each step adapts it
    struct ngrams log;
    struct ngrams text; // of the expected answer
    int32_t *text_ids;  // (n_text) the last tokens of the log before the answer, then the text
    int32_t n_text;
    int64_t n_drafted, n_accepted; // in all steps
};

// most: 1 or more. cap: the log's maximum length. log (n_log): the log before the answer.
// expected (n_expected): the expected answer; n_expected 0: none. E_NOMEM.
int drafts_new(struct drafts **out, int32_t most, int64_t cap, const int32_t *log, int64_t n_log,
               const int32_t *expected, int32_t n_expected, struct err *err);
void drafts_free(struct drafts *d); // NULL is allowed
// Checks that the ids of an expected answer are in the vocabulary. E_INVAL.
int drafts_check(const int32_t *expected, int32_t n, int32_t n_vocab, struct err *err);

// Writes at most `room` drafts after the log's n tokens: ids (n + room). Since the last call the log may
// only have grown. Returns the number of drafts.
int32_t drafts_find(struct drafts *d, int32_t *ids, int64_t n, int64_t room);
// The result of the last step: of n_drafted drafts, the first n_accepted were drawn.
void drafts_checked(struct drafts *d, int32_t n_drafted, int32_t n_accepted);
