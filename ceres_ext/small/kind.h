// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A kind of small problem: which problems of a batch it has, how they become
// bytes, and which team of threads solves one from start to end. Fits (fit/),
// windows (window/) and windows of any model (model_window/) are the kinds.
// SmallQueue (queue.h) does the rest.

#ifndef CERES_EXT_SMALL_KIND_H_
#define CERES_EXT_SMALL_KIND_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/small/batch_summary.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Bytes of the inputs and of the outputs of problems.
struct SmallBytes {
  int64_t inputs = 0;
  int64_t outputs = 0;
};

// The loop of each problem. stop: TrustRegionOptions::stop. seconds: passed
// since the call.
LoopOptions OptionsOfRegion(const Options& ext_options,
                            const ceres::Solver::Options& options,
                            const int32_t* stop,
                            double seconds);

// Problems that are packed, sent and solved at a time.
struct PieceSize {
  int64_t bytes = 0;
  // With a limit of a device's memory, a piece has this part of it at most.
  int64_t part_of_limit = 1;
  // Without a limit, memory for so many bytes is allocated at once.
  SmallBytes reserved;
  // Pieces in flight on one device with one stream. With two the host packs one
  // while the device solves the other.
  int num_in_flight = 1;
};

// The problems of a batch that are of one kind.
class SmallKind {
 public:
  virtual ~SmallKind() = default;

  virtual SolvedAsType solved_as() const = 0;
  // Reason why no problem of the batch is of this kind; empty if some may be.
  const std::string& reason() const { return reason_; }
  // True if the reason is about the cost functions that the batch has.
  virtual bool KnowsRows() const = 0;
  // True if a kind before this one that has read a problem says why it is of no
  // kind.
  virtual bool is_last_choice() const { return false; }
  // Strategies and limits that its loop has.
  virtual SmallLoop loop() const { return SmallLoop::kPlain; }
  // No problem is of this kind for this reason, unless it is empty or there is
  // another.
  void Refuse(const std::string& reason) {
    reason_ = reason_.empty() ? reason : reason_;
  }
  // The problems in a sentence.
  virtual const char* plural() const = 0;
  // Reason why a device cannot solve the problems; empty if it can.
  virtual std::string WhyNotOnDevice() const { return ""; }
  virtual PieceSize piece_size() const = 0;
  // Bytes of problems [begin, end), at most. Does not fall with end.
  virtual int64_t NumBytes(int64_t begin, int64_t end) const = 0;

 protected:
  std::string reason_;
};

// Memory of a host thread for one problem after the other.
class SmallWorkspace {
 public:
  virtual ~SmallWorkspace() = default;
  // The memory that grows with a problem.
  virtual int64_t num_bytes() const = 0;

  // The threads that solve one problem together; null: each has its own.
  kernels::HostContext* team = nullptr;
};

// Problems [begin, end) of a batch that are of one kind and are solved
// together. They are read; then inputs() and outputs() get memory; then each is
// packed; then a device or the host solves them; then each is finished.
class SmallPiece {
 public:
  // *options outlives the object.
  explicit SmallPiece(const LoopOptions* options) : options_(options) {}
  virtual ~SmallPiece() = default;
  SmallPiece(const SmallPiece&) = delete;
  SmallPiece& operator=(const SmallPiece&) = delete;

  // The kind is of the piece's class; its problems have the summaries of
  // *summary. Reads and lists nothing yet.
  void Setup(SmallKind* kind,
             BatchSummary* summary,
             int64_t begin,
             int64_t end);
  void Clear() { numbers_.clear(); }

  // For different problems any threads may call these; they throw nothing. The
  // summary of problem i says whether it is of this kind, and why not.
  void Read(int64_t i);
  // Lists the problems that were read, and sets the bytes that they need.
  void List();
  // Copies what all problems share, in so many tasks; for a device only.
  virtual int64_t num_copies() const { return 0; }
  virtual void Copy(int64_t /*task*/) {}
  // Writes problem i to the inputs. After all of them, DropUnpacked.
  void Pack(int64_t i, SmallWorkspace* workspace);
  void DropUnpacked();
  // If there is no memory, the problem is not changed and not solved.
  void SolveOnHost(int64_t i, SmallWorkspace* workspace);
  // Writes the values and the summary of a problem that has ended. If it had no
  // memory or an evaluation failed, it becomes a problem for ceres_ext::Solve,
  // which reports the reason.
  void Finish(int64_t i);

  // Memory for problems within the capacity is allocated at once from now on.
  // Returns the bytes of a submission.
  virtual SmallBytes SetCapacity(const WindowCapacity& capacity) = 0;
  virtual std::unique_ptr<SmallWorkspace> MakeWorkspace() const = 0;
  // True if the host needs the inputs too, and not the caller's arrays.
  virtual bool PacksOnHost() const = 0;
  virtual ReducedSize SizeOf(int64_t i) const = 0;
  // The problems in a message.
  virtual const char* plural() const = 0;

  // Allocates what Launch needs for problems within the capacity.
  virtual kernels::Status ReserveOnDevice(DeviceMachine* /*machine*/) {
    return {};
  }
  // Queues the solution on the machine, without waiting for it. inputs and
  // outputs are copies on the device. may_share: several blocks of threads may
  // solve a problem.
  virtual kernels::Status Launch(const unsigned char* inputs,
                                 unsigned char* outputs,
                                 const int32_t* stop,
                                 bool may_share,
                                 DeviceMachine* machine) = 0;
  // Frees what Launch has allocated on the machine.
  virtual void LeaveDevice() {}

  // is_for_device: a device solves the problems.
  void SetMemory(unsigned char* inputs,
                 unsigned char* outputs,
                 bool is_for_device) {
    inputs_ = inputs;
    outputs_ = outputs;
    is_for_device_ = is_for_device;
  }
  // The problems of this kind.
  const std::vector<int64_t>& numbers() const { return numbers_; }
  bool Has(int64_t i) const { return is_of_kind_[i - begin_] != 0; }
  const SmallBytes& bytes() const { return bytes_; }
  const unsigned char* inputs() const { return inputs_; }
  unsigned char* outputs() const { return outputs_; }

 protected:
  virtual void SetKind(SmallKind* kind) = 0;
  // Returns why problem i is not of this kind, as far as is known before it is
  // packed. May throw, as the next ones.
  virtual std::string WhyNot(int64_t i) = 0;
  // Sets bytes_, for numbers().
  virtual void Measure() = 0;
  virtual std::string TryPack(int64_t /*i*/, SmallWorkspace* /*workspace*/) {
    return "";
  }
  virtual void TrySolve(int64_t i, SmallWorkspace* workspace) = 0;
  // The end of problem i, and null; or the reason why it has none.
  virtual const char* WhyNotSolved(int64_t i) const = 0;
  virtual const TrustRegion& RegionOf(int64_t i) const = 0;
  virtual double FixedCostOf(int64_t /*i*/) const { return 0.0; }
  // Sets the covariance that is wanted if the solve has it.
  virtual void TakeCovariance(int64_t /*i*/,
                              BlockCovariance* /*covariance*/) const {}
  // Writes the values that vary back to the caller.
  virtual void Unpack(int64_t i) const = 0;

  const LoopOptions* const options_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  SmallBytes bytes_;
  unsigned char* inputs_ = nullptr;
  unsigned char* outputs_ = nullptr;
  bool is_for_device_ = false;

 private:
  template <typename Function>
  void SetReason(int64_t i, const Function& why_not);
  void ListThoseOfKind();

  SolvedAsType solved_as_ = SOLVED_AS_PROBLEM;
  bool is_last_choice_ = false;
  BatchSummary* summary_ = nullptr;
  std::vector<uint8_t> is_of_kind_;  // of all problems
  std::vector<int64_t> numbers_;
};

// The reason why problem i may have bounds that are an error, which
// ceres_ext::Solve finds and reports.
std::string WhyBadBounds(const ProblemBatch& batch, int64_t i);

// All kinds, in the order in which a problem is tried.
inline constexpr int kNumSmallKinds = 3;
// Those before have memory for a capacity.
inline constexpr int kNumReservedKinds = 2;
using SmallKinds = std::array<SmallKind*, kNumSmallKinds>;  // null: not wanted
std::unique_ptr<SmallKind> MakeSmallKind(int number, const ProblemBatch* batch);
std::unique_ptr<SmallPiece> MakeSmallPiece(int number,
                                           const LoopOptions* options);
// The reason why no problem is of any of these kinds.
const std::string& WhyOfNoKind(const SmallKinds& kinds);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_KIND_H_
