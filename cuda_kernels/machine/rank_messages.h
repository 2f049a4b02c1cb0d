// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Records of plain values that ranks exchange while they are set up.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_RANK_MESSAGES_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_RANK_MESSAGES_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext::kernels {

// The records of all ranks, by rank.
template <typename Record>
Status GatherRecords(const Record& mine,
                     Communicator* ranks,
                     std::vector<Record>* all) {
  all->resize(static_cast<size_t>(ranks->size()));
  std::string error;
  return ranks->AllGather(&mine, sizeof(mine), all->data(), &error)
             ? Status()
             : Status(StatusCode::kDeviceError, error);
}

// A message is a record with an array of characters `why_not`, which is empty
// if the rank can continue.
template <typename Message>
void Explain(const Status& status, Message* message) {
  const std::string why_not =
      status.ok() || !status.message.empty() ? status.message : "It failed.";
  const size_t n = std::min(why_not.size(), sizeof(message->why_not) - 1);
  std::memcpy(message->why_not, why_not.data(), n);
  message->why_not[n] = '\0';
}

// kUnsupported names the first rank that cannot continue, and says why.
template <typename Message>
Status GatherMessages(const Message& mine,
                      Communicator* ranks,
                      std::vector<Message>* all) {
  CERES_EXT_RETURN_IF_ERROR(GatherRecords(mine, ranks, all));
  for (size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank].why_not[0] != '\0') {
      return {StatusCode::kUnsupported,
              "Rank " + std::to_string(rank) + ": " + (*all)[rank].why_not};
    }
  }
  return {};
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_RANK_MESSAGES_H_
