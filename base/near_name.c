// See near_name.h. Capitals count as small letters and '-' as '_', so that an option is found by its setting's name.
#include "base/near_name.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 }; // names that are longer have no near ones

static int fold(char c) {
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int min3(int a, int b, int c) {
    const int m = a < b ? a : b;
    return m < c ? m : c;
}

// Levenshtein distance, row by row.
static int edit_distance(const char *a, const char *b) {
    int row[LONGEST + 1];
    const int n = (int)strlen(b);
    if (n > LONGEST || strlen(a) > LONGEST) return LONGEST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int substituted = diagonal + (fold(a[i - 1]) != fold(b[j - 1]));
            diagonal = row[j];
            row[j] = min3(row[j] + 1, row[j - 1] + 1, substituted);
        }
    }
    return row[n];
}

static bool is_near(int distance, const char *candidate) {
    return 3 * distance <= (int)strlen(candidate) + 2;
}

void near_name_look(struct near_name *n, const char *candidate) {
    const int d = edit_distance(n->name, candidate);
    if ((n->best && d >= n->distance) || !is_near(d, candidate)) return;
    n->best = candidate;
    n->distance = d;
}

void near_names_look(struct near_names *n, const char *candidate) {
    const int d = edit_distance(n->name, candidate);
    int at = n->n;
    if (!is_near(d, candidate) && strncmp(n->name, candidate, strlen(candidate)) != 0) return;
    while (at > 0 && n->distance[at - 1] > d) at--;
    if (at == NEAR_NAMES) return;
    if (n->n < NEAR_NAMES) n->n++;
    for (int i = n->n - 1; i > at; i--) {
        n->best[i] = n->best[i - 1];
        n->distance[i] = n->distance[i - 1];
    }
    n->best[at] = candidate;
    n->distance[at] = d;
}

char *near_names_text(char out[NEAR_NAMES_TEXT], const struct near_names *n) {
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < n->n && at < NEAR_NAMES_TEXT; i++)
        at += (size_t)snprintf(out + at, NEAR_NAMES_TEXT - at, "%s%s", i ? ", " : "; near are ",
                               n->best[i]);
    return out;
}
