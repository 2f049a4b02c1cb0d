// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/covariance.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "Eigen/Core"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/under_ceres/covariance_setup.h"

namespace ceres_ext {
namespace {

using Matrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Pairs = std::vector<std::pair<const double*, const double*>>;

// Returns the options that a covariance supports.
Options OptionsOf(const CovarianceOptions& options) {
  Options result;
  result.device = options.ext.device;
  result.cuda_device = Attempt().Apply(options.ext).cuda_device;
  result.cuda_memory_limit_bytes = options.ext.cuda_memory_limit_bytes;
  result.schur_factorization = options.ext.schur_factorization;
  result.batch_evaluation = options.ext.batch_evaluation;
  result.fallback = options.ext.fallback;
  result.jacobian = JACOBIAN_STORED;
  return result;
}

}  // namespace

struct Covariance::Impl {
  explicit Impl(const CovarianceOptions& of_caller) : options(of_caller) {}

  // Adds to the request and sorts it for lookups: addresses ascend, and so do
  // pairs.
  void Add(const Pairs& pairs, const std::vector<const double*>& blocks) {
    const std::less<const double*> less;
    request.parameter_blocks = blocks;
    for (const auto& [left, right] : pairs) {
      request.parameter_blocks.push_back(left);
      request.parameter_blocks.push_back(right);
    }
    auto& all = request.parameter_blocks;
    std::sort(all.begin(), all.end(), less);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const auto& [left, right] : pairs) {
      const int32_t i = Find(left);
      const int32_t j = Find(right);
      request.pairs.emplace_back(std::min(i, j), std::max(i, j));
    }
    for (const double* block : blocks) {
      const int32_t i = Find(block);
      request.pairs.emplace_back(i, i);
    }
    std::sort(request.pairs.begin(), request.pairs.end());
    request.pairs.erase(std::unique(request.pairs.begin(), request.pairs.end()),
                        request.pairs.end());
  }
  static constexpr int64_t kMostPcgBlocks = 200;
  int64_t NumRightBlocks() const {
    std::vector<int32_t> right;
    for (const auto& pair : request.pairs) {
      right.push_back(pair.second);
    }
    std::sort(right.begin(), right.end());
    int64_t count = std::unique(right.begin(), right.end()) - right.begin();
    for (const int array : request.arrays) {
      count += arrays[static_cast<size_t>(array)].num_blocks;
    }
    return count;
  }
  // Number of a parameter block, or -1 if it was not asked for.
  int32_t Find(const double* block) const {
    const auto& all = request.parameter_blocks;
    const auto found = std::lower_bound(
        all.begin(), all.end(), block, std::less<const double*>());
    return found == all.end() || *found != block
               ? -1
               : static_cast<int32_t>(found - all.begin());
  }

  bool IsValid(std::string* message) const {
    std::string why;
    if (options.num_threads < 1) {
      *message = "CovarianceOptions::num_threads is " +
                 std::to_string(options.num_threads) + "; expected 1 or more.";
    } else if (!options.ext.IsValid(&why)) {
      *message = "CovarianceOptions::ext is not valid: " + why;
    } else if (options.ext.communicator != nullptr) {
      *message =
          "CovarianceOptions::ext.communicator is given, but a covariance is "
          "not computed by several ranks; expected null.";
    } else if (options.method < COVARIANCE_METHOD_AUTO ||
               options.method > COVARIANCE_METHOD_PCG) {
      *message = "CovarianceOptions::method is " +
                 std::to_string(static_cast<int>(options.method)) +
                 ", which is not a CovarianceMethod.";
    } else if (!(options.pcg_tolerance > 0.0 && options.pcg_tolerance < 1.0)) {
      *message = "CovarianceOptions::pcg_tolerance is " +
                 std::to_string(options.pcg_tolerance) +
                 "; expected a number above 0 and below 1.";
    } else if (options.max_num_pcg_iterations < 1) {
      *message = "CovarianceOptions::max_num_pcg_iterations is " +
                 std::to_string(options.max_num_pcg_iterations) +
                 "; expected 1 or more.";
    } else if (options.method == COVARIANCE_METHOD_PCG &&
               options.gauge == COVARIANCE_GAUGE_INNER) {
      *message =
          "CovarianceOptions::method is PCG, which has no inner constraints; "
          "expected another gauge or method.";
    } else if (options.gauge < COVARIANCE_GAUGE_AS_GIVEN ||
               options.gauge > COVARIANCE_GAUGE_DAMPED) {
      *message = "CovarianceOptions::gauge is " +
                 std::to_string(static_cast<int>(options.gauge)) +
                 ", which is not a CovarianceGauge.";
    } else if (options.scale < COVARIANCE_SCALE_A_PRIORI ||
               options.scale > COVARIANCE_SCALE_A_POSTERIORI) {
      *message = "CovarianceOptions::scale is " +
                 std::to_string(static_cast<int>(options.scale)) +
                 ", which is not a CovarianceScale.";
    } else if (options.gauge != COVARIANCE_GAUGE_DAMPED &&
               !options.damping.empty()) {
      *message = "CovarianceOptions::damping needs gauge = DAMPED.";
    } else if (!std::all_of(
                   options.damping.begin(),
                   options.damping.end(),
                   [](double d) { return std::isfinite(d) && d >= 0.0; })) {
      *message =
          "CovarianceOptions::damping has a value that is not finite or below "
          "zero.";
    } else {
      return true;
    }
    return false;
  }

  template <typename Problem>
  bool Compute(const Pairs& pairs,
               const std::vector<const double*>& blocks,
               const std::vector<int>& whole_arrays,
               bool refuses_unused,
               Problem&& problem) {
    const auto start = std::chrono::steady_clock::now();
    request = {};
    result = {};
    summary = {};
    error.clear();
    has_result = false;
    Failure failure;
    has_result = failure.Guard(false, [&] {
      if (!IsValid(&error)) {
        return false;
      }
      request.asked = options;
      request.options = OptionsOf(options);
      request.refuses_unused = refuses_unused;
      request.arrays = whole_arrays;
      Add(pairs, blocks);
      request.may_use_pcg = options.method == COVARIANCE_METHOD_AUTO &&
                            options.gauge != COVARIANCE_GAUGE_INNER &&
                            NumRightBlocks() <= kMostPcgBlocks;
      const BorrowedMachines kept(request.options);
      if constexpr (std::is_same_v<std::decay_t<Problem>, ArrayProblem>) {
        if (!IsValidProblem(
                problem, kept->host_context(options.num_threads), &error)) {
          return false;
        }
      }
      return ComputeCovariance(request, problem, kept.get(), &result, &error) &&
             Scale();
    });
    if (failure.has_happened()) {
      AssignOrShorten(failure.sentence(), &error);
    }
    summary.total_time_in_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    return has_result;
  }

  bool Scale() {
    const CovarianceFound& found = result.found;
    summary = found;
    summary.redundancy = found.num_residuals -
                         (found.num_columns - found.num_free_directions) +
                         result.num_damped;
    if (options.scale == COVARIANCE_SCALE_A_POSTERIORI) {
      if (summary.redundancy <= 0) {
        error = "There is no scale a posteriori, since the redundancy is " +
                std::to_string(summary.redundancy) + ".";
        return false;
      }
      summary.variance_factor =
          2.0 * found.cost / static_cast<double>(summary.redundancy);
      for (double& value : result.found.values) {
        value *= summary.variance_factor;
      }
    }
    const auto& values = result.found.values;
    if (!std::all_of(values.begin(), values.end(), [](double value) {
          return std::isfinite(value);
        })) {
      error = "The covariance is not finite.";
      return false;
    }
    return true;
  }

  // Gets the block of two parameter blocks in the tangent spaces, or lifted.
  // False if it was not computed.
  bool Get(const double* first,
           const double* second,
           bool lift,
           Matrix* block) const {
    const int32_t i = Find(first);
    const int32_t j = Find(second);
    const std::pair<int32_t, int32_t> pair(std::min(i, j), std::max(i, j));
    const auto at =
        std::lower_bound(request.pairs.begin(), request.pairs.end(), pair);
    if (!has_result || pair.first < 0 || at == request.pairs.end() ||
        *at != pair) {
      const ArrayProblem::Parameters* p = nullptr;
      int64_t place = 0;
      const bool is_found =
          has_result && first == second && FindInArray(first, &p, &place);
      if (is_found) {
        block->resize(p->size, p->size);
        CopyValues(place, block->size(), block->data());
      }
      return is_found;
    }
    const auto& left = result.blocks[static_cast<size_t>(pair.first)];
    const auto& right = result.blocks[static_cast<size_t>(pair.second)];
    Matrix tangent(left.tangent_size, right.tangent_size);
    CopyValues(result.place[static_cast<size_t>(at - request.pairs.begin())],
               tangent.size(),
               tangent.data());
    if (lift) {
      tangent = Lift(left, Lift(right, tangent.transpose()).transpose());
    }
    if (pair.first == i) {
      *block = tangent;
    } else {
      *block = tangent.transpose();
    }
    return true;
  }
  // Copies n values of a block, or the zeros or NaN of CovarianceResult::place.
  void CopyValues(int64_t place, int64_t n, double* to) const {
    if (place == CovarianceResult::kUnknown) {
      std::fill_n(to, n, std::numeric_limits<double>::quiet_NaN());
    } else if (place == CovarianceResult::kZero) {
      std::fill_n(to, n, 0.0);
    } else {
      std::copy_n(result.found.values.data() +
                      result.found.begin[static_cast<size_t>(place)],
                  n,
                  to);
    }
  }
  // Finds the array of request.arrays that has a block at these values, and the
  // block's place. False if there is none.
  bool FindInArray(const double* values,
                   const ArrayProblem::Parameters** p,
                   int64_t* place) const {
    const std::less<const double*> less;
    for (size_t k = 0; k < request.arrays.size(); ++k) {
      *p = &arrays[static_cast<size_t>(request.arrays[k])];
      const double* const begin = (*p)->values;
      const int size = (*p)->size;
      if (!less(values, begin) &&
          less(values, begin + (*p)->num_blocks * size) &&
          (values - begin) % size == 0) {
        *place = result.place_in_array[k][static_cast<size_t>((values - begin) /
                                                              size)];
        return true;
      }
    }
    return false;
  }
  // Size of a block, or of its tangent space; 0 if it was not asked for.
  int SizeOf(const double* values, bool lift) const {
    const int32_t i = Find(values);
    if (i >= 0) {
      const auto& block = result.blocks[static_cast<size_t>(i)];
      return lift ? block.size : block.tangent_size;
    }
    const ArrayProblem::Parameters* p = nullptr;
    int64_t place = 0;
    return FindInArray(values, &p, &place) ? p->size : 0;
  }
  static Matrix Lift(const CovarianceResult::Block& block, const Matrix& x) {
    if (block.tangent_size == 0) {
      return Matrix::Zero(block.size, x.cols());
    }
    if (block.plus_jacobian.empty()) {
      return x;
    }
    return Eigen::Map<const Matrix>(
               block.plus_jacobian.data(), block.size, block.tangent_size) *
           x;
  }

  bool GetBlock(const double* left,
                const double* right,
                bool lift,
                double* covariance) const {
    Failure ignored;
    return ignored.Guard(false, [&] {
      Matrix block;
      if (!Get(left, right, lift, &block)) {
        return false;
      }
      std::copy_n(block.data(), block.size(), covariance);
      return true;
    });
  }
  bool GetMatrix(const std::vector<const double*>& blocks,
                 bool lift,
                 Matrix* matrix) const {
    std::vector<Eigen::Index> begin = {0};
    for (const double* block : blocks) {
      begin.push_back(begin.back() + (has_result ? SizeOf(block, lift) : 0));
    }
    matrix->resize(begin.back(), begin.back());
    Matrix block;
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t j = 0; j < blocks.size(); ++j) {
        if (!Get(blocks[i], blocks[j], lift, &block)) {
          return false;
        }
        matrix->block(begin[i], begin[j], block.rows(), block.cols()) = block;
      }
    }
    return true;
  }
  bool GetMatrix(const std::vector<const double*>& blocks,
                 bool lift,
                 double* covariance) const {
    Failure ignored;
    return ignored.Guard(false, [&] {
      Matrix matrix;
      if (!GetMatrix(blocks, lift, &matrix)) {
        return false;
      }
      std::copy_n(matrix.data(), matrix.size(), covariance);
      return true;
    });
  }

  CovarianceOptions options;
  CovarianceRequest request;
  CovarianceResult result;
  CovarianceSummary summary;
  std::string error;
  bool has_result = false;
  // Parameter arrays of ComputeDiagonals; null if an array was not asked for.
  std::vector<ArrayProblem::Parameters> arrays;
};

namespace {

Pairs AllPairs(const std::vector<const double*>& blocks) {
  Pairs pairs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = i; j < blocks.size(); ++j) {
      pairs.emplace_back(blocks[i], blocks[j]);
    }
  }
  return pairs;
}

}  // namespace

Covariance::Covariance(const CovarianceOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
Covariance::~Covariance() = default;
Covariance::Covariance(Covariance&&) noexcept = default;
Covariance& Covariance::operator=(Covariance&&) noexcept = default;

bool Covariance::Compute(const Pairs& covariance_blocks,
                         ceres::Problem* problem) {
  impl_->arrays.clear();
  if (problem == nullptr) {
    impl_->has_result = false;
    impl_->error = "problem is null; expected a ceres::Problem.";
    return false;
  }
  return impl_->Compute(
      covariance_blocks, {}, {}, /*refuses_unused=*/true, problem);
}

bool Covariance::Compute(const std::vector<const double*>& parameter_blocks,
                         ceres::Problem* problem) {
  return Compute(AllPairs(parameter_blocks), problem);
}

bool Covariance::Compute(const Pairs& covariance_blocks,
                         const ArrayProblem& problem) {
  impl_->arrays.clear();
  return impl_->Compute(
      covariance_blocks, {}, {}, /*refuses_unused=*/true, problem);
}

bool Covariance::Compute(const std::vector<const double*>& parameter_blocks,
                         const ArrayProblem& problem) {
  return Compute(AllPairs(parameter_blocks), problem);
}

bool Covariance::ComputeDiagonals(const std::vector<int>& arrays,
                                  const Pairs& covariance_blocks,
                                  const ArrayProblem& problem) {
  impl_->arrays.assign(problem.parameters().size(), {});
  std::vector<const double*> blocks;
  std::vector<int> whole_arrays;
  for (const int array : arrays) {
    if (array < 0 || array >= static_cast<int>(problem.parameters().size())) {
      impl_->has_result = false;
      impl_->error = "There is no parameter array " + std::to_string(array) +
                     " among " + std::to_string(problem.parameters().size()) +
                     ".";
      return false;
    }
    const auto& p = problem.parameters()[static_cast<size_t>(array)];
    if (impl_->arrays[static_cast<size_t>(array)].values != nullptr) {
      continue;
    }
    impl_->arrays[static_cast<size_t>(array)] = p;
    if (p.manifold == nullptr && p.manifolds == nullptr) {
      whole_arrays.push_back(array);
      continue;
    }
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      blocks.push_back(p.values + i * p.size);
    }
  }
  return impl_->Compute(covariance_blocks,
                        blocks,
                        whole_arrays,
                        /*refuses_unused=*/false,
                        problem);
}

const std::string& Covariance::error() const { return impl_->error; }
const CovarianceSummary& Covariance::summary() const { return impl_->summary; }

bool Covariance::GetCovarianceBlock(const double* parameter_block1,
                                    const double* parameter_block2,
                                    double* covariance_block) const {
  return impl_->GetBlock(
      parameter_block1, parameter_block2, /*lift=*/true, covariance_block);
}

bool Covariance::GetCovarianceBlockInTangentSpace(
    const double* parameter_block1,
    const double* parameter_block2,
    double* covariance_block) const {
  return impl_->GetBlock(
      parameter_block1, parameter_block2, /*lift=*/false, covariance_block);
}

bool Covariance::GetCovarianceMatrix(
    const std::vector<const double*>& parameter_blocks,
    double* covariance_matrix) const {
  return impl_->GetMatrix(parameter_blocks, /*lift=*/true, covariance_matrix);
}

bool Covariance::GetCovarianceMatrixInTangentSpace(
    const std::vector<const double*>& parameter_blocks,
    double* covariance_matrix) const {
  return impl_->GetMatrix(parameter_blocks, /*lift=*/false, covariance_matrix);
}

bool Covariance::GetDiagonalBlocks(int array, double* covariance_blocks) const {
  if (array < 0 || array >= static_cast<int>(impl_->arrays.size()) ||
      impl_->arrays[static_cast<size_t>(array)].values == nullptr) {
    return false;
  }
  const auto& p = impl_->arrays[static_cast<size_t>(array)];
  if (!impl_->has_result) {
    return false;
  }
  const int64_t square = int64_t{p.size} * p.size;
  const auto& whole = impl_->request.arrays;
  const auto found = std::find(whole.begin(), whole.end(), array);
  if (found != whole.end()) {
    for (const int64_t place :
         impl_->result
             .place_in_array[static_cast<size_t>(found - whole.begin())]) {
      impl_->CopyValues(place, square, covariance_blocks);
      covariance_blocks += square;
    }
    return true;
  }
  Failure ignored;
  return ignored.Guard(false, [&] {
    Matrix block;
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      const double* const values = p.values + i * p.size;
      if (!impl_->Get(values, values, /*lift=*/true, &block)) {
        return false;
      }
      std::copy_n(block.data(), block.size(), covariance_blocks + i * square);
    }
    return true;
  });
}

bool Covariance::GetCovarianceOfFunction(
    const ceres::CostFunction& function,
    const std::vector<const double*>& parameter_blocks,
    double* covariance_matrix) const {
  Failure ignored;
  return ignored.Guard(false, [&] {
    const auto& sizes = function.parameter_block_sizes();
    const int num_residuals = function.num_residuals();
    Matrix covariance;
    if (sizes.size() != parameter_blocks.size() ||
        !impl_->GetMatrix(parameter_blocks, /*lift=*/true, &covariance)) {
      return false;
    }
    std::vector<Matrix> jacobians;
    std::vector<double*> addresses;
    Eigen::Index num_columns = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (impl_->SizeOf(parameter_blocks[i], /*lift=*/true) != sizes[i]) {
        return false;
      }
      jacobians.emplace_back(num_residuals, sizes[i]);
      num_columns += sizes[i];
    }
    addresses.reserve(jacobians.size());
    for (Matrix& jacobian : jacobians) {
      addresses.push_back(jacobian.data());
    }
    std::vector<double> residuals(static_cast<size_t>(num_residuals));
    if (!function.Evaluate(
            parameter_blocks.data(), residuals.data(), addresses.data())) {
      return false;
    }
    Matrix all(num_residuals, num_columns);
    Eigen::Index begin = 0;
    for (const Matrix& jacobian : jacobians) {
      all.middleCols(begin, jacobian.cols()) = jacobian;
      begin += jacobian.cols();
    }
    const Matrix result = all * covariance * all.transpose();
    Eigen::Map<Matrix>(covariance_matrix, num_residuals, num_residuals) =
        0.5 * (result + result.transpose());
    return true;
  });
}

}  // namespace ceres_ext
