// See origin_list.h. A browser sends scheme://host, and :port where it is not the scheme's own; a sandboxed page and a
// file send the word null (RFC 6454). Case does not matter: auth_origin_allowed ignores it.
#include "ws/net/origin_list.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define NAME_MAX_BYTES 255

// A host name or an address, without its port. The length; 0: it is neither.
static size_t host_len(const char *s) {
    size_t n = *s == '[' ? strspn(s + 1, DIGITS "abcdefABCDEF:.") + 1 : 0;
    if (n) return n > 2 && s[n] == ']' ? n + 1 : 0;
    return strspn(s, LETTERS DIGITS "-._");
}

// ":5173" or nothing. Browsers write a port without leading zeros.
static bool is_port(const char *s) {
    if (!*s) return true;
    size_t n = *s == ':' ? strspn(s + 1, DIGITS) : 0;
    return n > 0 && n < 6 && !s[n + 1] && s[1] != '0' && atoi(s + 1) < 65536;
}

static const char *fault_of_host(const char *entry) {
    size_t n = host_len(entry);
    if (strchr(entry, '*')) return "wildcards are not supported: name each host";
    if (n == 0 || !is_port(entry + n))
        return "a host is a name or an address, without scheme and path, such as chat.example";
    return NULL;
}

static const char *fault_of_origin(const char *entry) {
    static const char form[] = "an origin is a scheme, a host and perhaps a port, such as "
                               "https://chat.example or http://localhost:5173";
    if (strcasecmp(entry, "null") == 0) return NULL;
    if (strchr(entry, '*')) return "wildcards are not supported: name each origin";
    size_t scheme = strspn(entry, LETTERS DIGITS "+-.");
    if (scheme == 0 || strncmp(entry + scheme, "://", 3) != 0) return form;
    const char *host = entry + scheme + 3, *port = host + host_len(host);
    if (port == host) return form;
    if (port[strcspn(port, "/?#")]) return "an origin ends with its host or port, without a slash";
    if (!is_port(port)) return form;
    bool own = (strncasecmp(entry, "http:", 5) == 0 && strcmp(port, ":80") == 0) ||
               (strncasecmp(entry, "https:", 6) == 0 && strcmp(port, ":443") == 0);
    return own ? "browsers leave out the scheme's own port: leave it out here" : NULL;
}

// The entries are separated as auth.c reads them.
static int check(const char *list, const char *key, const char *(*fault_of)(const char *entry),
                 struct err *err) {
    for (const char *p = list + strspn(list, ", \t"); *p; p += strspn(p, ", \t")) {
        char entry[NAME_MAX_BYTES + 32];
        size_t n = strcspn(p, ", \t");
        bool fits = n < sizeof entry;
        memcpy(entry, p, fits ? n : 0);
        entry[fits ? n : 0] = '\0';
        const char *fault = fits ? fault_of(entry) : "it is too long";
        if (fault)
            return err_set(err, E_INVAL, "%s has '%.*s', which matches nothing: %s", key,
                           n < 80 ? (int)n : 80, p, fault);
        p += n;
    }
    return 0;
}

int origin_list_check(const char *list, struct err *err) {
    return check(list, "allowed_origins", fault_of_origin, err);
}

int host_list_check(const char *list, struct err *err) {
    return check(list, "allowed_hosts", fault_of_host, err);
}
