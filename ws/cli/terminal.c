// Writes untrusted text to a terminal. See terminal.h.
#include "ws/cli/terminal.h"
#include "base/utf8.h"
#include <stdbool.h>
#include <unistd.h>

static const char replacement[] = "\xef\xbf\xbd"; // U+FFFD

// C1 controls U+0080 to U+009F; direction marks U+202A to U+202E and U+2066 to U+2069.
static bool is_hidden(const char *s, size_t n) {
    if (n == 2) return s[0] == '\xc2' && (unsigned char)s[1] < 0xa0;
    if (n != 3 || s[0] != '\xe2') return false;
    unsigned char b = (unsigned char)s[2];
    return (s[1] == '\x80' && b >= 0xaa && b <= 0xae) || (s[1] == '\x81' && b >= 0xa6 && b <= 0xa9);
}

static void write_control(FILE *f, unsigned char c) {
    char picture[3] = {'\xe2', '\x90', (char)(0x80 + (c == 0x7f ? 0x21 : c))}; // U+2400 on
    fwrite(picture, 1, sizeof picture, f);
}

void terminal_write(FILE *f, const char *text, size_t len) {
    for (size_t i = 0, n; i < len; i += n) {
        unsigned char c = (unsigned char)text[i];
        bool valid;
        n = utf8_next(text + i, len - i, &valid);
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            write_control(f, c);
        else if (!valid || is_hidden(text + i, n))
            fputs(replacement, f);
        else
            fwrite(text + i, 1, n, f);
    }
}

void terminal_line(FILE *f, const char *text, size_t len) {
    terminal_write(f, text, len);
    putc('\n', f);
}

void terminal_or_pipe(FILE *f, const char *text, size_t len) {
    if (isatty(fileno(f)))
        terminal_write(f, text, len);
    else
        fwrite(text, 1, len, f);
}
