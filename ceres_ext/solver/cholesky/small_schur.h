// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact step of a small problem of general rows, on the host: some hundreds
// to thousands of rows, such as a window of inertial odometry. With
// V = E'E + D_e^2 of an eliminated block and W = F'E of its rows
//
//   S = F'F + D_f^2 - sum of W V^-1 W'     s = F'b - sum of W V^-1 E'b
//   S z = s                                y = V^-1 (E'b - W'z)
//
// S is a dense matrix, of which eliminated blocks subtract their part from all
// their F blocks at once, those of the same F blocks together. So is F'F summed
// over rows. There are no lists of pairs or couplings (explicit_schur.h), which
// take longer to set up and to sum than such a problem takes to solve.
//
//   SmallSchur schur;
//   Status status = schur.Setup(rows, values, e, f, f_varies, &machine);
//   // per solve:
//   if (status.ok()) status = schur.Form(system);
//   if (status.ok()) status = schur.Solve(f_step);
//   if (status.ok()) schur.BackSubstitute(e_step);
//
// One thread sums, in an order that the rows determine. Setup takes all memory.
#ifndef CERES_EXT_SOLVER_CHOLESKY_SMALL_SCHUR_H_
#define CERES_EXT_SOLVER_CHOLESKY_SMALL_SCHUR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext::solver {

class SmallSchur {
 public:
  // rows and values outlive the object. f_varies: of each value of F whether it
  // is an unknown, as the first ones of each block are.
  kernels::Status Setup(const kernels::BlockRowsRef& rows,
                        const double* values,
                        const kernels::BlockFamilies& e,
                        const kernels::BlockFamilies& f,
                        const std::vector<unsigned char>& f_varies,
                        kernels::HostMachine* machine);

  // S and s of the values as they are. kNumericalFailure: V is not positive
  // definite.
  kernels::Status Form(const LinearSystem& system);
  // z, a vector of F. kNumericalFailure: S is not positive definite.
  kernels::Status Solve(double* f_step);
  // y for that z, a vector of E.
  void BackSubstitute(double* e_step) const;

  const SchurMatrixSize& size() const { return size_; }

  // Columns of a panel that are next to each other in S.
  struct Run {
    int32_t column = 0;   // of the panel
    int32_t unknown = 0;  // of S
    int32_t size = 0;
  };
  // Columns of F blocks side by side, in the order of S.
  struct Panel {
    const Run* runs = nullptr;
    int32_t num_runs = 0;
    int32_t width = 0;  // whole vectors, zeros behind the columns
  };

 private:
  // Rows of the same F blocks.
  struct Group {
    int32_t row_begin = 0;  // in group_rows_
    int32_t row_end = 0;
    int32_t num_residuals = 0;
    int32_t cell_begin = 0;  // in group_columns_, one per F block
    int32_t run_begin = 0;
    Panel panel;
  };
  // The rows of an eliminated block, and the panel of W'.
  struct Eliminated {
    int32_t row_begin = 0;
    int32_t row_end = 0;
    int32_t size = 0;    // columns of the block
    int32_t column = 0;  // the first of them in a vector of E
    int32_t number = 0;  // of the block in its family
    int32_t run_begin = 0;
    int64_t y_begin = 0;  // V^-1 W', size x width, in y_
    Panel panel;
  };

  bool IsOther(const kernels::RowCell& cell) const {
    return cell.eliminated == 0 && cell.size > 0;
  }
  void ListGroups();
  void ListEliminated();
  // Puts eliminated blocks of the same F blocks side by side, with the same
  // runs.
  void SharePanels();
  // Adds the runs of F cells to runs_, and returns the width of their panel.
  int32_t AddRuns(std::vector<std::pair<int32_t, int32_t>>* unknowns,
                  int32_t* run_begin,
                  int32_t* num_runs);
  int32_t ColumnOf(const kernels::RowCell& cell,
                   int32_t run_begin,
                   int32_t num_runs) const;
  void AddGroup(const Group& group, const double* b);
  // V^-1 W', V^-1 E'b and, at w, W' of the block, and its part of s.
  kernels::Status Eliminate(const Eliminated& block,
                            const LinearSystem& system,
                            double* w);

  kernels::BlockRowsRef rows_;
  const double* values_ = nullptr;
  kernels::HostMachine* machine_ = nullptr;
  SchurMatrixSize size_;
  int64_t stride_ = 0;
  int64_t num_e_values_ = 0;
  kernels::BlockFamilies f_;
  std::vector<int32_t> unknown_;  // of each value of F; -1: none
  std::vector<Run> runs_;
  std::vector<Group> groups_;
  std::vector<int32_t> group_rows_;
  std::vector<int32_t> group_columns_;
  std::vector<Eliminated> eliminated_;
  // The column in W' of each F cell of a row with an eliminated block.
  std::vector<int32_t> w_column_;

  template <typename T>
  using Buffer = kernels::HostMachine::Buffer<T>;
  Buffer<double> panel_;
  Buffer<double> sums_;
  Buffer<double> w_;       // W' of the blocks that share a panel
  Buffer<double> y_;       // V^-1 W' of all
  Buffer<double> motion_;  // V^-1 E'b
  Buffer<double> matrix_;  // S, its lower triangle, column-major
  Buffer<double> rhs_;     // s, then z
  kernels::HostDenseCholesky cholesky_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_SMALL_SCHUR_H_
