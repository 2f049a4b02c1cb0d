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

#include "cuda_kernels/cuda_operations.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;
constexpr int kPacked = PackedSize(C);

// An array in host layout.
struct Result {
  std::string name;
  std::vector<double> values;
};

class BlockContiguousTest : public CudaTest {
 protected:
  void Setup(const PairList& pairs) {
    num_cameras_ = pairs.num_cameras;
    num_points_ = pairs.num_points;
    n_ = static_cast<int64_t>(pairs.camera.size());
    const DeviceBuffer<int32_t> camera = Upload(pairs.camera);
    const DeviceBuffer<int32_t> point = Upload(pairs.point);
    ASSERT_OK(index_.Build(pairs.num_cameras,
                           pairs.num_points,
                           n_,
                           camera.data(),
                           point.data(),
                           &scratch_,
                           context_.get()));
    using Source = StoredJacobian<double, C, kDeviceLayout>;
    ASSERT_OK(workspace_.Setup(index_.view(),
                               CudaWorkspace::Options::For<Source>(true),
                               &scratch_,
                               context_.get()));
    std::vector<double> cameras;
    std::vector<double> points;
    std::vector<double> observations;
    MakeScene(pairs, 7, &cameras, &points, &observations);
    cameras_ = Upload(cameras);
    points_ = Upload(points);
    observations_ = Upload(observations);
    states_ = Poisoned<CameraState<double>>(num_cameras_);
    maps_ = Poisoned<double>(9 * C * num_cameras_);
    PrepareCamerasParams<double, C> prepare;
    prepare.num_cameras = pairs.num_cameras;
    prepare.cameras = cameras_.data();
    prepare.states = states_.data();
    prepare.maps = maps_.data();
    ASSERT_OK(cuda::PrepareCameras(prepare, context_->stream()));
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

  // Every operation once, in the order in which they need each other.
  template <BlockLayout kLayout>
  void RunAll(std::vector<Result>* results) {
    using Source = StoredJacobian<double, C, kLayout>;
    const CudaWorkspaceView& workspace = workspace_.view();
    const cudaStream_t stream = context_->stream();
    const auto blocks = [&](const char* name,
                            const DeviceBuffer<double>& buffer,
                            int block_size) {
      results->push_back({name, InHostLayout<kLayout>(buffer, block_size)});
    };
    const auto vector = [&](const char* name,
                            const DeviceBuffer<double>& buffer) {
      results->push_back({name, Download(buffer)});
    };

    auto jc = Poisoned<double>(2 * C * n_);
    auto jp = Poisoned<double>(6 * n_);
    // Not empty: a gradient needs residuals.
    auto residuals = Poisoned<double>(2 * n_ + 2);
    auto camera_gradient = Poisoned<double>(C * num_cameras_);
    auto point_gradient = Poisoned<double>(3 * num_points_);
    auto evaluation = Poisoned<Evaluation>(1);
    EvaluateJacobianParams<double, C, kLayout> evaluate;
    evaluate.index = index_.view();
    evaluate.cameras = states_.data();
    evaluate.camera_maps = maps_.data();
    evaluate.points = points_.data();
    evaluate.observations = observations_.data();
    evaluate.residuals = residuals.data();
    evaluate.camera_blocks = {jc.data(), n_};
    evaluate.point_blocks = {jp.data(), n_};
    evaluate.camera_gradient = camera_gradient.data();
    evaluate.point_gradient = point_gradient.data();
    evaluate.evaluation = evaluation.data();
    ASSERT_OK(cuda::EvaluateJacobian(evaluate, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    blocks("Jc", jc, 2 * C);
    blocks("Jp", jp, 6);
    vector("r", residuals);
    vector("J'r, cameras", camera_gradient);
    vector("J'r, points", point_gradient);
    if (n_ > 0) {
      results->push_back({"cost", {Download(evaluation)[0].cost}});
    }

    Source source;
    source.camera_blocks = {jc.data(), n_};
    source.point_blocks = {jp.data(), n_};
    auto u = Poisoned<double>(kPacked * num_cameras_);
    auto v = Poisoned<double>(6 * num_points_);
    auto v_inverse = Poisoned<double>(6 * num_points_);
    auto w = Poisoned<double>(3 * C * n_);
    auto schur = Poisoned<double>(kPacked * num_cameras_);
    auto rhs = Poisoned<double>(C * num_cameras_);
    auto breakdown = Poisoned<Breakdown>(1);
    NormalBlocksParams<Source, kLayout> normal_blocks;
    normal_blocks.index = index_.view();
    normal_blocks.jacobian = source;
    normal_blocks.b = residuals.data();
    normal_blocks.point_diagonal = point_diagonal_.data();
    normal_blocks.v = {v.data(), num_points_};
    normal_blocks.v_inverse = {v_inverse.data(), num_points_};
    normal_blocks.point_gradient = point_gradient.data();
    normal_blocks.w = {w.data(), n_};
    normal_blocks.u = {u.data(), num_cameras_};
    normal_blocks.camera_gradient = camera_gradient.data();
    normal_blocks.schur_diagonal = {schur.data(), num_cameras_};
    normal_blocks.schur_rhs = rhs.data();
    normal_blocks.breakdown = breakdown.data();
    ASSERT_OK(cuda::NormalBlocks(normal_blocks, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    blocks("U", u, kPacked);
    blocks("V", v, 6);
    blocks("Vi", v_inverse, 6);
    blocks("W", w, 3 * C);
    blocks("S_c", schur, kPacked);
    vector("s", rhs);
    vector("g_c", camera_gradient);
    vector("g_p", point_gradient);
    EXPECT_EQ(Download(breakdown)[0].first_point, Breakdown::kNone);
    // Vectors without matrices go by tiles.
    NormalBlocksParams<Source, kLayout> alone = normal_blocks;
    auto rhs_alone = Poisoned<double>(C * num_cameras_);
    auto gradient_alone = Poisoned<double>(C * num_cameras_);
    alone.v = {};
    alone.point_gradient = nullptr;
    alone.w = {};
    alone.u = {};
    alone.schur_diagonal = {};
    alone.schur_rhs = rhs_alone.data();
    alone.camera_gradient = gradient_alone.data();
    ASSERT_OK(cuda::NormalBlocks(alone, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("s alone", rhs_alone);
    vector("g_c alone", gradient_alone);

    auto q = Poisoned<double>(C * num_cameras_);
    auto y = Poisoned<double>(3 * num_points_);
    SchurProductImplicitWParams<Source, kLayout> schur_product;
    schur_product.index = index_.view();
    schur_product.jacobian = source;
    schur_product.v_inverse = {v_inverse.data(), num_points_};
    schur_product.camera_diagonal = camera_diagonal_.data();
    schur_product.p = camera_x_.data();
    schur_product.q = q.data();
    ASSERT_OK(cuda::SchurProductImplicitW(schur_product, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("S p, implicit W", q);
    SchurProductExplicitWParams<double, C, kLayout> schur_w;
    schur_w.index = index_.view();
    schur_w.u = {u.data(), num_cameras_};
    schur_w.w = {w.data(), n_};
    schur_w.v_inverse = {v_inverse.data(), num_points_};
    schur_w.camera_diagonal = camera_diagonal_.data();
    schur_w.p = camera_x_.data();
    schur_w.q = q.data();
    ASSERT_OK(cuda::SchurProductExplicitW(schur_w, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("S p, explicit W", q);

    BackSubstituteImplicitWParams<Source, kLayout> back;
    back.index = index_.view();
    back.jacobian = source;
    back.b = residuals.data();
    back.v_inverse = {v_inverse.data(), num_points_};
    back.z = camera_x_.data();
    back.y = y.data();
    ASSERT_OK(cuda::BackSubstituteImplicitW(back, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("y, implicit W", y);
    BackSubstituteExplicitWParams<double, C, kLayout> back_w;
    back_w.index = index_.view();
    back_w.w = {w.data(), n_};
    back_w.v_inverse = {v_inverse.data(), num_points_};
    back_w.point_gradient = point_gradient.data();
    back_w.z = camera_x_.data();
    back_w.y = y.data();
    ASSERT_OK(cuda::BackSubstituteExplicitW(back_w, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("y, explicit W", y);

    NormalProductImplicitWParams<Source> normal;
    normal.index = index_.view();
    normal.jacobian = source;
    normal.camera_diagonal = camera_diagonal_.data();
    normal.point_diagonal = point_diagonal_.data();
    normal.camera_p = camera_x_.data();
    normal.point_p = point_x_.data();
    normal.camera_q = q.data();
    normal.point_q = y.data();
    ASSERT_OK(cuda::NormalProductImplicitW(normal, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("J'J p, implicit W, cameras", q);
    vector("J'J p, implicit W, points", y);
    NormalProductExplicitWParams<double, C, kLayout> normal_w;
    normal_w.index = index_.view();
    normal_w.u = {u.data(), num_cameras_};
    normal_w.v = {v.data(), num_points_};
    normal_w.w = {w.data(), n_};
    normal_w.camera_diagonal = camera_diagonal_.data();
    normal_w.point_diagonal = point_diagonal_.data();
    normal_w.camera_p = camera_x_.data();
    normal_w.point_p = point_x_.data();
    normal_w.camera_q = q.data();
    normal_w.point_q = y.data();
    ASSERT_OK(cuda::NormalProductExplicitW(normal_w, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("J'J p, explicit W, cameras", q);
    vector("J'J p, explicit W, points", y);

    auto product = Poisoned<double>(2 * n_);
    RightMultiplyParams<Source> right;
    right.index = index_.view();
    right.jacobian = source;
    right.camera_x = camera_x_.data();
    right.point_x = point_x_.data();
    right.y = product.data();
    ASSERT_OK(cuda::RightMultiply(right, workspace, stream));
    LeftMultiplyParams<Source> left;
    left.index = index_.view();
    left.jacobian = source;
    left.y = product.data();
    left.camera_x = q.data();
    left.point_x = y.data();
    ASSERT_OK(cuda::LeftMultiply(left, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("J x", product);
    vector("J'y, cameras", q);
    vector("J'y, points", y);
    SquaredColumnNormsParams<Source> norms;
    norms.index = index_.view();
    norms.jacobian = source;
    norms.camera_x = q.data();
    norms.point_x = y.data();
    ASSERT_OK(cuda::SquaredColumnNorms(norms, workspace, stream));
    ASSERT_OK(context_->Synchronize());
    vector("norms, cameras", q);
    vector("norms, points", y);

    RunBlockDiagonal<C, kLayout>(
        num_cameras_, u, camera_diagonal_, camera_x_, results);
    RunBlockDiagonal<3, kLayout>(
        num_points_, v, point_diagonal_, point_x_, results);

    // Last: it changes the blocks.
    ScaleColumnsParams<double, C, kLayout> scale;
    scale.index = index_.view();
    scale.camera_blocks = {jc.data(), n_};
    scale.point_blocks = {jp.data(), n_};
    scale.camera_scale = camera_x_.data();
    scale.point_scale = point_x_.data();
    ASSERT_OK(cuda::ScaleColumns(scale, stream));
    ASSERT_OK(context_->Synchronize());
    blocks("Jc, scaled", jc, 2 * C);
    blocks("Jp, scaled", jp, 6);
  }

  template <int N, BlockLayout kLayout>
  void RunBlockDiagonal(int64_t num_blocks,
                        const DeviceBuffer<double>& a,
                        const DeviceBuffer<double>& diagonal,
                        const DeviceBuffer<double>& r,
                        std::vector<Result>* results) {
    const cudaStream_t stream = context_->stream();
    auto inverse = Poisoned<double>(PackedSize(N) * num_blocks);
    auto z = Poisoned<double>(N * num_blocks);
    auto first_breakdown = Poisoned<int32_t>(1);
    InvertBlockDiagonalParams<N, kLayout> invert;
    invert.num_blocks = num_blocks;
    invert.a = {a.data(), num_blocks};
    invert.diagonal = diagonal.data();
    invert.inverse = {inverse.data(), num_blocks};
    invert.first_breakdown = first_breakdown.data();
    ASSERT_OK(cuda::InvertBlockDiagonal(invert, stream));
    ApplyBlockDiagonalParams<N, kLayout> apply;
    apply.num_blocks = num_blocks;
    apply.inverse = {inverse.data(), num_blocks};
    apply.r = r.data();
    apply.z = z.data();
    ASSERT_OK(cuda::ApplyBlockDiagonal(apply, stream));
    ASSERT_OK(context_->Synchronize());
    EXPECT_EQ(Download(first_breakdown)[0], Breakdown::kNone);
    const std::string suffix =
        ", " + std::to_string(N) + " x " + std::to_string(N);
    results->push_back({"block inverse" + suffix,
                        InHostLayout<kLayout>(inverse, PackedSize(N))});
    results->push_back({"block product" + suffix, Download(z)});
  }

  void Compare() {
    std::vector<Result> continuous;
    std::vector<Result> contiguous;
    RunAll<BlockLayout::kContinuousElement>(&continuous);
    RunAll<BlockLayout::kBlockContiguous>(&contiguous);
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
      EXPECT_TRUE(
          Close(contiguous[i].values, continuous[i].values, tolerance_));
    }
  }

  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t n_ = 0;
  double tolerance_ = 0.0;
  CudaIndexScratch scratch_;
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
  DeviceBuffer<double> cameras_, points_, observations_, maps_;
  DeviceBuffer<CameraState<double>> states_;
  DeviceBuffer<double> camera_diagonal_, point_diagonal_, camera_x_, point_x_;
};

TEST_F(BlockContiguousTest, SameAsContinuousElement) {
  Setup(MakeEdgePairs());
  Compare();
}

TEST_F(BlockContiguousTest, SameAsContinuousElementOfLongTracks) {
  Setup(MakeLongPairs());
  Compare();
}

TEST_F(BlockContiguousTest, SameAsContinuousElementWithoutObservations) {
  PairList pairs;
  pairs.num_cameras = 3;
  pairs.num_points = 5;
  Setup(pairs);
  Compare();
}

}  // namespace
}  // namespace ceres_ext::kernels
