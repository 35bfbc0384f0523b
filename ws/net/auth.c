// Tokens, owners, Host and Origin rules. See auth.h.
#include "ws/net/auth.h"
#include "base/array.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "ws/net/http_head.h"
#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FILE_MAX (1 << 20)

// A line as it was read. Owners are created and get their limits only when the whole file is valid.
struct line {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char name[AUTH_NAME_MAX + 1];
    bool admin;
    int number;
    unsigned named; // limits that the line names, by bit
    struct owner_limits limits;
};

struct auth {
    char *path; // "" without a token file
    struct owners *owners;
    const struct owner_limits *defaults;
    struct auth_token *tokens;
    size_t n_tokens;
    struct auth_token local;
};

struct reading { // of a token file
    const char *path;
    struct line *lines;
    size_t n, cap;
    struct err *err;
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
static int parse_token(struct line *l, const char *text, size_t len, struct reading *r) {
    const char *colon = memchr(text, ':', len);
    size_t name_len = colon ? (size_t)(colon - text) : 0;
    const char *token = colon ? colon + 1 : text;
    size_t token_len = len - (size_t)(token - text);
    if (colon) {
        bool good = name_len > 0 && name_len <= AUTH_NAME_MAX;
        for (size_t i = 0; good && i < name_len; i++) good = name_char(text[i]);
        if (!good)
            return err_set(r->err, E_FORMAT, "%s:%d: a name is 1 to %d of A-Z a-z 0-9 _ - . @",
                           r->path, l->number, AUTH_NAME_MAX);
    }
    if (!token_valid(token, token_len))
        return err_set(r->err, E_FORMAT, "%s:%d: a token is %d to %d visible ASCII characters",
                       r->path, l->number, AUTH_TOKEN_MIN, AUTH_TOKEN_MAX);
    SHA256((const unsigned char *)token, token_len, l->digest);
    if (colon)
        snprintf(l->name, sizeof(l->name), "%.*s", (int)name_len, text);
    else
        snprintf(l->name, sizeof(l->name), "token-%02x%02x%02x%02x%02x%02x", l->digest[0],
                 l->digest[1], l->digest[2], l->digest[3], l->digest[4], l->digest[5]);
    return 0;
}

// "admin" or "limit=value".
static int parse_word(struct line *l, const char *text, size_t len, struct reading *r) {
    char word[128];
    struct err why = {0};
    const char *equals = memchr(text, '=', len);
    if (len == 5 && memcmp(text, "admin", len) == 0) {
        l->admin = true;
        return 0;
    }
    snprintf(word, sizeof(word), "%.*s", (int)len, text);
    char *value = equals && len < sizeof(word) ? word + (equals - text) : NULL;
    if (value) *value++ = '\0';
    const struct config_key *key = value ? config_find(&owner_limits_table, word) : NULL;
    if (!key)
        return err_set(r->err, E_FORMAT,
                       "%s:%d: behind the token stand 'admin' and limits such as "
                       "requests_per_minute=600",
                       r->path, l->number);
    unsigned bit = 1u << (key - owner_limits_table.keys);
    if (l->named & bit)
        return err_set(r->err, E_FORMAT, "%s:%d: %s stands there twice", r->path, l->number,
                       key->name);
    l->named |= bit;
    if (config_set(&owner_limits_table, &l->limits, word, value, &why) == 0) return 0;
    const char *must = strstr(why.text, ": must"); // the value may be a token in the wrong place
    return err_set(r->err, E_FORMAT, "%s:%d: %s%s", r->path, l->number, key->name,
                   must ? must : ": cannot be read");
}

static int parse_line(struct line *l, const char *text, const char *end, struct reading *r) {
    for (bool first = true; text < end; first = false) {
        const char *stop = text;
        while (stop < end && *stop != ' ' && *stop != '\t') stop++;
        TRY((first ? parse_token : parse_word)(l, text, (size_t)(stop - text), r));
        for (text = stop; text < end && (*text == ' ' || *text == '\t');) text++;
    }
    return 0;
}

// Lines of one name are one owner: a limit may stand on any of them, with one value.
static int check_line(const struct line *l, struct reading *r) {
    for (size_t i = 0; i < r->n; i++) {
        const struct line *o = &r->lines[i];
        if (memcmp(o->digest, l->digest, sizeof(l->digest)) == 0)
            return err_set(r->err, E_EXISTS, "%s:%d: the token stands in an earlier line too",
                           r->path, l->number);
        if (strcmp(o->name, l->name) != 0) continue;
        for (int k = 0; k < N_OWNER_LIMITS; k++)
            if ((o->named & l->named & 1u << k) &&
                owner_limit_value(&o->limits, (enum owner_limit)k) !=
                    owner_limit_value(&l->limits, (enum owner_limit)k))
                return err_set(r->err, E_FORMAT, "%s:%d: %s of %s is another one in line %d",
                               r->path, l->number, owner_limit_name((enum owner_limit)k), l->name,
                               o->number);
    }
    return 0;
}

static int add_line(const struct line *l, struct reading *r) {
    TRY(check_line(l, r));
    if (ARRAY_RESERVE(r->lines, r->cap, r->n + 1) < 0)
        return err_set(r->err, E_NOMEM, "no memory for the tokens of %s", r->path);
    r->lines[r->n++] = *l;
    return 0;
}

static int parse_file(struct reading *r, const struct buf *text) {
    const char *p = buf_z(text), *end = p + text->len;
    for (int number = 1; p < end; number++) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *line = p, *stop = eol ? eol : end;
        struct line l = {.number = number};
        p = stop + 1;
        while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t')) stop--;
        while (line < stop && (*line == ' ' || *line == '\t')) line++;
        if (line == stop || *line == '#') continue;
        TRY(parse_line(&l, line, stop, r));
        TRY(add_line(&l, r));
    }
    if (r->n == 0) return err_set(r->err, E_FORMAT, "%s: holds no token", r->path);
    return 0;
}

// The owner of a name, with the limits that all of its lines name.
static void set_limits(struct auth *a, struct owner *o, const struct reading *r) {
    struct owner_limits limits = *a->defaults;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->lines[i].name, o->name) == 0)
            owner_limits_put(&limits, &r->lines[i].limits, r->lines[i].named);
    owner_set_limits(o, &limits, clock_mono_us(&clock_system));
}

static int take_lines(struct auth *a, const struct reading *r) {
    struct auth_token *tokens = calloc(r->n, sizeof(*tokens));
    for (size_t i = 0; tokens && i < r->n; i++) {
        memcpy(tokens[i].digest, r->lines[i].digest, sizeof(tokens[i].digest));
        tokens[i].admin = r->lines[i].admin;
        tokens[i].owner = owners_get(a->owners, r->lines[i].name);
        if (tokens[i].owner) continue;
        free(tokens);
        tokens = NULL;
    }
    if (!tokens) return err_set(r->err, E_NOMEM, "no memory for the tokens of %s", r->path);
    free(a->tokens);
    a->tokens = tokens;
    a->n_tokens = r->n;
    for (size_t i = 0; i < r->n; i++) set_limits(a, tokens[i].owner, r);
    return 0;
}

int auth_reload(struct auth *a, struct err *err) {
    struct reading r = {.path = a->path, .err = err};
    struct buf text;
    struct stat st;
    if (!*a->path) return 0;
    if (stat(a->path, &st) == 0 && (st.st_mode & 077))
        log_warn("auth.token_file_open", "mode=%03o hint=\"others can read the tokens: chmod 600\"",
                 (unsigned)(st.st_mode & 0777));
    int rc = buf_read_file(&text, a->path, FILE_MAX, err);
    if (rc == 0) rc = parse_file(&r, &text);
    if (rc == 0) rc = take_lines(a, &r);
    if (text.data) OPENSSL_cleanse(text.data, text.len);
    buf_release(&text);
    free(r.lines);
    return rc;
}

int auth_open(struct auth **out, const char *path, struct owners *owners,
              const struct owner_limits *defaults, struct err *err) {
    struct auth *a = calloc(1, sizeof(*a));
    struct owner *local = path && *path ? NULL : owners_get(owners, AUTH_LOCAL);
    if (a) *a = (struct auth){.path = strdup(path ? path : ""), .owners = owners};
    if (!a || !a->path || (!local && !*a->path)) {
        auth_close(a);
        return err_set(err, E_NOMEM, "no memory for the token table");
    }
    a->defaults = defaults;
    a->local = (struct auth_token){.owner = local, .admin = true};
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
    free(a->tokens);
    free(a->path);
    free(a);
}

bool auth_needs_token(const struct auth *a) {
    return *a->path != '\0';
}

static const struct auth_token *find(const struct auth *a, const unsigned char *digest) {
    const struct auth_token *found = NULL;
    for (size_t i = 0; i < a->n_tokens;
         i++) // never stops early: the time must not depend on the token
        if (CRYPTO_memcmp(a->tokens[i].digest, digest, sizeof(a->tokens[i].digest)) == 0)
            found = &a->tokens[i];
    return found;
}

const struct auth_token *auth_find(const struct auth *a, const char *token, size_t len) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    if (!auth_needs_token(a)) return &a->local;
    if (len > AUTH_TOKEN_MAX) return NULL;
    SHA256((const unsigned char *)token, len, digest);
    return find(a, digest);
}

const struct auth_token *auth_again(const struct auth *a, const struct auth_token *before) {
    return auth_needs_token(a) ? find(a, before->digest) : &a->local;
}

bool auth_has_tokens(const struct auth *a, const struct owner *o) {
    for (size_t i = 0; i < a->n_tokens; i++)
        if (a->tokens[i].owner == o) return true;
    return !auth_needs_token(a);
}

const char *auth_bearer(const char *header, size_t *len) {
    if (strncasecmp(header, "bearer ", 7) != 0) return NULL;
    const char *token = header + 7;
    while (*token == ' ') token++;
    *len = strlen(token);
    while (*len > 0 && token[*len - 1] == ' ') (*len)--;
    return *len ? token : NULL;
}

// Base64 with - and _ in place of + and /, and without padding: a sub-protocol's name can hold neither
// '/' nor '='.
static int base64url_decode(char out[AUTH_TOKEN_MAX + 1], const char *s, size_t len) {
    struct buf text, bytes;
    if (strcspn(s, "+/=") < len) return E_FORMAT;
    buf_init(&text, len + 3);
    buf_init(&bytes, AUTH_TOKEN_MAX);
    for (size_t i = 0; i < len; i++) buf_addc(&text, s[i] == '-' ? '+' : s[i] == '_' ? '/' : s[i]);
    while (text.len % 4 && !text.error) buf_addc(&text, '=');
    int rc = text.error ? text.error : base64_decode(&bytes, buf_z(&text), text.len);
    if (rc == 0 && memchr(buf_z(&bytes), '\0', bytes.len)) rc = E_FORMAT;
    if (rc == 0) memcpy(out, buf_z(&bytes), bytes.len + 1);
    buf_release(&text);
    buf_release(&bytes);
    return rc == E_LIMIT ? E_FORMAT : rc;
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
        if (len > 7 && memcmp(p, "bearer.", 7) == 0) *rc = base64url_decode(token, p + 7, len - 7);
        p += len;
    }
    return offered;
}

// --- Host and Origin ---

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
    // A rebinding page reaches the server under the page's host name, never under an address.
    if (is_address(host, len)) return true;
    if (len == 9 && strncasecmp(host, "localhost", 9) == 0) return true;
    return http_list_has(allowed_hosts, host, len) ||
           http_list_has(allowed_hosts, host, strlen(host));
}

// A browser leaves out the default port in Origin and in Host.
bool auth_origin_allowed(const char *origin, const char *host, bool tls,
                         const char *allowed_origins) {
    if (http_list_has(allowed_origins, origin, strlen(origin))) return true;
    const char *scheme = tls ? "https://" : "http://";
    size_t n = strlen(scheme);
    return strncasecmp(origin, scheme, n) == 0 && *host && strcasecmp(origin + n, host) == 0;
}
