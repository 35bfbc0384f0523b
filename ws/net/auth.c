// Tokens, owners, Host and Origin rules. See auth.h.
#include "ws/net/auth.h"
#include "base/buf.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FILE_MAX (1 << 20)

struct auth_entry {
    char name[AUTH_NAME_MAX + 1];
    unsigned char digest[SHA256_DIGEST_LENGTH];
};

struct auth {
    char *path; // "" without a token file
    struct auth_entry *entries;
    size_t n_entries;
};

static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '@';
}

static bool token_valid(const char *s, size_t len) {
    if (len < AUTH_TOKEN_MIN || len > AUTH_TOKEN_MAX) return false;
    for (size_t i = 0; i < len; i++)
        if (s[i] <= ' ' || s[i] >= 127) return false;
    return true;
}

// "name:token" or "token". A bare token's owner is named after its digest: the same name wherever
// the line stands.
static int parse_line(struct auth_entry *e, const char *line, size_t len, const char *path,
                      int number, struct err *err) {
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : 0;
    const char *token = colon ? colon + 1 : line;
    size_t token_len = len - (size_t)(token - line);
    if (colon) {
        bool good = name_len > 0 && name_len <= AUTH_NAME_MAX;
        for (size_t i = 0; good && i < name_len; i++) good = name_char(line[i]);
        if (!good)
            return err_set(err, E_FORMAT, "%s:%d: a name is 1 to %d of A-Z a-z 0-9 _ - . @", path,
                           number, AUTH_NAME_MAX);
    }
    if (!token_valid(token, token_len))
        return err_set(err, E_FORMAT, "%s:%d: a token is %d to %d visible ASCII characters", path,
                       number, AUTH_TOKEN_MIN, AUTH_TOKEN_MAX);
    SHA256((const unsigned char *)token, token_len, e->digest);
    if (colon)
        snprintf(e->name, sizeof(e->name), "%.*s", (int)name_len, line);
    else
        snprintf(e->name, sizeof(e->name), "token-%02x%02x%02x%02x%02x%02x", e->digest[0],
                 e->digest[1], e->digest[2], e->digest[3], e->digest[4], e->digest[5]);
    return 0;
}

static int add_entry(struct auth_entry **entries, size_t *n, const struct auth_entry *e,
                     const char *path, int number, struct err *err) {
    for (size_t i = 0; i < *n; i++)
        if (memcmp((*entries)[i].digest, e->digest, sizeof(e->digest)) == 0)
            return err_set(err, E_EXISTS, "%s:%d: the token stands in an earlier line too", path,
                           number);
    struct auth_entry *grown = realloc(*entries, (*n + 1) * sizeof(*grown));
    if (!grown) return err_set(err, E_NOMEM, "no memory for the tokens of %s", path);
    *entries = grown;
    grown[(*n)++] = *e;
    return 0;
}

static int parse_file(struct auth_entry **entries, size_t *n, const struct buf *text,
                      const char *path, struct err *err) {
    const char *p = buf_z(text), *end = p + text->len;
    for (int number = 1; p < end; number++) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((eol ? eol : end) - p);
        const char *line = p;
        p += len + 1;
        while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' ' || line[len - 1] == '\t'))
            len--;
        while (len > 0 && (*line == ' ' || *line == '\t')) line++, len--;
        if (len == 0 || *line == '#') continue;
        struct auth_entry e;
        memset(&e, 0, sizeof(e));
        TRY(parse_line(&e, line, len, path, number, err));
        TRY(add_entry(entries, n, &e, path, number, err));
    }
    if (*n == 0) return err_set(err, E_FORMAT, "%s: holds no token", path);
    return 0;
}

int auth_reload(struct auth *a, struct err *err) {
    struct auth_entry *entries = NULL;
    struct buf text;
    struct stat st;
    size_t n = 0;
    if (!*a->path) return 0;
    if (stat(a->path, &st) == 0 && (st.st_mode & 077))
        log_warn("auth.token_file_open", "mode=%03o hint=\"others can read the tokens: chmod 600\"",
                 (unsigned)(st.st_mode & 0777));
    int rc = buf_read_file(&text, a->path, FILE_MAX, err);
    if (rc == 0) rc = parse_file(&entries, &n, &text, a->path, err);
    if (text.data) OPENSSL_cleanse(text.data, text.len);
    buf_release(&text);
    if (rc < 0) {
        free(entries);
        return rc;
    }
    free(a->entries);
    a->entries = entries;
    a->n_entries = n;
    return 0;
}

int auth_open(struct auth **out, const char *path, struct err *err) {
    struct auth *a = calloc(1, sizeof(*a));
    if (!a || !(a->path = strdup(path ? path : ""))) {
        free(a);
        return err_set(err, E_NOMEM, "no memory for the token table");
    }
    int rc = auth_reload(a, err);
    if (rc < 0) {
        auth_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

void auth_close(struct auth *a) {
    if (!a) return;
    free(a->entries);
    free(a->path);
    free(a);
}

bool auth_needs_token(const struct auth *a) {
    return *a->path != '\0';
}

const char *auth_owner(const struct auth *a, const char *token, size_t len) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    const char *owner = NULL;
    if (!auth_needs_token(a)) return AUTH_LOCAL;
    if (len > AUTH_TOKEN_MAX) return NULL;
    SHA256((const unsigned char *)token, len, digest);
    for (size_t i = 0; i < a->n_entries; i++) // all of them: the time tells nothing
        if (CRYPTO_memcmp(a->entries[i].digest, digest, sizeof(digest)) == 0)
            owner = a->entries[i].name;
    return owner;
}

const char *auth_bearer(const char *header, size_t *len) {
    if (strncasecmp(header, "bearer ", 7) != 0) return NULL;
    const char *token = header + 7;
    while (*token == ' ') token++;
    *len = strlen(token);
    while (*len > 0 && token[*len - 1] == ' ') (*len)--;
    return *len ? token : NULL;
}

static int base64url_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '-') return 62;
    return c == '_' ? 63 : -1;
}

// Without padding: '=' may not stand in a sub-protocol's name. Leftover bits must be zero, so that
// one token has one spelling.
static int base64url_decode(char *out, size_t cap, const char *s, size_t len) {
    unsigned bits = 0;
    size_t n = 0;
    int n_bits = 0;
    if (len % 4 == 1) return E_FORMAT;
    for (size_t i = 0; i < len; i++) {
        int v = base64url_value(s[i]);
        if (v < 0) return E_FORMAT;
        bits = bits << 6 | (unsigned)v;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        char c = (char)(bits >> n_bits & 0xff);
        if (!c || n + 1 >= cap) return E_FORMAT;
        out[n++] = c;
    }
    if (bits & ((1u << n_bits) - 1)) return E_FORMAT;
    out[n] = '\0';
    return 0;
}

bool auth_subprotocols(const char *header, const char *name, char token[AUTH_TOKEN_MAX + 1],
                       int *rc) {
    bool offered = false;
    token[0] = '\0';
    *rc = 0;
    for (const char *p = header; *p;) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ", \t");
        if (len == strlen(name) && memcmp(p, name, len) == 0) offered = true;
        if (len > 7 && memcmp(p, "bearer.", 7) == 0)
            *rc = base64url_decode(token, AUTH_TOKEN_MAX + 1, p + 7, len - 7);
        p += len;
    }
    return offered;
}

// --- Host and Origin ---

static bool in_list(const char *list, const char *item, size_t len) {
    for (const char *p = list; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n == len && n > 0 && strncasecmp(p, item, n) == 0) return true;
        p += n;
    }
    return false;
}

// Length of the name in "name:port" or "[v6]:port"; 0 when it is neither.
static size_t host_name_len(const char *host) {
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (n > strlen(host)) return 0;
    const char *port = host + n;
    if (*port == '\0') return n;
    if (*port++ != ':') return 0;
    size_t digits = strspn(port, "0123456789");
    return digits > 0 && digits <= 5 && port[digits] == '\0' ? n : 0;
}

static bool is_address(const char *name, size_t len) {
    char text[64];
    unsigned char addr[16];
    if (len >= sizeof(text)) return false;
    bool v6 = *name == '[';
    snprintf(text, sizeof(text), "%.*s", (int)len - 2 * v6, name + v6);
    return inet_pton(v6 ? AF_INET6 : AF_INET, text, addr) == 1;
}

bool auth_host_allowed(const char *host, const char *allowed_hosts) {
    size_t len = host_name_len(host);
    if (len == 0) return false;
    // A rebinding page reaches us under its own name, never under a number.
    if (is_address(host, len)) return true;
    if (len == 9 && strncasecmp(host, "localhost", 9) == 0) return true;
    return in_list(allowed_hosts, host, len) || in_list(allowed_hosts, host, strlen(host));
}

// The host:port of a browser's Origin has no default port; neither has its Host header.
bool auth_origin_allowed(const char *origin, const char *host, bool tls,
                         const char *allowed_origins) {
    if (in_list(allowed_origins, origin, strlen(origin))) return true;
    const char *scheme = tls ? "https://" : "http://";
    size_t n = strlen(scheme);
    return strncasecmp(origin, scheme, n) == 0 && *host && strcasecmp(origin + n, host) == 0;
}
