// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks with manifolds in a machine's memory: state (+) delta, and the
// derivatives by the tangents.
//
// A device computes what is made of ceres::EuclideanManifold, SubsetManifold,
// QuaternionManifold, EigenQuaternionManifold, SphereManifold, LineManifold and
// ProductManifold (model/manifold.h). The host calls a user-defined or partly
// unknown manifold, for one block after the other, because it may not be thread
// safe: only the values of these blocks are downloaded, and the manifold's
// results are uploaded. The host calls all manifolds.

#ifndef CERES_EXT_BLOCKS_BLOCK_MANIFOLDS_H_
#define CERES_EXT_BLOCKS_BLOCK_MANIFOLDS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/type_name.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/manifold.h"
#include "cuda_kernels/ops/manifolds.h"

namespace ceres_ext {

// One block of a state.
struct BlockManifold {
  const ceres::Manifold* manifold = nullptr;  // null: Euclidean
  // -1: the block is constant, has no columns and a matrix of zeros.
  int32_t state_offset = 0;
  int32_t tangent_offset = 0;
  int32_t ambient_size = 0;
  int32_t tangent_size = 0;
  // Values in a row of its matrix, zero beyond tangent_size.
  int32_t matrix_stride = 0;
};

// The factors of a manifold; returns false if it is not certain to be a product
// of known factors. Ceres's own manifolds are recognised by their types, which
// are final and name the factors of a product. Properties that a type leaves
// open, such as sizes and subsets, are read from the object, and in the end
// both must agree at some point.
bool ReadManifold(const ceres::Manifold& manifold,
                  std::vector<kernels::ManifoldFactor>* factors);

// The factors of many blocks, equal ones once.
class ManifoldFactors {
 public:
  struct Place {
    int32_t first = 0;
    int32_t size = 0;
    bool is_linear = false;
  };

  // The place of the block's factors in factors(), or none if its manifold is
  // unknown.
  std::optional<Place> Find(const BlockManifold& block);
  const std::vector<kernels::ManifoldFactor>& factors() const {
    return factors_;
  }

 private:
  std::vector<kernels::ManifoldFactor> factors_;
  std::map<std::vector<std::pair<kernels::ManifoldKind, int32_t>>, Place>
      places_;
  // Blocks usually share one object.
  std::unordered_map<const ceres::Manifold*, std::optional<Place>> of_object_;
};

// The host's work for a block. kNumericalFailure, with the reason, where the
// manifold fails or throws or, of PlusJacobian, as in Ceres, writes what is not
// finite or does not write all.
kernels::Status CallPlus(const BlockManifold& block,
                         const double* x,
                         const double* delta,
                         double* x_plus_delta);
kernels::Status CallPlusJacobian(const BlockManifold& block,
                                 const double* x,
                                 double* plus_jacobian);

template <typename Machine>
class BlockManifolds {
 public:
  // Once. wants_tangents: whether UpdateTangents will be called. All memory is
  // taken here. The manifolds outlive this object.
  kernels::Status Setup(const std::vector<BlockManifold>& blocks,
                        bool wants_tangents,
                        Machine* machine) {
    machine_ = machine;
    ManifoldFactors factors;
    std::vector<kernels::ManifoldBlock> linear;
    std::vector<kernels::ManifoldBlock> known;
    std::vector<int64_t> called_begin;
    int64_t size = 0;
    for (const BlockManifold& block : blocks) {
      tangent_begin_.push_back(size);
      const auto place = kIsHost<Machine> && block.manifold != nullptr
                             ? std::nullopt
                             : factors.Find(block);
      if (place.has_value()) {
        (place->is_linear ? linear : known)
            .push_back({block.state_offset,
                        block.tangent_offset,
                        place->first,
                        place->size,
                        block.matrix_stride,
                        size});
      } else {
        called_.push_back(block);
        called_begin.push_back(size);
      }
      size += int64_t{block.ambient_size} * block.matrix_stride;
    }
    num_curved_ = static_cast<int64_t>(known.size());
    known.insert(known.end(), linear.begin(), linear.end());
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(known, &known_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(factors.factors(), &factors_));
    CERES_EXT_RETURN_IF_ERROR(
        SetupCalled(wants_tangents ? &called_begin : nullptr));
    if (!wants_tangents) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &tangents_));
    CERES_EXT_RETURN_IF_ERROR(machine->SetZero(size, tangents_.data()));
    return WriteTangents(known_.size(), /*linear=*/true, nullptr);
  }

  // The derivatives of all blocks at a state. kNumericalFailure where a
  // manifold fails.
  kernels::Status UpdateTangents(const double* state) {
    if (num_curved_ > 0) {
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangents(num_curved_, /*linear=*/false, state));
    }
    if (called_.empty()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(Gather(state_index_, state, values_.data()));
    const double* x = host_values_.data();
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        state_index_.size(), values_.data(), host_values_.data()));
    double* const matrices = host_values_.data() + state_index_.size();
    double* matrix = matrices;
    for (const BlockManifold& block : called_) {
      CERES_EXT_RETURN_IF_ERROR(CallPlusJacobian(block, x, matrix));
      x += block.ambient_size;
      matrix += int64_t{block.ambient_size} * block.tangent_size;
    }
    return Scatter(tangent_index_, matrices, tangents_.data());
  }
  // In the machine's memory: of block i an ambient_size x matrix_stride matrix,
  // row-major, at tangent_begin(i), in the order of the blocks.
  const double* tangents() const { return tangents_.data(); }
  int64_t num_tangents() const { return tangents_.size(); }
  int64_t tangent_begin(int64_t i) const { return tangent_begin_[i]; }

  // state_plus_delta = state (+) delta in the blocks; nothing else in
  // state_plus_delta changes. kNumericalFailure where a manifold fails.
  kernels::Status Plus(const double* state,
                       const double* delta,
                       double* state_plus_delta) {
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(kernels::PlusManifoldsParams{known_.size(),
                                                  known_.data(),
                                                  factors_.data(),
                                                  state,
                                                  delta,
                                                  state_plus_delta},
                     machine_));
    if (called_.empty()) {
      return {};
    }
    const int64_t num_values = state_index_.size();
    const int64_t num_columns = delta_index_.size();
    CERES_EXT_RETURN_IF_ERROR(Gather(state_index_, state, values_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        Gather(delta_index_, delta, values_.data() + num_values));
    const double* x = host_values_.data();
    const double* d = x + num_values;
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        num_values + num_columns, values_.data(), host_values_.data()));
    double* const moved = host_values_.data() + num_values + num_columns;
    double* y = moved;
    for (const BlockManifold& block : called_) {
      CERES_EXT_RETURN_IF_ERROR(CallPlus(block, x, d, y));
      x += block.ambient_size;
      d += block.tangent_size;
      y += block.ambient_size;
    }
    return Scatter(state_index_, moved, state_plus_delta);
  }

  // Blocks whose manifold the host calls, and the type of the first.
  int num_called() const { return static_cast<int>(called_.size()); }
  std::string called_type() const {
    return called_.empty() ? "" : TypeName(*called_[0].manifold);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // tangent_begin: of the called blocks; null: not wanted.
  kernels::Status SetupCalled(const std::vector<int64_t>* tangent_begin) {
    std::vector<int64_t> state;
    std::vector<int64_t> delta;
    std::vector<int64_t> tangent;
    for (size_t i = 0; i < called_.size(); ++i) {
      const BlockManifold& block = called_[i];
      for (int row = 0; row < block.ambient_size; ++row) {
        state.push_back(int64_t{block.state_offset} + row);
        for (int j = 0; tangent_begin != nullptr && j < block.tangent_size;
             ++j) {
          tangent.push_back((*tangent_begin)[i] +
                            int64_t{row} * block.matrix_stride + j);
        }
      }
      for (int j = 0; j < block.tangent_size; ++j) {
        delta.push_back(int64_t{block.tangent_offset} + j);
      }
    }
    const auto num_values = static_cast<int64_t>(state.size());
    const auto num_columns = static_cast<int64_t>(delta.size());
    const auto num_tangents = static_cast<int64_t>(tangent.size());
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(state, &state_index_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(delta, &delta_index_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(tangent, &tangent_index_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        std::max(num_values + num_columns, num_tangents), &values_));
    return host_values_.Allocate(
        num_values + std::max(num_columns + num_values, num_tangents));
  }

  kernels::Status WriteTangents(int64_t n, bool linear, const double* state) {
    return kernels::Run(
        kernels::ManifoldTangentsParams{
            n, known_.data(), factors_.data(), linear, state, tangents_.data()},
        machine_);
  }

  // values = those of `vector` that belong to called blocks.
  kernels::Status Gather(const Buffer<int64_t>& index,
                         const double* vector,
                         double* values) {
    return kernels::Run(
        kernels::GatherValuesParams{index.size(), index.data(), vector, values},
        machine_);
  }
  // The way back, from host memory.
  kernels::Status Scatter(const Buffer<int64_t>& index,
                          const double* host_values,
                          double* vector) {
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(index.size(), host_values, values_.data()));
    return kernels::Run(
        kernels::ScatterValuesParams{
            index.size(), index.data(), values_.data(), vector},
        machine_);
  }

  Machine* machine_ = nullptr;
  std::vector<int64_t> tangent_begin_;
  Buffer<double> tangents_;

  // Blocks that the machine moves; the first num_curved_ are not linear.
  Buffer<kernels::ManifoldBlock> known_;
  Buffer<kernels::ManifoldFactor> factors_;
  int64_t num_curved_ = 0;

  // Blocks that the host calls, the places of their values in a state, in a
  // tangent vector and in tangents_, and room for them.
  std::vector<BlockManifold> called_;
  Buffer<int64_t> state_index_;
  Buffer<int64_t> delta_index_;
  Buffer<int64_t> tangent_index_;
  Buffer<double> values_;
  kernels::HostBuffer<double> host_values_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BLOCKS_BLOCK_MANIFOLDS_H_
