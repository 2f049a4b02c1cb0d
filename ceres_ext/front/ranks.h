// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The agreement of the ranks of a solve before anything is allocated.

#ifndef CERES_EXT_FRONT_RANKS_H_
#define CERES_EXT_FRONT_RANKS_H_

#include <string>

#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/session/kept_machines.h"

namespace ceres_ext {

// True if there are no ranks, which takes no memory. Otherwise *error says that
// `what`, "a batch", is not solved by several.
bool HasNoRanks(const Options& ext_options,
                const char* what,
                std::string* error);

// A solve by ranks, which is their only attempt.
struct RankSolve {
  ceres::Solver::Options options;
  Options ext_options;
  Attempt attempt;
};

// Collective over ext_options.communicator. mine: why this rank can't begin;
// empty if it can. False on all ranks, with the same sentence in *error, where
// one can't, or where they disagree about options or about what all have.
// problem: valid if `mine` is empty.
bool PrepareRanks(const ceres::Solver::Options& options,
                  const Options& ext_options,
                  const ArrayProblem* problem,
                  std::string mine,
                  KeptMachines* kept,
                  RankSolve* solve,
                  std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_RANKS_H_
