// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// JACOBI and SCHUR_JACOBI.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_BLOCK_DIAGONAL_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_BLOCK_DIAGONAL_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/preconditioner/preconditioner.h"
#include "ceres_ext/solver/preconditioner/wide_blocks.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/ops/views.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/merged_blocks.h"

namespace ceres_ext::solver {

// M is the block diagonal of F'F + D_f^2 and, without Schur complement, E'E +
// D_e^2 (JACOBI), or of S (SCHUR_JACOBI). The blocks of F are its families', or
// merged ones (ProblemBlocks::merged).
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
        Allocate(blocks.f, blocks.merged, of_schur_complement_, "camera", &f_));
    if (!use_schur) {
      CERES_EXT_RETURN_IF_ERROR(Allocate(blocks.e, {}, false, "point", &e_));
    }
    return {};
  }

  NormalBlocksRequest WantedBlocks() final {
    NormalBlocksRequest wanted;
    (of_schur_complement_ ? wanted.schur_diagonal : wanted.u) = f_.source();
    wanted.v = e_.source();
    return wanted;
  }

  kernels::Status Update(const LinearSystem& system) final {
    if (split_) {
      // The inverse of a merged block is then that of each single one.
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::MultiplyParams{
              in_single_.size(), f_.source(), in_single_.data(), f_.source()},
          this->machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(Invert(system.f_diagonal, &f_));
    return Invert(system.e_diagonal, &e_);
  }

  // Takes memory when it first splits.
  kernels::Status SplitMergedBlocks(bool split) final {
    split_ = split && !f_.merged.empty();
    if (!split_ || in_single_.size() > 0) {
      return {};
    }
    std::vector<double> in_single(
        static_cast<size_t>(f_.matrices().num_packed()), 0.0);
    for (const int64_t place :
         kernels::PlacesInMerged(f_.families, f_.merged, Machine::kLayout)) {
      in_single[place] = 1.0;
    }
    return this->machine_->Upload(in_single, &in_single_);
  }

  void ListBreakdowns(kernels::BreakdownArrays* arrays) const final {
    for (const Part* part : {&f_, &e_}) {
      arrays->Add(part->breakdown.data(), part->breakdown.size());
    }
  }

  kernels::Status CheckUpdate() final {
    CERES_EXT_RETURN_IF_ERROR(CheckInverse(f_));
    return CheckInverse(e_);
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
    kernels::MergedBlocks merged;
    // For merged blocks, and D there.
    Buffer<int32_t> column;
    Buffer<double> diagonal;
    std::string name;
    // Empty if blocks are inverted in place.
    Buffer<double> blocks;
    Buffer<double> inverse;
    Buffer<kernels::Breakdown> breakdown;  // one per family of the matrices
    // Families of the matrices; the first ones are `families`.
    const kernels::BlockFamilies& matrices() const {
      return merged.empty() ? families : merged.families;
    }
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
                           const kernels::MergedBlocks& merged,
                           bool in_place,
                           const char* name,
                           Part* part) {
    part->families = families;
    part->merged = merged;
    part->name = name;
    CERES_EXT_RETURN_IF_ERROR(
        this->machine_->Upload(merged.column, &part->column));
    CERES_EXT_RETURN_IF_ERROR(
        this->machine_->Allocate(part->column.size(), &part->diagonal));
    // A block that has no inverse is rebuilt from its original, which dynamic
    // sizes read from memory.
    for (const kernels::BlockFamily& family : part->matrices()) {
      in_place &= family.size == 3 || family.size == 9 || family.size == 10;
      if (family.num_blocks > 0 && WideBlocks<Machine>::IsWide(family.size)) {
        CERES_EXT_RETURN_IF_ERROR(wide_.Reserve(family.size, this->machine_));
      }
    }
    const int64_t num_packed = part->matrices().num_packed();
    CERES_EXT_RETURN_IF_ERROR(
        this->machine_->Allocate(part->matrices().size(), &part->breakdown));
    CERES_EXT_RETURN_IF_ERROR(
        this->machine_->Allocate(in_place ? 0 : num_packed, &part->blocks));
    return this->machine_->Allocate(num_packed, &part->inverse);
  }

  kernels::Status Invert(const double* diagonal, Part* part) {
    const int num_families = part->matrices().size();
    if (num_families == 0) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::SetConstantParams{num_families,
                                       kernels::Breakdown::kNone,
                                       &part->breakdown.data()->first_block},
            this->machine_));
    if (diagonal != nullptr && !part->merged.empty()) {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::GatherColumnsParams{part->column.size(),
                                           part->column.data(),
                                           diagonal,
                                           part->diagonal.data(),
                                           nullptr},
              this->machine_));
    }
    for (int i = 0; i < num_families; ++i) {
      const kernels::BlockFamily& family = part->matrices()[i];
      CERES_EXT_RETURN_IF_ERROR(WithSize(family.size, [&](auto size) {
        kernels::InvertBlocksParams<size> params;
        params.n = family.num_blocks;
        params.columns = family.size;
        params.a = kernels::PackedBlocks<const double>(
            family, Machine::kLayout, part->source());
        params.diagonal =
            diagonal == nullptr ? nullptr
            : i < part->families.size()
                ? diagonal + part->families[i].value_begin
                : part->diagonal.data() + part->merged.ColumnBegin(i);
        params.inverse = kernels::PackedBlocks(
            family, Machine::kLayout, part->inverse.data());
        params.may_be_diagonal = true;
        params.first_breakdown = &part->breakdown.data()[i].first_block;
        if constexpr (size == kernels::kDynamic) {
          if (WideBlocks<Machine>::IsWide(family.size)) {
            return wide_.Invert(params);
          }
        }
        return Run(params, this->machine_);
      }));
    }
    return {};
  }

  kernels::Status CheckInverse(const Part& part) {
    std::vector<kernels::Breakdown> breakdowns(part.breakdown.size());
    CERES_EXT_RETURN_IF_ERROR(this->machine_->Download(
        part.breakdown.size(), part.breakdown.data(), breakdowns.data()));
    for (int i = 0; i < part.matrices().size(); ++i) {
      if (part.matrices()[i].num_blocks > 0 &&
          breakdowns[i].first_block != kernels::Breakdown::kNone) {
        return {kernels::StatusCode::kNumericalFailure,
                "Preconditioner update failed at " +
                    BlockName(part, i, breakdowns[i].first_block) + "."};
      }
    }
    return {};
  }

  // Block of a family of matrices; a merged one goes by the name of its first.
  static std::string BlockName(const Part& part, int family, int32_t block) {
    if (part.matrices().size() == 1) {
      return part.name + " " + std::to_string(block);
    }
    const int32_t size = part.matrices()[family].size;
    const auto first = part.merged.FirstBlock(part.families, {family, block});
    const int32_t first_size = part.families[first.family].size;
    return part.name + " " + std::to_string(first.block) + " of size " +
           std::to_string(first_size) +
           (size > first_size ? ", merged with others" : "");
  }

  kernels::Status Multiply(const Part& part,
                           const double* r,
                           double* z,
                           const kernels::PcgScalars* scalars) {
    for (int i = part.families.size(); i < part.matrices().size(); ++i) {
      const kernels::BlockFamily& family = part.matrices()[i];
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::ApplyMergedBlocksParams{
              family.num_blocks,
              family.size,
              kernels::PackedBlocks<const double>(
                  family, Machine::kLayout, part.inverse.data()),
              part.column.data() + part.merged.ColumnBegin(i),
              r,
              z,
              scalars},
          this->machine_));
    }
    for (int i = 0; i < part.families.size(); ++i) {
      const kernels::BlockFamily& family = part.matrices()[i];
      const int64_t at = part.families[i].value_begin;
      CERES_EXT_RETURN_IF_ERROR(WithSize(family.size, [&](auto size) {
        kernels::ApplyBlocksParams<size> params;
        params.n = family.num_blocks;
        params.columns = family.size;
        params.a = kernels::PackedBlocks<const double>(
            family, Machine::kLayout, part.inverse.data());
        params.r = r + at;
        params.z = z + at;
        params.scalars = scalars;
        return Run(params, this->machine_);
      }));
    }
    return {};
  }

  const bool of_schur_complement_;
  // Merged blocks are split into single ones, by ones at the values of the
  // packed matrices that these have, zeros elsewhere.
  bool split_ = false;
  Buffer<double> in_single_;
  Part f_;
  Part e_;
  WideBlocks<Machine> wide_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_BLOCK_DIAGONAL_H_
