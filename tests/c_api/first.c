// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A model file, a budget, three passes: first model.safetensors 50%
#include <stdio.h>
#include <stdlib.h>

#include "residency/c.h"

static void check(residency_status status) {
    if (status == RESIDENCY_OK) { return; }
    fprintf(stderr, "%s: %s\n", residency_status_name(status), residency_error_text());
    exit(1);
}

int main(int argc, char** argv) {
    residency_options options = {.size = sizeof options};
    residency_model* model = NULL;
    residency_step* steps = NULL;
    residency_counters counters = {.size = sizeof counters};
    const char** names = NULL;
    void* stream = NULL;
    uint32_t count = 0, i = 0, pass = 0;
    if (argc < 3) { return fprintf(stderr, "usage: first MODEL BUDGET [DEVICE], such as model.safetensors 8GiB\n"), 2; }

    options.budget = argv[2];
    options.device = argc > 3 ? argv[3] : NULL;  // a GPU where the library has CUDA, otherwise the simulated device
    check(residency_open(argv[1], &options, &model));

    // What each launch reads together, in order: here one weight a step.
    check(residency_get_weight_count(model, &count));
    steps = calloc(count, sizeof *steps);
    names = calloc(count, sizeof *names);
    for (i = 0; i < count; ++i) {
        residency_weight weight = {.size = sizeof weight};
        check(residency_get_weight(model, i, &weight));
        names[i] = weight.name;
        steps[i].weights = &names[i];
        steps[i].weight_count = 1;
    }
    check(residency_set_schedule(model, steps, count));

    check(residency_create_stream(model, &stream));  // or a cudaStream_t of yours
    for (pass = 0; pass < 3; ++pass) {
        check(residency_begin_pass(model, stream));
        for (i = 0; i < count; ++i) {
            residency_lease* lease = NULL;
            residency_weight weight = {.size = sizeof weight};
            check(residency_acquire_step(model, i, stream, &lease));  // the stream waits, the host does not
            check(residency_get_leased_weight(lease, i, &weight));
            // Launch a kernel on `stream` that reads weight.bytes bytes at weight.data.
            check(residency_release(lease));
        }
        check(residency_end_pass(model));
    }
    check(residency_drain(model));
    check(residency_get_counters(model, RESIDENCY_LAST_PASS, &counters));
    printf("%llu bytes copied per pass\n", (unsigned long long)counters.fetched_bytes);

    check(residency_close(model));
    free(steps);
    free(names);
    return 0;
}
