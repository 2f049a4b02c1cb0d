// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/ceres_row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "ceres/parameter_block.h"
#include "ceres/residual_block.h"
#include "ceres_ext/base/loss_fault.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {
namespace {

// A loss that has a root of rho'; if it has none, s itself and a sentence in
// *fault.
class LossWithRoot final : public ceres::LossFunction {
 public:
  LossWithRoot(const ceres::LossFunction* loss, std::string* fault)
      : loss_(loss), fault_(fault) {}
  void Evaluate(double s, double* rho) const final {
    loss_->Evaluate(s, rho);
    if (!kernels::LossCorrector::HasRoot(rho)) {
      *fault_ = LossFault(*loss_, s, rho);
      rho[0] = s;
      rho[1] = 1.0;
      rho[2] = 0.0;
    }
  }

 private:
  const ceres::LossFunction* loss_;
  std::string* fault_;
};

}  // namespace

struct CeresRow::ParameterBlocks {
  std::vector<ceres::internal::ParameterBlock> blocks;
  std::vector<ceres::internal::ParameterBlock*> pointers;
};

CeresRow::CeresRow() : parameter_blocks_(std::make_unique<ParameterBlocks>()) {}
CeresRow::~CeresRow() = default;

void CeresRow::TangentCostFunction::Set(const ceres::CostFunction* inner) {
  inner_ = inner;
  set_num_residuals(inner->num_residuals());
  mutable_parameter_block_sizes()->clear();
  for (const Block& block : row_->blocks_) {
    mutable_parameter_block_sizes()->push_back(block.tangent_size);
  }
}

bool CeresRow::TangentCostFunction::Evaluate(double const* const* parameters,
                                             double* residuals,
                                             double** jacobians) const {
  const std::vector<Block>& blocks = row_->blocks_;
  const int m = num_residuals();
  // Values that are not written are found there.
  values_.assign(int64_t{m} * row_->num_values_,
                 std::numeric_limits<double>::quiet_NaN());
  jacobians_.assign(jacobians, jacobians + blocks.size());
  double* values = values_.data();
  for (size_t j = 0; j < blocks.size(); ++j) {
    if (jacobians[j] != nullptr && blocks[j].plus_jacobian != nullptr) {
      jacobians_[j] = values;
      values += int64_t{m} * blocks[j].size;
    }
  }
  if (!inner_->Evaluate(parameters, residuals, jacobians_.data())) {
    return false;
  }
  for (size_t j = 0; j < blocks.size(); ++j) {
    const auto [value, size, tangent_size, plus_jacobian] = blocks[j];
    double* const jacobian = jacobians_[j];
    if (jacobian == jacobians[j]) {
      continue;
    }
    if (!std::all_of(jacobian, jacobian + int64_t{m} * size, [](double x) {
          return std::isfinite(x);
        })) {
      // Ceres says so.
      std::fill_n(jacobians[j],
                  int64_t{m} * tangent_size,
                  std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int c = 0; c < tangent_size; ++c) {
        double sum = 0.0;
        for (int64_t k = 0; k < size; ++k) {
          sum += jacobian[i * size + k] * plus_jacobian[k * tangent_size + c];
        }
        jacobians[j][i * tangent_size + c] = sum;
      }
    }
  }
  return true;
}

void CeresRow::Clear() {
  blocks_.clear();
  has_manifold_ = false;
  num_values_ = 0;
}

void CeresRow::Add(const double* value,
                   int size,
                   int tangent_size,
                   const double* plus_jacobian) {
  blocks_.push_back({value, size, tangent_size, plus_jacobian});
  has_manifold_ |= plus_jacobian != nullptr;
  num_values_ += size;
}

bool CeresRow::Evaluate(const ceres::CostFunction& cost_function,
                        const LossOfRow& loss,
                        bool apply_loss,
                        double* cost,
                        double* residuals,
                        double** jacobians) {
  const bool by_tangents = has_manifold_ && jacobians != nullptr;
  if (by_tangents) {
    by_tangents_.Set(&cost_function);
  }
  auto& [blocks, pointers] = *parameter_blocks_;
  blocks.clear();
  for (const Block& block : blocks_) {
    // Ceres reads the value alone.
    blocks.emplace_back(const_cast<double*>(block.value),
                        by_tangents ? block.tangent_size : block.size,
                        static_cast<int>(blocks.size()));
  }
  pointers.clear();
  for (auto& block : blocks) {
    pointers.push_back(&block);
  }
  std::optional<ceres::ScaledLoss> scaled;
  if (loss.weight != nullptr) {
    scaled.emplace(loss.loss, *loss.weight, ceres::DO_NOT_TAKE_OWNERSHIP);
  }
  const ceres::LossFunction* const whole =
      scaled.has_value() ? &*scaled : loss.loss;
  loss_fault_.clear();
  const LossWithRoot with_root(whole, &loss_fault_);
  const bool corrects =
      whole != nullptr && (residuals != nullptr || jacobians != nullptr);
  const ceres::internal::ResidualBlock residual_block(
      by_tangents ? &by_tangents_ : &cost_function,
      corrects ? &with_root : whole,
      pointers,
      /*index=*/0);
  scratch_.resize(residual_block.NumResiduals());
  return residual_block.Evaluate(
             apply_loss, cost, residuals, jacobians, scratch_.data()) &&
         loss_fault_.empty();
}

}  // namespace ceres_ext
