// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.Preintegration.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/odometry_errors.h"
#include "ceres_ext/preintegration.h"
#include "nanobind/nanobind.h"
#include "python/src/array.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

const double* ReadVector(const char* name, nb::handle array, int64_t size) {
  std::vector<int64_t> shape = {size};
  return static_cast<const double*>(
      ReadArray(name, array, "float64", ARRAY_READ, &shape));
}

template <typename Matrix>
nb::object ArrayOf(const Matrix& matrix, size_t columns) {
  return MakeArray(
      std::vector<double>(matrix.data(), matrix.data() + matrix.size()),
      columns);
}

void Expect(bool success, const std::string& error) {
  if (!success) {
    throw ValueError(error);
  }
}

void Make(Preintegration* self,
          double gyroscope,
          double accelerometer,
          double gyroscope_bias,
          double accelerometer_bias,
          nb::handle bias) {
  const double none[6] = {};
  new (self) Preintegration(
      {gyroscope, accelerometer, gyroscope_bias, accelerometer_bias},
      bias.is_none() ? none : ReadVector("bias", bias, 6));
}

void Add(Preintegration* self,
         double duration,
         nb::handle gyroscope,
         nb::handle accelerometer) {
  std::string error;
  Expect(self->Add(duration,
                   ReadVector("gyroscope", gyroscope, 3),
                   ReadVector("accelerometer", accelerometer, 3),
                   &error),
         error);
}

void AddSamples(Preintegration* self,
                nb::handle times,
                nb::handle gyroscope,
                nb::handle accelerometer,
                double begin,
                double end) {
  std::vector<int64_t> shape = {kAnyLength};
  const auto* const t = static_cast<const double*>(
      ReadArray("times", times, "float64", ARRAY_READ, &shape));
  const int64_t n = shape[0];
  shape = {n, 3};
  const auto* const w = static_cast<const double*>(
      ReadArray("gyroscope", gyroscope, "float64", ARRAY_READ, &shape));
  const auto* const a = static_cast<const double*>(
      ReadArray("accelerometer", accelerometer, "float64", ARRAY_READ, &shape));
  std::vector<InertialSample> samples(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    InertialSample& sample = samples[static_cast<size_t>(i)];
    sample.time = t[i];
    for (int k = 0; k < 3; ++k) {
      sample.gyroscope[k] = w[3 * i + k];
      sample.accelerometer[k] = a[3 * i + k];
    }
  }
  std::string error;
  Expect(self->AddSamples(n, samples.data(), begin, end, &error), error);
}

InertialError<EigenQuaternion> ErrorOf(const Preintegration& self,
                                       nb::handle gravity) {
  const double down[3] = {0.0, 0.0, -9.81};
  InertialError<EigenQuaternion> error{};
  std::string why;
  Expect(error.Set(self,
                   gravity.is_none() ? down : ReadVector("gravity", gravity, 3),
                   &why),
         why);
  return error;
}

nb::tuple Predict(const Preintegration& self,
                  nb::handle pose,
                  nb::handle speed,
                  nb::handle gravity) {
  std::vector<double> pose_j(7);
  std::vector<double> speed_j(9);
  ErrorOf(self, gravity)
      .Predict(ReadVector("pose", pose, 7),
               ReadVector("speed", speed, 9),
               pose_j.data(),
               speed_j.data());
  return nb::make_tuple(MakeArray(std::move(pose_j), 0),
                        MakeArray(std::move(speed_j), 0));
}

nb::object Row(const Preintegration& self, nb::handle gravity) {
  const InertialError<EigenQuaternion> error = ErrorOf(self, gravity);
  std::vector<double> row(sizeof(error) / sizeof(double));
  std::memcpy(row.data(), &error, sizeof(error));
  return MakeArray(std::move(row), 0);
}

}  // namespace

void AddOdometry(nb::module_* module) {
  nb::class_<Preintegration>(
      *module,
      "Preintegration",
      "Increments of rotation, position and velocity between two keyframes i "
      "and j,\nfrom the measurements of a gyroscope and an accelerometer "
      "(ceres_ext/preintegration.h).\n\n"
      "    increment = ceres_ext.Preintegration(\n"
      "        gyroscope_noise=2e-4, accelerometer_noise=2e-3,\n"
      "        gyroscope_bias_noise=2e-5, accelerometer_bias_noise=3e-4)\n"
      "    increment.add_samples(times, gyroscope, accelerometer, t_i, t_j)\n"
      "    problem.add_residuals(\"InertialError\", increment.row()[None], "
      "blocks)")
      .def(
          "__init__",
          &Make,
          nb::kw_only(),
          "gyroscope_noise"_a,
          "accelerometer_noise"_a,
          "gyroscope_bias_noise"_a,
          "accelerometer_bias_noise"_a,
          "bias"_a = nb::none(),
          nb::sig("def __init__(self, *, gyroscope_noise: float, "
                  "accelerometer_noise: float, gyroscope_bias_noise: float, "
                  "accelerometer_bias_noise: float, bias: "
                  "numpy.typing.NDArray[numpy.float64] | None = None) -> None"),
          "gyroscope_noise, accelerometer_noise: densities of white noise,\n"
          "rad / s / sqrt(Hz) and m / s^2 / sqrt(Hz).\n"
          "gyroscope_bias_noise, accelerometer_bias_noise: those of the "
          "random\n"
          "walks, rad / s^2 / sqrt(Hz) and m / s^3 / sqrt(Hz).\n"
          "bias: of the gyroscope, then of the accelerometer, (6,), with "
          "which\n"
          "the increments are computed; default 0.")
      .def(
          "add",
          &Add,
          "duration"_a,
          "gyroscope"_a,
          "accelerometer"_a,
          nb::sig("def add(self, duration: float, gyroscope: "
                  "numpy.typing.NDArray[numpy.float64], accelerometer: "
                  "numpy.typing.NDArray[numpy.float64]) -> None"),
          "Adds a step of that many seconds with constant measurements, (3,) "
          "each.\n\nValueError: the duration is not above 0, or a value is not "
          "finite.")
      .def("add_samples",
           &AddSamples,
           "times"_a,
           "gyroscope"_a,
           "accelerometer"_a,
           "begin"_a,
           "end"_a,
           nb::sig("def add_samples(self, times: "
                   "numpy.typing.NDArray[numpy.float64], gyroscope: "
                   "numpy.typing.NDArray[numpy.float64], accelerometer: "
                   "numpy.typing.NDArray[numpy.float64], begin: float, end: "
                   "float) -> None"),
           "Adds all from the time begin to end, interpolated.\n\n"
           "times: (n,), seconds, ascending; from begin or before to end or "
           "after.\n"
           "gyroscope: (n, 3), rad / s. accelerometer: (n, 3), m / s^2.\n\n"
           "ValueError: the samples do not cover that time, are not ascending "
           "or not finite.")
      .def("row",
           &Row,
           "gravity"_a = nb::none(),
           nb::sig("def row(self, gravity: numpy.typing.NDArray[numpy.float64] "
                   "| None = None) -> numpy.typing.NDArray[numpy.float64]"),
           "The row of observations of InertialError, (194,).\n\n"
           "gravity: in the world, (3,), default (0, 0, -9.81).\n\n"
           "ValueError: nothing was added, or a noise is 0.")
      .def(
          "predict",
          &Predict,
          "pose"_a,
          "speed"_a,
          "gravity"_a = nb::none(),
          nb::sig("def predict(self, pose: "
                  "numpy.typing.NDArray[numpy.float64], speed: "
                  "numpy.typing.NDArray[numpy.float64], gravity: "
                  "numpy.typing.NDArray[numpy.float64] | None = None) -> "
                  "tuple[numpy.typing.NDArray[numpy.float64], "
                  "numpy.typing.NDArray[numpy.float64]]"),
          "Pose and speed of j from those of i, for which the residuals of\n"
          "row() are zero.\n\n"
          "pose: (7,), x, y, z, w and position. speed: (9,), velocity, biases\n"
          "of gyroscope and accelerometer. gravity: as of row().\n\n"
          "ValueError: as of row().")
      .def_prop_ro("duration", &Preintegration::duration, "Seconds.")
      .def_prop_ro(
          "rotation",
          [](const Preintegration& self) {
            return ArrayOf(self.rotation().coeffs(), 0);
          },
          "i_from_j, (4,): x, y, z, w.")
      .def_prop_ro(
          "position",
          [](const Preintegration& self) {
            return ArrayOf(self.position(), 0);
          },
          "R_i' (p_j - p_i - v_i T - g T^2 / 2), (3,).")
      .def_prop_ro(
          "velocity",
          [](const Preintegration& self) {
            return ArrayOf(self.velocity(), 0);
          },
          "R_i' (v_j - v_i - g T), (3,).")
      .def_prop_ro(
          "bias_jacobian",
          [](const Preintegration& self) {
            return ArrayOf(self.bias_jacobian(), 6);
          },
          "(9, 6): derivatives of rotation, position and velocity by the "
          "biases.")
      .def_prop_ro(
          "covariance",
          [](const Preintegration& self) {
            return ArrayOf(self.covariance(), Preintegration::kSize);
          },
          "(15, 15): rotation, position, velocity, changes of the biases of\n"
          "gyroscope and accelerometer.");
}

}  // namespace ceres_ext::python
