// See lookahead.h.
#include "engine/grammar/lookahead.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// From inside a group, the ')' that closes it; from outside, the first '|' that is in no group. NULL: none.
static const char *find_outside_groups(const char *p, char wanted) {
    int depth = 0;
    bool class = false;
    for (; *p; p++) {
        if (*p == '\\') {
            if (!*++p) return NULL;
        } else if (class) {
            class = *p != ']';
        } else if (depth == 0 && *p == wanted) {
            return p;
        } else {
            class = *p == '[';
            depth += (*p == '(') - (*p == ')');
        }
    }
    return NULL;
}

static bool begins(const char *p) {
    return strncmp(p, "(?=", 3) == 0 || strncmp(p, "(?!", 3) == 0;
}

// The first n bytes of the text behind one ^: without a group if they have one alternative, so that a $ may end them.
// NULL: no memory.
static char *anchored(const char *text, size_t n) {
    if (n > 0 && text[0] == '^') { // as pydantic's decimals have it
        text++;
        n--;
    }
    size_t size = n + sizeof "^(?:)";
    char *out = malloc(size);
    if (!out) return NULL;
    snprintf(out, size, "^%.*s", (int)n, text);
    if (find_outside_groups(out, '|')) snprintf(out, size, "^(?:%.*s)", (int)n, text);
    return out;
}

bool lookaheads_split(struct lookaheads *l, const char *pattern) {
    const char *p = pattern + 1, *end;
    memset(l, 0, sizeof *l);
    bool split = pattern[0] == '^' && begins(p) && !find_outside_groups(p, '|');
    while (split && begins(p) && l->n < LOOKAHEAD_MOST) {
        if (!(end = find_outside_groups(p + 3, ')')) || (end[1] && strchr("*+?{", end[1]))) break;
        l->at[l->n].negated = p[2] == '!';
        if (!(l->at[l->n++].pattern = anchored(p + 3, (size_t)(end - p - 3)))) return false;
        p = end + 1;
    }
    size_t size = strlen(pattern) + 1;
    if (!(l->rest = malloc(size))) return false;
    snprintf(l->rest, size, "%s%s", l->n > 0 ? "^" : "", l->n > 0 ? p : pattern);
    return true;
}

void lookaheads_release(struct lookaheads *l) {
    for (int i = 0; i < l->n; i++) free(l->at[i].pattern);
    free(l->rest);
    memset(l, 0, sizeof *l);
}
