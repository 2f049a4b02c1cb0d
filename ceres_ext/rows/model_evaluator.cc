// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/rows/model_evaluator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/type_name.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_launch_buffer.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/row_constants.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

namespace {

// Rows of which constants or weights cross to a device at a time.
constexpr int64_t kRowsThatCross = 1 << 18;

// A vector operation of the host (ops/vector_operation.h).
struct EvaluateRowsParams {
  const BatchModel* model = nullptr;
  RowBatch rows;
  bool jacobian = false;
  RowSums* sums = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.num_rows; }
  kernels::TwoSums Term(int64_t i) const {
    try {
      return model->evaluate_row(rows, jacobian, i);
    } catch (const std::bad_alloc&) {
      throw;         // It ends the solve.
    } catch (...) {  // As a row that can't be evaluated.
      return {0.0, 1.0};
    }
  }
  void Set(const kernels::TwoSums& sum) const {
    sums->cost = 0.5 * sum.first;
    sums->num_not_finite = static_cast<int64_t>(sum.second);
  }
};

// Queues a kernel of a form that evaluates rows. sums: null if nothing is added
// up.
template <typename Machine>
Status Launch(const kernels::ModelForm& form,
              int kernel,
              const RowBatch& rows,
              void* stream,
              Machine* machine,
              RowSums* sums) {
  CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
  CERES_EXT_RETURN_IF_ERROR(kernels::FlushLaunches());
  // If nothing is added up, there are as many blocks as there are rows for.
  constexpr int64_t kMostBlocks = 256;
  constexpr int64_t kMostParts = 4;
  const int64_t num_blocks =
      rows.is_wanted != nullptr
          ? std::min(kMostBlocks, kMostParts * rows.num_rows)
          : kernels::NumSumBlocks(rows.num_rows);
  const int error = kernels::LaunchForm(form,
                                        kernel,
                                        machine->context()->device(),
                                        stream,
                                        num_blocks,
                                        kernels::kSumLanes,
                                        rows,
                                        machine->sum_partial(),
                                        machine->sum_ticket(),
                                        sums);
  return error == 0 ? Status()
                    : Status(StatusCode::kDeviceError,
                             std::string("Launch of a cost function failed: ") +
                                 form.error_string(error) + ".");
}

}  // namespace

template <typename Machine>
Status EvaluateRows(const BatchModel& model,
                    const RowBatch& rows,
                    bool jacobian,
                    Machine* machine,
                    RowSums* sums) {
  if constexpr (kIsHost<Machine>) {
    return kernels::Run(EvaluateRowsParams{&model, rows, jacobian, sums},
                        machine);
  } else {
    return Launch(*model.GetForm(FormKind::kRows),
                  jacobian ? 1 : 0,
                  rows,
                  machine->stream(),
                  machine,
                  sums);
  }
}

template <typename Machine>
Status QueueWantedRows(const BatchModel& model,
                       const RowBatch& rows,
                       void* stream,
                       Machine* machine) {
  if constexpr (kIsHost<Machine>) {
    return {StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    return Launch(
        *model.GetForm(FormKind::kRows), 1, rows, stream, machine, nullptr);
  }
}

template <typename Machine>
std::string WhyNoForm(const BatchModel& model,
                      FormKind kind,
                      Machine* machine) {
  const bool recomputes = kind == FormKind::kRecomputed;
  if constexpr (kIsHost<Machine>) {
    return recomputes ? "has no kernels for that on the host" : "";
  } else {
    const kernels::ModelForm* const form = model.GetForm(kind);
    if (form == nullptr) {
      return recomputes
                 ? "has no kernels for that (ceres_ext::form::Recomputed "
                   "in CERES_EXT_COST_FUNCTION)"
                 : "has no device form (CERES_EXT_COST_FUNCTION)";
    }
    int32_t params_size = sizeof(RowBatch);
    if (recomputes) {
      params_size += kernels::ModelParamsSize(form->columns);
    }
    if (form->version != kBatchModelVersion ||
        form->params_size != params_size) {
      return std::string(recomputes ? "has kernels for that"
                                    : "has a device form") +
             " of another version of this library";
    }
    Status status = machine->context()->Activate();
    const int num_kernels = recomputes ? kernels::kNumModelKernels : 2;
    for (int kernel = 0; kernel < num_kernels && status.ok(); ++kernel) {
      kernels::ModelForm::Facts facts;
      if (const int error = form->get_facts(kernel, &facts)) {
        return std::string("has no code for this device: ") +
               form->error_string(error);
      }
      if (!recomputes && facts.max_threads < kernels::kSumLanes) {
        return "needs " + std::to_string(facts.num_registers) +
               " registers, more than the device has for " +
               std::to_string(kernels::kSumLanes) + " threads";
      }
    }
    // The first launch takes what memory the kernels' stacks need.
    typename Machine::template Buffer<RowSums> sums;
    if (status.ok()) {
      status = machine->Allocate(1, &sums);
    }
    static_assert(static_cast<int>(kernels::ModelKernel::kEvaluate) == 0);
    for (int kernel = 0; kernel < (recomputes ? 1 : 2); ++kernel) {
      if (status.ok()) {
        status = Launch(
            *form, kernel, RowBatch(), machine->stream(), machine, sums.data());
      }
    }
    if (status.ok()) {
      status = machine->Synchronize();
    }
    return status.ok() ? "" : "can't be launched: " + status.message;
  }
}

RowBlock RowBlocks::Make(const ProblemRows& problem,
                         const BlockOfRow& block,
                         int size,
                         int32_t column) {
  RowBlock result;
  result.column = column;
  if (block.is_constant()) {
    const double* const value = block.constant_value;
    const auto [entry, is_new] = constant_of_.try_emplace(
        value, static_cast<int32_t>(constant_state_.size()));
    if (is_new) {
      constant_state_.insert(constant_state_.end(), value, value + size);
    }
    result.state = -1 - entry->second;
    return result;
  }
  const VaryingBlock varying = problem.block(block.index);
  result.state = varying.state_offset;
  result.size = varying.tangent_size;
  if (varying.manifold != nullptr) {
    const auto [entry, is_new] = number_of_.try_emplace(
        block.index, static_cast<int32_t>(manifolds_.size()));
    if (is_new) {
      manifolds_.push_back({varying.manifold,
                            varying.state_offset,
                            varying.tangent_offset,
                            varying.size,
                            varying.tangent_size,
                            varying.tangent_size});
    }
    result.tangent = entry->second;
  }
  return result;
}

template <typename Machine>
Status ModelEvaluator<Machine>::Setup(const Input& input,
                                      const RowBatch& common,
                                      const ProblemRows& problem,
                                      kernels::HostContext* host_context,
                                      Machine* machine) {
  machine_ = machine;
  model_ = input.model;
  is_recomputed_ = input.is_recomputed;
  const int64_t n = input.size();
  type_ = TypeName(problem.TypicalCostFunction(input.first_row()));
  batch_ = common;
  batch_.num_rows = n;
  // Null if there is none.
  const auto upload = [&](const auto& from, auto* buffer, auto* to) -> Status {
    if (!from.empty()) {
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(from, buffer));
      *to = buffer->data();
    }
    return {};
  };
  CERES_EXT_RETURN_IF_ERROR(upload(input.place, &place_, &batch_.place));
  CERES_EXT_RETURN_IF_ERROR(upload(input.blocks, &blocks_, &batch_.blocks));
  if (input.uniform == nullptr) {
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(
        input.combination.size(), input.combination.data(), &combination_));
    batch_.combination = combination_.data();
  } else {
    batch_.combination = input.machine_combination;
  }
  CERES_EXT_RETURN_IF_ERROR(
      upload(input.residual_begin, &residual_begin_, &batch_.residual_begin));
  CERES_EXT_RETURN_IF_ERROR(
      upload(input.value_begin, &value_begin_, &batch_.value_begin));

  if (input.uniform != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(SetupUniform(input, host_context));
  } else {
    bool losses_differ = false;
    CERES_EXT_RETURN_IF_ERROR(
        SetupConstants(input.rows, problem, host_context, &losses_differ));
    CERES_EXT_RETURN_IF_ERROR(
        SetupLosses(input.rows, problem, losses_differ, host_context));
  }
  if (loss_.calls_user()) {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &squared_norms_));
  }
  return machine->AllocateResult(&sums_);
}

// Rows on the host, and on a device words, side by side.
template <typename Machine>
Status ModelEvaluator<Machine>::AllocateConstants(int64_t n,
                                                  int64_t num_words) {
  batch_.constant_row = kIsHost<Machine> ? num_words : 1;
  batch_.constant_word = kIsHost<Machine> ? 1 : n;
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_words * n, &constants_));
  batch_.constants = constants_.data();
  return {};
}

template <typename Machine>
Status ModelEvaluator<Machine>::SetupUniform(
    const Input& input, kernels::HostContext* host_context) {
  const UniformRows& rows = *input.uniform;
  const int64_t n = rows.size();
  const int64_t num_words = rows.constants_bytes / 8;
  CERES_EXT_RETURN_IF_ERROR(AllocateConstants(n, num_words));
  {
    Buffer<uint64_t> as_given;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(num_words * n,
                         static_cast<const uint64_t*>(rows.constants),
                         &as_given));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(kernels::GatherWordsParams{n,
                                                num_words,
                                                input.input_id,
                                                as_given.data(),
                                                constants_.data(),
                                                batch_.constant_row,
                                                batch_.constant_word},
                     machine_));
  }
  if (rows.loss != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(
        loss_.Setup(*rows.loss, n, host_context, machine_));
  }
  if (rows.weights == nullptr) {
    return {};
  }
  Buffer<double> as_given;
  Buffer<double> weights;
  CERES_EXT_RETURN_IF_ERROR(machine_->Upload(n, rows.weights, &as_given));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &weights));
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::GatherTuplesParams<1>{
          n, input.input_id, as_given.data(), weights.data()},
      machine_));
  loss_.TakeWeights(n, std::move(weights));
  return {};
}

// On their way to a device some of them at a time cross.
template <typename Machine>
Status ModelEvaluator<Machine>::SetupConstants(
    const InputArray<int32_t>& rows,
    const ProblemRows& problem,
    kernels::HostContext* host_context,
    bool* losses_differ) {
  const int64_t n = rows.size();
  const ceres::LossFunction* const loss = problem.Loss(rows.data()[0]).loss;
  std::atomic<bool> differ{false};
  const int64_t num_words = (model_->constants_bytes + 7) / 8;
  CERES_EXT_RETURN_IF_ERROR(AllocateConstants(n, num_words));
  const int64_t chunk = kIsHost<Machine> ? n : std::min(n, kRowsThatCross);
  kernels::HostBuffer<uint64_t> crossing;
  if (!kIsHost<Machine>) {
    CERES_EXT_RETURN_IF_ERROR(crossing.Allocate(num_words * chunk));
  }
  for (int64_t first = 0; first < n; first += chunk) {
    const int64_t size = std::min(chunk, n - first);
    uint64_t* const to = kIsHost<Machine> ? constants_.data() : crossing.data();
    const int64_t word = kIsHost<Machine> ? 1 : size;
    host_context->ParallelFor(
        size, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          std::vector<uint64_t> words(num_words);
          bool one_differs = false;
          for (int64_t i = begin; i < end; ++i) {
            const int32_t row = rows.data()[first + i];
            one_differs |= problem.Loss(row).loss != loss;
            problem.CopyConstants(row, words.data());
            for (int64_t w = 0; w < num_words; ++w) {
              to[i * batch_.constant_row + w * word] = words[w];
            }
          }
          if (one_differs) {
            differ = true;
          }
        });
    for (int64_t w = 0; !kIsHost<Machine> && w < num_words; ++w) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(
          size, to + w * size, constants_.data() + w * n + first));
    }
  }
  *losses_differ = differ;
  return {};
}

template <typename Machine>
Status ModelEvaluator<Machine>::SetupLosses(
    const InputArray<int32_t>& rows,
    const ProblemRows& problem,
    bool losses_differ,
    kernels::HostContext* host_context) {
  const int64_t n = rows.size();
  const int32_t* const row = rows.data();
  const ceres::LossFunction* const first = problem.Loss(row[0]).loss;
  if (losses_differ) {
    std::vector<const ceres::LossFunction*> losses(n);
    host_context->ParallelFor(
        n, kEvaluatedRowsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            losses[i] = problem.Loss(row[i]).loss;
          }
        });
    CERES_EXT_RETURN_IF_ERROR(
        loss_.Setup(std::move(losses), host_context, machine_));
  } else if (first != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(loss_.Setup(*first, n, host_context, machine_));
  }
  if (!problem.has_weights() ||
      std::none_of(row, row + n, [&problem](int32_t i) {
        return problem.Loss(i).weight != nullptr;
      })) {
    return {};
  }
  Buffer<double> weights;
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &weights));
  kernels::HostBuffer<double> crossing;
  CERES_EXT_RETURN_IF_ERROR(crossing.Allocate(std::min(n, kRowsThatCross)));
  for (int64_t begin = 0; begin < n; begin += kRowsThatCross) {
    const int64_t size = std::min(kRowsThatCross, n - begin);
    host_context->ParallelFor(
        size, kEvaluatedRowsPerTask, [&](int64_t task_begin, int64_t task_end) {
          for (int64_t i = task_begin; i < task_end; ++i) {
            crossing.data()[i] = problem.Loss(row[begin + i]).Weight();
          }
        });
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(size, crossing.data(), weights.data() + begin));
  }
  loss_.TakeWeights(n, std::move(weights));
  return {};
}

template <typename Machine>
Status ModelEvaluator<Machine>::Evaluate(const RowBatch& wanted,
                                         bool jacobian) {
  batch_.state = wanted.state;
  batch_.apply_loss = wanted.apply_loss && !loss_.empty();
  const bool corrects =
      batch_.apply_loss && (jacobian || wanted.residuals != nullptr);
  if (corrects) {
    CERES_EXT_RETURN_IF_ERROR(loss_.CheckFactors());
  }
  if (batch_.apply_loss && loss_.calls_user()) {
    RowBatch norms = batch_;
    norms.apply_loss = false;
    norms.squared_norms = squared_norms_.data();
    norms.residuals = nullptr;
    CERES_EXT_RETURN_IF_ERROR(Run(norms, /*jacobian=*/false));
    CERES_EXT_RETURN_IF_ERROR(loss_.UpdateRho(squared_norms_.data(), corrects));
  }
  batch_.loss = loss_.ref();
  batch_.residuals = wanted.residuals;
  batch_.e = wanted.e;
  batch_.f = wanted.f;
  batch_.stores_float = wanted.stores_float;
  return Run(batch_, jacobian);
}

template <typename Machine>
Status ModelEvaluator<Machine>::Run(const RowBatch& rows, bool jacobian) {
  const auto run = [&]() -> Status {
    if constexpr (!kIsHost<Machine>) {
      if (jacobian && is_recomputed_) {
        return Launch(*model_->GetForm(FormKind::kRecomputed),
                      static_cast<int>(kernels::ModelKernel::kEvaluate),
                      rows,
                      machine_->stream(),
                      machine_,
                      sums_.data());
      }
    }
    return EvaluateRows(*model_, rows, jacobian, machine_, sums_.data());
  };
  const Status status = run();
  return status.ok() ? status
                     : Status(status.code,
                              "Launch of " + type_ + ": " + status.message);
}

template <typename Machine>
Status ModelEvaluator<Machine>::Read(double* cost) {
  RowSums sums;
  CERES_EXT_RETURN_IF_ERROR(machine_->ReadResult(sums_, &sums));
  *cost = sums.cost;
  return sums.num_not_finite == 0
             ? Status()
             : Status(StatusCode::kNumericalFailure,
                      "The cost function " + type_ +
                          (batch_.apply_loss ? ", or its loss function," : "") +
                          " can't be evaluated, or is not finite, for " +
                          std::to_string(sums.num_not_finite) + " of its " +
                          std::to_string(batch_.num_rows) +
                          " residual blocks.");
}

#define CERES_EXT_INSTANTIATE(Machine)                                  \
  template decltype(WhyNoForm<Machine>) WhyNoForm<Machine>;             \
  template decltype(EvaluateRows<Machine>) EvaluateRows<Machine>;       \
  template decltype(QueueWantedRows<Machine>) QueueWantedRows<Machine>; \
  template class ModelEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
