// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads the problems of a batch into windows (solver/window/): numbers the
// blocks that are used, leaves out blocks that are not active, sorts rows by
// point and cuts them into chunks. If a problem is not a window, the packer
// returns the reason.

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_rows.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

struct PackedWindow {
  WindowRecord record;
  WindowKind kind;
  bool has_schur = false;
  // Cost of the rows whose camera and point are both constant, and of the
  // priors whose cameras are.
  double fixed_cost = 0.0;
  // The caller's blocks in the cameras that vary, and their values.
  int32_t num_camera_blocks = 0;
  int32_t num_camera_values = 0;

  WindowOutput output() const { return {kind.camera_size, record.counts}; }
};

class WindowPacker final : public SmallKind {
 public:
  // *batch is valid and outlives the object. Throws std::bad_alloc.
  explicit WindowPacker(const ProblemBatch* batch);

  SolvedAsType solved_as() const override { return SOLVED_AS_WINDOW; }
  const char* plural() const override { return "windows"; }
  // True if some residual blocks are of cost functions that windows have.
  bool KnowsRows() const override { return !arrays_.empty(); }
  PieceSize piece_size() const override {
    PieceSize size;
    size.bytes = int64_t{48} << 20;
    size.part_of_limit = 4;
    size.num_in_flight = 2;
    return size;
  }
  int64_t NumBytes(int64_t begin, int64_t end) const override {
    return BytesOf(begin, end).inputs;
  }
  SmallBytes BytesOf(int64_t begin, int64_t end) const {
    return {input_begin_[end] - input_begin_[begin],
            output_begin_[end] - output_begin_[begin]};
  }
  const std::vector<kernels::RobustLoss>& losses() const { return losses_; }

  // Memory of a thread, which Pack uses again.
  struct Scratch {
    std::vector<int32_t> row_begin;
    std::vector<int32_t> seen;
    std::vector<uint8_t> camera_is_constant;
  };

  // Writes problem i to `input`, and sets *window except the places in the
  // arenas. Returns the reason if the problem is not a window, or an empty
  // string. may_repeat: a camera may see a point several times. Threads may
  // pack different problems at once.
  std::string Pack(int64_t i,
                   bool may_repeat,
                   Scratch* scratch,
                   unsigned char* input,
                   PackedWindow* window);

  // Writes the values of blocks that vary back to the caller. `output` is that
  // of this window.
  void Unpack(int64_t i,
              const PackedWindow& window,
              const unsigned char* output) const;

 private:
  // The number of a block that is not in the window.
  static constexpr int32_t kUnused = -1;
  static constexpr int kPoint = kernels::kBalPointDim;

  // An array of residual blocks that is not empty.
  struct RowArray {
    int residuals = 0;
    const WindowRows* rows = nullptr;
    int num_residuals = 0;  // of a residual block
    // Number of each block of intrinsics in its window, or kUnused.
    std::vector<int32_t> params_place;
  };
  // The effect of a manifold on a camera.
  struct CameraForm {
    bool is_known = false;
    bool turns = false;   // The rotation is a quaternion's manifold.
    uint16_t varies = 0;  // bits of the camera's values, a turn as a whole
  };
  // The block of intrinsics in the rows of a pose.
  struct Intrinsics {
    int array = -1;  // of arrays_; -1: it has no rows
    int64_t block = 0;
    bool is_one = true;   // All rows have this block.
    uint16_t varies = 0;  // bits of its values
  };

  // Findings of Count in residual blocks.
  struct Found {
    bool is_finite = true;
    bool has_different_cameras = true;
  };

  // Null: all blocks are active.
  static const uint8_t* FlagsOf(const std::vector<const uint8_t*>& flags,
                                int array) {
    return flags.empty() ? nullptr : flags[array];
  }
  struct Blocks {
    int64_t begin;
    int64_t end;
  };
  Blocks BlocksOf(int array, int64_t i) const {
    return {batch_->parameter_begin[array][i],
            batch_->parameter_begin[array][i + 1]};
  }
  const ArrayProblem::Parameters& parameters(int array) const {
    return batch_->problem.parameters()[array];
  }
  const double* ValuesOf(int array, int64_t block) const {
    return parameters(array).values + parameters(array).size * block;
  }
  const ArrayProblem::Residuals& residuals(const RowArray& array) const {
    return batch_->problem.residuals()[array.residuals];
  }
  bool IsConstant(int array, int64_t block) const;
  std::string ReadArrays();
  std::string ReadArray(int residuals);
  void ReadForms();
  void ReadForm(const ceres::Manifold* manifold);
  const CameraForm& FormOf(int64_t camera) const;
  bool IsConstantPose(int64_t camera) const;
  bool HasOwnIntrinsics(int64_t camera) const;
  uint16_t MaskOf(int64_t camera) const;
  int ParamsOf(const RowArray& array) const;
  std::string FindOwnIntrinsics(int64_t i);
  template <typename Wanted, typename Function>
  bool ForEachResidual(int64_t i,
                       const Wanted& is_wanted,
                       const Function& function) const;
  template <typename Function>
  bool ForEachRow(int64_t i, const Function& function) const;
  template <typename Function>
  bool ForEachPrior(int64_t i, const Function& function) const;
  template <typename Function>
  bool ForEachMarginal(int64_t i, const Function& function) const;
  std::string Count(int64_t i, Scratch* scratch, PackedWindow* window);
  bool CountRows(int64_t i,
                 Scratch* scratch,
                 PackedWindow* window,
                 Found* found);
  bool CountPriors(int64_t i, PackedWindow* window, Found* found);
  bool CountMarginals(int64_t i, PackedWindow* window, Found* found);
  void NumberBlocks(int64_t i, const Scratch& scratch, WindowCounts* counts);
  std::string ChooseKind(int64_t i, PackedWindow* window) const;
  std::string CountBounds(int64_t i, PackedWindow* window) const;
  std::string Cut(Scratch* scratch,
                  std::vector<int32_t>* chunks,
                  PackedWindow* window) const;
  std::string Write(int64_t i,
                    bool may_repeat,
                    Scratch* scratch,
                    const std::vector<int32_t>& chunks,
                    unsigned char* input,
                    PackedWindow* window);
  void WriteBlocks(int64_t i,
                   const WindowInput& at,
                   unsigned char* input,
                   PackedWindow* window) const;
  void WriteBounds(int64_t i,
                   const WindowInput& at,
                   const PackedWindow& window,
                   unsigned char* input) const;
  void WriteRows(int64_t i,
                 const WindowInput& at,
                 const PackedWindow& window,
                 std::vector<int32_t>* next,
                 unsigned char* input) const;
  void WriteIntrinsics(int64_t i,
                       const WindowInput& at,
                       unsigned char* input) const;
  void WritePriors(int64_t i,
                   const WindowInput& at,
                   const WindowCounts& counts,
                   unsigned char* input) const;
  void WriteMarginals(int64_t i,
                      const WindowInput& at,
                      const WindowCounts& counts,
                      unsigned char* input) const;
  double CostOf(int e, int64_t k, int num_residuals, const double* r) const;
  bool AddFixedCost(int e, int64_t k, double* cost) const;
  bool AddFixedCostOfPrior(int e, int64_t k, double* cost) const;
  bool AddFixedCostOfMarginal(int e,
                              int64_t k,
                              const BlockMarginalPrior& prior,
                              const int64_t* blocks,
                              double* cost) const;
  bool ReadPrior(int e, int64_t k, WindowPrior* prior) const;
  void ReadIntrinsics(const RowArray& array,
                      int64_t block,
                      WindowIntrinsics* intrinsics) const;
  void ReadCamera(const double* from, double* values) const;
  void ReadOwnIntrinsics(int64_t camera, double* values) const;
  void WriteCamera(const double* values, int64_t camera) const;
  void WriteOwnIntrinsics(const double* values, int64_t camera) const;

  const ProblemBatch* batch_;
  // Arrays of cameras and points, and of residual blocks that are not empty.
  int cameras_ = -1;
  int points_ = -1;
  int camera_size_ = 0;        // of a window, without own intrinsics
  int num_camera_values_ = 0;  // of the caller
  PoseRotation rotation_ = PoseRotation::kAngleAxis;
  std::vector<RowArray> arrays_;
  bool has_weights_ = false;
  bool has_scales_ = false;
  std::vector<kernels::RobustLoss> losses_;
  std::vector<uint8_t> loss_id_;  // of arrays_
  std::unordered_map<const ceres::Manifold*, CameraForm> forms_;
  // Number of each block in its window, or kUnused.
  std::vector<int32_t> camera_place_;
  std::vector<int32_t> point_place_;
  // One for each pose; empty if all intrinsics are constant.
  std::vector<Intrinsics> intrinsics_;
  std::vector<uint8_t> is_too_large_;  // of each problem
  // Bytes of all problems before each one, at most.
  std::vector<int64_t> input_begin_;
  std::vector<int64_t> output_begin_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_H_
