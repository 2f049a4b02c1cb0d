// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// write_example_problems FOLDER
//
// Writes the problems of Ceres's examples that its archive does not hold:
//
//   pose_graph_2d.g2o  four laps of 100 poses
//   pose_graph_3d.g2o  20 laps of 20 poses around a sphere
//   libmv.bin          332 frames of a camera that moves past 26 tracks, for
//                      libmv_bundle_adjuster
//   circle.txt         a circle's first guess and 100 points, for circle_fit

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"

namespace {

using Eigen::Isometry3d;
using Eigen::Matrix3d;
using Eigen::Quaterniond;
using Eigen::Vector3d;

constexpr double kTwoPi = 6.283185307179586;

// Noise of mean 0 and variance 1, the same with every standard library.
class Noise {
 public:
  double operator()() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) {
      sum += generator_() / 4294967296.0;
    }
    return sum;
  }

  Vector3d Vector() {
    const double x = (*this)();
    const double y = (*this)();
    return {x, y, (*this)()};
  }

 private:
  std::mt19937 generator_{38401};
};

Quaterniond Rotation(const Vector3d& rotation_vector) {
  const double angle = rotation_vector.norm();
  return angle == 0.0
             ? Quaterniond::Identity()
             : Quaterniond(Eigen::AngleAxisd(angle, rotation_vector / angle));
}

struct Edge {
  int begin;
  int end;
  Isometry3d measured;
};

// A pose graph: each pose is measured from the one before it and from the one a
// lap before it; the start is the sum of the former, and so has drifted.
struct PoseGraph {
  PoseGraph(const std::vector<Isometry3d>& truth,
            int lap,
            const Vector3d& translation_sigma,
            const Vector3d& rotation_sigma) {
    Noise noise;
    start.push_back(truth[0]);
    for (int end = 1; end < static_cast<int>(truth.size()); ++end) {
      for (const int begin : {end - 1, end - lap}) {
        if (begin < 0) {
          continue;
        }
        Isometry3d measured = truth[begin].inverse() * truth[end];
        measured.translation() +=
            noise.Vector().cwiseProduct(translation_sigma);
        measured.rotate(Rotation(noise.Vector().cwiseProduct(rotation_sigma)));
        edges.push_back({begin, end, measured});
        if (begin == end - 1) {
          start.push_back(start[begin] * measured);
        }
      }
    }
  }

  std::vector<Isometry3d> start;
  std::vector<Edge> edges;
};

double Yaw(const Isometry3d& pose) {
  return std::atan2(pose.linear()(1, 0), pose.linear()(0, 0));
}

void WritePoseGraph2d(const std::string& file_name) {
  constexpr int kLap = 100;
  std::vector<Isometry3d> truth;
  for (int i = 0; i < 4 * kLap; ++i) {
    const double angle = kTwoPi * i / kLap;
    Isometry3d pose = Isometry3d::Identity();
    pose.translation() << 10.0 * std::cos(angle), 6.0 * std::sin(angle), 0.0;
    pose.rotate(Rotation({0.0, 0.0, angle}));
    truth.push_back(pose);
  }
  constexpr double kPosition = 0.05;
  constexpr double kYaw = 0.02;
  const PoseGraph graph(
      truth, kLap, {kPosition, kPosition, 0.0}, {0.0, 0.0, kYaw});
  std::ofstream file(file_name);
  file.precision(17);
  for (size_t i = 0; i < graph.start.size(); ++i) {
    const Isometry3d& pose = graph.start[i];
    file << "VERTEX_SE2 " << i << " " << pose.translation().x() << " "
         << pose.translation().y() << " " << Yaw(pose) << "\n";
  }
  for (const Edge& edge : graph.edges) {
    file << "EDGE_SE2 " << edge.begin << " " << edge.end << " "
         << edge.measured.translation().x() << " "
         << edge.measured.translation().y() << " " << Yaw(edge.measured) << " "
         << 1.0 / (kPosition * kPosition) << " 0 0 "
         << 1.0 / (kPosition * kPosition) << " 0 " << 1.0 / (kYaw * kYaw)
         << "\n";
  }
}

void WritePose3d(const Isometry3d& pose, std::ofstream* file) {
  const Quaterniond q(pose.linear());
  *file << pose.translation().x() << " " << pose.translation().y() << " "
        << pose.translation().z() << " " << q.x() << " " << q.y() << " "
        << q.z() << " " << q.w();
}

void WritePoseGraph3d(const std::string& file_name) {
  constexpr int kLap = 20;
  std::vector<Isometry3d> truth;
  for (int i = 0; i < 20 * kLap; ++i) {
    const double longitude = kTwoPi * i / kLap;
    const double latitude = kTwoPi * (0.25 - 0.5 * (i + 0.5) / (20 * kLap));
    Isometry3d pose = Isometry3d::Identity();
    pose.rotate(Rotation({0.0, 0.0, longitude}));
    pose.rotate(Rotation({0.0, -latitude, 0.0}));
    pose.translate(Vector3d(10.0, 0.0, 0.0));
    truth.push_back(pose);
  }
  constexpr double kPosition = 0.05;
  constexpr double kRotation = 0.01;
  const PoseGraph graph(truth,
                        kLap,
                        Vector3d::Constant(kPosition),
                        Vector3d::Constant(kRotation));
  std::ofstream file(file_name);
  file.precision(17);
  for (size_t i = 0; i < graph.start.size(); ++i) {
    file << "VERTEX_SE3:QUAT " << i << " ";
    WritePose3d(graph.start[i], &file);
    file << "\n";
  }
  for (const Edge& edge : graph.edges) {
    file << "EDGE_SE3:QUAT " << edge.begin << " " << edge.end << " ";
    WritePose3d(edge.measured, &file);
    // The upper triangle of a diagonal matrix.
    for (int row = 0; row < 6; ++row) {
      const double sigma = row < 3 ? kPosition : kRotation;
      for (int column = row; column < 6; ++column) {
        file << " " << (row == column ? 1.0 / (sigma * sigma) : 0.0);
      }
    }
    file << "\n";
  }
}

// The bytes of a little-endian file, on a machine of any order.
class Bytes {
 public:
  explicit Bytes(const std::string& file_name)
      : file_(file_name, std::ios::binary) {}

  void Char(char value) { file_.put(value); }

  void Int(uint32_t value) {
    for (int i = 0; i < 4; ++i) {
      file_.put(static_cast<char>(value >> (8 * i) & 0xff));
    }
  }

  void Float(double value) {
    const float single = static_cast<float>(value);
    uint32_t bits;
    static_assert(sizeof(bits) == sizeof(single), "IEEE 754");
    std::memcpy(&bits, &single, sizeof(bits));
    Int(bits);
  }

  void Floats(const Vector3d& values) {
    for (const double value : values) {
      Float(value);
    }
  }

 private:
  std::ofstream file_;
};

void WriteLibmv(const std::string& file_name) {
  constexpr int kNumFrames = 332;
  constexpr int kNumTracks = 26;
  constexpr double kFocalLength = 1200.0;
  constexpr double kK1 = -0.05;
  constexpr double kCenterX = 960.0;
  constexpr double kCenterY = 540.0;
  Noise noise;
  std::vector<Vector3d> points;
  for (int i = 0; i < kNumTracks; ++i) {
    points.push_back(noise.Vector());
  }
  std::vector<Isometry3d> cameras;
  for (int i = 0; i < kNumFrames; ++i) {
    const double way = static_cast<double>(i) / kNumFrames - 0.5;
    Isometry3d camera = Isometry3d::Identity();
    camera.translate(Vector3d(0.3 * std::sin(9.0 * way), 0.0, 8.0));
    camera.rotate(Rotation({0.3 * std::sin(5.0 * way), 1.6 * way, 0.1 * way}));
    cameras.push_back(camera);
  }

  Bytes file(file_name);
  file.Char('v');
  // Markers are pixels, so that the focal length, k1 and k2 are refined.
  file.Char('P');
  for (const double value :
       {1.02 * kFocalLength, kCenterX, kCenterY, 0.0, 0.0, 0.0, 0.0, 0.0}) {
    file.Float(value);
  }
  file.Int(kNumFrames);
  for (int i = 0; i < kNumFrames; ++i) {
    file.Int(i);
    // The first one is held where it is.
    const double sigma = i == 0 ? 0.0 : 0.01;
    const Matrix3d rotation =
        (cameras[i].linear() * Rotation(sigma * noise.Vector())).eval();
    for (int k = 0; k < 9; ++k) {
      file.Float(rotation(k % 3, k / 3));
    }
    file.Floats(cameras[i].translation() + 5.0 * sigma * noise.Vector());
  }
  file.Int(kNumTracks);
  for (int i = 0; i < kNumTracks; ++i) {
    file.Int(i);
    file.Floats(points[i] + 0.05 * noise.Vector());
  }
  file.Int(kNumFrames * kNumTracks);
  for (int i = 0; i < kNumFrames; ++i) {
    for (int k = 0; k < kNumTracks; ++k) {
      const Eigen::Vector2d projected = (cameras[i] * points[k]).hnormalized();
      const double distortion = 1.0 + kK1 * projected.squaredNorm();
      file.Int(i);
      file.Int(k);
      file.Float(kFocalLength * distortion * projected.x() + kCenterX +
                 0.3 * noise());
      file.Float(kFocalLength * distortion * projected.y() + kCenterY +
                 0.3 * noise());
    }
  }
}

void WriteCircle(const std::string& file_name) {
  Noise noise;
  std::ofstream file(file_name);
  file.precision(17);
  file << "700 300 100\n";
  for (int i = 0; i < 100; ++i) {
    const double angle = kTwoPi * i / 100;
    const double radius = 220.0 + noise();
    file << 750.0 + radius * std::cos(angle) << " "
         << 350.0 + radius * std::sin(angle) << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_example_problems FOLDER\n");
    return 1;
  }
  const std::string folder = argv[1];
  WritePoseGraph2d(folder + "/pose_graph_2d.g2o");
  WritePoseGraph3d(folder + "/pose_graph_3d.g2o");
  WriteLibmv(folder + "/libmv.bin");
  WriteCircle(folder + "/circle.txt");
  return 0;
}
