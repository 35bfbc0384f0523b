// See address.h.
#include "ws/hub/address.h"
#include "ws/hub/curl_lazy.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_loopback(const char *host) {
    struct in_addr four;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0) return true;
    return inet_pton(AF_INET, host, &four) == 1 && (ntohl(four.s_addr) >> 24) == 127;
}

struct address {
    char *scheme, *host, *port, *user;
};

static void release(struct address *a) {
    curl_free(a->scheme);
    curl_free(a->host);
    curl_free(a->port);
    curl_free(a->user);
}

static bool parse(struct address *a, const char *url) {
    CURLU *u = curl_url();
    *a = (struct address){0};
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &a->scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &a->host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &a->port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (ok) curl_url_get(u, CURLUPART_USER, &a->user, 0);
    curl_url_cleanup(u);
    return ok;
}

int address_check(const char *url, bool plain_http, const char *what, struct err *err) {
    struct address a;
    TRY(lazy_open(&curl_lazy, err));
    bool ok = parse(&a, url);
    bool https = ok && strcmp(a.scheme, "https") == 0, http = ok && strcmp(a.scheme, "http") == 0;
    int rc = 0;
    if (!ok || a.user || (!https && !http))
        rc = err_set(err, E_DENIED, "%s is no https address: %.200s", what, url);
    else if (http && !plain_http && !is_loopback(a.host))
        rc = err_set(err, E_DENIED,
                     "%s is %.200s: http is refused, as others could read and change what is sent; "
                     "HUB_ALLOW_HTTP=1 allows it",
                     what, url);
    release(&a);
    return rc;
}

bool address_same_origin(const char *a, const char *b) {
    struct address x, y;
    bool parsed = parse(&x, a), other = parse(&y, b);
    bool same = parsed && other && !strcmp(x.scheme, y.scheme) && !strcasecmp(x.host, y.host) &&
                !strcmp(x.port, y.port);
    release(&x);
    release(&y);
    return same;
}

bool address_is_https(const char *url) {
    return strncasecmp(url, "https:", 6) == 0;
}

bool address_add(char out[ADDRESS_BYTES], const char *text, bool slashes) {
    size_t at = strlen(out);
    for (; *text; text++) {
        bool plain =
            isalnum((unsigned char)*text) || strchr("-._~", *text) || (slashes && *text == '/');
        if (at + 4 > ADDRESS_BYTES) return false;
        if (plain)
            out[at++] = *text;
        else
            at += (size_t)snprintf(out + at, 4, "%%%02X", (unsigned char)*text);
        out[at] = '\0';
    }
    return true;
}
