// Attached clients and authors of turns. Net thread only.
#pragma once
#include "sessions/state/service.h"

struct client *clients_find(struct sessions *ss, uint64_t number); // or NULL
struct client *clients_of(struct sessions *ss, uint64_t number);   // or a new one. NULL: no memory
void clients_release(struct sessions *ss, struct client *c);       // frees it unless it is in use
int clients_attach(struct session *s, uint64_t client, int64_t cursor); // E_NOMEM
void clients_detach(struct attachment *a);                              // frees it
void clients_lose(struct session *s); // detaches all: the session was deleted
// Detaches all clients and releases the cache: the opening was refused, the session is GONE.
void clients_drop(struct session *s);
void clients_gone(struct sessions *ss, uint64_t client);       // its connection ended
int clients_defer(struct sessions *ss, uint64_t client);       // its request waits. E_NOMEM
uint64_t clients_resume(struct sessions *ss, uint64_t client); // the client, or CLIENT_GONE
// A client that starts a turn counts as attached until the turn ends. E_NOMEM.
int clients_note_author(struct session *s, uint64_t client);
void clients_forget_author(struct session *s); // its turn has ended
void clients_lost_begin(struct session *s); // after a client left: sets lost_us if it was the last
void clients_lost_end(struct session *s);   // a client is attached again
// cancel_after_ms has passed since the last one left.
bool clients_lost_is_due(const struct session *s);
