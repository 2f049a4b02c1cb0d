// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_piece.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ceres_ext/import/array_rows.h"

namespace ceres_ext {

namespace {

template <typename T>
void CopyTo(const std::vector<T>& from, unsigned char* to) {
  if (!from.empty()) {
    std::memcpy(to, from.data(), sizeof(T) * from.size());
  }
}

int64_t NumWords(const BatchModel& model) {
  return (model.constants_bytes + 7) / 8;
}

}  // namespace

void ModelPiece::SetKind(SmallKind* kind) {
  windows_ = static_cast<const ModelWindows*>(kind);
  ones_.clear();
  ones_.resize(end_ - begin_);
}

void ModelPiece::Measure() {
  ModelPlaces places;
  const auto num_models = static_cast<int>(windows_->models().size());
  std::fill_n(rows_, kMaxModels, Rows());
  for (const int64_t i : numbers()) {
    One& window = one(i);
    window.record.counts = window.plan.counts;
    window.record.counts.num_points = NumDoglegPoints(options_->dogleg);
    for (int m = 0; m < num_models; ++m) {
      window.record.row_begin[m] = static_cast<int32_t>(rows_[m].num_rows);
      rows_[m].num_rows += window.plan.num_rows[m];
      window.record.row_end[m] = static_cast<int32_t>(rows_[m].num_rows);
    }
  }
  for (int m = 0; m < num_models; ++m) {
    const BatchModel& model = *windows_->models()[m];
    Rows& rows = rows_[m];
    rows.blocks =
        places.Add<RowBlock>(rows.num_rows * model.num_parameter_blocks);
    rows.constants = places.Add<uint64_t>(rows.num_rows * NumWords(model));
    rows.loss_id = places.Add<uint8_t>(rows.num_rows);
    rows.weights = places.Add<double>(rows.num_rows);
  }
  bytes_ = {places.size(), 0};
  for (const int64_t i : numbers()) {
    ModelWindowRecord& record = one(i).record;
    record.input_begin = bytes_.inputs;
    record.output_begin = bytes_.outputs;
    bytes_.inputs += ModelInput(record.counts).num_bytes;
    bytes_.outputs += ModelOutput(record.counts).num_bytes;
  }
}

std::string ModelPiece::TryPack(int64_t i, SmallWorkspace* /*workspace*/) {
  const One& window = one(i);
  const ModelPlan& plan = window.plan;
  const ModelInput at(plan.counts);
  unsigned char* const to = inputs_ + window.record.input_begin;
  const auto copy_values = [&](const std::vector<ModelPlan::Place>& places,
                               int64_t begin) {
    auto* values = reinterpret_cast<double*>(to + begin);
    for (const ModelPlan::Place& place : places) {
      const auto& p = windows_->batch().problem.parameters()[place.array];
      values = std::copy_n(p.values + p.size * place.block, p.size, values);
    }
  };
  copy_values(plan.varying, at.values);
  copy_values(plan.constant, at.constants);
  CopyTo(plan.blocks, to + at.blocks);
  CopyTo(plan.eliminated, to + at.eliminated);
  CopyTo(plan.diagonal_cells, to + at.diagonal_cells);
  CopyTo(plan.eliminated_cells, to + at.eliminated_cells);
  CopyTo(plan.cells, to + at.cells);
  CopyTo(plan.entries, to + at.entries);
  CopyTo(plan.schur_entries, to + at.schur_entries);
  CopyTo(plan.run_begin, to + at.run_begin);
  CopyTo(plan.runs, to + at.runs);
  CopyTo(plan.priors, to + at.priors);
  CopyTo(plan.prior_blocks, to + at.prior_blocks);
  CopyTo(plan.prior_parts, to + at.prior_parts);
  CopyTo(plan.wanted, to + at.wanted);
  auto* of_priors = reinterpret_cast<double*>(to + at.prior_values);
  for (const BlockMarginalPrior* const prior : plan.marginals) {
    for (const std::vector<double>* const values :
         {&prior->references(), &prior->matrix(), &prior->offset()}) {
      of_priors = std::copy(values->begin(), values->end(), of_priors);
    }
  }
  PackRows(window);
  // The result if the window is not solved.
  *ResultOf(i) = ModelResult();
  return "";
}

// Rows refer to the candidate, its tangents and constant values.
void ModelPiece::PackRows(const One& window) {
  const ModelPlan& plan = window.plan;
  constexpr int64_t kBytes = sizeof(double);
  const ModelOutput out(plan.counts);
  const auto candidate = static_cast<int32_t>(
      (window.record.output_begin + out.candidate) / kBytes);
  const auto tangents = static_cast<int32_t>(
      (window.record.output_begin + out.tangents) / kBytes);
  const auto constants = static_cast<int32_t>(
      (window.record.input_begin + ModelInput(plan.counts).constants) / kBytes);
  const ModelPlan::Row* row = plan.rows.data();
  const RowBlock* blocks = plan.row_blocks.data();
  for (size_t m = 0; m < windows_->models().size(); ++m) {
    const BatchModel& model = *windows_->models()[m];
    const Rows& rows = rows_[m];
    const int64_t num_words = NumWords(model);
    for (int64_t k = window.record.row_begin[m]; k < window.record.row_end[m];
         ++k, ++row, blocks += kMaxModelSlots) {
      const auto& of = windows_->batch().problem.residuals()[row->array];
      auto* const to = reinterpret_cast<RowBlock*>(inputs_ + rows.blocks) +
                       k * model.num_parameter_blocks;
      for (int s = 0; s < model.num_parameter_blocks; ++s) {
        to[s] = blocks[s];
        to[s].state += to[s].state >= 0 ? candidate : -constants;
        to[s].tangent += to[s].tangent >= 0 ? tangents : 0;
      }
      std::memcpy(inputs_ + rows.constants + 8 * k * num_words,
                  static_cast<const char*>(of.constants) +
                      row->number * of.constants_bytes,
                  of.constants_bytes);
      inputs_[rows.loss_id + k] = windows_->loss_of(row->array);
      reinterpret_cast<double*>(inputs_ + rows.weights)[k] =
          of.weights != nullptr ? of.weights[row->number] : 1.0;
    }
  }
}

RowBatch ModelPiece::RowsOf(int m,
                            int64_t begin,
                            int64_t end,
                            const kernels::RobustLoss* losses,
                            const unsigned char* inputs,
                            const unsigned char* outputs) const {
  const BatchModel& model = *windows_->models()[m];
  const Rows& at = rows_[m];
  RowBatch rows;
  rows.num_rows = end - begin;
  rows.blocks = reinterpret_cast<const RowBlock*>(inputs + at.blocks) +
                begin * model.num_parameter_blocks;
  rows.state = reinterpret_cast<const double*>(outputs);
  rows.constant_state = reinterpret_cast<const double*>(inputs);
  rows.tangents = reinterpret_cast<const double*>(outputs);
  rows.constant_row = NumWords(model);
  rows.constant_word = 1;
  rows.constants = reinterpret_cast<const uint64_t*>(inputs + at.constants) +
                   begin * rows.constant_row;
  rows.loss.losses = losses;
  rows.loss.loss_id =
      windows_->losses().empty() ? nullptr : inputs + at.loss_id + begin;
  rows.loss.weights =
      reinterpret_cast<const double*>(inputs + at.weights) + begin;
  rows.apply_loss = true;
  rows.f.residual = windows_->num_columns(m);
  rows.f.row = rows.f.residual * model.num_residuals;
  rows.f.element = 1;
  return rows;
}

void ModelPiece::TrySolve(int64_t i, SmallWorkspace* workspace) {
  const ModelWindowRecord& record = one(i).record;
  std::vector<ModelHostRows> rows;
  for (size_t m = 0; m < windows_->models().size(); ++m) {
    rows.push_back({windows_->models()[m],
                    RowsOf(static_cast<int>(m),
                           record.row_begin[m],
                           record.row_end[m],
                           windows_->losses().data(),
                           inputs_,
                           outputs_)});
  }
  const ManifoldTable& manifolds = windows_->manifolds();
  SolveModelWindowOnHost(
      record,
      {manifolds.factors().data(), manifolds.factor_begin().data()},
      *options_,
      inputs_,
      outputs_,
      one(i).plan.marginals,
      &rows,
      &static_cast<Workspace*>(workspace)->memory);
}

kernels::Status ModelPiece::Launch([[maybe_unused]] const unsigned char* inputs,
                                   [[maybe_unused]] unsigned char* outputs,
                                   [[maybe_unused]] const int32_t* stop,
                                   bool /*may_share*/,
                                   [[maybe_unused]] DeviceMachine* machine) {
  if (launcher_ == nullptr) {
    launcher_ = std::make_unique<ModelLauncher<DeviceMachine>>(machine);
  }
  CERES_EXT_RETURN_IF_ERROR(
      launcher_->SetTables(windows_->losses(), windows_->manifolds()));
  std::vector<ModelWindowRecord> records;
  records.reserve(numbers().size());
  for (const int64_t i : numbers()) {
    records.push_back(one(i).record);
  }
  std::vector<ModelDeviceRows> rows;
  for (size_t m = 0; m < windows_->models().size(); ++m) {
    rows.push_back({windows_->models()[m],
                    RowsOf(static_cast<int>(m),
                           0,
                           rows_[m].num_rows,
                           launcher_->losses(),
                           inputs,
                           outputs)});
  }
  AdvanceModelsParams params;
  params.options = *options_;
  if (params.options.stop != nullptr) {
    params.options.stop = stop;
  }
  params.inputs = inputs;
  params.outputs = outputs;
  // The caller may set its flag while Launch waits.
  return launcher_->Launch(&records, &rows, &params, [&] {
    if (options_->IsStopped()) {
      __atomic_store_n(const_cast<int32_t*>(stop), 1, __ATOMIC_RELAXED);
    }
  });
}

const char* ModelPiece::WhyNotSolved(int64_t i) const {
  const TrustRegionEnd end = RegionOf(i).end();
  return end > TrustRegionEnd::kEvaluation ? nullptr
         : end == TrustRegionEnd::kNone
             ? "there was no memory for the window"
             // ceres_ext::Solve reports which residual blocks failed.
             : "an evaluation of the window failed";
}

ReducedSize ModelPiece::SizeOf(int64_t i) const {
  const ModelPlan& plan = one(i).plan;
  ReducedSize size;
  size.linear_solver_type = ceres::DENSE_SCHUR;
  size.num_parameter_blocks = static_cast<int>(plan.blocks.size());
  for (const ModelBlock& block : plan.blocks) {
    size.num_parameters += block.size;
    size.num_effective_parameters += block.num_columns;
  }
  size.num_residual_blocks = plan.counts.num_rows;
  size.num_residuals = plan.num_residuals;
  return size;
}

void ModelPiece::TakeCovariance(int64_t i, BlockCovariance* covariance) const {
  const One& window = one(i);
  for (const ModelPlan::Place& place : window.plan.of_wanted) {
    covariance->blocks.push_back({place.array, place.block});
  }
  const ModelResult& result = *ResultOf(i);
  if (result.covariance == ModelCovariance::kFound) {
    const ModelCounts& counts = window.record.counts;
    const auto* const values = reinterpret_cast<const double*>(
        outputs_ + window.record.output_begin + ModelOutput(counts).covariance);
    covariance->values.assign(
        values, values + int64_t{counts.num_wanted} * counts.num_wanted);
  } else if (counts_of(i).num_wanted > 0) {
    covariance->message =
        "nothing holds the blocks in some directions: the Jacobian's columns "
        "are dependent";
  }
}

void ModelPiece::Unpack(int64_t i) const {
  const One& window = one(i);
  const auto* values =
      reinterpret_cast<const double*>(outputs_ + window.record.output_begin +
                                      ModelOutput(window.record.counts).values);
  for (const ModelPlan::Place& place : window.plan.varying) {
    const auto& p = windows_->batch().problem.parameters()[place.array];
    std::copy_n(values, p.size, p.values + p.size * place.block);
    values += p.size;
  }
}

}  // namespace ceres_ext
