// Unicode's normalisation forms.
#pragma once
#include "engine/text/rewrite.h"

enum normal_form { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD };

int normal_form_apply(enum normal_form form, struct rewrite *r); // E_NOMEM
