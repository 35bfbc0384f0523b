// See transfer.h.
#include "ws/hub/transfer.h"
#include "ws/hub/curl_lazy.h"
#include "ws/hub/refusal.h"
#include "ws/version.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_REDIRECTS 8
#define CONNECT_SECONDS 20L
#define SILENT_SECONDS 30L   // slower than that; HF_HUB_DOWNLOAD_TIMEOUT changes it
#define SLOWEST_BYTES 100L   // in a second
#define DISCARDED_BYTES 8192 // of an error's or a redirect's body; a longer body ends the transfer
#define MAX_RETRY_SECONDS 31536000 // a year: more is not counted in milliseconds

struct hub_net {
    CURLM *multi;
    const struct hub_place *place;
    long silent_seconds;
};

int hub_net_open(struct hub_net **out, const struct hub_place *place, struct err *err) {
    const char *seconds = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    *out = NULL;
    TRY(lazy_open(&curl_lazy, err));
    struct hub_net *n = calloc(1, sizeof *n);
    if (!n) return err_set(err, E_NOMEM, "no memory for a download");
    n->place = place;
    n->silent_seconds = seconds ? atol(seconds) : 0;
    if (n->silent_seconds <= 0) n->silent_seconds = SILENT_SECONDS;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) n->multi = curl_multi_init();
    if (!n->multi) {
        free(n);
        return err_set(err, E_NOMEM, "libcurl does not start");
    }
    *out = n;
    return 0;
}

void hub_net_close(struct hub_net *n) {
    if (!n) return;
    curl_multi_cleanup(n->multi);
    curl_global_cleanup();
    free(n);
}

// --- what arrives ---

static size_t header_value(const char *line, size_t n, const char *name, char *out, size_t cap) {
    size_t len = strlen(name);
    if (n <= len || line[len] != ':' || strncasecmp(line, name, len) != 0) return 0;
    const char *from = line + len + 1, *end = line + n;
    while (from < end && (*from == ' ' || *from == '\t')) from++;
    while (end > from && (unsigned char)end[-1] <= ' ') end--;
    snprintf(out, cap, "%.*s", (int)((size_t)(end - from) < cap ? end - from : (long)cap - 1),
             from);
    return strlen(out);
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx) {
    struct transfer *t = ctx;
    size_t n = size * count;
    char value[128];
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) // a new answer: after 100, or a proxy's own
        t->answer.from = t->answer.total = -1, t->answer.code[0] = t->answer.message[0] = '\0';
    header_value(line, n, "X-Error-Code", t->answer.code, sizeof t->answer.code);
    header_value(line, n, "X-Error-Message", t->answer.message, sizeof t->answer.message);
    if (header_value(line, n, "Content-Range", value, sizeof value)) {
        long long from, to, total = -1;
        if (sscanf(value, "bytes %lld-%lld/%lld", &from, &to, &total) >= 2)
            t->answer.from = from, t->answer.total = total;
    }
    return n;
}

// Passes bytes of 200 and 206 on, and drops other bodies.
static size_t on_body(char *bytes, size_t size, size_t count, void *ctx) {
    struct transfer *t = ctx;
    size_t n = size * count;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
    if (t->status != 200 && t->status != 206) {
        curl_off_t got = 0;
        curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &got);
        return got > DISCARDED_BYTES ? 0 : n;
    }
    if (t->status == 206 && t->answer.from != t->from) {
        t->end = TRANSFER_FAILED;
        err_set(&t->err, E_FORMAT, "%s: the host answers with other bytes than asked for", t->what);
        return 0;
    }
    if (t->take(t->ctx, bytes, n, t->status, &t->err) == 0) return n;
    t->end = TRANSFER_FAILED;
    return 0;
}

// --- start ---

// The file of certificates that replaces the system's, by the variables of curl and of Python's tools.
static const char *ca_file(void) {
    static const char *const names[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = getenv(names[i]);
        if (path && *path) return path;
    }
    return NULL;
}

static int set_options(struct transfer *t, const char *url) {
    CURL *c = t->easy;
    char range[64];
    CURLcode rc = curl_easy_setopt(c, CURLOPT_URL, url);
    rc = rc ? rc
            : curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "https,http"); // address_check has chosen
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_USERAGENT, "parley/" PARLEY_VERSION);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, SLOWEST_BYTES);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, t->net->silent_seconds);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_PRIVATE, t);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    rc = rc ? rc : curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 262144L);
    if (rc == CURLE_OK && ca_file()) rc = curl_easy_setopt(c, CURLOPT_CAINFO, ca_file());
    if (rc == CURLE_OK && t->to >= 0) {
        snprintf(range, sizeof range, "%lld-%lld", (long long)t->from, (long long)t->to);
        rc = curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
    return rc == CURLE_OK ? 0 : -1;
}

// Only the hub gets the token, whatever it redirects to.
static bool add_token(struct transfer *t, const char *url) {
    const struct hub_place *p = t->net->place;
    char line[sizeof p->token + 32];
    if (!p->token[0] || !address_same_origin(url, p->endpoint)) return true;
    snprintf(line, sizeof line, "Authorization: Bearer %s", p->token);
    t->headers = curl_slist_append(NULL, line);
    return t->headers;
}

static void go(struct transfer *t, const char *url) {
    snprintf(t->url, sizeof t->url, "%s", url);
    t->answer.from = t->answer.total = -1;
    t->status = 0;
    t->easy = curl_easy_init();
    if (t->easy && add_token(t, t->url) && set_options(t, t->url) == 0 &&
        curl_multi_add_handle(t->net->multi, t->easy) == CURLM_OK)
        return;
    transfer_stop(t);
    t->end = TRANSFER_FAILED;
    err_set(&t->err, E_NOMEM, "%s: no memory for a download", t->what);
}

void transfer_start(struct transfer *t, struct hub_net *n, const char *url) {
    t->net = n;
    t->redirects = 0;
    t->end = TRANSFER_RUNNING;
    t->delay_ms = -1;
    t->err = (struct err){0};
    t->answer.code[0] = t->answer.message[0] = '\0';
    go(t, url);
}

void transfer_stop(struct transfer *t) {
    if (t->easy) {
        curl_multi_remove_handle(t->net->multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    curl_slist_free_all(t->headers);
    t->easy = t->headers = NULL;
}

// --- end ---

static void fail(struct transfer *t, int code, const char *why) {
    t->end = TRANSFER_FAILED;
    err_set(&t->err, code, "%s: %s", t->what, why);
}

static void redirect(struct transfer *t) {
    const struct hub_place *p = t->net->place;
    char *to = NULL, url[ADDRESS_BYTES];
    curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
    int n = to ? snprintf(url, sizeof url, "%s", to) : 0;
    transfer_stop(t);
    if (n <= 0 || (size_t)n >= sizeof url)
        return fail(t, E_FORMAT, "a redirect without an address");
    if (++t->redirects > MAX_REDIRECTS) return fail(t, E_FORMAT, "too many redirects");
    if (address_is_https(p->endpoint) && !address_is_https(url))
        return fail(t, E_DENIED, "a redirect from https to an address that is not");
    if (address_check(url, p->plain_http, "a redirect", &t->err) < 0) {
        t->end = TRANSFER_FAILED;
        return;
    }
    go(t, url);
}

static void judge_status(struct transfer *t) {
    const struct refusal r = {.place = t->net->place,
                              .repo = t->repo,
                              .what = t->what,
                              .status = t->status,
                              .code = t->answer.code,
                              .message = t->answer.message};
    curl_off_t seconds = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &seconds);
    bool again = t->status == 408 || t->status == 429 || t->status >= 500;
    bool elsewhere = !address_same_origin(t->url, t->net->place->endpoint);
    if (t->status == 416) return fail(t, E_FORMAT, "the file is shorter than the hub's list says");
    if (elsewhere)
        err_set(&t->err, E_IO, "%s: the host that the hub redirects to answers with status %ld",
                t->what, t->status);
    else
        refusal_say(&r, &t->err);
    t->end = again                                               ? TRANSFER_RETRY
             : elsewhere && t->status >= 400 && t->status <= 410 ? TRANSFER_EXPIRED
                                                                 : TRANSFER_FAILED;
    if (seconds > MAX_RETRY_SECONDS) seconds = MAX_RETRY_SECONDS; // hosts may send any number
    if (again && seconds > 0) t->delay_ms = (int64_t)seconds * 1000;
}

// Faults that a retry does not cure.
static bool is_lasting(CURLcode rc) {
    return rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE ||
           rc == CURLE_SSL_CERTPROBLEM || rc == CURLE_URL_MALFORMAT ||
           rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_OUT_OF_MEMORY;
}

static void judge(struct transfer *t, CURLcode rc) {
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->status);
    bool answered = t->status >= 300 && (rc == CURLE_OK || rc == CURLE_WRITE_ERROR);
    if (t->end == TRANSFER_FAILED) {
        // the taker has said why
    } else if (answered && t->status < 400 && t->status != 304) {
        return redirect(t);
    } else if (answered) {
        judge_status(t);
    } else if (rc == CURLE_OK) {
        t->end = t->status == 200 || t->status == 206 ? TRANSFER_DONE : TRANSFER_FAILED;
        if (t->end == TRANSFER_FAILED)
            err_set(&t->err, E_FORMAT, "%s: the host answers with status %ld", t->what, t->status);
    } else {
        t->end = is_lasting(rc) ? TRANSFER_FAILED : TRANSFER_RETRY;
        const char *hub = t->net->place->endpoint;
        const char *host =
            address_same_origin(t->url, hub) ? hub : "the host that the hub redirects to";
        err_set(&t->err, E_IO, "%s from %.200s: %s", t->what, host, curl_easy_strerror(rc));
    }
    transfer_stop(t);
}

int hub_net_run(struct hub_net *n, int wait_ms, struct err *err) {
    int running, left;
    CURLMcode rc = curl_multi_poll(n->multi, NULL, 0, wait_ms, NULL);
    if (rc == CURLM_OK) rc = curl_multi_perform(n->multi, &running);
    if (rc != CURLM_OK) return err_set(err, E_IO, "downloading: %s", curl_multi_strerror(rc));
    for (CURLMsg *m; (m = curl_multi_info_read(n->multi, &left));) {
        struct transfer *t = NULL;
        CURLcode result = m->data.result;
        if (m->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        judge(t, result);
    }
    return 0;
}
