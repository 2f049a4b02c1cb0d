// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef PYTHON_SRC_CALLBACK_H_
#define PYTHON_SRC_CALLBACK_H_

#include <exception>

#include "ceres/iteration_callback.h"
#include "nanobind/nanobind.h"
#include "python/src/module.h"

namespace ceres_ext::python {

// After each iteration: notes signals, as Ctrl-C, which Python else handles
// when the solve has ended, and calls the user's callback. An exception of
// either ends the solve with its best state.
class PythonCallback final : public ceres::IterationCallback {
 public:
  // Throws TypeError if it is neither None nor a function.
  explicit PythonCallback(nanobind::handle callback) : callback_(callback) {
    if (!callback.is_none() && PyCallable_Check(callback.ptr()) == 0) {
      throw TypeError("callback: expected a function, found " + Repr(callback));
    }
  }

  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& iteration) override {
    const nanobind::gil_scoped_acquire gil;
    try {
      if (PyErr_CheckSignals() != 0) {
        nanobind::raise_python_error();
      }
      if (callback_.is_none() ||
          !callback_(iteration).is(nanobind::handle(Py_False))) {
        return ceres::SOLVER_CONTINUE;
      }
    } catch (const nanobind::python_error& error) {
      if (!error.matches(PyExc_StopIteration)) {
        raised_ = std::current_exception();
      }
    } catch (...) {
      raised_ = std::current_exception();
    }
    return ceres::SOLVER_TERMINATE_SUCCESSFULLY;
  }

  void RethrowIfRaised() const {
    if (raised_ != nullptr) {
      std::rethrow_exception(raised_);
    }
  }

 private:
  nanobind::handle callback_;
  std::exception_ptr raised_;
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_CALLBACK_H_
