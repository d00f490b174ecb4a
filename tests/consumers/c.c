// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
/* A program in C that links residency::c. */
#include <stdio.h>
#include <string.h>

#include "residency/c.h"

int main(void) {
    residency_options options = {.size = sizeof options, .device = "simulated"};
    residency_model* model = NULL;
    if (residency_open("no-such-model", &options, &model) != RESIDENCY_IO) { return 1; }
    if (strstr(residency_error_text(), "no-such-model") == NULL) { return 1; }
    printf("consumer of residency::c %s works\n", residency_version());
    return 0;
}
