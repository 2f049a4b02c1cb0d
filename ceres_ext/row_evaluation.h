// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a row of a RowBatch (batchable_cost_function.h), on the host and on
// a device, for a model, a class with
//
//   static constexpr int kNumResiduals
//   using BlockSizes = std::integer_sequence<int, ...>
//       values of each parameter block
//   struct (or using) Constants
//       what sets one residual block apart from others; trivially copyable
//   CERES_HOST_DEVICE static bool Evaluate(const Constants& constants,
//                                          const double* const* parameters,
//                                          double* residuals,
//                                          double* const* jacobians)
//       as ceres::CostFunction::Evaluate: jacobians may be null; where it is
//       not, all derivatives are wanted
//
// or AutoDiffModel<Functor, kNumResiduals, Ns...>, which differentiates
//
//   template <typename T>
//   CERES_HOST_DEVICE bool operator()(const T* block0, ..., T* residuals) const
//
// of a functor by ceres::Jet. A functor is its own constants where it is
// trivially copyable; otherwise it has
//
//   struct Constants;                     trivially copyable
//   Constants constants() const;
//   CERES_HOST_DEVICE explicit Functor(const Constants& constants);
//
// Columns of all blocks are taken in passes of at most kMaxStride, so that a
// Jet stays in registers of a device however many there are; each pass calls
// the functor. On the host a pass has up to kMaxHostStride of the columns that
// vary, by tangents where a block has a manifold. There a functor may also
// bring its derivatives, which take less time than Jets:
//
//   using DerivativesOf = Functor;   itself: derived functors have Jets again
//   template <typename Sizes>        Sizes = std::integer_sequence<int, Ns...>
//   CERES_HOST_DEVICE bool Differentiate(Sizes, const double* const* blocks,
//                                        double* residuals,
//                                        double* const* jacobians) const
//
// with all blocks' values, and false if operator() returns false.

#ifndef CERES_EXT_ROW_EVALUATION_H_
#define CERES_EXT_ROW_EVALUATION_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres_ext/batchable_cost_function.h"
#include "cuda_kernels/model/robust_loss.h"

// Compiles all that a function calls into it. Jets are passed in memory
// otherwise: operator() of a functor makes some hundred, and GCC leaves many of
// their operators out of line, which takes twice to four times as long.
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
#define CERES_EXT_FLATTEN __attribute__((flatten))
#else
#define CERES_EXT_FLATTEN
#endif

namespace ceres_ext {

namespace internal {

// A functor that is its own constants, or has some.
template <typename Functor, typename = void>
struct FunctorConstants {
  using Type = Functor;
  static Type Of(const Functor& functor) { return functor; }
  CERES_HOST_DEVICE static const Functor& Make(const Type& constants) {
    return constants;
  }
};
template <typename Functor>
struct FunctorConstants<Functor, std::void_t<typename Functor::Constants>> {
  using Type = typename Functor::Constants;
  static Type Of(const Functor& functor) { return functor.constants(); }
  CERES_HOST_DEVICE static Functor Make(const Type& constants) {
    return Functor(constants);
  }
};

// The values of all blocks, one after the other.
template <int... Ns>
struct BlockValues {
  static constexpr int kNumBlocks = sizeof...(Ns);
  static constexpr int kNumValues = (Ns + ... + 0);
  CERES_HOST_DEVICE static constexpr int Size(int block) {
    constexpr int kSizes[] = {Ns...};
    return kSizes[block];
  }
  CERES_HOST_DEVICE static constexpr int Begin(int block) {
    int begin = 0;
    for (int b = 0; b < block; ++b) {
      begin += Size(b);
    }
    return begin;
  }

  // Calls f(std::integral_constant<int, b>()) for each block b, or value.
  template <typename Function>
  CERES_HOST_DEVICE static void ForEach(Function&& f) {
    ForEach(f, std::make_integer_sequence<int, kNumBlocks>());
  }
  template <typename Function>
  CERES_HOST_DEVICE static void ForEachValue(Function&& f) {
    ForEach(f, std::make_integer_sequence<int, kNumValues>());
  }

 private:
  template <typename Function, int... kBs>
  CERES_HOST_DEVICE static void ForEach(Function& f,
                                        std::integer_sequence<int, kBs...>) {
    (f(std::integral_constant<int, kBs>()), ...);
  }
};

}  // namespace internal

template <typename FunctorIn, int kNumResidualsIn, int... Ns>
struct AutoDiffModel {
  using Functor = FunctorIn;
  using Constants = typename internal::FunctorConstants<Functor>::Type;
  using BlockSizes = std::integer_sequence<int, Ns...>;
  static constexpr int kNumResiduals = kNumResidualsIn;
  static constexpr int kMaxStride = 12;
  // Two residuals of 22 values in 19 columns, x86-64 with SSE2: 0.36 us in
  // passes of 10, 0.41 to 0.45 of 4 to 12 and 0.71 of 20; one Jet of 22 as in
  // ceres::AutoDiffCostFunction takes 1.4 to 2.2.
  static constexpr int kMaxHostStride = 10;
};

namespace internal {

// The base of the rows of all models: R residuals, the blocks' sizes.
template <typename Model, int R, int... Ns>
class RowEvaluatorBase {
 public:
  using Blocks = BlockValues<Ns...>;
  using Constants = typename Model::Constants;
  static_assert(R >= 1, "a model has residuals");
  static_assert(sizeof...(Ns) >= 1, "a model has parameter blocks");
  static_assert(((Ns >= 1) && ...), "a parameter block has values");
  static_assert(std::is_trivially_copyable_v<Constants>,
                "what a device is to evaluate must be trivially copyable, or "
                "have constants that are");
  static constexpr int kNumWords = (sizeof(Constants) + 7) / 8;
  // Parts in which threads may share a row with derivatives.
  static constexpr int kNumParts = 1;

 protected:
  // The values of row i's blocks, and the places of these and of their
  // derivatives.
  struct Row {
    int64_t place;
    RowBlock blocks[Blocks::kNumBlocks];
    bool is_point[Blocks::kNumBlocks];
    double x[Blocks::kNumValues];
  };

  CERES_HOST_DEVICE static void Load(const RowBatch& rows,
                                     int64_t i,
                                     Row* row) {
    row->place = rows.place == nullptr ? i : rows.place[i];
    const RowBlock* const blocks =
        rows.blocks +
        Blocks::kNumBlocks *
            (rows.combination == nullptr ? i : int64_t{rows.combination[i]});
    Blocks::ForEach([&](auto b) {
      RowBlock block = blocks[b];
      row->is_point[b] = block.column == RowBlock::kPoint;
      if (row->is_point[b]) {
        block = rows.points[rows.point_id[row->place]];
      } else if (block.state == RowBlock::kOwn) {
        block.state = rows.own_state[rows.own_block[row->place]];
      }
      row->blocks[b] = block;
      const double* const x = block.state >= 0
                                  ? rows.state + block.state
                                  : rows.constant_state - 1 - block.state;
      for (int j = 0; j < Blocks::Size(b); ++j) {
        row->x[Blocks::Begin(b) + j] = x[j];
      }
    });
  }

  // Reads the constants of row i and calls f on them.
  template <typename Function>
  CERES_HOST_DEVICE static auto WithConstants(const RowBatch& rows,
                                              int64_t i,
                                              Function&& f) {
    uint64_t words[kNumWords];
    for (int w = 0; w < kNumWords; ++w) {
      words[w] = rows.constants[i * rows.constant_row + w * rows.constant_word];
    }
    // Its lifetime begins by the copy.
    struct alignas(alignof(Constants) > 8 ? alignof(Constants) : 8) Bytes {
      unsigned char bytes[sizeof(Constants)];
    } storage;
    std::memcpy(&storage, words, sizeof(Constants));
    return f(*reinterpret_cast<const Constants*>(&storage));
  }

  template <typename T>
  CERES_HOST_DEVICE static bool IsFinite(T x) {
    return x - x == T(0);  // NOLINT(misc-redundant-expression)
  }

  // The correction of a row's residual and derivatives for its loss.
  struct Loss {
    bool is_trivial = true;
    kernels::LossCorrector corrector;

    // A column of the derivative.
    CERES_HOST_DEVICE void Correct(const double* residual,
                                   double* column) const {
      if (!is_trivial) {
        corrector.template CorrectJacobian<R, 1>(residual, column);
      }
    }
  };

  // Called once per row with the model's residual: stores the requested outputs
  // and returns the row's contribution.
  CERES_HOST_DEVICE static RowTerm Finish(const RowBatch& rows,
                                          int64_t i,
                                          int64_t place,
                                          const double* residual,
                                          Loss* loss,
                                          bool stores = true) {
    double s = 0.0;
    for (int r = 0; r < R; ++r) {
      s += residual[r] * residual[r];
    }
    double rho[3] = {s, 1.0, 0.0};
    if (rows.apply_loss) {
      rows.loss.Evaluate(i, s, rho);
    }
    loss->is_trivial = kernels::LossCorrector::IsIdentity(rho);
    if (!loss->is_trivial) {
      loss->corrector = kernels::LossCorrector(s, rho);
    }
    if (stores && rows.squared_norms != nullptr) {
      rows.squared_norms[i] = s;
    }
    if (stores && rows.residuals != nullptr) {
      double corrected[R];
      for (int r = 0; r < R; ++r) {
        corrected[r] = residual[r];
      }
      if (!loss->is_trivial) {
        loss->corrector.template CorrectResidual<R>(corrected);
      }
      double* const to =
          rows.residuals +
          (rows.residual_begin == nullptr ? R * place : rows.residual_begin[i]);
      for (int r = 0; r < R; ++r) {
        to[r] = corrected[r];
      }
    }
    return {rho[0], IsFinite(s) ? 0.0 : 1.0};
  }

  // Stores all derivatives of a row, J of each block row-major. Returns false
  // if one is not finite.
  template <typename Store>
  CERES_HOST_DEVICE static bool StoreJacobians(const RowBatch& rows,
                                               int64_t i,
                                               const Row& row,
                                               const double* residual,
                                               const Loss& loss,
                                               const double* const* jacobians,
                                               const Store& store) {
    bool is_finite = true;
    Blocks::ForEach([&](auto b) {
      const RowBlock& block = row.blocks[b];
      const double* const J = jacobians[b];
      for (int j = 0; j < Blocks::Size(b) && j < block.size; ++j) {
        double column[R];
        for (int r = 0; r < R; ++r) {
          column[r] = block.tangent < 0 ? J[r * Blocks::Size(b) + j]
                                        : Dot<Blocks::Size(b)>(
                                              J + r * Blocks::Size(b),
                                              rows.tangents + block.tangent + j,
                                              block.size);
        }
        loss.Correct(residual, column);
        is_finite = store(rows, i, row, b, j, column) && is_finite;
      }
    });
    return is_finite;
  }

  // sum_k a[k] b[stride k]
  template <int kSize>
  CERES_HOST_DEVICE static double Dot(const double* a,
                                      const double* b,
                                      int stride) {
    double sum = 0.0;
    for (int k = 0; k < kSize; ++k) {
      sum += a[k] * b[stride * k];
    }
    return sum;
  }

  // Stores column j of block b's derivative in `rows`; returns false if it is
  // not finite.
  struct StoreInCells {
    CERES_HOST_DEVICE bool operator()(const RowBatch& rows,
                                      int64_t i,
                                      const Row& row,
                                      int b,
                                      int j,
                                      const double* column) const {
      const RowBlock& block = row.blocks[b];
      const RowCells& cells = row.is_point[b] ? rows.e : rows.f;
      int64_t at = row.place * cells.row + (block.column + j) * cells.element;
      int64_t residual = cells.residual;
      if (rows.value_begin != nullptr) {
        at += rows.value_begin[i];
        residual = block.size;
      }
      bool is_finite = true;
      for (int r = 0; r < R; ++r, at += residual) {
        if (rows.stores_float) {
          const float value = static_cast<float>(column[r]);
          static_cast<float*>(cells.data)[at] = value;
          is_finite = is_finite && IsFinite(value);
        } else {
          static_cast<double*>(cells.data)[at] = column[r];
          is_finite = is_finite && IsFinite(column[r]);
        }
      }
      return is_finite;
    }
  };
};

// True if a functor can take the derivative by one block, which is less work
// than all:
//
//   using DerivativesByBlockOf = Functor;   itself, as DerivativesOf
//   CERES_HOST_DEVICE bool DifferentiateBlock(int block,
//       const double* const* blocks, double* residuals,
//       double* const* jacobians) const
template <typename Functor, typename = void>
struct HasDerivativesByBlock : std::false_type {};
template <typename Functor>
struct HasDerivativesByBlock<
    Functor,
    std::void_t<typename Functor::DerivativesByBlockOf>>
    : std::is_same<typename Functor::DerivativesByBlockOf, Functor> {};

// A model whose derivatives can be taken block by block:
// kDifferentiatesBlocks and EvaluateBlock (written_model.h).
template <typename Model, typename = void>
struct DifferentiatesBlocks : std::false_type {};
template <typename Model>
struct DifferentiatesBlocks<Model,
                            std::void_t<decltype(Model::kDifferentiatesBlocks)>>
    : std::bool_constant<Model::kDifferentiatesBlocks> {};

// For a model with an analytic Jacobian.
template <typename Model, typename BlockSizes = typename Model::BlockSizes>
class RowEvaluator;
template <typename Model, int... Ns>
class RowEvaluator<Model, std::integer_sequence<int, Ns...>>
    : public RowEvaluatorBase<Model, Model::kNumResiduals, Ns...> {
  static constexpr int R = Model::kNumResiduals;
  using Base = RowEvaluatorBase<Model, R, Ns...>;
  using typename Base::Blocks;
  using typename Base::Constants;
  using typename Base::Row;

 public:
  // The contribution of row i. If kJacobian, e and f are computed and passed to
  // `store` (StoreInCells).
  template <bool kJacobian, typename Store = typename Base::StoreInCells>
  CERES_HOST_DEVICE static RowTerm Evaluate(const RowBatch& rows,
                                            int64_t i,
                                            const Store& store = Store()) {
    return EvaluateBlocks<kJacobian, false>(rows, i, 0, store);
  }

  // One a block, if the model can.
  static constexpr int kNumParts =
      DifferentiatesBlocks<Model>() ? Blocks::kNumBlocks : 1;
  // Part 0 stores the residuals and has the row's cost. Each says whether it is
  // finite.
  CERES_HOST_DEVICE static RowTerm EvaluatePart(const RowBatch& rows,
                                                int64_t i,
                                                int part) {
    return EvaluateBlocks<true, true>(
        rows, i, part, typename Base::StoreInCells());
  }

 private:
  // With all derivatives, or if kOne with those by `block`.
  template <bool kJacobian, bool kOne, typename Store>
  CERES_HOST_DEVICE static RowTerm EvaluateBlocks(const RowBatch& rows,
                                                  int64_t i,
                                                  [[maybe_unused]] int block,
                                                  const Store& store) {
    Row row;
    Base::Load(rows, i, &row);
    double residual[R];
    double values[kJacobian ? R * Blocks::kNumValues : 1];
    const double* x[Blocks::kNumBlocks];
    double* jacobians[Blocks::kNumBlocks];
    Blocks::ForEach([&](auto b) {
      x[b] = row.x + Blocks::Begin(b);
      jacobians[b] = values + (kJacobian ? R * Blocks::Begin(b) : 0);
    });
    if (!Base::WithConstants(rows, i, [&](const Constants& constants) {
          if constexpr (kOne) {
            return Model::EvaluateBlock(
                constants, block, x, residual, jacobians);
          } else {
            return Model::Evaluate(
                constants, x, residual, kJacobian ? jacobians : nullptr);
          }
        })) {
      return {0.0, 1.0};
    }
    typename Base::Loss loss;
    RowTerm term =
        Base::Finish(rows, i, row.place, residual, &loss, !kOne || block == 0);
    if constexpr (kJacobian) {
      if (kOne) {
        for (int b = 0; b < Blocks::kNumBlocks; ++b) {
          if (b != block) {
            row.blocks[b].size = 0;
          }
        }
      }
      if (!Base::StoreJacobians(
              rows, i, row, residual, loss, jacobians, store)) {
        term.second = 1.0;
      }
    }
    if (kOne && block != 0) {
      term.first = 0.0;
    }
    return term;
  }
};

// True if a functor has derivatives of its own, not those of a base class.
template <typename Functor, typename = void>
struct HasDerivatives : std::false_type {};
template <typename Functor>
struct HasDerivatives<Functor, std::void_t<typename Functor::DerivativesOf>>
    : std::is_same<typename Functor::DerivativesOf, Functor> {};

// The distribution of the columns of all blocks, one per value, over passes: in
// order, at most kMaxStride per pass. A block that does not fit into one pass
// is cut into even pieces.
template <int kMaxStride, typename Blocks>
class Passes {
 public:
  CERES_HOST_DEVICE static constexpr int Num() {
    return At(Blocks::kNumValues - 1).pass + 1;
  }
  CERES_HOST_DEVICE static constexpr int Width(int pass) {
    int width = 0;
    for (int v = 0; v < Blocks::kNumValues; ++v) {
      width += At(v).pass == pass ? 1 : 0;
    }
    return width;
  }
  // The pass of the column of value v.
  CERES_HOST_DEVICE static constexpr int Pass(int v) { return At(v).pass; }
  CERES_HOST_DEVICE static constexpr int Column(int v) { return At(v).column; }

 private:
  struct Place {
    int pass;
    int column;
  };
  CERES_HOST_DEVICE static constexpr Place At(int v) {
    int pass = 0;
    int used = 0;
    for (int b = 0, first = 0;; first += Blocks::Size(b), ++b) {
      const int num_pieces = (Blocks::Size(b) + kMaxStride - 1) / kMaxStride;
      for (int piece = 0; piece < num_pieces; ++piece) {
        const int begin = Blocks::Size(b) * piece / num_pieces;
        const int end = Blocks::Size(b) * (piece + 1) / num_pieces;
        if (used + end - begin > kMaxStride) {
          ++pass;
          used = 0;
        }
        if (v < first + end) {
          return {pass, used + v - first - begin};
        }
        used += end - begin;
      }
    }
  }
};

// For a functor.
template <typename Functor, int R, int... Ns>
class RowEvaluator<AutoDiffModel<Functor, R, Ns...>,
                   std::integer_sequence<int, Ns...>>
    : public RowEvaluatorBase<AutoDiffModel<Functor, R, Ns...>, R, Ns...> {
  using Model = AutoDiffModel<Functor, R, Ns...>;
  using Base = RowEvaluatorBase<Model, R, Ns...>;
  using typename Base::Blocks;
  using typename Base::Constants;
  using typename Base::Row;

 public:
  // The same as with an analytic Jacobian.
  template <bool kJacobian, typename Store = typename Base::StoreInCells>
  CERES_HOST_DEVICE static RowTerm Evaluate(const RowBatch& rows,
                                            int64_t i,
                                            const Store& store = Store()) {
    return Base::WithConstants(rows, i, [&](const Constants& constants) {
      const auto& functor = FunctorConstants<Functor>::Make(constants);
      if constexpr (kJacobian) {
#ifdef __CUDA_ARCH__
        return Differentiate<Model::kMaxStride>(rows, i, functor, store);
#else
        if constexpr (HasDerivatives<Functor>()) {
          return EvaluateDerivatives(rows, i, functor, store);
        } else {
          return DifferentiateOnHost(rows, i, functor, store);
        }
#endif
      } else {
        Row row;
        Base::Load(rows, i, &row);
        double residual[R];
        if (!Call(functor, row.x, residual)) {
          return RowTerm{0.0, 1.0};
        }
        typename Base::Loss loss;
        return Base::Finish(rows, i, row.place, residual, &loss);
      }
    });
  }

 private:
  // State that passes share.
  template <typename Store>
  struct Progress {
    CERES_HOST_DEVICE explicit Progress(const Store& store_in)
        : store(store_in) {}

    const Store& store;
    RowTerm term;
    typename Base::Loss loss;
    double residual[R];
    // J P, of blocks whose columns come in several passes.
    double sums[R * Blocks::kNumValues];
  };

  template <typename T>
  CERES_HOST_DEVICE static bool Call(const Functor& functor,
                                     const T* x,
                                     T* residual) {
    return Call(functor,
                x,
                residual,
                std::make_integer_sequence<int, Blocks::kNumBlocks>());
  }
  template <typename T, int... kBs>
  CERES_HOST_DEVICE static bool Call(const Functor& functor,
                                     const T* x,
                                     T* residual,
                                     std::integer_sequence<int, kBs...>) {
    return functor((x + Blocks::Begin(kBs))..., residual);
  }

  template <typename Store>
  CERES_HOST_DEVICE static RowTerm EvaluateDerivatives(const RowBatch& rows,
                                                       int64_t i,
                                                       const Functor& functor,
                                                       const Store& store) {
    Row row;
    Base::Load(rows, i, &row);
    double residual[R];
    double values[R * Blocks::kNumValues];
    const double* x[Blocks::kNumBlocks];
    double* jacobians[Blocks::kNumBlocks];
    Blocks::ForEach([&](auto b) {
      x[b] = row.x + Blocks::Begin(b);
      jacobians[b] = values + R * Blocks::Begin(b);
    });
    if (!functor.Differentiate(
            typename Model::BlockSizes(), x, residual, jacobians)) {
      return {0.0, 1.0};
    }
    typename Base::Loss loss;
    RowTerm term = Base::Finish(rows, i, row.place, residual, &loss);
    if (!Base::StoreJacobians(rows, i, row, residual, loss, jacobians, store)) {
      term.second = 1.0;
    }
    return term;
  }

  // The columns of a pass on the host: as few passes as there may be, all of
  // the same width, which is that of whole vectors of two. A block of 4 or 7
  // values is taken to have the manifold of a quaternion.
  CERES_HOST_DEVICE static constexpr int HostWidth() {
    int num_columns = 0;
    for (int b = 0; b < Blocks::kNumBlocks; ++b) {
      const int size = Blocks::Size(b);
      num_columns += size == 4 || size == 7 ? size - 1 : size;
    }
    const int num_passes =
        (num_columns + Model::kMaxHostStride - 1) / Model::kMaxHostStride;
    return 2 * ((num_columns + 2 * num_passes - 1) / (2 * num_passes));
  }

  template <typename Jet>
  CERES_EXT_FLATTEN static bool CallFlat(const Functor& functor,
                                         const Jet* x,
                                         Jet* y) {
    return Call(functor, x, y);
  }

  // Gives the values of block b, at x, its derivatives by columns begin to
  // begin + kWidth - 1 of the row, or takes them away. first: of these the
  // block's first.
  template <int b, int kWidth>
  static void Seed(const RowBatch& rows,
                   const Row& row,
                   int first,
                   int begin,
                   bool clears,
                   ceres::Jet<double, kWidth>* x) {
    const RowBlock& block = row.blocks[b];
    const int end = first + block.size < begin + kWidth ? first + block.size
                                                        : begin + kWidth;
    for (int c = first > begin ? first : begin; c < end; ++c) {
      const int j = c - first;
      if (block.tangent < 0) {
        x[j].v[c - begin] = clears ? 0.0 : 1.0;
        continue;
      }
      for (int k = 0; k < Blocks::Size(b); ++k) {
        x[k].v[c - begin] =
            clears ? 0.0 : rows.tangents[block.tangent + k * block.size + j];
      }
    }
  }

  // In passes over the columns of the row, those of its varying blocks one
  // after the other.
  template <typename Store>
  static RowTerm DifferentiateOnHost(const RowBatch& rows,
                                     int64_t i,
                                     const Functor& functor,
                                     const Store& store) {
    constexpr int kWidth = HostWidth();
    using Jet = ceres::Jet<double, kWidth>;
    Row row;
    Base::Load(rows, i, &row);
    int first[Blocks::kNumBlocks];
    int num_columns = 0;
    for (int b = 0; b < Blocks::kNumBlocks; ++b) {
      first[b] = num_columns;
      num_columns += row.blocks[b].size;
    }
    RowTerm term;
    typename Base::Loss loss;
    double residual[R] = {};
    Jet x[Blocks::kNumValues];
    for (int v = 0; v < Blocks::kNumValues; ++v) {
      x[v] = Jet(row.x[v]);
    }
    for (int begin = 0; begin == 0 || begin < num_columns; begin += kWidth) {
      const auto seed = [&](bool clears) {
        Blocks::ForEach([&](auto b) {
          Seed<b, kWidth>(
              rows, row, first[b], begin, clears, x + Blocks::Begin(b));
        });
      };
      seed(/*clears=*/false);
      Jet y[R];
      if (!CallFlat(functor, x, y)) {
        return {0.0, 1.0};
      }
      seed(/*clears=*/true);
      if (begin == 0) {
        for (int r = 0; r < R; ++r) {
          residual[r] = y[r].a;
        }
        term = Base::Finish(rows, i, row.place, residual, &loss);
      }
      for (int b = 0; b < Blocks::kNumBlocks; ++b) {
        for (int c = first[b] > begin ? first[b] : begin;
             c < first[b] + row.blocks[b].size && c < begin + kWidth;
             ++c) {
          double column[R];
          for (int r = 0; r < R; ++r) {
            column[r] = y[r].v[c - begin];
          }
          loss.Correct(residual, column);
          if (!store(rows, i, row, b, c - first[b], column)) {
            term.second = 1.0;
          }
        }
      }
    }
    return term;
  }

  // With passes of at most kStride columns.
  template <int kStride, typename Store>
  CERES_HOST_DEVICE static RowTerm Differentiate(const RowBatch& rows,
                                                 int64_t i,
                                                 const Functor& functor,
                                                 const Store& store) {
    using Passes = internal::Passes<kStride, Blocks>;
    Progress<Store> progress(store);
    Differentiate<Passes>(rows,
                          i,
                          functor,
                          &progress,
                          std::make_integer_sequence<int, Passes::Num()>());
    return progress.term;
  }
  template <typename Passes, typename Store, int... kPasses>
  CERES_HOST_DEVICE static void Differentiate(
      const RowBatch& rows,
      int64_t i,
      const Functor& functor,
      Progress<Store>* progress,
      std::integer_sequence<int, kPasses...>) {
    (RunPass<Passes, kPasses>(rows, i, functor, progress) && ...);
  }

  // Returns false if the functor does. Each pass reads the parameters again:
  // keeping their values would take the registers that passes save.
  template <typename Passes, int kPass, typename Store>
  CERES_HOST_DEVICE static bool RunPass(const RowBatch& rows,
                                        int64_t i,
                                        const Functor& functor,
                                        Progress<Store>* progress) {
    using Jet = ceres::Jet<double, Passes::Width(kPass)>;
    Row row;
    Base::Load(rows, i, &row);
    Jet x[Blocks::kNumValues];
    Blocks::ForEachValue([&](auto v) {
      x[v] = Jet(row.x[v]);
      if constexpr (Passes::Pass(v) == kPass) {
        x[v].v[Passes::Column(v)] = 1.0;
      }
    });
    Jet y[R];
    if (!Call(functor, x, y)) {
      progress->term = {0.0, 1.0};
      return false;
    }
    if constexpr (kPass == 0) {
      for (int r = 0; r < R; ++r) {
        progress->residual[r] = y[r].a;
      }
      progress->term =
          Base::Finish(rows, i, row.place, progress->residual, &progress->loss);
    }
    Blocks::ForEach([&](auto b) {
      if (row.blocks[b].tangent < 0) {
        StoreColumns<Passes, b, kPass>(rows, i, row, y, progress);
      } else {
        StoreProducts<Passes, b, kPass>(rows, i, row, y, progress);
      }
    });
    return true;
  }

  template <typename Store>
  CERES_HOST_DEVICE static void StoreColumn(const RowBatch& rows,
                                            int64_t i,
                                            const Row& row,
                                            int b,
                                            int j,
                                            double* column,
                                            Progress<Store>* progress) {
    progress->loss.Correct(progress->residual, column);
    if (!progress->store(rows, i, row, b, j, column)) {
      progress->term.second = 1.0;
    }
  }

  // Columns of block b that are those of J.
  template <typename Passes, int b, int kPass, typename Jet, typename Store>
  CERES_HOST_DEVICE static void StoreColumns(const RowBatch& rows,
                                             int64_t i,
                                             const Row& row,
                                             const Jet* y,
                                             Progress<Store>* progress) {
    Blocks::ForEachValue([&](auto v) {
      constexpr int j = v - Blocks::Begin(b);
      if constexpr (j >= 0 && j < Blocks::Size(b) && Passes::Pass(v) == kPass) {
        if (j < row.blocks[b].size) {
          double column[R];
          for (int r = 0; r < R; ++r) {
            column[r] = y[r].v[Passes::Column(v)];
          }
          StoreColumn(rows, i, row, b, j, column, progress);
        }
      }
    });
  }

  // Columns of block b that are those of J P.
  template <typename Passes, int b, int kPass, typename Jet, typename Store>
  CERES_HOST_DEVICE static void StoreProducts(const RowBatch& rows,
                                              int64_t i,
                                              const Row& row,
                                              const Jet* y,
                                              Progress<Store>* progress) {
    constexpr int kFirst = Passes::Pass(Blocks::Begin(b));
    constexpr int kLast = Passes::Pass(Blocks::Begin(b) + Blocks::Size(b) - 1);
    if constexpr (kPass >= kFirst && kPass <= kLast) {
      const int size = row.blocks[b].size;
      const double* const P = rows.tangents + row.blocks[b].tangent;
      double* const sums = progress->sums + R * Blocks::Begin(b);
      for (int j = 0; j < Blocks::Size(b); ++j) {
        if (j < size) {
          double column[R] = {};
          if (kPass > kFirst) {
            for (int r = 0; r < R; ++r) {
              column[r] = sums[R * j + r];
            }
          }
          Blocks::ForEachValue([&](auto v) {
            constexpr int k = v - Blocks::Begin(b);
            if constexpr (k >= 0 && k < Blocks::Size(b) &&
                          Passes::Pass(v) == kPass) {
              for (int r = 0; r < R; ++r) {
                column[r] += y[r].v[Passes::Column(v)] * P[k * size + j];
              }
            }
          });
          if (kPass < kLast) {
            for (int r = 0; r < R; ++r) {
              sums[R * j + r] = column[r];
            }
          } else {
            StoreColumn(rows, i, row, b, j, column, progress);
          }
        }
      }
    }
  }
};

}  // namespace internal
}  // namespace ceres_ext

#endif  // CERES_EXT_ROW_EVALUATION_H_
