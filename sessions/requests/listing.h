// Lists and searches of sessions. Net thread only.
#pragma once
#include "sessions/state/service.h"

int listing_start(struct sessions *ss, const struct request *r); // LIST: asks the store for a page
void listing_done(struct sessions *ss, struct store_job *job);   // the page: answers the request
// The view of a row of the database; of the session in memory, if it is there. Strings are borrowed.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out);
// Sends watchers of the list the rows that another program has added.
void listing_news(struct sessions *ss, const struct store_list *rows);
