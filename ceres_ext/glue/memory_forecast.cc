// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/memory_forecast.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "ceres/loss_function.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/glue/block_manifolds.h"
#include "ceres_ext/glue/losses.h"
#include "ceres_ext/glue/problem_rows.h"
#include "ceres_ext/glue/trust_region_vectors.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/ops/views.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/cuda_workspace.h"

namespace ceres_ext {
namespace {

using kernels::PackedSize;

constexpr int64_t kRowsPerTask = 1 << 14;
constexpr int64_t kDouble = sizeof(double);
constexpr int64_t kInt32 = sizeof(int32_t);
constexpr int64_t kInt64 = sizeof(int64_t);

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The sum of a vector over families of blocks, and of matrices of blocks.
struct FamilySizes {
  explicit FamilySizes(const std::vector<BlockTable>& tables) {
    for (const BlockTable& table : tables) {
      values += int64_t{table.padded_size} * table.size();
      packed += int64_t{PackedSize(table.padded_size)} * table.size();
    }
  }
  int64_t values = 0;
  int64_t packed = 0;
};

// FamilyTable
int64_t TableBytes(const BlockTable& table, bool holds_subsets) {
  const int64_t n = table.size();
  bool has_constants = false;
  for (int64_t i = 0; !table.is_uniform() && i < n && !has_constants; ++i) {
    has_constants = table.constant_value(i) != nullptr;
  }
  return n * (3 * kInt32 + (has_constants ? kDouble * table.ambient_size : 0) +
              (holds_subsets && table.HasManifold() ? 1 : 0));
}

// RowIndex of n rows of so many cameras, or views, and points: at least, since
// points fill tiles as they come, and a tile has a segment, or a camera, at
// least for each segment_length rows.
int64_t IndexBytesAtLeast(int64_t n,
                          int64_t num_cameras,
                          int64_t num_points,
                          const kernels::CudaWorkspace::Options& options) {
  const kernels::TileOptions& tiles =
      options.recomputed_tiles ? options.recomputed : options.stored;
  const int64_t num_tiles = CeilDivide(num_points, tiles.max_points);
  const int64_t num_segments = CeilDivide(n, tiles.segment_length);
  // A segment is all of a tile's camera where tasks are not wanted.
  const int64_t num_tile_cameras =
      tiles.tasks ? std::min<int64_t>(n, 1) : num_segments;
  const int64_t num_chunks =
      std::max(num_cameras, CeilDivide(n, kernels::CameraChunkLength(n)));
  int64_t bytes = 0;
  // CudaObservationIndex
  bytes += kInt64 * (num_points + 1) + kInt64 * (num_cameras + 1);
  bytes += 4 * kInt32 * n;
  // TileIndex
  bytes += static_cast<int64_t>(sizeof(kernels::TileHeader)) * (num_tiles + 1);
  bytes +=
      static_cast<int64_t>(sizeof(kernels::TileSegment)) * (num_segments + 1);
  bytes += tiles.tasks
               ? static_cast<int64_t>(sizeof(kernels::TileTask)) * num_segments
               : kInt32 * n;
  bytes += kInt32 * n;
  bytes += kInt32 * (3 * num_tile_cameras + 1) + kInt32 * (num_cameras + 1);
  // CudaWorkspace
  bytes += kInt32 * (num_cameras + 1 + num_chunks + n);
  bytes += kDouble *
           kernels::CudaWorkspace::NumScratchValues(
               num_chunks, num_tile_cameras, num_points, options.max_columns);
  bytes += kDouble * kernels::CudaWorkspace::kLocalCamera * num_cameras;
  return bytes;
}

// BlockManifolds of these blocks.
class ManifoldCounter {
 public:
  explicit ManifoldCounter(bool wants_tangents)
      : wants_tangents_(wants_tangents) {}

  void Add(const BlockManifold& block) {
    const int64_t values = block.ambient_size;
    const int64_t columns = block.tangent_size;
    if (factors_.Find(block).has_value()) {
      bytes_ += sizeof(kernels::ManifoldBlock);
    } else {
      const int64_t tangents = wants_tangents_ ? values * columns : 0;
      bytes_ += kInt64 * (values + columns + tangents);
      num_called_values_ += values + columns;
      num_called_tangents_ += tangents;
    }
    if (wants_tangents_) {
      bytes_ += kDouble * values * block.matrix_stride;
    }
  }
  int64_t bytes() const {
    return bytes_ +
           kDouble * std::max(num_called_values_, num_called_tangents_) +
           static_cast<int64_t>(factors_.factors().size() *
                                sizeof(kernels::ManifoldFactor));
  }

 private:
  const bool wants_tangents_;
  ManifoldFactors factors_;
  int64_t bytes_ = 0;
  int64_t num_called_values_ = 0;
  int64_t num_called_tangents_ = 0;
};

// All blocks of a table, each with a matrix of ambient x padded.
void AddBlocks(const BlockTable& table, ManifoldCounter* counter) {
  for (int32_t i = 0; i < table.size(); ++i) {
    counter->Add({table.manifold(i),
                  table.state_offset(i),
                  table.tangent_offset(i),
                  table.ambient_size,
                  table.tangent_size(i),
                  table.padded_size});
  }
}

// Losses of rows, each once. Programs may have one object per row, so no more
// than kMost are kept, and of a task kMostOfTask: there are few kinds.
class DistinctLosses {
 public:
  static constexpr size_t kMostOfTask = 64;

  // loss_of(i): the loss of row i.
  template <typename LossOf>
  void Add(int64_t n, const LossOf& loss_of, kernels::HostContext* context) {
    context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
      std::set<const ceres::LossFunction*> found;
      const ceres::LossFunction* last = nullptr;
      for (int64_t i = begin; i < end; ++i) {
        const ceres::LossFunction* const loss = loss_of(i);
        if (loss != last && loss != nullptr && found.size() < kMostOfTask) {
          found.insert(loss);
        }
        last = loss;
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const ceres::LossFunction* loss : found) {
        Add(loss);
      }
    });
  }
  void Add(const ceres::LossFunction* loss) {
    if (losses_.size() < kMost) {
      losses_.insert(loss);
    }
  }

  bool empty() const { return losses_.empty(); }

  // LossModel of n rows, and what else rows keep of losses that the host calls.
  int64_t Bytes(int64_t n) const {
    if (losses_.empty()) {
      return 0;
    }
    std::vector<kernels::RobustLoss> losses;
    std::vector<uint8_t> ids;
    std::vector<double> weights;
    const bool calls_user =
        FindChains({losses_.begin(), losses_.end()}, &losses, &ids, &weights) !=
        nullptr;
    return calls_user ? 4 * kDouble * n
                      : (weights.empty() ? 1 : 1 + kDouble) * n +
                            static_cast<int64_t>(losses.size() *
                                                 sizeof(kernels::RobustLoss));
  }

 private:
  static constexpr size_t kMost = 1024;

  std::mutex mutex_;
  std::set<const ceres::LossFunction*> losses_;
};

// An ObservationBatch or the one in a ViewBatch: what it takes where others
// have rows of its points.
int64_t SharedPointsBytes(int64_t n,
                          int64_t num_camera_values,
                          int64_t num_points,
                          bool use_schur) {
  const int64_t in_two_steps =
      use_schur ? 2 * n + 3 * num_points + num_camera_values : 0;
  return kDouble * ((3 + PackedSize(3)) * num_points + in_two_steps);
}

class Forecaster {
 public:
  explicit Forecaster(const ForecastInput& input)
      : input_(input),
        structure_(*input.structure),
        e_(structure_.e),
        f_(structure_.f) {}

  MemoryForecast Run() {
    CountOtherRows();
    shares_points_ = structure_.observations.size() +
                             (structure_.views.size() > 0 ? 1 : 0) !=
                         1 ||
                     has_general_points_;
    AddBlockTables();
    for (const ObservationRows& rows : structure_.observations) {
      AddObservations(rows);
    }
    if (structure_.views.size() > 0) {
      AddViews();
    }
    if (!structure_.general_rows.empty()) {
      AddGeneralRows();
    }
    AddEvaluator();
    AddLinearSolver();
    result_.rest += LoopVectorsBytes();
    return result_;
  }

 private:
  // Rows of one model, or, last, those that Ceres evaluates.
  struct ModelCount {
    int64_t rows = 0;
    int64_t slots = 0;
    int64_t residuals = 0;
    int64_t values = 0;
    bool has_weights = false;
    DistinctLosses losses;
  };

  int64_t num_points() const {
    return structure_.e.empty() ? 0 : structure_.e[0].size();
  }
  int ModelOf(int32_t row) const {
    const int16_t model = structure_.model(row);
    return model == ProgramStructure::kNoModel ||
                   (!input_.why_no_form.empty() &&
                    !input_.why_no_form[model].empty())
               ? static_cast<int>(structure_.models.size())
               : model;
  }

  // Fills the counts of rows of views and of general rows.
  void CountOtherRows() {
    const size_t num_kinds = structure_.models.size() + 1;
    view_models_ = std::vector<ModelCount>(num_kinds);
    general_models_ = std::vector<ModelCount>(num_kinds);
    if (structure_.num_other_rows() == 0) {
      return;
    }
    cells_of_ = std::vector<std::atomic<int32_t>>(
        structure_.general_rows.empty() ? 0 : structure_.rows->num_blocks());
    Count(structure_.views.rows, /*general=*/false, &view_models_);
    Count(structure_.general_rows, /*general=*/true, &general_models_);
    has_general_points_ = has_points_;
  }

  void Count(const std::vector<int32_t>& rows,
             bool general,
             std::vector<ModelCount>* models) {
    std::mutex mutex;
    input_.host_context->ParallelFor(
        static_cast<int64_t>(rows.size()),
        kRowsPerTask,
        [&](int64_t begin, int64_t end) {
          std::vector<std::array<int64_t, 5>> counts(models->size());
          std::vector<std::set<const ceres::LossFunction*>> losses(
              models->size());
          for (int64_t i = begin; i < end; ++i) {
            CountRow(rows[i], general, &counts, &losses);
          }
          const std::lock_guard<std::mutex> lock(mutex);
          for (size_t m = 0; m < counts.size(); ++m) {
            ModelCount& model = (*models)[m];
            model.rows += counts[m][0];
            model.slots += counts[m][1];
            model.residuals += counts[m][2];
            model.values += counts[m][3];
            model.has_weights |= counts[m][4] > 0;
            for (const ceres::LossFunction* loss : losses[m]) {
              model.losses.Add(loss);
            }
          }
        });
  }

  void CountRow(int32_t row,
                bool general,
                std::vector<std::array<int64_t, 5>>* counts,
                std::vector<std::set<const ceres::LossFunction*>>* losses) {
    const ProblemRows& rows = *structure_.rows;
    const int model = ModelOf(row);
    auto& [num_rows, slots, residuals, values, weights] = (*counts)[model];
    const LossOfRow loss = rows.Loss(row);
    ++num_rows;
    slots += rows.NumBlocks(row);
    weights += loss.weight != nullptr ? 1 : 0;
    if (loss.loss != nullptr &&
        (*losses)[model].size() < DistinctLosses::kMostOfTask) {
      (*losses)[model].insert(loss.loss);
    }
    if (!general) {
      return;
    }
    int64_t columns = 0;
    for (int j = 0; j < rows.NumBlocks(row); ++j) {
      const BlockOfRow block = rows.Block(row, j);
      if (block.is_constant()) {
        continue;
      }
      columns += rows.block(block.index).tangent_size;
      cells_of_[block.index].fetch_add(1, std::memory_order_relaxed);
      num_cells_.fetch_add(1, std::memory_order_relaxed);
      if (structure_.is_eliminated[block.index] != 0 &&
          structure_.family[block.index] == 0) {
        has_points_ = true;
      }
    }
    residuals += rows.NumResiduals(row);
    values += columns * rows.NumResiduals(row);
  }

  void AddBlockTables() {
    const bool holds = input_.recomputed && !structure_.observations.empty();
    for (size_t i = 0; i < structure_.e.size(); ++i) {
      result_.blocks_at_least += TableBytes(structure_.e[i], holds && i == 0);
    }
    for (const BlockTable& table : structure_.f) {
      result_.blocks_at_least += TableBytes(table, false);
    }
    // ProgramBlocks::working
    result_.blocks_at_least += 2 * kDouble * (e_.values + f_.values);
  }

  void AddObservations(const ObservationRows& rows) {
    const int64_t n = rows.size();
    const BlockTable& cameras = structure_.f[rows.camera_family];
    const BlockTable& points = structure_.e[0];
    const int64_t num_cameras = cameras.size();
    const int64_t ambient = cameras.ambient_size;
    const int64_t columns = cameras.padded_size;
    if (!input_.index_is_kept) {
      result_.blocks_at_least +=
          IndexBytesAtLeast(n,
                            num_cameras,
                            num_points(),
                            kernels::CudaWorkspace::Options::For(
                                input_.recomputed, input_.mixed));
    }
    int64_t bytes = 0;
    // StateModel
    bytes += kDouble * ambient * num_cameras;
    bytes += points.HasPadding() ? kDouble * 3 * num_points() : 0;
    ManifoldCounter manifolds(/*wants_tangents=*/true);
    if (cameras.HasManifold() || cameras.HasPadding() || ambient != columns) {
      AddBlocks(cameras, &manifolds);
    }
    if (!input_.recomputed && points.HasManifold()) {
      AddBlocks(points, &manifolds);
    }
    bytes += manifolds.bytes();
    // LossModel
    DistinctLosses losses;
    if (rows.common_loss != nullptr) {
      losses.Add(rows.common_loss);
    } else {
      losses.Add(
          static_cast<int64_t>(rows.loss.size()),
          [&rows](int64_t i) { return rows.loss[i]; },
          input_.host_context);
    }
    bytes += losses.Bytes(n) + kDouble * rows.weights.size();
    const bool has_loss = !losses.empty() || rows.weights.size() > 0;
    takes_scratch_ |= has_loss;
    // Measurements, states and maps of cameras.
    bytes += kDouble * 2 * n;
    bytes += num_cameras *
             static_cast<int64_t>(sizeof(kernels::CameraState<double>));
    bytes += kDouble * kernels::kBalLocalCameraDim * columns * num_cameras;
    // The Jacobian.
    const int64_t value = input_.mixed ? sizeof(float) : sizeof(double);
    if (input_.recomputed) {
      bytes += kDouble * (ambient + ambient * columns + columns) * num_cameras;
      bytes += value * num_cameras *
               static_cast<int64_t>(sizeof(kernels::CameraState<float>) /
                                    sizeof(float));
      bytes += kDouble * kernels::kBalLocalCameraDim * columns * num_cameras;
      bytes += input_.mixed ? kDouble * 3 : 0;  // the local origin
      bytes += value * 2 * 3 * num_points();
      bytes += has_loss ? value * n : 0;
    } else {
      bytes += value * 2 * (columns + 3) * n;
    }
    if (shares_points_) {
      bytes += SharedPointsBytes(
          n, columns * num_cameras, num_points(), input_.solver.use_schur);
    }
    result_.rest += bytes;
  }

  // What models and Ceres take of rows that have no index of their own kind.
  // slots: blocks that models keep, by model.
  int64_t BatchRowsBytes(const std::vector<ModelCount>& models, bool general) {
    const ModelCount& host = models.back();
    int64_t num_rows = 0;
    for (const ModelCount& model : models) {
      num_rows += model.rows;
    }
    int64_t bytes = 0;
    for (size_t m = 0; m + 1 < models.size(); ++m) {
      const ModelCount& model = models[m];
      const int64_t n = model.rows;
      if (n == 0) {
        continue;
      }
      const int64_t words = (structure_.models[m]->constants_bytes + 7) / 8;
      bytes += kDouble * words * n;
      bytes += n < num_rows ? kInt32 * n : 0;  // places
      bytes += model.losses.Bytes(n);
      bytes += model.has_weights ? kDouble * n : 0;
      if (general) {
        bytes += static_cast<int64_t>(sizeof(RowBlock)) * model.slots;
        bytes += (kInt32 + kInt64) * n;
      } else {
        // Most rows of a view have the same blocks.
        bytes += static_cast<int64_t>(sizeof(RowBlock)) *
                 structure_.models[m]->num_parameter_blocks *
                 std::min<int64_t>(n, structure_.views.blocks.size());
        bytes += kInt32 * n;  // combinations
      }
    }
    if (host.rows < num_rows) {
      bytes += RowManifoldBytes(general);
      bytes +=
          general ? 0 : static_cast<int64_t>(sizeof(RowBlock)) * num_points();
      if (host.rows > 0) {
        // Their places and their ranges of residuals.
        bytes += kInt32 * host.rows;
        bytes += 2 * kInt64 * host.rows;
        bytes += kDouble * (general ? host.residuals : 2 * host.rows);
        if (general) {
          bytes += 2 * kInt64 * host.rows + kDouble * host.values;
        }
      }
    }
    return bytes;
  }

  // The derivatives of manifolds of the blocks that models see; those of blocks
  // that only other rows have are counted too.
  int64_t RowManifoldBytes(bool general) {
    ManifoldCounter counter(/*wants_tangents=*/true);
    const ProblemRows& rows = *structure_.rows;
    std::vector<uint8_t> is_of_view(general ? 0 : rows.num_blocks(), 0);
    for (const auto& blocks : structure_.views.blocks) {
      for (const int32_t b : blocks) {
        if (!general) {
          is_of_view[b] = 1;
        }
      }
    }
    for (int32_t b = 0; b < rows.num_blocks(); ++b) {
      const VaryingBlock block = rows.block(b);
      const bool is_seen =
          general ? cells_of_[b] > 0
                  : is_of_view[b] != 0 || (structure_.is_eliminated[b] != 0 &&
                                           structure_.family[b] == 0);
      if (block.manifold != nullptr && is_seen) {
        counter.Add({block.manifold,
                     block.state_offset,
                     block.tangent_offset,
                     block.size,
                     block.tangent_size,
                     block.tangent_size});
      }
    }
    return counter.bytes();
  }

  // A list of so many cells: BlockCell, segments and blocks.
  static int64_t ListBytes(int64_t num_cells, int64_t num_blocks) {
    return static_cast<int64_t>(sizeof(kernels::BlockCell)) * num_cells +
           kInt64 * (CeilDivide(num_cells, kernels::kSegmentCells) + 1) +
           kInt32 * num_blocks;
  }

  void AddViews() {
    const ViewStructure& views = structure_.views;
    const int64_t n = views.size();
    const auto num_views = static_cast<int64_t>(views.blocks.size());
    const int64_t columns = views.columns;
    auto options = kernels::CudaWorkspace::Options::For(/*recomputed=*/false,
                                                        /*in_float=*/false);
    options.max_columns = views.columns;
    result_.blocks_at_least +=
        IndexBytesAtLeast(n, num_views, num_points(), options);
    result_.blocks_at_least +=
        columns * num_views *
        static_cast<int64_t>(sizeof(kernels::ViewColumn) + sizeof(int32_t));
    // Lists of all blocks, of those of one view, and of the rows of others.
    std::vector<int32_t> num_views_of(structure_.rows->num_blocks(), 0);
    int64_t num_cells = 0;
    for (const auto& blocks : views.blocks) {
      for (const int32_t b : blocks) {
        ++num_views_of[b];
        ++num_cells;
      }
    }
    const auto num_single = static_cast<int64_t>(
        std::count(num_views_of.begin(), num_views_of.end(), 1));
    const auto num_blocks = static_cast<int64_t>(num_views_of.size()) -
                            static_cast<int64_t>(std::count(
                                num_views_of.begin(), num_views_of.end(), 0));
    std::vector<int32_t> num_shared(num_views, 0);
    for (int64_t v = 0; v < num_views; ++v) {
      for (const int32_t b : views.blocks[v]) {
        num_shared[v] += num_views_of[b] > 1 ? 1 : 0;
      }
    }
    std::atomic<int64_t> num_shared_cells{0};
    if (num_single < num_blocks) {
      input_.host_context->ParallelFor(
          n, kRowsPerTask, [&](int64_t begin, int64_t end) {
            int64_t sum = 0;
            for (int64_t i = begin; i < end; ++i) {
              sum += num_shared[views.view_id[i]];
            }
            num_shared_cells += sum;
          });
    }
    result_.blocks_at_least +=
        ListBytes(num_cells, num_blocks) + ListBytes(num_single, num_single) +
        ListBytes(num_shared_cells, num_blocks - num_single);

    int64_t bytes = BatchRowsBytes(view_models_, /*general=*/false);
    const int64_t value = input_.mixed ? sizeof(float) : sizeof(double);
    const int64_t host_rows = view_models_.back().rows;
    constexpr int64_t kChunk = 1 << 16;
    bytes += kDouble * 2 * (columns + 3) * std::min(kChunk, host_rows);
    if (input_.recomputed_views) {
      bytes += kDouble * structure_.num_parameters;
      bytes += RowManifoldTangents();
      bytes += kDouble * (columns * num_views + 3 * num_points());
    } else {
      bytes += value * 2 * (columns + 3) * n;
    }
    // ViewBatch
    bytes += 2 * kDouble * columns * num_views;
    const bool both =
        input_.solver.needs_u() && input_.solver.needs_schur_diagonal();
    bytes += (both ? 2 : 1) * kDouble * PackedSize(views.columns) * num_views;
    if (num_shared_cells > 0) {
      // Sums over shared blocks, packed.
      int64_t width = 0;
      for (size_t b = 0; b < num_views_of.size(); ++b) {
        if (num_views_of[b] > 1) {
          width = std::max<int64_t>(
              width,
              PackedSize(structure_.f[structure_.family[b]].padded_size));
        }
      }
      bytes += kDouble * width *
               CeilDivide(num_shared_cells, kernels::kSegmentCells);
    }
    if (shares_points_) {
      bytes += SharedPointsBytes(
          n, columns * num_views, num_points(), input_.solver.use_schur);
    }
    result_.rest += bytes;
  }

  // Of RecomputedModelRows: a copy of the derivatives of manifolds.
  int64_t RowManifoldTangents() const {
    int64_t num_values = 0;
    const ProblemRows& rows = *structure_.rows;
    for (int32_t b = 0; b < rows.num_blocks(); ++b) {
      const VaryingBlock block = rows.block(b);
      if (block.manifold != nullptr) {
        num_values += int64_t{block.size} * block.tangent_size;
      }
    }
    return kDouble * num_values;
  }

  void AddGeneralRows() {
    const auto n = static_cast<int64_t>(structure_.general_rows.size());
    int64_t residuals = 0;
    int64_t values = 0;
    for (const ModelCount& model : general_models_) {
      residuals += model.residuals;
      values += model.values;
    }
    // BlockRows
    int64_t lists = 0;
    int64_t partial = 0;
    for (const bool eliminated : {true, false}) {
      const auto& tables = eliminated ? structure_.e : structure_.f;
      for (size_t family = 0; family < tables.size(); ++family) {
        int64_t num_cells = 0;
        int64_t num_blocks = 0;
        int64_t num_segments = 0;
        for (size_t b = 0; b < cells_of_.size(); ++b) {
          const int64_t cells = cells_of_[b];
          if (cells > 0 && (structure_.is_eliminated[b] != 0) == eliminated &&
              structure_.family[b] == static_cast<int32_t>(family)) {
            num_cells += cells;
            ++num_blocks;
            num_segments += CeilDivide(cells, kernels::kSegmentCells);
          }
        }
        lists += static_cast<int64_t>(sizeof(kernels::BlockCell)) * num_cells;
        lists += kInt64 * num_segments + kInt32 * num_blocks;
        if (num_segments > num_blocks) {
          partial = std::max(
              partial, num_segments * PackedSize(tables[family].padded_size));
        }
      }
    }
    result_.blocks_at_least +=
        kInt32 * (residuals + 2 * (n + 1)) +
        static_cast<int64_t>(sizeof(kernels::RowCell)) * num_cells_ +
        static_cast<int64_t>(sizeof(kernels::EliminatedCell)) * n + lists;
    result_.rest += BatchRowsBytes(general_models_, /*general=*/true);
    // Jacobian and GeneralBatch
    result_.rest += kDouble * (values + residuals + partial);
  }

  // ProgramEvaluator
  void AddEvaluator() {
    ManifoldCounter manifolds(/*wants_tangents=*/false);
    for (const auto* tables : {&structure_.e, &structure_.f}) {
      for (const BlockTable& table : *tables) {
        if (!table.HasManifold()) {
          continue;
        }
        for (int32_t i = 0; i < table.size(); ++i) {
          if (table.state_offset(i) >= 0) {
            const ceres::Manifold* const manifold = table.manifold(i);
            manifolds.Add({manifold,
                           table.state_offset(i),
                           table.tangent_offset(i),
                           manifold != nullptr ? manifold->AmbientSize()
                                               : table.tangent_size(i),
                           table.tangent_size(i)});
          }
        }
      }
    }
    result_.rest += manifolds.bytes();
    result_.rest +=
        takes_scratch_ ? kDouble * int64_t{structure_.num_residuals} : 0;
  }

  // StepSolver, its operator and its preconditioner.
  void AddLinearSolver() {
    const solver::InexactSolverOptions& options = input_.solver;
    const bool jacobi =
        options.preconditioner == solver::PreconditionerType::kJacobi;
    int64_t values = 0;
    if (options.use_schur) {
      values += e_.packed;
      bool shares = false;
      for (size_t i = 0; i < structure_.e.size(); ++i) {
        shares |= structure_.e[i].size() > 0 && (i > 0 || shares_points_);
      }
      values += shares ? 3 * e_.values : 0;
      values += (options.factorizes() ? 1 : 4) * f_.values;
    } else {
      values += 5 * (e_.values + f_.values);
      values += jacobi ? 0 : e_.packed;  // FindDegenerateBlocks
    }
    if (!options.needs_u() && !options.needs_schur_diagonal()) {
      values += f_.packed;  // FindDegenerateBlocks
    }
    if (options.has_power_series()) {
      values += 2 * f_.packed + 2 * f_.values;
    }
    if (options.factorizes()) {
      // SchurCholesky says what it will take.
    } else if (options.needs_schur_diagonal()) {
      // In place for the sizes that the library has compiled.
      const bool in_place = std::all_of(
          structure_.f.begin(), structure_.f.end(), [](const BlockTable& f) {
            return f.padded_size == 3 || f.padded_size == 9 ||
                   f.padded_size == 10;
          });
      values += (in_place ? 1 : 2) * f_.packed;
    } else if (jacobi && !options.use_spse_initialization) {
      values += 2 * f_.packed + (options.use_schur ? 0 : 2 * e_.packed);
    }
    result_.rest += kDouble * values;
  }

  int64_t LoopVectorsBytes() const {
    using Vectors = LoopVectors<kernels::HostMachine>;
    return Vectors::NumBytes({structure_.num_parameters,
                              structure_.num_columns,
                              structure_.num_residuals,
                              input_.keeps_best},
                             /*shares=*/true,
                             /*has_scratch=*/takes_scratch_);
  }

  const ForecastInput& input_;
  const ProgramStructure& structure_;
  const FamilySizes e_;
  const FamilySizes f_;
  MemoryForecast result_;
  // By model, those without one last.
  std::vector<ModelCount> view_models_;
  std::vector<ModelCount> general_models_;
  // Of each block that varies, its cells in general rows.
  std::vector<std::atomic<int32_t>> cells_of_;
  std::atomic<int64_t> num_cells_{0};
  // General rows have points of observations or views.
  std::atomic<bool> has_points_{false};
  bool has_general_points_ = false;
  bool shares_points_ = false;
  bool takes_scratch_ = false;
};

}  // namespace

MemoryForecast ForecastMemory(const ForecastInput& input) {
  return Forecaster(input).Run();
}

}  // namespace ceres_ext
