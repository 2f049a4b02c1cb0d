// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/covariance_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <type_traits>
#include <utility>

#include "Eigen/Core"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/session/covariance_algebra.h"
#include "cuda_kernels/base/relative_pivot.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/covariance.h"

namespace ceres_ext {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using kernels::BlockFamily;
using kernels::Status;
using kernels::StatusCode;

// Dimensions of similarity motions: inner constraints remove at most these.
constexpr int kMostInner = 7;
// Largest number of blocks that a message names.
constexpr size_t kMostNamed = 5;
// First unknown of a block that has none.
constexpr int32_t kNoUnknown = std::numeric_limits<int32_t>::max();

template <typename Machine>
class CovarianceSolver {
 public:
  CovarianceSolver(const CovarianceWanted& wanted,
                   const Summary& record,
                   Session<Machine>* session,
                   CovarianceFound* found)
      : wanted_(wanted),
        record_(record),
        session_(session),
        problem_(session->problem()),
        machine_(session->machine()),
        found_(found) {}

  Status Compute() {
    found_->num_residuals = session_->num_residuals();
    found_->num_columns = session_->num_columns();
    {
      const ScopedSeconds timer(&found_->evaluation_time_in_seconds);
      CERES_EXT_RETURN_IF_ERROR(Evaluate());
    }
    ListBlocks();
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    if (is_iterative()) {
      const ScopedSeconds timer(&found_->blocks_time_in_seconds);
      return ComputeByPcg();
    }
    ListUnknowns();
    CERES_EXT_RETURN_IF_ERROR(CheckMemory());
    {
      const ScopedSeconds timer(&found_->factorization_time_in_seconds);
      CERES_EXT_RETURN_IF_ERROR(Factorize());
    }
    const ScopedSeconds timer(&found_->blocks_time_in_seconds);
    CERES_EXT_RETURN_IF_ERROR(FindBlocks());
    if (found_->num_free_directions > 0) {
      CERES_EXT_RETURN_IF_ERROR(Project());
    }
    if constexpr (!std::is_base_of_v<kernels::HostMachine, Machine>) {
      found_->memory_bytes = session_->peak_bytes();
    }
    return {};
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // A parameter block that varies.
  struct Place {
    int32_t family = -1;  // of E; -1: of F
    int32_t block = 0;    // of F: counted through
    int32_t tangent_size = 0;
    int32_t state_offset = 0;
  };

  Status Evaluate() {
    {
      const CurrentMachine<Machine> current(machine_);
      CERES_EXT_RETURN_IF_ERROR(current.status());
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(session_->num_parameters(), &state_));
      for (auto* const of_rows : {&residuals_, &product_}) {
        CERES_EXT_RETURN_IF_ERROR(
            machine_->Allocate(session_->num_residuals(), of_rows));
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(session_->num_columns(), &tangent_));
      CERES_EXT_RETURN_IF_ERROR(
          wanted_.state.empty()
              ? session_->caller_state()->CopyToMachine(state_.data(), machine_)
              : machine_->Upload(static_cast<int64_t>(wanted_.state.size()),
                                 wanted_.state.data(),
                                 state_.data()));
    }
    session_->FinishSetup();
    EvaluationWanted<Machine> evaluation;
    evaluation.state = state_.data();
    evaluation.apply_loss = wanted_.apply_loss;
    evaluation.residuals = residuals_.data();
    evaluation.jacobian = session_->linearization();
    return session_->Evaluate(evaluation, &found_->cost);
  }

  // kOutOfMemory if the limit of the device is below what inverse and blocks
  // need. Sets what SetupPairs needs.
  Status CheckMemory() {
    auto* const cholesky = session_->solver()->mutable_cholesky();
    const int64_t n = num_unknowns();
    bool has_e = false;
    int64_t num_values = 0;
    for (const auto& block : wanted_.blocks) {
      const Place left = PlaceOf(block.left);
      const Place right = PlaceOf(block.right);
      has_e = has_e || left.family >= 0 || right.family >= 0;
      num_values += int64_t{Size(left)} * Size(right);
    }
    int64_t of_w = 0;
    if (has_e) {
      CERES_EXT_RETURN_IF_ERROR(
          cholesky->mutable_schur()->PrepareAllPairs(&of_w));
    }
    if constexpr (!std::is_base_of_v<kernels::HostMachine, Machine>) {
      constexpr int64_t kDouble = sizeof(double);
      const auto num_blocks = static_cast<int64_t>(wanted_.blocks.size());
      const bool inverts = cholesky->ShouldInvert(num_blocks);
      // Right-hand sides and solutions, of the decision on the rank or of a
      // chunk.
      const int64_t of_columns =
          kDouble * n *
          (inverts ? 2 * CovarianceFound::kMostDirections
                   : (cholesky->NeedsWork() ? 2 : 1) *
                         std::min(ColumnsOfChunk(),
                                  problem_.blocks().f.num_values()));
      const int64_t of_lists =
          static_cast<int64_t>(sizeof(kernels::CovarianceBlock)) * num_blocks +
          static_cast<int64_t>(
              sizeof(int32_t) * (f_size_.size() + order_.size() + id_.size()) +
              sizeof(int64_t) * value_begin_.size());
      const int64_t of_blocks =
          of_w + kDouble * num_values + of_lists + (inverts ? 0 : of_columns);
      const int64_t of_inverse = inverts ? cholesky->inversion_bytes() : 0;
      found_->memory_forecast_bytes = std::max(
          session_->peak_bytes(),
          machine_->bytes() + std::max({of_blocks, of_inverse, of_columns}));
      const Status status =
          machine_->context()->CheckLimit(found_->memory_forecast_bytes);
      if (!status.ok()) {
        return {status.code,
                status.message.substr(0, status.message.size() - 1) + "; " +
                    std::to_string(of_inverse) +
                    " are for the inverse of the Schur complement, " +
                    std::to_string(of_w) +
                    " for the products of cameras and points, and " +
                    std::to_string(kDouble * num_values) + " for the blocks."};
      }
    }
    return {};
  }

  // Numbers the parameter blocks by their tangent offsets.
  void ListBlocks() {
    block_at_.assign(static_cast<size_t>(session_->num_columns()), -1);
    int32_t num_blocks = 0;
    const auto list = [&](const BlockTable& table) {
      tables_.push_back(&table);
      first_block_.push_back(num_blocks);
      for (int32_t b = 0; b < table.size(); ++b) {
        if (table.tangent_size(b) > 0) {
          block_at_[static_cast<size_t>(table.tangent_offset(b))] =
              num_blocks + b;
        }
      }
      num_blocks += table.size();
    };
    for (const auto& family : problem_.e()) {
      list(family.table());
    }
    for (const auto& family : problem_.f()) {
      list(family.table());
    }
  }
  void ListUnknowns() {
    const kernels::BlockFamilies& f = problem_.blocks().f;
    std::vector<int32_t> column_of_value(static_cast<size_t>(f.num_values()),
                                         -1);
    for (int i = 0; i < f.size(); ++i) {
      const BlockTable& table = problem_.f()[static_cast<size_t>(i)].table();
      for (int32_t b = 0; b < f[i].num_blocks; ++b) {
        const int64_t begin = f[i].value_begin + int64_t{f[i].size} * b;
        f_size_.push_back(f[i].size);
        value_begin_.push_back(begin);
        for (int32_t a = 0; a < table.tangent_size(b); ++a) {
          column_of_value[static_cast<size_t>(begin + a)] =
              table.tangent_offset(b) + a;
        }
      }
    }
    const auto& unknowns = schur().unknowns();
    id_.assign(static_cast<size_t>(f.num_values()), -1);
    for (size_t u = 0; u < unknowns.host_column().size(); ++u) {
      const auto value = static_cast<size_t>(unknowns.host_column()[u]);
      id_[value] = static_cast<int32_t>(u);
      column_.push_back(column_of_value[value]);
    }
    for (size_t b = 0; b < f_size_.size(); ++b) {
      int32_t first = kNoUnknown;
      for (int32_t a = 0; a < f_size_[b]; ++a) {
        const int32_t u = id_[static_cast<size_t>(value_begin_[b] + a)];
        first = u < 0 ? first : std::min(first, u);
      }
      order_.push_back(first);
    }
  }

  const solver::ExplicitSchur<Machine>& schur() {
    return session_->solver()->mutable_cholesky()->schur();
  }
  int64_t num_unknowns() const { return static_cast<int64_t>(column_.size()); }

  bool is_iterative() {
    return session_->solver()->mutable_cholesky() == nullptr;
  }

  // Computes blocks from columns of the inverse, each a solution by PCG.
  Status ComputeByPcg() {
    if (wanted_.diagonal.empty()) {
      CERES_EXT_RETURN_IF_ERROR(CheckDegenerateBlocks());
    }
    CERES_EXT_RETURN_IF_ERROR(UploadSystem(wanted_.diagonal));
    CERES_EXT_RETURN_IF_ERROR(session_->solver()->PrepareSystem(system_));
    // Sorts by right blocks, whose columns are needed.
    std::vector<size_t> order(wanted_.blocks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return wanted_.blocks[a].right < wanted_.blocks[b].right;
    });
    for (const auto& block : wanted_.blocks) {
      found_->begin.push_back(static_cast<int64_t>(found_->values.size()));
      found_->values.resize(
          found_->values.size() +
          static_cast<size_t>(PlaceOf(block.left).tangent_size) *
              static_cast<size_t>(PlaceOf(block.right).tangent_size));
    }
    for (size_t first = 0, last = 0; first < order.size(); first = last) {
      const int32_t right = wanted_.blocks[order[first]].right;
      while (last < order.size() &&
             wanted_.blocks[order[last]].right == right) {
        ++last;
      }
      const int32_t columns = PlaceOf(right).tangent_size;
      for (int32_t a = 0; a < columns; ++a) {
        VectorXd x = VectorXd::Zero(session_->num_columns());
        x(right + a) = 1.0;
        CERES_EXT_RETURN_IF_ERROR(SolveAll(&x));
        for (size_t k = first; k < last; ++k) {
          const int32_t left = wanted_.blocks[order[k]].left;
          double* const block = found_->values.data() + found_->begin[order[k]];
          for (int32_t i = 0; i < PlaceOf(left).tangent_size; ++i) {
            block[columns * i + a] = x(left + i);
          }
        }
      }
    }
    MakeAllSymmetric();
    return {};
  }
  // x = S^-1 x of the columns of F, zero of those of E.
  Status SolveReduced(VectorXd* x) {
    const auto working = problem_.working();
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(x->size(), x->data(), tangent_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        problem_.Gather(tangent_.data(), 0.0, working.e, working.f));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(problem_.blocks().f.num_values(), &solution_));
    const Status status =
        session_->solver()->SolveReduced(system_,
                                         working.f,
                                         wanted_.pcg_tolerance,
                                         solution_.data(),
                                         &found_->num_pcg_iterations);
    if (status.code == StatusCode::kNumericalFailure) {
      return {status.code,
              "PCG does not reach the accuracy that is wanted, as where "
              "directions are free: " +
                  status.message};
    }
    CERES_EXT_RETURN_IF_ERROR(status);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(problem_.blocks().e.num_values(), working.e));
    CERES_EXT_RETURN_IF_ERROR(
        problem_.Scatter(working.e, solution_.data(), tangent_.data()));
    return machine_->Download(x->size(), tangent_.data(), x->data());
  }

  // Factorises the system damped by D of each tangent column.
  Status FactorizeWith(const std::vector<double>& diagonal) {
    CERES_EXT_RETURN_IF_ERROR(UploadSystem(diagonal));
    CERES_EXT_RETURN_IF_ERROR(session_->solver()->FactorizeSystem(system_));
    auto* const cholesky = session_->solver()->mutable_cholesky();
    return num_unknowns() > 0 && cholesky->ShouldInvert(static_cast<int64_t>(
                                     wanted_.blocks.size()))
               ? cholesky->Invert()
               : Status();
  }
  // Sets system_.
  Status UploadSystem(const std::vector<double>& diagonal) {
    const auto families = problem_.working_diagonal();
    if (!diagonal.empty()) {
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Upload(static_cast<int64_t>(diagonal.size()),
                           diagonal.data(),
                           tangent_.data()));
    }
    CERES_EXT_RETURN_IF_ERROR(
        problem_.Gather(diagonal.empty() ? nullptr : tangent_.data(),
                        1.0,
                        families.e,
                        families.f));
    system_.is_same_linearization = system_.b != nullptr;
    system_.b = residuals_.data();
    system_.e_diagonal = families.e;
    system_.f_diagonal = families.f;
    return {};
  }

  Status Factorize() {
    if (!wanted_.diagonal.empty()) {
      return FactorizeWith(wanted_.diagonal);
    }
    CERES_EXT_RETURN_IF_ERROR(CheckDegenerateBlocks());
    CERES_EXT_RETURN_IF_ERROR(FindScale());
    Status status = FactorizeWith({});
    if (!status.ok() && status.code != StatusCode::kNumericalFailure) {
      return status;
    }
    if (num_unknowns() == 0) {
      return status;
    }
    tolerance_ =
        std::max(kernels::kDegeneratePivot,
                 std::sqrt(static_cast<double>(num_unknowns()) *
                           static_cast<double>(session_->num_residuals())) *
                     std::numeric_limits<double>::epsilon() / 2.0);
    if (status.ok()) {
      constexpr int kVectors = 8;
      constexpr int kIterations = 3;
      MatrixXd vectors;
      VectorXd values;
      CERES_EXT_RETURN_IF_ERROR(
          FindSmallest(kVectors, kIterations, 0.0, &values, &vectors));
      found_->smallest_eigenvalue = values(0);
      if (values(0) > tolerance_) {
        return {};
      }
    }
    return FindFree(status);
  }

  Status CheckDegenerateBlocks() {
    CERES_EXT_RETURN_IF_ERROR(session_->FindDegenerateBlocks());
    return record_.degenerate_eliminated_blocks.count > 0 ||
                   record_.degenerate_other_blocks.count > 0
               ? Status(StatusCode::kNumericalFailure,
                        "There are degenerate blocks.")
               : Status();
  }

  // Finds the lengths of the columns of J.
  Status FindScale() {
    const auto n = static_cast<int64_t>(session_->num_columns());
    CERES_EXT_RETURN_IF_ERROR(
        session_->linearization()->SquaredColumnNorms(tangent_.data()));
    scale_.resize(static_cast<size_t>(n));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(n, tangent_.data(), scale_.data()));
    for (double& value : scale_) {
      value = std::sqrt(value);
    }
    return {};
  }

  // Finds the smallest eigenvalues and their vectors of H = s^-1 S s^-1,
  // ascending. S + shift s^2 must be factorised.
  Status FindSmallest(int num_vectors,
                      int num_iterations,
                      double shift,
                      VectorXd* values,
                      MatrixXd* vectors) {
    const int64_t n = num_unknowns();
    VectorXd s(n);
    for (int64_t u = 0; u < n; ++u) {
      s(u) = scale_[static_cast<size_t>(column_[static_cast<size_t>(u)])];
    }
    return FindSmallestEigenvalues(
        s,
        std::min<int64_t>(num_vectors, n),
        num_iterations,
        shift,
        [this](MatrixXd* x) { return SolveColumns(x); },
        values,
        vectors);
  }

  // Finds the free directions, with the columns of F damped a little.
  Status FindFree(const Status& why_singular) {
    // Far above rounding, and far below the other eigenvalues.
    const double shift = 100.0 * tolerance_;
    constexpr int kIterations = 6;
    std::vector<double> diagonal(scale_.size(), 0.0);
    for (const int32_t column : column_) {
      diagonal[static_cast<size_t>(column)] =
          std::sqrt(shift) * scale_[static_cast<size_t>(column)];
    }
    CERES_EXT_RETURN_IF_ERROR(FactorizeWith(diagonal));
    VectorXd values;
    MatrixXd vectors;
    CERES_EXT_RETURN_IF_ERROR(FindSmallest(CovarianceFound::kMostDirections,
                                           kIterations,
                                           shift,
                                           &values,
                                           &vectors));
    const auto d = static_cast<int>((values.array() <= tolerance_).count());
    if (d == 0) {
      return why_singular.ok()
                 ? Status(StatusCode::kNumericalFailure,
                          "The Schur complement is too close to a singular "
                          "matrix to be inverted.")
                 : why_singular;
    }
    found_->num_free_directions = d;
    found_->smallest_eigenvalue = d < values.size() ? values(d) : tolerance_;
    vectors.conservativeResize(Eigen::NoChange, d);
    NameMoved(vectors);
    if (!wanted_.inner_constraints || d > kMostInner) {
      return {StatusCode::kNumericalFailure, "There are free directions."};
    }
    return SetupInner(vectors);
  }

  // Finds the blocks of F that the directions move.
  void NameMoved(const MatrixXd& vectors) {
    std::multimap<double, int> moved;  // the largest first
    for (size_t column = 0; column < block_at_.size(); ++column) {
      if (block_at_[column] < 0) {
        continue;
      }
      const Place place = PlaceOf(static_cast<int32_t>(column));
      if (place.family >= 0) {
        continue;
      }
      double square = 0.0;
      const int64_t begin = value_begin_[static_cast<size_t>(place.block)];
      for (int32_t a = 0; a < place.tangent_size; ++a) {
        const int32_t u = id_[static_cast<size_t>(begin + a)];
        square += u < 0 ? 0.0 : vectors.row(u).squaredNorm();
      }
      moved.emplace(-square, place.state_offset);
    }
    constexpr double kMoves = 1e-6;
    for (const auto& [square, offset] : moved) {
      if (square < kMoves * moved.begin()->first) {
        ++found_->num_moved_blocks;
        if (found_->moved_blocks.size() < kMostNamed) {
          found_->moved_blocks.push_back(session_->ValuesAt(offset));
        }
      }
    }
  }

  // Computes free_ = N, in all tangent columns, and the factors of B from
  // eigenvectors of H.
  Status SetupInner(const MatrixXd& vectors) {
    const Eigen::Index d = vectors.cols();
    free_ = MatrixXd::Zero(session_->num_columns(), d);
    for (int64_t u = 0; u < num_unknowns(); ++u) {
      const auto column = column_[static_cast<size_t>(u)];
      const double scale = scale_[static_cast<size_t>(column)];
      if (scale > 0.0) {
        free_.row(column) = vectors.row(u) / scale;
      }
    }
    for (Eigen::Index j = 0; j < d; ++j) {
      // y = -Vi E'F z
      VectorXd of_e;
      VectorXd z = free_.col(j);
      CERES_EXT_RETURN_IF_ERROR(MultiplyNormal(z, &of_e));
      CERES_EXT_RETURN_IF_ERROR(ApplyInverses(&of_e));
      free_.col(j) -= of_e;
    }
    Orthonormalize(&free_);
    // Chooses the columns to hold by complete pivoting on the scaled rows of N.
    MatrixXd rows(num_unknowns(), d);
    for (int64_t u = 0; u < num_unknowns(); ++u) {
      const auto column = column_[static_cast<size_t>(u)];
      rows.row(u) = scale_[static_cast<size_t>(column)] * free_.row(column);
    }
    std::vector<double> diagonal(scale_.size(), 0.0);
    const std::vector<Eigen::Index> held = PivotRows(std::move(rows));
    if (static_cast<Eigen::Index>(held.size()) < d) {
      return {StatusCode::kNumericalFailure,
              "The free directions are not those of the blocks that are not "
              "eliminated."};
    }
    for (const Eigen::Index u : held) {
      const auto column = static_cast<size_t>(column_[static_cast<size_t>(u)]);
      diagonal[column] = scale_[column];
    }
    return FactorizeWith(diagonal);
  }

  // x = S^-1 x
  Status SolveColumns(MatrixXd* x) {
    auto* const cholesky = session_->solver()->mutable_cholesky();
    Buffer<double> columns;
    Buffer<double> work;
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(x->size(), x->data(), &columns));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(cholesky->NeedsWork() ? x->size() : 0, &work));
    CERES_EXT_RETURN_IF_ERROR(cholesky->SolveColumns(x->cols(),
                                                     /*only_from_first=*/false,
                                                     columns.data(),
                                                     work.data()));
    return machine_->Download(x->size(), columns.data(), x->data());
  }

  // y = J'J x
  Status MultiplyNormal(const VectorXd& x, VectorXd* y) {
    auto* const jacobian = session_->linearization();
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(x.size(), x.data(), tangent_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(product_.size(), product_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        jacobian->RightMultiplyAndAccumulate(tangent_.data(), product_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(tangent_.size(), tangent_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        jacobian->LeftMultiplyAndAccumulate(product_.data(), tangent_.data()));
    y->resize(x.size());
    return machine_->Download(x.size(), tangent_.data(), y->data());
  }

  // x = Vi x of the columns of E, zero of all others.
  Status ApplyInverses(VectorXd* x) {
    const auto working = problem_.working();
    const kernels::BlockFamilies& e = problem_.blocks().e;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(x->size(), x->data(), tangent_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        problem_.Gather(tangent_.data(), 0.0, working.e, working.f));
    Buffer<double> result;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(e.num_values(), &result));
    for (const BlockFamily& family : e) {
      if (family.num_blocks > 0) {
        CERES_EXT_RETURN_IF_ERROR(Run(
            kernels::ApplyBlocksParams<kernels::kDynamic>{
                family.num_blocks,
                family.size,
                kernels::PackedBlocks<const double>(
                    family, Machine::kLayout, session_->solver()->e_inverses()),
                working.e + family.value_begin,
                1.0,
                result.data() + family.value_begin,
                nullptr},
            machine_));
      }
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(problem_.blocks().f.num_values(), working.f));
    CERES_EXT_RETURN_IF_ERROR(
        problem_.Scatter(result.data(), working.f, tangent_.data()));
    return machine_->Download(x->size(), tangent_.data(), x->data());
  }

  // x = (J'J + D^2)^-1 x of all tangent columns, D zero in those of E.
  Status SolveAll(VectorXd* x) {
    VectorXd of_e = *x;
    CERES_EXT_RETURN_IF_ERROR(ApplyInverses(&of_e));
    VectorXd product;
    CERES_EXT_RETURN_IF_ERROR(MultiplyNormal(of_e, &product));
    VectorXd of_f = *x - product;
    if (is_iterative()) {
      CERES_EXT_RETURN_IF_ERROR(SolveReduced(&of_f));
    } else {
      MatrixXd z(num_unknowns(), 1);
      for (int64_t u = 0; u < num_unknowns(); ++u) {
        z(u, 0) = of_f(column_[static_cast<size_t>(u)]);
      }
      CERES_EXT_RETURN_IF_ERROR(SolveColumns(&z));
      of_f.setZero();
      for (int64_t u = 0; u < num_unknowns(); ++u) {
        of_f(column_[static_cast<size_t>(u)]) = z(u, 0);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(MultiplyNormal(of_f, &product));
    CERES_EXT_RETURN_IF_ERROR(ApplyInverses(&product));
    *x = of_e - product + of_f;
    return {};
  }

  // Computes blocks of (J'J + D^2)^-1 from the current factors.
  Status FindBlocks() {
    CERES_EXT_RETURN_IF_ERROR(CheckSizes(problem_.blocks().e, f_size_));
    if (wanted_.blocks.empty()) {
      return {};
    }
    std::vector<kernels::CovarianceBlock> blocks;
    blocks.reserve(wanted_.blocks.size());
    const bool is_whole =
        session_->solver()->mutable_cholesky()->inverse().values != nullptr;
    std::vector<unsigned char> is_needed(f_size_.size(), 0);
    kernels::CovarianceTermsParams terms;
    bool has_e = false;
    // True if the entries of S^-1 on its diagonal and below are enough.
    bool is_lower = true;
    bool is_padded = false;
    int64_t num_values = 0;
    for (const auto& wanted : wanted_.blocks) {
      Place left = PlaceOf(wanted.left);
      Place right = PlaceOf(wanted.right);
      const bool is_turned = IsTurned(left, right);
      if (is_turned) {
        std::swap(left, right);
      }
      blocks.push_back(
          {left.family, left.block, right.family, right.block, num_values});
      num_values += int64_t{Size(left)} * Size(right);
      is_padded = is_padded || is_turned || Size(left) != left.tangent_size ||
                  Size(right) != right.tangent_size;
      terms.of.max_rows = std::max(terms.of.max_rows, Size(left));
      has_e = has_e || left.family >= 0;
      is_lower = is_lower && (left.family < 0 || wanted.left == wanted.right);
      if (right.family < 0) {
        is_needed[static_cast<size_t>(right.block)] = 1;
      }
    }
    if (has_e) {
      CERES_EXT_RETURN_IF_ERROR(SetupPairs(&terms.of));
      if (!is_whole) {
        CERES_EXT_RETURN_IF_ERROR(MarkNeeded(blocks, terms.of, &is_needed));
      }
    }
    Buffer<kernels::CovarianceBlock> blocks_on;
    Buffer<int32_t> f_size;
    Buffer<int64_t> value_begin;
    Buffer<int32_t> id;
    Buffer<int32_t> order;
    Buffer<double> values;
    const auto is_other = [](const kernels::CovarianceBlock& block) {
      return block.left_family < 0 || block.left_family != block.right_family ||
             block.left_block != block.right_block;
    };
    const int64_t num_others =
        std::count_if(blocks.begin(), blocks.end(), is_other);
    if (std::is_partitioned(blocks.begin(), blocks.end(), is_other)) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(blocks, &blocks_on));
    } else {
      std::vector<kernels::CovarianceBlock> sorted = blocks;
      std::stable_partition(sorted.begin(), sorted.end(), is_other);
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(sorted, &blocks_on));
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(f_size_, &f_size));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(value_begin_, &value_begin));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(id_, &id));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(order_, &order));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_values, &values));
    terms.of.n = static_cast<int64_t>(blocks.size());
    terms.of.blocks = blocks_on.data();
    terms.of.f_size = f_size.data();
    terms.of.values = values.data();
    terms.id = id.data();
    terms.value_begin = value_begin.data();
    terms.order = is_lower ? order.data() : nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CovarianceStartParams{terms.of}, machine_));
    CERES_EXT_RETURN_IF_ERROR(is_whole ? AddWhole(num_others, &terms)
                                       : AddChunks(is_needed, &terms));
    found_->values.resize(static_cast<size_t>(num_values));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(num_values, values.data(), found_->values.data()));
    if (is_padded) {
      Unpad(blocks);
    } else {
      found_->begin.reserve(blocks.size());
      for (const auto& block : blocks) {
        found_->begin.push_back(block.out);
      }
    }
    MakeAllSymmetric();
    return {};
  }

  Place PlaceOf(int32_t tangent_offset) const {
    const int32_t number = block_at_[static_cast<size_t>(tangent_offset)];
    size_t i = tables_.size() - 1;
    while (number < first_block_[i]) {
      --i;
    }
    const size_t num_e = problem_.e().size();
    const int32_t b = number - first_block_[i];
    return {i < num_e ? static_cast<int32_t>(i) : -1,
            i < num_e ? b : number - first_block_[num_e],
            tables_[i]->tangent_size(b),
            tables_[i]->state_offset(b)};
  }
  // Size with padding.
  int32_t Size(const Place& place) const {
    return place.family < 0 ? f_size_[static_cast<size_t>(place.block)]
                            : problem_.blocks().e[place.family].size;
  }
  // A block of F needs its own columns of S^-1, an eliminated block those of
  // all blocks that share residuals with it. For two blocks of F, the right one
  // comes first in S.
  bool IsTurned(const Place& left, const Place& right) const {
    return left.family < 0 &&
           (right.family >= 0 || order_[static_cast<size_t>(left.block)] <
                                     order_[static_cast<size_t>(right.block)]);
  }

  // W of all rows.
  Status SetupPairs(kernels::CovarianceBlocks* of) {
    auto* const matrix =
        session_->solver()->mutable_cholesky()->mutable_schur();
    CERES_EXT_RETURN_IF_ERROR(matrix->SetupAllPairs());
    const kernels::BlockFamilies& e = problem_.blocks().e;
    for (int i = 0; i < e.size(); ++i) {
      kernels::CovariancePairs& pairs = of->pairs[i];
      pairs.e_size = e[i].size;
      pairs.v_inverse = kernels::PackedBlocks<const double>(
          e[i], Machine::kLayout, session_->solver()->e_inverses());
      const auto found = matrix->AllPairs(i);
      if (found.index == nullptr) {
        continue;
      }
      pairs.point_begin = found.index->point_begin;
      pairs.f_block = found.index->camera_id;
      pairs.first_f_block = found.first_f_block;
      pairs.w_begin = found.w_begin;
      pairs.w_size = int64_t{e[i].size} *
                     f_size_[static_cast<size_t>(found.first_f_block)];
      pairs.w = found.w;
      num_pairs_[i] = found.index->num_observations;
    }
    return {};
  }
  // Marks the F blocks that share residuals with eliminated right blocks.
  Status MarkNeeded(const std::vector<kernels::CovarianceBlock>& blocks,
                    const kernels::CovarianceBlocks& of,
                    std::vector<unsigned char>* is_needed) {
    const kernels::BlockFamilies& e = problem_.blocks().e;
    for (int i = 0; i < e.size(); ++i) {
      const kernels::CovariancePairs& pairs = of.pairs[i];
      if (pairs.point_begin == nullptr) {
        continue;
      }
      std::vector<int64_t> begin(static_cast<size_t>(e[i].num_blocks) + 1);
      std::vector<int32_t> f_block(static_cast<size_t>(num_pairs_[i]));
      CERES_EXT_RETURN_IF_ERROR(machine_->Download(
          static_cast<int64_t>(begin.size()), pairs.point_begin, begin.data()));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Download(num_pairs_[i], pairs.f_block, f_block.data()));
      for (const auto& block : blocks) {
        if (block.right_family != i) {
          continue;
        }
        const auto right = static_cast<size_t>(block.right_block);
        for (int64_t k = begin[right]; k < begin[right + 1]; ++k) {
          const int32_t block_of_f =
              pairs.first_f_block + f_block[static_cast<size_t>(k)];
          (*is_needed)[static_cast<size_t>(block_of_f)] = 1;
        }
      }
    }
    return {};
  }

  // The first num_others blocks are not (e, e), all others are. A device has an
  // operation for these.
  Status AddWhole(int64_t num_others, kernels::CovarianceTermsParams* terms) {
    const auto inverse = session_->solver()->mutable_cholesky()->inverse();
    terms->stride = inverse.stride;
    terms->x = inverse.values;
    if constexpr (std::is_same_v<Machine, kernels::CudaMachine>) {
      kernels::EliminatedBlocksParams eliminated;
      eliminated.of = terms->of;
      eliminated.of.blocks += num_others;
      eliminated.of.n -= num_others;
      eliminated.id = terms->id;
      eliminated.value_begin = terms->value_begin;
      eliminated.stride = terms->stride;
      eliminated.x = terms->x;
      CERES_EXT_RETURN_IF_ERROR(Run(eliminated, machine_));
      terms->of.n = num_others;
    }
    return Run(*terms, machine_);
  }

  // Columns of a chunk have at most 256 MiB. Larger chunks read the factor less
  // often.
  int64_t ColumnsOfChunk() const {
    constexpr int64_t kMostValues = int64_t{32} << 20;
    constexpr int64_t kMostColumns = 1024;
    return std::max(
        int64_t{kernels::kMaxCovarianceColumns},
        std::min(kMostColumns,
                 kMostValues / std::max(num_unknowns(), int64_t{1})));
  }

  Status AddChunks(const std::vector<unsigned char>& is_needed,
                   kernels::CovarianceTermsParams* terms) {
    const int64_t n = num_unknowns();
    terms->stride = n;
    const int64_t most = ColumnsOfChunk();
    std::vector<int32_t> first_column(f_size_.size(), -1);
    std::vector<int32_t> unknown;
    Buffer<double> x;
    Buffer<double> work;
    auto* const cholesky = session_->solver()->mutable_cholesky();
    const auto finish = [&]() -> Status {
      const auto count = static_cast<int64_t>(unknown.size());
      if (count == 0) {
        return {};
      }
      if (x.size() == 0) {
        int64_t needed = 0;
        for (size_t f = 0; f < f_size_.size(); ++f) {
          needed += is_needed[f] != 0 ? f_size_[f] : 0;
        }
        const int64_t size = n * std::min(most, needed);
        CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(size, &x));
        CERES_EXT_RETURN_IF_ERROR(
            machine_->Allocate(cholesky->NeedsWork() ? size : 0, &work));
      }
      Buffer<int32_t> unknown_on;
      Buffer<int32_t> first_column_on;
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(unknown, &unknown_on));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Upload(first_column, &first_column_on));
      CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(n * count, x.data()));
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::UnitColumnsParams{count, n, unknown_on.data(), x.data()},
              machine_));
      CERES_EXT_RETURN_IF_ERROR(
          cholesky->SolveColumns(count,
                                 /*only_from_first=*/terms->order != nullptr,
                                 x.data(),
                                 work.data()));
      terms->first_column = first_column_on.data();
      terms->x = x.data();
      CERES_EXT_RETURN_IF_ERROR(Run(*terms, machine_));
      std::fill(first_column.begin(), first_column.end(), -1);
      unknown.clear();
      // Waits until the lists of the chunk are no longer read.
      return machine_->Synchronize();
    };
    for (size_t f = 0; f < f_size_.size(); ++f) {
      // A block of constants has no columns.
      if (is_needed[f] == 0 || order_[f] == kNoUnknown) {
        continue;
      }
      if (static_cast<int64_t>(unknown.size()) + f_size_[f] > most) {
        CERES_EXT_RETURN_IF_ERROR(finish());
      }
      first_column[f] = static_cast<int32_t>(unknown.size());
      for (int32_t a = 0; a < f_size_[f]; ++a) {
        unknown.push_back(id_[static_cast<size_t>(value_begin_[f] + a)]);
      }
    }
    return finish();
  }

  // Brings blocks to the caller's order and removes padding.
  void Unpad(const std::vector<kernels::CovarianceBlock>& blocks) {
    const std::vector<double> padded = std::move(found_->values);
    found_->begin.clear();
    found_->values.clear();
    for (size_t b = 0; b < blocks.size(); ++b) {
      const Place left = PlaceOf(wanted_.blocks[b].left);
      const Place right = PlaceOf(wanted_.blocks[b].right);
      const bool is_turned = IsTurned(left, right);
      const int64_t stride = Size(is_turned ? left : right);
      found_->begin.push_back(static_cast<int64_t>(found_->values.size()));
      for (int32_t i = 0; i < left.tangent_size; ++i) {
        for (int32_t j = 0; j < right.tangent_size; ++j) {
          found_->values.push_back(padded[static_cast<size_t>(
              blocks[b].out + (is_turned ? stride * j + i : stride * i + j))]);
        }
      }
    }
  }
  void MakeAllSymmetric() {
    for (size_t b = 0; b < wanted_.blocks.size(); ++b) {
      const auto& wanted = wanted_.blocks[b];
      if (wanted.left == wanted.right) {
        MakeSymmetric(PlaceOf(wanted.left).tangent_size,
                      found_->values.data() + found_->begin[b]);
      }
    }
  }

  // Replaces B by P B P.
  Status Project() {
    MatrixXd c = free_;
    for (Eigen::Index j = 0; j < c.cols(); ++j) {
      VectorXd column = c.col(j);
      CERES_EXT_RETURN_IF_ERROR(SolveAll(&column));
      c.col(j) = column;
    }
    const InnerConstraints inner(free_, std::move(c));
    for (size_t b = 0; b < wanted_.blocks.size(); ++b) {
      const auto& wanted = wanted_.blocks[b];
      inner.Apply(wanted.left,
                  PlaceOf(wanted.left).tangent_size,
                  wanted.right,
                  PlaceOf(wanted.right).tangent_size,
                  found_->values.data() + found_->begin[b]);
    }
    return {};
  }

  const CovarianceWanted& wanted_;
  const Summary& record_;
  Session<Machine>* const session_;
  const MachineProblem<Machine>& problem_;
  Machine* const machine_;
  CovarianceFound* const found_;

  Buffer<double> state_;
  Buffer<double> residuals_;
  Buffer<double> product_;  // of J and a vector
  Buffer<double> tangent_;
  Buffer<double> solution_;  // of PCG
  solver::LinearSystem system_;
  double tolerance_ = 0.0;

  // E's families, then F's; their blocks are counted through.
  std::vector<const BlockTable*> tables_;
  std::vector<int32_t> first_block_;
  std::vector<int32_t> block_at_;  // of each tangent offset; -1: none
  int64_t num_pairs_[kernels::kMaxCovarianceFamilies] = {};  // of E families
  std::vector<int32_t> f_size_;       // columns of each F block
  std::vector<int64_t> value_begin_;  // of each F block in a vector of F
  std::vector<int32_t> order_;        // first unknown of each F block
  std::vector<int32_t> id_;           // unknown of each value of F
  std::vector<int32_t> column_;       // tangent column of each unknown
  std::vector<double> scale_;         // lengths of tangent columns
  MatrixXd free_;                     // N
};

}  // namespace

template <typename Machine>
Status ComputeCovarianceBlocks(const CovarianceWanted& wanted,
                               const Summary& record,
                               Session<Machine>* session,
                               CovarianceFound* found) {
  return CovarianceSolver<Machine>(wanted, record, session, found).Compute();
}

#define CERES_EXT_INSTANTIATE(Machine)                             \
  template Status ComputeCovarianceBlocks(const CovarianceWanted&, \
                                          const Summary&,          \
                                          Session<Machine>*,       \
                                          CovarianceFound*);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
