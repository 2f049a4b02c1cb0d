// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of arrays that processes under mpirun solve together, against the
// same problem solved alone by each of them.

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/mpi_communicator.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"
#include "tests/front/rank_problem.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

// Made by main.
MpiCommunicator* communicator = nullptr;

class RanksMpiTest : public testing::Test, public RankProblem {
 protected:
  Options OptionsOf(Communicator* of_ranks) const {
    Options options = OnHost();
    options.device = kDevice;
    options.communicator = of_ranks;
    return options;
  }
  void Solve(const Case& c, Communicator* of_ranks, Part* part) const {
    Make(c,
         of_ranks == nullptr ? 0 : of_ranks->rank(),
         of_ranks == nullptr ? 1 : of_ranks->size(),
         part);
    ceres_ext::Solve(
        SomeOptions(c), OptionsOf(of_ranks), &part->problem, &part->summary);
  }
};

TEST_F(RanksMpiTest, SolveAsOneDoes) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(testing::Message()
                 << "rank " << communicator->rank() << " split "
                 << (c.rows == Rows::kSplit) << " preconditioner "
                 << c.preconditioner << " loss " << c.has_loss << " priors "
                 << c.has_priors);
    // An emulated device takes its time, and so do ranks without processors.
    const bool is_slow = kDevice == DEVICE_CUDA || communicator->size() > 3;
    if (is_slow && c.preconditioner != ceres::SCHUR_JACOBI) {
      continue;
    }
    Part alone;
    Solve(c, nullptr, &alone);
    Part part;
    Solve(c, communicator, &part);
    EXPECT_EQ(part.summary.path, PATH_FULL) << part.summary.message;
    ExpectAsAlone(part.summary, alone.summary);
    if (kDevice == DEVICE_CUDA) {
      // The emulated NCCL refuses if the test wants it so.
      const bool has_nccl = std::getenv("CERES_EXT_TEST_NCCL") == nullptr;
      EXPECT_EQ(part.summary.path_reason.find(
                    "sums over ranks go through host memory, because rank 0: "
                    "ncclCommInitRankConfig failed: invalid usage") ==
                    std::string::npos,
                has_nccl)
          << part.summary.path_reason;
    }
    // The same bits on all ranks.
    const std::vector<double>& mine = part.values.cameras;
    std::vector<double> all(mine.size() *
                            static_cast<size_t>(communicator->size()));
    std::string error;
    ASSERT_TRUE(communicator->AllGather(
        mine.data(),
        static_cast<int64_t>(mine.size() * sizeof(double)),
        all.data(),
        &error))
        << error;
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], mine[i % mine.size()]);
    }
  }
}

// The last one: it ends the communicator.
TEST_F(RanksMpiTest, ZAnExceptionOnOneEndsAll) {
  class Throwing final : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& /*summary*/) override {
      throw std::runtime_error("a callback that throws");
    }
  };
  Throwing throwing;
  Part part;
  Make(Case(), communicator->rank(), communicator->size(), &part);
  ceres::Solver::Options options = SomeOptions(Case());
  options.callbacks.push_back(&throwing);
  ceres_ext::Solve(
      options, OptionsOf(communicator), &part.problem, &part.summary);
  EXPECT_EQ(part.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(part.summary.message, HasSubstr("a callback that throws"));
  if (communicator->rank() > 0) {
    EXPECT_THAT(part.summary.message, HasSubstr("Rank 0: "));
  }
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  ceres_ext::SetQuiet(true);
  testing::InitGoogleTest(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int failed = 0;
  {
    ceres_ext::MpiCommunicator of_all(MPI_COMM_WORLD, std::chrono::minutes(5));
    ceres_ext::communicator = &of_all;
    failed = RUN_ALL_TESTS();
  }
  MPI_Finalize();
  return failed;
}
