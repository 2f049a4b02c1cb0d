// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// sight_poses NUM_POSES: poses of a board in two cameras, by the function of
// Debian's libsight that solves them with Ceres, a problem of six columns each.
// Prints the seconds, the largest error of a translation and the sum of all.
//
//   lib=/usr/lib/x86_64-linux-gnu/libsight_geometry_vision.so.24.0
//   ignore=-Wl,--unresolved-symbols=ignore-in-shared-libs
//   c++ -std=c++17 -O1 -I/usr/include/opencv4 sight_poses.cc -o sight_poses
//     $lib -lopencv_calib3d -lopencv_core $ignore

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <opencv2/calib3d.hpp>
#include <random>
#include <vector>

namespace sight::geometry::vision::helper {
// sight/geometry/vision/helper.hpp, which includes more of Sight than is
// needed.
cv::Matx44f camera_pose_stereo(const std::vector<cv::Point3f>& object_points,
                               const cv::Mat& camera_matrix1,
                               const cv::Mat& dist_coeffs1,
                               const cv::Mat& camera_matrix2,
                               const cv::Mat& dist_coeffs2,
                               const std::vector<cv::Point2f>& img_points1,
                               const std::vector<cv::Point2f>& img_points2,
                               const cv::Mat& r,
                               const cv::Mat& t);
}  // namespace sight::geometry::vision::helper

int main(int argc, char** argv) {
  const int num_poses = argc > 1 ? std::atoi(argv[1]) : 100;
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::normal_distribution<double> noise(0, 0.2);
  std::vector<cv::Point3f> board;
  for (int i = 0; i < 54; ++i) {
    board.emplace_back(20.f * (i % 9), 20.f * (i / 9), 0.f);
  }
  const cv::Mat camera =
      (cv::Mat_<double>(3, 3) << 900, 0, 640, 0, 900, 360, 0, 0, 1);
  const cv::Mat distortion = (cv::Mat_<double>(1, 5) << 0.05, -0.02, 0, 0, 0);
  const cv::Mat between_r =
      (cv::Mat_<double>(3, 3) << 1, 0, 0, 0, 1, 0, 0, 0, 1);
  const cv::Mat between_t = (cv::Mat_<double>(3, 1) << -120, 0, 0);
  double largest = 0;
  double sum = 0;
  double seconds = 0;
  for (int k = 0; k < num_poses; ++k) {
    const cv::Mat rotation = (cv::Mat_<double>(3, 1) << 0.4 * uniform(engine),
                              0.4 * uniform(engine),
                              0.4 * uniform(engine));
    const cv::Mat translation =
        (cv::Mat_<double>(3, 1) << -80 + 40 * uniform(engine),
         -60 + 40 * uniform(engine),
         600 + 100 * uniform(engine));
    std::vector<cv::Point2f> points1, points2;
    cv::projectPoints(
        board, rotation, translation, camera, distortion, points1);
    cv::projectPoints(
        board, rotation, translation + between_t, camera, distortion, points2);
    for (auto* points : {&points1, &points2}) {
      for (auto& point : *points) {
        point.x += static_cast<float>(noise(engine));
        point.y += static_cast<float>(noise(engine));
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    const cv::Matx44f pose =
        sight::geometry::vision::helper::camera_pose_stereo(board,
                                                            camera,
                                                            distortion,
                                                            camera,
                                                            distortion,
                                                            points1,
                                                            points2,
                                                            between_r,
                                                            between_t);
    seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    for (int i = 0; i < 3; ++i) {
      largest =
          std::max(largest, std::abs(pose(i, 3) - translation.at<double>(i)));
      sum += pose(i, 3);
    }
  }
  std::printf(
      "%.3f s, largest error %.4f mm, sum %.7g\n", seconds, largest, sum);
}
