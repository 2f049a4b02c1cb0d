// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A model window: a small problem whose residual blocks are of any models that
// this library evaluates row by row. Its blocks that vary are eliminated ones
// (E: points, inverse depths) of up to three columns, no two of which a row
// has, and others (F) of up to sixteen.
//
// A window is bytes: a record, its blocks, and lists of what is added up where.
// Rows are in arrays that all windows of a piece share, model by model, each
// window's end to end. Marginal priors, a row each, come behind them.
//
//   H = J'J   cell by cell: one for each pair of blocks that some row has
//   S = U + D^2 - sum over E of W'(V + D^2)^-1 W, where U, W and V are the
//   cells of FF, EF and EE
//
// Blocks of F are in the order of the factorisation of S, which fills in few.
// S is a packed triangle, column by column, with the right-hand side as its
// last row.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOW_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOW_H_

#include <cfloat>
#include <cstdint>

#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/solver/dogleg_region.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/manifold.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Most models, and parameter blocks of a row.
inline constexpr int kMaxModels = 16;
inline constexpr int kMaxModelSlots = 6;
// Most marginal priors of a window, which have any number of blocks.
inline constexpr int kMaxModelPriors = 8;
// Most values of a block, and columns of one of E.
inline constexpr int kMaxModelValues = 16;
inline constexpr int kMaxEliminatedColumns = 3;
// Most blocks and columns of F, blocks of E, and rows.
inline constexpr int kMaxModelBlocks = 128;
inline constexpr int kMaxModelColumns = 1024;
inline constexpr int kMaxEliminated = 1 << 14;
inline constexpr int kMaxModelRows = 1 << 14;

// A block that varies. Blocks of E come first.
struct ModelBlock {
  int32_t state = 0;  // its first value, among the window's
  int32_t tangent =
      -1;              // the first value of P among the window's; -1: identity
  int32_t column = 0;  // its first one: of S, or kMaxEliminatedColumns e
  int16_t size = 0;
  int16_t num_columns = 0;
  int32_t manifold = 0;  // its number in the piece
};

// A row's part of a cell: the columns of its derivative, or of W of an
// eliminated block, that belong to the two blocks.
struct ModelEntry {
  int32_t row = 0;  // or block of E
  uint16_t a = 0;
  uint16_t b = 0;
};

// A cell of H. Its entries end where those of the next cell begin.
struct ModelCell {
  int32_t a = 0;       // block of E, or of F (number in F); its rows
  int32_t b = 0;       // block of F, its columns; b <= a in F
  int32_t begin = 0;   // the first entry
  int32_t schur = 0;   // FF: the first entry of blocks of E that have both
  int32_t values = 0;  // FF: in U; EF: the first column in W of block a
};

// An eliminated block e. Those behind it begin where it ends.
struct ModelEliminated {
  int32_t w = 0;      // the first value of W_e, row-major
  int32_t cell = 0;   // the first of its cells of EF, in the order of columns
  int32_t width = 0;  // columns of W_e
};

// Consecutive rows of S.
struct ModelRun {
  int32_t begin = 0;
  int32_t end = 0;
};

// A part of a block of a prior (BlockDifference::Part).
struct ModelPriorPart {
  internal::BlockDifference::Kind kind =
      internal::BlockDifference::Kind::kValues;
  int32_t size = 0;
};

// A block of a prior. state and tangent are as in RowBlock, but count from the
// window's.
struct ModelPriorBlock {
  int32_t state = 0;
  int32_t tangent = 0;
  int32_t column = 0;  // of the prior's row of J P
  int32_t num_columns = 0;
  int32_t size = 0;             // values
  int32_t reference = 0;        // the first value, among the window's of priors
  int32_t difference = 0;       // the first element of d, among the window's
  int32_t num_differences = 0;  // columns of A
  int32_t by_columns = 0;       // the first value of D P
  int32_t part = 0;
  int32_t part_end = 0;
};

// A marginal prior |A d + b|^2 / 2, one row of the window. Its places are among
// the window's.
struct ModelPrior {
  int32_t num_residuals = 0;
  int32_t num_columns = 0;      // of J P
  int32_t num_differences = 0;  // columns of A
  int32_t block = 0;
  int32_t block_end = 0;
  int32_t difference = 0;
  int32_t matrix = 0;     // A, row-major, among the values of priors
  int32_t offset = 0;     // b
  int32_t columns = 0;    // J P, row-major
  int32_t residuals = 0;  // r
};

struct ModelCounts {
  int32_t num_eliminated = 0;
  int32_t num_others = 0;   // blocks of F
  int32_t num_columns = 0;  // of S
  int32_t num_values = 0;   // of blocks that vary
  int32_t num_constants = 0;
  int32_t num_tangents = 0;
  int32_t num_rows = 0;
  int32_t num_eliminated_cells = 0;  // EF
  int32_t num_cells = 0;             // FF
  int32_t num_entries = 0;           // of all cells
  int32_t num_schur_entries = 0;
  int32_t num_runs = 0;
  int32_t num_w = 0;  // values of W
  int32_t num_u = 0;  // values of U
  // Marginal priors, their blocks, the parts of these, the values of
  // references, A and b, the elements of d, the values of D P and J P, and the
  // residuals.
  int32_t num_priors = 0;
  int32_t num_prior_blocks = 0;
  int32_t num_prior_parts = 0;
  int32_t num_prior_values = 0;
  int32_t num_differences = 0;
  int32_t num_by_columns = 0;
  int32_t num_prior_columns = 0;
  int32_t num_prior_residuals = 0;
  int32_t num_wanted = 0;  // columns of F whose covariance is wanted
  // Vectors of all columns that dogleg steps need; 0: there are none.
  int32_t num_points = 0;
};

// Places one array after the other in bytes.
class ModelPlaces {
 public:
  template <typename T>
  CERES_EXT_HOST_DEVICE int64_t Add(int64_t n) {
    const int64_t at = size_;
    size_ += (n * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return at;
  }
  CERES_EXT_HOST_DEVICE int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// The places of a window's arrays in its bytes.
struct ModelInput {
  CERES_EXT_HOST_DEVICE explicit ModelInput(const ModelCounts& n) {
    ModelPlaces places;
    values = places.Add<double>(n.num_values);
    constants = places.Add<double>(n.num_constants);
    blocks = places.Add<ModelBlock>(n.num_eliminated + n.num_others);
    eliminated = places.Add<ModelEliminated>(n.num_eliminated + 1);
    diagonal_cells = places.Add<ModelCell>(n.num_eliminated + 1);
    eliminated_cells = places.Add<ModelCell>(n.num_eliminated_cells + 1);
    cells = places.Add<ModelCell>(n.num_cells + 1);
    entries = places.Add<ModelEntry>(n.num_entries);
    schur_entries = places.Add<ModelEntry>(n.num_schur_entries);
    run_begin = places.Add<int32_t>(n.num_others + 1);
    runs = places.Add<ModelRun>(n.num_runs);
    priors = places.Add<ModelPrior>(n.num_priors);
    prior_blocks = places.Add<ModelPriorBlock>(n.num_prior_blocks);
    prior_parts = places.Add<ModelPriorPart>(n.num_prior_parts);
    prior_values = places.Add<double>(n.num_prior_values);
    wanted = places.Add<int32_t>(n.num_wanted);
    num_bytes = places.size();
  }
  int64_t values, constants, blocks, eliminated, diagonal_cells,
      eliminated_cells, cells, entries, schur_entries, run_begin, runs, priors,
      prior_blocks, prior_parts, prior_values, wanted;
  int64_t num_bytes;
};

// ModelCounts::num_points of a loop.
inline int32_t NumDoglegPoints(DoglegType type) {
  return type == DoglegType::kNone ? 0 : type == DoglegType::kSubspace ? 4 : 2;
}

enum class ModelCovariance : int32_t { kNone, kSingular, kFound };

// The next thing to do (model_solve.h).
enum class ModelPhase : int32_t {
  kCandidate,   // the candidate is to be judged
  kLinearize,   // H and g at x are wanted, and a step
  kSolve,       // a step with other damping
  kChoose,      // a dogleg step from what has been solved
  kCovariance,  // the loop has ended, a covariance is wanted
  kEnded
};

struct ModelResult {
  TrustRegion region;
  ModelPhase phase = ModelPhase::kCandidate;
  double cost = 0.0;  // of the candidate; DBL_MAX if it can't be evaluated
  // These describe the step to the candidate.
  double model_cost_change = 0.0;
  double x_norm = 0.0;
  double step_norm = 0.0;
  int32_t has_begun = 0;
  ModelCovariance covariance = ModelCovariance::kNone;
  // The limit of time, from `begin` on, in nanoseconds (model_clock.h).
  double max_seconds = DBL_MAX;
  int64_t begin = 0;
};

// The places of a window's results, and of what its rows are evaluated at.
struct ModelOutput {
  CERES_EXT_HOST_DEVICE explicit ModelOutput(const ModelCounts& n) {
    ModelPlaces places;
    result = places.Add<ModelResult>(1);
    values = places.Add<double>(n.num_values);
    candidate = places.Add<double>(n.num_values);
    tangents = places.Add<double>(n.num_tangents);
    covariance = places.Add<double>(int64_t{n.num_wanted} * n.num_wanted);
    num_bytes = places.size();
  }
  int64_t result, values, candidate, tangents, covariance;
  int64_t num_bytes;
};

// The places of what a solve needs beside them, except for rows and S.
struct ModelScratch {
  CERES_EXT_HOST_DEVICE explicit ModelScratch(const ModelCounts& n) {
    ModelPlaces places;
    const int64_t e = n.num_eliminated;
    const int64_t all = kMaxEliminatedColumns * e + n.num_columns;
    w = places.Add<double>(n.num_w);
    y = places.Add<double>(n.num_w);
    u = places.Add<double>(n.num_u);
    v = places.Add<double>(9 * e);
    factors = places.Add<double>(9 * e);
    z = places.Add<double>(kMaxEliminatedColumns * e);
    products = places.Add<double>(int64_t{kMaxEliminatedColumns} *
                                  n.num_eliminated_cells);
    gradient = places.Add<double>(all);
    diagonal = places.Add<double>(all);
    scale = places.Add<double>(all);
    step = places.Add<double>(all);
    changes = places.Add<double>(e + n.num_others);
    differences = places.Add<double>(n.num_differences);
    by_columns = places.Add<double>(n.num_by_columns);
    prior_columns = places.Add<double>(n.num_prior_columns);
    prior_residuals = places.Add<double>(n.num_prior_residuals);
    prior_norms = places.Add<double>(n.num_priors);
    inverse = places.Add<double>(int64_t{n.num_wanted} * n.num_columns);
    dogleg = places.Add<DoglegRegion>(n.num_points > 0 ? 1 : 0);
    points = places.Add<double>(n.num_points * all);
    num_bytes = places.size();
  }
  int64_t w, y, u, v, factors, z, products, gradient, diagonal, scale, step,
      changes, differences, by_columns, prior_columns, prior_residuals,
      prior_norms, inverse, dogleg, points;
  int64_t num_bytes;
};

// Values of S with the right-hand side.
CERES_EXT_HOST_DEVICE inline int64_t ModelSchurSize(int num_columns) {
  return int64_t{num_columns} * (num_columns + 3) / 2;
}

struct ModelWindowRecord {
  int64_t input_begin = 0;
  int64_t output_begin = 0;
  int64_t scratch_begin = 0;  // on a device: in the piece's scratch
  ModelCounts counts;
  // The window's rows of each model, in the piece's arrays.
  int32_t row_begin[kMaxModels] = {};
  int32_t row_end[kMaxModels] = {};
};

// Rows of a model that are evaluated.
struct ModelRows {
  int32_t begin = 0;  // the window's numbers
  int32_t end = 0;
  int32_t num_residuals = 0;
  int32_t stride = 0;  // of a residual's derivatives in columns
  const double* columns = nullptr;
  const double* residuals = nullptr;
  double* squared_norms = nullptr;  // NaN until the row is evaluated
  kernels::LossRef loss;
};

// Tables that all windows of a piece share.
struct ModelTables {
  const kernels::ManifoldFactor* factors = nullptr;
  const int32_t* factor_begin = nullptr;
};

// A window where it is solved.
struct ModelWindow {
  ModelWindow() = default;
  CERES_EXT_HOST_DEVICE ModelWindow(const ModelWindowRecord& record,
                                    const ModelTables& its_tables,
                                    const unsigned char* inputs,
                                    unsigned char* outputs,
                                    unsigned char* scratch,
                                    double* its_schur)
      : counts(record.counts), tables(its_tables), schur(its_schur) {
    const ModelInput in(counts);
    const ModelOutput out(counts);
    const ModelScratch own(counts);
    inputs += record.input_begin;
    outputs += record.output_begin;
    start = reinterpret_cast<const double*>(inputs + in.values);
    constants = reinterpret_cast<const double*>(inputs + in.constants);
    blocks = reinterpret_cast<const ModelBlock*>(inputs + in.blocks);
    others = blocks + counts.num_eliminated;
    eliminated =
        reinterpret_cast<const ModelEliminated*>(inputs + in.eliminated);
    diagonal_cells =
        reinterpret_cast<const ModelCell*>(inputs + in.diagonal_cells);
    eliminated_cells =
        reinterpret_cast<const ModelCell*>(inputs + in.eliminated_cells);
    cells = reinterpret_cast<const ModelCell*>(inputs + in.cells);
    entries = reinterpret_cast<const ModelEntry*>(inputs + in.entries);
    schur_entries =
        reinterpret_cast<const ModelEntry*>(inputs + in.schur_entries);
    run_begin = reinterpret_cast<const int32_t*>(inputs + in.run_begin);
    runs = reinterpret_cast<const ModelRun*>(inputs + in.runs);
    priors = reinterpret_cast<const ModelPrior*>(inputs + in.priors);
    prior_blocks =
        reinterpret_cast<const ModelPriorBlock*>(inputs + in.prior_blocks);
    prior_parts =
        reinterpret_cast<const ModelPriorPart*>(inputs + in.prior_parts);
    prior_values = reinterpret_cast<const double*>(inputs + in.prior_values);
    wanted = reinterpret_cast<const int32_t*>(inputs + in.wanted);
    result = reinterpret_cast<ModelResult*>(outputs + out.result);
    x = reinterpret_cast<double*>(outputs + out.values);
    candidate = reinterpret_cast<double*>(outputs + out.candidate);
    tangents = reinterpret_cast<double*>(outputs + out.tangents);
    covariance = reinterpret_cast<double*>(outputs + out.covariance);
    w = reinterpret_cast<double*>(scratch + own.w);
    y = reinterpret_cast<double*>(scratch + own.y);
    u = reinterpret_cast<double*>(scratch + own.u);
    v = reinterpret_cast<double*>(scratch + own.v);
    factors = reinterpret_cast<double*>(scratch + own.factors);
    z = reinterpret_cast<double*>(scratch + own.z);
    products = reinterpret_cast<double*>(scratch + own.products);
    gradient = reinterpret_cast<double*>(scratch + own.gradient);
    diagonal = reinterpret_cast<double*>(scratch + own.diagonal);
    scale = reinterpret_cast<double*>(scratch + own.scale);
    step = reinterpret_cast<double*>(scratch + own.step);
    changes = reinterpret_cast<double*>(scratch + own.changes);
    differences = reinterpret_cast<double*>(scratch + own.differences);
    by_columns = reinterpret_cast<double*>(scratch + own.by_columns);
    prior_columns = reinterpret_cast<double*>(scratch + own.prior_columns);
    prior_residuals = reinterpret_cast<double*>(scratch + own.prior_residuals);
    prior_norms = reinterpret_cast<double*>(scratch + own.prior_norms);
    inverse = reinterpret_cast<double*>(scratch + own.inverse);
    dogleg = reinterpret_cast<DoglegRegion*>(scratch + own.dogleg);
    points = reinterpret_cast<double*>(scratch + own.points);
  }

  // The first column of F in the vectors of all columns.
  CERES_EXT_HOST_DEVICE int first_other() const {
    return kMaxEliminatedColumns * counts.num_eliminated;
  }
  CERES_EXT_HOST_DEVICE int num_all_columns() const {
    return first_other() + counts.num_columns;
  }
  CERES_EXT_HOST_DEVICE const ModelBlock& other(int b) const {
    return others[b];
  }
  // Column c of S begins at its diagonal.
  CERES_EXT_HOST_DEVICE double* SchurColumn(int c) const {
    return schur + (c * (counts.num_columns + 1) - c * (c - 1) / 2);
  }
  CERES_EXT_HOST_DEVICE double* Schur(int r, int c) const {
    return SchurColumn(c) + (r - c);
  }

  // Rows of the next model.
  CERES_EXT_HOST_DEVICE void AddRows(int32_t num_rows,
                                     const ModelRows& of_model) {
    const int32_t begin = num_models > 0 ? rows[num_models - 1].end : 0;
    rows[num_models] = of_model;
    rows[num_models].begin = begin;
    rows[num_models].end = begin + num_rows;
    ++num_models;
  }
  // After those of all models.
  CERES_EXT_HOST_DEVICE void AddPriors() {
    for (int k = 0; k < counts.num_priors; ++k) {
      const ModelPrior& prior = priors[k];
      ModelRows of_prior;
      of_prior.num_residuals = prior.num_residuals;
      of_prior.stride = prior.num_columns;
      of_prior.columns = prior_columns + prior.columns;
      of_prior.residuals = prior_residuals + prior.residuals;
      of_prior.squared_norms = prior_norms + k;
      AddRows(1, of_prior);
    }
  }

  ModelCounts counts;
  ModelTables tables;
  int32_t num_models = 0;  // with each prior
  int32_t no_padding = 0;  // it is copied word by word
  ModelRows rows[kMaxModels + kMaxModelPriors];

  const double* start;
  const double* constants;
  const ModelBlock* blocks;
  const ModelBlock* others;  // those of F
  const ModelEliminated* eliminated;
  const ModelCell* diagonal_cells;  // EE
  const ModelCell* eliminated_cells;
  const ModelCell* cells;
  const ModelEntry* entries;
  const ModelEntry* schur_entries;
  const int32_t* run_begin;  // of each block of F
  const ModelRun* runs;      // of L behind its columns
  const ModelPrior* priors;
  const ModelPriorBlock* prior_blocks;
  const ModelPriorPart* prior_parts;
  const double* prior_values;
  const int32_t* wanted;  // columns of S
  ModelResult* result;
  double* x;
  double* candidate;
  double* tangents;  // at the candidate
  double* covariance;
  double* w;
  double* y;  // L^-1 W of each block of E, V + D^2 = L L'
  double* u;
  double* v;         // 3 x 3 of each block
  double* factors;   // L, with the inverse of its diagonal
  double* z;         // L^-1 g
  double* products;  // Y s of each cell of E
  // E, then F: J'r, the diagonal of H, the scales of columns, the step.
  double* gradient;
  double* diagonal;
  double* scale;
  double* step;
  double* changes;  // the largest of each block by -g
  // At the candidate: d of each prior, and its derivatives D P by the columns
  // of its blocks; J P = A D P, r = A d + b, and |r|^2.
  double* differences;
  double* by_columns;
  double* prior_columns;
  double* prior_residuals;
  double* prior_norms;
  double* inverse;  // S^-1 of the columns that are wanted
  // Dogleg steps (dogleg_region.h): p, d, u and v, as far as the type has them.
  DoglegRegion* dogleg;
  double* points;
  double* schur;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOW_H_
