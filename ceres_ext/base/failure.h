// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The reason that ends a solve from below: the first exception, or error of
// memory or device, as one sentence. Takes no memory, since there may be none.
//
//   Failure failure;
//   const bool ok = failure.Guard(false, [&] { return Evaluate(); });
//   if (failure.has_happened()) { ... failure.sentence() ... }
//
// Belongs to one solve and to the thread that called it.

#ifndef CERES_EXT_BASE_FAILURE_H_
#define CERES_EXT_BASE_FAILURE_H_

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "cuda_kernels/base/status.h"

namespace ceres_ext {

class Failure {
 public:
  bool has_happened() const { return sentence_[0] != '\0'; }
  // At most 511 bytes; empty if nothing has happened.
  const char* sentence() const { return sentence_; }

  // If there are several, the first counts.
  void Set(const char* sentence) noexcept { SetTo("%s", sentence); }
  void Set(const std::string& sentence) noexcept { Set(sentence.c_str()); }

  // The same of what a machine says.
  void Set(const kernels::Status& status) noexcept {
    if (!has_happened()) {
      is_of_device_ = status.code == kernels::StatusCode::kDeviceError;
      Set(status.message);
    }
  }
  // True if a device has failed, so that the host may do better.
  bool is_of_device() const { return is_of_device_; }

  // The reason why the last evaluation was not possible, after which Ceres may
  // continue; empty if it was.
  const char* explanation() const { return explanation_; }
  void Explain(const std::string& sentence) noexcept {
    std::snprintf(explanation_, sizeof(explanation_), "%s", sentence.c_str());
  }

  // The caller returns or raises all of it, so that nothing is logged.
  void DoNotLog() { is_logged_ = false; }
  bool is_logged() const { return is_logged_; }

  // fn(), or `otherwise` where it throws.
  template <typename T, typename Function>
  T Guard(T otherwise, Function&& fn) noexcept {
    try {
      return std::forward<Function>(fn)();
    } catch (const std::bad_alloc&) {
      Set("Out of host memory.");
    } catch (const std::exception& exception) {
      SetTo("An exception ended the solve: %s", exception.what());
    } catch (...) {
      Set("An exception that is not a std::exception ended the solve.");
    }
    return otherwise;
  }

 private:
  void SetTo(const char* format, const char* what) noexcept {
    if (!has_happened()) {
      std::snprintf(sentence_, sizeof(sentence_), format, what);
    }
  }

  bool is_of_device_ = false;
  bool is_logged_ = true;
  char sentence_[512] = "";
  char explanation_[512] = "";
};

// True if the user-defined call() returns true; otherwise *what describes what
// it did, "failed" or "threw: ...". Only a lack of memory remains an exception.
template <typename Call>
bool Succeeds(Call&& call, std::string* what) {
  *what = "failed";
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& exception) {
    *what = std::string("threw: ") + exception.what();
  } catch (...) {
    *what = "threw something that is not a std::exception";
  }
  return false;
}

// *text = sentence, or where that takes more memory than there is, what every
// std::string has room for.
inline void AssignOrShorten(const char* sentence, std::string* text) noexcept {
  try {
    text->assign(sentence);
  } catch (const std::bad_alloc&) {
    text->assign("Out of memory.");
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_FAILURE_H_
