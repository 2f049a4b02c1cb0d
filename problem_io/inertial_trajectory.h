// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A smooth trajectory in closed form, and what an inertial sensor measures on
// it.

#ifndef CERES_EXT_PROBLEM_IO_INERTIAL_TRAJECTORY_H_
#define CERES_EXT_PROBLEM_IO_INERTIAL_TRAJECTORY_H_

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres_ext/preintegration.h"

namespace ceres_ext {

inline constexpr double kGravity[3] = {0.0, 0.0, -9.81};

struct TrueState {
  // R = R_z(psi) R_x(phi) with angles that are sines of time.
  explicit TrueState(double t) {
    const double psi = 0.9 * std::sin(0.7 * t);
    const double phi = 0.4 * std::sin(1.3 * t + 0.5);
    const double psi_rate = 0.9 * 0.7 * std::cos(0.7 * t);
    const double phi_rate = 0.4 * 1.3 * std::cos(1.3 * t + 0.5);
    const Eigen::AngleAxisd of_x(phi, Eigen::Vector3d::UnitX());
    rotation = Eigen::AngleAxisd(psi, Eigen::Vector3d::UnitZ()) * of_x;
    rate = of_x.inverse() * Eigen::Vector3d(0.0, 0.0, psi_rate);
    rate.x() += phi_rate;
    const double size[3] = {4.0, 2.0, 0.4};
    const double frequency[3] = {0.5, 0.8, 1.1};
    for (int i = 0; i < 3; ++i) {
      const double s = frequency[i];
      position[i] = size[i] * std::sin(s * t + i);
      velocity[i] = size[i] * s * std::cos(s * t + i);
      acceleration[i] = -s * s * position[i];
    }
    specific_force =
        rotation.conjugate() *
        (acceleration - Eigen::Map<const Eigen::Vector3d>(kGravity));
  }

  // As blocks with an EigenQuaternion.
  std::array<double, 7> Pose() const {
    return {rotation.x(),
            rotation.y(),
            rotation.z(),
            rotation.w(),
            position[0],
            position[1],
            position[2]};
  }
  std::array<double, 9> Speed(const double* bias) const {
    return {velocity[0],
            velocity[1],
            velocity[2],
            bias[0],
            bias[1],
            bias[2],
            bias[3],
            bias[4],
            bias[5]};
  }

  Eigen::Quaterniond rotation;  // world_from_body
  Eigen::Vector3d position;
  Eigen::Vector3d velocity;
  Eigen::Vector3d acceleration;
  Eigen::Vector3d rate;            // in the body's frame
  Eigen::Vector3d specific_force;  // the same
};

// Samples from the time `begin` on, `step` apart. With a generator they have
// white noise of the densities, and the bias walks: on return it is that of the
// last sample.
inline std::vector<InertialSample> SimulateSamples(double begin,
                                                   double step,
                                                   int num_samples,
                                                   const InertialNoise& noise,
                                                   std::mt19937* generator,
                                                   double* bias) {
  std::normal_distribution<double> normal;
  const auto draw = [&](double sigma) {
    return generator == nullptr ? 0.0 : sigma * normal(*generator);
  };
  const double root = std::sqrt(step);
  std::vector<InertialSample> samples(num_samples);
  for (int k = 0; k < num_samples; ++k) {
    samples[k].time = begin + k * step;
    const TrueState state(samples[k].time);
    for (int i = 0; i < 3; ++i) {
      if (k > 0) {
        bias[i] += draw(noise.gyroscope_bias * root);
        bias[3 + i] += draw(noise.accelerometer_bias * root);
      }
      samples[k].gyroscope[i] =
          state.rate[i] + bias[i] + draw(noise.gyroscope / root);
      samples[k].accelerometer[i] = state.specific_force[i] + bias[3 + i] +
                                    draw(noise.accelerometer / root);
    }
  }
  return samples;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_PROBLEM_IO_INERTIAL_TRAJECTORY_H_
