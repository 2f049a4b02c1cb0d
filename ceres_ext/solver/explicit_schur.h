// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement as a matrix, of all batches of a problem:
//
//   S = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F
//
// its lower triangle, dense or in compressed sparse rows. A batch that
// eliminates its E family by itself writes its blocks from its rows
// (ops/schur_complement.h). The contribution of other batches consists of pairs
// and crossings (structure/schur_pairs.h), whose W is formed once per Jacobian.
// The diagonal blocks are those that SCHUR_JACOBI has. Views that share no
// block write their blocks as cameras do; unknowns are then in the order of the
// views.
//
//   ExplicitSchur<Machine> schur;
//   Status status = schur.Prepare(blocks, batches, &machine);
//   if (status.ok()) status = schur.Setup(varies);
//   if (status.ok()) status = schur.SetupSparse();  // or SetupDense(stride)
//   // per solve, after SchurComplement::Update:
//   if (status.ok()) status = schur.Write(request, values);
//
// Prepare lists what there is to sum, on the host; what sets up takes all
// memory of the machine, Write takes none.
#ifndef CERES_EXT_SOLVER_EXPLICIT_SCHUR_H_
#define CERES_EXT_SOLVER_EXPLICIT_SCHUR_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/pair_products.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/host_schur_rows.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::solver {

// The input of Write, arrays over families: (E'E + D_e^2)^-1 and S_c, packed.
struct ExplicitSchurRequest {
  const double* v_inverse = nullptr;
  const double* schur_diagonal = nullptr;
  const double* f_diagonal = nullptr;  // D_f; null: zero
  // True if the Jacobian is that of the Write before, if there was none between
  // them (Forget).
  bool is_same_linearization = false;
};

template <typename Machine>
class ExplicitSchur {
 public:
  // Without merged blocks. Batches and machine outlive the object. context:
  // whose threads list pairs, or null. keeps_order: unknowns are in the order
  // of F, also those of views, which other ranks order by their own.
  // kUnsupported: a batch that has to list its rows and whose Jacobian is not
  // stored.
  kernels::Status Prepare(const ProblemBlocks& blocks,
                          const std::vector<Batch*>& batches,
                          Machine* machine,
                          kernels::HostContext* context = nullptr,
                          bool keeps_order = false) {
    blocks_ = blocks;
    machine_ = machine;
    writer_ = nullptr;
    num_written_ = 0;
    listed_.clear();
    pairs_.clear();
    own_families_ = {};
    own_columns_.clear();
    for (Batch* batch : batches) {
      SchurWriter* const writer = batch->schur_writer();
      if (writer != nullptr && batches.size() == 1 && !keeps_order) {
        CERES_EXT_RETURN_IF_ERROR(
            writer->ListOwnBlocks(&own_families_, &own_columns_));
      }
      if (!own_columns_.empty() ||
          (writer_ == nullptr && writer != nullptr &&
           writer->schur_family() != SchurWriter::kOwnBlocks)) {
        writer_ = writer;
        written_ = batch;
      } else {
        listed_.push_back(batch);
      }
    }
    builder_ = std::make_unique<kernels::SchurPairsBuilder>(
        blocks.e, blocks.f, static_cast<int>(listed_.size()));
    for (size_t i = 0; i < listed_.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(
          listed_[i]->ListRows(static_cast<int>(i), builder_.get()));
    }
    return builder_->Build(context);
  }

  // Until Setup.
  bool is_prepared() const { return builder_ != nullptr; }

  // *bytes: the memory of Setup, within a few per cent, and beside that
  // *build_bytes until it is done. Takes none.
  kernels::Status ForecastBytes(int64_t* bytes, int64_t* build_bytes) {
    *bytes = 0;
    *build_bytes = 0;
    if (writer_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(writer_->ForecastSchur(bytes, build_bytes));
    }
    // The writer lists its couplings before there are pairs.
    int64_t build_of_pairs = 0;
    const int64_t of_pairs = builder_->ForecastBytes(&build_of_pairs);
    *bytes += of_pairs;
    *build_bytes = std::max(*build_bytes - of_pairs, build_of_pairs);
    for (const kernels::BlockFamily& family : blocks_.f) {
      *bytes += 12 * family.num_values() + 16 * int64_t{family.num_blocks};
    }
    return {};
  }

  // varies: of each value of F, in host memory, whether it is an unknown; null:
  // all are. Then one of SetupDense and SetupSparse, either in place of the
  // other.
  kernels::Status Setup(const unsigned char* varies) {
    CERES_EXT_RETURN_IF_ERROR(own_columns_.empty()
                                  ? unknowns_.Setup(blocks_.f, varies, machine_)
                                  : unknowns_.Setup(own_families_,
                                                    own_columns_,
                                                    varies,
                                                    blocks_.f.num_values(),
                                                    machine_));
    if (writer_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(writer_->SetupSchur(&num_written_));
    }
    for (size_t i = 0; i < listed_.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(
          listed_[i]->SetupPairs(static_cast<int>(i), *builder_));
    }
    CERES_EXT_RETURN_IF_ERROR(SetupPairs(*builder_));
    CERES_EXT_RETURN_IF_ERROR(SetupCrossings(*builder_));
    crossing_blocks_ = builder_->blocks();
    builder_.reset();
    return {};
  }
  // stride: values from column to column, at least num_unknowns(). tiles: those
  // that are read (HostDenseCholesky::Setup); empty: all.
  void SetupDense(int64_t stride,
                  kernels::HostDenseCholesky::Tiles tiles = {}) {
    tiles_ = std::move(tiles);
    is_sparse_ = false;
    is_written_ = false;
    stride_ = stride;
    csr_ = {};
  }
  // csr() has no columns yet.
  kernels::Status SetupSparse() {
    is_sparse_ = true;
    is_written_ = false;
    std::vector<kernels::SchurBlockList> lists(1);
    if (writer_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(writer_->ListSchurBlocks(&lists[0]));
      lists[0].first_block = unknowns_.first_block(WriterFamily());
    }
    lists.push_back(crossing_blocks_);
    for (const auto& pairs : pairs_) {
      lists.emplace_back();
      if (pairs->ref().index.num_observations > 0) {
        CERES_EXT_RETURN_IF_ERROR(kernels::DownloadBlocks(
            pairs->ref().couplings, 0, machine_, &lists.back()));
      }
    }
    return csr_.Setup(lists, unknowns_, machine_);
  }

  // After Setup: about how many values a sparse S has, for a choice between
  // both: those of the list with most blocks. The others' may be the same ones.
  int64_t EstimateNumValues() const {
    auto num_values = static_cast<double>(num_written_);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      num_values = std::max(
          num_values,
          mean_size_[i] * mean_size_[i] *
              static_cast<double>(pairs_[i]->ref().couplings.num_blocks));
    }
    const double varies = static_cast<double>(num_unknowns()) /
                          static_cast<double>(std::max(
                              unknowns_.families().num_values(), int64_t{1}));
    return static_cast<int64_t>(varies * varies * num_values);
  }

  const kernels::SchurUnknowns<Machine>& unknowns() const { return unknowns_; }
  int64_t num_unknowns() const { return unknowns_.ref().num_unknowns; }
  // If it is sparse.
  const kernels::SchurCsr<Machine>& csr() const { return csr_; }
  SchurMatrixSize size() const {
    SchurMatrixSize size;
    size.is_sparse = is_sparse_;
    size.num_unknowns = num_unknowns();
    size.num_blocks = csr_.num_blocks();
    size.num_values = is_sparse_ ? csr_.num_values() : num_unknowns() * stride_;
    return size;
  }
  kernels::Status SetupColumns() { return csr_.SetupColumns(machine_); }

  // Pairs of a family of E and W of them.
  struct PairsOfFamily {
    const kernels::ObservationIndexRef* index = nullptr;  // null: it has none
    int32_t first_f_block = 0;  // to be added to the cameras of the index
    // Null: all pairs have as many values, F's columns times E's.
    const int64_t* w_begin = nullptr;
    const double* w = nullptr;
  };
  // For what needs W of all rows: that of the writer's rows, or of pairs that
  // are listed of them, which S doesn't need. *bytes: the memory that
  // SetupAllPairs takes, within a few per cent. kUnsupported: as Prepare.
  kernels::Status PrepareAllPairs(int64_t* bytes) {
    *bytes = 0;
    if (writer_ == nullptr) {
      return {};
    }
    row_pairs_ = written_->row_pairs();
    if (row_pairs_.index != nullptr) {
      *bytes = static_cast<int64_t>(sizeof(double)) * NumRowPairValues();
      return {};
    }
    all_pairs_builder_ =
        std::make_unique<kernels::SchurPairsBuilder>(blocks_.e, blocks_.f, 1);
    CERES_EXT_RETURN_IF_ERROR(written_->ListRows(0, all_pairs_builder_.get()));
    CERES_EXT_RETURN_IF_ERROR(all_pairs_builder_->Build());
    *bytes = all_pairs_builder_->ForecastBytesOfW();
    return {};
  }
  // After Write and PrepareAllPairs: W of the Jacobian as it is.
  kernels::Status SetupAllPairs() {
    if (writer_ == nullptr) {
      return {};
    }
    if (row_pairs_.index != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(NumRowPairValues(), &writer_w_));
      return written_->WriteRowPairs(writer_w_.data());
    }
    const auto prepared = std::move(all_pairs_builder_);
    const kernels::SchurPairsBuilder& builder = *prepared;
    CERES_EXT_RETURN_IF_ERROR(written_->SetupPairs(0, builder));
    writer_pairs_.clear();
    for (int i = 0; i < blocks_.e.size(); ++i) {
      writer_pairs_.push_back(std::make_unique<kernels::PairIndex<Machine>>());
      if (!builder.pairs(i).f_block.empty()) {
        CERES_EXT_RETURN_IF_ERROR(writer_pairs_.back()->Setup(
            builder.pairs(i), machine_, /*with_couplings=*/false));
      }
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(builder.w_families().num_values(), &writer_w_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(writer_w_.size(), writer_w_.data()));
    Buffer<double> crossings;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        builder.crossing_families().num_values(), &crossings));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(crossings.size(), crossings.data()));
    return written_->AddPairs(writer_w_.data(), crossings.data());
  }
  // After SetupAllPairs.
  PairsOfFamily AllPairs(int e_family) const {
    if (row_pairs_.index != nullptr && row_pairs_.e_family == e_family) {
      int32_t first_f_block = 0;
      for (int f = 0; f < row_pairs_.f_family; ++f) {
        first_f_block += blocks_.f[f].num_blocks;
      }
      return {row_pairs_.index, first_f_block, nullptr, writer_w_.data()};
    }
    const auto i = static_cast<size_t>(e_family);
    for (const auto& [of, w] :
         {std::pair{&writer_pairs_, &writer_w_}, std::pair{&pairs_, &w_}}) {
      if (i < of->size() && (*of)[i]->ref().index.num_observations > 0) {
        const auto& pairs = (*of)[i]->ref();
        return {&pairs.index, 0, pairs.w_begin, w->data()};
      }
    }
    return {};
  }

  // There is another Jacobian.
  void Forget() { is_written_ = false; }
  // values: size().num_values, of a dense matrix column-major, those above the
  // diagonal left as they are and zeros behind the columns.
  kernels::Status Write(const ExplicitSchurRequest& request, double* values) {
    // Rows without their private blocks depend on D too.
    const bool has_sums =
        request.is_same_linearization && is_written_ && !blocks_.has_private();
    is_written_ = false;
    if (writer_ != nullptr) {
      SchurBlocksRequest of_batch;
      of_batch.v_inverse = request.v_inverse;
      of_batch.schur_diagonal = request.schur_diagonal;
      of_batch.f_diagonal = request.f_diagonal;
      of_batch.unknowns = unknowns_.OfFamily(WriterFamily());
      of_batch.target = Target(values, 0);
      // Between other blocks a sparse target has elements too.
      if (is_sparse_ && !listed_.empty()) {
        CERES_EXT_RETURN_IF_ERROR(SetZero(values));
      }
      CERES_EXT_RETURN_IF_ERROR(writer_->WriteSchur(of_batch));
    } else {
      CERES_EXT_RETURN_IF_ERROR(SetZero(values));
    }
    for (int i = 0; own_columns_.empty() && i < blocks_.f.size(); ++i) {
      if (writer_ == nullptr || writer_->schur_family() != i) {
        CERES_EXT_RETURN_IF_ERROR(WriteDiagonal(i, request, values));
      }
    }
    if (!has_sums) {
      CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(w_.size(), w_.data()));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->SetZero(crossings_.size(), crossings_.data()));
      for (Batch* listed : listed_) {
        CERES_EXT_RETURN_IF_ERROR(
            listed->AddPairs(w_.data(), crossings_.data()));
      }
    }
    for (size_t i = 0; i < pairs_.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(
          SubtractCouplings(static_cast<int>(i), request, values));
    }
    for (const auto& family : crossing_families_) {
      CERES_EXT_RETURN_IF_ERROR(AddCrossings(*family, values));
    }
    is_written_ = true;
    return {};
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr bool kIsHost =
      std::is_base_of_v<kernels::HostMachine, Machine>;

  // Values of W, with row_pairs_.
  int64_t NumRowPairValues() const {
    return row_pairs_.index->num_observations *
           blocks_.e[row_pairs_.e_family].size *
           blocks_.f[row_pairs_.f_family].size;
  }

  // Crossings of two families of F.
  struct CrossingFamily {
    kernels::BlockFamily blocks;
    int32_t columns = 0;  // of j
    Buffer<int32_t> row;
    Buffer<int32_t> column;
    Buffer<int64_t> place;
  };

  // For separate blocks there is one.
  int WriterFamily() const {
    return own_columns_.empty() ? writer_->schur_family() : 0;
  }

  // List 0 is the writer's, 1 that of crossings, 2 + i that of pairs of E
  // family i.
  kernels::SchurTarget Target(double* values, size_t list) const {
    if (is_sparse_) {
      return csr_.target(values, list);
    }
    kernels::SchurTarget target;
    target.values = values;
    target.stride = stride_;
    return target;
  }
  kernels::Status SetZero(double* values) {
    if (is_sparse_ || tiles_.empty()) {
      return machine_->SetZero(size().num_values, values);
    }
    if constexpr (kIsHost) {
      constexpr int64_t kTile = kernels::HostDenseCholesky::kTile;
      const int64_t n = num_unknowns();
      const int64_t num_tiles = kernels::HostDenseCholesky::NumTiles(n);
      const auto is_set = [&](int64_t row, int64_t column) {
        return tiles_[static_cast<size_t>(num_tiles * row + column)] != 0;
      };
      machine_->context()->ParallelFor(
          n, kTile, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin / kTile; t < num_tiles; ++t) {
              // The last rows end behind the columns.
              const int64_t last =
                  t + 1 < num_tiles ? kTile * (t + 1) : stride_;
              for (int64_t c = begin; c < end && is_set(t, begin / kTile);
                   ++c) {
                std::fill_n(
                    values + stride_ * c + kTile * t, last - kTile * t, 0.0);
              }
            }
          });
    }
    return {};
  }

  kernels::Status SetupPairs(const kernels::SchurPairsBuilder& builder) {
    std::vector<int32_t> block_size;
    std::vector<int64_t> value_begin;
    for (const kernels::BlockFamily& family : blocks_.f) {
      for (int32_t b = 0; b < family.num_blocks; ++b) {
        block_size.push_back(family.size);
        value_begin.push_back(family.value_begin + int64_t{family.size} * b);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(block_size, &block_size_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(value_begin, &value_begin_));
    int64_t num_partial = 0;
    pairs_.clear();
    mean_size_.clear();
    width_.assign(static_cast<size_t>(blocks_.e.size()), 0);
    rows_ = std::vector<kernels::HostSchurRows>(
        static_cast<size_t>(kIsHost ? blocks_.e.size() : 0));
    for (int i = 0; i < blocks_.e.size(); ++i) {
      pairs_.push_back(std::make_unique<kernels::PairIndex<Machine>>());
      int32_t widest = 0;
      double sum = 0.0;
      for (const int32_t block : builder.pairs(i).f_block) {
        widest = std::max(widest, block_size[block]);
        sum += block_size[block];
      }
      width_[i] = widest * widest;
      mean_size_.push_back(sum /
                           static_cast<double>(std::max(
                               builder.pairs(i).f_block.size(), size_t{1})));
      if (builder.pairs(i).f_block.empty()) {
        continue;
      }
      CERES_EXT_RETURN_IF_ERROR(
          pairs_.back()->Setup(builder.pairs(i), machine_));
      const kernels::CouplingIndexRef& couplings =
          pairs_.back()->ref().couplings;
      if constexpr (kIsHost) {
        CERES_EXT_RETURN_IF_ERROR(
            rows_[static_cast<size_t>(i)].Setup(pairs_.back()->ref().index,
                                                couplings,
                                                block_size_.data(),
                                                0,
                                                machine_));
      }
      num_partial = std::max(num_partial, width_[i] * couplings.num_chunks);
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_partial, &partial_));
    const int64_t num_values = builder.w_families().num_values();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_values, &w_));
    return machine_->Allocate(kIsHost ? 0 : num_values, &y_);
  }

  kernels::Status SetupCrossings(const kernels::SchurPairsBuilder& builder) {
    crossing_families_.clear();
    for (size_t i = 0; i < builder.crossings().size(); ++i) {
      const kernels::SchurPairsBuilder::Crossings& from =
          builder.crossings()[i];
      auto family = std::make_unique<CrossingFamily>();
      family->blocks = builder.crossing_families()[static_cast<int>(i)];
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(from.row, &family->row));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(from.column, &family->column));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(from.place, &family->place));
      family->columns = from.columns;
      crossing_families_.push_back(std::move(family));
    }
    return machine_->Allocate(builder.crossing_families().num_values(),
                              &crossings_);
  }

  kernels::Status WriteDiagonal(int i,
                                const ExplicitSchurRequest& request,
                                double* values) {
    const kernels::BlockFamily& family = blocks_.f[i];
    kernels::SchurDiagonalParams params;
    params.num_blocks = family.num_blocks;
    params.columns = family.size;
    params.schur_diagonal =
        kernels::PackedBlocks(family, Machine::kLayout, request.schur_diagonal);
    params.diagonal = request.f_diagonal == nullptr
                          ? nullptr
                          : request.f_diagonal + family.value_begin;
    params.unknowns = unknowns_.OfFamily(i);
    params.target = Target(values, 0);
    return Run(params, machine_);
  }

  kernels::Status SubtractCouplings(int i,
                                    const ExplicitSchurRequest& request,
                                    double* values) {
    const auto& pairs = pairs_[static_cast<size_t>(i)]->ref();
    if (pairs.index.num_observations == 0) {
      return {};
    }
    if constexpr (kIsHost) {
      kernels::PairProductsParams products;
      products.index = pairs.index;
      products.couplings = pairs.couplings;
      products.rows = rows_[static_cast<size_t>(i)].ref();
      products.e_size = pairs.e_size;
      products.w_begin = pairs.w_begin;
      products.block_size = block_size_.data();
      products.v_inverse = kernels::PackedBlocks(
          blocks_.e[i], Machine::kLayout, request.v_inverse);
      products.w = w_.data();
      products.unknowns = unknowns_.ref();
      products.value_begin = value_begin_.data();
      products.target = Target(values, 2 + static_cast<size_t>(i));
      return Run(products, machine_);
    } else {
      kernels::PairInverseParams inverse;
      inverse.n = pairs.index.num_observations;
      inverse.e_size = pairs.e_size;
      inverse.w_begin = pairs.w_begin;
      inverse.f_block = pairs.index.camera_id;
      inverse.e_block = pairs.index.point_id;
      inverse.block_size = block_size_.data();
      inverse.v_inverse = kernels::PackedBlocks(
          blocks_.e[i], Machine::kLayout, request.v_inverse);
      inverse.w = w_.data();
      inverse.y = y_.data();
      CERES_EXT_RETURN_IF_ERROR(Run(inverse, machine_));
      kernels::PairCouplings of;
      of.couplings = pairs.couplings;
      of.e_size = pairs.e_size;
      of.w_begin = pairs.w_begin;
      of.w = w_.data();
      of.y = y_.data();
      of.block_size = block_size_.data();
      of.width = width_[static_cast<size_t>(i)];
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::CouplingChunksParams{of, partial_.data()}, machine_));
      kernels::SubtractCouplingsParams subtract;
      subtract.of = of;
      subtract.partial = partial_.data();
      subtract.unknowns = unknowns_.ref();
      subtract.value_begin = value_begin_.data();
      subtract.target = Target(values, 2 + static_cast<size_t>(i));
      return Run(subtract, machine_);
    }
  }

  kernels::Status AddCrossings(const CrossingFamily& family, double* values) {
    kernels::AddCrossingsParams params;
    params.num_blocks = family.blocks.num_blocks;
    params.width = family.blocks.size;
    params.columns = family.columns;
    params.row = family.row.data();
    params.column = family.column.data();
    params.place = family.place.data();
    params.u = crossings_.data() + family.blocks.value_begin;
    params.unknowns = unknowns_.ref();
    params.value_begin = value_begin_.data();
    params.target = Target(values, 1);
    return Run(params, machine_);
  }

  ProblemBlocks blocks_;
  Machine* machine_ = nullptr;
  bool is_sparse_ = false;
  int64_t stride_ = 0;                       // of a dense S
  kernels::HostDenseCholesky::Tiles tiles_;  // of a dense S; empty: all
  SchurWriter* writer_ = nullptr;  // the first that writes; null: none
  Batch* written_ = nullptr;       // the same
  int64_t num_written_ = 0;        // its values of S
  std::vector<Batch*> listed_;     // the others
  // The blocks that a writer has to itself (SchurWriter::ListOwnBlocks).
  kernels::BlockFamilies own_families_;
  std::vector<int32_t> own_columns_;
  std::unique_ptr<kernels::SchurPairsBuilder> builder_;  // until Setup
  kernels::SchurUnknowns<Machine> unknowns_;
  kernels::SchurBlockList crossing_blocks_;
  kernels::SchurCsr<Machine> csr_;
  // For each family of E; one without pairs has no memory.
  std::vector<std::unique_ptr<kernels::PairIndex<Machine>>> pairs_;
  std::vector<kernels::HostSchurRows> rows_;  // of the same, on the host
  std::vector<std::unique_ptr<CrossingFamily>> crossing_families_;
  Buffer<int32_t> block_size_;   // of each F block
  Buffer<int64_t> value_begin_;  // of each F block
  // Elements of the largest block of S that pairs of an E family add to.
  std::vector<int32_t> width_;
  std::vector<double> mean_size_;  // columns of the blocks of its pairs
  Buffer<double> partial_;
  Buffer<double> w_;  // of all pairs
  Buffer<double> y_;  // W Vi
  Buffer<double> crossings_;
  bool is_written_ = false;  // w_ and crossings_ are of the Jacobian
  // Filled by SetupAllPairs.
  RowPairs row_pairs_;
  std::unique_ptr<kernels::SchurPairsBuilder> all_pairs_builder_;
  std::vector<std::unique_ptr<kernels::PairIndex<Machine>>> writer_pairs_;
  Buffer<double> writer_w_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_EXPLICIT_SCHUR_H_
