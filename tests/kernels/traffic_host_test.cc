// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// docs/kernels.md has the bytes that the code counts (GetTraffic), and the
// counts are those of the arrays that a small problem really has.
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/traffic.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_products.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;

// Arrays that exist and are never read.
double* Somewhere() {
  static double somewhere[1];
  return somewhere;
}
template <int N, typename T = double>
BlockRef<T, N, kDeviceLayout> Ref() {
  return {reinterpret_cast<T*>(Somewhere()), 1};
}

template <typename T>
StoredJacobian<T, BalShape<C>, kDeviceLayout> Stored() {
  return {Ref<2 * C, T>(), Ref<6, T>()};
}
template <typename T>
RecomputedJacobian<T, C> Recomputed() {
  RecomputedJacobian<T, C> source;
  source.cameras = reinterpret_cast<const CameraState<T>*>(Somewhere());
  source.camera_maps = Somewhere();
  source.points = reinterpret_cast<const T*>(Somewhere());
  return source;
}

std::string Format(const Traffic& t) {
  return std::to_string(t.per_observation) + ", " +
         std::to_string(t.per_point) + ", " + std::to_string(t.per_camera);
}

template <typename Source>
SchurProductImplicitWParams<Source, kDeviceLayout> SchurProduct(
    const Source& source) {
  SchurProductImplicitWParams<Source, kDeviceLayout> p;
  p.jacobian = source;
  p.v_inverse = Ref<6>();
  p.camera_diagonal = Somewhere();
  p.p = Somewhere();
  p.q = Somewhere();
  return p;
}

template <typename Source>
Traffic OfOperation(const std::string& name, const Source& source) {
  using T = typename Source::Value;
  if (name == "EvaluateCost") {
    EvaluateCostParams p;
    p.cameras = reinterpret_cast<const CameraState<double>*>(Somewhere());
    p.points = Somewhere();
    p.observations = Somewhere();
    p.residuals = Somewhere();
    return GetTraffic(p);
  }
  if (name == "EvaluateJacobian") {
    EvaluateJacobianParams<T, C, kDeviceLayout> p;
    p.cameras = reinterpret_cast<const CameraState<double>*>(Somewhere());
    p.camera_maps = Somewhere();
    p.points = Somewhere();
    p.observations = Somewhere();
    p.residuals = Somewhere();
    p.camera_blocks = Ref<2 * C, T>();
    p.point_blocks = Ref<6, T>();
    p.camera_gradient = Somewhere();
    p.point_gradient = Somewhere();
    return GetTraffic(p);
  }
  if (name == "NormalBlocks: Vi, S_c, s" || name == "NormalBlocks: V, g_p") {
    NormalBlocksParams<Source, kDeviceLayout> p;
    p.jacobian = source;
    p.b = Somewhere();
    p.point_diagonal = Somewhere();
    if (name == "NormalBlocks: V, g_p") {
      p.v = Ref<6>();
      p.point_gradient = Somewhere();
    } else {
      p.v_inverse = Ref<6>();
      p.schur_diagonal = Ref<45>();
      p.schur_rhs = Somewhere();
    }
    return GetTraffic(p);
  }
  if (name == "SchurProductImplicitW") {
    return GetTraffic(SchurProduct(source));
  }
  if (name == "BackSubstituteImplicitW") {
    BackSubstituteImplicitWParams<Source, kDeviceLayout> p;
    p.jacobian = source;
    p.v_inverse = Ref<6>();
    p.b = Somewhere();
    p.z = Somewhere();
    p.y = Somewhere();
    return GetTraffic(p);
  }
  if (name == "NormalProductImplicitW") {
    NormalProductImplicitWParams<Source> p;
    p.jacobian = source;
    p.camera_diagonal = Somewhere();
    p.point_diagonal = Somewhere();
    p.camera_p = Somewhere();
    p.point_p = Somewhere();
    p.camera_q = Somewhere();
    p.point_q = Somewhere();
    return GetTraffic(p);
  }
  if (name == "RightMultiply") {
    RightMultiplyParams<Source> p;
    p.jacobian = source;
    p.camera_x = Somewhere();
    p.point_x = Somewhere();
    p.y = Somewhere();
    return GetTraffic(p);
  }
  if (name == "LeftMultiply") {
    LeftMultiplyParams<Source> p;
    p.jacobian = source;
    p.camera_x = Somewhere();
    p.point_x = Somewhere();
    p.y = Somewhere();
    return GetTraffic(p);
  }
  if (name == "SquaredColumnNorms") {
    SquaredColumnNormsParams<Source> p;
    p.jacobian = source;
    p.camera_x = Somewhere();
    p.point_x = Somewhere();
    return GetTraffic(p);
  }
  EXPECT_EQ(name, "ScaleColumns");
  ScaleColumnsParams<T, BalShape<C>, kDeviceLayout> p;
  p.camera_blocks = Ref<2 * C, T>();
  p.point_blocks = Ref<6, T>();
  p.camera_scale = Somewhere();
  p.point_scale = Somewhere();
  return GetTraffic(p);
}

// Rows without a Jacobian have one column.
std::string Table() {
  std::string table =
      "| operation | stored, double | stored, float | recomputed, double | "
      "recomputed, float |\n|---|---|---|---|---|\n";
  for (const char* name : {"EvaluateCost",
                           "EvaluateJacobian",
                           "NormalBlocks: V, g_p",
                           "NormalBlocks: Vi, S_c, s",
                           "SchurProductImplicitW",
                           "BackSubstituteImplicitW",
                           "NormalProductImplicitW",
                           "RightMultiply",
                           "LeftMultiply",
                           "SquaredColumnNorms",
                           "ScaleColumns"}) {
    const std::string stored = Format(OfOperation(name, Stored<double>()));
    const std::string recomputed =
        Format(OfOperation(name, Recomputed<double>()));
    const std::string stored_float = Format(OfOperation(name, Stored<float>()));
    const std::string recomputed_float =
        Format(OfOperation(name, Recomputed<float>()));
    const bool no_source = stored == recomputed;
    table += std::string("| `") + name + "` | " + stored + " | " +
             stored_float + " | " + (no_source ? "" : recomputed) + " | " +
             (no_source ? "" : recomputed_float) + " |\n";
  }
  return table;
}

TEST(Traffic, TableOfTheDocumentation) {
  std::ifstream file(CERES_EXT_SOURCE_DIR "/docs/kernels.md");
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_TRUE(file.good());
  const std::string table = Table();
  EXPECT_NE(text.str().find(table), std::string::npos)
      << "docs/kernels.md is to have this table:\n"
      << table;
}

// By hand: what a product with S reads and writes of 3 cameras, 5 points and 11
// observations.
TEST(Traffic, ByHand) {
  ObservationIndexRef index;
  index.num_cameras = 3;
  index.num_points = 5;
  index.num_observations = 11;
  auto stored = SchurProduct(Stored<float>());
  stored.index = index;
  EXPECT_EQ(GetBytes(stored),
            11 * (4 + 24 * 4) + 5 * (8 + 6 * 8) + 3 * (3 * 9 * 8));
  stored.camera_diagonal = nullptr;
  EXPECT_EQ(GetBytes(stored),
            11 * (4 + 24 * 4) + 5 * (8 + 6 * 8) + 3 * (2 * 9 * 8));
  auto recomputed = SchurProduct(Recomputed<double>());
  recomputed.index = index;
  EXPECT_EQ(
      GetBytes(recomputed),
      11 * 4 + 5 * (8 + 6 * 8 + 3 * 8) + 3 * (3 * 9 * 8 + 15 * 8 + 81 * 8));
}

// The figures of docs/kernels.md for the Schur complement as a matrix: 7
// couplings in 5 blocks of 3 cameras, 11 observations, 20 unknowns in columns
// of 32 values.
template <typename Source>
SchurComplementParams<Source, kDeviceLayout> SchurComplement(
    const Source& source) {
  SchurComplementParams<Source, kDeviceLayout> p;
  p.jacobian = source;
  p.index.num_observations = 11;
  p.couplings.num_blocks = 5;
  p.couplings.num_couplings = 7;
  p.unknowns.num_unknowns = 20;
  p.target.stride = 32;
  return p;
}

TEST(Traffic, SchurComplementByHand) {
  // On and below the diagonal and behind the columns: not 19 * 20 / 2.
  const int64_t dense = 5 * 16 + (20 * 32 - 190) * 8;
  auto stored = SchurComplement(Stored<double>());
  EXPECT_EQ(GetBytes(stored), 7 * 392 + 11 * (192 + 48 + 240) + dense);
  EXPECT_EQ(GetFlops(stored), 7 * 420);
  const int64_t row_begin = 0;
  stored.target.row_begin = &row_begin;
  EXPECT_EQ(GetBytes(stored),
            7 * 392 + 11 * (192 + 48 + 240) + 5 * 16 + 5 * 648);
  auto recomputed = SchurComplement(Recomputed<double>());
  EXPECT_EQ(GetBytes(recomputed), 7 * 76 + dense);
  EXPECT_EQ(GetFlops(recomputed), 7 * 744);
  // The scale of a point is in its scaled Vi.
  recomputed.jacobian.point_scale = Somewhere();
  EXPECT_EQ(GetBytes(recomputed), 7 * 76 + dense);
  // With losses a coupling is two observations and a factor for each row.
  RecomputedJacobian<float, C, true> scaled;
  scaled.row_scale = reinterpret_cast<const float*>(Somewhere());
  EXPECT_EQ(GetBytes(SchurComplement(scaled)), 7 * (8 + 4 + 72 + 8) + dense);
  EXPECT_EQ((ScratchBytes<RecomputedJacobian<double, C>>(11, 2)), 2 * 648);
  using StoredFloat = StoredJacobian<float, BalShape<C>, kDeviceLayout>;
  EXPECT_EQ(ScratchBytes<StoredFloat>(11, 2), 11 * (48 + 96) + 2 * 648);
  EXPECT_EQ(ScratchBytes<NestedJacobian<kDeviceLayout>>(11, 2), 2 * 72);
}

}  // namespace
}  // namespace ceres_ext::kernels
