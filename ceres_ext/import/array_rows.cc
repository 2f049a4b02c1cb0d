// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/array_rows.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/ceres_row.h"
#include "ceres_ext/import/gather.h"

namespace ceres_ext {
int TangentSize(const ArrayProblem::Parameters& parameters, int64_t block) {
  const ceres::Manifold* const manifold = parameters.ManifoldOf(block);
  return manifold == nullptr ? parameters.size : manifold->TangentSize();
}

int MaxTangentSize(const ArrayProblem::Parameters& parameters) {
  if (parameters.manifolds == nullptr) {
    return TangentSize(parameters, 0);
  }
  int most = 0;
  for (int64_t block = 0; block < parameters.num_blocks; ++block) {
    most = std::max(most, TangentSize(parameters, block));
  }
  return most;
}

bool MayBeConstant(const ArrayProblem::Parameters& parameters) {
  return parameters.is_constant != nullptr || parameters.manifold != nullptr ||
         parameters.manifolds != nullptr;
}

bool IsConstant(const ArrayProblem::Parameters& parameters, int64_t block) {
  return (parameters.is_constant != nullptr &&
          parameters.is_constant[block] != 0) ||
         TangentSize(parameters, block) == 0;
}

int EliminatedArray(const ArrayProblem& problem) {
  const auto& all = problem.parameters();
  const auto found = std::find_if(
      all.begin(), all.end(), [](const ArrayProblem::Parameters& p) {
        return p.is_eliminated;
      });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

std::vector<uint8_t> FindUsed(const ArrayProblem& problem,
                              int array,
                              kernels::HostContext* context,
                              kernels::Communicator* communicator) {
  std::vector<uint8_t> is_used(problem.parameters()[array].num_blocks, 0);
  for (const ArrayProblem::Residuals& residuals : problem.residuals()) {
    for (const ArrayProblem::Index& index : residuals.blocks) {
      if (index.parameters != array) {
        continue;
      }
      context->ParallelFor(
          residuals.num_blocks,
          kArrayRowsPerTask,
          [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) {
              const int64_t block = index.BlockOf(k);
              // Written once, so that threads share the line.
              if (__atomic_load_n(&is_used[block], __ATOMIC_RELAXED) == 0) {
                __atomic_store_n(&is_used[block], 1, __ATOMIC_RELAXED);
              }
            }
          });
    }
  }
  if (communicator == nullptr || problem.parameters()[array].is_own) {
    return is_used;
  }
  const size_t n = is_used.size();
  const std::vector<uint8_t> of_all = Gather(is_used.data(), n, communicator);
  for (size_t i = 0; i < of_all.size(); ++i) {
    is_used[i % n] |= of_all[i];
  }
  return is_used;
}

std::unique_ptr<ceres::CostFunction> MakeTypicalCostFunction(
    const ArrayProblem::Residuals& residuals) {
  if (!residuals.constants_on_device) {
    return std::unique_ptr<ceres::CostFunction>(
        residuals.make_cost_function(residuals.constants));
  }
  // Aligned for any type.
  const size_t n = sizeof(std::max_align_t);
  const std::vector<std::max_align_t> zeros(
      static_cast<size_t>(residuals.constants_bytes) / n + 1);
  return std::unique_ptr<ceres::CostFunction>(
      residuals.make_cost_function(zeros.data()));
}

ArrayRows::ArrayRows(const ArrayProblem* problem,
                     kernels::Communicator* communicator)
    : problem_(problem), communicator_(communicator) {
  for (const Residuals& residuals : problem->residuals()) {
    typical_.push_back(nullptr);
    if (residuals.num_blocks == 0) {
      continue;
    }
    if (residuals.cost_functions != nullptr) {
      typical_.back() = residuals.cost_functions[0];
      continue;
    }
    made_.push_back(MakeTypicalCostFunction(residuals));
    typical_.back() = made_.back().get();
  }
}

const ceres::CostFunction* CostFunctionOf(
    const ArrayProblem::Residuals& residuals,
    int64_t k,
    std::unique_ptr<const ceres::CostFunction>* owner) {
  if (residuals.cost_functions != nullptr) {
    return residuals.cost_functions[k];
  }
  owner->reset(residuals.make_cost_function(
      static_cast<const std::byte*>(residuals.constants) +
      k * residuals.constants_bytes));
  return owner->get();
}

void ArrayRows::Setup(kernels::HostContext* context) {
  NumberBlocks({}, context);
  FindRows(context);
  FindUniformRows();
}

void ArrayRows::NumberBlocks(const std::vector<DeviceArrayFacts>& facts,
                             kernels::HostContext* context) {
  const int num_arrays = static_cast<int>(problem_->parameters().size());
  index_.assign(num_arrays, Index());
  ForgetOrder();
  is_in_order_of_arrays_ = true;
  for (int i = 0; i < num_arrays; ++i) {
    const Parameters& p = parameters(i);
    const bool is_known = !facts.empty() && facts[i].is_known;
    const std::vector<uint8_t> is_used =
        is_known
            ? std::vector<uint8_t>(p.num_blocks, facts[i].are_all_used ? 1 : 0)
            : FindUsed(*problem_, i, context, communicator_);
    if (!MayBeConstant(p) &&
        std::find(is_used.begin(), is_used.end(), 0) == is_used.end()) {
      AppendAll(i);
      continue;
    }
    std::vector<int32_t> blocks;
    for (int64_t b = 0; b < p.num_blocks; ++b) {
      if (is_used[b] != 0 && !IsConstant(p, b)) {
        blocks.push_back(static_cast<int32_t>(b));
      }
    }
    Append(i, std::move(blocks));
  }
  FindUniformRows();
}

void ArrayRows::Append(int array, std::vector<int32_t> blocks) {
  const auto n = static_cast<int32_t>(blocks.size());
  if (n == parameters(array).num_blocks) {
    AppendAll(array);
    return;
  }
  Index& index = index_[array];
  if (index.of_block.empty()) {
    index.of_block.assign(parameters(array).num_blocks, BlockOfRow::kConstant);
  }
  AppendSegment(array, n, std::move(blocks));
}

void ArrayRows::AppendAll(int array) {
  index_[array] = {{}, num_blocks_};
  AppendSegment(array, static_cast<int32_t>(parameters(array).num_blocks), {});
}

void ArrayRows::AppendSegment(int array,
                              int32_t n,
                              std::vector<int32_t> blocks) {
  if (n == 0) {
    return;
  }
  const Parameters& p = parameters(array);
  Index& index = index_[array];
  Segment segment = {num_blocks_,
                     n,
                     array,
                     std::move(blocks),
                     num_parameters_,
                     num_columns_,
                     {}};
  for (int32_t i = 0; !segment.blocks.empty() && i < n; ++i) {
    index.of_block[segment.blocks[i]] = num_blocks_ + i;
  }
  num_blocks_ += n;
  num_parameters_ += n * p.size;
  if (p.manifolds == nullptr) {
    num_columns_ += n * TangentSize(p, 0);
  }
  for (int32_t i = 0; p.manifolds != nullptr && i < n; ++i) {
    segment.column_begin.push_back(num_columns_);
    num_columns_ += TangentSize(p, segment.Block(i));
  }
  segments_.push_back(std::move(segment));
}

void ArrayRows::ForgetOrder() {
  segments_.clear();
  num_blocks_ = num_columns_ = num_parameters_ = 0;
}

void ArrayRows::OrderFirst(int array) {
  std::vector<Segment> segments;
  segments.swap(segments_);
  ForgetOrder();
  is_in_order_of_arrays_ = false;
  std::stable_partition(
      segments.begin(), segments.end(), [array](const Segment& segment) {
        return segment.array == array;
      });
  for (Segment& segment : segments) {
    if (segment.blocks.empty()) {
      AppendAll(segment.array);
    } else {
      Append(segment.array, std::move(segment.blocks));
    }
  }
  FindUniformRows();
}

int ArrayRows::NumVarying(int array) const {
  int num_blocks = 0;
  for (const Segment& segment : segments_) {
    num_blocks += segment.array == array ? segment.num_blocks : 0;
  }
  return num_blocks;
}

int32_t ArrayRows::FirstIndex(int array) const {
  for (const Segment& segment : segments_) {
    if (segment.array == array) {
      return segment.index_begin;
    }
  }
  return 0;
}

std::vector<int32_t> ArrayRows::PlacesOf(int array) const {
  std::vector<int32_t> places = index_[array].of_block;
  const int32_t first = FirstIndex(array);
  for (int32_t& place : places) {
    place -= place == BlockOfRow::kConstant ? 0 : first;
  }
  return places;
}

void ArrayRows::FindRanges(int array,
                           ProblemStructure::Range* state,
                           ProblemStructure::Range* columns) const {
  *state = {};
  *columns = {};
  for (const Segment& segment : segments_) {
    if (segment.array == array) {
      const VaryingBlock last =
          block(segment.index_begin + segment.num_blocks - 1);
      *state = {segment.state_begin, last.state_offset + last.size};
      *columns = {segment.tangent_begin,
                  last.tangent_offset + last.tangent_size};
    }
  }
}

bool ArrayRows::IsPrivate(int array) const {
  if (parameters(array).size != 1) {
    return false;
  }
  int64_t num_rows = 0;
  for (const Group& group : groups_) {
    for (const ArrayProblem::Index& index : group.residuals->blocks) {
      num_rows += index.parameters == array ? group.num_rows : 0;
    }
  }
  return num_rows > 0 && num_rows <= parameters(array).num_blocks;
}

int ArrayRows::IndependentArray(int max_size, bool skips_private) const {
  const auto num_arrays = static_cast<int>(index_.size());
  int64_t num_blocks = num_blocks_;
  std::vector<bool> is_private(index_.size(), false);
  for (int array = 0; skips_private && array < num_arrays; ++array) {
    if (IsPrivate(array)) {
      is_private[static_cast<size_t>(array)] = true;
      num_blocks -= NumVarying(array);
    }
  }
  for (int array = 0; array < num_arrays; ++array) {
    if (is_private[static_cast<size_t>(array)] ||
        2 * int64_t{NumVarying(array)} <= num_blocks) {
      continue;
    }
    const bool is_independent = std::all_of(
        groups_.begin(), groups_.end(), [array](const Group& group) {
          const auto& blocks = group.residuals->blocks;
          return std::count_if(blocks.begin(),
                               blocks.end(),
                               [array](const ArrayProblem::Index& index) {
                                 return index.parameters == array;
                               }) <= 1;
        });
    return is_independent && parameters(array).size <= max_size ? array : -1;
  }
  return -1;
}

void ArrayRows::Order(const std::vector<uint8_t>& is_first) {
  if (is_first.empty() && is_in_order_of_arrays_) {
    return;
  }
  // For each parameter array, the blocks that come first and the others.
  std::vector<std::vector<int32_t>> parts[2];
  for (auto& part : parts) {
    part.resize(index_.size());
  }
  for (const Segment& segment : segments_) {
    for (int32_t i = 0; i < segment.num_blocks; ++i) {
      const bool first =
          !is_first.empty() && is_first[segment.index_begin + i] != 0;
      parts[first ? 0 : 1][segment.array].push_back(segment.Block(i));
    }
  }
  ForgetOrder();
  is_in_order_of_arrays_ = is_first.empty();
  for (auto& part : parts) {
    for (size_t array = 0; array < part.size(); ++array) {
      std::sort(part[array].begin(), part[array].end());
      if (!part[array].empty()) {
        Append(static_cast<int>(array), std::move(part[array]));
      }
    }
  }
  FindUniformRows();
}

void ArrayRows::FindUniformRows() {
  std::vector<UniformRows>* const all = mutable_uniform_rows();
  all->clear();
  for (const Group& group : groups_) {
    const Residuals& residuals = *group.residuals;
    const auto& blocks = residuals.blocks;
    const auto is_uniform = [this](const ArrayProblem::Index& index) {
      const Parameters& p = parameters(index.parameters);
      return !index.on_device && p.manifold == nullptr &&
             p.manifolds == nullptr &&
             index_[index.parameters].of_block.empty();
    };
    if (!group.kept.empty() || !residuals.constants_are_of_model ||
        residuals.constants_bytes % 8 != 0 || residuals.constants_on_device ||
        residuals.weights_on_device ||
        !std::all_of(blocks.begin(), blocks.end(), is_uniform)) {
      continue;
    }
    UniformRows rows;
    rows.begin = group.row_begin;
    rows.end = group.row_begin + group.num_rows;
    for (const ArrayProblem::Index& index : blocks) {
      const Parameters& p = parameters(index.parameters);
      rows.slots.push_back({index.block,
                            index_[index.parameters].index_begin,
                            static_cast<int32_t>(p.num_blocks),
                            p.size});
    }
    rows.loss = residuals.loss;
    rows.weights = residuals.weights;
    rows.constants = residuals.constants;
    rows.constants_bytes = residuals.constants_bytes;
    all->push_back(std::move(rows));
  }
}

void ArrayRows::FindRows(kernels::HostContext* context) {
  groups_.clear();
  num_rows_ = 0;
  num_residuals_ = 0;
  has_weights_ = false;
  int64_t number = 0;
  for (size_t r = 0; r < problem_->residuals().size(); ++r) {
    const Residuals& residuals = problem_->residuals()[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    Group group;
    group.row_begin = num_rows_;
    group.number_begin = number;
    group.residuals = &residuals;
    group.typical = typical_[r];
    group.num_residuals = group.typical->num_residuals();
    number += residuals.num_blocks;
    // True if residual block k is a row.
    const auto varies = [&](int64_t k) {
      return std::any_of(residuals.blocks.begin(),
                         residuals.blocks.end(),
                         [&](const ArrayProblem::Index& index) {
                           return !BlockOf(index, k).is_constant();
                         });
    };
    const bool all_may_be_constant =
        std::all_of(residuals.blocks.begin(),
                    residuals.blocks.end(),
                    [this](const ArrayProblem::Index& index) {
                      return !index_[index.parameters].of_block.empty();
                    });
    std::atomic<bool> all_vary{true};
    if (all_may_be_constant) {
      context->ParallelFor(residuals.num_blocks,
                           kArrayRowsPerTask,
                           [&](int64_t begin, int64_t end) {
                             for (int64_t k = begin; k < end && all_vary; ++k) {
                               if (!varies(k)) {
                                 all_vary = false;
                               }
                             }
                           });
    }
    for (int64_t k = 0; !all_vary && k < residuals.num_blocks; ++k) {
      if (varies(k)) {
        group.kept.push_back(static_cast<int32_t>(k));
      }
    }
    group.num_rows = all_vary ? residuals.num_blocks
                              : static_cast<int64_t>(group.kept.size());
    num_rows_ += group.num_rows;
    num_residuals_ += static_cast<int>(group.num_rows * group.num_residuals);
    has_weights_ |= residuals.weights != nullptr;
    groups_.push_back(std::move(group));
  }
}

bool ArrayRows::Evaluate(const Residuals& residuals,
                         int64_t k,
                         bool apply_loss,
                         CeresRow* evaluation,
                         double* cost,
                         double* values) const {
  evaluation->Clear();
  for (const ArrayProblem::Index& index : residuals.blocks) {
    const Parameters& p = parameters(index.parameters);
    evaluation->Add(
        p.values + index.BlockOf(k) * p.size, p.size, p.size, nullptr);
  }
  std::unique_ptr<const ceres::CostFunction> owner;
  return evaluation->Evaluate(*CostFunctionOf(residuals, k, &owner),
                              LossOf(residuals, k),
                              apply_loss,
                              cost,
                              values,
                              nullptr);
}

bool ArrayRows::FixedCost(bool apply_loss, double* cost) const {
  *cost = 0.0;
  CeresRow evaluation;
  for (const Group& group : groups_) {
    const Residuals& residuals = *group.residuals;
    if (group.num_rows == residuals.num_blocks) {
      continue;
    }
    size_t next = 0;  // of those kept
    for (int64_t k = 0; k < residuals.num_blocks; ++k) {
      if (next < group.kept.size() && group.kept[next] == k) {
        ++next;
        continue;
      }
      double of_one = 0.0;
      if (!Evaluate(residuals, k, apply_loss, &evaluation, &of_one, nullptr)) {
        return false;
      }
      *cost += of_one;
    }
  }
  return true;
}

bool ArrayRows::AllResiduals(bool apply_loss,
                             kernels::HostContext* context,
                             std::vector<double>* values,
                             std::string* error) const {
  constexpr int64_t kRowsPerEvaluation = 1 << 10;
  values->clear();
  for (size_t r = 0; r < typical_.size(); ++r) {
    if (typical_[r] == nullptr) {
      continue;
    }
    const Residuals& residuals = problem_->residuals()[r];
    const int64_t n = residuals.num_blocks;
    const int size = typical_[r]->num_residuals();
    const size_t begin_of_array = values->size();
    values->resize(begin_of_array + n * size);
    double* const to = values->data() + begin_of_array;
    std::atomic<int64_t> first_bad{n};
    context->ParallelFor(
        n, kRowsPerEvaluation, [&](int64_t begin, int64_t end) {
          CeresRow evaluation;
          double cost = 0.0;
          std::string what;
          int64_t k = begin;
          while (k < end && Succeeds(
                                [&] {
                                  return Evaluate(residuals,
                                                  k,
                                                  apply_loss,
                                                  &evaluation,
                                                  &cost,
                                                  to + k * size);
                                },
                                &what)) {
            ++k;
          }
          int64_t known = first_bad;
          while (k < end && k < known &&
                 !first_bad.compare_exchange_weak(known, k)) {
          }
        });
    if (first_bad < n) {
      *error = "residuals[" + std::to_string(r) + "]: residual block " +
               std::to_string(first_bad) + " can't be evaluated";
      return false;
    }
  }
  return true;
}

void ArrayRows::AddTo(CallerState* caller_state) const {
  for (const Segment& segment : segments_) {
    const Parameters& p = parameters(segment.array);
    caller_state->Add(
        p.values, p.size, p.num_blocks, segment.blocks, p.on_device);
  }
}

StateBounds ArrayRows::FindBounds() const {
  StateBounds bounds;
  for (const Segment& segment : segments_) {
    const Parameters& p = parameters(segment.array);
    for (int32_t i = 0; p.MayHaveBounds() && i < segment.num_blocks; ++i) {
      const int64_t block = segment.Block(i);
      for (int j = 0; j < p.size; ++j) {
        if (p.IsBounded(block, j)) {
          bounds.Add(segment.state_begin + i * p.size + j,
                     p.LowerBoundOf(block, j),
                     p.UpperBoundOf(block, j));
        }
      }
    }
  }
  return bounds;
}

VaryingBlock ArrayRows::block(int32_t index) const {
  const auto next = std::upper_bound(segments_.begin(),
                                     segments_.end(),
                                     index,
                                     [](int32_t i, const Segment& segment) {
                                       return i < segment.index_begin;
                                     });
  const Segment& segment = *std::prev(next);
  const Parameters& p = parameters(segment.array);
  const int32_t i = index - segment.index_begin;
  const int64_t block = segment.Block(i);
  const int tangent_size = TangentSize(p, block);
  return {segment.state_begin + i * p.size,
          segment.column_begin.empty()
              ? segment.tangent_begin + i * tangent_size
              : segment.column_begin[i],
          p.size,
          tangent_size,
          p.ManifoldOf(block)};
}

const ArrayRows::Group& ArrayRows::GroupOf(int64_t row) const {
  const auto next = std::upper_bound(
      groups_.begin(), groups_.end(), row, [](int64_t i, const Group& group) {
        return i < group.row_begin;
      });
  return *std::prev(next);
}

BlockOfRow ArrayRows::BlockOf(const ArrayProblem::Index& index,
                              int64_t k) const {
  const int64_t block = index.BlockOf(k);
  const int32_t i = index_[index.parameters].Of(block);
  const Parameters& p = parameters(index.parameters);
  return i == BlockOfRow::kConstant ? BlockOfRow{i, p.values + block * p.size}
                                    : BlockOfRow{i, nullptr};
}

LossOfRow ArrayRows::LossOf(const Residuals& residuals, int64_t k) {
  return {residuals.loss,
          residuals.weights == nullptr ? nullptr : residuals.weights + k};
}

int ArrayRows::NumResiduals(int64_t row) const {
  return GroupOf(row).num_residuals;
}

int ArrayRows::NumBlocks(int64_t row) const {
  return static_cast<int>(GroupOf(row).residuals->blocks.size());
}

BlockOfRow ArrayRows::Block(int64_t row, int j) const {
  const Group& group = GroupOf(row);
  return BlockOf(group.residuals->blocks[j], group.ResidualBlock(row));
}

void ArrayRows::CopyBlocks(int64_t begin, int64_t end, int32_t* to) const {
  const Group* group = &GroupOf(begin);
  for (int64_t i = begin; i < end;) {
    const int64_t last = std::min(end, group->row_begin + group->num_rows);
    const auto& blocks = group->residuals->blocks;
    const auto num_blocks = static_cast<int64_t>(blocks.size());
    for (int64_t j = 0; j < num_blocks; ++j) {
      const ArrayProblem::Index& block = blocks[j];
      const Index& index = index_[block.parameters];
      for (int64_t k = i; k < last; ++k) {
        to[(k - i) * num_blocks + j] =
            index.Of(block.BlockOf(group->ResidualBlock(k)));
      }
    }
    to += (last - i) * num_blocks;
    i = last;
    ++group;
  }
}

LossOfRow ArrayRows::Loss(int64_t row) const {
  const Group& group = GroupOf(row);
  return LossOf(*group.residuals, group.ResidualBlock(row));
}

const ceres::CostFunction& ArrayRows::TypicalCostFunction(int64_t row) const {
  const Group& group = GroupOf(row);
  return group.residuals->cost_functions == nullptr
             ? *group.typical
             : *group.residuals->cost_functions[group.ResidualBlock(row)];
}

const ceres::CostFunction* ArrayRows::CostFunction(
    int64_t row, std::unique_ptr<const ceres::CostFunction>* owner) const {
  const Group& group = GroupOf(row);
  return CostFunctionOf(*group.residuals, group.ResidualBlock(row), owner);
}

void ArrayRows::CopyConstants(int64_t row, void* constants) const {
  const Group& group = GroupOf(row);
  const Residuals& residuals = *group.residuals;
  const int64_t k = group.ResidualBlock(row);
  if (residuals.constants_are_of_model) {
    std::memcpy(constants,
                static_cast<const std::byte*>(residuals.constants) +
                    k * residuals.constants_bytes,
                residuals.constants_bytes);
    return;
  }
  std::unique_ptr<const ceres::CostFunction> owner;
  static_cast<const BatchableCostFunction*>(
      CostFunctionOf(residuals, k, &owner))
      ->CopyConstants(constants);
}

int64_t ArrayRows::Number(int64_t row) const {
  const Group& group = GroupOf(row);
  return group.number_begin + group.ResidualBlock(row);
}

bool HasDeviceArrays(const ArrayProblem& problem) {
  const auto& parameters = problem.parameters();
  const auto& residuals = problem.residuals();
  return std::any_of(
             parameters.begin(),
             parameters.end(),
             [](const ArrayProblem::Parameters& p) { return p.on_device; }) ||
         std::any_of(residuals.begin(),
                     residuals.end(),
                     [](const ArrayProblem::Residuals& r) {
                       return r.constants_on_device || r.weights_on_device ||
                              std::any_of(r.blocks.begin(),
                                          r.blocks.end(),
                                          [](const ArrayProblem::Index& index) {
                                            return index.on_device;
                                          });
                     });
}

}  // namespace ceres_ext
