// The chat page, embedded in the program: a table that web/embed.mjs generates from build/web,
// every file compressed with gzip -9 and named by its SHA-256. No file is opened at run time, so no
// path leads anywhere.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct page_asset {
    const char *path; // "/index.html"
    const char *content_type;
    const char *hash; // of the plain bytes: the ETag
    const unsigned char *gz;
    size_t gz_len, raw_len;
    bool immutable; // the name contains a hash of the content
};
extern const struct page_asset page_assets[]; // generated
extern const size_t page_n_assets;
// Sources for the content policy: " 'sha256-...'" of each script and style inside index.html.
extern const char page_scripts[], page_styles[];

const struct page_asset *page_find(const char *path); // "/" is "/index.html"; NULL
// ETag with its quotes; the plain form is another representation and has another tag.
void page_etag(const struct page_asset *a, bool gzip, char out[72]);
bool page_etag_matches(const char *if_none_match, const char *etag);
bool page_accepts_gzip(const char *accept_encoding);
// The plain bytes, for clients that cannot gunzip; free() them. E_NOMEM, E_CORRUPT.
int page_inflate(const struct page_asset *a, unsigned char **out);

struct http;
// The route of the page's files.
bool page_is_here(const char *path);
void page_handle(void *user, struct http *h);
