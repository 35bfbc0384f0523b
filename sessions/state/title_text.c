// The title that a text makes: by itself, so that programs without a session service have it. See title.h.
#include "base/utf8.h"
#include "sessions/state/title.h"
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool title_has_words(const char *text, size_t len) {
    static const char replacement[] = "\xef\xbf\xbd"; // stands for a character that was no text
    const size_t n = sizeof replacement - 1;
    for (size_t at = 0; at < len;)
        if (is_blank(text[at]))
            at++;
        else if (len - at >= n && memcmp(text + at, replacement, n) == 0)
            at += n;
        else
            return true;
    return false;
}

// --- without Markdown ---

// A title is plain text, so the marks of Markdown go: of headings, quotes, lists, code, emphasis and links. What may be
// no mark stays: `2 * 3`, `snake_case`, `__init__`, `C#`, `*p, *q`. Underscores stay for that reason.

enum {
    MAX_SPAN = 1000, // bytes in which a mark must have its counterpart: bounds the work
    MAX_MARKS = 8,   // counterparts that are awaited at one time
};
struct mark {
    size_t at, n;
};
struct words {
    const char *text;
    size_t len, at;
    size_t verbatim; // up to here nothing is a mark: inside code
    bool begun;      // the line has shown something
    bool fenced;     // in a block of code
    int n_marks;
    struct mark marks[MAX_MARKS]; // that end something which has begun
};

static size_t run_of(const struct words *w, size_t at) {
    size_t n = 1;
    while (at + n < w->len && w->text[at + n] == w->text[at]) n++;
    return n;
}

static size_t line_end(const struct words *w, size_t at) {
    const char *end = at < w->len ? memchr(w->text + at, '\n', w->len - at) : NULL;
    return end ? (size_t)(end - w->text) : w->len;
}

static bool stands_before(const struct words *w, size_t at, const char *chars) {
    return at >= w->len || is_blank(w->text[at]) || strchr(chars, w->text[at]);
}

// The mark at the beginning of a line.
static size_t line_mark(struct words *w) {
    const char c = w->text[w->at];
    size_t n = run_of(w, w->at), end = w->at + n;
    if ((c == '`' || c == '~') && n >= 3) {
        size_t stop = line_end(w, w->at);
        if (c == '`' && memchr(w->text + end, '`', stop - end)) return 0; // code inside a line
        w->fenced = !w->fenced;
        return stop - w->at;
    }
    if (w->fenced) return 0;
    if (strchr("-*=_", c) && n >= 3 && line_end(w, w->at) == end) return n; // a rule
    if (c == '>') return n;
    bool blank = end < w->len && is_blank(w->text[end]);
    return blank && ((c == '#' && n <= 6) || (strchr("-*+", c) && n == 1)) ? n : 0;
}

// Where a run of n characters as at w->at follows in the same line; 0: nowhere. ends: it ends a word.
static size_t counterpart(const struct words *w, size_t n, bool ends) {
    const char c = w->text[w->at];
    size_t stop = line_end(w, w->at);
    if (stop > w->at + MAX_SPAN) stop = w->at + MAX_SPAN;
    for (size_t at = w->at + n; at < stop; at++) {
        if (w->text[at] != c) continue;
        size_t found = run_of(w, at);
        bool fits = !ends ||
                    (!is_blank(w->text[at - 1]) && stands_before(w, at + found, ".,;:!?)]}'\"*_-"));
        if (found == n && fits) return at;
        at += found - 1;
    }
    return 0;
}

static bool await(struct words *w, size_t at, size_t n) {
    if (at == 0 || w->n_marks == MAX_MARKS) return false;
    w->marks[w->n_marks++] = (struct mark){at, n};
    return true;
}

// "[words](address)" and "![words](address)" leave their words.
static size_t link_mark(struct words *w, size_t n) {
    size_t stop = line_end(w, w->at), from = w->at + n;
    if (stop > w->at + MAX_SPAN) stop = w->at + MAX_SPAN;
    const char *close = memchr(w->text + from, ']', stop - from);
    size_t at = close ? (size_t)(close - w->text) : stop;
    if (at + 1 >= stop || at == from || w->text[at + 1] != '(') return 0;
    const char *end = memchr(w->text + at, ')', stop - at);
    return end && await(w, at, (size_t)(end - w->text) + 1 - at) ? n : 0;
}

// The mark inside a line.
static size_t span_mark(struct words *w) {
    const char c = w->text[w->at];
    size_t n = run_of(w, w->at);
    switch (c) {
    case '`': {
        size_t at = counterpart(w, n, false);
        if (!await(w, at, n)) return 0;
        w->verbatim = at;
        return n;
    }
    case '*':
    case '~': {
        bool begins = w->at == 0 || stands_before(w, w->at - 1, "([{'\"*_-~");
        if (n > 3 || (c == '~' && n != 2) || !begins || stands_before(w, w->at + n, "")) return 0;
        return await(w, counterpart(w, n, true), n) ? n : 0;
    }
    case '!':
        return w->at + 1 < w->len && w->text[w->at + 1] == '[' ? link_mark(w, 2) : 0;
    case '[':
        return link_mark(w, 1);
    case '\\': // before a character that is no mark
        if (w->at + 1 == w->len || !strchr("*_`#", w->text[w->at + 1])) return 0;
        w->verbatim = w->at + 2;
        return 1;
    default:
        return 0;
    }
}

// How many bytes at w->at are a mark.
static size_t mark_at(struct words *w) {
    for (int i = 0; i < w->n_marks; i++)
        if (w->marks[i].at == w->at) {
            size_t n = w->marks[i].n;
            w->marks[i] = w->marks[--w->n_marks];
            return n;
        }
    if (w->at < w->verbatim || w->text[w->at] == '\0') return 0;
    size_t n = w->begun ? 0 : line_mark(w);
    return n || w->fenced ? n : span_mark(w);
}

// The next character that the reader of the text would see; -1 at its end.
static int next_char(struct words *w) {
    while (w->at < w->len) {
        size_t n = mark_at(w);
        w->at += n;
        if (n > 0) continue;
        char c = w->text[w->at++];
        w->begun = c != '\n' && (w->begun || !is_blank(c));
        return (unsigned char)c;
    }
    return -1;
}

// --- one line ---

// Back to the end of a word when that does not lose more than half of it (languages without blanks
// are cut as they are).
static size_t cut_at_word(const char *text, size_t len) {
    for (size_t i = len; i > len / 2; i--)
        if (text[i - 1] == ' ') return i - 1;
    return len;
}

static size_t fill(struct words *w, bool plain, char *out, size_t cap) {
    static const char dots[] = "\xe2\x80\xa6";
    size_t n = 0, room = cap - sizeof dots;
    bool blank = true, cut = false;
    for (int c; !cut && w->at < w->len;) {
        c = plain ? next_char(w) : (unsigned char)w->text[w->at++];
        if (c < 0 || (is_blank((char)c) && blank)) continue;
        blank = is_blank((char)c);
        if (n == room)
            cut = true;
        else
            out[n++] = blank ? ' ' : c < 0x20 ? '?' : (char)c;
    }
    if (cut) n = cut_at_word(out, utf8_complete_len(out, n));
    while (n > 0 && out[n - 1] == ' ') n--;
    if (cut) {
        memcpy(out + n, dots, sizeof dots - 1);
        n += sizeof dots - 1;
    }
    out[n] = '\0';
    return n;
}

// --- files ---

// The page puts a message's files before its words (web/src/attachments.js): "File: NAME", a fenced block, an empty
// line. Returns how many bytes of text are such a file; 0: it begins with none. name: within text.
static size_t file_at(const char *text, size_t len, const char **name, size_t *name_len) {
    static const char head[] = "File: ";
    struct words w = {.text = text, .len = len};
    size_t end = line_end(&w, 0), fence = end + 1;
    if (len < sizeof head || memcmp(text, head, sizeof head - 1) != 0) return 0;
    *name = text + sizeof head - 1;
    *name_len = end - (sizeof head - 1);
    if (fence >= len || text[fence] != '`' || run_of(&w, fence) < 3 || *name_len == 0) return 0;
    size_t n = run_of(&w, fence);
    for (size_t at = line_end(&w, fence); at < len; at = line_end(&w, at + 1)) {
        size_t after = at + 1 + n;
        if (after > len || text[at + 1] != '`' || run_of(&w, at + 1) != n) continue;
        if (after < len && text[after] != '\n') continue;
        while (after < len && text[after] == '\n') after++;
        return after;
    }
    return 0;
}

// Behind the files; a message without words is named after its first file.
static void skip_files(const char **text, size_t *len) {
    const char *name, *first = NULL, *at = *text;
    size_t name_len, first_len = 0, left = *len, n;
    while ((n = file_at(at, left, &name, &name_len)) > 0) {
        if (!first) first = name, first_len = name_len;
        at += n, left -= n;
    }
    *text = left || !first ? at : first;
    *len = left || !first ? left : first_len;
}

void title_from(const char *text, size_t len, char *out, size_t cap) {
    skip_files(&text, &len);
    struct words w = {.text = text, .len = len};
    if (fill(&w, true, out, cap) > 0) return;
    w = (struct words){.text = text, .len = len}; // it is all marks: better those than no title
    fill(&w, false, out, cap);
}
