// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of rows of one eliminated block and several others, as observations
// of views (cuda_kernels/structure/views.h): all algebra on rows is that of an
// ObservationBatch, with G before it and G' after it. It owns no F family.
//
// Its diagonal blocks of S, single or merged, are those of the views if a block
// is in one view; a block that views share has rows of a point in several, and
// a separate sum.
#ifndef CERES_EXT_SOLVER_VIEW_BATCH_H_
#define CERES_EXT_SOLVER_VIEW_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/schur_sums.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/model_jacobian.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/ops/views.h"
#include "cuda_kernels/structure/views.h"

namespace ceres_ext::solver {

template <typename Machine, typename SourceIn>
class ViewBatch final : public Batch,
                        public SchurWriter,
                        public CoarseRows,
                        public PartRows {
 public:
  using Source = SourceIn;
  using Shape = typename Source::Shape;
  static constexpr int kColumns = Shape::kF;

  // As ObservationBatch::Setup, the cameras of the index being views. *views
  // outlives the batch.
  kernels::Status Setup(const kernels::ObservationIndexRef& index,
                        const kernels::Views<Machine>* views,
                        int e_family,
                        const ProblemBlocks& blocks,
                        const Source& jacobian,
                        Machine* machine) {
    index_ = index;
    views_ = views;
    e_family_ = e_family;
    blocks_ = blocks;
    jacobian_ = jacobian;
    machine_ = machine;
    view_blocks_.e = blocks.e;
    view_blocks_.e_owner = blocks.e_owner;
    view_blocks_.f = {};
    view_blocks_.f.Add(kColumns, views->num_views());
    view_blocks_.f_owner = {0};
    batch_.Setup(index, e_family, 0, machine);
    batch_.SetJacobian(jacobian);
    CERES_EXT_RETURN_IF_ERROR(batch_.SetBlocks(view_blocks_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(views->num_values(), &p_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(views->num_values(), &q_));
    return sums_.Reserve({&views->blocks().all}, /*packed=*/false, machine);
  }

  int64_t num_residuals() const final { return batch_.num_residuals(); }

  kernels::Status SetupSolver(const StepOptions& options,
                              const ProblemBlocks& /*blocks*/) final {
    CERES_EXT_RETURN_IF_ERROR(batch_.SetupSolver(options, view_blocks_));
    const int64_t num_packed = view_blocks_.f.num_packed();
    // Outputs of UndampedBlocks may overwrite those of S.
    const bool needs_s = options.needs_schur_diagonal();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        options.needs_u() || !needs_s ? num_packed : 0, &u_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(needs_s ? num_packed : 0, &schur_diagonal_));
    return sums_.Reserve({&views_->blocks().all,
                          &views_->blocks().shared,
                          &views_->merged().all,
                          &views_->merged().shared},
                         /*packed=*/true,
                         machine_);
  }

  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final {
    CERES_EXT_RETURN_IF_ERROR(Gather(f, nullptr));
    return batch_.RightMultiply(e, p_.data(), accumulate, y);
  }

  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final {
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(q_.size(), q_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        batch_.LeftMultiplyAndAccumulate(y, e, q_.data()));
    return Scatter(f, nullptr);
  }

  kernels::Status SquaredColumnNorms(double* e, double* f) final {
    CERES_EXT_RETURN_IF_ERROR(batch_.SquaredColumnNorms(e, q_.data()));
    return Scatter(f, nullptr);
  }

  // The values of `f` at the columns of the views.
  kernels::Status GatherColumns(const double* f, const double** out) {
    *out = p_.data();
    return Gather(f, nullptr);
  }

  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(batch_.EliminatedBlocks(OfViews(request)));
    return batch_.owns_points() ? AddToBlocks(request) : kernels::Status();
  }

  kernels::Status OtherBlocks(const NormalBlocksRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(batch_.OtherBlocks(OfViews(request)));
    return batch_.owns_points() ? kernels::Status() : AddToBlocks(request);
  }

  kernels::Status MultiplyToEliminated(
      const double* f_p, double* s, const kernels::PcgScalars* scalars) final {
    if (batch_.owns_points()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(Gather(f_p, scalars));
    return batch_.MultiplyToEliminated(p_.data(), s, scalars);
  }

  kernels::Status Multiply(const ProductRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(Gather(request.f_p, request.scalars));
    CERES_EXT_RETURN_IF_ERROR(batch_.Multiply(OfViews(request)));
    return Scatter(request.f_q, request.scalars);
  }

  kernels::Status BackSubstitute(const double* b,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final {
    if (!batch_.owns_points()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(Gather(z, nullptr));
    return batch_.BackSubstitute(b, v_inverse, p_.data(), y);
  }

  SchurWriter* schur_writer() final {
    return batch_.schur_writer() != nullptr ? this : nullptr;
  }
  int schur_family() const final { return kOwnBlocks; }

  // If no block is in two views, S is formed from the views as it is from
  // cameras.
  kernels::Status ListOwnBlocks(kernels::BlockFamilies* families,
                                std::vector<int32_t>* columns) final {
    std::vector<int32_t> column;
    CERES_EXT_RETURN_IF_ERROR(DownloadColumns(&column));
    std::vector<unsigned char> is_there(
        static_cast<size_t>(blocks_.f.num_values()));
    int64_t num_left = blocks_.f.num_values();
    for (const int32_t at : column) {
      if (at >= 0) {
        if (is_there[at] != 0) {
          return {};
        }
        is_there[at] = 1;
        --num_left;
      }
    }
    if (num_left == 0) {
      *families = view_blocks_.f;
      *columns = std::move(column);
    }
    return {};
  }
  kernels::Status ForecastSchur(int64_t* bytes, int64_t* build_bytes) final {
    return batch_.ForecastSchur(bytes, build_bytes);
  }
  kernels::Status SetupSchur(int64_t* num_values) final {
    return batch_.SetupSchur(num_values);
  }
  kernels::Status ListSchurBlocks(kernels::SchurBlockList* list) final {
    return batch_.ListSchurBlocks(list);
  }
  kernels::Status WriteSchur(const SchurBlocksRequest& request) final {
    SchurBlocksRequest of_views = request;
    of_views.schur_diagonal = schur_diagonal_.data();
    if (request.f_diagonal != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(Gather(request.f_diagonal, nullptr));
      of_views.f_diagonal = p_.data();
    }
    return batch_.WriteSchur(of_views);
  }

  CoarseRows* coarse_rows() final {
    return batch_.coarse_rows() != nullptr ? this : nullptr;
  }
  // The views' columns in place of F's.
  kernels::Status FormSplit(const SplitRequest& request,
                            SplitSchur* split) final {
    std::vector<int32_t> column;
    CERES_EXT_RETURN_IF_ERROR(DownloadColumns(&column));
    std::vector<int32_t> cluster(column.size(), -1);
    for (size_t at = 0; at < column.size(); ++at) {
      if (column[at] >= 0) {
        cluster[at] = (*request.cluster)[static_cast<size_t>(column[at])];
      }
    }
    SplitRequest of_views = request;
    of_views.cluster = &cluster;
    std::vector<int64_t> row_begin;
    std::vector<int32_t> place;
    if (request.matrices != nullptr) {
      row_begin.resize(column.size(), 0);
      place.resize(column.size(), 0);
      for (size_t at = 0; at < column.size(); ++at) {
        if (column[at] >= 0) {
          row_begin[at] = (*request.row_begin)[static_cast<size_t>(column[at])];
          place[at] = (*request.place)[static_cast<size_t>(column[at])];
        }
      }
      of_views.row_begin = &row_begin;
      of_views.place = &place;
    }
    CERES_EXT_RETURN_IF_ERROR(batch_.FormSplit(of_views, split));
    for (int64_t& at : split->column) {
      at = column[static_cast<size_t>(at)];
    }
    return {};
  }

  PartRows* part_rows() final {
    return batch_.part_rows() != nullptr ? this : nullptr;
  }
  const kernels::ObservationIndexRef& part_index() final { return index_; }
  int32_t part_columns() const final { return kColumns; }
  kernels::Status ListPartColumns(std::vector<int32_t>* column) final {
    return DownloadColumns(column);
  }
  kernels::Status PartBlocks(double* u) final { return batch_.PartBlocks(u); }
  kernels::Status ListCouplings(std::vector<Coupling>* couplings) final {
    return batch_.part_rows()->ListCouplings(couplings);
  }
  kernels::Status PartVectors(const PartVectorsRequest& request) final {
    return batch_.PartVectors(request);
  }

  kernels::Status ListRows(int batch,
                           kernels::SchurPairsBuilder* builder) final {
    if constexpr (kernels::IsModel<Source>::value) {
      return this->NeedsStored();
    } else {
      // The blocks of each view: runs of columns of F.
      std::vector<int32_t> column;
      CERES_EXT_RETURN_IF_ERROR(DownloadColumns(&column));
      std::vector<std::vector<kernels::SchurPairsBuilder::Cell>> cells(
          static_cast<size_t>(views_->num_views()));
      for (size_t at = 0; at < column.size(); ++at) {
        if (column[at] < 0) {
          continue;
        }
        const auto place = blocks_.f.PlaceOf(column[at]);
        auto& of_view = cells[at / kColumns];
        if (place.column == 0) {
          of_view.push_back(
              {place.family,
               place.block,
               kernels::ColumnsValue(static_cast<int>(at % kColumns), 1),
               1});
        } else {
          of_view.back().value += kernels::ColumnsValue(0, 1);
          ++of_view.back().size;
        }
      }
      size_t most = 1;
      for (const auto& of_view : cells) {
        most = std::max(most, of_view.size());
      }
      builder->Reserve(
          e_family_, index_.num_observations, static_cast<int64_t>(most));
      return ForEachObservation(
          index_, machine_, [&](int32_t k, int32_t point, int32_t view) {
            builder->AddRow(batch, k, {e_family_, point}, cells[view]);
          });
    }
  }

  // Rows of views have their blocks where observations do.
  kernels::Status SetupPairs(int batch,
                             const kernels::SchurPairsBuilder& builder) final {
    return batch_.SetupPairs(batch, builder);
  }
  kernels::Status AddPairs(double* w, double* u) final {
    return batch_.AddPairs(w, u);
  }

  void AppendOperands(std::vector<const void*>* operands) const final {
    batch_.AppendOperands(operands);
  }

 private:
  using Buffer = typename Machine::template Buffer<double>;

  kernels::Status DownloadColumns(std::vector<int32_t>* column) {
    column->resize(static_cast<size_t>(views_->num_values()));
    return machine_->Download(
        views_->num_values(), views_->column(), column->data());
  }

  // The place of the blocks of F'F; those of S are not requested together with
  // them.
  Buffer& U() { return u_.size() > 0 ? u_ : schur_diagonal_; }

  // With arrays of views in place of F's; D_f is the caller's.
  NormalBlocksRequest OfViews(NormalBlocksRequest request) {
    const auto replace = [](double* with, double** array) {
      *array = *array == nullptr ? nullptr : with;
    };
    replace(q_.data(), &request.f_gradient);
    replace(q_.data(), &request.schur_rhs);
    replace(U().data(), &request.u);
    replace(schur_diagonal_.data(), &request.schur_diagonal);
    return request;
  }
  ProductRequest OfViews(ProductRequest request) {
    request.f_diagonal = nullptr;
    request.f_p = p_.data();
    request.f_q = q_.data();
    return request;
  }

  // p = G f
  kernels::Status Gather(const double* f, const kernels::PcgScalars* scalars) {
    return Run(
        kernels::GatherColumnsParams{
            p_.size(), views_->column(), f, p_.data(), scalars},
        machine_);
  }

  // f += G'q; null: not wanted.
  kernels::Status Scatter(double* f, const kernels::PcgScalars* scalars) {
    return sums_.Add(views_->blocks().all,
                     blocks_.f,
                     kernels::ViewVectors{q_.data()},
                     f,
                     scalars,
                     machine_);
  }

  // Moves the results of the views to their blocks.
  kernels::Status AddToBlocks(const NormalBlocksRequest& request) {
    CERES_EXT_RETURN_IF_ERROR(Scatter(request.f_gradient, nullptr));
    CERES_EXT_RETURN_IF_ERROR(Scatter(request.schur_rhs, nullptr));
    CERES_EXT_RETURN_IF_ERROR(AddMatrices<false>(views_->blocks(), request));
    return AddMatrices<true>(views_->merged(), request);
  }

  template <bool kMerged>
  kernels::Status AddMatrices(
      const typename kernels::Views<Machine>::Lists& lists,
      const NormalBlocksRequest& request) {
    const auto matrices = [&](const Buffer& packed) {
      return kernels::ViewMatrices<kMerged>{
          kernels::PackedBlocks<const double>(
              view_blocks_.f[0], Machine::kLayout, packed.data()),
          kColumns,
          views_->merged_columns()};
    };
    const auto add =
        [&](const auto& list, const auto& formula, double* packed) {
          return sums_.Add(
              list, blocks_.f_matrices(), formula, packed, nullptr, machine_);
        };
    CERES_EXT_RETURN_IF_ERROR(add(lists.all, matrices(U()), request.u));
    CERES_EXT_RETURN_IF_ERROR(
        add(lists.single, matrices(schur_diagonal_), request.schur_diagonal));
    if constexpr (kernels::IsModel<Source>::value) {
      return {};  // Views of one block each share none.
    } else {
      kernels::SharedSchurBlocks<Source, kMerged> shared;
      shared.jacobian = jacobian_;
      shared.point_id = index_.point_id;
      shared.v_inverse = kernels::PackedBlocks<const double>(
          blocks_.e[e_family_], Machine::kLayout, request.v_inverse);
      shared.merged_columns = views_->merged_columns();
      return add(lists.shared, shared, request.schur_diagonal);
    }
  }

  kernels::ObservationIndexRef index_;
  const kernels::Views<Machine>* views_ = nullptr;
  int e_family_ = 0;
  ProblemBlocks blocks_;
  ProblemBlocks view_blocks_;
  Source jacobian_;
  Machine* machine_ = nullptr;
  ObservationBatch<Machine, Source> batch_;
  // Vectors and matrices of the views.
  Buffer p_;
  Buffer q_;
  Buffer u_;
  Buffer schur_diagonal_;
  kernels::BlockSums<Machine> sums_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_VIEW_BATCH_H_
