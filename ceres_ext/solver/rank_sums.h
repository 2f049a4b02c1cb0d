// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over the ranks of a solve (cuda_kernels/machine/communicator.h) of
// vectors in the memory of a machine. All ranks call the same functions in the
// same order, and get the same bits.
//
// F is replicated: each rank holds all of its unknowns, with the same bits. E
// is dealt out, with its rows. A sum over rows or over E is one over
// the ranks; one over F is taken once.
#ifndef CERES_EXT_SOLVER_RANK_SUMS_H_
#define CERES_EXT_SOLVER_RANK_SUMS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/cuda_communicator.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/machine/rank_messages.h"

namespace ceres_ext::solver {

template <typename Machine>
class RankSums {
 public:
  // Both outlive the object.
  RankSums(kernels::Communicator* communicator, Machine* machine)
      : communicator_(communicator), machine_(machine) {}
  ~RankSums() {
    if constexpr (!kIsHost) {
      if (devices_ != nullptr) {
        machine_->context()->SetWatch({}, {}, {});
      }
    }
  }
  RankSums(const RankSums&) = delete;
  RankSums& operator=(const RankSums&) = delete;

  // The rank that adds what all ranks have, such as D_f^2 p.
  bool is_first() const { return communicator_->rank() == 0; }

  // On a device: connects those of all ranks. If that is not possible,
  // why_host() says so, and sums go through host memory.
  kernels::Status Setup() {
    if constexpr (!kIsHost) {
      kernels::CudaContext* const context = machine_->context();
      const kernels::Status status =
          kernels::CudaCommunicator::Get(communicator_, context, &devices_);
      if (status.code == kernels::StatusCode::kUnsupported) {
        why_host_ = status.message;
        return {};
      }
      CERES_EXT_RETURN_IF_ERROR(status);
      context->SetWatch(
          [devices = devices_] { return devices->Watch(); },
          [devices = devices_] { devices->BeginWait(); },
          [devices = devices_](bool mine) { return devices->AllAgree(mine); });
    }
    return {};
  }
  // Memory for sums of n values; those of more are taken in pieces of n.
  kernels::Status Reserve([[maybe_unused]] int64_t n) {
    if constexpr (!kIsHost) {
      if (devices_ != nullptr) {
        piece_ = std::clamp<int64_t>(n, 1, devices_->MaxValues());
        return machine_->Allocate(devices_->ScratchSize(piece_),
                                  &device_scratch_);
      }
    }
    return {};
  }
  // True if sums of a machine's memory can be part of what it records.
  bool CanRecord() const {
    if constexpr (kIsHost) {
      return false;
    } else {
      return devices_ != nullptr && devices_->CanRecord();
    }
  }
  // A sentence; empty if there is no reason, or the machine is the host.
  const std::string& why_host() const { return why_host_; }

  // x = the sum of x over all ranks. Null: nothing is done.
  kernels::Status Sum(int64_t n, double* x) {
    if (x == nullptr) {
      return {};
    }
    if constexpr (kIsHost) {
      return SumOnHost(n, x);
    } else if (devices_ != nullptr) {
      for (int64_t begin = 0; begin < n; begin += piece_) {
        CERES_EXT_RETURN_IF_ERROR(devices_->Sum(std::min(piece_, n - begin),
                                                x + begin,
                                                device_scratch_.data(),
                                                machine_->context()));
      }
      return {};
    } else {
      host_.resize(static_cast<size_t>(n));
      CERES_EXT_RETURN_IF_ERROR(machine_->Download(n, x, host_.data()));
      CERES_EXT_RETURN_IF_ERROR(SumOnHost(n, host_.data()));
      return machine_->Upload(n, host_.data(), x);
    }
  }
  // The same of host memory.
  kernels::Status SumOnHost(int64_t n, double* x) {
    return kernels::SumOverRanks(n, x, &scratch_, communicator_);
  }

  // all: one value of each rank.
  template <typename T>
  kernels::Status Gather(const T& mine, std::vector<T>* all) {
    return kernels::GatherRecords(mine, communicator_, all);
  }

  // *x: those of all ranks, one after the other. *begin: where this rank's are.
  kernels::Status Concatenate(std::vector<double>* x, int64_t* begin) {
    std::vector<int64_t> sizes;
    CERES_EXT_RETURN_IF_ERROR(Gather(static_cast<int64_t>(x->size()), &sizes));
    *begin = 0;
    int64_t end = 0;
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
      *begin +=
          static_cast<int>(rank) < communicator_->rank() ? sizes[rank] : 0;
      end += sizes[rank];
    }
    std::vector<double> all(static_cast<size_t>(end), 0.0);
    std::copy(x->begin(), x->end(), all.begin() + *begin);
    x->swap(all);
    return SumOnHost(end, x->data());
  }

  // True if all ranks have the same value.
  kernels::Status AreEqual(uint64_t mine, bool* are_equal) {
    std::vector<uint64_t> all;
    CERES_EXT_RETURN_IF_ERROR(Gather(mine, &all));
    *are_equal =
        std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) ==
        all.end();
    return {};
  }

  // The status of the first rank that has an error, which its sentence then
  // names. The memory of a machine is as it was.
  kernels::Status Agree(const kernels::Status& mine) {
    Record record;
    record.code = static_cast<int32_t>(mine.code);
    const size_t n = std::min(mine.message.size(), sizeof(record.message) - 1);
    std::memcpy(record.message, mine.message.data(), n);
    std::vector<Record> all;
    CERES_EXT_RETURN_IF_ERROR(Gather(record, &all));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto code = static_cast<kernels::StatusCode>(all[rank].code);
      if (code != kernels::StatusCode::kOk) {
        return {code,
                "Rank " + std::to_string(rank) + ": " + all[rank].message};
      }
    }
    return {};
  }

 private:
  static constexpr bool kIsHost =
      std::is_base_of_v<kernels::HostMachine, Machine>;

  struct Record {
    int32_t code = 0;
    char message[508] = {};
  };

  kernels::Communicator* const communicator_;
  Machine* const machine_;
  std::string why_host_;
  std::shared_ptr<kernels::CudaCommunicator> devices_;  // null: host memory
  int64_t piece_ = 0;
  typename Machine::template Buffer<double> device_scratch_;
  std::vector<double> host_;
  std::vector<double> scratch_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_RANK_SUMS_H_
