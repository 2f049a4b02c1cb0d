// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Preconditioners z = M^-1 r of the operators in linear_operator.h.
//
// A new one is a class here and a line in CreatePreconditioner.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/inexact_solver_options.h"
#include "ceres_ext/solver/linear_operator.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

// M = I, and what others override.
template <typename Machine>
class Preconditioner {
 public:
  virtual ~Preconditioner() = default;

  // Takes all memory. use_schur: of S, else of J'J + D^2.
  virtual kernels::Status Setup(const ProblemBlocks& blocks,
                                bool use_schur,
                                Machine* machine) {
    machine_ = machine;
    n_ = blocks.f.num_values() + (use_schur ? 0 : blocks.e.num_values());
    return {};
  }
  // The blocks that it is made of (u, v, schur_diagonal), computed before each
  // Update.
  virtual NormalBlocksRequest WantedBlocks() { return {}; }
  // kNumericalFailure where there is no inverse.
  virtual kernels::Status Update(const LinearSystem& /*system*/) { return {}; }
  virtual kernels::Status Apply(const double* r,
                                double* z,
                                const kernels::PcgScalars* /*scalars*/) {
    return Run(kernels::CopyParams{n_, r, z}, machine_);
  }

 protected:
  Machine* machine_ = nullptr;

 private:
  int64_t n_ = 0;
};

// M is the block diagonal of F'F + D_f^2 and, without Schur complement, E'E +
// D_e^2 (JACOBI), or of S (SCHUR_JACOBI).
template <typename Machine>
class BlockDiagonalPreconditioner final : public Preconditioner<Machine> {
 public:
  explicit BlockDiagonalPreconditioner(bool of_schur_complement)
      : of_schur_complement_(of_schur_complement) {}

  kernels::Status Setup(const ProblemBlocks& blocks,
                        bool use_schur,
                        Machine* machine) final {
    this->machine_ = machine;
    CERES_EXT_RETURN_IF_ERROR(
        Allocate(blocks.f, of_schur_complement_, "camera", &f_));
    if (!use_schur) {
      CERES_EXT_RETURN_IF_ERROR(Allocate(blocks.e, false, "point", &e_));
    }
    const int64_t n = std::max(f_.families.size(), e_.families.size());
    breakdowns_.resize(n);
    return machine->Allocate(n, &breakdown_);
  }

  NormalBlocksRequest WantedBlocks() final {
    NormalBlocksRequest wanted;
    (of_schur_complement_ ? wanted.schur_diagonal : wanted.u) = f_.source();
    wanted.v = e_.source();
    return wanted;
  }

  kernels::Status Update(const LinearSystem& system) final {
    CERES_EXT_RETURN_IF_ERROR(Invert(system.f_diagonal, &f_));
    return Invert(system.e_diagonal, &e_);
  }

  kernels::Status Apply(const double* r,
                        double* z,
                        const kernels::PcgScalars* scalars) final {
    CERES_EXT_RETURN_IF_ERROR(Multiply(f_, r, z, scalars));
    return Multiply(e_,
                    r + f_.families.num_values(),
                    z + f_.families.num_values(),
                    scalars);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // The families of one role.
  struct Part {
    kernels::BlockFamilies families;
    std::string name;
    // Empty where blocks are inverted in place.
    Buffer<double> blocks;
    Buffer<double> inverse;
    double* source() {
      return blocks.size() > 0 ? blocks.data() : inverse.data();
    }
  };

  // Calls fn with the size of the family as a constant where the library has
  // operations compiled for it, else with kDynamic.
  template <typename Function>
  static kernels::Status WithSize(int size, Function&& fn) {
    switch (size) {
      case 3:
        return fn(std::integral_constant<int, 3>());
      case 9:
        return fn(std::integral_constant<int, 9>());
      case 10:
        return fn(std::integral_constant<int, 10>());
      default:
        return fn(std::integral_constant<int, kernels::kDynamic>());
    }
  }

  kernels::Status Allocate(const kernels::BlockFamilies& families,
                           bool in_place,
                           const char* name,
                           Part* part) {
    part->families = families;
    part->name = name;
    // A block that has no inverse is made anew from what it was, which sizes of
    // run time read from memory.
    for (const kernels::BlockFamily& family : families) {
      in_place &= family.size == 3 || family.size == 9 || family.size == 10;
    }
    CERES_EXT_RETURN_IF_ERROR(this->machine_->Allocate(
        in_place ? 0 : families.num_packed(), &part->blocks));
    return this->machine_->Allocate(families.num_packed(), &part->inverse);
  }

  kernels::Status Invert(const double* diagonal, Part* part) {
    const int num_families = part->families.size();
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SetConstantParams{
            num_families, kernels::Breakdown::kNone, breakdown_.data()},
        this->machine_));
    for (int i = 0; i < num_families; ++i) {
      const kernels::BlockFamily& family = part->families[i];
      CERES_EXT_RETURN_IF_ERROR(WithSize(family.size, [&](auto size) {
        kernels::InvertBlocksParams<size> params;
        params.n = family.num_blocks;
        params.columns = family.size;
        params.a = kernels::PackedBlocks<const double>(
            family, Machine::kLayout, part->source());
        params.diagonal =
            diagonal == nullptr ? nullptr : diagonal + family.value_begin;
        params.inverse = kernels::PackedBlocks(
            family, Machine::kLayout, part->inverse.data());
        params.may_be_diagonal = true;
        params.first_breakdown = &breakdown_.data()[i];
        return Run(params, this->machine_);
      }));
    }
    CERES_EXT_RETURN_IF_ERROR(this->machine_->Download(
        num_families, breakdown_.data(), breakdowns_.data()));
    for (int i = 0; i < num_families; ++i) {
      if (part->families[i].num_blocks > 0 &&
          breakdowns_[i] != kernels::Breakdown::kNone) {
        return {kernels::StatusCode::kNumericalFailure,
                "Preconditioner update failed at " + part->name + " " +
                    std::to_string(breakdowns_[i]) +
                    (num_families == 1
                         ? std::string(".")
                         : " of size " +
                               std::to_string(part->families[i].size) + ".")};
      }
    }
    return {};
  }

  kernels::Status Multiply(const Part& part,
                           const double* r,
                           double* z,
                           const kernels::PcgScalars* scalars) {
    for (const kernels::BlockFamily& family : part.families) {
      CERES_EXT_RETURN_IF_ERROR(WithSize(family.size, [&](auto size) {
        kernels::ApplyBlocksParams<size> params;
        params.n = family.num_blocks;
        params.columns = family.size;
        params.a = kernels::PackedBlocks<const double>(
            family, Machine::kLayout, part.inverse.data());
        params.r = r + family.value_begin;
        params.z = z + family.value_begin;
        params.scalars = scalars;
        return Run(params, this->machine_);
      }));
    }
    return {};
  }

  const bool of_schur_complement_;
  Part f_;
  Part e_;
  Buffer<int32_t> breakdown_;  // one per family
  std::vector<int32_t> breakdowns_;
};

template <typename Machine>
std::unique_ptr<Preconditioner<Machine>> CreatePreconditioner(
    PreconditionerType type) {
  switch (type) {
    case PreconditionerType::kIdentity:
      return std::make_unique<Preconditioner<Machine>>();
    case PreconditionerType::kJacobi:
      return std::make_unique<BlockDiagonalPreconditioner<Machine>>(false);
    case PreconditionerType::kSchurJacobi:
      break;
  }
  return std::make_unique<BlockDiagonalPreconditioner<Machine>>(true);
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_H_
