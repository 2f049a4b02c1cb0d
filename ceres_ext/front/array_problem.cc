// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/array_problem.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/batchable_cost_function.h"
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

// The memory range of an array.
struct Extent {
  std::string name;
  const char* begin;
  const char* end;
};

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
    for (int i = 0; i < NumParameters(); ++i) {
      if (!CheckShape(i)) {
        return false;
      }
    }
    for (int i = 0; i < NumResiduals(); ++i) {
      if (!CheckResiduals(i)) {
        return false;
      }
    }
    return CheckEliminated() && CheckOverlap() && CheckValues() && FindFacts();
  }

 private:
  int NumParameters() const {
    return static_cast<int>(problem_.parameters().size());
  }
  int NumResiduals() const {
    return static_cast<int>(problem_.residuals().size());
  }
  const Parameters& parameters(int i) const { return problem_.parameters()[i]; }

  template <typename... Parts>
  bool Fail(const Parts&... parts) {
    *error_ = Sentence(parts...);
    return false;
  }

  bool CheckShape(int i) {
    const Parameters& p = parameters(i);
    const std::string name = Sentence("parameters ", i);
    if (p.num_blocks < 0 || p.num_blocks > kLargest) {
      return Fail(
          name, ": num_blocks is ", p.num_blocks, ", expected 0 to 2^31 - 1");
    }
    if (p.size < 1) {
      return Fail(name, ": size is ", p.size, ", expected at least 1");
    }
    if (p.values == nullptr && p.num_blocks > 0) {
      return Fail(name, ": values is null");
    }
    // Sum by sum, so that none overflows.
    num_values_ += p.num_blocks * p.size;
    if (num_values_ > kLargest) {
      return Fail("the parameters have ",
                  num_values_,
                  " values together, expected at most 2^31 - 1");
    }
    if (p.manifolds == nullptr && !CheckManifold(name, p, p.manifold)) {
      return false;
    }
    for (int64_t b = 0; p.manifolds != nullptr && b < p.num_blocks; ++b) {
      if (!CheckManifold(Sentence(name, ", block ", b), p, p.manifolds[b])) {
        return false;
      }
    }
    AddExtent(name + ": values", p.values, p.num_blocks * p.size);
    if (!CheckPlace(name + ": values", p.on_device, p.values, p.num_blocks)) {
      return false;
    }
    AddExtent(name + ": is_constant", p.is_constant, p.num_blocks);
    AddExtent(name + ": manifolds", p.manifolds, p.num_blocks);
    return true;
  }

  // True if an array is in memory that can be read.
  bool CheckPlace(const std::string& name,
                  bool on_device,
                  const void* data,
                  int64_t n) {
    if (!on_device || data == nullptr || n == 0) {
      return true;
    }
    if (!device_.has_value()) {
      return Fail(name,
                  " is on a device, where this function does not read it; "
                  "expected host memory");
    }
    kernels::Status status = device_->CheckPointer(data);
    return status.ok() || Fail(name, " ", status.message);
  }

  bool CheckManifold(const std::string& name,
                     const Parameters& p,
                     const ceres::Manifold* manifold) {
    return manifold == nullptr || manifold->AmbientSize() == p.size ||
           Fail(name,
                ": its manifold has AmbientSize ",
                manifold->AmbientSize(),
                ", expected the size ",
                p.size);
  }

  // The parameter arrays that the slots name, and that there is one way to get
  // cost functions.
  bool CheckSlots(const Residuals& r, const std::string& name) {
    if (r.num_blocks < 0 || r.num_blocks > kLargest) {
      return Fail(
          name, ": num_blocks is ", r.num_blocks, ", expected 0 to 2^31 - 1");
    }
    for (size_t b = 0; b < r.blocks.size(); ++b) {
      const int array = r.blocks[b].parameters;
      if (array < 0 || array >= NumParameters()) {
        return Fail(name,
                    ", blocks[",
                    b,
                    "]: parameters is ",
                    array,
                    ", expected 0 <= parameters < ",
                    NumParameters());
      }
    }
    return r.num_blocks == 0 ||
           (r.make_cost_function == nullptr) != (r.cost_functions == nullptr) ||
           Fail(name,
                ": expected either constants of a type of cost function or "
                "cost_functions");
  }

  // Makes the cost function of the first constants; null on failure.
  std::unique_ptr<ceres::CostFunction> MakeCostFunction(
      const Residuals& r, const std::string& name) {
    std::unique_ptr<ceres::CostFunction> made;
    if (r.constants == nullptr) {
      Fail(name, ": constants is null");
    } else if (r.constants_bytes < 1 || r.constants_bytes > kLargest) {
      Fail(name,
           ": constants_bytes is ",
           r.constants_bytes,
           ", expected 1 to 2^31 - 1");
    } else {
      made = MakeTypicalCostFunction(r);
      if (made == nullptr) {
        Fail(name, ": make_cost_function returned null");
      }
    }
    return made;
  }

  bool CheckCostFunctions(const Residuals& r, const std::string& name) {
    for (int64_t k = 0; k < r.num_blocks; ++k) {
      const ceres::CostFunction* const f = r.cost_functions[k];
      if (f == nullptr) {
        return Fail(name, ": cost_functions[", k, "] is null");
      }
      if (f->parameter_block_sizes() !=
              r.cost_functions[0]->parameter_block_sizes() ||
          f->num_residuals() != r.cost_functions[0]->num_residuals()) {
        return Fail(name,
                    ": cost_functions[",
                    k,
                    "] has other sizes than cost_functions[0]");
      }
    }
    return true;
  }

  bool CheckIndices(const Residuals& r,
                    const std::string& name,
                    const std::vector<int32_t>& sizes) {
    if (r.blocks.size() != sizes.size()) {
      return Fail(name,
                  ": blocks has ",
                  r.blocks.size(),
                  " index arrays, expected ",
                  sizes.size(),
                  ", one for each parameter block of the cost function");
    }
    for (size_t b = 0; b < sizes.size(); ++b) {
      const ArrayProblem::Index& index = r.blocks[b];
      const std::string slot = Sentence(name, ", blocks[", b, "]");
      const Parameters& p = parameters(index.parameters);
      if (p.size != sizes[b]) {
        return Fail(slot,
                    ": parameters ",
                    index.parameters,
                    " has blocks of ",
                    p.size,
                    " values, expected ",
                    sizes[b],
                    " as the cost function has");
      }
      if (index.block == nullptr && p.num_blocks != r.num_blocks) {
        return Fail(slot,
                    ": block is null and parameters ",
                    index.parameters,
                    " has ",
                    p.num_blocks,
                    " blocks, expected ",
                    r.num_blocks,
                    ", one for each residual block");
      }
      AddExtent(slot + ": block", index.block, r.num_blocks);
      if (!CheckPlace(
              slot + ": block", index.on_device, index.block, r.num_blocks)) {
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
    if (r.make_cost_function != nullptr) {
      made = MakeCostFunction(r, name);
      if (made == nullptr) {
        return false;
      }
    } else if (!CheckCostFunctions(r, name)) {
      return false;
    }
    const ceres::CostFunction& cost_function =
        made != nullptr ? *made : *r.cost_functions[0];
    if (!CheckIndices(r, name, cost_function.parameter_block_sizes())) {
      return false;
    }
    num_residuals_ += r.num_blocks * cost_function.num_residuals();
    if (num_residuals_ > kLargest) {
      return Fail("there are ",
                  num_residuals_,
                  " residuals, expected at most 2^31 - 1");
    }
    AddExtent(name + ": weights", r.weights, r.num_blocks);
    if (!CheckPlace(
            name + ": weights", r.weights_on_device, r.weights, r.num_blocks) ||
        !CheckPlace(name + ": constants",
                    r.constants_on_device,
                    r.constants,
                    r.num_blocks)) {
      return false;
    }
    if (r.constants_on_device && !r.constants_are_of_model) {
      return Fail(name,
                  ": constants is on a device, expected host memory where "
                  "constants_are_of_model is false");
    }
    if (made != nullptr) {
      AddExtent(name + ": constants",
                static_cast<const char*>(r.constants),
                r.num_blocks * r.constants_bytes);
    }
    const auto* batchable =
        dynamic_cast<const BatchableCostFunction*>(&cost_function);
    if (r.constants_are_of_model &&
        (made == nullptr || batchable == nullptr ||
         batchable->batch_model().constants_bytes != r.constants_bytes)) {
      return Fail(name,
                  ": constants_are_of_model is true, expected constants of a "
                  "BatchableCostFunction, as many bytes as its model has");
    }
    has_observations_.push_back(r.constants_are_of_model &&
                                batchable->batch_model().kind !=
                                    BatchModelKind::kOther);
    checked_.push_back(i);
    return true;
  }

  // At most one array, whose blocks are an independent set.
  bool CheckEliminated() {
    const int eliminated = EliminatedArray(problem_);
    for (int i = eliminated + 1; i < NumParameters(); ++i) {
      if (parameters(i).is_eliminated) {
        return Fail("parameters ",
                    eliminated,
                    " and ",
                    i,
                    " have is_eliminated, expected at most one array");
      }
    }
    for (const int i : checked_) {
      const auto& blocks = problem_.residuals()[i].blocks;
      if (std::count_if(blocks.begin(),
                        blocks.end(),
                        [&](const ArrayProblem::Index& index) {
                          return index.parameters == eliminated;
                        }) > 1) {
        return Fail("residuals ",
                    i,
                    ": several blocks are of parameters ",
                    eliminated,
                    ", which has is_eliminated; expected at most one");
      }
    }
    return true;
  }

  template <typename T>
  void AddExtent(const std::string& name, const T* data, int64_t n) {
    if (data != nullptr && n > 0) {
      extents_.push_back({name,
                          reinterpret_cast<const char*>(data),
                          reinterpret_cast<const char*>(data + n)});
    }
  }

  // Written arrays must not overlap anything.
  bool CheckOverlap() {
    std::sort(
        extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
          return std::less<const char*>()(a.begin, b.begin);
        });
    const auto is_written = [](const Extent& extent) {
      return extent.name.find(": values") != std::string::npos;
    };
    // The extents before that reach furthest.
    const Extent* any = nullptr;
    const Extent* written = nullptr;
    for (const Extent& extent : extents_) {
      const Extent* const before = is_written(extent) ? any : written;
      if (before != nullptr &&
          std::less<const char*>()(extent.begin, before->end)) {
        return Fail(before->name, " and ", extent.name, " overlap in memory");
      }
      const auto extend = [&extent](const Extent** furthest) {
        if (*furthest == nullptr ||
            std::less<const char*>()((*furthest)->end, extent.end)) {
          *furthest = &extent;
        }
      };
      extend(&any);
      if (is_written(extent)) {
        extend(&written);
      }
    }
    return true;
  }

  bool CheckValues() {
    for (int i = 0; i < NumParameters(); ++i) {
      const Parameters& p = parameters(i);
      int64_t bad = -1;
      double value = 0.0;
      if (!FindNotFinite(
              p.num_blocks * p.size, p.values, p.on_device, &bad, &value)) {
        return false;
      }
      if (bad >= 0) {
        return Fail("parameters ",
                    i,
                    ": value ",
                    bad % p.size,
                    " of block ",
                    bad / p.size,
                    " is ",
                    value,
                    ", expected a finite number");
      }
    }
    for (size_t c = 0; c < checked_.size(); ++c) {
      const int i = checked_[c];
      const Residuals& r = problem_.residuals()[i];
      const std::string name = Sentence("residuals ", i);
      for (size_t b = 0; b < r.blocks.size(); ++b) {
        const int32_t* const block = r.blocks[b].block;
        if (block == nullptr) {
          continue;
        }
        const auto num_blocks = static_cast<uint32_t>(
            parameters(r.blocks[b].parameters).num_blocks);
        int64_t bad = -1;
        int32_t found = 0;
        if (r.blocks[b].on_device) {
          if (!FindBadBlock(r, r.blocks[b], &bad, &found)) {
            return false;
          }
        } else {
          bad = First(r.num_blocks, [=](int64_t k) {
            return static_cast<uint32_t>(block[k]) >= num_blocks;
          });
          found = bad >= 0 ? block[bad] : 0;
        }
        if (bad >= 0) {
          return Fail(name,
                      ", blocks[",
                      b,
                      "]: block[",
                      bad,
                      "] is ",
                      found,
                      ", expected 0 <= block < ",
                      num_blocks);
        }
      }
      if (!CheckDistinct(name, r)) {
        return false;
      }
      if (has_observations_[c] != 0) {
        const auto* const observed = static_cast<const double*>(r.constants);
        int64_t bad = -1;
        double value = 0.0;
        if (!FindNotFinite(2 * r.num_blocks,
                           observed,
                           r.constants_on_device,
                           &bad,
                           &value)) {
          return false;
        }
        if (bad >= 0) {
          return Fail(name,
                      ": value ",
                      bad % 2,
                      " of observation ",
                      bad / 2,
                      " is ",
                      value,
                      ", expected a finite number");
        }
      }
      if (r.weights != nullptr) {
        const double* const weights = r.weights;
        int64_t bad = -1;
        double weight = 0.0;
        if (r.weights_on_device) {
          if (!FindOnDevice(kernels::CheckWeightsParams{r.num_blocks, weights},
                            weights,
                            &bad,
                            &weight)) {
            return false;
          }
        } else {
          bad = First(r.num_blocks, [=](int64_t k) {
            return !(weights[k] >= 0.0 && std::isfinite(weights[k]));
          });
          weight = bad >= 0 ? weights[bad] : 0.0;
        }
        if (bad >= 0) {
          return Fail(name,
                      ": weights[",
                      bad,
                      "] is ",
                      weight,
                      ", expected a finite number that is not negative");
        }
      }
    }
    return true;
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
        if (first.on_device || second.on_device) {
          return Fail(name,
                      ", blocks[",
                      a,
                      "] and blocks[",
                      b,
                      "] are of one parameter array, expected their blocks in "
                      "host memory");
        }
        const int64_t bad = First(r.num_blocks, [&](int64_t k) {
          return first.BlockOf(k) == second.BlockOf(k);
        });
        if (bad >= 0) {
          return Fail(name,
                      ", blocks[",
                      a,
                      "] and blocks[",
                      b,
                      "]: residual block ",
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
  // *bad: the first value that is not finite, and *value what it is; -1: there
  // is none. False: a device has failed.
  bool FindNotFinite(int64_t n,
                     const double* values,
                     bool on_device,
                     int64_t* bad,
                     double* value) {
    if (on_device) {
      return FindOnDevice(
          kernels::CheckFiniteParams{n, values}, values, bad, value);
    }
    *bad = First(n, [values](int64_t i) {
      return !(std::abs(values[i]) <= std::numeric_limits<double>::max());
    });
    *value = *bad >= 0 ? values[*bad] : 0.0;
    return true;
  }
  template <typename Params, typename T>
  bool FindOnDevice(const Params& params,
                    const T* values,
                    int64_t* bad,
                    T* value) {
    kernels::Status status = device_->First(params, bad);
    if (status.ok() && *bad >= 0) {
      status = device_->Read(values + *bad, value);
    }
    return status.ok() || Fail(status.message);
  }
  bool FindBadBlock(const Residuals& r,
                    const ArrayProblem::Index& index,
                    int64_t* bad,
                    int32_t* found) {
    const auto num_blocks =
        static_cast<int32_t>(parameters(index.parameters).num_blocks);
    kernels::Status status = device_->StartCounts(num_blocks);
    return (status.ok() || Fail(status.message)) &&
           FindOnDevice(
               kernels::CheckBlocksParams{
                   r.num_blocks, index.block, num_blocks, device_->counts()},
               index.block,
               bad,
               found);
  }

  // False if a block of the arrays that a device reads is in no residual
  // block.
  bool FindFacts() {
    facts_.assign(problem_.parameters().size(), DeviceArrayFacts());
    for (int i = 0; device_.has_value() && i < NumParameters(); ++i) {
      const int64_t n = parameters(i).num_blocks;
      bool any_on_device = false;
      bool any_on_host = false;
      for (const Residuals& r : problem_.residuals()) {
        for (const ArrayProblem::Index& index : r.blocks) {
          if (index.parameters == i && index.block != nullptr &&
              r.num_blocks > 0) {
            (index.on_device ? any_on_device : any_on_host) = true;
          }
        }
      }
      DeviceArrayFacts& facts = facts_[i];
      facts.is_known = any_on_device || parameters(i).on_device;
      if (!facts.is_known || (any_on_device && any_on_host)) {
        continue;
      }
      if (!any_on_device) {
        const std::vector<uint8_t> is_used =
            FindUsed(problem_, i, context_, /*communicator=*/nullptr);
        facts.are_all_used =
            std::find(is_used.begin(), is_used.end(), 0) == is_used.end();
        continue;
      }
      kernels::Status status = device_->StartCounts(n);
      for (const Residuals& r : problem_.residuals()) {
        for (const ArrayProblem::Index& index : r.blocks) {
          int64_t bad = -1;
          if (status.ok() && index.parameters == i) {
            status = device_->First(
                kernels::CheckBlocksParams{r.num_blocks,
                                           index.block,
                                           static_cast<int32_t>(n),
                                           device_->counts()},
                &bad);
          }
        }
      }
      kernels::ArrayRecord record;
      if (status.ok()) {
        status = device_->Summarize(n, &record);
      }
      if (!status.ok()) {
        return Fail(status.message);
      }
      facts.are_all_used = record.num_without_rows == 0.0;
      facts.num_couplings = record.num_pairs;
    }
    return true;
  }

  const ArrayProblem& problem_;
  kernels::HostContext* context_;
  std::string* error_;
  std::optional<DeviceReader> device_;
  std::vector<DeviceArrayFacts> facts_;
  int64_t num_values_ = 0;
  int64_t num_residuals_ = 0;
  std::vector<Extent> extents_;
  // Residuals that are not empty, and whether their constants are positions in
  // an image.
  std::vector<int> checked_;
  std::vector<uint8_t> has_observations_;
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
