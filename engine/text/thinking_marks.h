// The marks around a model's thinking, as bytes and as ids. A mark may be one token or several, and a
// token may end inside a mark or after it; therefore answers are matched byte by byte. Constant
// after _new: any thread.
#pragma once
#include "base/err.h"
#include "engine/text/token_list.h"
#include "engine/text/tokenizer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { THINKING_MARK_MAX = 32 }; // bytes

struct thinking_mark {
    char text[THINKING_MARK_MAX];
    int32_t len;
    int32_t fail[THINKING_MARK_MAX]; // the failure function of Knuth, Morris and Pratt
};
struct thinking_ids { // borrowed from the marks
    const int32_t *ids;
    int32_t n;
};

struct thinking_marks {
    const struct tokenizer *tokenizer; // borrowed
    struct thinking_mark open, close;
    int32_t longest_close; // tokens of the longest thinking_closing
    // The ids of all lists that the functions below return; list i begins where list i - 1 ends.
    struct token_list ids;
    int32_t ends[3 * THINKING_MARK_MAX + 2];
};

// template (len): the chat template's source, which shows the line ends around the closing mark.
// answer: what is written between the closing mark and the answer, in place of line ends (a header of gpt-oss); or
// NULL. E_UNSUPPORTED: the tokenizer cannot write the closing mark; E_NOMEM.
int thinking_marks_new_before(struct thinking_marks **out, const struct tokenizer *t,
                              const char *open, const char *close, const char *answer,
                              const char *template, size_t len, struct err *err);
// Without such a text.
int thinking_marks_new(struct thinking_marks **out, const struct tokenizer *t, const char *open,
                       const char *close, const char *template, size_t len, struct err *err);
void thinking_marks_free(struct thinking_marks *m); // NULL is allowed

// The number of matched bytes of the mark after the byte c, if `matched` were matched before it.
// mark->len: the whole mark.
int32_t thinking_mark_step(const struct thinking_mark *mark, int32_t matched, char c);

// The tokens that close the thinking, with the line ends that the template writes: the closing mark
// without the first `matched` bytes, which are written. in_line: the thinking does not end with a
// line end.
struct thinking_ids thinking_closing(const struct thinking_marks *m, int32_t matched, bool in_line);
// The line ends between the closing mark and the answer; may be empty.
struct thinking_ids thinking_gap(const struct thinking_marks *m);
// The tokens that continue an opening mark of which `matched` bytes are written.
struct thinking_ids thinking_openings(const struct thinking_marks *m, int32_t matched);
// The tokens that complete a closing mark of which `matched` bytes are written, and have further text
// after it.
struct thinking_ids thinking_spills(const struct thinking_marks *m, int32_t matched);
