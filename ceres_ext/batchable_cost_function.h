// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The contract between a cost function and the solver that evaluates all its
// residual blocks (*rows*) at once, on a device or on threads of the host.
//
// A cost function derives from BatchableCostFunction when there is a batched
// form of its model. It remains a complete ceres::CostFunction, and stock Ceres
// can evaluate it. Users normally get one from
// ceres_ext/device_cost_function.h, which implements all of this; the rest of
// this file is for authors of other kinds of models.
//
// A model's functions get rows as a RowBatch: the places of parameters,
// residuals and derivatives, and the loss of each row. A row's derivative by a
// parameter block is J P, where J is that of the cost function and P, ambient
// by tangent size, the derivative of the block's manifold.

#ifndef CERES_EXT_BATCHABLE_COST_FUNCTION_H_
#define CERES_EXT_BATCHABLE_COST_FUNCTION_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "ceres/cost_function.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/model/model_jacobian.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Changes whenever anything in this file or in small/fit/fit.h does.
inline constexpr int32_t kBatchModelVersion = 9;

// A parameter block of a row.
struct alignas(16) RowBlock {
  // column of the block that the row's entry of RowBatch::points describes.
  static constexpr int32_t kPoint = -1;
  // tangent where P is the identity.
  static constexpr int32_t kIdentity = -1;
  // state of a block that each row has its own of (RowBatch::own_state).
  static constexpr int32_t kOwn = std::numeric_limits<int32_t>::min();

  // Its first value in RowBatch::state; value i of RowBatch::constant_state is
  // -1 - i.
  int32_t state = 0;
  // The first value of P, row-major, in RowBatch::tangents.
  int32_t tangent = kIdentity;
  // The first column of its derivative in the row (RowCells).
  int32_t column = 0;
  // Columns of its derivative; 0 if it is not requested.
  int32_t size = 0;
};

// The layout of derivatives: element (i, j) of the block whose derivative
// begins at `column` in the row at `place` is
//   data[place * row + column * element + i * residual + j * element]
struct RowCells {
  void* data = nullptr;  // float where RowBatch::stores_float, else double
  int64_t row = 0;
  int64_t residual = 0;
  int64_t element = 0;
};

// Rows of one model, by value to a kernel. Everything is in the memory of the
// machine that evaluates. A row's number is i; its place in the arrays that
// rows of other models share is place[i].
struct RowBatch {
  int64_t num_rows = 0;
  // A kernel evaluates no row if this is 0 when it begins, and adds nothing up;
  // null: all.
  const int32_t* is_wanted = nullptr;
  const int32_t* place = nullptr;  // num_rows; null: i

  // Parameter blocks, those of one combination after the other, and which
  // combination a row has, by number; null: row i has combination i.
  const RowBlock* blocks = nullptr;
  const int32_t* combination = nullptr;
  // For the block of column kPoint: points[point_id[place]].
  const RowBlock* points = nullptr;
  const int32_t* point_id = nullptr;
  // For a block of state kOwn: own_state[own_block[place]].
  const int32_t* own_block = nullptr;
  const int32_t* own_state = nullptr;
  const double* state = nullptr;
  const double* constant_state = nullptr;
  const double* tangents = nullptr;

  // Word w, of eight bytes, of row i's constants is
  // constants[i * constant_row + w * constant_word].
  const uint64_t* constants = nullptr;
  int64_t constant_row = 0;
  int64_t constant_word = 0;

  // The loss of each row, by number; not applied if apply_loss is false.
  kernels::LossRef loss;
  bool apply_loss = false;

  // |r|^2 before the loss, by number, or null.
  double* squared_norms = nullptr;
  // Residuals corrected for the loss, from residual_begin[i] on, or from
  // place[i] times the number of residuals if residual_begin is null. May be
  // null.
  double* residuals = nullptr;
  const int32_t* residual_begin = nullptr;
  // Derivatives corrected for the loss. Blocks of column kPoint go to e, others
  // to f. value_begin, by number, may be null; it is added to the beginning of
  // a row in f, whose `residual` then is the block's size.
  RowCells e;
  RowCells f;
  const int64_t* value_begin = nullptr;
  bool stores_float = false;
};

// The contribution of a row: rho(|r|^2), and 1 if a residual or derivative is
// not finite or the cost function returns false.
using RowTerm = kernels::TwoSums;

// 1/2 of the sum of the first, and the sum of the second.
struct RowSums {
  double cost = 0.0;
  int64_t num_not_finite = 0;
};

// The forms that a model may have on a device: kernels for one purpose
// (ceres_ext/device/cost_function.cuh).
enum class FormKind {
  // They evaluate rows: kernel 0 computes the cost, 1 also the Jacobian.
  // Parameters, on the device: a RowBatch, partial sums and a ticket
  // (kernels::SumOverBlocks), and the RowSums that they write.
  kRows,
  // They recompute the Jacobian in each operation (kernels::ModelKernel), for
  // rows of two residuals, a point and one other block.
  kRecomputed,
  // They solve whole problems. Parameters: a FitParams
  // (ceres_ext/small/fit/fit.h).
  kFits,
};
inline constexpr int kNumFormKinds = 3;

// Models whose Jacobian the solver can recompute
// (ceres_ext::Options::jacobian).
enum class BatchModelKind {
  kOther = -1,
  // Camera (rotation vector, t, f, k1, k2), point; constants: the observation.
  kBalAngleAxis,
  // Camera (quaternion w x y z, t, f, k1, k2), point; constants: the same.
  kBalQuaternion,
};

// True if the compiler says that the code that includes this file is compiled
// without optimisation.
#if defined(__GNUC__) && !defined(__OPTIMIZE__)
constexpr bool kIsUnoptimized = true;
#else
constexpr bool kIsUnoptimized = false;
#endif

// Properties that all residual blocks of one cost function type share. Objects
// of this type have static storage.
struct BatchModel {
  int32_t version;  // kBatchModelVersion
  BatchModelKind kind;
  int num_residuals;
  int num_parameter_blocks;
  const int* parameter_block_sizes;
  int constants_bytes;  // per residual block
  // Evaluates row i on the host. Thread safe. If `jacobian` is true, e and f
  // are computed.
  RowTerm (*evaluate_row)(const RowBatch& rows, bool jacobian, int64_t i);
  // kNumFormKinds of them, each holding null if the model does not have that
  // form. Null if it has none.
  const std::atomic<const kernels::ModelForm*>* forms;
  // kIsUnoptimized of the code that compiled evaluate_row. Summary::path_reason
  // says so if that makes a solve slow.
  bool is_unoptimized;
  // The derivatives by the second block are those by the first with the other
  // sign. They are stored once then, where the blocks have no manifolds.
  bool blocks_are_opposite;

  const kernels::ModelForm* GetForm(FormKind kind) const {
    return forms == nullptr ? nullptr : forms[static_cast<int>(kind)].load();
  }
};

// Thread safety: all members are const and may be called from any thread.
class BatchableCostFunction : public ceres::CostFunction {
 public:
  // Valid for the life of the process. It agrees with num_residuals() and
  // parameter_block_sizes(). Cost functions with the same object are evaluated
  // together, so those of one dynamic type should share as few as possible.
  virtual const BatchModel& batch_model() const = 0;

  // Writes the constants_bytes bytes of this residual block.
  virtual void CopyConstants(void* constants) const = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BATCHABLE_COST_FUNCTION_H_
