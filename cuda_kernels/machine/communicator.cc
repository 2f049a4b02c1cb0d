// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/machine/communicator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace ceres_ext::kernels {
namespace {

// The data that the ranks share. A call has two barriers: when all pointers are
// there, and when all ranks have read.
class Exchange {
 public:
  Exchange(int size, std::chrono::milliseconds timeout)
      : timeout_(timeout),
        pointers_(static_cast<size_t>(size)),
        bytes_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(pointers_.size()); }

  // Calls read(pointers) between the barriers.
  template <typename Read>
  bool Run(int rank,
           const void* mine,
           int64_t bytes,
           std::string* error,
           const Read& read) {
    pointers_[static_cast<size_t>(rank)] = mine;
    bytes_[static_cast<size_t>(rank)] = bytes;
    if (!Wait(rank, error)) {
      return false;
    }
    // All ranks find the same.
    const auto other = std::find_if(
        bytes_.begin(), bytes_.end(), [&](int64_t n) { return n != bytes; });
    if (other != bytes_.end()) {
      Abort(rank,
            "it exchanges " + std::to_string(bytes) + " bytes, and rank " +
                std::to_string(other - bytes_.begin()) + " " +
                std::to_string(*other) + ".");
    } else {
      read(pointers_);
    }
    return Wait(rank, error);
  }

  void Abort(int rank, const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Fail("Rank " + std::to_string(rank) + ": " + message);
  }

  bool HasFailed(std::string* error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.empty() && left_ >= 0) {
      *error = HasEnded();
      return true;
    }
    *error = error_;
    return !error_.empty();
  }

  std::chrono::milliseconds timeout() const { return timeout_; }

  void Leave(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = rank;
    changed_.notify_all();
  }

 private:
  std::string HasEnded() const {
    return "Rank " + std::to_string(left_) + " has ended.";
  }

  // With the lock.
  void Fail(std::string error) {
    if (error_.empty()) {
      error_ = std::move(error);
      changed_.notify_all();
    }
  }

  bool Wait(int rank, std::string* error) {
    // Others mostly come within some microseconds, in which a thread that
    // sleeps would not wake up.
    constexpr std::chrono::microseconds kSpin{20};
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t phase = phase_;
    if (++num_waiting_ == size()) {
      num_waiting_ = 0;
      ++phase_;
      changed_.notify_all();
      *error = error_;
      return error_.empty();
    }
    lock.unlock();
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (phase_ == phase && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    lock.lock();
    // By the system's clock, since older C libraries can't wait by a steady
    // one.
    if (!changed_.wait_until(
            lock, std::chrono::system_clock::now() + timeout_, [&] {
              return phase_ != phase || !error_.empty() || left_ >= 0;
            })) {
      Fail("Rank " + std::to_string(rank) + " waited " +
           std::to_string(timeout_.count()) + " ms for " +
           std::to_string(size() - num_waiting_) + " of " +
           std::to_string(size()) + " ranks.");
    } else if (phase_ == phase && error_.empty()) {
      Fail(HasEnded());
    }
    *error = error_;
    return error_.empty();
  }

  const std::chrono::milliseconds timeout_;
  std::vector<const void*> pointers_;
  std::vector<int64_t> bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;
  std::atomic<int64_t> phase_{0};  // Changes with the lock alone.
  int left_ = -1;                  // a rank that has ended
  std::string error_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Exchange> exchange)
      : rank_(rank), exchange_(std::move(exchange)) {}
  ~ThreadCommunicator() final { exchange_->Leave(rank_); }

  int rank() const final { return rank_; }
  int size() const final { return exchange_->size(); }

  bool AllGather(const void* mine,
                 int64_t bytes,
                 void* all,
                 std::string* error) final {
    return CopyOfAll(mine, 0, bytes, all, error);
  }

  bool AllToAll(const void* mine,
                int64_t bytes,
                void* all,
                std::string* error) final {
    return CopyOfAll(mine, rank_ * bytes, bytes, all, error);
  }

  void Abort(const std::string& message) final {
    exchange_->Abort(rank_, message);
  }
  bool HasFailed(std::string* error) final {
    return exchange_->HasFailed(error);
  }
  std::chrono::milliseconds timeout() const final {
    return exchange_->timeout();
  }

 private:
  // The piece of each rank's *mine that begins at this offset in bytes.
  bool CopyOfAll(const void* mine,
                 int64_t begin,
                 int64_t bytes,
                 void* all,
                 std::string* error) {
    return exchange_->Run(
        rank_, mine, bytes, error, [&](const std::vector<const void*>& from) {
          auto* to = static_cast<unsigned char*>(all);
          for (const void* const of_rank : from) {
            Copy(static_cast<const unsigned char*>(of_rank) + begin, bytes, to);
            to += bytes;
          }
        });
  }

  static void Copy(const void* from, int64_t bytes, void* to) {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }

  const int rank_;
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

Status SumOverRanks(int64_t n,
                    double* x,
                    std::vector<double>* scratch,
                    Communicator* communicator) {
  // Rank i sums part i, in a whole number of values; the last part is padded.
  const int64_t size = communicator->size();
  const int64_t part = (n + size - 1) / size;
  const int64_t bytes = part * static_cast<int64_t>(sizeof(double));
  scratch->assign(static_cast<size_t>(2 * part * size), 0.0);
  double* const padded = scratch->data();
  double* const parts = padded + part * size;
  std::copy(x, x + n, padded);
  std::string error;
  bool is_done = communicator->AllToAll(padded, bytes, parts, &error);
  if (is_done) {
    for (int64_t i = 1; i < size; ++i) {
      for (int64_t e = 0; e < part; ++e) {
        parts[e] += parts[i * part + e];
      }
    }
    is_done = communicator->AllGather(parts, bytes, padded, &error);
  }
  if (!is_done) {
    return {StatusCode::kDeviceError, error};
  }
  std::copy(padded, padded + n, x);
  return {};
}

std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(
    int size, std::chrono::milliseconds timeout) {
  const auto exchange = std::make_shared<Exchange>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(
        std::make_unique<ThreadCommunicator>(rank, exchange));
  }
  return communicators;
}

}  // namespace ceres_ext::kernels
