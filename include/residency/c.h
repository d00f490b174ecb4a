// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The C API of Residency, for C99 and for every language that calls C: the component residency::c, in libresidency_c.so. It streams the
/// weights of one model file, in an order that is declared or learned, inside a hard budget of device bytes: the preset Planned.
///
/// Status. A function that can fail returns a residency_status: RESIDENCY_OK or the kind of the error. What happened, where, and what to
/// do is the text of residency_error_text(). After an error, what a function would have written is not written, and the model can be used.
/// No exception leaves a function.
///
/// Handles. A model, a lease and a graph are named by pointers that are no addresses: nothing may read what they point to. A handle that
/// is null, was released, or names another kind of thing is refused with RESIDENCY_INVALID_HANDLE, and changes nothing. At most
/// 256 models are open in a process at once, and 4096 leases and 4096 graphs of one model.
///
/// Threads. One thread at a time uses a model with its leases, graphs and streams. A call that finds another thread in its model returns
/// RESIDENCY_WRONG_STATE, and changes nothing. Different models may be used in different threads at once.
///
/// Streams. A stream is a cudaStream_t where the model is on a GPU, null being the default stream. On the simulated device it is what
/// residency_create_stream() gives. A stream that was destroyed must not be used: that of a GPU is not checked.
///
/// Structs that may grow begin with their size in bytes, which the caller sets: `residency_options options = {.size = sizeof options}`. The
/// library reads and writes no byte behind it. What an older library does not know is set to zero, or refused where the caller asks for it.
///
/// Blocking. A function that waits for the device says so first.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A model on a device.
typedef struct residency_model residency_model;
/// The right to read weights on a stream. While it is open, its weights never leave and never move.
typedef struct residency_lease residency_lease;
/// One pass as a graph, copies included.
typedef struct residency_graph residency_graph;

/// One of the numbers below.
typedef int32_t residency_status;

/// The kinds of errors. The numbers never change; later versions may add some.
enum {
    RESIDENCY_OK = 0,
    RESIDENCY_INVALID_ARGUMENT = 1,  ///< a value that the caller passed: a null pointer, a number that does not exist
    RESIDENCY_MALFORMED = 2,         ///< a file or a text that does not follow its format
    RESIDENCY_MISMATCH = 3,          ///< valid things that do not belong together, such as a name that the model lacks
    RESIDENCY_BUDGET = 4,            ///< below the smallest budget that works, or open leases leave no room
    RESIDENCY_OUT_OF_MEMORY = 5,     ///< the device or the host refused an allocation
    RESIDENCY_DEVICE = 6,            ///< a device call failed
    RESIDENCY_UNSUPPORTED = 7,       ///< this library, device or file cannot do it
    RESIDENCY_DIVERGENCE = 8,        ///< strict: the caller asked for something else than the schedule says
    RESIDENCY_STALE = 9,             ///< a graph that was made for an earlier mapping or budget
    RESIDENCY_IO = 10,               ///< the operating system refused a read
    RESIDENCY_CANCELLED = 11,        ///< the body of a capture returned another value than 0
    RESIDENCY_WRONG_STATE = 12,      ///< the model does not take this call now
    RESIDENCY_INVALID_HANDLE = 13,   ///< null, released, or of another kind
    RESIDENCY_INTERNAL = 14          ///< an error that the library did not expect
};

/// The version of the library, such as "0.1.0". Valid for ever.
const char* residency_version(void);
/// The name of a status, such as "budget"; "unknown" for other numbers. Valid for ever.
const char* residency_status_name(residency_status status);
/// The text of the last error of a call in this thread; empty where there was none. Valid until the next call in this thread that fails.
const char* residency_error_text(void);

/// One step: a launch, or a group of launches, whose weights must be on the device together. This struct does not grow.
typedef struct residency_step {
    const char* name;            ///< for messages; may be null
    const char* const* weights;  ///< names of weights, `weight_count` of them
    size_t weight_count;         ///< of these names
    int64_t compute_ns;          ///< estimated on the device, without copies; 0: not known, it is learned
} residency_step;

/// How a model is opened. All zero but the size is a good start.
typedef struct residency_options {
    size_t size;  ///< sizeof(residency_options)
    /// "cuda" or "cuda:0" (the ordinal), or "simulated": a GPU in software. Null: "cuda" where the library was built with CUDA, otherwise
    /// "simulated". A GPU that is asked for and is not there is an error.
    const char* device;
    /// The hard cap on device bytes: "8GiB", "75%" of the weights, "50%free" of the free device memory, "0" for the smallest that works,
    /// "auto". Null: "auto".
    const char* budget;
    /// Where the bytes wait in host memory: "pinned", "pageable" or "file". Null: the first of them that the machine has room for.
    const char* tier;
    /// The schedule: what a pass reads, in order. Null: the order of the names is assumed, and that of the first pass learned.
    const residency_step* steps;
    size_t step_count;  ///< 0 where `steps` is null
    uint32_t strict;    ///< other than 0: asking for something else than the schedule says is an error, not a statistic
} residency_options;

/// Blocks. Opens a model file (safetensors, GGUF, PyTorch) or a folder with one, reads its bytes into host memory, and opens the device.
/// `options` may be null. Errors: those of the file; mismatch (a step names what the model lacks), budget (below the smallest that
/// works, which the text names), unsupported (no such device in this library), out_of_memory, or the device's own. Nothing is left behind.
residency_status residency_open(const char* path, const residency_options* options, residency_model** model);
/// Blocks until the device has done all work of the model, then ends its pass, leases, graphs and streams, and frees everything. Error
/// wrong_state: in the body of a capture.
residency_status residency_close(residency_model* model);

/// A weight: a named tensor.
typedef struct residency_weight {
    size_t size;              ///< sizeof(residency_weight)
    const char* name;         ///< UTF-8; valid until the model is closed, as the other pointers to the host are
    const char* dtype;        ///< such as "f32", "bf16", "f8_e4m3fn", "i32", "bool" or "Q4_0"
    uint32_t block_bits;      ///< of one block of elements; of one element where block_elements is 1
    uint32_t block_elements;  ///< of one block; above 1 for block-quantised types
    uint32_t rank;            ///< the number of extents; 0 for a scalar
    uint32_t is_mutable;      ///< other than 0: kernels may write to it
    const uint64_t* shape;    ///< extents, slowest first
    const uint64_t* strides;  ///< elements from one index to the next, for each extent
    uint64_t bytes;           ///< from its first byte to its last
    void* data;               ///< its first byte on the device; null without a lease, and where it has no bytes
} residency_weight;

/// The number of weights. They are numbered 0, 1, 2, … in the order of the file.
residency_status residency_get_weight_count(residency_model* model, uint32_t* count);
/// The number of the weight of that name. Error mismatch: there is none; the text says which name is nearest.
residency_status residency_find_weight(residency_model* model, const char* name, uint32_t* weight);
/// What the file says of a weight. Set `result->size` before. Error invalid_argument: no such number.
residency_status residency_get_weight(residency_model* model, uint32_t weight, residency_weight* result);

/// Makes a stream on the model's device: on a GPU a cudaStream_t that does not wait for the default stream.
residency_status residency_create_stream(residency_model* model, void** stream);
/// Destroys a stream that residency_create_stream() made; its work goes on. What is not destroyed ends with the model. Error
/// invalid_argument: it was not made there, or is destroyed.
residency_status residency_destroy_stream(residency_model* model, void* stream);
/// Blocks until the work of a stream is done.
residency_status residency_synchronize_stream(residency_model* model, void* stream);

/// Begins a pass, one execution of the schedule such as one token, on a stream. May block where something was learned and the pass is
/// planned again. Error wrong_state: a pass is open.
residency_status residency_begin_pass(residency_model* model, void* stream);
/// Ends the pass. Its leases may outlive it. Error wrong_state: none is open.
residency_status residency_end_pass(residency_model* model);

/// A lease on all weights of step `step` of the schedule, in a pass, for work on `stream`: the stream waits for copies that are not
/// complete, the host does not. Errors: invalid_argument (no such step), wrong_state (no pass), budget, divergence (strict), or the
/// device's own; the pass can continue.
residency_status residency_acquire_step(residency_model* model, uint32_t step, void* stream, residency_lease** lease);
/// One lease on several weights, by their numbers. Errors: as residency_acquire_step.
residency_status residency_acquire_weights(residency_model* model, const uint32_t* weights, size_t weight_count,
                                           void* stream, residency_lease** lease);
/// Another stream reads too: it waits for the bytes, and the end of the lease is recorded there as well.
residency_status residency_use_on(residency_lease* lease, void* stream);
/// A weight under a lease, with its address on the device. Set `result->size` before. Error invalid_argument: not in this lease.
residency_status residency_get_leased_weight(residency_lease* lease, uint32_t weight, residency_weight* result);
/// Blocks. Copies bytes [offset, offset + bytes) of a leased weight from the device to host memory, on the stream of the lease: for tests,
/// and for languages without a call of CUDA. Errors: invalid_argument (not in this lease, or not in the weight), wrong_state (in a capture).
residency_status residency_read_leased_weight(residency_lease* lease, uint32_t weight, uint64_t offset, uint64_t bytes,
                                              void* to);
/// Records the use on the streams of the lease and ends it, without blocking. Work that was enqueued on them before may still read. An error
/// other than invalid_handle and wrong_state says that the use was not recorded; the lease has ended all the same, and its memory
/// counts as in use until the device is drained.
residency_status residency_release(residency_lease* lease);

/// Blocks. Changes the budget between passes, by a text as in residency_options. Graphs become stale. Errors, after which the old one is in
/// force: malformed (no budget), budget (below the smallest that works), wrong_state (a pass is open, or leases keep too much).
residency_status residency_set_budget(residency_model* model, const char* budget);
/// The budget in force, in bytes, and one line that says who asked for what; valid until the next call of this function for this model. Either may be null.
residency_status residency_get_budget(residency_model* model, uint64_t* bytes, const char** text);
/// Blocks. Changes the schedule between passes. Graphs become stale. Errors, after which the old one is in force: mismatch (a name that the
/// model lacks), invalid_argument (no steps), budget (below the smallest that works), wrong_state (a pass is open).
residency_status residency_set_schedule(residency_model* model, const residency_step* steps, size_t step_count);
/// Blocks until all uses and copies so far are complete. Errors: what could not be read from a file since the last call, or the device's own.
residency_status residency_drain(residency_model* model);

/// The state of a model. Bytes are device bytes as the driver counts them.
typedef struct residency_statistics {
    size_t size;                    ///< sizeof(residency_statistics)
    uint64_t budget_bytes;          ///< the cap in force
    uint64_t floor_bytes;           ///< the smallest budget that works
    uint64_t held_bytes;            ///< what the library holds of the device
    uint64_t pending_bytes;         ///< of these, above the budget, because open leases keep them
    uint64_t requested_bytes;       ///< of the held bytes, occupied by weights now
    uint64_t peak_requested_bytes;  ///< the most of these
    uint64_t resident_bytes;        ///< of weights that never leave
    uint64_t weight_bytes;          ///< of all weights of the model
    uint32_t steps;                 ///< of the schedule
    uint32_t pass_steps;    ///< of these, what a pass is expected to run: fewer if the last passes ended earlier
    uint32_t is_streaming;  ///< 0: everything is resident
    uint32_t open_leases;   ///< now
    int64_t pass_ns;        ///< of the last pass that was timed, first to last operation on its stream; -1: none yet
    int64_t bound_ns;       ///< the time per pass that no plan of copies beats; -1: not known
} residency_statistics;

/// Counts of events. An access counts once per stored tensor, so that tied weights count once.
typedef struct residency_counters {
    size_t size;                  ///< sizeof(residency_counters)
    uint64_t passes;              ///< that have ended
    uint64_t acquires;            ///< leases
    uint64_t hits;                ///< accesses that found the bytes on the device, used before
    uint64_t prefetch_hits;       ///< accesses whose bytes were brought ahead, complete or on their way
    uint64_t demand_misses;       ///< accesses that had to fetch the bytes
    uint64_t hit_bytes;           ///< of the hits
    uint64_t prefetch_hit_bytes;  ///< of the prefetch hits
    uint64_t missed_bytes;        ///< of the demand misses
    uint64_t calls;               ///< copy calls
    uint64_t fetched_bytes;       ///< copied to the device
    uint64_t evictions;           ///< times that bytes left the device
    uint64_t evicted_bytes;       ///< that left
    uint64_t divergences;         ///< leases that the schedule did not announce
    uint64_t host_waits;          ///< times that the library waited for the device on the host
    uint64_t plans_made;          ///< times that the copies were planned
} residency_counters;

/// Over what residency_get_counters() counts.
enum {
    RESIDENCY_SINCE_OPEN = 0,
    RESIDENCY_LAST_PASS = 1  ///< the last pass that ended
};

/// The state of a model. Set `result->size` before. Does not block.
residency_status residency_get_statistics(residency_model* model, residency_statistics* result);
/// Counts since the model was opened, or of the last pass. Set `result->size` before. Does not block.
residency_status residency_get_counters(residency_model* model, int32_t over, residency_counters* result);
/// All of these, the device, the budget and what was learned, as one object of JSON in UTF-8. Valid until the next call of this function for
/// this model. Does not block.
residency_status residency_get_statistics_json(residency_model* model, const char** text);

/// Blocks. Records one pass as a graph. `body(context)` acquires every step in the order of the schedule, launches its kernels on `stream`, releases
/// the leases, and returns 0. Nothing of it runs. It calls no other function of this model than those of leases, weights and statistics.
/// Errors: cancelled (the body returned another value), divergence, unsupported (the tier is not pinned), wrong_state, or the device's own.
residency_status residency_capture(residency_model* model, void* stream, int (*body)(void* context), void* context,
                                   residency_graph** graph);
/// Enqueues one captured pass on a stream. Does not block. Errors: stale (the budget or the schedule has changed: capture again), wrong_state (a
/// pass is open), or the device's own.
residency_status residency_launch(residency_graph* graph, void* stream);
/// Destroys a graph; launches that are under way go on.
residency_status residency_destroy_graph(residency_graph* graph);

#ifdef __cplusplus
}
#endif
