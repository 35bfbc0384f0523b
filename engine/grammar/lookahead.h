// Look-aheads at a pattern's start: ^(?=A)(?!B)REST. Each is a condition on the whole text, so the text matches if it
// matches ^A and ^REST, and not ^B. Zod and others write the patterns of e-mail addresses and host names so. A
// look-ahead anywhere else stays in the text, where regex_parse refuses it.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { LOOKAHEAD_MOST = 8 };

struct lookaheads {
    char *rest; // the pattern without them, as a search; all texts are the struct's own
    struct {
        char *pattern; // a search: ^...
        bool negated;  // no match may exist
    } at[LOOKAHEAD_MOST];
    int n;
};

// False: no memory. A pattern that does not begin with look-aheads, or has several alternatives, is `rest` as it is.
bool lookaheads_split(struct lookaheads *l, const char *pattern);
void lookaheads_release(struct lookaheads *l);
