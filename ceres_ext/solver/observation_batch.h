// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of observations: each row has one eliminated block and one other, of
// sizes known at compile time (the Source's Shape), as camera and point of
// bundle adjustment. It owns the F family. If it owns the E family too, a
// product with S is one pass over the observations; otherwise, if other batches
// have rows of its points, it takes part in two steps.
//
// Operations: cuda_kernels/ops. Source: StoredJacobian or RecomputedJacobian
// (cuda_kernels/model/jacobian_source.h).
#ifndef CERES_EXT_SOLVER_OBSERVATION_BATCH_H_
#define CERES_EXT_SOLVER_OBSERVATION_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/row_sample.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/schur_sums.h"
#include "ceres_ext/solver/split_schur.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/model_jacobian.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

template <typename Machine, typename SourceIn>
class ObservationBatch final : public Batch,
                               public SchurWriter,
                               public CoarseRows,
                               public PartRows {
 public:
  using Source = SourceIn;
  using Shape = typename Source::Shape;

  // The views of the index and the machine must outlive the batch. Blocks of
  // the index are those of families e_family and f_family in their order.
  void Setup(const kernels::ObservationIndexRef& index,
             int e_family,
             int f_family,
             Machine* machine) {
    index_ = index;
    e_family_ = e_family;
    f_family_ = f_family;
    machine_ = machine;
  }
  // The Jacobian that everything works on.
  void SetJacobian(const Source& jacobian) { jacobian_ = jacobian; }

  int64_t num_residuals() const final {
    return Shape::kNumResiduals * index_.num_observations;
  }

  kernels::Status SetupSolver(const StepOptions& options,
                              const ProblemBlocks& blocks) final {
    CERES_EXT_RETURN_IF_ERROR(SetBlocks(blocks));
    sums_pairs_ = options.sums_pairs;
    const bool in_two_steps = !owns_points_ && options.use_schur;
    const auto allocate = [&](bool wanted, int64_t n, Buffer<double>* buffer) {
      return machine_->Allocate(wanted ? n : 0, buffer);
    };
    CERES_EXT_RETURN_IF_ERROR(allocate(
        !owns_points_, Shape::kPackedE * index_.num_points, &packed_scratch_));
    CERES_EXT_RETURN_IF_ERROR(
        allocate(in_two_steps, num_residuals(), &residual_scratch_));
    CERES_EXT_RETURN_IF_ERROR(
        allocate(in_two_steps, int64_t{E} * index_.num_points, &zero_points_));
    CERES_EXT_RETURN_IF_ERROR(allocate(
        in_two_steps, int64_t{F} * index_.num_cameras, &zero_cameras_));
    for (Buffer<double>* buffer : {&zero_points_, &zero_cameras_}) {
      CERES_EXT_RETURN_IF_ERROR(
          machine_->SetZero(buffer->size(), buffer->data()));
    }
    // One in any case, for UndampedBlocks.
    const int num_matrices =
        options.needs_u() && options.needs_schur_diagonal() ? 2 : 1;
    if constexpr (std::is_same_v<Machine, kernels::HostMachine>) {
      return index_.host_workspace->ReserveCameraSums(
          num_matrices * Shape::kPackedF + F);
    }
    return {};
  }

  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final {
    return JacobianProduct(Points(e), Cameras(f), accumulate, y);
  }

  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final {
    return TransposeProduct(y, true, Points(e), Cameras(f));
  }

  kernels::Status SquaredColumnNorms(double* e, double* f) final {
    auto params = OnJacobian<kernels::SquaredColumnNormsParams<Source>>();
    params.camera_x = Cameras(f);
    params.point_x = owns_points_ ? Points(e) : point_scratch_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    return owns_points_ ? kernels::Status()
                        : AddScratch(point_scratch_, Points(e));
  }

  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final {
    auto params = OnJacobian<kernels::NormalBlocksParams<Source, kLayout>>();
    params.b = request.b;
    if (!owns_points_) {
      if (request.v == nullptr && request.e_gradient == nullptr) {
        return {};
      }
      if (request.v != nullptr) {
        params.v = {packed_scratch_.data(), index_.num_points};
      }
      if (request.e_gradient != nullptr) {
        params.point_gradient = point_scratch_.data();
      }
      CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
      if (request.v != nullptr) {
        CERES_EXT_RETURN_IF_ERROR(
            AddScratch(packed_scratch_, request.v + e_packed_begin_));
      }
      return request.e_gradient == nullptr
                 ? kernels::Status()
                 : AddScratch(point_scratch_, Points(request.e_gradient));
    }
    params.point_diagonal = Points(request.e_diagonal);
    params.point_gradient = Points(request.e_gradient);
    params.u = CameraView(request.u);
    params.breakdown =
        request.breakdown == nullptr ? nullptr : request.breakdown + e_family_;
    if (request.eliminate) {
      params.v_inverse = PointView(request.v_inverse);
      params.schur_rhs = Cameras(request.schur_rhs);
      params.schur_diagonal = CameraView(request.schur_diagonal);
    } else {
      params.v = PointView(request.v);
      params.camera_gradient = Cameras(request.f_gradient);
    }
    return Run(params, machine_);
  }

  kernels::Status OtherBlocks(const NormalBlocksRequest& request) final {
    if (owns_points_) {
      return {};  // EliminatedBlocks has done it all.
    }
    auto params = OnJacobian<kernels::NormalBlocksParams<Source, kLayout>>();
    params.u = CameraView(request.u);
    if (!request.eliminate) {
      params.b = request.b;
      params.camera_gradient = Cameras(request.f_gradient);
    } else if (request.schur_diagonal != nullptr) {
      params.v_inverse_is_given = true;
      params.v_inverse = PointView(request.v_inverse);
      params.schur_diagonal = CameraView(request.schur_diagonal);
    }
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    if (!request.eliminate) {
      return {};
    }
    // rhs = F'(b + E motion)
    double* const y = residual_scratch_.data();
    CERES_EXT_RETURN_IF_ERROR(JacobianProduct(
        Points(request.e_motion), zero_cameras_.data(), false, y));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::AddVectorsParams{num_residuals(), y, request.b, y}, machine_));
    return TransposeProduct(y, false, nullptr, Cameras(request.schur_rhs));
  }

  kernels::Status MultiplyToEliminated(
      const double* f_p,
      double* s,
      const kernels::PcgScalars* /*scalars*/) final {
    if (owns_points_) {
      return {};
    }
    double* const y = residual_scratch_.data();
    CERES_EXT_RETURN_IF_ERROR(
        JacobianProduct(zero_points_.data(), Cameras(f_p), false, y));
    return TransposeProduct(y, true, Points(s), nullptr);
  }

  kernels::Status Multiply(const ProductRequest& request) final {
    if (request.eliminate && owns_points_) {
      // q = D_f^2 p + F' (F p - E (E'E + D_e^2)^-1 E' F p)
      auto params =
          OnJacobian<kernels::SchurProductImplicitWParams<Source, kLayout>>();
      params.v_inverse = PointView(request.v_inverse);
      params.camera_diagonal = Cameras(request.f_diagonal);
      params.p = Cameras(request.f_p);
      params.q = Cameras(request.f_q);
      params.scalars = request.scalars;
      params.eliminated_part = request.eliminated_part;
      return Run(params, machine_);
    }
    // q = D^2 p + J'J p
    auto params = OnJacobian<kernels::NormalProductImplicitWParams<Source>>();
    params.camera_diagonal = Cameras(request.f_diagonal);
    params.camera_p =
        request.eliminated_part ? zero_cameras_.data() : Cameras(request.f_p);
    params.point_p = Points(request.e_p);
    params.camera_q = Cameras(request.f_q);
    params.scalars = request.scalars;
    if (owns_points_) {
      params.point_diagonal = Points(request.e_diagonal);
      params.point_q = Points(request.e_q);
      return Run(params, machine_);
    }
    params.point_q = request.eliminate ? nullptr : point_scratch_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine_));
    return request.eliminate ? kernels::Status()
                             : AddScratch(point_scratch_, Points(request.e_q));
  }

  // y = (E'E + D_e^2)^-1 E' (b - F z)
  kernels::Status BackSubstitute(const double* b,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final {
    if (!owns_points_) {
      return {};
    }
    auto params =
        OnJacobian<kernels::BackSubstituteImplicitWParams<Source, kLayout>>();
    params.b = b;
    params.v_inverse = PointView(v_inverse);
    params.z = Cameras(z);
    params.y = Points(y);
    return Run(params, machine_);
  }

  SchurWriter* schur_writer() final {
    return kHasSchur && owns_points_ && !sums_pairs_ ? this : nullptr;
  }
  int schur_family() const final { return f_family_; }
  kernels::Status ListOwnBlocks(kernels::BlockFamilies* /*families*/,
                                std::vector<int32_t>* /*columns*/) final {
    return {};
  }

  kernels::Status ForecastSchur(int64_t* bytes, int64_t* build_bytes) final {
    kernels::CouplingForecast forecast;
    CERES_EXT_RETURN_IF_ERROR(
        kernels::ForecastCouplings(index_, kCouplings, machine_, &forecast));
    *bytes = forecast.bytes;
    int64_t of_scratch = 0;
    if constexpr (kHasSchur && !std::is_same_v<Machine, kernels::HostMachine>) {
      of_scratch = kernels::ScratchBytes<Source>(
          index_.num_observations,
          forecast.num_couplings /
              kernels::CouplingChunkSize(forecast.num_couplings));
    }
    *bytes += of_scratch;
    // The scratch is taken when the index has been built.
    *build_bytes = std::max(int64_t{0}, forecast.build_bytes - of_scratch);
    return {};
  }

  kernels::Status SetupSchur(int64_t* num_values) final {
    if constexpr (kHasSchur) {
      CERES_EXT_RETURN_IF_ERROR(couplings_.Build(index_, kCouplings, machine_));
      if constexpr (std::is_same_v<Machine, kernels::HostMachine>) {
        CERES_EXT_RETURN_IF_ERROR(schur_rows_.Setup(
            index_,
            couplings_.ref(),
            nullptr,
            kernels::internal::CouplingScratch<Source>::kLocalF,
            machine_));
      } else {
        CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
            kernels::ScratchBytes<Source>(index_.num_observations,
                                          couplings_.ref().num_chunks),
            &schur_scratch_));
      }
    }
    *num_values = F * F * couplings_.ref().num_blocks;
    return {};
  }

  kernels::Status ListSchurBlocks(kernels::SchurBlockList* list) final {
    return kernels::DownloadBlocks(couplings_.ref(), 0, machine_, list);
  }

  kernels::Status WriteSchur(const SchurBlocksRequest& request) final {
    if constexpr (kHasSchur) {
      auto params =
          OnJacobian<kernels::SchurComplementParams<Source, kLayout>>();
      params.couplings = couplings_.ref();
      params.unknowns = request.unknowns;
      params.v_inverse = PointView(request.v_inverse);
      params.schur_diagonal = CameraView(request.schur_diagonal);
      params.camera_diagonal = Cameras(request.f_diagonal);
      params.target = request.target;
      params.rows = schur_rows_.ref();
      params.scratch = schur_scratch_.data();
      return Run(params, machine_);
    } else {
      return {};
    }
  }

  CoarseRows* coarse_rows() final {
    return kHasCoarse && owns_points_ ? this : nullptr;
  }

  kernels::Status FormSplit(const SplitRequest& request,
                            SplitSchur* split) final {
    *split = {};
    if constexpr (kHasCoarse) {
      // For a camera the cluster of most of its columns.
      std::vector<int32_t> cluster(static_cast<size_t>(index_.num_cameras), -1);
      std::vector<unsigned char> varies(
          static_cast<size_t>(int64_t{F} * index_.num_cameras), 0);
      for (size_t c = 0; c < cluster.size(); ++c) {
        const int32_t* const of_column =
            request.cluster->data() + f_begin_ + F * static_cast<int64_t>(c);
        int64_t most = 0;
        for (int j = 0; j < F; ++j) {
          const int64_t count =
              std::count(of_column, of_column + F, of_column[j]);
          if (of_column[j] >= 0 && count > most) {
            most = count;
            cluster[c] = of_column[j];
          }
        }
        for (int j = 0; j < F; ++j) {
          varies[F * c + j] =
              cluster[c] >= 0 && of_column[j] == cluster[c] ? 1 : 0;
        }
      }
      using Stored = kernels::StoredJacobian<double, Shape, kLayout>;
      using OfCopies = ObservationBatch<Machine, Stored>;
      CERES_EXT_RETURN_IF_ERROR(
          FormSplitSchur<OfCopies>(index_,
                                   jacobian_,
                                   cluster,
                                   varies,
                                   request,
                                   Points(request.e_diagonal),
                                   machine_,
                                   split));
      for (int64_t& column : split->column) {
        column += f_begin_;
      }
    }
    return {};
  }

  PartRows* part_rows() final { return this; }
  const kernels::ObservationIndexRef& part_index() final { return index_; }
  int32_t part_columns() const final { return F; }
  kernels::Status ListPartColumns(std::vector<int32_t>* column) final {
    column->resize(static_cast<size_t>(int64_t{F} * index_.num_cameras));
    std::iota(column->begin(), column->end(), static_cast<int32_t>(f_begin_));
    return {};
  }
  kernels::Status PartBlocks(double* u) final {
    auto params = OnJacobian<kernels::NormalBlocksParams<Source, kLayout>>();
    params.u = {u, index_.num_cameras};
    return Run(params, machine_);
  }

  kernels::Status ListCouplings(std::vector<Coupling>* couplings) final {
    return ListSampledCouplings(
        index_, NumSampledRows(index_.num_cameras), machine_, couplings);
  }

  kernels::Status PartVectors(const PartVectorsRequest& request) final {
    if constexpr (kHasCoarse) {
      kernels::CameraVectorsParams<Source> cameras;
      cameras.jacobian = jacobian_;
      cameras.num_cameras = index_.num_cameras;
      cameras.place = request.place;
      cameras.p = request.p;
      if (camera_vectors_.size() == 0) {
        CERES_EXT_RETURN_IF_ERROR(
            machine_->Allocate(cameras.size(), &camera_vectors_));
      }
      cameras.q = camera_vectors_.data();
      CERES_EXT_RETURN_IF_ERROR(Run(cameras, machine_));
      auto parts = OnJacobian<kernels::PartVectorsParams<Source, kLayout>>();
      parts.num_parts = request.num_parts;
      parts.row = request.row;
      parts.part_begin = request.part_begin;
      parts.part_point = request.part_point;
      parts.v_inverse = PointView(request.v_inverse);
      parts.q = camera_vectors_.data();
      parts.t = request.t;
      return Run(parts, machine_);
    } else {
      return {};
    }
  }

  RowPairs row_pairs() final {
    return kIsStored && owns_points_ ? RowPairs{&index_, e_family_, f_family_}
                                     : RowPairs{};
  }
  kernels::Status WriteRowPairs(double* w) final {
    if constexpr (kIsStored) {
      return Run(
          kernels::RowPairsParams<Source>{
              index_.num_observations, jacobian_, w},
          machine_);
    } else {
      return {};
    }
  }

  kernels::Status ListRows(int batch,
                           kernels::SchurPairsBuilder* builder) final {
    if constexpr (kIsStored) {
      std::vector<kernels::SchurPairsBuilder::Cell> cells = {
          {f_family_, 0, kernels::ColumnsValue(0, F), F}};
      builder->Reserve(e_family_, index_.num_observations, 1);
      return ForEachObservation(
          index_, machine_, [&](int32_t k, int32_t point, int32_t camera) {
            cells[0].block = camera;
            builder->AddRow(batch, k, {e_family_, point}, cells);
          });
    } else {
      return NeedsStored();
    }
  }

  kernels::Status SetupPairs(int batch,
                             const kernels::SchurPairsBuilder& builder) final {
    return schur_sums_.Setup(batch, builder, machine_);
  }

  kernels::Status AddPairs(double* w, double* u) final {
    if constexpr (kIsStored) {
      CERES_EXT_RETURN_IF_ERROR(schur_sums_.AddPairs(
          kernels::PairSums<Source>{jacobian_}, w, machine_));
      return schur_sums_.AddCrossings(
          kernels::CrossingSums<Source>{jacobian_}, u, machine_);
    } else {
      return {};
    }
  }

  void AppendOperands(std::vector<const void*>* operands) const final {
    static_assert(std::has_unique_object_representations_v<Source> &&
                      sizeof(Source) % sizeof(void*) == 0,
                  "compared as bytes");
    const void* words[sizeof(Source) / sizeof(void*)];
    std::memcpy(words, &jacobian_, sizeof(Source));
    operands->insert(operands->end(), std::begin(words), std::end(words));
  }

  // The places of the two families and the ownership of the points, for
  // everything except a solver's requests; SetupSolver sets them too.
  kernels::Status SetBlocks(const ProblemBlocks& blocks) {
    owns_points_ = blocks.e_owner[e_family_] != ProblemBlocks::kShared;
    e_begin_ = blocks.e[e_family_].value_begin;
    f_begin_ = blocks.f[f_family_].value_begin;
    e_packed_begin_ = blocks.e[e_family_].packed_begin;
    f_packed_begin_ = blocks.f_matrices()[f_family_].packed_begin;
    return machine_->Allocate(owns_points_ ? 0 : int64_t{E} * index_.num_points,
                              &point_scratch_);
  }
  bool owns_points() const { return owns_points_; }
  // Scratch of the points, where they are shared: E values each.
  double* point_scratch() { return point_scratch_.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  static constexpr kernels::CouplingList kCouplings =
      kernels::kCouplings<Source, kLayout>;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;
  // True if S as a matrix has an operation of its own, and whether rows are
  // there for others; of machines that replace operations neither.
  static constexpr bool kHasSchur =
      !kernels::IsModel<Source>::value &&
      (std::is_same_v<Machine, kernels::HostMachine> ||
       std::is_same_v<Machine, kernels::CudaMachine>);
  // Rows of a split problem are copies of these.
  static constexpr bool kHasCoarse =
      kHasSchur && !kernels::IsNested<Source>::value;
  static constexpr bool kIsStored =
      kHasSchur && !kernels::IsRecomputed<Source>::value;

  // The family's part of an array over families, null if that is.
  template <typename T>
  T* Points(T* e) const {
    return e == nullptr ? nullptr : e + e_begin_;
  }
  template <typename T>
  T* Cameras(T* f) const {
    return f == nullptr ? nullptr : f + f_begin_;
  }
  template <typename T>
  kernels::BlockRef<T, Shape::kPackedE, kLayout> PointView(T* packed) const {
    return {packed == nullptr ? nullptr : packed + e_packed_begin_,
            index_.num_points};
  }
  template <typename T>
  kernels::BlockRef<T, Shape::kPackedF, kLayout> CameraView(T* packed) const {
    return {packed == nullptr ? nullptr : packed + f_packed_begin_,
            index_.num_cameras};
  }
  // to += scratch, over the points.
  kernels::Status AddScratch(const Buffer<double>& scratch, double* to) {
    return Run(
        kernels::AddVectorsParams{scratch.size(), to, scratch.data(), to},
        machine_);
  }

  template <typename Params>
  Params OnJacobian() const {
    Params params;
    params.index = index_;
    params.jacobian = jacobian_;
    return params;
  }
  // y = J (e, f), or += ; arrays of the two families.
  kernels::Status JacobianProduct(const double* e,
                                  const double* f,
                                  bool accumulate,
                                  double* y) {
    auto params = OnJacobian<kernels::RightMultiplyParams<Source>>();
    params.camera_x = f;
    params.point_x = e;
    params.y = y;
    params.accumulate = accumulate;
    return Run(params, machine_);
  }
  // (e, f) = J'y, or += ; null: not wanted.
  kernels::Status TransposeProduct(const double* y,
                                   bool accumulate,
                                   double* e,
                                   double* f) {
    auto params = OnJacobian<kernels::LeftMultiplyParams<Source>>();
    params.y = y;
    params.camera_x = f;
    params.point_x = e;
    params.accumulate = accumulate;
    return Run(params, machine_);
  }

  kernels::ObservationIndexRef index_;
  Machine* machine_ = nullptr;
  Source jacobian_;
  int e_family_ = 0;
  int f_family_ = 0;
  bool owns_points_ = true;
  bool sums_pairs_ = false;  // StepOptions::sums_pairs
  int64_t e_begin_ = 0;
  int64_t f_begin_ = 0;
  int64_t e_packed_begin_ = 0;
  int64_t f_packed_begin_ = 0;

  // For points that are shared.
  Buffer<double> point_scratch_;   // E per point
  Buffer<double> packed_scratch_;  // packed per point
  Buffer<double> residual_scratch_;
  Buffer<double> zero_points_;
  Buffer<double> zero_cameras_;

  // For S as a matrix.
  kernels::CouplingIndexOf<Machine> couplings_;
  Buffer<unsigned char> schur_scratch_;
  kernels::HostSchurRows schur_rows_;  // of the host
  SchurSums<Machine> schur_sums_;
  Buffer<double> camera_vectors_;  // of PartVectors
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OBSERVATION_BATCH_H_
