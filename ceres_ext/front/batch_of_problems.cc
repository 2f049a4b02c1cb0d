// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/batch_of_problems.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/import/arrays_of_problem.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {
namespace {

// The number of a block among those of its role, by address.
int32_t NumberOf(const ceres::Problem& problem,
                 double* block,
                 std::unordered_map<const double*, int32_t>* numbers,
                 ReadProblem::Blocks* blocks) {
  const auto [entry, is_new] =
      numbers->try_emplace(block, static_cast<int32_t>(blocks->values.size()));
  if (is_new) {
    blocks->values.push_back(block);
    blocks->is_constant.push_back(problem.IsParameterBlockConstant(block) ? 1
                                                                          : 0);
    // Windows call no manifold.
    blocks->manifolds.push_back(
        const_cast<ceres::Manifold*>(problem.GetManifold(block)));
  }
  return entry->second;
}

// Reads one problem and returns the reason why it is not a window, or an empty
// string.
std::string ReadOne(const ceres::Problem& problem, ReadProblem* read) {
  if (problem.options().evaluation_callback != nullptr) {
    return "the problem has an evaluation callback";
  }
  std::vector<ceres::ResidualBlockId> rows;
  problem.GetResidualBlocks(&rows);
  std::unordered_map<const double*, int32_t> cameras;
  std::unordered_map<const double*, int32_t> points;
  std::vector<double*> blocks;
  for (const ceres::ResidualBlockId row : rows) {
    const auto* const batchable = dynamic_cast<const BatchableCostFunction*>(
        problem.GetCostFunctionForResidualBlock(row));
    const BatchModelKind kind = batchable == nullptr
                                    ? BatchModelKind::kOther
                                    : batchable->batch_model().kind;
    if (kind == BatchModelKind::kOther ||
        (read->kind != BatchModelKind::kOther && kind != read->kind)) {
      return "a list of ceres::Problems supports windows and fits of BAL "
             "reprojection errors of one kind alone; arrays (ProblemBatch) "
             "support others";
    }
    read->kind = kind;
    double observed[2];
    batchable->CopyConstants(observed);
    read->observed.insert(read->observed.end(), observed, observed + 2);
    problem.GetParameterBlocksForResidualBlock(row, &blocks);
    read->camera.push_back(
        NumberOf(problem, blocks[0], &cameras, &read->cameras));
    read->point.push_back(NumberOf(problem, blocks[1], &points, &read->points));
    read->losses.push_back(problem.GetLossFunctionForResidualBlock(row));
  }
  if (rows.empty()) {
    return "there are no residual blocks";
  }
  for (const auto& of_role : {read->cameras, read->points}) {
    for (const double* const block : of_role.values) {
      if (HasBounds(problem, block)) {
        return "a parameter block has bounds";
      }
    }
  }
  std::vector<kernels::RobustLoss> chains;
  std::vector<uint8_t> ids;
  std::vector<double> weights;
  return FindChains(read->losses, &chains, &ids, &weights) != nullptr
             ? "a loss function is user-defined"
             : "";
}

}  // namespace

void BatchOfKind::Parameters::Append(const ReadProblem::Blocks& blocks) {
  for (const double* const block : blocks.values) {
    values.insert(values.end(), block, block + size);
  }
  places.insert(places.end(), blocks.values.begin(), blocks.values.end());
  is_constant.insert(
      is_constant.end(), blocks.is_constant.begin(), blocks.is_constant.end());
  manifolds.insert(
      manifolds.end(), blocks.manifolds.begin(), blocks.manifolds.end());
  begin.push_back(static_cast<int64_t>(places.size()));
}

int BatchOfKind::Parameters::AddTo(ArrayProblem* problem) {
  ArrayProblem::Parameters all;
  all.values = values.data();
  all.num_blocks = begin.back();
  all.size = size;
  all.manifolds = manifolds.data();
  all.is_constant = is_constant.data();
  return problem->AddParameters(all);
}

void BatchOfKind::Parameters::Write(int64_t k) const {
  for (int64_t b = begin[k]; b < begin[k + 1]; ++b) {
    if (is_constant[b] == 0) {
      std::copy_n(values.begin() + b * size, size, places[b]);
    }
  }
}

BatchOfKind::BatchOfKind(const std::vector<ReadProblem>& problems,
                         const std::vector<int64_t>& numbers,
                         const std::vector<const ceres::LossFunction*>& losses,
                         const std::vector<uint8_t>& ids,
                         const std::vector<double>& weights)
    : numbers_(numbers) {
  const BatchModelKind kind = problems[numbers[0]].kind;
  cameras_.size = kind == BatchModelKind::kBalAngleAxis ? 9 : 10;
  points_.size = 3;
  std::vector<int> rows_of_id(256, -1);
  for (size_t k = 0; k < ids.size(); ++k) {
    if (rows_of_id[ids[k]] < 0) {
      rows_of_id[ids[k]] = static_cast<int>(rows_.size());
      rows_.emplace_back();
      // Neither this library nor a window changes it.
      rows_.back().loss = const_cast<ceres::LossFunction*>(
          weights.empty() ? losses[k] : WithoutScale(losses[k]).first);
    }
  }
  size_t at = 0;
  for (const int64_t i : numbers) {
    const ReadProblem& one = problems[i];
    const auto first_camera = static_cast<int32_t>(cameras_.begin.back());
    const auto first_point = static_cast<int32_t>(points_.begin.back());
    cameras_.Append(one.cameras);
    points_.Append(one.points);
    for (size_t k = 0; k < one.camera.size(); ++k, ++at) {
      Rows& rows = rows_[rows_of_id[ids[at]]];
      rows.observed.insert(rows.observed.end(),
                           one.observed.begin() + 2 * k,
                           one.observed.begin() + 2 * k + 2);
      rows.camera.push_back(first_camera + one.camera[k]);
      rows.point.push_back(first_point + one.point[k]);
      if (!weights.empty()) {
        rows.weights.push_back(weights[at]);
      }
    }
    for (Rows& rows : rows_) {
      rows.begin.push_back(static_cast<int64_t>(rows.camera.size()));
    }
  }
  const int c = cameras_.AddTo(&batch_.problem);
  const int p = points_.AddTo(&batch_.problem);
  batch_.num_problems = static_cast<int64_t>(numbers.size());
  batch_.parameter_begin = {cameras_.begin.data(), points_.begin.data()};
  for (Rows& rows : rows_) {
    const std::vector<ArrayProblem::Index> blocks = {{c, rows.camera.data()},
                                                     {p, rows.point.data()}};
    const double* const weights_of_rows =
        weights.empty() ? nullptr : rows.weights.data();
    if (cameras_.size == 9) {
      batch_.problem.AddResiduals<BalReprojectionError>(rows.begin.back(),
                                                        rows.observed.data(),
                                                        blocks,
                                                        rows.loss,
                                                        weights_of_rows);
    } else {
      batch_.problem.AddResiduals<BalQuaternionReprojectionError>(
          rows.begin.back(),
          rows.observed.data(),
          blocks,
          rows.loss,
          weights_of_rows);
    }
    batch_.residual_begin.push_back(rows.begin.data());
  }
}

void BatchOfKind::Write(int64_t k) const {
  cameras_.Write(k);
  points_.Write(k);
}

BatchOfProblems::BatchOfProblems(const std::vector<ceres::Problem*>* problems,
                                 kernels::HostContext* context)
    : problems_(*problems), read_(problems->size()), ranges_(problems->size()) {
  context->ParallelFor(static_cast<int64_t>(problems->size()),
                       1,
                       [this](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           if (problems_[i] != nullptr) {
                             Read(i);
                           }
                         }
                       });
}

void BatchOfProblems::Read(int64_t i) {
  const ceres::Problem& problem = *problems_[i];
  read_[i].reason = ReadOne(problem, &read_[i]);
  std::vector<double*> blocks;
  problem.GetParameterBlocks(&blocks);
  for (const double* const block : blocks) {
    ranges_[i].push_back({block,
                          block + problem.ParameterBlockSize(block),
                          i,
                          !problem.IsParameterBlockConstant(block)});
  }
}

bool BatchOfProblems::AreApart(std::string* error) const {
  std::vector<Range> all;
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (problems_[i] == nullptr) {
      *error = "problem " + std::to_string(i) + " is null";
      return false;
    }
    all.insert(all.end(), ranges_[i].begin(), ranges_[i].end());
  }
  const std::less<const double*> less;
  std::sort(all.begin(), all.end(), [&](const Range& a, const Range& b) {
    return a.begin != b.begin ? less(a.begin, b.begin) : a.problem < b.problem;
  });
  // Among the blocks that begin before the current one, the block that ends
  // last; the second one counts only blocks that are written.
  const Range* last = nullptr;
  const Range* last_written = nullptr;
  const auto overlaps = [&](const Range* before, const Range& range) {
    return before != nullptr && before->problem != range.problem &&
           less(range.begin, before->end);
  };
  const auto ends_later = [&](const Range* before, const Range& range) {
    return before == nullptr || less(before->end, range.end);
  };
  for (const Range& range : all) {
    const Range* const other = overlaps(last_written, range) ? last_written
                               : range.is_written && overlaps(last, range)
                                   ? last
                                   : nullptr;
    if (other != nullptr) {
      const int64_t a = std::min(other->problem, range.problem);
      const int64_t b = std::max(other->problem, range.problem);
      *error = "problems " + std::to_string(a) + " and " + std::to_string(b) +
               " share a parameter block that one of them would change; make "
               "it constant in both, or solve them one after the other";
      return false;
    }
    last = ends_later(last, range) ? &range : last;
    last_written = range.is_written && ends_later(last_written, range)
                       ? &range
                       : last_written;
  }
  return true;
}

std::unique_ptr<BatchOfKind> BatchOfProblems::Make(BatchModelKind kind) {
  std::vector<int64_t> numbers;
  std::vector<const ceres::LossFunction*> losses;
  for (size_t i = 0; i < read_.size(); ++i) {
    const ReadProblem& one = read_[i];
    if (one.reason.empty() && one.kind == kind) {
      numbers.push_back(static_cast<int64_t>(i));
      losses.insert(losses.end(), one.losses.begin(), one.losses.end());
    }
  }
  if (numbers.empty()) {
    return nullptr;
  }
  // Equal losses are one, whatever their objects.
  std::vector<kernels::RobustLoss> chains;
  std::vector<uint8_t> ids;
  std::vector<double> weights;
  if (FindChains(losses, &chains, &ids, &weights) != nullptr) {
    for (const int64_t i : numbers) {
      read_[i].reason = "there are too many different loss functions";
    }
    return nullptr;
  }
  return std::make_unique<BatchOfKind>(read_, numbers, losses, ids, weights);
}

}  // namespace ceres_ext
