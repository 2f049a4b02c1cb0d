// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// MPI as a Communicator. The program that includes this links MPI; the library
// does not. Memory of the host is exchanged, so that MPI needs no support for
// CUDA.
//
//   MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
//   ceres_ext::MpiCommunicator communicator(MPI_COMM_WORLD);
//
// MPI is called by the thread that calls a function or the destructor, and by
// no other: MPI_THREAD_SERIALIZED is enough, or MPI_THREAD_FUNNELED if that is
// the main thread.
#ifndef CERES_EXT_MPI_COMMUNICATOR_H_
#define CERES_EXT_MPI_COMMUNICATOR_H_

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ceres_ext/communicator.h"

namespace ceres_ext {

class MpiCommunicator final : public Communicator {
 public:
  // Collective: all ranks of `parent` make one. timeout: how long a call waits
  // for the other ranks. A rank that is killed usually ends all of an mpirun
  // before that.
  explicit MpiCommunicator(
      MPI_Comm parent,
      std::chrono::milliseconds timeout = std::chrono::minutes(10))
      : timeout_(timeout) {
    MPI_Comm_dup(parent, &data_);
    MPI_Comm_dup(parent, &messages_);
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(data_, &rank_);
    MPI_Comm_size(data_, &size_);
  }
  ~MpiCommunicator() final {
    std::string error;
    HasFailed(&error);
    if (error.empty()) {
      MPI_Comm_free(&data_);
      MPI_Comm_free(&messages_);
      return;
    }
    // MPI would wait for exchanges that have no end, and may still write.
    static_cast<void>(buffers_.release());
  }

  int rank() const final { return rank_; }
  int size() const final { return size_; }

  bool AllGather(const void* mine,
                 int64_t bytes,
                 void* all,
                 std::string* error) final {
    return Exchange(
        mine, bytes, 1, all, error, [&](int n, MPI_Request* request) {
          return MPI_Iallgather(buffers_->from.data(),
                                n,
                                MPI_BYTE,
                                buffers_->to.data(),
                                n,
                                MPI_BYTE,
                                data_,
                                request);
        });
  }
  bool AllToAll(const void* from,
                int64_t bytes,
                void* to,
                std::string* error) final {
    return Exchange(
        from, bytes, size_, to, error, [&](int n, MPI_Request* request) {
          return MPI_Ialltoall(buffers_->from.data(),
                               n,
                               MPI_BYTE,
                               buffers_->to.data(),
                               n,
                               MPI_BYTE,
                               data_,
                               request);
        });
  }

  void Abort(const std::string& message) final {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.empty()) {
      error_ = "Rank " + std::to_string(rank_) + ": " + message;
      is_sent_ = false;
    }
  }

  // Receives the message of a rank that aborted, and sends that of this one.
  bool HasFailed(std::string* error) final {
    const std::lock_guard<std::mutex> lock(mutex_);
    int is_there = 0;
    MPI_Status status;
    if (error_.empty() &&
        MPI_Iprobe(MPI_ANY_SOURCE, kTag, messages_, &is_there, &status) ==
            MPI_SUCCESS &&
        is_there != 0) {
      int n = 0;
      MPI_Get_count(&status, MPI_CHAR, &n);
      std::vector<char> text(static_cast<size_t>(n));
      MPI_Recv(text.data(),
               n,
               MPI_CHAR,
               status.MPI_SOURCE,
               kTag,
               messages_,
               MPI_STATUS_IGNORE);
      error_.assign(text.data(), text.size());
      is_sent_ = true;
    }
    if (!is_sent_) {
      is_sent_ = true;
      buffers_->message = error_;
      for (int to = 0; to < size_; ++to) {
        if (to != rank_) {
          MPI_Request request = MPI_REQUEST_NULL;
          MPI_Isend(buffers_->message.data(),
                    static_cast<int>(buffers_->message.size()),
                    MPI_CHAR,
                    to,
                    kTag,
                    messages_,
                    &request);
          MPI_Request_free(&request);
        }
      }
    }
    *error = error_;
    return !error_.empty();
  }
  std::chrono::milliseconds timeout() const final { return timeout_; }

 private:
  static constexpr int kTag = 1;

  // MPI may still work on an exchange that has failed, when the caller's
  // buffers are gone.
  struct Buffers {
    std::vector<char> from;
    std::vector<char> to;
    std::string message;
  };

  // num_parts: of `from`; `to` has size().
  template <typename Start>
  bool Exchange(const void* from,
                int64_t bytes,
                int num_parts,
                void* to,
                std::string* error,
                const Start& start) {
    if (HasFailed(error)) {
      return false;
    }
    const auto* const begin = static_cast<const char*>(from);
    buffers_->from.assign(begin, begin + bytes * num_parts);
    buffers_->to.resize(static_cast<size_t>(bytes * size_));
    MPI_Request request = MPI_REQUEST_NULL;
    if (bytes > INT_MAX) {
      Abort("expected at most 2 GB for each rank, found " +
            std::to_string(bytes) + " bytes.");
    } else if (start(static_cast<int>(bytes), &request) != MPI_SUCCESS) {
      Abort("MPI can't exchange data.");
    }
    const auto end = std::chrono::steady_clock::now() + timeout_;
    // Most exchanges take microseconds, if all ranks have a processor.
    constexpr int kSpins = 50;
    constexpr int kYields = 10000;
    for (int round = 0; !HasFailed(error); ++round) {
      int is_done = 0;
      if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        Abort("MPI can't exchange data.");
      } else if (is_done != 0) {
        std::copy(
            buffers_->to.begin(), buffers_->to.end(), static_cast<char*>(to));
        return true;
      } else if (std::chrono::steady_clock::now() > end) {
        Abort("it waited " + std::to_string(timeout_.count()) +
              " ms for the other ranks.");
      } else if (round > kYields) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      } else if (round > kSpins) {
        std::this_thread::yield();
      }
    }
    return false;
  }

  const std::chrono::milliseconds timeout_;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::mutex mutex_;
  std::string error_;
  bool is_sent_ = true;
  std::unique_ptr<Buffers> buffers_ = std::make_unique<Buffers>();
};

}  // namespace ceres_ext

#endif  // CERES_EXT_MPI_COMMUNICATOR_H_
