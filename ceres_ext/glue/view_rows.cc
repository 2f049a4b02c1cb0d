// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>

#include "ceres_ext/glue/host_rows.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/observation_jacobian.h"
#include "cuda_kernels/ops/views.h"

namespace ceres_ext {

using kernels::Status;

namespace {

template <typename Machine, typename T, int C>
class ViewRows final : public HostRows<Machine> {
 public:
  Status Setup(const HostRowsInput<Machine>& input) {
    rows_ = input.blocks->views();
    const solver::ProblemBlocks& blocks = input.blocks->blocks();
    this->owns_points_ = blocks.e_owner[0] != solver::ProblemBlocks::kShared;
    const int64_t n = rows_->index().num_observations;
    std::vector<int32_t> order(n);
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->Download(n, rows_->index().input_id(), order.data()));
    for (int32_t& i : order) {
      i = input.structure->views.rows[i];
    }
    CERES_EXT_RETURN_IF_ERROR(this->SetupRows(
        input, order, Shape::kNumResiduals * n, kChunk, Shape::kESize));
    CERES_EXT_RETURN_IF_ERROR(this->values_.Allocate(
        Pack::kStride * (n > kChunk ? kNumBuffers * kChunk : n)));
    return kIsHost<Machine>
               ? Status()
               : rows_->machine->Allocate(Pack::kStride * std::min(kChunk, n),
                                          &machine_values_);
  }

  Status CreateJacobian(std::unique_ptr<RowsJacobian>* jacobian) const final {
    return MakeAndSetUp<Jacobian>(jacobian, rows_, this->blocks().blocks());
  }

 private:
  using Shape = kernels::BalShape<C>;
  using Source = kernels::StoredJacobian<T, Shape, Machine::kLayout>;
  using Jacobian = StoredRows<Machine, solver::ViewBatch<Machine, Source>>;
  using Pack = kernels::PackRowsParams<T, Shape, Machine::kLayout>;
  // Rows of a chunk: 13 to 14 MB, which a device takes in half a millisecond.
  static constexpr int64_t kChunk = 1 << 16;
  static constexpr int kNumBuffers = 2;

  double* ChunkValues(int64_t begin) {
    return this->values_.data() +
           begin / kChunk % kNumBuffers * Pack::kStride * kChunk;
  }

  int64_t FirstResidual(int64_t row) const final {
    return Shape::kNumResiduals * row;
  }
  HostEvaluation::PlaceOf ValuesOf(int64_t begin,
                                   RowsJacobian* /*jacobian*/) final {
    return [begin, values = ChunkValues(begin)](int64_t k) {
      return values + Pack::kStride * (k - begin);
    };
  }
  Status Store(int64_t begin, int64_t end, RowsJacobian* jacobian) final {
    Machine* machine = rows_->machine;
    Pack pack;
    pack.n = end - begin;
    pack.begin = begin;
    pack.index = rows_->index();
    pack.e_size = rows_->point_table().tangent_size;
    pack.columns = rows_->columns.data();
    pack.rows = ChunkValues(begin);
    if constexpr (!kIsHost<Machine>) {
      CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(
          Pack::kStride * pack.n, pack.rows, machine_values_.data()));
      pack.rows = machine_values_.data();
    }
    pack.camera_blocks = static_cast<Jacobian*>(jacobian)->camera_blocks();
    pack.point_blocks = static_cast<Jacobian*>(jacobian)->point_blocks();
    return kernels::Run(pack, machine);
  }

  const ObservationBlocks<Machine>* rows_ = nullptr;
  // A chunk, where the machine isn't the host.
  typename Machine::template Buffer<double> machine_values_;
};

}  // namespace

template <typename Machine>
Status CreateViewRows(const HostRowsInput<Machine>& input,
                      std::unique_ptr<RowsEvaluator>* rows) {
  return WithBlockType<Machine>(input.mixed_precision, [&](auto value) {
    return kernels::WithStoredColumns(
        input.structure->views.columns, [&](auto columns) {
          return MakeAndSetUp<ViewRows<Machine, decltype(value), columns>>(
              rows, input);
        });
  });
}

#define CERES_EXT_INSTANTIATE(Machine)     \
  template Status CreateViewRows<Machine>( \
      const HostRowsInput<Machine>& input, \
      std::unique_ptr<RowsEvaluator>* rows);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
