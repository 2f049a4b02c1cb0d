// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/array_import.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/import/batch_models.h"
#include "ceres_ext/import/elimination.h"
#include "ceres_ext/import/gather.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext {
namespace {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

constexpr int32_t kNone = -1;
constexpr int64_t kBlocksPerTask = 1 << 14;

// The finaliser of MurmurHash3, a bijection.
uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

// Hash of both ids of all rows, each at its place. It is a sum, so threads may
// add in any order. Not 0.
uint64_t HashOf(int64_t n,
                const int32_t* camera,
                const int32_t* point,
                kernels::HostContext* context) {
  std::atomic<uint64_t> sum{0};
  context->ParallelFor(n, kArrayRowsPerTask, [&](int64_t begin, int64_t end) {
    uint64_t part = 0;
    for (int64_t k = begin; k < end; ++k) {
      const uint64_t ids = uint64_t{static_cast<uint32_t>(camera[k])} << 32 |
                           static_cast<uint32_t>(point[k]);
      part += Mix(ids + Mix(static_cast<uint64_t>(k)));
    }
    sum += part;
  });
  return sum == 0 ? 1 : sum.load();
}

}  // namespace

void NameWorst(const ArrayProblem& problem, DegenerateBlocks* degenerate) {
  const std::less<const double*> less;
  for (size_t i = 0; i < problem.parameters().size(); ++i) {
    const Parameters& p = problem.parameters()[i];
    if (degenerate->worst != nullptr && !less(degenerate->worst, p.values) &&
        less(degenerate->worst, p.values + p.num_blocks * p.size)) {
      degenerate->worst_parameters = static_cast<int>(i);
      degenerate->worst_block = (degenerate->worst - p.values) / p.size;
    }
  }
}

std::string ArrayImport::WhyCopied(
    const ceres::Solver::Options& options) const {
  if (options.update_state_every_iteration) {
    return "update_state_every_iteration writes them on the host";
  }
  if (!AreObservations()) {
    return "not all residual blocks are observations of BAL's cameras, one "
           "array for each kind of camera";
  }
  const auto num_kinds =
      std::count_if(problem_->residuals().begin(),
                    problem_->residuals().end(),
                    [](const Residuals& r) { return r.num_blocks > 0; });
  for (const Residuals& residuals : problem_->residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      // The points of a second kind are renumbered on the host.
      if (index.on_device && num_kinds > 1) {
        return "cameras are of two kinds";
      }
      const bool is_known = facts_[index.parameters].is_known;
      const Parameters& p = parameters(index.parameters);
      const std::string name = "parameters " + std::to_string(index.parameters);
      if (is_known && !facts_[index.parameters].are_all_used) {
        return "a block of " + name +
               " is in no residual block, or some of its indices are on the "
               "host";
      }
      for (int64_t b = 0; is_known &&
                          (p.is_constant != nullptr || p.manifold != nullptr ||
                           p.manifolds != nullptr) &&
                          b < p.num_blocks;
           ++b) {
        if (IsConstant(p, b)) {
          return "a block of " + name + " is constant";
        }
      }
    }
  }
  return "";
}

std::string ArrayImport::WhyProblemIsNeeded(
    const ceres::Solver::Options& options) const {
  if (options.minimizer_type != ceres::TRUST_REGION) {
    return "minimizer_type LINE_SEARCH needs a ceres::Problem";
  }
  if (options.trust_region_strategy_type == ceres::DOGLEG) {
    return "trust_region_strategy_type DOGLEG needs a ceres::Problem";
  }
  if (options.use_inner_iterations) {
    return "inner iterations need a ceres::Problem";
  }
  if (options.linear_solver_ordering != nullptr) {
    return "linear_solver_ordering names the blocks of a ceres::Problem";
  }
  if (options.check_gradients) {
    return "check_gradients needs a ceres::Problem";
  }
  if (!options.trust_region_minimizer_iterations_to_dump.empty()) {
    return "the dumping of problems needs a ceres::Problem";
  }
  const auto& all = problem_->residuals();
  return std::all_of(all.begin(),
                     all.end(),
                     [](const Residuals& residuals) {
                       return residuals.num_blocks == 0;
                     })
             ? "there are no residual blocks"
             : "";
}

BatchModelKind ArrayImport::KindOf(int residuals) const {
  const auto* batchable = dynamic_cast<const BatchableCostFunction*>(
      rows_->cost_function(residuals));
  return batchable == nullptr ||
                 !problem_->residuals()[residuals].constants_are_of_model
             ? BatchModelKind::kOther
             : batchable->batch_model().kind;
}

bool ArrayImport::MayHaveObservations() const {
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const Residuals& residuals = problem_->residuals()[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    const BatchModel* const model =
        FindBatchModel(*rows_->cost_function(static_cast<int>(r)));
    // One by one they may be of any type.
    if (residuals.cost_functions != nullptr ||
        (model != nullptr && model->kind != BatchModelKind::kOther)) {
      return true;
    }
  }
  return false;
}

bool ArrayImport::AreObservations() const {
  int points = kNone;
  std::vector<BatchModelKind> kinds;
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const Residuals& residuals = problem_->residuals()[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    const BatchModelKind kind = KindOf(static_cast<int>(r));
    if (kind == BatchModelKind::kOther) {
      return false;
    }
    const int camera_array = residuals.blocks[0].parameters;
    const int point_array = residuals.blocks[1].parameters;
    if (points == kNone) {
      points = point_array;
      const int eliminated = EliminatedArray(*problem_);
      if (eliminated >= 0 && eliminated != points) {
        return false;
      }
    }
    if (points != point_array ||
        std::count(kinds.begin(), kinds.end(), kind) > 0) {
      return false;
    }
    kinds.push_back(kind);
    const auto has_constants = [this](int array) {
      const Parameters& p = parameters(array);
      return p.is_constant != nullptr || p.manifold != nullptr ||
             p.manifolds != nullptr;
    };
    // On a device all blocks vary.
    if (!is_on_device() && has_constants(camera_array) &&
        has_constants(point_array)) {
      for (int64_t k = 0; k < residuals.num_blocks; ++k) {
        if (IsConstant(parameters(camera_array),
                       residuals.blocks[0].BlockOf(k)) &&
            IsConstant(parameters(point_array),
                       residuals.blocks[1].BlockOf(k))) {
          return false;
        }
      }
    }
  }
  return true;
}

bool ArrayImport::HasColumns(std::string* reason) const {
  int64_t num_columns = num_columns_;
  if (communicator_ != nullptr) {
    const std::vector<int64_t> all = Gather(&num_columns, 1, communicator_);
    num_columns = *std::max_element(all.begin(), all.end());
  }
  if (num_columns == 0) {
    *reason = "no parameter block varies";
  }
  return num_columns > 0;
}

int ArrayImport::OwnArray() const {
  const auto& all = problem_->parameters();
  return static_cast<int>(
      std::find_if(all.begin(),
                   all.end(),
                   [](const Parameters& p) { return p.is_own; }) -
      all.begin());
}

bool ArrayImport::AreObservationsOnAllRanks() const {
  if (communicator_ == nullptr) {
    return AreObservations();
  }
  // 1 if they are, then the cameras of each kind: ranks add up values of camera
  // families, so all must have the same ones.
  constexpr size_t kNumKinds = 2;
  std::array<int32_t, 1 + kNumKinds> mine;
  mine.fill(kNone);
  mine[0] = AreObservations() ? 1 : 0;
  for (size_t r = 0; mine[0] != 0 && r < problem_->residuals().size(); ++r) {
    const Residuals& residuals = problem_->residuals()[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    mine[0] = residuals.blocks[1].parameters == OwnArray() ? 1 : 0;
    mine[1 + static_cast<size_t>(KindOf(static_cast<int>(r)))] =
        residuals.blocks[0].parameters;
  }
  const std::vector<int32_t> all =
      Gather(mine.data(), mine.size(), communicator_);
  bool are_same = all[0] != 0;
  for (size_t begin = 0; begin < all.size(); begin += mine.size()) {
    are_same =
        are_same &&
        std::equal(all.begin(), all.begin() + mine.size(), all.begin() + begin);
  }
  return are_same;
}

void ArrayImport::CountValues(bool batch_evaluation,
                              int64_t* num_values,
                              int64_t* num_host_values) const {
  *num_values = 0;
  *num_host_values = 0;
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const Residuals& residuals = problem_->residuals()[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    const ceres::CostFunction& cost_function =
        *rows_->cost_function(static_cast<int>(r));
    int64_t num_columns = 0;
    for (const ArrayProblem::Index& index : residuals.blocks) {
      num_columns += parameters(index.parameters).size;
    }
    const int64_t n =
        residuals.num_blocks * cost_function.num_residuals() * num_columns;
    *num_values += n;
    if (!batch_evaluation || !HasDeviceForm(cost_function)) {
      *num_host_values += n;
    }
  }
}

void ArrayImport::NumberBlocks(int array,
                               kernels::HostContext* context,
                               Blocks* blocks) {
  const Parameters& p = parameters(array);
  const auto n = static_cast<int32_t>(p.num_blocks);
  const bool is_known = is_on_device() && facts_[array].is_known;
  const std::vector<uint8_t> is_used =
      is_known ? std::vector<uint8_t>(n, facts_[array].are_all_used ? 1 : 0)
               : FindUsed(*problem_, array, context, communicator_);
  const bool may_be_constant = p.is_constant != nullptr ||
                               p.manifold != nullptr || p.manifolds != nullptr;
  const bool all_are_used =
      std::find(is_used.begin(), is_used.end(), 0) == is_used.end();
  blocks->num_varying = n;
  blocks->num_columns = n * p.size;
  if (all_are_used && !may_be_constant) {
    return;
  }
  blocks->has_table = true;
  blocks->place.assign(n, kNone);
  blocks->num_columns = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (is_used[i] != 0 && !IsConstant(p, i)) {
      blocks->place[i] = static_cast<int32_t>(blocks->order.size());
      blocks->order.push_back(i);
      blocks->num_columns += TangentSize(p, i);
    }
  }
  blocks->num_varying = static_cast<int32_t>(blocks->order.size());
  if (blocks->num_varying == n) {
    // Each is at its number.
    blocks->place.clear();
    blocks->order.clear();
    return;
  }
  if (communicator_ != nullptr && !p.is_own) {
    // All ranks have the same.
    for (int32_t i = 0; i < n; ++i) {
      if (blocks->place[i] == kNone) {
        blocks->place[i] = static_cast<int32_t>(blocks->order.size());
        blocks->order.push_back(i);
      }
    }
    return;
  }
  // Constant blocks in the order in which residual blocks name them.
  for (const Residuals& residuals : problem_->residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      for (int64_t k = 0; may_be_constant && index.parameters == array &&
                          k < residuals.num_blocks;
           ++k) {
        const auto i = static_cast<int32_t>(index.BlockOf(k));
        if (blocks->place[i] == kNone) {
          blocks->place[i] = static_cast<int32_t>(blocks->order.size());
          blocks->order.push_back(i);
        }
      }
    }
  }
}

void ArrayImport::FillTable(int array,
                            const Blocks& blocks,
                            kernels::HostContext* context,
                            BlockTable* table) const {
  const Parameters& p = parameters(array);
  table->ambient_size = p.size;
  table->padded_size = p.size;
  if (!blocks.has_table) {
    table->SetUniform(static_cast<int32_t>(p.num_blocks),
                      blocks.state_begin,
                      blocks.column_begin);
    return;
  }
  const auto block_at = [&](int64_t i) {
    return blocks.order.empty() ? i : int64_t{blocks.order[i]};
  };
  table->Resize(blocks.order.empty()
                    ? blocks.num_varying
                    : static_cast<int32_t>(blocks.order.size()));
  // Columns are counted up where manifolds make them differ.
  std::vector<int32_t> column_begin;
  if (p.manifold != nullptr || p.manifolds != nullptr) {
    int32_t column = blocks.column_begin;
    for (int32_t i = 0; i < blocks.num_varying; ++i) {
      column_begin.push_back(column);
      column += TangentSize(p, block_at(i));
    }
  }
  context->ParallelFor(
      table->size(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t block = block_at(i);
          BlockTable::Entry entry;
          if (i < blocks.num_varying) {
            const auto at = static_cast<int32_t>(i * p.size);
            entry.state_offset = blocks.state_begin + at;
            entry.tangent_offset = column_begin.empty()
                                       ? blocks.column_begin + at
                                       : column_begin[i];
            entry.tangent_size = TangentSize(p, block);
            entry.manifold = p.ManifoldOf(block);
          } else {
            entry.constant_value = p.values + block * p.size;
          }
          table->Set(i, entry);
        }
      });
}

bool ArrayImport::Import(const ImportOptions& options,
                         bool wants_hash,
                         kernels::HostContext* context,
                         ProblemStructure* structure,
                         std::string* reason) {
  const bool by_points = options.num_eliminate_blocks == ImportOptions::kPoints;
  if (by_points && options.batch_evaluation && AreObservationsOnAllRanks()) {
    return ImportObservations(wants_hash, context, structure, reason);
  }
  if (by_points && options.use_schur && EliminatedArray(*problem_) >= 0) {
    *reason = "is_eliminated selects the blocks to eliminate";
    return false;
  }
  if (by_points && options.use_schur &&
      (communicator_ != nullptr || !MayHaveObservations())) {
    *reason = "no residual block is an observation";
    return false;
  }
  if (!SetupRows(context, reason)) {
    return false;
  }
  if (by_points) {
    rows_->Order({});
  }
  num_columns_ = rows_->num_columns();
  num_parameters_ = rows_->num_parameters();
  num_blocks_ = rows_->num_blocks();
  num_rows_ = rows_->size();
  num_residuals_ = rows_->num_residuals();
  if (!HasColumns(reason)) {
    return false;
  }
  ImportOptions of_rows = options;
  // Each rank has a part of them.
  of_rows.takes_observations &= communicator_ == nullptr;
  if (!ImportRows(rows_, of_rows, context, structure, reason)) {
    return false;
  }
  ViewStructure& views = structure->views;
  if (wants_hash && views.size() > 0) {
    views.index_hash = HashOf(
        views.size(), views.view_id.data(), views.point_id.data(), context);
  }
  if (communicator_ != nullptr) {
    rows_->FindRanges(
        OwnArray(), &structure->own_state, &structure->own_columns);
  }
  caller_state_.Clear();
  rows_->AddTo(&caller_state_);
  structure->caller_state = &caller_state_;
  return true;
}

bool ArrayImport::SetupRows(kernels::HostContext* context,
                            std::string* reason) {
  if (has_rows_) {
    return true;
  }
  rows_->Setup(context);
  has_rows_ = rows_->FixedCost(/*apply_loss=*/true, &fixed_cost_);
  if (!has_rows_) {
    *reason =
        "a residual block that depends on constants alone can't be "
        "evaluated";
  }
  return has_rows_;
}

bool ArrayImport::ChooseEliminated(kernels::HostContext* context,
                                   int max_size,
                                   int* num_eliminate_blocks,
                                   std::string* reason) {
  if (!SetupRows(context, reason)) {
    return false;
  }
  if (communicator_ != nullptr) {
    *num_eliminate_blocks = rows_->NumVarying(OwnArray());
    rows_->OrderFirst(OwnArray());
    return true;
  }
  // The independent set of many rows takes longer than some steps.
  constexpr int64_t kManyRows = 1 << 17;
  int array = EliminatedArray(*problem_);
  if (array < 0 || rows_->NumVarying(array) == 0 ||
      parameters(array).size > max_size) {
    array =
        rows_->size() >= kManyRows ? rows_->IndependentArray(kPointSize) : -1;
  }
  if (array >= 0) {
    *num_eliminate_blocks = rows_->NumVarying(array);
    rows_->OrderFirst(array);
    return true;
  }
  rows_->Order({});
  rows_->ReadBlocks(context);
  const std::vector<uint8_t> is_eliminated = IndependentSet(*rows_, max_size);
  rows_->Order(is_eliminated);
  *num_eliminate_blocks = static_cast<int>(
      std::count(is_eliminated.begin(), is_eliminated.end(), 1));
  return true;
}

bool ArrayImport::ImportObservations(bool wants_hash,
                                     kernels::HostContext* context,
                                     ProblemStructure* structure,
                                     std::string* reason) {
  *structure = ProblemStructure();
  const int num_arrays = static_cast<int>(problem_->parameters().size());
  blocks_.assign(num_arrays, Blocks());
  caller_state_.Clear();
  num_columns_ = 0;
  num_parameters_ = 0;
  num_blocks_ = 0;
  for (int i = 0; i < num_arrays; ++i) {
    Blocks& blocks = blocks_[i];
    NumberBlocks(i, context, &blocks);
    if (blocks.num_varying == 0) {
      continue;
    }
    blocks.state_begin = num_parameters_;
    blocks.column_begin = static_cast<int>(num_columns_);
    const Parameters& p = parameters(i);
    num_blocks_ += blocks.num_varying;
    num_parameters_ += blocks.num_varying * p.size;
    num_columns_ += blocks.num_columns;
    caller_state_.Add(
        p.values,
        p.size,
        p.num_blocks,
        std::vector<int32_t>(
            blocks.order.begin(),
            blocks.order.begin() +
                std::min<int64_t>(blocks.num_varying,
                                  static_cast<int64_t>(blocks.order.size()))),
        p.on_device);
  }
  if (!HasColumns(reason)) {
    return false;
  }
  structure->num_columns = static_cast<int>(num_columns_);
  structure->num_parameters = num_parameters_;
  structure->caller_state = &caller_state_;
  if (communicator_ != nullptr) {
    const Blocks& own = blocks_[OwnArray()];
    structure->own_state = {
        own.state_begin,
        own.state_begin + own.num_varying * parameters(OwnArray()).size};
    structure->own_columns = {own.column_begin,
                              own.column_begin + own.num_columns};
  }

  const Residuals* any = nullptr;
  for (int kind = 0; kind < 2; ++kind) {
    for (size_t r = 0; r < problem_->residuals().size(); ++r) {
      const Residuals& residuals = problem_->residuals()[r];
      if (residuals.num_blocks == 0 ||
          KindOf(static_cast<int>(r)) != static_cast<BatchModelKind>(kind)) {
        continue;
      }
      any = &residuals;
      ObservationTable rows;
      rows.kind = static_cast<BatchModelKind>(kind);
      rows.camera_family = static_cast<int>(structure->f.size());
      const int64_t n = residuals.num_blocks;
      structure->num_residuals += static_cast<int>(2 * n);
      const auto read = [&](const ArrayProblem::Index& index,
                            InputArray<int32_t>* ids) {
        const std::vector<int32_t>& place = blocks_[index.parameters].place;
        if (place.empty() && index.block != nullptr) {
          ids->Refer(n, index.block, index.on_device);
          return;
        }
        if (!ids->Allocate(n).ok()) {
          throw std::bad_alloc();  // Nothing else would fit either.
        }
        context->ParallelFor(
            n, kArrayRowsPerTask, [&](int64_t begin, int64_t end) {
              for (int64_t k = begin; k < end; ++k) {
                const int64_t block = index.BlockOf(k);
                ids->own_data()[k] =
                    place.empty() ? static_cast<int32_t>(block) : place[block];
              }
            });
      };
      read(residuals.blocks[0], &rows.camera_id);
      read(residuals.blocks[1], &rows.point_id);
      rows.observations.Refer(2 * n,
                              static_cast<const double*>(residuals.constants),
                              residuals.constants_on_device);
      rows.common_loss = residuals.loss;
      if (residuals.weights != nullptr) {
        rows.weights.Refer(n, residuals.weights, residuals.weights_on_device);
      }
      if (wants_hash && !rows.camera_id.on_device() &&
          !rows.point_id.on_device()) {
        rows.index_hash =
            HashOf(n, rows.camera_id.data(), rows.point_id.data(), context);
      }
      BlockTable* const table = &structure->f.emplace_back();
      const int array = residuals.blocks[0].parameters;
      FillTable(array, blocks_[array], context, table);
      // Columns that the kernels are compiled for.
      table->padded_size =
          table->MaxTangentSize() <= 9 ? 9 : kernels::kMaxCameraColumns;
      structure->observations.push_back(std::move(rows));
    }
  }
  const int points = any->blocks[1].parameters;
  if (is_on_device() && facts_[points].is_known) {
    structure->num_couplings = facts_[points].num_couplings;
  }
  FillTable(points, blocks_[points], context, &structure->e.emplace_back());
  structure->e[0].padded_size = kPointSize;
  num_rows_ = structure->num_observations();
  num_residuals_ = structure->num_residuals;
  return true;
}

bool ArrayImport::FixedCost(bool apply_loss, double* cost) const {
  *cost = 0.0;
  return !has_rows_ || rows_->FixedCost(apply_loss, cost);
}

void ArrayImport::SpreadTangents(const double* tangents,
                                 std::vector<double>* of_blocks) const {
  of_blocks->clear();
  for (size_t array = 0; array < problem_->parameters().size(); ++array) {
    const Parameters& p = problem_->parameters()[array];
    // The first block of the array.
    std::vector<size_t> begin;
    size_t end = of_blocks->size();
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      begin.push_back(end);
      end += TangentSize(p, i);
    }
    of_blocks->resize(end, 0.0);
    ForEachVarying(array, [&](int64_t block, int column) {
      std::copy_n(tangents + column,
                  TangentSize(p, block),
                  of_blocks->data() + begin[block]);
    });
  }
}

void ArrayImport::ListTangentOffsets(int array,
                                     std::vector<int32_t>* of_blocks) const {
  const Parameters& p = problem_->parameters()[array];
  of_blocks->assign(static_cast<size_t>(p.num_blocks), -1);
  ForEachVarying(array, [&](int64_t block, int column) {
    (*of_blocks)[static_cast<size_t>(block)] = column;
  });
}

template <typename Function>
void ArrayImport::ForEachVarying(size_t array, Function&& fn) const {
  if (has_rows_) {
    rows_->ForEachBlock(static_cast<int>(array), fn);
    return;
  }
  const Parameters& p = problem_->parameters()[array];
  const Blocks& blocks = blocks_[array];
  int column = blocks.column_begin;
  for (int32_t i = 0; i < blocks.num_varying; ++i) {
    const int32_t block = blocks.order.empty() ? i : blocks.order[i];
    fn(block, column);
    column += TangentSize(p, block);
  }
}

void ArrayImport::SumOverRanks(ceres::Solver::Summary* summary) const {
  int* const of_all[] = {&summary->num_parameter_blocks,
                         &summary->num_parameters,
                         &summary->num_effective_parameters,
                         &summary->num_parameter_blocks_reduced,
                         &summary->num_parameters_reduced,
                         &summary->num_effective_parameters_reduced,
                         &summary->num_residual_blocks,
                         &summary->num_residuals,
                         &summary->num_residual_blocks_reduced,
                         &summary->num_residuals_reduced};
  // Blocks that all ranks have count once.
  const Parameters& own = parameters(OwnArray());
  int64_t num_tangents = 0;
  int64_t num_varying = 0;
  int64_t num_columns = 0;
  for (int64_t i = 0; i < own.num_blocks; ++i) {
    num_tangents += TangentSize(own, i);
  }
  ForEachVarying(static_cast<size_t>(OwnArray()),
                 [&](int64_t block, int /*column*/) {
                   ++num_varying;
                   num_columns += TangentSize(own, block);
                 });
  const int64_t of_own[] = {own.num_blocks,
                            own.num_blocks * own.size,
                            num_tangents,
                            num_varying,
                            num_varying * own.size,
                            num_columns};
  std::vector<double> sums;
  for (size_t i = 0; i < std::size(of_all); ++i) {
    sums.push_back(static_cast<double>(
        i < std::size(of_own) ? of_own[i] : int64_t{*of_all[i]}));
  }
  std::vector<double> scratch;
  if (!kernels::SumOverRanks(static_cast<int64_t>(sums.size()),
                             sums.data(),
                             &scratch,
                             communicator_)
           .ok()) {
    return;  // The numbers stay those of this rank.
  }
  for (size_t i = 0; i < std::size(of_all); ++i) {
    const int64_t once =
        i < std::size(of_own) ? int64_t{*of_all[i]} - of_own[i] : 0;
    *of_all[i] = static_cast<int>(std::min<double>(
        sums[i] + static_cast<double>(once), std::numeric_limits<int>::max()));
  }
}

void ArrayImport::FillSummary(ceres::Solver::Summary* summary) const {
  summary->num_parameter_blocks = 0;
  summary->num_parameters = 0;
  summary->num_effective_parameters = 0;
  summary->num_parameter_blocks_reduced = num_blocks_;
  summary->num_parameters_reduced = num_parameters_;
  summary->num_effective_parameters_reduced = static_cast<int>(num_columns_);
  for (const Parameters& p : problem_->parameters()) {
    const auto n = static_cast<int>(p.num_blocks);
    summary->num_parameter_blocks += n;
    summary->num_parameters += n * p.size;
    if (p.manifolds == nullptr) {
      summary->num_effective_parameters += n * TangentSize(p, 0);
    } else {
      for (int b = 0; b < n; ++b) {
        summary->num_effective_parameters += TangentSize(p, b);
      }
    }
  }
  summary->num_residual_blocks = 0;
  summary->num_residuals = 0;
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const auto n = static_cast<int>(problem_->residuals()[r].num_blocks);
    summary->num_residual_blocks += n;
    if (n > 0) {
      summary->num_residuals +=
          n * rows_->cost_function(static_cast<int>(r))->num_residuals();
    }
  }
  summary->num_residual_blocks_reduced = static_cast<int>(num_rows_);
  summary->num_residuals_reduced = num_residuals_;
  if (communicator_ != nullptr) {
    SumOverRanks(summary);
  }
  summary->linear_solver_ordering_used = {
      summary->num_parameter_blocks_reduced};
}

}  // namespace ceres_ext
