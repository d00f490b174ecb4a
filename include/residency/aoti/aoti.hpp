// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "residency/aoti/aoti_choice.hpp"
#include "residency/aoti/aoti_package.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/engine/captured_pass.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/residency.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/format/program.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/storage.hpp"
#include "residency/pool/memory_pool.hpp"

// PyTorch models that AOTInductor compiled, with their weights streamed inside a budget. No header of PyTorch is needed.

namespace residency { inline namespace RESIDENCY_ABI { namespace aoti {

/// What the last run of a method did beside what its program says.
struct RunReport {
    std::vector<std::uint32_t> steps_not_called;  ///< positions in the method
    std::vector<WeightId> weights_not_reached;    ///< that the method's program names
};

/// A point of a run, for those who measure or draw it.
struct StepEvent {
    /// Which point.
    enum class Kind : std::uint8_t {
        wait,  ///< the step's weights are acquired now: what is enqueued until then lies before the wait for them
        run,   ///< the stream waits for them; the kernels come now
        end,   ///< the kernels are enqueued (on a CPU, they have run); the weights are still leased
    };
    Kind kind = Kind::wait;                         ///< of the step
    const format::ProgramMethod* method = nullptr;  ///< the one that runs
    std::optional<std::uint32_t> step;  ///< position in the method; none: kernels that read no weight by themselves
};

namespace detail {

/// Follows the markers of one run, and says what is wrong with their order.
class MarkerCheck {
public:
    void begin(std::uint32_t steps) noexcept {
        steps_ = steps;
        next_ = 0;
    }
    /// Whether `step` is the next one, which is reached then.
    [[nodiscard]] bool advance(std::int64_t step) noexcept {
        const bool is_next = step == static_cast<std::int64_t>(next_) && next_ < steps_;
        next_ += is_next ? 1U : 0U;
        return is_next;
    }
    /// What is wrong with a step that is not the next one.
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error refusal(std::int64_t step) const {
        return {ErrorKind::mismatch, "marker " + std::to_string(step) + " came where " +
                                         (next_ < steps_ ? "marker " + std::to_string(next_) : std::string{"the end"}) +
                                         " belongs: the package and its program are not of one export"};
    }
    [[nodiscard]] std::uint32_t reached() const noexcept { return next_; }
    [[nodiscard]] std::uint32_t steps() const noexcept { return steps_; }

private:
    std::uint32_t steps_ = 0, next_ = 0;
};

/// Compares the constants of a package with what its program says of them, both ways. The message names the first difference.
[[nodiscard]] inline Status check_constants(const Package& package, const format::Program& program,
                                            const format::ProgramMethod& method) {
    std::map<std::string_view, const format::ProgramConstant*> known;
    for (const format::ProgramConstant& each : method.constants) { known.emplace(each.name, &each); }
    const auto refuse = [&](const std::string& what) {
        return Error{ErrorKind::mismatch, residency::detail::quoted(package.path()) + ": " + what +
                                              "; package and program are not of one export"};
    };
    for (const PackageConstant& constant : package.constants()) {
        const auto found = known.find(constant.name);
        if (constant.is_folded) {
            return Error{ErrorKind::unsupported, residency::detail::quoted(package.path()) + ": the constant " +
                                                     residency::detail::quoted(constant.original) +
                                                     " is computed by the package from others; export it with "
                                                     "aot_inductor.use_runtime_constant_folding = False"};
        }
        if (found == known.end()) {
            return refuse("the package has a constant " + residency::detail::quoted(constant.original) +
                          " that the program lacks");
        }
        if (found->second->original != constant.original) {
            return refuse("the constant " + residency::detail::quoted(constant.name) + " is " +
                          residency::detail::quoted(constant.original) + " to the package and " +
                          residency::detail::quoted(found->second->original) + " to the program");
        }
        const Weight& weight = program.catalog.weight(found->second->weight);
        const auto bytes = weight.dtype.bytes_of(weight.elements());
        if (!bytes) { return bytes.error(); }
        if (constant.data_bytes < *bytes && !weight.shape.empty()) {
            return refuse("the constant " + residency::detail::quoted(constant.original) + " has " +
                          residency::detail::in_bytes(constant.data_bytes) + " in the package and " +
                          residency::detail::in_bytes(*bytes) + " in the program");
        }
        known.erase(found);
    }
    if (!known.empty()) {
        return refuse("the program has a constant " + residency::detail::quoted(known.begin()->second->original) +
                      " that the package lacks");
    }
    return {};
}

/// By step, the number of its probe; empty: the method has markers. Error mismatch where steps do not say their probes, and for a probe of
/// what kernels write.
[[nodiscard]] inline Result<std::vector<std::int64_t>> probes_of(const format::Program& program,
                                                                 const format::ProgramMethod& method) {
    constexpr std::string_view prefix = "probe ";
    std::vector<std::int64_t> numbers;
    for (const format::ProgramStep& step : method.steps) {
        if (!step.live_until && numbers.empty()) { continue; }
        std::int64_t number = 0;
        const char* const end = step.kernels.data() + step.kernels.size();
        const bool is_named = step.live_until && step.kernels.starts_with(prefix) && step.weights.size() == 1;
        const auto parsed = is_named ? std::from_chars(step.kernels.data() + prefix.size(), end, number)
                                     : std::from_chars_result{end, std::errc::invalid_argument};
        if (parsed.ec != std::errc{} || parsed.ptr != end) {
            return Error{ErrorKind::mismatch, "method " + residency::detail::quoted(method.name) + ": its step " +
                                                  residency::detail::quoted(step.kernels) +
                                                  " is no probe of one weight, and others are: export the model again"};
        }
        const WeightId weight = step.weights.front();
        if (program.catalog.storage(program.catalog.storage_of(weight)).is_mutable) {
            return Error{ErrorKind::mismatch,
                         "method " + residency::detail::quoted(method.name) + ": its step " +
                             residency::detail::quoted(step.kernels) + " is a probe of " +
                             residency::detail::quoted(program.catalog.weight(weight).name) +
                             ", which kernels write, and what they write to a probe is lost: export the model again"};
        }
        numbers.push_back(number);
    }
    if (!numbers.empty() && numbers.size() != method.steps.size()) {
        return Error{ErrorKind::mismatch, "method " + residency::detail::quoted(method.name) +
                                              " has markers and probes: export the model again"};
    }
    return numbers;
}

}  // namespace detail

/// What kernels write, such as a cache, of one of several callers of a model: a run that is given it works on this memory, and leaves the
/// model's own and that of other callers as it is. Device memory beside the budget. Movable. Ends after the runs with it, and before its
/// device.
template <Device D>
class CallerState {
public:
    /// The source is empty afterwards.
    /// @{
    CallerState(CallerState&& other) noexcept
        : device_{other.device_},
          memory_{std::exchange(other.memory_, nullptr)},
          bytes_{other.bytes_},
          catalog_hash_{other.catalog_hash_},
          addresses_{std::move(other.addresses_)} {}
    CallerState& operator=(CallerState&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(memory_, other.memory_);
        std::swap(bytes_, other.bytes_);
        std::swap(catalog_hash_, other.catalog_hash_);
        std::swap(addresses_, other.addresses_);
        return *this;
    }
    /// @}
    ~CallerState() {
        if (memory_ != nullptr) { static_cast<void>(device_->deallocate(memory_).has_value()); }
    }
    /// Device bytes that were asked for.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

private:
    template <class>
    friend class CompiledModel;
    CallerState(D& device, std::uint64_t catalog_hash) noexcept : device_{&device}, catalog_hash_{catalog_hash} {}

    D* device_;
    void* memory_ = nullptr;  // null: no kernel writes anything
    std::uint64_t bytes_ = 0;
    std::uint64_t catalog_hash_;         // of the model
    std::vector<std::byte*> addresses_;  // by storage; null: kernels do not write it
};

/// How one run of a model differs from others.
template <Device D>
struct RunOptions {
    /// What kernels write; null: the model's own. Outlives the run, and a graph of it. Made by this model, or another one of the same weights.
    const CallerState<D>* state = nullptr;
    /// Of a capture, where the device can: with a clock in the graph, as Residency::try_capture_timed.
    Timing timing = Timing::off;
};

/// A model that residency_export wrote (a folder with program.residency, or with model.pte of ExecuTorch), on one device, inside one
/// budget. Its methods share the weights and the bytes on the device. `Weights`: for markers a planned composition, such as
/// Planned<CudaDevice>, since the code reads weights where they were bound; for probes any. Of a planned one, each of its ranges() is one
/// lease: where everything is resident, a run is one. Movable; one call at a time, of one thread.
///
///     auto model = unwrap(aoti::CompiledModel<Planned<CudaDevice>>::try_open(device, "model", {.budget = Budget::parse("50%")}));
///     auto outputs = unwrap(model.try_run("decode", {&tokens, 1}, stream));
template <class Weights>
class CompiledModel {
public:
    using Device = typename Weights::Device;      ///< where the weights are
    using Stream = typename Device::Stream;       ///< of the device
    using RunOptions = aoti::RunOptions<Device>;  ///< of one run
    /// Whether addresses of weights stay between leases.
    static constexpr bool has_fixed_addresses = requires(const Weights& weights) { weights.generation(); };

    /// How a model is opened.
    struct Options {
        std::optional<Budget>
            budget{};  ///< takes precedence over the program's, which takes precedence over an automatic one
        typename Weights::Options weights{};  ///< its budgets and its schedule are set by the model
        host::LoadOptions
            load{};  ///< of the weights into host memory; without an order, in that of their addresses on the device
        PackageOptions package{};  ///< of every package
        /// Called at the points of every run, in order; may enqueue work on its stream. It does not throw, and calls nothing of the model
        /// that runs. Where there is one, each step is a lease, whatever ranges() says. Empty: nobody listens.
        std::function<void(const StepEvent&)> observer{};
    };

    /// Blocks. Reads the program, loads the weights into host memory, and makes the Residency with the schedule of the first method.
    /// No package is loaded yet. Errors: those of the program, of host::load and of Residency; unsupported for a program of another
    /// kind of device, and for one with markers where addresses are not fixed; mismatch where the weights are not the program's.
    [[nodiscard]] static Result<CompiledModel> try_open(Device& device, const std::string& folder,
                                                        Options options = {});
    /// The budget that try_open would resolve to, of the method with the largest floor: for a model that shares one total with others. Loads
    /// no weights, and allocates nothing on the device. Errors: those of the program, and of Residency's budget.
    [[nodiscard]] static Result<ResolvedBudget> try_resolve_budget(Device& device, const std::string& folder,
                                                                   Options options = {});

    /// The source is empty afterwards.
    /// @{
    CompiledModel(CompiledModel&&) noexcept = default;
    CompiledModel& operator=(CompiledModel&&) noexcept = default;
    /// @}
    ~CompiledModel() = default;

    /// Blocks. Loads a method's package, unless it is loaded, and binds its constants. Errors: those of Package; mismatch where package
    /// and program differ.
    [[nodiscard]] Status try_load(std::string_view method) {
        const auto found = find(method);
        return found ? load(**found) : Status{found.error()};
    }
    /// Blocks. Unloads a method's package. Its weights stay for the others; with the last of them all device memory of the weights is given
    /// back, until a method is loaded again, and what kernels wrote is kept on the host. Errors: invalid_argument (there is no such
    /// method), wrong_state (a run is under way), those of Residency::try_suspend.
    [[nodiscard]] Status try_release(std::string_view method);

    /// Runs a method: one pass of its schedule. Enqueues on the stream, and blocks only for what switches to another method. Inputs
    /// stay valid until the stream has run. Errors: wrong_state (a run is under way), those of try_load and of passes; mismatch where
    /// the package's markers are not the program's. After an error the next run works.
    [[nodiscard]] Result<std::vector<Tensor>> try_run(std::string_view method, std::span<const TensorView> inputs,
                                                      Stream stream, const RunOptions& options = {});
    /// Blocks. In place of the method's package, follows a library that another runtime has loaded and runs, such as ExecuTorch's. Its
    /// constants are those of this model from now on, until try_release or the end of the model, after which it is not run any more. A run
    /// of it outside of try_run_attached fails. Errors: those of Package::try_attach; mismatch where library and program differ;
    /// wrong_state (a run is under way).
    [[nodiscard]] Status try_attach(std::string_view method, const LentPackage& lent);
    /// try_run for an attached method: `call()`, which returns a Status and does not throw, runs it once on the stream, as ExecuTorch's
    /// Method::execute does: where ExecuTorch lets the caller choose (CallerStream), its delegates take this stream. Errors: wrong_state
    /// (nothing is attached), what `call` returns, those of passes; mismatch where markers are not the program's, or none is called: a CUDA
    /// graph that the other runtime replays skips the library.
    template <class Call>
    [[nodiscard]] Status try_run_attached(std::string_view method, Stream stream, const Call& call,
                                          const RunOptions& options = {}) {
        return try_follow(method, stream, options.state, true, [&](Package&) -> Status {
            if constexpr (is_cuda_stream) {
                const CallerStream chosen{native(stream)};
                return call();
            } else {
                return call();
            }
        });
    }
    /// Blocks. Memory for all that kernels write, with the bytes that the model begins with. Errors: out_of_memory, io, or the device's.
    [[nodiscard]] Result<CallerState<Device>> try_make_state();
    /// Blocks. Sets a caller's state back to what the model begins with. Precondition: runs with it are complete. Errors: as above.
    [[nodiscard]] Status try_reset(CallerState<Device>& state) const;

    /// One run of a method as a graph, copies included. Ends before its model.
    class CapturedRun {
    public:
        /// Enqueues the run: it reads the inputs of the capture where they lie, and writes the outputs. Does not block. Errors: those of
        /// CapturedPass::try_launch; stale after a change of the budget, or another method: capture it again.
        [[nodiscard]] Status try_launch(Stream stream) { return graph_.try_launch(stream); }
        /// It has to be captured again.
        [[nodiscard]] bool is_stale() const noexcept { return graph_.is_stale(); }
        /// For a graph with a clock: whether further launches tell more about the times of its steps.
        [[nodiscard]] bool is_learning() const noexcept { return graph_.is_learning(); }
        /// What every launch writes.
        [[nodiscard]] std::span<const Tensor> outputs() const noexcept { return outputs_; }

    private:
        friend class CompiledModel;
        // Taken down from the end: the graph before the memory that it writes.
        CapturePool pool_;
        std::vector<Tensor> outputs_;
        CapturedPass<Device> graph_;
    };

    /// Runs of a method that follow each other, on inputs that stay where they are. Each is eager, or the launch of a graph: whichever took
    /// less time. Where the host takes longer to launch kernels than the GPU to run them, that is the graph, planned with what the steps take in
    /// one. Ends before its model.
    class RepeatedRun {
    public:
        /// Nothing runs yet. The inputs stay where they are, and are read by every run. Of the options, the state counts.
        RepeatedRun(std::string method, std::span<const TensorView> inputs, const RunOptions& options = {})
            : method_{std::move(method)}, inputs_{inputs.begin(), inputs.end()}, state_{options.state} {}

        /// Whether the last run was the launch of a graph.
        [[nodiscard]] bool is_graph() const noexcept { return is_graph_; }
        /// Whether both ways were timed, or there is one only: runs go on as the last one, until the budget or the method changes.
        [[nodiscard]] bool is_settled() const noexcept { return choice_.is_settled(); }
        /// Shortest times of both ways, by which the choice is made.
        [[nodiscard]] const GraphChoice& choice() const noexcept { return choice_; }
        /// Why no graph could be captured, at the budget in force.
        [[nodiscard]] const std::optional<Error>& refusal() const noexcept { return refusal_; }

    private:
        friend class CompiledModel;
        [[nodiscard]] std::span<const Tensor> outputs() const noexcept {
            return is_graph_ ? graph_->outputs() : std::span<const Tensor>{outputs_};
        }

        std::string method_;
        std::vector<TensorView> inputs_;
        const CallerState<Device>* state_ = nullptr;  // null: the model's own
        GraphChoice choice_;
        Schedule eager_;                           // with the times of eager runs; empty: no graph was timed
        std::unique_ptr<RunTimer<Device>> timer_;  // until it is settled
        std::vector<Tensor> outputs_;              // of an eager run
        std::optional<CapturedRun> graph_;         // that may be launched
        bool is_graph_ = false;
        std::optional<Error> refusal_;
        std::uint64_t budget_bytes_ = 0;  // that the choice is for
        std::uint64_t switches_ = 0;      // of methods, as of the last run
    };

    /// The next one of runs that follow each other. Its outputs are valid until the one after it. Enqueues on the stream, and blocks only for
    /// what switches to another method and where a graph is captured, timed or given up: after the first runs, and again after a change of the
    /// budget or the method. Errors: those of try_run and CapturedRun::try_launch. What cannot be captured runs eagerly.
    [[nodiscard]] Result<std::span<const Tensor>> try_run(RepeatedRun& run, Stream stream);

    /// Blocks. Records a run of a method as a graph; nothing of it runs. The method has run before, on that stream: the first run loads its
    /// kernels, which a capture forbids. Inputs stay where they are as long as the graph is launched. Errors: wrong_state (a run is
    /// under way, or the method has not run yet), unsupported (compiled for the CPU, whose kernels run at once), those of try_run and of
    /// Residency::try_capture. After an error the next run works.
    [[nodiscard]] Result<CapturedRun> try_capture(std::string_view method, std::span<const TensorView> inputs,
                                                  Stream stream, const RunOptions& options = {})
        requires CapturingDevice<Device>;

    /// What the last run left out; nothing where it did all that its program says.
    [[nodiscard]] const RunReport& last_run() const noexcept { return state_->report; }

    /// The memory of a weight that kernels write, such as a cache, on the device: to reset or to read it while nothing runs. Valid until
    /// the budget changes. Errors: mismatch (there is no such weight, or kernels do not write it), wrong_state (its memory is given back).
    [[nodiscard]] Result<TensorView> try_mutable(std::string_view name) const { return mutable_view(name, nullptr); }
    /// try_mutable for the memory of a caller's state. Valid as long as the state.
    [[nodiscard]] Result<TensorView> try_mutable(std::string_view name, const CallerState<Device>& state) const {
        return mutable_view(name, &state);
    }

    /// What the exporter wrote.
    [[nodiscard]] const format::Program& program() const noexcept { return state_->program; }
    /// For budgets and statistics. Passes are begun by run() alone.
    [[nodiscard]] Weights& weights() noexcept { return *state_->weights; }
    /// As above, const.
    [[nodiscard]] const Weights& weights() const noexcept { return *state_->weights; }

private:
    struct State;
    /// What a folder says, before weights are loaded.
    struct Opening {
        std::unique_ptr<State> state;
        Catalog catalog;  // bound to its files
        typename Weights::Options settings;
    };
    [[nodiscard]] static Result<Opening> prepare(const std::string& folder, Options& options);

    struct Method {
        const format::ProgramMethod* program = nullptr;
        Schedule schedule;
        std::vector<std::int64_t> probes;  // by step: the number of its probe; empty: it has markers
        std::optional<Package> package;
        std::vector<std::uint64_t> bound;  // what the addresses that the package has follow from; empty: it has none
    };
    /// At a fixed address, since the hooks of packages point to it.
    struct State {
        format::Program program;
        std::string folder;
        PackageOptions package_options;
        std::function<void(const StepEvent&)> observer;
        std::optional<Weights> weights;
        std::vector<Method> methods;
        Method* current = nullptr;   // whose schedule is in force
        std::uint64_t switches = 0;  // to another method

        // Of the run that is under way.
        bool is_running = false;
        std::optional<typename Weights::Pass> pass;
        std::vector<std::pair<std::uint32_t, typename Weights::Lease>>
            leases;                         // each with the step before which it ends
        std::span<const StepRange> ranges;  // each is one lease; empty: each step is
        StepRange leased;                   // the last range that was; empty: none
        detail::MarkerCheck markers;
        const CallerState<Device>* of_caller = nullptr;
        std::optional<std::int64_t> open_step;  // whose kernels come now; -1: they read no weight
        std::optional<Error> failure;
        RunReport report;

        /// Between begin() and end(), a run is under way.
        void begin(Method& method, const CallerState<Device>* caller);
        void end() noexcept {
            of_caller = nullptr;
            is_running = false;
        }
        /// In a pass: into which leases it falls. Where steps are timed, each is one.
        void set_ranges(Timing timing = Timing::off) {
            if constexpr (has_fixed_addresses) {
                if (!observer && timing == Timing::off) { ranges = weights->ranges(); }
            }
        }
        [[nodiscard]] std::int32_t step(std::int64_t number);
        [[nodiscard]] Result<void*> probe(std::int64_t number);
        /// Step `number` begins, of which there is a marker or a probe.
        [[nodiscard]] Status reach(std::int64_t number);
        /// Leases the range of a step, which is not.
        [[nodiscard]] Status acquire(std::uint32_t step);
        /// The kernels of the open step have come.
        void end_step() {
            if (open_step) { notify(StepEvent::Kind::end, *std::exchange(open_step, std::nullopt)); }
        }
        void end_leases() {
            leases.clear();
            leased = {};
        }
        void notify(StepEvent::Kind kind, std::int64_t number) const {
            if (observer) { tell(kind, number); }
        }
        RESIDENCY_DETAIL_COLD void tell(StepEvent::Kind kind, std::int64_t number) const;
        /// Where kernels find a weight: what they write, in a caller's state.
        [[nodiscard]] TensorView view(WeightId id) const {
            const Weight& weight = weights->catalog().weight(id);
            void* address = weights->address(id);
            if (of_caller != nullptr && of_caller->addresses_[index(weight.storage)] != nullptr) {
                address = of_caller->addresses_[index(weight.storage)] + weight.offset_bytes;
            }
            return {address, weight.dtype, weight.shape, weight.strides, 0};
        }
        static std::int32_t on_step(void* context, std::int64_t number) {
            return static_cast<State*>(context)->step(number);
        }
        static std::int32_t on_probe(void* context, void*, std::int64_t number, void** result) {
            auto& state = *static_cast<State*>(context);
            const auto tensor = state.probe(number);
            if (tensor) {
                *result = *tensor;
            } else if (!state.failure) {
                state.failure = tensor.error();
            }
            return tensor ? 0 : 1;
        }
        /// For a library that another runtime runs: without this model its weights are not there.
        static std::int32_t on_lent_step(void* context, std::int64_t number) {
            auto* const state = static_cast<State*>(context);
            return state->pass ? state->step(number) : 1;
        }
    };

    explicit CompiledModel(std::unique_ptr<State> state) noexcept : state_{std::move(state)} {}

    [[nodiscard]] Result<Method*> find(std::string_view name) const;
    /// A method that is run, captured or changed next, while no run is under way. Errors: wrong_state (one is), those of find.
    [[nodiscard]] Result<Method*> find_idle(std::string_view name,
                                            const CallerState<Device>* of_caller = nullptr) const;
    [[nodiscard]] Status load(Method& method);
    [[nodiscard]] Status bind(Method& method);
    [[nodiscard]] Status adopt(Method& method, Package package);
    template <class Call>
    [[nodiscard]] Status try_follow(std::string_view method, Stream stream, const CallerState<Device>* of_caller,
                                    bool is_lent, const Call& call);
    template <class Call>
    [[nodiscard]] Status run(Method& method, Stream stream, const Call& call);
    /// Puts the schedule of a method in force.
    [[nodiscard]] Status switch_to(Method& method);
    [[nodiscard]] Result<TensorView> mutable_view(std::string_view name, const CallerState<Device>* of_caller) const;
    [[nodiscard]] const Catalog& catalog() const noexcept { return state_->weights->catalog(); }
    /// A stream of CUDA is a pointer, or converts to one.
    static constexpr bool is_cuda_stream = std::is_convertible_v<Stream, const void*>;
    [[nodiscard]] static void* native(Stream stream) noexcept {
        if constexpr (is_cuda_stream) {
            return stream;
        } else {
            return nullptr;
        }
    }

    std::unique_ptr<State> state_;
};

template <class Weights>
auto CompiledModel<Weights>::prepare(const std::string& folder, Options& options) -> Result<Opening> {
    auto program = format::try_load_program_folder(folder);
    if (!program) { return program.error(); }
    const bool is_cuda = program->device.starts_with("cuda");
    if (is_cuda != is_cuda_stream) {
        return Error{ErrorKind::unsupported, residency::detail::quoted(folder) + " was compiled for " +
                                                 program->device + "; export it for the device that it runs on"};
    }
    auto bound = format::try_bind_program_folder(*program, folder);
    if (!bound) { return bound.error(); }
    auto state = std::make_unique<State>();
    state->program = std::move(*program);
    state->folder = folder;
    state->package_options = std::move(options.package);
    state->package_options.is_cuda = is_cuda;
    state->observer = std::move(options.observer);
    for (const format::ProgramMethod& each : state->program.methods) {
        auto probes = detail::probes_of(state->program, each);
        if (!probes) { return probes.error().in(residency::detail::quoted(folder)); }
        if (!has_fixed_addresses && probes->empty() && !each.steps.empty()) {
            return Error{
                ErrorKind::unsupported,
                residency::detail::quoted(folder) + ": the method " + residency::detail::quoted(each.name) +
                    " was exported with markers, whose kernels read weights where they were bound, and in this "
                    "composition weights move: take Planned, or export it with probes=True"};
        }
        auto schedule = state->program.try_schedule(each);
        if (!schedule) { return schedule.error(); }
        state->methods.push_back({&each, std::move(*schedule), std::move(*probes), std::nullopt, {}});
    }
    auto settings = std::move(options.weights);
    settings.budget = options.budget;
    if (!state->program.budget.empty()) {
        auto stored = Budget::try_parse(state->program.budget);
        if (!stored) { return stored.error().in("the budget stored in " + residency::detail::quoted(folder)); }
        settings.stored_budget = *stored;
    }
    state->current = &state->methods.front();
    settings.schedule = state->current->schedule;
    return Opening{std::move(state), std::move(*bound), std::move(settings)};
}

template <class Weights>
auto CompiledModel<Weights>::try_resolve_budget(Device& device, const std::string& folder, Options options)
    -> Result<ResolvedBudget> {
    auto opening = prepare(folder, options);
    if (!opening) { return opening.error(); }
    std::optional<ResolvedBudget> largest;
    for (const Method& method : opening->state->methods) {
        auto settings = opening->settings;
        settings.schedule = method.schedule;
        auto resolved = Weights::try_resolve_budget(device, opening->catalog, std::move(settings));
        if (!resolved) { return resolved.error().in("the method " + residency::detail::quoted(method.program->name)); }
        if (!largest || resolved->floor_bytes > largest->floor_bytes) { largest = std::move(*resolved); }
    }
    return std::move(*largest);
}

template <class Weights>
auto CompiledModel<Weights>::try_open(Device& device, const std::string& folder, Options options)
    -> Result<CompiledModel> {
    auto opening = prepare(folder, options);
    if (!opening) { return opening.error(); }
    auto& [state, bound, settings] = *opening;
    if (options.load.order.empty() && options.load.schedule.empty()) {
        auto order = Weights::try_storage_order(device, bound, settings);
        if (!order) { return order.error(); }
        options.load.order = std::move(*order);
    }
    auto loaded = host::try_load(device, bound, std::move(options.load));
    if (!loaded) { return loaded.error(); }
    auto weights = Weights::try_create(device, std::move(loaded->catalog), std::move(settings));
    if (!weights) { return weights.error(); }
    state->weights.emplace(std::move(*weights));
    return CompiledModel{std::move(state)};
}

template <class Weights>
auto CompiledModel<Weights>::find(std::string_view name) const -> Result<Method*> {
    const auto& methods = state_->program.methods;
    if (const auto* found = state_->program.find_method(name)) {
        return &state_->methods[static_cast<std::size_t>(found - methods.data())];
    }
    std::string known;
    for (const auto& each : methods) { known += (known.empty() ? "" : ", ") + each.name; }
    return Error{ErrorKind::invalid_argument,
                 "the model has no method " + residency::detail::quoted(name) + "; it has " + known};
}

template <class Weights>
auto CompiledModel<Weights>::find_idle(std::string_view name,
                                       [[maybe_unused]] const CallerState<Device>* of_caller) const -> Result<Method*> {
    if (state_->is_running) {
        return Error{ErrorKind::wrong_state, "a run of this model is under way; runs follow each other"};
    }
    RESIDENCY_ASSERT(of_caller == nullptr || of_caller->catalog_hash_ == catalog().hash(),
                     "pass a state that a model of the same weights made");
    return find(name);
}

template <class Weights>
auto CompiledModel<Weights>::try_make_state() -> Result<CallerState<Device>> {
    Device& device = state_->weights->device();
    CallerState<Device> state{device, catalog().hash()};
    const auto storages = catalog().storages();
    std::vector<std::uint64_t> offsets(storages.size());
    for (std::size_t i = 0; i < storages.size(); ++i) {
        if (!storages[i].is_mutable || storages[i].bytes == 0) { continue; }
        offsets[i] = pool::round_up(state.bytes_, storages[i].alignment_bytes);
        state.bytes_ = offsets[i] + storages[i].bytes;
    }
    state.addresses_.resize(storages.size());
    if (state.bytes_ == 0) { return state; }
    auto memory = device.allocate(state.bytes_);
    if (!memory) { return memory.error().in("for what kernels write"); }
    state.memory_ = *memory;
    for (std::size_t i = 0; i < storages.size(); ++i) {
        if (!storages[i].is_mutable || storages[i].bytes == 0) { continue; }
        state.addresses_[i] = static_cast<std::byte*>(*memory) + offsets[i];
    }
    if (Status reset = try_reset(state); !reset) { return reset.error(); }
    return state;
}

template <class Weights>
Status CompiledModel<Weights>::try_reset(CallerState<Device>& state) const {
    Device& device = *state.device_;
    const Stream stream{};
    for (std::uint32_t i = 0; i < state.addresses_.size(); ++i) {
        if (state.addresses_[i] == nullptr) { continue; }
        const Storage& storage = catalog().storages()[i];
        const std::byte* from = catalog().host_bytes(StorageId{i});
        std::vector<std::byte> read;
        if (const auto* source = std::get_if<FileSource>(&storage.source)) {
            const auto file = host::WeightFile::try_open(*source->file, host::FileAccess::cached);
            if (!file) { return file.error(); }
            read.resize(static_cast<std::size_t>(storage.bytes));
            if (Status done = file->try_read(source->offset_bytes, read); !done) { return done; }
            from = read.data();
        }
        const Copy copy{state.addresses_[i], from, storage.bytes};
        Status copied = device.copy({&copy, 1}, stream);
        Status complete = device.synchronize(stream);
        if (!copied) { return copied; }
        if (!complete) { return complete; }
    }
    return {};
}

template <class Weights>
Status CompiledModel<Weights>::bind(Method& method) {
    const State& state = *state_;
    const auto& constants = method.program->constants;
    const auto comes_by_probe = [&](const format::ProgramConstant& constant) {
        return !has_fixed_addresses &&
               catalog().storage(catalog().storage_of(constant.weight)).placement == Placement::streamed;
    };
    std::vector<std::uint64_t> now;
    if constexpr (has_fixed_addresses) {
        now = {state.weights->generation(),
               reinterpret_cast<std::uintptr_t>(state.of_caller == nullptr ? nullptr : state.of_caller->memory_)};
    } else {
        now.push_back(constants.size());
        for (const format::ProgramConstant& constant : constants) {
            if (comes_by_probe(constant)) { continue; }
            now.push_back(reinterpret_cast<std::uintptr_t>(state.view(constant.weight).data));
        }
    }
    if (method.bound == now) { return {}; }
    std::vector<ConstantBinding> bindings;
    for (const format::ProgramConstant& constant : constants) {
        bindings.push_back({constant.name, state.view(constant.weight)});
        if (comes_by_probe(constant)) { bindings.back().tensor.data = nullptr; }
    }
    if (Status bound = method.package->try_bind(bindings); !bound) { return bound; }
    method.bound = std::move(now);
    return {};
}

template <class Weights>
Status CompiledModel<Weights>::load(Method& method) {
    if (Status resumed = state_->weights->try_resume(); !resumed) { return resumed; }
    if (method.package) { return {}; }
    auto package = Package::try_open(state_->folder + "/" + method.program->package, state_->package_options,
                                     method.program->name);
    if (!package) { return package.error(); }
    return adopt(method, std::move(*package));
}

template <class Weights>
Status CompiledModel<Weights>::adopt(Method& method, Package package) {
    if (Status same = detail::check_constants(package, state_->program, *method.program); !same) { return same; }
    method.package.reset();  // first, since what it was may be the same library
    package.set_hooks({state_.get(), package.is_lent() ? &State::on_lent_step : &State::on_step, &State::on_probe});
    method.package.emplace(std::move(package));
    method.bound.clear();
    return {};
}

template <class Weights>
Status CompiledModel<Weights>::try_release(std::string_view name) {
    const auto found = find_idle(name);
    if (!found) { return found.error(); }
    if (Status drained = state_->weights->try_drain(); !drained) { return drained; }
    (*found)->package.reset();
    const bool is_any_loaded =
        std::ranges::any_of(state_->methods, [](const Method& m) { return m.package.has_value(); });
    return is_any_loaded ? Status{} : state_->weights->try_suspend();
}

template <class Weights>
void CompiledModel<Weights>::State::tell(StepEvent::Kind kind, std::int64_t number) const {
    StepEvent event{kind, current->program, std::nullopt};
    if (number >= 0) { event.step = static_cast<std::uint32_t>(number); }
    observer(event);
}

template <class Weights>
void CompiledModel<Weights>::State::begin(Method& method, const CallerState<Device>* caller) {
    is_running = true;
    of_caller = caller;
    report = {};
    failure.reset();
    ranges = {};
    leased = {};
    markers.begin(static_cast<std::uint32_t>(method.program->steps.size()));
}

template <class Weights>
Status CompiledModel<Weights>::State::acquire(std::uint32_t step) {
    if constexpr (has_fixed_addresses) {
        // The plan keeps what both ranges have; more leases at once would take more memory.
        end_leases();
        while (!ranges.empty() && ranges.front().last <= step) { ranges = ranges.subspan(1); }
        leased = ranges.empty() ? StepRange{step, step + 1} : ranges.front();
        auto next = pass->try_acquire(leased);
        if (!next) { return next.error(); }
        leases.emplace_back(leased.last, std::move(*next));
    } else {
        // One for each weight, until the package has dropped its tensor.
        std::erase_if(leases, [&](const auto& lease) { return lease.first <= step; });
        leased = {step, step + 1};
        const format::ProgramStep& probed = current->program->steps[step];
        auto next = pass->try_acquire(probed.weights.front());
        if (!next) { return next.error(); }
        leases.emplace_back(*probed.live_until + 1, std::move(*next));
    }
    // The kernels of a CPU do not wait for a stream.
    return package_options.is_cuda ? Status{} : pass->try_wait();
}

template <class Weights>
Status CompiledModel<Weights>::State::reach(std::int64_t number) {
    end_step();
    if (!markers.advance(number)) { return markers.refusal(number); }
    notify(StepEvent::Kind::wait, number);
    const auto step = static_cast<std::uint32_t>(number);
    if (step < leased.first || step >= leased.last) {
        if (Status acquired = acquire(step); !acquired) { return acquired; }
    }
    notify(StepEvent::Kind::run, number);
    open_step = number;
    return {};
}

template <class Weights>
std::int32_t CompiledModel<Weights>::State::step(std::int64_t number) {
    if (!pass) { return 0; }  // the package runs without this model
    if (number < 0) {
        end_step();
        if (markers.reached() >= leased.last) { end_leases(); }
        notify(StepEvent::Kind::run, number);
        open_step = number;
        return 0;
    }
    const Status reached =
        current->probes.empty()
            ? reach(number)
            : Status{Error{ErrorKind::mismatch,
                           "the package has markers, and its program has probes: they are not of one export"}};
    if (!reached && !failure) { failure = reached.error(); }
    return reached ? 0 : 1;
}

template <class Weights>
Result<void*> CompiledModel<Weights>::State::probe(std::int64_t number) {
    if (!pass) { return Error{ErrorKind::wrong_state, "a probe was called outside of a run of its model"}; }
    const std::uint32_t step = markers.reached();
    const std::vector<std::int64_t>& probes = current->probes;
    if (step >= probes.size() || probes[step] != number) {
        return Error{ErrorKind::mismatch,
                     "probe " + std::to_string(number) + " came where " +
                         (step < probes.size() ? "probe " + std::to_string(probes[step]) : std::string{"the end"}) +
                         " belongs: the package and its program are not of one export"};
    }
    if (Status reached = reach(step); !reached) { return reached.error(); }
    return current->package->try_wrap(view(current->program->steps[step].weights.front()));
}

template <class Weights>
Status CompiledModel<Weights>::switch_to(Method& method) {
    if (state_->current == &method) { return {}; }
    if (Status changed = state_->weights->try_set_schedule(method.schedule); !changed) { return changed; }
    state_->current = &method;
    ++state_->switches;
    return {};
}

template <class Weights>
template <class Call>
Status CompiledModel<Weights>::run(Method& method, Stream stream, const Call& call) {
    State& state = *state_;
    if (Status current = switch_to(method); !current) { return current; }
    auto pass = state.weights->try_begin(stream);
    if (!pass) { return pass.error(); }
    state.pass.emplace(std::move(*pass));
    state.set_ranges();
    Status status = bind(method);
    if (status) { status = call(*method.package); }
    state.end_step();
    state.end_leases();
    Status ended = state.pass->try_end();
    state.pass.reset();
    if (state.failure) { return *std::exchange(state.failure, std::nullopt); }
    if (status && state.markers.reached() == 0 && state.markers.steps() > 0) {
        return Error{
            ErrorKind::mismatch,
            method.package->is_lent()
                ? "no marker was called, so that its weights were not there: what ran is not this method, or a "
                  "CUDA graph of the other runtime, which skips the library; "
                  "leave enable_cuda_graph_for_method off"
                : "the package called no marker and no probe, so that its weights were not there: it is not of this "
                  "export; export the model again"};
    }
    return status ? std::move(ended) : std::move(status);
}

template <class Weights>
template <class Call>
Status CompiledModel<Weights>::try_follow(std::string_view name, Stream stream, const CallerState<Device>* of_caller,
                                          bool is_lent, const Call& call) {
    State& state = *state_;
    const auto found = find_idle(name, of_caller);
    if (!found) { return found.error(); }
    Method& method = **found;
    if (is_lent != (method.package && method.package->is_lent())) {
        return Error{ErrorKind::wrong_state, is_lent ? "no library of another runtime is attached to the method " +
                                                           residency::detail::quoted(name) + "; call try_attach"
                                                     : "another runtime runs the method " +
                                                           residency::detail::quoted(name) + "; call try_run_attached"};
    }
    if (Status loaded = load(method); !loaded) { return loaded.error(); }
    state.begin(method, of_caller);
    Status ran = run(method, stream, call);
    state.end();
    for (std::uint32_t i = state.markers.reached(); i < state.markers.steps(); ++i) {
        state.report.steps_not_called.push_back(i);
        for (const WeightId id : method.program->steps[i].weights) { state.report.weights_not_reached.push_back(id); }
    }
    return ran ? Status{} : Status{ran.error().in("method " + residency::detail::quoted(name))};
}

template <class Weights>
Result<std::vector<Tensor>> CompiledModel<Weights>::try_run(std::string_view name, std::span<const TensorView> inputs,
                                                            Stream stream, const RunOptions& options) {
    std::vector<Tensor> outputs;
    const Status ran = try_follow(name, stream, options.state, false, [&](Package& package) -> Status {
        auto given = package.try_run(inputs, native(stream));
        if (!given) { return given.error(); }
        outputs = std::move(*given);
        return {};
    });
    if (!ran) { return ran.error(); }
    return outputs;
}

template <class Weights>
auto CompiledModel<Weights>::try_run(RepeatedRun& run, Stream stream) -> Result<std::span<const Tensor>> {
    Weights& weights = *state_->weights;
    GraphChoice& choice = run.choice_;
    if (std::exchange(run.budget_bytes_, weights.budget().bytes) != weights.budget().bytes) {
        choice = {};
        run.eager_ = {};
        run.refusal_.reset();
    }
    if (std::exchange(run.switches_, state_->switches) != state_->switches) { choice.interrupted(); }
    if (run.graph_ && run.graph_->is_stale()) { choice.lost_graph(); }
    using Way = GraphChoice::Way;
    if (choice.way() == Way::timed_graph && !run.graph_->is_learning()) { choice.learned(); }
    if (choice.way() == Way::capture_timed) {
        const Statistics statistics = weights.statistics();
        if (!statistics.streaming || statistics.learning.state == LearningState::off) { choice.learned(); }
    }
    if (run.graph_ && choice.way() != Way::graph && choice.way() != Way::timed_graph) {
        if (Status drained = weights.try_drain(); !drained) { return drained.error(); }
        run.is_graph_ = false;
        run.graph_.reset();
    }
    if (choice.is_settled() && choice.way() == Way::eager && !run.eager_.empty()) {
        // Eager runs took less time by the plan that they had.
        const auto method = find_idle(run.method_, run.state_);
        if (!method) { return method.error(); }
        (*method)->schedule = std::exchange(run.eager_, {});
        state_->current = nullptr;
        if (Status changed = switch_to(**method); !changed) { return changed.error(); }
    }
    if constexpr (CapturingDevice<Device>) {
        if (choice.way() == Way::capture_timed || choice.way() == Way::capture) {
            const Timing timing = choice.way() == Way::capture_timed ? Timing::on : Timing::off;
            if (timing == Timing::on) { run.eager_ = weights.schedule(); }
            auto graph = try_capture(run.method_, run.inputs_, stream, {run.state_, timing});
            if (graph) {
                run.graph_.emplace(std::move(*graph));
                run.switches_ = state_->switches;
                choice.captured();
            } else if (graph.error().kind() == ErrorKind::wrong_state) {
                choice.lost_graph();  // its package was released: the next run loads it
            } else {
                run.refusal_ = graph.error();
                choice.refused();
            }
        }
    } else {
        choice.refused();
    }
    const bool is_timed = !choice.is_settled();
    if (!is_timed) {
        run.timer_.reset();
    } else if (run.timer_ == nullptr) {
        run.timer_ = std::make_unique<RunTimer<Device>>(weights.device());
    }
    if (is_timed) { run.timer_->start(stream); }
    if constexpr (CapturingDevice<Device>) {
        if (run.graph_) {
            if (Status launched = run.graph_->try_launch(stream); !launched) { return launched.error(); }
            run.is_graph_ = true;
            run.outputs_.clear();
            if (is_timed && choice.way() == Way::graph) {
                run.timer_->stop(stream, true);
                choice.launched(run.timer_->read(true));
            }
            return run.outputs();
        }
    }
    auto outputs = try_run(run.method_, run.inputs_, stream, {run.state_, Timing::off});
    if (!outputs) { return outputs.error(); }
    run.outputs_ = std::move(*outputs);
    if (std::exchange(run.switches_, state_->switches) != state_->switches) { choice.interrupted(); }
    if (is_timed) {
        run.timer_->stop(stream, false);
        choice.ran_eagerly(weights.statistics().learning.state == LearningState::measuring, run.timer_->read(false));
    }
    return run.outputs();
}

template <class Weights>
Status CompiledModel<Weights>::try_attach(std::string_view name, const LentPackage& lent) {
    const auto found = find_idle(name);
    if (!found) { return found.error(); }
    auto package = Package::try_attach(lent, state_->package_options);
    if (!package) { return package.error(); }
    return adopt(**found, std::move(*package));
}

template <class Weights>
auto CompiledModel<Weights>::try_capture(std::string_view name, std::span<const TensorView> inputs, Stream stream,
                                         const RunOptions& options) -> Result<CapturedRun>
    requires CapturingDevice<Device>
{
    State& state = *state_;
    const auto found = find_idle(name, options.state);
    if (!found) { return found.error(); }
    Method& method = **found;
    const auto in_words = [&](const Error& error) { return error.in("method " + residency::detail::quoted(name)); };
    if (!state.package_options.is_cuda) {
        return in_words({ErrorKind::unsupported, "it was compiled for the CPU, whose kernels run at once"});
    }
    if (method.package && method.package->is_lent()) {
        return in_words({ErrorKind::unsupported, "another runtime runs it, which this cannot record"});
    }
    if (!method.package || method.bound.empty()) {
        return in_words(
            {ErrorKind::wrong_state,
             "run it once before it is captured: the first run loads its kernels, which a capture forbids"});
    }
    if (Status current = switch_to(method); !current) { return in_words(current.error()); }

    CapturedRun run;
    state.begin(method, options.state);
    const auto body = [&](typename Weights::Pass& pass) -> Status {
        if (Status bound = bind(method); !bound) { return bound; }
        state.set_ranges(options.timing);
        auto pool = method.package->try_begin_capture(native(stream));
        if (!pool) { return pool.error(); }
        run.pool_ = std::move(*pool);
        state.pass.emplace(std::move(pass));
        auto ran = method.package->try_run(inputs, native(stream));
        state.end_step();
        state.end_leases();
        pass = std::move(*state.pass);
        state.pass.reset();
        Status ended = run.pool_.end();
        if (state.failure) { return *std::exchange(state.failure, std::nullopt); }
        if (!ran) { return ran.error(); }
        run.outputs_ = std::move(*ran);
        return ended;
    };
    auto graph = [&] {
        if constexpr (GraphTimingDevice<Device>) {
            if (options.timing == Timing::on) { return state.weights->try_capture_timed(stream, body); }
        }
        return state.weights->try_capture(stream, body);
    }();
    state.end();
    if (!graph) { return in_words(graph.error()); }
    run.graph_ = std::move(*graph);
    return run;
}

template <class Weights>
Result<TensorView> CompiledModel<Weights>::mutable_view(std::string_view name,
                                                        const CallerState<Device>* of_caller) const {
    const auto id = state_->program.find(name);
    if (!id || !state_->program.catalog.storage(state_->program.catalog.storage_of(*id)).is_mutable) {
        return Error{ErrorKind::mismatch, id ? residency::detail::quoted(name) + " is not written by kernels"
                                             : "the program has no weight " + residency::detail::quoted(name)};
    }
    if (of_caller == nullptr && state_->weights->is_suspended()) {
        return Error{ErrorKind::wrong_state, "no method is loaded, so that " + residency::detail::quoted(name) +
                                                 " has no memory: load one first"};
    }
    const Weight& weight = catalog().weight(*id);
    TensorView view = state_->view(*id);
    if (of_caller != nullptr) { view.data = of_caller->addresses_[index(weight.storage)] + weight.offset_bytes; }
    return view;
}

}}}  // namespace residency::RESIDENCY_ABI::aoti
