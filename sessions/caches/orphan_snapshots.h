// Snapshots of sessions that are gone.
#pragma once
#include "sessions/state/service.h"

// Snapshots of sessions that were closed or deleted while no server could remove them.
void orphan_snapshots_remove(struct engine *e, const char *db_path);
