// The title that a text makes: by itself, so that programs without a session service have it. See title.h.
#include "base/utf8.h"
#include "sessions/title.h"
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// Back to the end of a word when that does not lose more than half of it (languages without blanks
// are cut as they are).
static size_t cut_at_word(const char *text, size_t len) {
    for (size_t i = len; i > len / 2; i--)
        if (text[i - 1] == ' ') return i - 1;
    return len;
}

void title_from(const char *text, size_t len, char *out, size_t cap) {
    static const char dots[] = "\xe2\x80\xa6";
    size_t n = 0, room = cap - sizeof dots;
    bool blank = true, cut = false;
    for (size_t i = 0; i < len && !cut; i++) {
        if (is_blank(text[i]) && blank) continue;
        blank = is_blank(text[i]);
        if (n == room)
            cut = true;
        else
            out[n++] = blank ? ' ' : (unsigned char)text[i] < 0x20 ? '?' : text[i];
    }
    if (cut) n = cut_at_word(out, utf8_complete_len(out, n));
    while (n > 0 && out[n - 1] == ' ') n--;
    if (cut) {
        memcpy(out + n, dots, sizeof dots - 1);
        n += sizeof dots - 1;
    }
    out[n] = '\0';
}
