// The normaliser's steps that look at one character at a time. The reference is Rust's `char` and the
// crates that Hugging Face tokenizers uses.
#include "engine/text/byte_alphabet.h"
#include "engine/text/char_class.h"
#include "engine/text/normalizer.h"
#include <utf8proc.h>

#define UNCHANGED (-1)
#define MAX_BYTES 8 // of one character's result

static int put_char(uint32_t c, char *out) {
    return (int)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

static int lowercase(uint32_t c, char *out) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? put_char(c + 32, out) : UNCHANGED;
    uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    if (c == 0x130) { // the only one that becomes two: i and a dot above
        int n = put_char('i', out);
        return n + put_char(0x307, out + n);
    }
    return lower == c ? UNCHANGED : put_char(lower, out);
}

static bool in_category(uint32_t c, utf8proc_category_t from, utf8proc_category_t to) {
    utf8proc_category_t category =
        c < 0x80 && from >= UTF8PROC_CATEGORY_MN && to <= UTF8PROC_CATEGORY_ME
            ? UTF8PROC_CATEGORY_CN
            : utf8proc_category((utf8proc_int32_t)c);
    return category >= from && category <= to;
}

static int nmt(uint32_t c, char *out) {
    if ((c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f)
        return 0;
    if (c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff ||
        c == 0xfffd)
        return put_char(' ', out);
    return UNCHANGED;
}

static int bert_clean(uint32_t c, char *out) {
    bool blank = char_is_space(c);
    if (c == 0 || c == 0xfffd) return 0;
    if (c != '\t' && c != '\n' && c != '\r' &&
        in_category(c, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO))
        return 0;
    return blank && c != ' ' ? put_char(' ', out) : UNCHANGED;
}

static bool is_ideograph(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                         {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static int bert_chinese(uint32_t c, char *out) {
    if (!is_ideograph(c)) return UNCHANGED;
    int n = put_char(' ', out);
    n += put_char(c, out + n);
    return n + put_char(' ', out + n);
}

static int byte_alphabet(const char *s, char *out) {
    size_t n = 0;
    for (size_t i = 0, len = char_utf8_len(s); i < len; i++)
        n += byte_alphabet_encode((unsigned char)s[i], out + n);
    return n == 1 && *out == *s ? UNCHANGED : (int)n;
}

// Writes the result for the character at s to out, which holds MAX_BYTES; returns its length.
static int map(enum normalize_kind kind, const char *s, char *out) {
    uint32_t c = char_decode(s);
    switch (kind) {
    case NORMALIZE_LOWERCASE:
        return lowercase(c, out);
    case NORMALIZE_DROP_MARKS:
        return in_category(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) ? 0 : UNCHANGED;
    case NORMALIZE_DROP_ACCENTS:
        return in_category(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN) ? 0 : UNCHANGED;
    case NORMALIZE_NMT:
        return nmt(c, out);
    case NORMALIZE_BERT_CLEAN:
        return bert_clean(c, out);
    case NORMALIZE_BERT_CHINESE:
        return bert_chinese(c, out);
    default:
        return byte_alphabet(s, out);
    }
}

int normalize_chars(enum normalize_kind kind, struct rewrite *r) {
    char changed[MAX_BYTES];
    size_t kept = 0; // bytes that stay and are not yet copied
    for (size_t i = 0, n; i < r->len; i += n) {
        n = char_utf8_len(r->text + i);
        int size = map(kind, r->text + i, changed);
        if (size == UNCHANGED) {
            kept += n;
            continue;
        }
        TRY(rewrite_copy(r, kept));
        TRY(rewrite_put(r, n, changed, (size_t)size));
        kept = 0;
    }
    return 0; // the rest is copied at the end
}

int normalize_strip(const struct normalize_step *s, struct rewrite *r) {
    const char *from = r->text, *end = r->text + r->len, *before;
    while (s->left && from < end && char_is_space(char_decode(from))) from += char_utf8_len(from);
    while (s->right && end > from && char_is_space(char_decode_back(end, &before))) end = before;
    TRY(rewrite_put(r, (size_t)(from - r->text), "", 0));
    TRY(rewrite_copy(r, (size_t)(end - from)));
    return rewrite_put(r, (size_t)(r->text + r->len - end), "", 0);
}
