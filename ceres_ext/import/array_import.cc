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
      for (int64_t b = 0; is_known && MayBeConstant(p) && b < p.num_blocks;
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
    const Parameters& cameras = parameters(camera_array);
    const Parameters& of_points = parameters(point_array);
    // On a device all blocks vary.
    const bool may_be_constant =
        !is_on_device() && MayBeConstant(cameras) && MayBeConstant(of_points);
    for (int64_t k = 0; may_be_constant && k < residuals.num_blocks; ++k) {
      if (IsConstant(cameras, residuals.blocks[0].BlockOf(k)) &&
          IsConstant(of_points, residuals.blocks[1].BlockOf(k))) {
        return false;
      }
    }
  }
  return true;
}

bool ArrayImport::HasColumns(std::string* reason) const {
  int64_t num_columns = rows_->num_columns();
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

ArrayImport::Family ArrayImport::FindFamily(int array) const {
  const Parameters& p = parameters(array);
  Family family{rows_->PlacesOf(array), {}};
  const int32_t num_varying = rows_->NumVarying(array);
  const auto add = [&](int64_t block) {
    if (family.place[block] == kNone) {
      family.place[block] =
          num_varying + static_cast<int32_t>(family.constants.size());
      family.constants.push_back(static_cast<int32_t>(block));
    }
  };
  if (family.place.empty()) {
    return family;
  }
  if (communicator_ != nullptr && !p.is_own) {
    // All ranks have the same.
    for (int64_t block = 0; block < p.num_blocks; ++block) {
      add(block);
    }
    return family;
  }
  // Constant blocks in the order in which residual blocks name them.
  for (const Residuals& residuals : problem_->residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      for (int64_t k = 0; MayBeConstant(p) && index.parameters == array &&
                          k < residuals.num_blocks;
           ++k) {
        add(index.BlockOf(k));
      }
    }
  }
  return family;
}

void ArrayImport::FillTable(int array,
                            const Family& family,
                            kernels::HostContext* context,
                            BlockTable* table) const {
  const Parameters& p = parameters(array);
  table->ambient_size = p.size;
  table->padded_size = p.size;
  const int32_t num_varying = rows_->NumVarying(array);
  const int32_t first = rows_->FirstIndex(array);
  if (family.constants.empty() && p.manifold == nullptr &&
      p.manifolds == nullptr && num_varying > 0) {
    const VaryingBlock block = rows_->block(first);
    table->SetUniform(num_varying, block.state_offset, block.tangent_offset);
    return;
  }
  table->Resize(num_varying + static_cast<int32_t>(family.constants.size()));
  context->ParallelFor(
      table->size(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<int32_t>(begin); i < end; ++i) {
          BlockTable::Entry entry;
          if (i < num_varying) {
            entry = EntryOf(rows_->block(first + i));
          } else {
            entry.constant_value =
                p.values + int64_t{family.constants[i - num_varying]} * p.size;
          }
          table->Set(i, entry);
        }
      });
}

void ArrayImport::ReadPlaces(const ArrayProblem::Index& index,
                             const Family& family,
                             int64_t num_rows,
                             kernels::HostContext* context,
                             InputArray<int32_t>* ids) const {
  const std::vector<int32_t>& place = family.place;
  if (place.empty() && index.block != nullptr) {
    ids->Refer(num_rows, index.block, index.on_device);
    return;
  }
  if (!ids->Allocate(num_rows).ok()) {
    throw std::bad_alloc();  // Nothing else would fit either.
  }
  context->ParallelFor(
      num_rows, kArrayRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          const int64_t block = index.BlockOf(k);
          ids->own_data()[k] =
              place.empty() ? static_cast<int32_t>(block) : place[block];
        }
      });
}

void ArrayImport::Complete(ProblemStructure* structure) {
  if (communicator_ != nullptr) {
    rows_->FindRanges(
        OwnArray(), &structure->own_state, &structure->own_columns);
  }
  structure->bounds = rows_->FindBounds();
  is_constrained_ = !structure->bounds.index.empty();
  if (communicator_ != nullptr) {
    const uint8_t mine = is_constrained_ ? 1 : 0;
    const std::vector<uint8_t> all = Gather(&mine, 1, communicator_);
    is_constrained_ = std::count(all.begin(), all.end(), 1) > 0;
  }
  structure->is_constrained = is_constrained_;
  caller_state_.Clear();
  rows_->AddTo(&caller_state_);
  structure->caller_state = &caller_state_;
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
  Complete(structure);
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
                                   bool takes_private,
                                   int* num_eliminate_blocks,
                                   std::string* note,
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
  const bool is_wide =
      array >= 0 && MaxTangentSize(parameters(array)) > max_size;
  if (is_wide && rows_->NumVarying(array) > 0) {
    *note = "blocks of the array with is_eliminated have more than " +
            std::to_string(max_size) +
            " tangent dimensions, and it is not eliminated";
  }
  if (array < 0 || rows_->NumVarying(array) == 0 || is_wide) {
    array = rows_->size() >= kManyRows
                ? rows_->IndependentArray(kPointSize, takes_private)
                : -1;
  }
  if (array >= 0) {
    *num_eliminate_blocks = rows_->NumVarying(array);
    rows_->OrderFirst(array);
    return true;
  }
  rows_->Order({});
  rows_->ReadBlocks(context);
  std::vector<uint8_t> is_eliminated;
  if (takes_private) {
    is_eliminated = ChooseBesidePrivate(*rows_, {}, context);
  }
  if (is_eliminated.empty()) {
    is_eliminated = ChooseIndependentSet(*rows_, max_size);
  }
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
  rows_->NumberBlocks(facts_, context);
  if (!HasColumns(reason)) {
    return false;
  }
  structure->num_columns = rows_->num_columns();
  structure->num_parameters = rows_->num_parameters();
  Complete(structure);

  // All rows have one array of points.
  int point_array = kNone;
  Family points;
  for (const auto kind :
       {BatchModelKind::kBalAngleAxis, BatchModelKind::kBalQuaternion}) {
    for (size_t r = 0; r < problem_->residuals().size(); ++r) {
      const Residuals& residuals = problem_->residuals()[r];
      const int64_t n = residuals.num_blocks;
      if (n == 0 || KindOf(static_cast<int>(r)) != kind) {
        continue;
      }
      if (point_array == kNone) {
        point_array = residuals.blocks[1].parameters;
        points = FindFamily(point_array);
      }
      const int camera_array = residuals.blocks[0].parameters;
      const Family cameras = FindFamily(camera_array);
      ObservationTable rows;
      rows.kind = kind;
      rows.camera_family = static_cast<int>(structure->f.size());
      structure->num_residuals += static_cast<int>(2 * n);
      ReadPlaces(residuals.blocks[0], cameras, n, context, &rows.camera_id);
      ReadPlaces(residuals.blocks[1], points, n, context, &rows.point_id);
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
      FillTable(camera_array, cameras, context, table);
      // Columns that the kernels are compiled for.
      table->padded_size =
          table->MaxTangentSize() <= 9 ? 9 : kernels::kMaxCameraColumns;
      structure->observations.push_back(std::move(rows));
    }
  }
  if (is_on_device() && facts_[point_array].is_known) {
    structure->num_couplings = facts_[point_array].num_couplings;
  }
  FillTable(point_array, points, context, &structure->e.emplace_back());
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
    rows_->ForEachBlock(static_cast<int>(array),
                        [&](int64_t block, int column) {
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
  rows_->ForEachBlock(array, [&](int64_t block, int column) {
    (*of_blocks)[static_cast<size_t>(block)] = column;
  });
}

void ArrayImport::FillSummary(ceres::Solver::Summary* summary) const {
  int* const counts[] = {&summary->num_parameter_blocks,
                         &summary->num_parameters,
                         &summary->num_effective_parameters,
                         &summary->num_parameter_blocks_reduced,
                         &summary->num_parameters_reduced,
                         &summary->num_effective_parameters_reduced,
                         &summary->num_residual_blocks,
                         &summary->num_residuals,
                         &summary->num_residual_blocks_reduced,
                         &summary->num_residuals_reduced};
  // Blocks and rows that this rank alone has, and those that all have.
  std::vector<double> own(std::size(counts), 0.0);
  std::vector<double> common = own;
  for (const Parameters& p : problem_->parameters()) {
    std::vector<double>& sums =
        communicator_ != nullptr && p.is_own ? own : common;
    const int64_t n = p.num_blocks;
    sums[0] += static_cast<double>(n);
    sums[1] += static_cast<double>(n * p.size);
    sums[2] += p.manifolds != nullptr
                   ? 0.0
                   : static_cast<double>(n * TangentSize(p, 0));
    for (int64_t b = 0; p.manifolds != nullptr && b < n; ++b) {
      sums[2] += TangentSize(p, b);
    }
  }
  common[3] = rows_->num_blocks();
  common[4] = rows_->num_parameters();
  common[5] = rows_->num_columns();
  if (communicator_ != nullptr) {
    ProblemStructure::Range state;
    ProblemStructure::Range columns;
    rows_->FindRanges(OwnArray(), &state, &columns);
    own[3] = rows_->NumVarying(OwnArray());
    own[4] = state.end - state.begin;
    own[5] = columns.end - columns.begin;
    for (int i = 3; i < 6; ++i) {
      common[i] -= own[i];
    }
  }
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const int64_t n = problem_->residuals()[r].num_blocks;
    const ceres::CostFunction* const typical =
        rows_->cost_function(static_cast<int>(r));
    own[6] += static_cast<double>(n);
    own[7] += n > 0 ? static_cast<double>(n * typical->num_residuals()) : 0.0;
  }
  own[8] = static_cast<double>(num_rows_);
  own[9] = num_residuals_;
  if (communicator_ != nullptr) {
    std::vector<double> sums = own;
    std::vector<double> scratch;
    if (kernels::SumOverRanks(static_cast<int64_t>(sums.size()),
                              sums.data(),
                              &scratch,
                              communicator_)
            .ok()) {
      own = sums;  // Otherwise the numbers are those of this rank.
    }
  }
  for (size_t i = 0; i < own.size(); ++i) {
    *counts[i] = static_cast<int>(
        std::min<double>(own[i] + common[i], std::numeric_limits<int>::max()));
  }
  summary->linear_solver_ordering_used = {
      summary->num_parameter_blocks_reduced};
}

}  // namespace ceres_ext
