// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems in the format of Bundle Adjustment in the Large, to and from arrays
// of numpy.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "python/src/array.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

nb::tuple Read(const std::string& path) {
  bal::BalProblem problem;
  std::string error;
  bool is_read = false;
  {
    const nb::gil_scoped_release no_gil;
    is_read = bal::ReadBalFile(path, &problem, &error);
  }
  if (!is_read) {
    throw ValueError(error);
  }
  return nb::make_tuple(MakeArray(std::move(problem.cameras), 9),
                        MakeArray(std::move(problem.points), 3),
                        MakeArray(std::move(problem.camera_index), 0),
                        MakeArray(std::move(problem.point_index), 0),
                        MakeArray(std::move(problem.observations), 2));
}

void Write(const std::string& path,
           nb::object cameras,
           nb::object points,
           nb::object camera_index,
           nb::object point_index,
           nb::object observations) {
  std::vector<int64_t> num_cameras = {kAnyLength, 9};
  std::vector<int64_t> num_points = {kAnyLength, 3};
  std::vector<int64_t> length = {kAnyLength};
  const auto read = [](auto* tag,
                       const char* name,
                       nb::handle array,
                       const char* type,
                       std::vector<int64_t>* shape) {
    return static_cast<decltype(tag)>(
        ReadArray(name, array, type, ARRAY_READ, shape));
  };
  double* const kDouble = nullptr;
  int32_t* const kInt = nullptr;
  double* const c = read(kDouble, "cameras", cameras, "float64", &num_cameras);
  double* const p = read(kDouble, "points", points, "float64", &num_points);
  int32_t* const ci =
      read(kInt, "camera_index", camera_index, "int32", &length);
  int32_t* const pi = read(kInt, "point_index", point_index, "int32", &length);
  std::vector<int64_t> num_observations = {length[0], 2};
  double* const o =
      read(kDouble, "observations", observations, "float64", &num_observations);
  std::string error;
  bool is_valid = false;
  bool is_written = false;
  {
    const nb::gil_scoped_release no_gil;
    ArrayProblem arrays;
    const int of_cameras = arrays.AddParameters({c, num_cameras[0], 9});
    const int of_points = arrays.AddParameters({p, num_points[0], 3});
    arrays.AddResiduals<BalReprojectionError>(
        length[0], o, {{of_cameras, ci}, {of_points, pi}});
    is_valid = arrays.IsValid(1, &error);
    if (is_valid) {
      bal::BalProblem problem;
      problem.cameras.assign(c, c + 9 * num_cameras[0]);
      problem.points.assign(p, p + 3 * num_points[0]);
      problem.camera_index.assign(ci, ci + length[0]);
      problem.point_index.assign(pi, pi + length[0]);
      problem.observations.assign(o, o + 2 * length[0]);
      is_written = bal::WriteBalFile(path, problem, &error);
    }
  }
  if (!is_valid) {
    throw ValueError(error);
  }
  if (!is_written) {
    PyErr_SetString(PyExc_OSError, error.c_str());
    nb::raise_python_error();
  }
}

}  // namespace

// ceres_ext/__init__.py has what users call.
void AddBalFile(nb::module_* module) {
  module->def("_read_bal", &Read, "path"_a);
  module->def("_write_bal",
              &Write,
              "path"_a,
              "cameras"_a.none(),
              "points"_a.none(),
              "camera_index"_a.none(),
              "point_index"_a.none(),
              "observations"_a.none());
}

}  // namespace ceres_ext::python
