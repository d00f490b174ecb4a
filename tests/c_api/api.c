// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The C API on the simulated device, from C99: every function, every byte against the file, every error that a caller can cause.
// Argument: a folder for the file of the model.

#include "residency/c.h"
#include "tests/c_api/model.h"

static int checks = 0, failures = 0;

static void check(int holds, const char* what, int line) {
    ++checks;
    if (holds != 0) { return; }
    ++failures;
    fprintf(stderr, "line %d: %s; the last error is: %s\n", line, what, residency_error_text());
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)
#define OK(call) check((call) == RESIDENCY_OK, #call, __LINE__)
// The call fails with that status, and its text has that part.
#define FAILS(status, part, call)                                                                                      \
    do {                                                                                                               \
        check((call) == (status), #call " is " #status, __LINE__);                                                     \
        check(strstr(residency_error_text(), part) != NULL, "the text of " #call " has: " part, __LINE__);             \
    } while (0)

enum { path_bytes = 4096 };
static char path[path_bytes];
static const char* const layer_weights[layers][2] = {{"l0.up", "l0.down"}, {"l1.up", "l1.down"}, {"l2.up", "l2.down"},
                                                     {"l3.up", "l3.down"}, {"l4.up", "l4.down"}, {"l5.up", "l5.down"},
                                                     {"l6.up", "l6.down"}, {"l7.up", "l7.down"}};
static residency_step steps[layers];
static unsigned char bytes[up_bytes];

static residency_options options_of(const char* budget) {
    residency_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.device = "simulated";
    options.budget = budget;
    options.steps = steps;
    options.step_count = layers;
    return options;
}

/// Whether the leased weight of that name has the bytes of the file.
static int has_bytes_of_file(residency_model* model, residency_lease* lease, uint32_t layer, uint32_t which) {
    residency_weight weight;
    uint32_t number = 0;
    uint64_t i = 0;
    weight.size = sizeof weight;
    if (residency_find_weight(model, layer_weights[layer][which], &number) != RESIDENCY_OK) { return 0; }
    if (residency_get_leased_weight(lease, number, &weight) != RESIDENCY_OK) { return 0; }
    if (weight.bytes != (which == 0 ? up_bytes : down_bytes) || weight.data == NULL) { return 0; }
    memset(bytes, 0, sizeof bytes);
    if (residency_read_leased_weight(lease, number, 0, weight.bytes, bytes) != RESIDENCY_OK) { return 0; }
    for (i = 0; i < weight.bytes; ++i) {
        if (bytes[i] != expected_byte(2 * layer + which, i)) { return 0; }
    }
    return 1;
}

/// A pass that checks every byte.
static void run_pass(residency_model* model, void* stream) {
    uint32_t layer = 0;
    OK(residency_begin_pass(model, stream));
    for (layer = 0; layer < layers; ++layer) {
        residency_lease* lease = NULL;
        OK(residency_acquire_step(model, layer, stream, &lease));
        CHECK(has_bytes_of_file(model, lease, layer, 0));
        CHECK(has_bytes_of_file(model, lease, layer, 1));
        OK(residency_release(lease));
    }
    OK(residency_end_pass(model));
}

static residency_statistics statistics_of(residency_model* model) {
    residency_statistics statistics;
    statistics.size = sizeof statistics;
    OK(residency_get_statistics(model, &statistics));
    return statistics;
}
static residency_counters counters_of(residency_model* model, int32_t over) {
    residency_counters counters;
    counters.size = sizeof counters;
    OK(residency_get_counters(model, over, &counters));
    return counters;
}

/// Passes inside a budget, on a stream of the device.
static void streams_every_byte(const char* tier) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    residency_statistics statistics;
    void* stream = NULL;
    int pass = 0;
    options.tier = tier;
    OK(residency_open(path, &options, &model));
    OK(residency_create_stream(model, &stream));
    for (pass = 0; pass < 3; ++pass) { run_pass(model, stream); }
    statistics = statistics_of(model);
    CHECK(statistics.is_streaming == 1);
    CHECK(statistics.weight_bytes == model_bytes);
    CHECK(statistics.budget_bytes <= model_bytes / 2 && statistics.budget_bytes >= statistics.floor_bytes);
    CHECK(statistics.held_bytes > 0 && statistics.held_bytes <= statistics.budget_bytes);
    CHECK(statistics.peak_requested_bytes <= statistics.budget_bytes);
    CHECK(statistics.steps == layers && statistics.pass_steps == layers && statistics.open_leases == 0);
    CHECK(statistics.bound_ns > 0);
    CHECK(counters_of(model, RESIDENCY_SINCE_OPEN).passes == 3);
    CHECK(counters_of(model, RESIDENCY_LAST_PASS).acquires == layers);
    // What does not fit is copied in every pass, and no more than everything.
    CHECK(counters_of(model, RESIDENCY_LAST_PASS).fetched_bytes >= model_bytes - statistics.budget_bytes);
    CHECK(counters_of(model, RESIDENCY_LAST_PASS).fetched_bytes <= model_bytes);
    CHECK(counters_of(model, RESIDENCY_LAST_PASS).divergences == 0);
    OK(residency_drain(model));
    OK(residency_destroy_stream(model, stream));
    OK(residency_close(model));
}

static void the_budget_changes(void) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    residency_lease* lease = NULL;
    const char* text = NULL;
    uint64_t half = 0, now = 0;
    OK(residency_open(path, &options, &model));
    run_pass(model, NULL);
    OK(residency_get_budget(model, &half, &text));
    CHECK(half == statistics_of(model).budget_bytes && text != NULL && strstr(text, "50%") != NULL);
    OK(residency_set_budget(model, "100%"));
    CHECK(statistics_of(model).is_streaming == 0);
    run_pass(model, NULL);
    run_pass(model, NULL);
    CHECK(counters_of(model, RESIDENCY_LAST_PASS).fetched_bytes == 0);
    OK(residency_set_budget(model, "0"));
    OK(residency_get_budget(model, &now, NULL));
    CHECK(now == statistics_of(model).floor_bytes && now < half);
    run_pass(model, NULL);
    OK(residency_set_budget(model, "10 MiB"));
    OK(residency_get_budget(model, &now, NULL));
    CHECK(now == 10 << 20);
    run_pass(model, NULL);
    // What is refused leaves the budget in force.
    FAILS(RESIDENCY_MALFORMED, "8 Gigs", residency_set_budget(model, "8 Gigs"));
    FAILS(RESIDENCY_BUDGET, "1KiB", residency_set_budget(model, "1KiB"));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "budget", residency_set_budget(model, NULL));
    OK(residency_begin_pass(model, NULL));
    FAILS(RESIDENCY_WRONG_STATE, "", residency_set_budget(model, "100%"));
    OK(residency_acquire_step(model, 0, NULL, &lease));
    OK(residency_release(lease));
    OK(residency_end_pass(model));
    CHECK(statistics_of(model).budget_bytes == now);
    OK(residency_close(model));
}

static void weights_are_described(void) {
    residency_options options = options_of(NULL);
    residency_model* model = NULL;
    residency_weight weight;
    uint32_t count = 0, number = 99;
    OK(residency_open(path, &options, &model));
    OK(residency_get_weight_count(model, &count));
    CHECK(count == 2 * layers);
    OK(residency_find_weight(model, "l3.down", &number));
    memset(&weight, 0xFF, sizeof weight);
    weight.size = sizeof weight;
    OK(residency_get_weight(model, number, &weight));
    CHECK(strcmp(weight.name, "l3.down") == 0 && strcmp(weight.dtype, "bf16") == 0);
    CHECK(weight.rank == 2 && weight.shape[0] == 512 && weight.shape[1] == 1024);
    CHECK(weight.strides[0] == 1024 && weight.strides[1] == 1);
    CHECK(weight.bytes == down_bytes && weight.block_bits == 16 && weight.block_elements == 1);
    CHECK(weight.is_mutable == 0 && weight.data == NULL);
    FAILS(RESIDENCY_MISMATCH, "l3.down", residency_find_weight(model, "l3.dwon", &number));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "16", residency_get_weight(model, 2 * layers, &weight));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "name", residency_find_weight(model, NULL, &number));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "weight", residency_find_weight(model, "l3.down", NULL));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "count", residency_get_weight_count(model, NULL));
    OK(residency_close(model));
}

static void leases_by_weights_and_streams(void) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    residency_lease *lease = NULL, *other = NULL;
    residency_weight weight;
    uint32_t both[2] = {0, 0};
    unsigned char few[4] = {0, 0, 0, 0};
    void *stream = NULL, *second = NULL;
    weight.size = sizeof weight;
    OK(residency_open(path, &options, &model));
    OK(residency_create_stream(model, &stream));
    OK(residency_create_stream(model, &second));
    CHECK(stream != second && stream != NULL);
    OK(residency_find_weight(model, "l5.up", &both[0]));
    OK(residency_find_weight(model, "l6.down", &both[1]));
    FAILS(RESIDENCY_WRONG_STATE, "residency_begin_pass", residency_acquire_weights(model, both, 2, stream, &lease));
    FAILS(RESIDENCY_WRONG_STATE, "no pass is open", residency_end_pass(model));
    OK(residency_begin_pass(model, stream));
    FAILS(RESIDENCY_WRONG_STATE, "", residency_begin_pass(model, stream));
    OK(residency_acquire_weights(model, both, 2, stream, &lease));
    OK(residency_use_on(lease, second));
    CHECK(has_bytes_of_file(model, lease, 5, 0) && has_bytes_of_file(model, lease, 6, 1));
    OK(residency_read_leased_weight(lease, both[0], 1000, 4, few));
    CHECK(few[0] == expected_byte(10, 1000) && few[3] == expected_byte(10, 1003));
    OK(residency_read_leased_weight(lease, both[0], up_bytes, 0, NULL));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "more than", residency_read_leased_weight(lease, both[0], up_bytes - 1, 2, few));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "more than",
          residency_read_leased_weight(lease, both[0], UINT64_MAX, UINT64_MAX, few));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "to", residency_read_leased_weight(lease, both[0], 0, 4, NULL));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "cover", residency_get_leased_weight(lease, both[1] + 1, &weight));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "cover", residency_get_leased_weight(lease, UINT32_MAX, &weight));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "result", residency_get_leased_weight(lease, both[0], NULL));
    // Leases are nested, and outlive the pass. Their end may come in any order.
    OK(residency_acquire_step(model, 7, second, &other));
    CHECK(other != lease && statistics_of(model).open_leases == 2);
    CHECK(counters_of(model, RESIDENCY_SINCE_OPEN).divergences > 0);
    OK(residency_end_pass(model));
    CHECK(has_bytes_of_file(model, lease, 5, 0) && has_bytes_of_file(model, other, 7, 1));
    OK(residency_release(lease));
    OK(residency_release(other));
    OK(residency_synchronize_stream(model, stream));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "no step 8",
          (residency_begin_pass(model, stream), residency_acquire_step(model, layers, stream, &lease)));
    both[1] = UINT32_MAX;
    CHECK(residency_acquire_weights(model, both, 2, stream, &lease) == RESIDENCY_INVALID_ARGUMENT);
    FAILS(RESIDENCY_INVALID_ARGUMENT, "weights", residency_acquire_weights(model, NULL, 2, stream, &lease));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "lease", residency_acquire_step(model, 0, stream, NULL));
    OK(residency_end_pass(model));
    // A stream that is gone is refused, as is one that was never made.
    OK(residency_drain(model));
    OK(residency_destroy_stream(model, second));
    CHECK(residency_begin_pass(model, second) == RESIDENCY_INVALID_ARGUMENT);
    CHECK(residency_begin_pass(model, &lease) == RESIDENCY_INVALID_ARGUMENT);
    OK(residency_begin_pass(model, stream));
    CHECK(residency_acquire_step(model, 0, second, &lease) == RESIDENCY_INVALID_ARGUMENT);
    CHECK(statistics_of(model).open_leases == 0);
    OK(residency_end_pass(model));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "destroyed", residency_destroy_stream(model, second));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "destroyed", residency_destroy_stream(model, NULL));
    CHECK(residency_synchronize_stream(model, second) != RESIDENCY_OK);
    OK(residency_close(model));  // destroys the other one
}

static void handles_are_checked(void) {
    residency_options options = options_of("50%");
    residency_model *model = NULL, *second = NULL, *closed = NULL;
    residency_lease *lease = NULL, *old = NULL;
    residency_weight weight;
    char* wild = (char*)&options;
    uint32_t number = 0;
    int round = 0;
    weight.size = sizeof weight;
    FAILS(RESIDENCY_INVALID_HANDLE, "null", residency_close(NULL));
    FAILS(RESIDENCY_INVALID_HANDLE, "null", residency_release(NULL));
    FAILS(RESIDENCY_INVALID_HANDLE, "null", residency_launch(NULL, NULL));
    FAILS(RESIDENCY_INVALID_HANDLE, "null", residency_destroy_graph(NULL));
    FAILS(RESIDENCY_INVALID_HANDLE, "handle", residency_close((residency_model*)(void*)wild));
    FAILS(RESIDENCY_INVALID_HANDLE, "handle", residency_release((residency_lease*)(void*)wild));
    OK(residency_open(path, &options, &model));
    OK(residency_begin_pass(model, NULL));
    OK(residency_acquire_step(model, 0, NULL, &lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "model", residency_end_pass((residency_model*)(void*)lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "lease", residency_release((residency_lease*)(void*)model));
    FAILS(RESIDENCY_INVALID_HANDLE, "graph", residency_launch((residency_graph*)(void*)lease, NULL));
    OK(residency_release(lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_release(lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_get_leased_weight(lease, 0, &weight));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_use_on(lease, NULL));
    // A released handle stays so, also once its place is used again.
    for (round = 0; round < 100; ++round) {
        old = lease;
        OK(residency_acquire_step(model, 1, NULL, &lease));
        CHECK(old != lease);
        FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_release(old));
        OK(residency_release(lease));
    }
    // Closing ends the pass and what is open.
    OK(residency_acquire_step(model, 2, NULL, &lease));
    OK(residency_close(model));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_close(model));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_release(lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_find_weight(model, "l0.up", &number));
    // Another model in the same place is another model: more of them than there are places.
    closed = model;
    options = options_of(NULL);
    options.steps = NULL;
    options.step_count = 0;
    for (round = 0; round < 520; ++round) {
        OK(residency_open(SMALL_MODEL, &options, &second));
        CHECK(second != closed);
        FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_end_pass(closed));
        FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_release(lease));
        OK(residency_close(second));
    }
}

static void many_at_once(void) {
    enum { most_leases = 4096 };
    static residency_lease* leases[most_leases];
    residency_options options = options_of("100%");
    residency_model *model = NULL, *second = NULL;
    residency_lease* one_more = NULL;
    uint32_t i = 0;
    OK(residency_open(path, &options, &model));
    OK(residency_open(path, &options, &second));
    run_pass(second, NULL);
    OK(residency_begin_pass(model, NULL));
    for (i = 0; i < most_leases; ++i) { OK(residency_acquire_step(model, i % layers, NULL, &leases[i])); }
    FAILS(RESIDENCY_WRONG_STATE, "4096 leases", residency_acquire_step(model, 0, NULL, &one_more));
    CHECK(has_bytes_of_file(model, leases[most_leases - 1], (most_leases - 1) % layers, 0));
    for (i = 0; i < most_leases; ++i) { OK(residency_release(leases[i])); }
    OK(residency_acquire_step(model, 0, NULL, &one_more));
    OK(residency_close(model));
    run_pass(second, NULL);
    OK(residency_close(second));
}

static void many_models(void) {
    enum { most_models = 256 };
    static residency_model* models[most_models];
    residency_options options = options_of("0");
    residency_model* one_more = NULL;
    uint32_t i = 0;
    options.steps = NULL;
    options.step_count = 0;
    for (i = 0; i < most_models; ++i) { OK(residency_open(SMALL_MODEL, &options, &models[i])); }
    FAILS(RESIDENCY_WRONG_STATE, "256 models", residency_open(SMALL_MODEL, &options, &one_more));
    for (i = 0; i < most_models; ++i) { OK(residency_close(models[i])); }
    OK(residency_open(SMALL_MODEL, &options, &one_more));
    OK(residency_close(one_more));
}

static void what_cannot_be_opened(void) {
    residency_options options = options_of("50%");
    residency_model* const untouched = (residency_model*)(void*)&options;
    residency_model* model = untouched;
    residency_step bad = {"the step", NULL, 1, 0};
    const char* names[1] = {"l0.upp"};
    char longer[sizeof options + 8];
    memset(longer, 0, sizeof longer);
    FAILS(RESIDENCY_IO, "no-such-file", residency_open("no-such-file.safetensors", &options, &model));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "path", residency_open(NULL, &options, &model));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "model", residency_open(path, &options, NULL));
    options.device = "abacus";
    FAILS(RESIDENCY_INVALID_ARGUMENT, "abacus", residency_open(path, &options, &model));
    options.device = "cuda:-1";
    FAILS(RESIDENCY_INVALID_ARGUMENT, "cuda:-1", residency_open(path, &options, &model));
    options.device = "cuda:4096";  // no GPU of that number, no GPU, or no CUDA
    CHECK(residency_open(path, &options, &model) != RESIDENCY_OK);
    options = options_of("eight");
    FAILS(RESIDENCY_MALFORMED, "eight", residency_open(path, &options, &model));
    options = options_of("1MiB");
    FAILS(RESIDENCY_BUDGET, "1MiB", residency_open(path, &options, &model));
    options = options_of("50%");
    options.tier = "cloud";
    FAILS(RESIDENCY_INVALID_ARGUMENT, "cloud", residency_open(path, &options, &model));
    options = options_of("50%");
    options.steps = &bad;
    options.step_count = 1;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "weights", residency_open(path, &options, &model));
    bad.weights = names;
    FAILS(RESIDENCY_MISMATCH, "l0.up", residency_open(path, &options, &model));
    names[0] = NULL;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "weights", residency_open(path, &options, &model));
    names[0] = "l0.up";
    bad.compute_ns = -5;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "-5 ns", residency_open(path, &options, &model));
    options.steps = NULL;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "steps", residency_open(path, &options, &model));
    // Sizes of structs: too small, none at all, and of a later version.
    options = options_of("50%");
    options.size = 8;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "size", residency_open(path, &options, &model));
    options.size = (size_t)-1;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "size", residency_open(path, &options, &model));
    CHECK(model == untouched);
    options.size = sizeof longer;
    memcpy(longer, &options, sizeof options);
    OK(residency_open(path, (const residency_options*)(void*)longer, &model));
    OK(residency_close(model));
    longer[sizeof options + 3] = 1;
    FAILS(RESIDENCY_UNSUPPORTED, "option", residency_open(path, (const residency_options*)(void*)longer, &model));
}

static void results_keep_to_their_size(void) {
    union {
        residency_statistics statistics;
        unsigned char bytes[sizeof(residency_statistics) + 16];
    } longer;
    residency_options options = options_of(NULL);
    residency_counters counters;
    residency_model* model = NULL;
    int i = 0;
    OK(residency_open(path, &options, &model));
    memset(&longer, 0xEE, sizeof longer);
    longer.statistics.size = sizeof longer - 8;
    OK(residency_get_statistics(model, &longer.statistics));
    CHECK(longer.statistics.size == sizeof longer - 8 && longer.statistics.weight_bytes == model_bytes);
    for (i = 0; i < 8; ++i) {
        CHECK(longer.bytes[sizeof(residency_statistics) + i] == 0);
        CHECK(longer.bytes[sizeof(residency_statistics) + 8 + i] == 0xEE);
    }
    longer.statistics.size = sizeof(residency_statistics) - 1;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "size", residency_get_statistics(model, &longer.statistics));
    counters.size = sizeof counters;
    FAILS(RESIDENCY_INVALID_ARGUMENT, "over", residency_get_counters(model, 2, &counters));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "result", residency_get_counters(model, RESIDENCY_LAST_PASS, NULL));
    OK(residency_close(model));
}

static void statistics_as_text(void) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    const char* text = NULL;
    OK(residency_open(path, &options, &model));
    run_pass(model, NULL);
    OK(residency_get_statistics_json(model, &text));
    CHECK(strstr(text, "\"device\":\"simulated device\"") != NULL);
    CHECK(strstr(text, "\"passes\":1") != NULL);
    CHECK(strstr(text, "\"reports\":0") != NULL);  // every access was ordered
    FAILS(RESIDENCY_INVALID_ARGUMENT, "text", residency_get_statistics_json(model, NULL));
    OK(residency_close(model));
}

static void the_schedule_changes(void) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    residency_lease* lease = NULL;
    residency_step backwards[layers];
    uint32_t layer = 0;
    // Without a schedule, the order of the first pass is learned.
    options.steps = NULL;
    options.step_count = 0;
    OK(residency_open(path, &options, &model));
    CHECK(statistics_of(model).steps == 2 * layers);  // one a weight, in the order of their names
    for (layer = 0; layer < layers; ++layer) { backwards[layer] = steps[layers - 1 - layer]; }
    OK(residency_set_schedule(model, backwards, layers));
    CHECK(statistics_of(model).steps == layers);
    OK(residency_begin_pass(model, NULL));
    OK(residency_acquire_step(model, 0, NULL, &lease));
    CHECK(has_bytes_of_file(model, lease, layers - 1, 0));
    OK(residency_release(lease));
    FAILS(RESIDENCY_WRONG_STATE, "", residency_set_schedule(model, steps, layers));
    OK(residency_end_pass(model));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "step", residency_set_schedule(model, steps, 0));
    OK(residency_set_schedule(model, steps, layers));
    run_pass(model, NULL);
    OK(residency_close(model));
}

static void strict_is_strict(void) {
    residency_options options = options_of("50%");
    residency_model* model = NULL;
    residency_lease* lease = NULL;
    options.strict = 1;
    OK(residency_open(path, &options, &model));
    run_pass(model, NULL);
    OK(residency_begin_pass(model, NULL));
    FAILS(RESIDENCY_DIVERGENCE, "l", residency_acquire_step(model, 5, NULL, &lease));
    CHECK(lease == NULL);
    OK(residency_end_pass(model));
    OK(residency_close(model));
}

// ---- Graphs ----------------------------------------------------------------------------------------------------------

struct capture {
    residency_model* model;
    void* stream;
    int returned;          // by the body
    int tries_others;      // calls that a body must not make
    int leaves_them_open;  // its leases
    int bodies;
};

static int body(void* context) {
    struct capture* const capture = context;
    residency_lease* lease = NULL;
    residency_graph* graph = NULL;
    residency_weight weight;
    uint32_t layer = 0;
    weight.size = sizeof weight;
    ++capture->bodies;
    if (capture->tries_others != 0) {
        FAILS(RESIDENCY_WRONG_STATE, "capture", residency_close(capture->model));
        FAILS(RESIDENCY_WRONG_STATE, "capture", residency_end_pass(capture->model));
        FAILS(RESIDENCY_WRONG_STATE, "capture", residency_set_budget(capture->model, "100%"));
        FAILS(RESIDENCY_WRONG_STATE, "capture", residency_drain(capture->model));
        FAILS(RESIDENCY_WRONG_STATE, "capture", residency_capture(capture->model, NULL, body, capture, &graph));
    }
    for (layer = 0; layer < layers; ++layer) {
        OK(residency_acquire_step(capture->model, layer, capture->stream, &lease));
        OK(residency_get_leased_weight(lease, 2 * layer, &weight));
        CHECK(weight.data != NULL);
        if (capture->tries_others != 0) {
            FAILS(RESIDENCY_WRONG_STATE, "capture", residency_read_leased_weight(lease, 2 * layer, 0, 1, bytes));
        }
        if (capture->leaves_them_open == 0 || layer + 1 < layers) { OK(residency_release(lease)); }
    }
    return capture->returned;
}

static void graphs(void) {
    residency_options options = options_of("50%");
    residency_graph *graph = NULL, *second = NULL;
    struct capture capture = {NULL, NULL, 0, 1, 0, 0};
    OK(residency_open(path, &options, &capture.model));
    OK(residency_create_stream(capture.model, &capture.stream));
    OK(residency_capture(capture.model, capture.stream, body, &capture, &graph));
    CHECK(capture.bodies == 1);
    OK(residency_launch(graph, capture.stream));
    OK(residency_launch(graph, capture.stream));
    OK(residency_synchronize_stream(capture.model, capture.stream));
    CHECK(counters_of(capture.model, RESIDENCY_SINCE_OPEN).passes == 2);
    CHECK(counters_of(capture.model, RESIDENCY_LAST_PASS).fetched_bytes > 0);
    run_pass(capture.model, capture.stream);
    // A body that fails, and one that leaves a lease open, which ends with it.
    capture.tries_others = 0;
    capture.returned = 7;
    FAILS(RESIDENCY_CANCELLED, "returned 7", residency_capture(capture.model, capture.stream, body, &capture, &second));
    CHECK(second == NULL);
    capture.returned = 0;
    capture.leaves_them_open = 1;
    OK(residency_capture(capture.model, capture.stream, body, &capture, &second));
    CHECK(statistics_of(capture.model).open_leases == 0);
    OK(residency_launch(second, capture.stream));
    run_pass(capture.model, capture.stream);
    OK(residency_destroy_graph(second));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_launch(second, capture.stream));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_destroy_graph(second));
    // Another budget makes it stale.
    OK(residency_set_budget(capture.model, "0"));
    FAILS(RESIDENCY_STALE, "", residency_launch(graph, capture.stream));
    FAILS(RESIDENCY_INVALID_ARGUMENT, "body", residency_capture(capture.model, capture.stream, NULL, NULL, &graph));
    OK(residency_close(capture.model));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_launch(graph, NULL));
    // A graph cannot wait for reads of a file.
    options.tier = "file";
    OK(residency_open(path, &options, &capture.model));
    CHECK(residency_capture(capture.model, NULL, body, &capture, &graph) == RESIDENCY_UNSUPPORTED);
    OK(residency_close(capture.model));
}

// A lease whose use cannot be recorded has ended all the same, and the status says that: it is not wrong_state.
static int body_on_default_stream(void* context) {
    struct capture* const capture = context;
    residency_lease *lease = NULL, *other = NULL;
    OK(residency_acquire_step(capture->model, 0, capture->stream, &lease));
    FAILS(RESIDENCY_WRONG_STATE, "default stream", residency_acquire_step(capture->model, 1, NULL, &other));
    FAILS(RESIDENCY_DEVICE, "invalid", residency_release(lease));
    FAILS(RESIDENCY_INVALID_HANDLE, "released", residency_release(lease));
    CHECK(statistics_of(capture->model).open_leases == 0);
    return 0;
}
static void leases_end_in_a_broken_capture(void) {
    residency_options options = options_of("50%");
    residency_graph* graph = NULL;
    struct capture capture = {NULL, NULL, 0, 0, 0, 0};
    OK(residency_open(path, &options, &capture.model));
    OK(residency_create_stream(capture.model, &capture.stream));
    CHECK(residency_capture(capture.model, capture.stream, body_on_default_stream, &capture, &graph) != RESIDENCY_OK);
    CHECK(graph == NULL);
    run_pass(capture.model, capture.stream);
    OK(residency_close(capture.model));
}

static void names_of_numbers(void) {
    CHECK(strcmp(residency_status_name(RESIDENCY_OK), "ok") == 0);
    CHECK(strcmp(residency_status_name(RESIDENCY_INTERNAL), "internal") == 0);
    CHECK(strcmp(residency_status_name(RESIDENCY_INTERNAL + 1), "unknown") == 0);
    CHECK(strcmp(residency_status_name(-1), "unknown") == 0);
    CHECK(strcmp(residency_version(), VERSION) == 0);
}

int main(int argc, char** argv) {
    uint32_t layer = 0;
    if (argc != 2 || strlen(argv[1]) > path_bytes - 32) { return fprintf(stderr, "usage: api FOLDER\n"), 2; }
    sprintf(path, "%s/api.safetensors", argv[1]);
    write_model(path);
    for (layer = 0; layer < layers; ++layer) {
        steps[layer].name = layer_weights[layer][0];
        steps[layer].weights = layer_weights[layer];
        steps[layer].weight_count = 2;
        steps[layer].compute_ns = layer % 2 == 0 ? 100000 : 0;
    }
    CHECK(strcmp(residency_error_text(), "") == 0);
    names_of_numbers();
    streams_every_byte(NULL);
    streams_every_byte("pinned");
    streams_every_byte("pageable");
    streams_every_byte("file");
    the_budget_changes();
    weights_are_described();
    leases_by_weights_and_streams();
    handles_are_checked();
    many_at_once();
    many_models();
    what_cannot_be_opened();
    results_keep_to_their_size();
    statistics_as_text();
    the_schedule_changes();
    strict_is_strict();
    graphs();
    leases_end_in_a_broken_capture();
    remove(path);
    printf("%d checks, %d failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}
