// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/array_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/memory_overlap.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/array_rows.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/array_checks.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
constexpr int64_t kPerTask = 1 << 16;

// A build without CUDA has no device.
template <typename Machine>
kernels::Status CheckPointerOn([[maybe_unused]] Machine* machine,
                               [[maybe_unused]] const void* data) {
  if constexpr (!kIsHost<Machine>) {
    return machine->context()->CheckPointer(data);
  }
  return {};
}

// Reads arrays on a device.
class DeviceReader {
 public:
  explicit DeviceReader(DeviceMachine* machine) : machine_(machine) {}

  // Every array that is read or written there.
  kernels::Status CheckPointer(const void* data) {
    return CheckPointerOn(machine_, data);
  }
  // *first: the number of the first bad element; -1: none.
  template <typename Params>
  kernels::Status First(Params params, int64_t* first) {
    kernels::ArrayRecord record;
    CERES_EXT_RETURN_IF_ERROR(Reset());
    params.record = record_.data();
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(1, record_.data(), &record));
    *first = record.first_bad == kernels::ArrayRecord::kNoneBad
                 ? -1
                 : record.first_bad;
    return {};
  }
  // One of the values.
  template <typename T>
  kernels::Status Read(const T* from, T* value) {
    return machine_->Download(1, from, value);
  }
  // A count for each of n blocks, at zero.
  kernels::Status StartCounts(int64_t n) {
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &counts_));
    return machine_->SetZero(n, counts_.data());
  }
  int32_t* counts() { return counts_.data(); }
  kernels::Status Summarize(int64_t n, kernels::ArrayRecord* record) {
    CERES_EXT_RETURN_IF_ERROR(Reset());
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::SummarizeBlocksParams{n, counts_.data(), record_.data()},
        machine_));
    return machine_->Download(1, record_.data(), record);
  }

 private:
  template <typename T>
  using Buffer = typename DeviceMachine::template Buffer<T>;

  kernels::Status Reset() {
    const kernels::ArrayRecord none;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(1, &record_));
    return machine_->Upload(1, &none, record_.data());
  }

  DeviceMachine* machine_;
  Buffer<kernels::ArrayRecord> record_;
  Buffer<int32_t> counts_;
};

// The values that the manifolds of an array keep constant in blocks that vary.
class HeldValues {
 public:
  explicit HeldValues(const Parameters& parameters) : parameters_(parameters) {
    if (parameters.manifolds == nullptr) {
      Read(parameters.manifold);
      return;
    }
    for (int64_t b = 0; b < parameters.num_blocks; ++b) {
      Read(parameters.manifolds[b]);
    }
  }

  bool Has(int64_t block, int value) const {
    const auto found = held_.find(parameters_.ManifoldOf(block));
    return found != held_.end() && found->second[value] != 0;
  }

 private:
  // A manifold that is not known moves all values.
  void Read(const ceres::Manifold* manifold) {
    if (manifold == nullptr || held_.count(manifold) > 0) {
      return;
    }
    std::vector<uint8_t>& held = held_[manifold];
    std::vector<kernels::ManifoldFactor> factors;
    if (ReadManifold(*manifold, &factors)) {
      for (const kernels::ManifoldFactor& factor : factors) {
        held.insert(held.end(),
                    factor.size,
                    factor.kind == kernels::ManifoldKind::kConstant ? 1 : 0);
      }
    }
    held.resize(parameters_.size);
  }

  const Parameters& parameters_;
  std::unordered_map<const ceres::Manifold*, std::vector<uint8_t>> held_;
};

class Validator {
 public:
  // device: null where arrays on one are an error.
  Validator(const ArrayProblem& problem,
            kernels::HostContext* context,
            std::string* error,
            DeviceMachine* device)
      : problem_(problem), context_(context), error_(error) {
    if (device != nullptr) {
      device_.emplace(device);
    }
  }

  const std::vector<DeviceArrayFacts>& facts() const { return facts_; }

  // Sizes and addresses first, then what the arrays hold.
  bool Run() {
    const auto each = [](int n, const auto& is_valid) {
      int i = 0;
      while (i < n && is_valid(i)) {
        ++i;
      }
      return i == n;
    };
    return each(NumParameters(), [this](int i) { return CheckShape(i); }) &&
           each(static_cast<int>(problem_.residuals().size()),
                [this](int i) { return CheckResiduals(i); }) &&
           CheckEliminated() && CheckOverlap() &&
           each(NumParameters(), [this](int i) { return CheckValues(i); }) &&
           each(static_cast<int>(checked_.size()),
                [this](int c) { return CheckRows(checked_[c]); }) &&
           each(NumParameters(), [this](int i) { return FindFacts(i); });
  }

 private:
  // An array of residual blocks that is not empty.
  struct Checked {
    int residuals;
    bool has_observations;  // its constants are positions in an image
  };

  int NumParameters() const {
    return static_cast<int>(problem_.parameters().size());
  }
  const Parameters& parameters(int i) const { return problem_.parameters()[i]; }

  template <typename... Parts>
  bool Expect(bool holds, const Parts&... parts) {
    if (!holds) {
      *error_ = Sentence(parts...);
    }
    return holds;
  }
  bool Expect(const kernels::Status& status) {
    return Expect(status.ok(), status.message);
  }
  bool ExpectCount(const std::string& name, int64_t num_blocks) {
    return Expect(num_blocks >= 0 && num_blocks <= kLargest,
                  name + ": num_blocks is ",
                  num_blocks,
                  ", expected 0 to 2^31 - 1");
  }

  bool CheckShape(int i) {
    const Parameters& p = parameters(i);
    const std::string name = Sentence("parameters ", i);
    if (!ExpectCount(name, p.num_blocks) ||
        !Expect(
            p.size >= 1, name, ": size is ", p.size, ", expected at least 1") ||
        !Expect(p.values != nullptr || p.num_blocks == 0,
                name + ": values is null")) {
      return false;
    }
    // Sum by sum, so that none overflows.
    num_values_ += p.num_blocks * p.size;
    if (!Expect(num_values_ <= kLargest,
                "the parameters have ",
                num_values_,
                " values together, expected at most 2^31 - 1") ||
        (p.manifolds == nullptr && !CheckManifold(name, p, p.manifold))) {
      return false;
    }
    for (int64_t b = 0; p.manifolds != nullptr && b < p.num_blocks; ++b) {
      if (!CheckManifold(Sentence(name, ", block ", b), p, p.manifolds[b])) {
        return false;
      }
    }
    return AddArray(name + ": values",
                    p.values,
                    p.num_blocks * p.size,
                    p.on_device,
                    /*is_written=*/true) &&
           AddArray(name + ": is_constant", p.is_constant, p.num_blocks) &&
           AddArray(name + ": lower_bound", p.lower_bound, p.size) &&
           AddArray(name + ": upper_bound", p.upper_bound, p.size) &&
           AddArray(name + ": lower_bounds",
                    p.lower_bounds,
                    p.num_blocks * p.size) &&
           AddArray(name + ": upper_bounds",
                    p.upper_bounds,
                    p.num_blocks * p.size) &&
           AddArray(name + ": manifolds", p.manifolds, p.num_blocks);
  }

  // Notes an array for CheckOverlap. False if its memory can't be read.
  template <typename T>
  bool AddArray(const std::string& name,
                const T* data,
                int64_t n,
                bool on_device = false,
                bool is_written = false) {
    if (data == nullptr || n <= 0) {
      return true;
    }
    ranges_.push_back(
        {data, data + n, static_cast<int64_t>(names_.size()), is_written});
    names_.push_back(name);
    if (!on_device) {
      return true;
    }
    if (!device_.has_value()) {
      return Expect(false,
                    name,
                    " is on a device, where this function does not read it; "
                    "expected host memory");
    }
    const kernels::Status status = device_->CheckPointer(data);
    return Expect(status.ok(), name, " ", status.message);
  }

  bool CheckManifold(const std::string& name,
                     const Parameters& p,
                     const ceres::Manifold* manifold) {
    return manifold == nullptr ||
           Expect(manifold->AmbientSize() == p.size,
                  name + ": its manifold has AmbientSize ",
                  manifold->AmbientSize(),
                  ", expected the size ",
                  p.size);
  }

  // The parameter arrays that the slots name, and that there is one way to get
  // cost functions.
  bool CheckSlots(const Residuals& r, const std::string& name) {
    if (!ExpectCount(name, r.num_blocks)) {
      return false;
    }
    for (size_t b = 0; b < r.blocks.size(); ++b) {
      const int array = r.blocks[b].parameters;
      if (!Expect(array >= 0 && array < NumParameters(),
                  SlotName(name, b) + ": parameters is ",
                  array,
                  ", expected 0 <= parameters < ",
                  NumParameters())) {
        return false;
      }
    }
    return r.num_blocks == 0 ||
           Expect((r.make_cost_function == nullptr) !=
                      (r.cost_functions == nullptr),
                  name,
                  ": expected either constants of a type of cost function or "
                  "cost_functions");
  }
  static std::string SlotName(const std::string& name, size_t b) {
    return Sentence(name, ", blocks[", b, "]");
  }

  // *made: the cost function of the first constants.
  bool MakeCostFunction(const Residuals& r,
                        const std::string& name,
                        std::unique_ptr<ceres::CostFunction>* made) {
    if (!Expect(r.constants != nullptr, name, ": constants is null") ||
        !Expect(r.constants_bytes >= 1 && r.constants_bytes <= kLargest,
                name + ": constants_bytes is ",
                r.constants_bytes,
                ", expected 1 to 2^31 - 1")) {
      return false;
    }
    *made = MakeTypicalCostFunction(r);
    return Expect(*made != nullptr, name, ": make_cost_function returned null");
  }

  bool CheckCostFunctions(const Residuals& r, const std::string& name) {
    for (int64_t k = 0; k < r.num_blocks; ++k) {
      const ceres::CostFunction* const f = r.cost_functions[k];
      if (!Expect(f != nullptr, name, ": cost_functions[", k, "] is null") ||
          !Expect(
              f->parameter_block_sizes() ==
                      r.cost_functions[0]->parameter_block_sizes() &&
                  f->num_residuals() == r.cost_functions[0]->num_residuals(),
              name,
              ": cost_functions[",
              k,
              "] has other sizes than cost_functions[0]")) {
        return false;
      }
    }
    return true;
  }

  bool CheckIndices(const Residuals& r,
                    const std::string& name,
                    const std::vector<int32_t>& sizes) {
    if (!Expect(r.blocks.size() == sizes.size(),
                name + ": blocks has ",
                r.blocks.size(),
                " index arrays, expected ",
                sizes.size(),
                ", one for each parameter block of the cost function")) {
      return false;
    }
    for (size_t b = 0; b < sizes.size(); ++b) {
      const ArrayProblem::Index& index = r.blocks[b];
      const Parameters& p = parameters(index.parameters);
      const std::string slot = SlotName(name, b);
      if (!Expect(p.size == sizes[b],
                  slot + ": parameters ",
                  index.parameters,
                  " has blocks of ",
                  p.size,
                  " values, expected ",
                  sizes[b],
                  " as the cost function has") ||
          !Expect(index.block != nullptr || p.num_blocks == r.num_blocks,
                  slot + ": block is null and parameters ",
                  index.parameters,
                  " has ",
                  p.num_blocks,
                  " blocks, expected ",
                  r.num_blocks,
                  ", one for each residual block") ||
          !AddArray(
              slot + ": block", index.block, r.num_blocks, index.on_device)) {
        return false;
      }
    }
    return true;
  }

  bool CheckResiduals(int i) {
    const Residuals& r = problem_.residuals()[i];
    const std::string name = Sentence("residuals ", i);
    if (!CheckSlots(r, name)) {
      return false;
    }
    if (r.num_blocks == 0) {
      return true;
    }
    std::unique_ptr<ceres::CostFunction> made;
    if (r.make_cost_function != nullptr ? !MakeCostFunction(r, name, &made)
                                        : !CheckCostFunctions(r, name)) {
      return false;
    }
    const ceres::CostFunction& cost_function =
        made != nullptr ? *made : *r.cost_functions[0];
    if (!CheckIndices(r, name, cost_function.parameter_block_sizes())) {
      return false;
    }
    num_residuals_ += r.num_blocks * cost_function.num_residuals();
    const auto* batchable =
        dynamic_cast<const BatchableCostFunction*>(&cost_function);
    checked_.push_back(
        {i,
         r.constants_are_of_model && batchable != nullptr &&
             batchable->batch_model().kind != BatchModelKind::kOther});
    return Expect(num_residuals_ <= kLargest,
                  "there are ",
                  num_residuals_,
                  " residuals, expected at most 2^31 - 1") &&
           AddArray(name + ": weights",
                    r.weights,
                    r.num_blocks,
                    r.weights_on_device) &&
           AddArray(name + ": constants",
                    static_cast<const char*>(r.constants),
                    made == nullptr ? 0 : r.num_blocks * r.constants_bytes,
                    r.constants_on_device) &&
           Expect(!r.constants_on_device || r.constants_are_of_model,
                  name,
                  ": constants is on a device, expected host memory where "
                  "constants_are_of_model is false") &&
           Expect(!r.constants_are_of_model ||
                      (made != nullptr && batchable != nullptr &&
                       batchable->batch_model().constants_bytes ==
                           r.constants_bytes),
                  name,
                  ": constants_are_of_model is true, expected constants of a "
                  "BatchableCostFunction, as many bytes as its model has");
  }

  // At most one array, whose blocks are an independent set.
  bool CheckEliminated() {
    const int eliminated = EliminatedArray(problem_);
    for (int i = eliminated + 1; i < NumParameters(); ++i) {
      if (!Expect(!parameters(i).is_eliminated,
                  "parameters ",
                  eliminated,
                  " and ",
                  i,
                  " have is_eliminated, expected at most one array")) {
        return false;
      }
    }
    return std::all_of(
        checked_.begin(), checked_.end(), [&](const Checked& checked) {
          const auto& blocks = problem_.residuals()[checked.residuals].blocks;
          const auto is_of_it = [&](const ArrayProblem::Index& index) {
            return index.parameters == eliminated;
          };
          return Expect(
              std::count_if(blocks.begin(), blocks.end(), is_of_it) <= 1,
              "residuals ",
              checked.residuals,
              ": several blocks are of parameters ",
              eliminated,
              ", which has is_eliminated; expected at most one");
        });
  }

  // Written arrays must not overlap anything.
  bool CheckOverlap() {
    const auto [a, b] = FindOverlap(std::move(ranges_));
    return a < 0 ||
           Expect(false,
                  names_[a] + " and " + names_[b] + " overlap in memory");
  }

  bool CheckValues(int i) {
    const Parameters& p = parameters(i);
    int64_t bad = -1;
    double value = 0.0;
    return FindNotFinite(
               p.num_blocks * p.size, p.values, p.on_device, &bad, &value) &&
           Expect(bad < 0,
                  "parameters ",
                  i,
                  ": value ",
                  bad % p.size,
                  " of block ",
                  bad / p.size,
                  " is ",
                  value,
                  ", expected a finite number") &&
           CheckBounds(i);
  }

  // A start beyond bounds is moved onto them, if it can be moved.
  bool CheckBounds(int i) {
    const Parameters& p = parameters(i);
    if (!p.MayHaveBounds()) {
      return true;
    }
    const HeldValues held(p);
    int value = 0;
    const auto why = [&](int64_t b, int* bad_value) -> const char* {
      const bool is_constant = IsConstant(p, b);
      for (int j = 0; j < p.size; ++j) {
        *bad_value = j;
        const double lower = p.LowerBoundOf(b, j);
        const double upper = p.UpperBoundOf(b, j);
        if (std::isnan(lower) || std::isnan(upper)) {
          return "expected numbers";
        }
        if (!is_constant && lower >= upper) {
          return "expected the first to be smaller";
        }
        // The host does not read values on a device.
        const double x = p.on_device ? lower : p.values[b * p.size + j];
        if (lower <= x && x <= upper) {
          continue;
        }
        if (is_constant) {
          return "expected a value within them, because the block is constant";
        }
        if (held.Has(b, j)) {
          return "expected a value within them, because its manifold keeps it "
                 "constant";
        }
      }
      return nullptr;
    };
    const int64_t bad = First(p.num_blocks, [&](int64_t b) {
      int unused = 0;
      return why(b, &unused) != nullptr;
    });
    if (bad < 0) {
      return true;
    }
    const char* const expected = why(bad, &value);
    const std::string name =
        Sentence("parameters ", i, ": value ", value, " of block ", bad);
    return Expect(
        false,
        p.on_device ? name
                    : Sentence(name, ", ", p.values[bad * p.size + value], ","),
        " has the bounds ",
        p.LowerBoundOf(bad, value),
        " and ",
        p.UpperBoundOf(bad, value),
        ", ",
        expected);
  }

  bool CheckRows(const Checked& checked) {
    const Residuals& r = problem_.residuals()[checked.residuals];
    const std::string name = Sentence("residuals ", checked.residuals);
    int64_t bad = -1;
    for (size_t b = 0; b < r.blocks.size(); ++b) {
      int32_t block = 0;
      const int64_t n = parameters(r.blocks[b].parameters).num_blocks;
      if (!FindBadBlock(r, r.blocks[b], &bad, &block) ||
          !Expect(bad < 0,
                  SlotName(name, b) + ": block[",
                  bad,
                  "] is ",
                  block,
                  ", expected 0 <= block < ",
                  n)) {
        return false;
      }
    }
    double value = 0.0;
    if (!CheckDistinct(name, r) ||
        (checked.has_observations &&
         !FindNotFinite(2 * r.num_blocks,
                        static_cast<const double*>(r.constants),
                        r.constants_on_device,
                        &bad,
                        &value)) ||
        !Expect(bad < 0,
                name + ": value ",
                bad % 2,
                " of observation ",
                bad / 2,
                " is ",
                value,
                ", expected a finite number")) {
      return false;
    }
    const double* const weights = r.weights;
    return weights == nullptr ||
           (Find(
                r.weights_on_device,
                kernels::CheckWeightsParams{r.num_blocks, weights},
                r.num_blocks,
                weights,
                [](double w) { return !(w >= 0.0 && std::isfinite(w)); },
                &bad,
                &value) &&
            Expect(bad < 0,
                   name + ": weights[",
                   bad,
                   "] is ",
                   value,
                   ", expected a finite number that is not negative"));
  }

  // No residual block depends on one parameter block twice.
  bool CheckDistinct(const std::string& name, const Residuals& r) {
    for (size_t b = 0; b < r.blocks.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        const ArrayProblem::Index& first = r.blocks[a];
        const ArrayProblem::Index& second = r.blocks[b];
        if (first.parameters != second.parameters) {
          continue;
        }
        const std::string both =
            Sentence(name, ", blocks[", a, "] and blocks[", b, "]");
        if (!Expect(!first.on_device && !second.on_device,
                    both,
                    " are of one parameter array, expected their blocks in "
                    "host memory")) {
          return false;
        }
        const int64_t bad = First(r.num_blocks, [&](int64_t k) {
          return first.BlockOf(k) == second.BlockOf(k);
        });
        if (bad >= 0) {
          return Expect(false,
                        both + ": residual block ",
                        bad,
                        " has block ",
                        first.BlockOf(bad),
                        " of parameters ",
                        first.parameters,
                        " twice, expected different ones");
        }
      }
    }
    return true;
  }

  // The first i < n for which is_bad(i); -1: none.
  template <typename Function>
  int64_t First(int64_t n, const Function& is_bad) {
    std::mutex mutex;
    int64_t first = n;
    context_->ParallelFor(n, kPerTask, [&](int64_t begin, int64_t end) {
      // Without a branch, so that the compiler can take several at once.
      bool any = false;
      for (int64_t i = begin; i < end; ++i) {
        any |= is_bad(i);
      }
      if (any) {
        const std::lock_guard<std::mutex> lock(mutex);
        int64_t i = begin;
        while (!is_bad(i)) {
          ++i;
        }
        first = std::min(first, i);
      }
    });
    return first < n ? first : -1;
  }
  // *bad: the first of n values that is_bad says, or params on a device, and
  // *value what it is; -1: there is none. False: a device has failed.
  template <typename Params, typename T, typename IsBad>
  bool Find(bool on_device,
            const Params& params,
            int64_t n,
            const T* values,
            const IsBad& is_bad,
            int64_t* bad,
            T* value) {
    if (!on_device) {
      *bad = First(n, [=](int64_t i) { return is_bad(values[i]); });
      *value = *bad >= 0 ? values[*bad] : T();
      return true;
    }
    kernels::Status status = device_->First(params, bad);
    if (status.ok() && *bad >= 0) {
      status = device_->Read(values + *bad, value);
    }
    return Expect(status);
  }
  bool FindNotFinite(int64_t n,
                     const double* values,
                     bool on_device,
                     int64_t* bad,
                     double* value) {
    const auto is_bad = [](double x) {
      return !(std::abs(x) <= std::numeric_limits<double>::max());
    };
    return Find(on_device,
                kernels::CheckFiniteParams{n, values},
                n,
                values,
                is_bad,
                bad,
                value);
  }
  bool FindBadBlock(const Residuals& r,
                    const ArrayProblem::Index& index,
                    int64_t* bad,
                    int32_t* block) {
    const auto num_blocks =
        static_cast<int32_t>(parameters(index.parameters).num_blocks);
    const auto is_bad = [num_blocks](int32_t i) {
      return static_cast<uint32_t>(i) >= static_cast<uint32_t>(num_blocks);
    };
    return index.block == nullptr ||
           ((!index.on_device || Expect(device_->StartCounts(num_blocks))) &&
            Find(index.on_device,
                 BlocksParams(r, index),
                 r.num_blocks,
                 index.block,
                 is_bad,
                 bad,
                 block));
  }
  kernels::CheckBlocksParams BlocksParams(const Residuals& r,
                                          const ArrayProblem::Index& index) {
    return {r.num_blocks,
            index.block,
            static_cast<int32_t>(parameters(index.parameters).num_blocks),
            device_.has_value() ? device_->counts() : nullptr};
  }

  // The facts of an array that is on a device, or that an index there refers
  // to. False: a device has failed.
  bool FindFacts(int i) {
    DeviceArrayFacts& facts = facts_.emplace_back();
    if (!device_.has_value()) {
      return true;
    }
    std::vector<kernels::CheckBlocksParams> all;
    bool any_on_device = false;
    bool any_on_host = false;
    for (const Residuals& r : problem_.residuals()) {
      for (const ArrayProblem::Index& index : r.blocks) {
        if (index.parameters != i) {
          continue;
        }
        all.push_back(BlocksParams(r, index));
        if (index.block != nullptr && r.num_blocks > 0) {
          (index.on_device ? any_on_device : any_on_host) = true;
        }
      }
    }
    facts.is_known = any_on_device || parameters(i).on_device;
    if (!facts.is_known || (any_on_device && any_on_host)) {
      return true;
    }
    if (!any_on_device) {
      const std::vector<uint8_t> is_used =
          FindUsed(problem_, i, context_, /*communicator=*/nullptr);
      facts.are_all_used =
          std::find(is_used.begin(), is_used.end(), 0) == is_used.end();
      return true;
    }
    const int64_t n = parameters(i).num_blocks;
    kernels::Status status = device_->StartCounts(n);
    int64_t bad = -1;
    for (kernels::CheckBlocksParams& params : all) {
      params.num_rows = device_->counts();
      if (status.ok()) {
        status = device_->First(params, &bad);
      }
    }
    kernels::ArrayRecord record;
    if (status.ok()) {
      status = device_->Summarize(n, &record);
    }
    facts.are_all_used = record.num_without_rows == 0.0;
    facts.num_couplings = record.num_pairs;
    return Expect(status);
  }

  const ArrayProblem& problem_;
  kernels::HostContext* context_;
  std::string* error_;
  std::optional<DeviceReader> device_;
  std::vector<DeviceArrayFacts> facts_;
  int64_t num_values_ = 0;
  int64_t num_residuals_ = 0;
  // Arrays in memory, and the name of each.
  std::vector<MemoryRange> ranges_;
  std::vector<std::string> names_;
  std::vector<Checked> checked_;
};

}  // namespace

int ArrayProblem::AddParameters(const Parameters& parameters) {
  parameters_.push_back(parameters);
  return static_cast<int>(parameters_.size()) - 1;
}

void ArrayProblem::AddResiduals(const Residuals& residuals) {
  residuals_.push_back(residuals);
}

bool ArrayProblem::IsValid(int num_threads, std::string* error) const {
  kernels::HostContext context(num_threads);
  return IsValidProblem(*this, &context, error);
}

bool IsValidProblem(const ArrayProblem& problem,
                    kernels::HostContext* context,
                    std::string* error,
                    DeviceMachine* device,
                    std::vector<DeviceArrayFacts>* facts) {
  std::string unused;
  Validator validator(
      problem, context, error != nullptr ? error : &unused, device);
  if (!validator.Run()) {
    return false;
  }
  if (facts != nullptr) {
    *facts = validator.facts();
  }
  return true;
}

}  // namespace ceres_ext
