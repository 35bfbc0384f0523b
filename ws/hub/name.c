// See name.h.
#include "ws/hub/name.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// As the hub allows them: letters, digits, "-", "_" and "."; not "--" or "..", no "-" or "." at an end.
static bool is_word(const char *s, size_t n) {
    if (n == 0 || n > HUB_WORD_MAX) return false;
    if (strchr("-.", s[0]) || strchr("-.", s[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !memchr("-_.", s[i], 3)) return false;
        if (i > 0 && s[i] == s[i - 1] && (s[i] == '-' || s[i] == '.')) return false;
    }
    return true;
}

bool hub_path_is_safe(const char *path) {
    size_t n = strlen(path);
    if (n == 0 || n >= HUB_PATH_BYTES) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)path[i] < ' ' || path[i] == 127) return false;
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t len = strcspn(part, "/");
        if (len == 0 || len > 255) return false;
        if (part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.'))) return false;
    }
    return true;
}

bool hub_is_hex(const char *text, size_t digits) {
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

// Copies a quant or a revision, which becomes a part of addresses and paths. False: it may not be one.
static bool copy_part(char out[HUB_PATH_BYTES], const char *s, size_t n) {
    if (n == 0 || n >= HUB_PATH_BYTES) return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return hub_path_is_safe(out) && !strpbrk(out, " \\?#%*[~^:@");
}

static bool parse(struct hub_name *out, const char *text) {
    size_t org = strcspn(text, "/");
    if (!text[org]) return false;
    const char *name = text + org + 1, *at = name + strcspn(name, ":@");
    size_t len = (size_t)(at - name);
    if (!is_word(text, org) || !is_word(name, len)) return false;
    if (len > 4 && memcmp(at - 4, ".git", 4) == 0) return false;
    snprintf(out->org, sizeof out->org, "%.*s", (int)org, text);
    snprintf(out->name, sizeof out->name, "%.*s", (int)len, name);
    strcpy(out->revision, "main");
    out->quant[0] = '\0';
    if (*at == ':') {
        size_t n = strcspn(at + 1, "@");
        if (!copy_part(out->quant, at + 1, n)) return false;
        at += n + 1;
    }
    out->has_revision = *at;
    return !*at || copy_part(out->revision, at + 1, strlen(at + 1));
}

int hub_name_parse(struct hub_name *out, const char *text, struct err *err) {
    if (parse(out, text)) return 0;
    return err_set(err, E_INVAL,
                   "'%.200s' is no name of a model, which has the form ORG/NAME[:QUANT][@REVISION]",
                   text);
}

bool hub_name_is(const char *text) {
    struct hub_name n;
    return parse(&n, text);
}

const char *hub_name_repo(const struct hub_name *n, char out[HUB_NAME_BYTES]) {
    snprintf(out, HUB_NAME_BYTES, "%s/%s", n->org, n->name);
    return out;
}

const char *hub_name_text(const struct hub_name *n, char out[HUB_NAME_BYTES]) {
    bool main = strcmp(n->revision, "main") == 0;
    snprintf(out, HUB_NAME_BYTES, "%s/%s%s%s%s%s", n->org, n->name, n->quant[0] ? ":" : "",
             n->quant, main ? "" : "@", main ? "" : n->revision);
    return out;
}
