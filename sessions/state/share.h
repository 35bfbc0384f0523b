// A session's link for readers without an access token: 256 random bits. The record keeps their digest alone, so neither
// the database nor a backup of it opens a session to a reader.
#pragma once
#define SHARE_TOKEN_LEN 64 // hexadecimal digits
#define SHARE_DIGEST_LEN 64

void share_draw(char token[SHARE_TOKEN_LEN + 1]);
// SHA-256 of the token's digits, in hexadecimal. E_INVAL: not a token's form.
int share_digest(const char *token, char digest[SHARE_DIGEST_LEN + 1]);
