// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_launcher.h"

#include <algorithm>
#include <limits>

#include "ceres_ext/rows/model_evaluator.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// Rounds that are queued at once for few windows, and for others, whose host
// has other work than to wait. A kernel that is queued behind the end takes 2
// us.
constexpr int kFewWindows = 16;
constexpr int kQueuedRounds = 16;
constexpr int kMostQueuedRounds = 64;

// Rounds until all have ended. With Levenberg-Marquardt steps each ends an
// iteration, unless one before it has ended two, or finds a covariance; of
// others some solve again.
int64_t MostRounds(const std::vector<ModelWindowRecord>& records,
                   const LoopOptions& options) {
  if (options.dogleg != DoglegType::kNone) {
    return std::numeric_limits<int64_t>::max();
  }
  const bool any_wanted = std::any_of(
      records.begin(), records.end(), [](const ModelWindowRecord& record) {
        return record.counts.num_wanted > 0;
      });
  return int64_t{options.max_num_iterations} + (any_wanted ? 2 : 1);
}

}  // namespace

template <typename Machine>
Status ModelLauncher<Machine>::SetTables(
    [[maybe_unused]] const std::vector<kernels::RobustLoss>& losses,
    [[maybe_unused]] const ManifoldTable& manifolds) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(losses, &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(manifolds.factors(), &factors_));
    return machine_->Upload(manifolds.factor_begin(), &factor_begin_);
  }
}

template <typename Machine>
Status ModelLauncher<Machine>::AllocateScratch(
    [[maybe_unused]] std::vector<ModelWindowRecord>* records,
    [[maybe_unused]] std::vector<ModelDeviceRows>* rows,
    [[maybe_unused]] AdvanceModelsParams* params) {
  if constexpr (!kIsHost<Machine>) {
    constexpr int64_t kDouble = sizeof(double);
    const int64_t most_shared =
        machine_->context()->shared_memory_per_block() - ModelHeadBytes();
    ModelPlaces places;
    params->schur_bytes = 0;
    for (ModelWindowRecord& record : *records) {
      const int64_t schur_bytes =
          kDouble * ModelSchurSize(record.counts.num_columns);
      if (schur_bytes <= most_shared) {
        params->schur_bytes = std::max(params->schur_bytes, schur_bytes);
      }
      record.scratch_begin = places.Add<unsigned char>(
          ModelScratch(record.counts).num_bytes + schur_bytes);
    }
    const int64_t windows =
        places.Add<ModelWindow>(static_cast<int64_t>(records->size()));
    std::vector<int64_t> of_rows;
    for (const ModelDeviceRows& of_model : *rows) {
      const RowBatch& batch = of_model.batch;
      of_rows.push_back(places.Add<double>(
          batch.num_rows * (batch.f.row + of_model.model->num_residuals + 1)));
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(places.size() / kDouble, &scratch_));
    params->scratch = reinterpret_cast<unsigned char*>(scratch_.data());
    params->windows = reinterpret_cast<ModelWindow*>(params->scratch + windows);
    params->num_models = static_cast<int32_t>(rows->size());
    for (size_t m = 0; m < rows->size(); ++m) {
      RowBatch& batch = (*rows)[m].batch;
      ModelRows& to = params->rows[m];
      double* const columns = scratch_.data() + of_rows[m] / kDouble;
      to.num_residuals = (*rows)[m].model->num_residuals;
      to.stride = static_cast<int32_t>(batch.f.residual);
      batch.f.data = columns;
      batch.residuals = columns + batch.num_rows * batch.f.row;
      batch.squared_norms = batch.residuals + batch.num_rows * to.num_residuals;
      to.columns = columns;
      to.residuals = batch.residuals;
      to.squared_norms = batch.squared_norms;
      to.loss = batch.loss;
    }
  }
  return {};
}

template <typename Machine>
Status ModelLauncher<Machine>::QueueCandidates(
    [[maybe_unused]] const int32_t* is_wanted,
    [[maybe_unused]] std::vector<ModelDeviceRows>* rows,
    [[maybe_unused]] const AdvanceModelsParams& params) {
  if constexpr (!kIsHost<Machine>) {
    for (ModelDeviceRows& of_model : *rows) {
      of_model.batch.is_wanted = is_wanted;
    }
    const auto fork = [&](bool is_needed, std::unique_ptr<Fork>* of) {
      if (is_needed && *of == nullptr) {
        *of = std::make_unique<Fork>(machine_->context());
      }
    };
    fork(rows->size() > 1, &of_other_models_);
    fork(has_priors_, &of_priors_);
    Status status = QueueOnStreams(*rows, params);
    for (const auto* const of : {&of_other_models_, &of_priors_}) {
      if (!status.ok() && *of != nullptr) {
        (*of)->Wait();
      }
    }
    return status;
  }
  return {};
}

// Rows of the first model, beside them those of the others, and beside both
// priors: those of few windows leave most of a device idle.
template <typename Machine>
Status ModelLauncher<Machine>::QueueOnStreams(
    [[maybe_unused]] const std::vector<ModelDeviceRows>& rows,
    [[maybe_unused]] const AdvanceModelsParams& params) {
  if constexpr (!kIsHost<Machine>) {
    if (rows.size() > 1) {
      CERES_EXT_RETURN_IF_ERROR(of_other_models_->Begin());
    }
    if (has_priors_) {
      CERES_EXT_RETURN_IF_ERROR(of_priors_->Begin());
      CERES_EXT_RETURN_IF_ERROR(QueueModelPriors(params, of_priors_->stream()));
    }
    for (size_t m = 0; m < rows.size(); ++m) {
      CERES_EXT_RETURN_IF_ERROR(QueueRows(
          rows[m], m == 0 ? machine_->stream() : of_other_models_->stream()));
    }
    if (has_priors_) {
      CERES_EXT_RETURN_IF_ERROR(of_priors_->Join());
    }
    if (rows.size() > 1) {
      CERES_EXT_RETURN_IF_ERROR(of_other_models_->Join());
    }
  }
  return {};
}

template <typename Machine>
Status ModelLauncher<Machine>::QueueRows(const ModelDeviceRows& rows,
                                         void* stream) {
  return rows.batch.num_rows > 0
             ? QueueWantedRows(*rows.model, rows.batch, stream, machine_)
             : Status();
}

template <typename Machine>
Status ModelLauncher<Machine>::QueueRounds(
    [[maybe_unused]] int n,
    [[maybe_unused]] std::vector<ModelDeviceRows>* rows,
    [[maybe_unused]] AdvanceModelsParams* params) {
  if constexpr (!kIsHost<Machine>) {
    std::vector<int32_t> flags(n + 1, 0);
    flags[0] = 1;
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(flags, &flags_));
    for (int i = 0; i < n; ++i) {
      CERES_EXT_RETURN_IF_ERROR(
          QueueCandidates(flags_.data() + i, rows, *params));
      params->continues = flags_.data() + i + 1;
      CERES_EXT_RETURN_IF_ERROR(
          AdvanceModelWindows(*params, machine_->stream()));
    }
  }
  return {};
}

template <typename Machine>
Status ModelLauncher<Machine>::Launch(
    [[maybe_unused]] std::vector<ModelWindowRecord>* records,
    [[maybe_unused]] std::vector<ModelDeviceRows>* rows,
    [[maybe_unused]] AdvanceModelsParams* params,
    [[maybe_unused]] const std::function<void()>& pass_stop) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(AllocateScratch(records, rows, params));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(*records, &records_));
    params->num_windows = static_cast<int64_t>(records->size());
    has_priors_ = std::any_of(
        records->begin(), records->end(), [](const ModelWindowRecord& record) {
          return record.counts.num_priors > 0;
        });
    params->records = records_.data();
    params->tables = {factors_.data(), factor_begin_.data()};
    CERES_EXT_RETURN_IF_ERROR(BeginModelWindows(*params, machine_->stream()));
    int64_t left = MostRounds(*records, params->options);
    const int64_t at_once =
        params->num_windows <= kFewWindows ? kQueuedRounds : kMostQueuedRounds;
    int32_t continues = 1;
    while (continues != 0) {
      const auto n = static_cast<int>(std::min(left, at_once));
      CERES_EXT_RETURN_IF_ERROR(QueueRounds(n, rows, params));
      left -= n;
      if (left == 0) {
        return {};
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Download(1, flags_.data() + n, &continues));
      pass_stop();
    }
    return {};
  }
}

template class ModelLauncher<DeviceMachine>;

}  // namespace ceres_ext
