// See probe_texts.h.
#include "engine/convert/probe_texts.h"
#include "engine/text/tokenizer.h"
#include <stdio.h>
#include <string.h>

// In Unicode's form NFC, which tokenizers that normalise leave as it is.
static const char *const texts[] = {
    "Hello, world!",
    " leading space, and trailing ",
    "two  spaces   three    four",
    "a\nb\n\nc\n\n\nd\r\ne\r\n\r\nf",
    "\ttabs\t\tand \t mixed \n space",
    "I'm you're HE'LL they'VE we'd O'Neil it's 'quoted'",
    "1 12 123 1234 12345 1234567890 3.14 1,234,567 1e-10 0x1F 007",
    "CamelCaseWord snake_case kebab-case UPPER lower MiXeD",
    "int main(void) {\n    return x->y[0] != NULL ? -1 : 0; // ok\n}\n",
    "https://example.com/a?b=c&d=%20#e user@host.org C:\\dir\\file.txt",
    "... !!! ?? -- :: ;; <> [] {} () | ~ ` ^ * _ $ \" \\ /",
    "na\xc3\xafve caf\xc3\xa9 stra\xc3\x9f"
    "e \xc5\x81\xc3\xb3"
    "d\xc5\xba",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c\xef\xbc\x8c\xe4\xbb\x8a\xe5\xa4\xa9\xe3\x80"
    "\x82",
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf\xe3\x82\xab\xe3\x82\xbf\xe3\x82"
    "\xab\xe3\x83\x8a",
    "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xd8\xa7\xd9\x84\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a\xd8\xa9",
    "\xe0\xb9\x84\xe0\xb8\x97\xe0\xb8\xa2 "
    "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\x82\xe0\xa4\xa6\xe0\xa5\x80",
    "\xf0\x9f\x99\x82 \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe2\x98\x83 \xe2\x82\xac"
    "5 \xe2\x80\xa6 \xe2\x80\x9cq\xe2\x80\x9d",
    "\xd9\xa3\xd9\xa4 \xc2\xbd x\xc2\xb2 \xe2\x85\xa7 \xe2\x91\xa0 \xef\xbc\x91\xef\xbc\x92",
    "no\xc2\xa0"
    "break\xe3\x80\x80wide\xe2\x80\x8bzero",
    "",
    " ",
    "\n",
    "a",
};

static int compare_one(struct tokenizer *const t[2], const char *text, struct token_list ids[2],
                       struct err *err) {
    for (int i = 0; i < 2; i++) {
        ids[i].len = 0;
        TRY(tokenizer_encode(t[i], text, strlen(text), NULL, &ids[i], err));
    }
    if (ids[0].len == ids[1].len &&
        (ids[0].len == 0 || memcmp(ids[0].ids, ids[1].ids, ids[0].len * sizeof *ids[0].ids) == 0))
        return 0;
    return err_set(err, E_UNSUPPORTED,
                   "a GGUF file cannot say how the tokenizer works: from its metadata, '%.60s' "
                   "would be other tokens",
                   text);
}

// Every added token inside of a text: it is found there, or not, by both.
static int compare_tokens(struct tokenizer *const t[2], struct token_list ids[2], struct err *err) {
    char text[300];
    for (int32_t id = 0; id < tokenizer_n_tokens(t[0]); id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t[0], id, &len);
        if (!bytes || !tokenizer_is_special(t[0], id) || len == 0 || len > 256) continue;
        snprintf(text, sizeof text, "a %.*s b", (int)len, bytes);
        TRY(compare_one(t, text, ids, err));
    }
    return 0;
}

static int compare(struct tokenizer *const t[2], struct err *err) {
    struct token_list ids[2] = {{0}, {0}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof texts / sizeof *texts; i++)
        rc = compare_one(t, texts[i], ids, err);
    if (rc == 0) rc = compare_tokens(t, ids, err);
    token_list_release(&ids[0]);
    token_list_release(&ids[1]);
    return rc;
}

int probe_texts_compare(const char *a, const char *b, struct err *err) {
    struct tokenizer *t[2] = {NULL, NULL};
    int rc = tokenizer_open(&t[0], a, err);
    if (rc == 0) rc = tokenizer_open(&t[1], b, err);
    if (rc == 0) rc = compare(t, err);
    if (t[0]) tokenizer_close(t[0]);
    if (t[1]) tokenizer_close(t[1]);
    return rc;
}
