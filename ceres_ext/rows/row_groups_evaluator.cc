// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/rows/row_groups_evaluator.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <future>
#include <string>
#include <system_error>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/base/type_name.h"
#include "cuda_kernels/ops/block_table.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
Status RowGroupsEvaluator<Machine>::SetupRows(
    const RowGroupsInput<Machine>& input,
    const InputArray<int32_t>& rows,
    int64_t num_residuals,
    int64_t chunk,
    int e_values,
    const int32_t* point_id,
    const DescribeModel& describe) {
  blocks_ = input.blocks;
  summary_ = input.summary;
  num_residuals_ = num_residuals;
  chunk_ = chunk;
  e_values_ = e_values;
  const ProblemStructure& structure = *input.structure;
  // Models without a form on this machine leave their rows to Ceres.
  const std::vector<std::string>& why_not = input.why_no_form;
  std::vector<uint8_t> has_note(structure.models.size(), 0);
  // The constants of each row; empty if all have those of the first.
  std::vector<int16_t> model_of_place;
  std::vector<int32_t> host_rows;
  const int16_t first_model = structure.model(rows.data()[0]);
  std::atomic<bool> is_one_model{first_model != ProblemStructure::kNoModel &&
                                 why_not[first_model].empty()};
  input.host_context->ParallelFor(
      is_one_model ? rows.size() : 0,
      kEvaluatedRowsPerTask,
      [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          if (structure.model(rows.data()[k]) != first_model) {
            is_one_model = false;
            return;
          }
        }
      });
  for (int64_t k = 0; !is_one_model && k < rows.size(); ++k) {
    const int32_t row = rows.data()[k];
    const int16_t model = structure.model(row);
    const bool is_host_row =
        model == ProblemStructure::kNoModel || !why_not[model].empty();
    if (is_host_row && model != ProblemStructure::kNoModel &&
        has_note[model] == 0) {
      has_note[model] = 1;
      input.notes->insert(TypeName(structure.rows->TypicalCostFunction(row)) +
                          " " + why_not[model]);
    }
    model_of_place.push_back(is_host_row ? ProblemStructure::kNoModel : model);
    if (is_host_row) {
      host_rows.push_back(row);
      host_place_.push_back(static_cast<int32_t>(k));
    }
  }
  num_host_rows_ = static_cast<int64_t>(host_rows.size());
  if (num_host_rows_ == rows.size()) {
    host_place_.clear();
  } else {
    std::vector<ModelInput> of_model;
    CERES_EXT_RETURN_IF_ERROR(
        SplitByModel(structure, rows, model_of_place, &of_model));
    CERES_EXT_RETURN_IF_ERROR(
        SetupModels(input, std::move(of_model), point_id, describe));
  }
  if (host_rows.empty()) {
    return {};
  }
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Setup(
      structure.rows, host_rows, structure.is_eliminated, input.host_context));
  if (kIsHost<Machine>) {
    return {};
  }
  if (!host_place_.empty()) {
    CERES_EXT_RETURN_IF_ERROR(
        machine()->Upload(host_place_, &machine_host_place_));
  }
  const auto first = [this](int64_t place) { return FirstResidual(place); };
  const auto size = [&](int64_t place) {
    return first(place + 1) - first(place);
  };
  return SetupRanges(num_residuals_, first, size, &residuals_);
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::SetupUniformRows(
    const RowGroupsInput<Machine>& input,
    const UniformRows& rows,
    const int32_t* input_id,
    int64_t num_residuals,
    const int32_t* point_id,
    const DescribeModel& describe) {
  blocks_ = input.blocks;
  summary_ = input.summary;
  num_residuals_ = num_residuals;
  const ProblemStructure& structure = *input.structure;
  std::vector<ModelInput> of_model(structure.models.size());
  ModelInput& of_rows =
      of_model[structure.model(static_cast<int32_t>(rows.begin))];
  of_rows.uniform = &rows;
  of_rows.input_id = input_id;
  return SetupModels(input, std::move(of_model), point_id, describe);
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::SetupUniformPoints(
    const kernels::BlockTableRef& table, Machine* machine) {
  using Record = kernels::StateRecordsParams::Record;
  static_assert(sizeof(RowBlock) == sizeof(Record));
  static_assert(offsetof(RowBlock, state) == 0);
  RowBlock point;
  point.size = table.ambient_size;
  Record like;
  std::memcpy(&like, &point, sizeof(like));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(table.num_blocks, &points_));
  return kernels::Run(
      kernels::StateRecordsParams{table.num_blocks,
                                  like,
                                  table.state_offset,
                                  reinterpret_cast<Record*>(points_.data())},
      machine);
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::SplitByModel(
    const ProblemStructure& structure,
    const InputArray<int32_t>& rows,
    const std::vector<int16_t>& model_of_place,
    std::vector<ModelInput>* inputs) {
  const std::vector<const BatchModel*>& models = structure.models;
  std::vector<ModelInput> of_model(models.size());
  if (model_of_place.empty()) {
    of_model[structure.model(rows.data()[0])].rows.Refer(rows.size(),
                                                         rows.data());
  }
  std::vector<int64_t> num_rows(models.size(), 0);
  for (const int16_t model : model_of_place) {
    if (model != ProblemStructure::kNoModel) {
      ++num_rows[model];
    }
  }
  for (size_t m = 0; !model_of_place.empty() && m < models.size(); ++m) {
    CERES_EXT_RETURN_IF_ERROR(of_model[m].rows.Allocate(num_rows[m]));
  }
  for (size_t k = 0; k < model_of_place.size(); ++k) {
    if (model_of_place[k] != ProblemStructure::kNoModel) {
      ModelInput& model = of_model[model_of_place[k]];
      model.rows.own_data()[model.place.size()] = rows.data()[k];
      model.place.push_back(static_cast<int32_t>(k));
    }
  }
  *inputs = std::move(of_model);
  return {};
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::SetupModels(
    const RowGroupsInput<Machine>& input,
    std::vector<ModelInput> of_model,
    const int32_t* point_id,
    const DescribeModel& describe) {
  RowBlocks row_blocks;
  kernels::HostBuffer<RowBlock> points;
  for (size_t m = 0; m < of_model.size(); ++m) {
    of_model[m].model = input.structure->models[m];
    if (of_model[m].size() > 0) {
      CERES_EXT_RETURN_IF_ERROR(describe(&row_blocks, &points, &of_model[m]));
    }
  }

  CERES_EXT_RETURN_IF_ERROR(manifolds_.Setup(
      row_blocks.manifolds(), /*wants_tangents=*/true, machine()));
  const auto set_tangents = [&](int64_t n, RowBlock* of_rows) -> Status {
    for (int64_t i = 0; !row_blocks.manifolds().empty() && i < n; ++i) {
      RowBlock& block = of_rows[i];
      if (block.tangent != RowBlock::kIdentity) {
        const int64_t begin = manifolds_.tangent_begin(block.tangent);
        if (begin > std::numeric_limits<int32_t>::max()) {
          return {kernels::StatusCode::kUnsupported,
                  "the derivatives of manifolds have more than 2^31 values"};
        }
        block.tangent = static_cast<int32_t>(begin);
      }
    }
    return {};
  };
  CERES_EXT_RETURN_IF_ERROR(
      machine()->Upload(row_blocks.constant_state(), &constant_state_));
  if (!has_uniform_points()) {
    CERES_EXT_RETURN_IF_ERROR(set_tangents(points.size(), points.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine()->Upload(points.size(), points.data(), &points_));
  }
  RowBatch common;
  common.points = points_.data();
  common.point_id = point_id;
  common.own_block = own_block_;
  common.own_state = own_state_;
  common.constant_state = constant_state_.data();
  common.tangents = manifolds_.tangents();
  for (ModelInput& model : of_model) {
    if (model.size() > 0) {
      CERES_EXT_RETURN_IF_ERROR(set_tangents(
          static_cast<int64_t>(model.blocks.size()), model.blocks.data()));
      models_.push_back(std::make_unique<ModelEvaluator<Machine>>());
      CERES_EXT_RETURN_IF_ERROR(models_.back()->Setup(model,
                                                      common,
                                                      *input.structure->rows,
                                                      input.host_context,
                                                      machine()));
      models_.back()->loss().Report(summary_);
    }
  }
  return {};
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::EvaluateChunks(
    const EvaluationRequest& request,
    const HostEvaluation::PlaceOf& residuals_of) {
  BatchJacobian* const jacobian = request.jacobian;
  // The chunk before is on its way to a device while this one is evaluated.
  std::future<Status> on_its_way;
  Status status;
  for (int64_t begin = 0; begin < num_host_rows_ && status.ok();
       begin += chunk_) {
    const int64_t end = std::min(begin + chunk_, num_host_rows_);
    status = evaluation_.Evaluate(begin,
                                  end,
                                  request.apply_loss,
                                  residuals_of,
                                  ValuesOf(begin, jacobian),
                                  e_values_);
    if (kIsHost<Machine>) {
      status = status.ok() ? Store(begin, end, jacobian) : status;
      continue;
    }
    ScopedSeconds timer(&summary_->import_time_in_seconds);
    if (on_its_way.valid()) {
      const Status before = on_its_way.get();
      status = status.ok() ? before : status;
    }
    if (!status.ok()) {
      break;
    }
    const auto store = [=]() -> Status {
      const CurrentMachine<Machine> current(machine());
      CERES_EXT_RETURN_IF_ERROR(current.status());
      return Store(begin, end, jacobian);
    };
    if (end < num_host_rows_) {
      try {
        on_its_way = std::async(std::launch::async, store);
        continue;
      } catch (const std::system_error&) {  // No thread can be created.
      }
    }
    status = store();
  }
  return status;
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::EvaluateHostRows(
    const EvaluationRequest& request, double* machine_residuals) {
  // Restores state that user functions make current on this thread.
  [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Publish(request.host_state));
  HostEvaluation::PlaceOf residuals_of;
  if (machine_residuals != nullptr) {
    residuals_of = [=](int64_t k) {
      const int64_t first = FirstResidual(PlaceOf(k));
      return kIsHost<Machine> ? machine_residuals + first
                              : residuals_.At(k, first);
    };
  }
  CERES_EXT_RETURN_IF_ERROR(
      request.jacobian != nullptr
          ? EvaluateChunks(request, residuals_of)
          : evaluation_.Evaluate(
                0, num_host_rows_, request.apply_loss, residuals_of, {}, 0));
  if (kIsHost<Machine> || machine_residuals == nullptr) {
    return {};
  }
  ScopedSeconds timer(&summary_->import_time_in_seconds);
  const CurrentMachine<Machine> current(machine());
  CERES_EXT_RETURN_IF_ERROR(current.status());
  return residuals_.Send(machine_residuals, machine());
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::EvaluateModels(
    const EvaluationRequest& request, double* machine_residuals) {
  RowBatch wanted;
  wanted.state = request.state;
  wanted.apply_loss = request.apply_loss;
  wanted.residuals = machine_residuals;
  const bool jacobian = request.jacobian != nullptr;
  if (jacobian) {
    CERES_EXT_RETURN_IF_ERROR(manifolds_.UpdateTangents(request.state));
    SetCells(request.jacobian, &wanted);
  }
  for (const auto& model : models_) {
    CERES_EXT_RETURN_IF_ERROR(model->Evaluate(wanted, jacobian));
  }
  return jacobian ? KeepState(request.jacobian) : Status();
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::Evaluate(const EvaluationRequest& request) {
  // Null: not wanted.
  double* const machine_residuals =
      request.residuals != nullptr ? request.residuals
      : request.want_gradient      ? request.scratch_residuals
                                   : nullptr;
  // A device works while the host does.
  if (has_models()) {
    CERES_EXT_RETURN_IF_ERROR(EvaluateModels(request, machine_residuals));
  }
  if (num_host_rows_ > 0) {
    CERES_EXT_RETURN_IF_ERROR(EvaluateHostRows(request, machine_residuals));
  }
  if (!request.want_gradient) {
    return {};
  }
  if (owns_points_) {
    CERES_EXT_RETURN_IF_ERROR(machine()->SetZero(
        blocks_->blocks().e[0].num_values(), request.e_gradient));
  }
  return request.jacobian->batch()->LeftMultiplyAndAccumulate(
      machine_residuals, request.e_gradient, request.f_gradient);
}

template <typename Machine>
Status RowGroupsEvaluator<Machine>::Read(kernels::Evaluation* evaluation) {
  *evaluation = kernels::Evaluation();
  evaluation->cost = num_host_rows_ > 0 ? evaluation_.cost() : 0.0;
  for (const auto& model : models_) {
    double cost = 0.0;
    CERES_EXT_RETURN_IF_ERROR(model->Read(&cost));
    evaluation->cost += cost;
  }
  return {};
}

#define CERES_EXT_INSTANTIATE(Machine) \
  template class RowGroupsEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
