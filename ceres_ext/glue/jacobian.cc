// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/jacobian.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ceres_ext/glue/machines.h"
#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// Ceres's matrices can't report an error.
void LogIfError(const Status& status) {
  LOG_IF(ERROR, !status.ok()) << status.message;
}

}  // namespace

template <typename Machine>
std::unique_ptr<ProgramJacobian<Machine>> ProgramJacobian<Machine>::Create(
    const ProgramBlocks<Machine>* blocks,
    std::vector<std::unique_ptr<RowsJacobian>> parts,
    Status* status) {
  std::unique_ptr<ProgramJacobian> jacobian(new ProgramJacobian(blocks));
  jacobian->parts_ = std::move(parts);
  Machine* machine = blocks->machine();
  *status = machine->Allocate(blocks->blocks().e.num_values(), &jacobian->e_);
  if (status->ok()) {
    *status = machine->Allocate(blocks->blocks().f.num_values(), &jacobian->f_);
  }
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <typename Machine>
std::vector<solver::Batch*> ProgramJacobian<Machine>::batches() const {
  std::vector<solver::Batch*> batches;
  for (const auto& part : parts_) {
    batches.push_back(part->batch());
  }
  return batches;
}

template <typename Machine>
template <typename Function>
void ProgramJacobian<Machine>::ForEachPart(Function&& fn) const {
  int64_t begin = 0;
  for (const auto& part : parts_) {
    LogIfError(fn(part.get(), begin));
    begin += part->batch()->num_residuals();
  }
}

// y += J x
template <typename Machine>
void ProgramJacobian<Machine>::RightMultiplyAndAccumulate(const double* x,
                                                          double* y) const {
  LogIfError(blocks_->Gather(x, 0.0, e_.data(), f_.data()));
  ForEachPart([&](RowsJacobian* part, int64_t begin) {
    return part->batch()->RightMultiply(
        e_.data(), f_.data(), /*accumulate=*/true, y + begin);
  });
}

// x += J' y
template <typename Machine>
void ProgramJacobian<Machine>::LeftMultiplyAndAccumulate(const double* y,
                                                         double* x) const {
  LogIfError(blocks_->Gather(x, 0.0, e_.data(), f_.data()));
  ForEachPart([&](RowsJacobian* part, int64_t begin) {
    return part->batch()->LeftMultiplyAndAccumulate(
        y + begin, e_.data(), f_.data());
  });
  LogIfError(blocks_->Scatter(e_.data(), f_.data(), x));
}

template <typename Machine>
void ProgramJacobian<Machine>::SquaredColumnNorm(double* x) const {
  LogIfError(blocks_->SetSharedToZero(e_.data(), f_.data()));
  ForEachPart([&](RowsJacobian* part, int64_t /*begin*/) {
    return part->batch()->SquaredColumnNorms(e_.data(), f_.data());
  });
  LogIfError(blocks_->Scatter(e_.data(), f_.data(), x));
}

// J = J diag(scale)
template <typename Machine>
void ProgramJacobian<Machine>::ScaleColumns(const double* scale) {
  LogIfError(blocks_->Gather(scale, 1.0, e_.data(), f_.data()));
  ForEachPart([&](RowsJacobian* part, int64_t /*begin*/) {
    return part->ScaleColumns(e_.data(), f_.data());
  });
}

template <typename Machine>
void ProgramJacobian<Machine>::SetZero() {
  ForEachPart(
      [](RowsJacobian* part, int64_t /*begin*/) { return part->SetZero(); });
}

template <typename Machine>
Status ProgramJacobian<Machine>::ForEachValue(
    const RowsJacobian::Visit& visit) const {
  int64_t begin = 0;
  for (const auto& part : parts_) {
    CERES_EXT_RETURN_IF_ERROR(
        part->ForEachValue([&](int64_t row, int column, double value) {
          visit(begin + row, column, value);
        }));
    begin += part->batch()->num_residuals();
  }
  return {};
}

template <typename Machine>
void ProgramJacobian<Machine>::ToDenseMatrix(
    ceres::Matrix* dense_matrix) const {
  *dense_matrix = ceres::Matrix::Zero(num_rows(), num_cols());
  LogIfError(ForEachValue([&](int64_t row, int column, double value) {
    (*dense_matrix)(row, column) = value;
  }));
}

template <typename Machine>
void ProgramJacobian<Machine>::ToTextFile(FILE* file) const {
  LogIfError(ForEachValue([&](int64_t row, int column, double value) {
    std::fprintf(
        file, "% 10d % 10d %17f\n", static_cast<int>(row), column, value);
  }));
}

template <typename Machine>
int ProgramJacobian<Machine>::num_nonzeros() const {
  int64_t sum = 0;
  for (const auto& part : parts_) {
    sum += part->num_nonzeros();
  }
  return static_cast<int>(
      std::min<int64_t>(sum, std::numeric_limits<int>::max()));
}

template <typename Machine>
int64_t ProgramJacobian<Machine>::bytes() const {
  int64_t sum = e_.bytes() + f_.bytes();
  for (const auto& part : parts_) {
    sum += part->bytes();
  }
  return sum;
}

#define CERES_EXT_INSTANTIATE(Machine) template class ProgramJacobian<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
