// The versions of the schema.
#pragma once
#include "sessions/store/db.h"

int store_schema_version(void);
int store_schema_migrate(struct store_db *db,
                         struct err *err); // each version in one transaction
int store_schema_check(struct store_db *db,
                       struct err *err); // E_FORMAT: another program's; E_UNSUPPORTED: newer
