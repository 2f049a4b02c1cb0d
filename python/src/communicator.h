// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PYTHON_SRC_COMMUNICATOR_H_
#define PYTHON_SRC_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "ceres_ext/communicator.h"
#include "nanobind/nanobind.h"
#include "python/src/module.h"

namespace ceres_ext::python {

// A ceres_ext.Communicator, called with the lock of the interpreter. The first
// exception of a method ends the solve on all ranks, and is raised again.
class PythonCommunicator final : public Communicator {
 public:
  // Throws TypeError or ValueError if it isn't one.
  explicit PythonCommunicator(nanobind::handle object) : object_(object) {
    for (const char* const name : {"all_gather", "all_to_all", "abort"}) {
      if (!nanobind::hasattr(object, name)) {
        throw TypeError(
            "communicator: expected a ceres_ext.Communicator, found " +
            Repr(object));
      }
    }
    if (!nanobind::try_cast(object.attr("rank"), rank_) ||
        !nanobind::try_cast(object.attr("size"), size_)) {
      throw TypeError("communicator: expected numbers rank and size, found " +
                      Repr(object.attr("rank")) + " and " +
                      Repr(object.attr("size")));
    }
    if (rank_ < 0 || rank_ >= size_) {
      throw ValueError("communicator: expected 0 <= rank < size, found rank " +
                       std::to_string(rank_) + " and size " +
                       std::to_string(size_));
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  bool AllGather(const void* mine,
                 int64_t bytes,
                 void* all,
                 std::string* error) override {
    const nanobind::gil_scoped_acquire gil;
    return Guard(error, [&] {
      Take(object_.attr("all_gather")(MakeBytes(mine, bytes)), bytes, all);
    });
  }
  bool AllToAll(const void* from,
                int64_t bytes,
                void* to,
                std::string* error) override {
    const nanobind::gil_scoped_acquire gil;
    return Guard(error, [&] {
      nanobind::list parts;
      for (int i = 0; i < size_; ++i) {
        parts.append(
            MakeBytes(static_cast<const char*>(from) + i * bytes, bytes));
      }
      Take(object_.attr("all_to_all")(parts), bytes, to);
    });
  }
  void Abort(const std::string& message) override {
    const nanobind::gil_scoped_acquire gil;
    std::string ignored;  // The solve has failed already.
    Guard(&ignored, [&] { object_.attr("abort")(message.c_str()); });
  }

  void RethrowIfRaised() const {
    if (raised_ != nullptr) {
      std::rethrow_exception(raised_);
    }
  }

 private:
  static nanobind::bytes MakeBytes(const void* data, int64_t bytes) {
    return nanobind::bytes(data, static_cast<size_t>(bytes));
  }

  void Take(nanobind::object parts, int64_t bytes, void* to) const {
    if (static_cast<int64_t>(nanobind::len(parts)) != size_) {
      throw ValueError("communicator: expected " + std::to_string(size_) +
                       " parts, one of each rank, found " +
                       std::to_string(nanobind::len(parts)));
    }
    auto* at = static_cast<char*>(to);
    for (const nanobind::handle part : parts) {
      PyObject* const copy = PyBytes_FromObject(part.ptr());
      if (copy == nullptr) {
        nanobind::raise_python_error();
      }
      const auto data = nanobind::steal<nanobind::bytes>(copy);
      if (static_cast<int64_t>(data.size()) != bytes) {
        throw ValueError("communicator: expected " + std::to_string(bytes) +
                         " bytes of a rank, found " +
                         std::to_string(data.size()));
      }
      std::memcpy(at, data.c_str(), data.size());
      at += bytes;
    }
  }

  template <typename Function>
  bool Guard(std::string* error, const Function& fn) {
    try {
      fn();
      return true;
    } catch (const nanobind::python_error& exception) {
      Keep("its communicator raised " + TypeOf(exception.value()) + ": " +
               Str(exception.value()),
           error);
    } catch (const std::exception& exception) {
      Keep(exception.what(), error);
    } catch (...) {
      Keep("its communicator failed.", error);
    }
    return false;
  }

  // Keeps the exception that is being handled, if it is the first.
  void Keep(const std::string& what, std::string* error) {
    *error = "Rank " + std::to_string(rank_) + ": " + what;
    if (raised_ == nullptr) {
      raised_ = std::current_exception();
    }
  }

  const nanobind::handle object_;
  int rank_ = 0;
  int size_ = 0;
  std::exception_ptr raised_;
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_COMMUNICATOR_H_
