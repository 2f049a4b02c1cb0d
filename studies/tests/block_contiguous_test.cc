// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies with block-contiguous arrays against the same bodies with
// continuous-element ones. Both add the same terms in the same order, so on the
// host (BAL_STUDY_EMULATED) they give the same bits; on a device the compiler
// may contract products and sums of the two instances differently.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "studies/study_machines.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;
constexpr int kPacked = PackedSize(C);

// An array in host layout, of blocks of so many values.
struct Result {
  std::string name;
  std::vector<double> values;
  int block_size;
};

class BlockContiguousTest : public CudaProblemTest {
 protected:
  void Prepare(const Structure& pairs) {
    using Source = StoredJacobian<double, BalShape<C>, kDeviceLayout>;
    ASSERT_NO_FATAL_FAILURE(CudaProblemTest::Prepare(
        pairs,
        CudaWorkspace::Options::For(
            IsRecomputed<Source>::value,
            std::is_same_v<typename Source::Value, float>)));
    scene_ = MakeDeviceScene(pairs, 7);
    camera_diagonal_ = Upload(Damping(C * num_cameras_, 12));
    point_diagonal_ = Upload(Damping(3 * num_points_, 13));
    camera_x_ = Upload(RandomVector(C * num_cameras_, 14));
    point_x_ = Upload(RandomVector(3 * num_points_, 15));
    // Sums of at most n terms, and inverses of V + D^2 and U + D^2: with D of
    // at least one, elements of J of about one at most, no condition number is
    // above n.
    tolerance_ = 8.0 * static_cast<double>(n_ + 64) *
                 std::numeric_limits<double>::epsilon();
  }

  static std::vector<double> Damping(int64_t n, unsigned seed) {
    std::vector<double> d = RandomVector(n, seed);
    for (double& x : d) {
      x = 1.0 + std::fabs(x);
    }
    return d;
  }

  template <BlockLayout kLayout>
  std::vector<double> InHostLayout(const DeviceBuffer<double>& buffer,
                                   int block_size) {
    const std::vector<double> values = Download(buffer);
    return kLayout == BlockLayout::kContinuousElement
               ? ToHostLayout(values, block_size)
               : values;
  }

  // Every operation, in the order in which they need each other.
  template <typename Machine>
  void RunAll(std::vector<Result>* results) {
    constexpr BlockLayout kLayout = Machine::kLayout;
    using Source = StoredJacobian<double, BalShape<C>, kLayout>;
    Machine machine;
    ASSERT_OK(machine.Setup(context_.get()));
    const auto blocks = [&](const char* name,
                            const DeviceBuffer<double>& buffer,
                            int block_size) {
      results->push_back(
          {name, InHostLayout<kLayout>(buffer, block_size), block_size});
    };
    const auto vector = [&](const char* name,
                            const DeviceBuffer<double>& buffer,
                            int block_size) {
      results->push_back({name, Download(buffer), block_size});
    };

    auto jc = Poisoned<double>(2 * C * n_);
    auto jp = Poisoned<double>(6 * n_);
    // Not empty: a gradient needs residuals.
    auto residuals = Poisoned<double>(2 * n_ + 2);
    auto camera_gradient = Poisoned<double>(C * num_cameras_);
    auto point_gradient = Poisoned<double>(3 * num_points_);
    auto evaluation = Poisoned<Evaluation>(1);
    EvaluateJacobianParams<double, C, kLayout> evaluate;
    evaluate.index = workspace_.index();
    evaluate.cameras = scene_.states.data();
    evaluate.camera_maps = scene_.maps.data();
    evaluate.points = scene_.points.data();
    evaluate.observations = scene_.observations.data();
    evaluate.residuals = residuals.data();
    evaluate.camera_blocks = {jc.data(), n_};
    evaluate.point_blocks = {jp.data(), n_};
    evaluate.camera_gradient = camera_gradient.data();
    evaluate.point_gradient = point_gradient.data();
    evaluate.evaluation = evaluation.data();
    ASSERT_OK(kernels::Run(evaluate, &machine));
    ASSERT_OK(context_->Synchronize());
    blocks("Jc", jc, 2 * C);
    blocks("Jp", jp, 6);
    vector("r", residuals, 2);
    vector("J'r, cameras", camera_gradient, C);
    vector("J'r, points", point_gradient, 3);
    if (n_ > 0) {
      results->push_back({"cost", {Download(evaluation)[0].cost}, 1});
    }

    Operations<Source, Machine> on;
    on.index = workspace_.index();
    on.jacobian = Source{{jc.data(), n_}, {jp.data(), n_}};
    on.b = residuals.data();
    on.camera_diagonal = camera_diagonal_.data();
    on.point_diagonal = point_diagonal_.data();
    on.camera_x = camera_x_.data();
    on.point_x = point_x_.data();
    on.machine = &machine;
    auto u = Poisoned<double>(kPacked * num_cameras_);
    auto v = Poisoned<double>(6 * num_points_);
    auto v_inverse = Poisoned<double>(6 * num_points_);
    auto w = Poisoned<double>(3 * C * n_);
    auto schur = Poisoned<double>(kPacked * num_cameras_);
    auto rhs = Poisoned<double>(C * num_cameras_);
    auto breakdown = Poisoned<Breakdown>(1);
    NormalBlocksParams<Source, kLayout> normal_blocks;
    normal_blocks.v = {v.data(), num_points_};
    normal_blocks.v_inverse = {v_inverse.data(), num_points_};
    normal_blocks.point_gradient = point_gradient.data();
    normal_blocks.u = {u.data(), num_cameras_};
    normal_blocks.camera_gradient = camera_gradient.data();
    normal_blocks.schur_diagonal = {schur.data(), num_cameras_};
    normal_blocks.schur_rhs = rhs.data();
    normal_blocks.breakdown = breakdown.data();
    normal_blocks.index = on.index;
    normal_blocks.jacobian = on.jacobian;
    normal_blocks.b = on.b;
    normal_blocks.point_diagonal = on.point_diagonal;
    const bal::ExplicitBlocksParams<Source, kLayout> explicit_blocks{
        normal_blocks, {w.data(), n_}};
    ASSERT_OK(bal::Run(explicit_blocks, &machine));
    ASSERT_OK(context_->Synchronize());
    blocks("U", u, kPacked);
    blocks("V", v, 6);
    blocks("Vi", v_inverse, 6);
    blocks("W", w, 3 * C);
    blocks("S_c", schur, kPacked);
    vector("s", rhs, C);
    vector("g_c", camera_gradient, C);
    vector("g_p", point_gradient, 3);
    EXPECT_EQ(Download(breakdown)[0].first_block, Breakdown::kNone);
    on.v_inverse = v_inverse.data();

    const auto run = [&](const char* name,
                         const std::vector<Output>& outputs,
                         auto&& operation) {
      const auto all = Repeat(outputs, operation);
      for (size_t i = 0; i < all.size(); ++i) {
        const bool of_cameras = outputs[i].size == C * num_cameras_;
        results->push_back({name, all[i], of_cameras ? C : 3});
      }
    };
    using Out = const std::vector<double*>&;
    const Output cameras{C * num_cameras_};
    const Output points{3 * num_points_};
    // Vectors without matrices go by tiles.
    run("s and g_c alone", {cameras, cameras}, [&](Out out) {
      NormalBlocksParams<Source, kLayout> alone;
      alone.v_inverse = normal_blocks.v_inverse;
      alone.schur_rhs = out[0];
      alone.camera_gradient = out[1];
      alone.breakdown = breakdown.data();
      return on.NormalBlocks(alone);
    });
    run("S p, implicit W", {cameras}, [&](Out out) {
      return on.SchurProductImplicitW(out[0]);
    });
    run("S p, explicit W", {cameras}, [&](Out out) {
      bal::SchurProductExplicitWParams<double, BalShape<C>, kLayout> params;
      params.index = on.index;
      params.u = {u.data(), num_cameras_};
      params.w = {w.data(), n_};
      params.v_inverse = {v_inverse.data(), num_points_};
      params.camera_diagonal = on.camera_diagonal;
      params.p = on.camera_x;
      params.q = out[0];
      return bal::Run(params, &machine);
    });
    run("y, implicit W", {points}, [&](Out out) {
      return on.BackSubstituteImplicitW(out[0]);
    });
    run("y, explicit W", {points}, [&](Out out) {
      bal::BackSubstituteExplicitWParams<double, BalShape<C>, kLayout> params;
      params.index = on.index;
      params.w = {w.data(), n_};
      params.v_inverse = {v_inverse.data(), num_points_};
      params.point_gradient = point_gradient.data();
      params.z = on.camera_x;
      params.y = out[0];
      return bal::Run(params, &machine);
    });
    run("J'J p, implicit W", {cameras, points}, [&](Out out) {
      return on.NormalProductImplicitW(out[0], out[1]);
    });
    run("J'J p, explicit W", {cameras, points}, [&](Out out) {
      bal::NormalProductExplicitWParams<double, BalShape<C>, kLayout> params;
      params.index = on.index;
      params.u = {u.data(), num_cameras_};
      params.v = {v.data(), num_points_};
      params.w = {w.data(), n_};
      params.camera_diagonal = on.camera_diagonal;
      params.point_diagonal = on.point_diagonal;
      params.camera_p = on.camera_x;
      params.point_p = on.point_x;
      params.camera_q = out[0];
      params.point_q = out[1];
      return bal::Run(params, &machine);
    });
    auto product = Poisoned<double>(2 * n_);
    ASSERT_OK(on.RightMultiply(product.data(), false));
    ASSERT_OK(context_->Synchronize());
    vector("J x", product, 2);
    on.b = product.data();
    run("J'J x", {cameras, points}, [&](Out out) {
      return on.LeftMultiply(out[0], out[1], false);
    });
    run("norms", {cameras, points}, [&](Out out) {
      return on.SquaredColumnNorms(out[0], out[1]);
    });

    RunBlockDiagonal<C, kLayout>(
        num_cameras_, u, camera_diagonal_, camera_x_, results);
    RunBlockDiagonal<3, kLayout>(
        num_points_, v, point_diagonal_, point_x_, results);
  }

  template <int N, BlockLayout kLayout>
  void RunBlockDiagonal(int64_t num_blocks,
                        const DeviceBuffer<double>& a,
                        const DeviceBuffer<double>& diagonal,
                        const DeviceBuffer<double>& r,
                        std::vector<Result>* results) {
    auto inverse = Poisoned<double>(PackedSize(N) * num_blocks);
    auto z = Poisoned<double>(N * num_blocks);
    auto first_breakdown = Upload(std::vector<int32_t>{Breakdown::kNone});
    const BlockFamily family{N, static_cast<int32_t>(num_blocks)};
    InvertBlocksParams<N> invert;
    invert.n = num_blocks;
    invert.a = PackedBlocks<const double>(family, kLayout, a.data());
    invert.diagonal = diagonal.data();
    invert.inverse = PackedBlocks(family, kLayout, inverse.data());
    invert.first_breakdown = first_breakdown.data();
    ASSERT_OK(kernels::Run(invert, machine_.get()));
    ApplyBlocksParams<N> apply;
    apply.n = num_blocks;
    apply.a = PackedBlocks<const double>(family, kLayout, inverse.data());
    apply.r = r.data();
    apply.z = z.data();
    ASSERT_OK(kernels::Run(apply, machine_.get()));
    ASSERT_OK(context_->Synchronize());
    EXPECT_EQ(Download(first_breakdown)[0], Breakdown::kNone);
    const std::string suffix =
        ", " + std::to_string(N) + " x " + std::to_string(N);
    results->push_back({"block inverse" + suffix,
                        InHostLayout<kLayout>(inverse, PackedSize(N)),
                        PackedSize(N)});
    results->push_back({"block product" + suffix, Download(z), N});
  }

  void Compare() {
    std::vector<Result> continuous;
    std::vector<Result> contiguous;
    RunAll<CudaMachine>(&continuous);
    RunAll<bal::BlockContiguousMachine>(&contiguous);
    ASSERT_FALSE(continuous.empty());
    ASSERT_EQ(continuous.size(), contiguous.size());
    for (size_t i = 0; i < continuous.size(); ++i) {
      SCOPED_TRACE(continuous[i].name);
      if (SameBits(continuous[i].values, contiguous[i].values)) {
        continue;
      }
#ifdef BAL_STUDY_EMULATED
      ADD_FAILURE() << "not the same bits";
#else
      std::printf("%s: not the same bits\n", continuous[i].name.c_str());
#endif
      EXPECT_TRUE(Close(
          contiguous[i].values,
          continuous[i].values,
          BoundsByKind(
              continuous[i].values, continuous[i].block_size, tolerance_)));
    }
  }

  double tolerance_ = 0.0;
  DeviceScene scene_;
  DeviceBuffer<double> camera_diagonal_, point_diagonal_, camera_x_, point_x_;
};

TEST_F(BlockContiguousTest, SameAsContinuousElement) {
  Prepare(MakeEdgePairs());
  Compare();
}

TEST_F(BlockContiguousTest, SameAsContinuousElementOfLongTracks) {
  Prepare(MakeLongPairs());
  Compare();
}

TEST_F(BlockContiguousTest, SameAsContinuousElementWithoutObservations) {
  Structure pairs;
  pairs.num_cameras = 3;
  pairs.num_points = 5;
  Prepare(pairs);
  Compare();
}

}  // namespace
}  // namespace ceres_ext::kernels
