// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Camera models with the names, numbers and orders of parameters of COLMAP
// (colmap.github.io/cameras.html), for T = double, ceres::Jet and the like, on
// the host and in CUDA's device code (there without kName):
//
//   T pixel[2];
//   if (!RadialCamera::ImgFromCam(params, point, pixel)) { ... }
//
// where the point is in the frame of the camera, which looks along its positive
// z axis, x to the right and y down. Parameters are one focal length f or two,
// fx and fy, then the principal point cx, cy, then the coefficients of the
// distortion. With x = point[0] / point[2] and y = point[1] / point[2]
// distorted to (x', y') as each model says,
//
//   pixel = (fx x' + cx, fy y' + cy)
//
// False, with nothing computed, where point[2] is below 2^-52 or NaN: at the
// optical centre and behind it. DIVISION, SIMPLE_DIVISION, EUCM and
// EQUIRECTANGULAR say what they do not project. EQUIRECTANGULAR has other
// parameters.

#ifndef CERES_EXT_CAMERA_MODELS_H_
#define CERES_EXT_CAMERA_MODELS_H_

#include <cfloat>
#include <cmath>

#include "ceres/internal/port.h"

namespace ceres_ext {

namespace internal {

// k[0] + k[1] s + ... + k[kNum - 1] s^(kNum - 1), by Horner's rule. No loop,
// since a device would keep what a loop indexes out of its registers.
template <int kNum, typename T>
CERES_HOST_DEVICE T Polynomial(const T* k, const T& s) {
  if constexpr (kNum == 1) {
    return k[0];
  } else {
    return Polynomial<kNum - 1>(k + 1, s) * s + k[0];
  }
}

// k[0] s + k[1] s^2 + ... + k[kNum - 1] s^kNum
template <int kNum, typename T>
CERES_HOST_DEVICE T PowerSeries(const T* k, const T& s) {
  return Polynomial<kNum>(k, s) * s;
}

// (x, y) (1 + k1 r^2 + k2 r^4 + ...), r^2 = x^2 + y^2
template <int kNum, typename T>
CERES_HOST_DEVICE void DistortRadially(const T* k, T* xy) {
  const T scale = 1.0 + PowerSeries<kNum>(k, xy[0] * xy[0] + xy[1] * xy[1]);
  xy[0] = xy[0] * scale;
  xy[1] = xy[1] * scale;
}

// (x, y) scale
//     + (2 p1 x y + p2 (r^2 + 2 x^2), 2 p2 x y + p1 (r^2 + 2 y^2))
template <typename T>
CERES_HOST_DEVICE void DistortTangentially(const T* p, const T& scale, T* xy) {
  const T x = xy[0];
  const T y = xy[1];
  const T r2 = x * x + y * y;
  xy[0] = x * scale + 2.0 * p[0] * x * y + p[1] * (r2 + 2.0 * x * x);
  xy[1] = y * scale + 2.0 * p[1] * x * y + p[0] * (r2 + 2.0 * y * y);
}

// atan(r) / r by r^2. Below r = 0.01 the series, whose first term left out,
// r^10 / 11, is below 1e-21; the derivatives of sqrt are not finite at 0.
template <typename T>
CERES_HOST_DEVICE T AtanOverR(const T& r2) {
  using std::atan;
  using std::sqrt;
  if (r2 < 1e-4) {
    return 1.0 +
           r2 * (-1.0 / 3.0 + r2 * (1.0 / 5.0 + r2 * (-1.0 / 7.0 + r2 / 9.0)));
  }
  const T r = sqrt(r2);
  return atan(r) / r;
}

// (x, y) t / r, where t = atan r is the angle from the optical axis: a point at
// that distance from the principal point.
template <typename T>
CERES_HOST_DEVICE void ToEquidistant(T* xy) {
  const T scale = AtanOverR(xy[0] * xy[0] + xy[1] * xy[1]);
  xy[0] = xy[0] * scale;
  xy[1] = xy[1] * scale;
}

// atan(2 r tan(w / 2)) / (r w) by r^2 and w: 2 tan(w / 2) / w times atan(s) /
// s. Below w = 0.01 the former is a series, whose first term left out, 31 w^8 /
// 362880, is below 1e-20. COLMAP's series there has another sign.
template <typename T>
CERES_HOST_DEVICE T FovScale(const T& r2, const T& w) {
  using std::tan;
  const T w2 = w * w;
  T slope;
  if (w2 < 1e-4) {
    slope =
        1.0 + w2 * (1.0 / 12.0 + w2 * (1.0 / 120.0 + w2 * (17.0 / 20160.0)));
  } else {
    slope = 2.0 * tan(0.5 * w) / w;
  }
  return slope * AtanOverR(r2 * (slope * slope * w2));
}

// Numbers of parameters.
template <int kNumFocals, int kNumCoefficients>
struct CameraParams {
  static constexpr int kNumFocalLengths = kNumFocals;
  static constexpr int kNumExtraParams = kNumCoefficients;
  static constexpr int kNumParams = kNumFocals + 2 + kNumCoefficients;
};

// The base class of most models. Model::Distort(k, xy) distorts xy in place by
// the coefficients.
template <typename Model, int kNumFocals, int kNumCoefficients>
struct CameraModel : CameraParams<kNumFocals, kNumCoefficients> {
  // Differs from the class if a class derives from the model.
  using DistortionOf = Model;

  template <typename T>
  CERES_HOST_DEVICE static bool ImgFromCam(const T* params,
                                           const T* point,
                                           T* pixel) {
    if (!(point[2] >= DBL_EPSILON)) {
      return false;
    }
    T xy[2] = {point[0] / point[2], point[1] / point[2]};
    Model::Distort(params + kNumFocals + 2, xy);
    pixel[0] = params[0] * xy[0] + params[kNumFocals];
    pixel[1] = params[kNumFocals - 1] * xy[1] + params[kNumFocals + 1];
    return true;
  }
};

// All coefficients are of a radial distortion, of (x, y) or of (x, y) t / r.
template <typename Model, int kNumFocals, int kNumCoefficients>
struct RadialModel : CameraModel<Model, kNumFocals, kNumCoefficients> {
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    DistortRadially<kNumCoefficients>(k, xy);
  }
};
template <typename Model, int kNumFocals, int kNumCoefficients>
struct FisheyeModel : CameraModel<Model, kNumFocals, kNumCoefficients> {
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    ToEquidistant(xy);
    DistortRadially<kNumCoefficients>(k, xy);
  }
};

// Without distortion, of (x, y) t / r.
template <typename Model, int kNumFocals>
struct EquidistantModel : CameraModel<Model, kNumFocals, 0> {
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* /*k*/, T* xy) {
    ToEquidistant(xy);
  }
};

// Projects (X, Y, Z) to 2 (X, Y) / (Z + sqrt(Z^2 - 4 k (X^2 + Y^2))), the (x,
// y) of which X / Z = x / (1 + k r^2) and Y / Z = y / (1 + k r^2). False where
// there is no such point: if the root is not of a positive number, or the
// denominator is not positive. If k < 0, a field of view may exceed half of the
// sphere, and points with Z < 0 have images too.
template <int kNumFocals>
struct DivisionModel : CameraParams<kNumFocals, 1> {
  template <typename T>
  CERES_HOST_DEVICE static bool ImgFromCam(const T* params,
                                           const T* point,
                                           T* pixel) {
    using std::sqrt;
    const T& k = params[kNumFocals + 2];
    const T square = point[2] * point[2] -
                     4.0 * k * (point[0] * point[0] + point[1] * point[1]);
    if (!(square > 0.0)) {
      return false;
    }
    const T denominator = point[2] + sqrt(square);
    if (!(denominator > 0.0)) {
      return false;
    }
    const T scale = 2.0 / denominator;
    pixel[0] = params[0] * (scale * point[0]) + params[kNumFocals];
    pixel[1] =
        params[kNumFocals - 1] * (scale * point[1]) + params[kNumFocals + 1];
    return true;
  }
};

}  // namespace internal

// f, cx, cy
struct SimplePinholeCamera : internal::CameraModel<SimplePinholeCamera, 1, 0> {
  static constexpr int kModelId = 0;
  static constexpr char kName[] = "SIMPLE_PINHOLE";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* /*k*/, T* /*xy*/) {}
};

// fx, fy, cx, cy
struct PinholeCamera : internal::CameraModel<PinholeCamera, 2, 0> {
  static constexpr int kModelId = 1;
  static constexpr char kName[] = "PINHOLE";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* /*k*/, T* /*xy*/) {}
};

// f, cx, cy, k: (x, y) (1 + k r^2)
struct SimpleRadialCamera : internal::RadialModel<SimpleRadialCamera, 1, 1> {
  static constexpr int kModelId = 2;
  static constexpr char kName[] = "SIMPLE_RADIAL";
};

// f, cx, cy, k1, k2: (x, y) (1 + k1 r^2 + k2 r^4)
struct RadialCamera : internal::RadialModel<RadialCamera, 1, 2> {
  static constexpr int kModelId = 3;
  static constexpr char kName[] = "RADIAL";
};

// fx, fy, cx, cy, k1, k2, p1, p2: radially as RADIAL, plus tangentially by p1
// and p2 (internal::DistortTangentially)
struct OpenCvCamera : internal::CameraModel<OpenCvCamera, 2, 4> {
  static constexpr int kModelId = 4;
  static constexpr char kName[] = "OPENCV";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    const T r2 = xy[0] * xy[0] + xy[1] * xy[1];
    const T scale = 1.0 + internal::PowerSeries<2>(k, r2);
    internal::DistortTangentially(k + 2, scale, xy);
  }
};

// fx, fy, cx, cy, k1, k2, k3, k4: t = atan r is the angle from the optical
// axis, (x, y) / r (t + k1 t^3 + k2 t^5 + k3 t^7 + k4 t^9)
struct OpenCvFisheyeCamera : internal::FisheyeModel<OpenCvFisheyeCamera, 2, 4> {
  static constexpr int kModelId = 5;
  static constexpr char kName[] = "OPENCV_FISHEYE";
};

// fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, k5, k6: as OPENCV, but radially
// (x, y) (1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6)
struct FullOpenCvCamera : internal::CameraModel<FullOpenCvCamera, 2, 8> {
  static constexpr int kModelId = 6;
  static constexpr char kName[] = "FULL_OPENCV";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    const T r2 = xy[0] * xy[0] + xy[1] * xy[1];
    const T numerator[3] = {k[0], k[1], k[4]};
    const T scale = (1.0 + internal::PowerSeries<3>(numerator, r2)) /
                    (1.0 + internal::PowerSeries<3>(k + 5, r2));
    internal::DistortTangentially(k + 2, scale, xy);
  }
};

// fx, fy, cx, cy, w: (x, y) / r atan(2 r tan(w / 2)) / w
struct FovCamera : internal::CameraModel<FovCamera, 2, 1> {
  static constexpr int kModelId = 7;
  static constexpr char kName[] = "FOV";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    const T scale = internal::FovScale(xy[0] * xy[0] + xy[1] * xy[1], k[0]);
    xy[0] = xy[0] * scale;
    xy[1] = xy[1] * scale;
  }
};

// f, cx, cy, k: (x, y) / r (t + k t^3)
struct SimpleRadialFisheyeCamera
    : internal::FisheyeModel<SimpleRadialFisheyeCamera, 1, 1> {
  static constexpr int kModelId = 8;
  static constexpr char kName[] = "SIMPLE_RADIAL_FISHEYE";
};

// f, cx, cy, k1, k2: (x, y) / r (t + k1 t^3 + k2 t^5)
struct RadialFisheyeCamera : internal::FisheyeModel<RadialFisheyeCamera, 1, 2> {
  static constexpr int kModelId = 9;
  static constexpr char kName[] = "RADIAL_FISHEYE";
};

// fx, fy, cx, cy, k1, k2, p1, p2, k3, k4, sx1, sy1: (x, y) t / r, then, by the
// squared length s = t^2 of that, radially 1 + k1 s + k2 s^2 + k3 s^3 + k4 s^4,
// tangentially by p1 and p2, plus (sx1 s, sy1 s)
struct ThinPrismFisheyeCamera
    : internal::CameraModel<ThinPrismFisheyeCamera, 2, 8> {
  static constexpr int kModelId = 10;
  static constexpr char kName[] = "THIN_PRISM_FISHEYE";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    internal::ToEquidistant(xy);
    const T s = xy[0] * xy[0] + xy[1] * xy[1];
    const T radial[4] = {k[0], k[1], k[4], k[5]};
    const T scale = 1.0 + internal::PowerSeries<4>(radial, s);
    internal::DistortTangentially(k + 2, scale, xy);
    xy[0] = xy[0] + k[6] * s;
    xy[1] = xy[1] + k[7] * s;
  }
};

// fx, fy, cx, cy, k0 to k5, p0, p1, s0 to s3: (x, y) t / r, radially 1 + k0 t^2
// + ... + k5 t^12; then, by the squared length q of that, tangentially by p1
// and p0, plus (s0 q + s1 q^2, s2 q + s3 q^2)
struct RadTanThinPrismFisheyeCamera
    : internal::CameraModel<RadTanThinPrismFisheyeCamera, 2, 12> {
  static constexpr int kModelId = 11;
  static constexpr char kName[] = "RAD_TAN_THIN_PRISM_FISHEYE";
  template <typename T>
  CERES_HOST_DEVICE static void Distort(const T* k, T* xy) {
    internal::ToEquidistant(xy);
    internal::DistortRadially<6>(k, xy);
    const T q = xy[0] * xy[0] + xy[1] * xy[1];
    const T p[2] = {k[7], k[6]};
    internal::DistortTangentially(p, T(1.0), xy);
    xy[0] = xy[0] + internal::PowerSeries<2>(k + 8, q);
    xy[1] = xy[1] + internal::PowerSeries<2>(k + 10, q);
  }
};

// f, cx, cy, k: (x, y) whose (x, y) / (1 + k r^2) are those of the point
struct SimpleDivisionCamera : internal::DivisionModel<1> {
  static constexpr int kModelId = 12;
  static constexpr char kName[] = "SIMPLE_DIVISION";
};

// fx, fy, cx, cy, k: as SIMPLE_DIVISION
struct DivisionCamera : internal::DivisionModel<2> {
  static constexpr int kModelId = 13;
  static constexpr char kName[] = "DIVISION";
};

// f, cx, cy: (x, y) t / r
struct SimpleFisheyeCamera
    : internal::EquidistantModel<SimpleFisheyeCamera, 1> {
  static constexpr int kModelId = 14;
  static constexpr char kName[] = "SIMPLE_FISHEYE";
};

// fx, fy, cx, cy: (x, y) t / r
struct FisheyeCamera : internal::EquidistantModel<FisheyeCamera, 2> {
  static constexpr int kModelId = 15;
  static constexpr char kName[] = "FISHEYE";
};

// fx, fy, cx, cy, alpha, beta: (X, Y) / (alpha d + (1 - alpha) Z), d^2 = beta
// (X^2 + Y^2) + Z^2. False as well where d^2 is not positive or the denominator
// is below 2^-52.
struct EucmCamera : internal::CameraParams<2, 2> {
  static constexpr int kModelId = 16;
  static constexpr char kName[] = "EUCM";
  template <typename T>
  CERES_HOST_DEVICE static bool ImgFromCam(const T* params,
                                           const T* point,
                                           T* pixel) {
    using std::sqrt;
    if (!(point[2] >= DBL_EPSILON)) {
      return false;
    }
    const T& alpha = params[4];
    const T square = point[2] * point[2] +
                     params[5] * (point[0] * point[0] + point[1] * point[1]);
    if (!(square > 0.0)) {
      return false;
    }
    const T denominator = alpha * sqrt(square) + (1.0 - alpha) * point[2];
    if (!(denominator >= DBL_EPSILON)) {
      return false;
    }
    pixel[0] = params[0] * (point[0] / denominator) + params[2];
    pixel[1] = params[1] * (point[1] / denominator) + params[3];
    return true;
  }
};

// w, h: a panorama of w x h pixels of all directions,
//
//   (w (1/2 + atan2(X, Z) / 2 pi), h (1/2 + atan2(Y, |(X, Z)|) / pi))
//
// x jumps by w at the seam, X = 0 with Z < 0: errors take the shorter way
// around (TakeShorterWay). False at the poles, where x has no derivative: up to
// 1e-12 radians from the vertical axis, where the rounding of a unit vector
// turns x by 1e-4 radians. Blocks of w and h must be constant.
struct EquirectangularCamera : internal::CameraParams<0, 0> {
  static constexpr int kModelId = 17;
  static constexpr char kName[] = "EQUIRECTANGULAR";

  template <typename T>
  CERES_HOST_DEVICE static bool ImgFromCam(const T* params,
                                           const T* point,
                                           T* pixel) {
    using std::atan2;
    using std::sqrt;
    constexpr double kPi = 3.14159265358979323846;
    const T across2 = point[0] * point[0] + point[2] * point[2];
    if (!(across2 > 1e-24 * (across2 + point[1] * point[1]))) {
      return false;
    }
    pixel[0] = params[0] * (0.5 + atan2(point[0], point[2]) * (0.5 / kPi));
    pixel[1] = params[1] * (0.5 + atan2(point[1], sqrt(across2)) * (1.0 / kPi));
    return true;
  }

  // Changes an error in x of more than half of the width by the width.
  template <typename T>
  CERES_HOST_DEVICE static void TakeShorterWay(const T* params, T* error_x) {
    if (*error_x > 0.5 * params[0]) {
      *error_x = *error_x - params[0];
    } else if (*error_x < -0.5 * params[0]) {
      *error_x = *error_x + params[0];
    }
  }
};

// The most parameters of a model.
inline constexpr int kMaxCameraParams =
    RadTanThinPrismFisheyeCamera::kNumParams;

// Calls f(Model()) for each model, in the order of their numbers.
template <typename Function>
void ForEachCameraModel(Function&& f) {
  f(SimplePinholeCamera());
  f(PinholeCamera());
  f(SimpleRadialCamera());
  f(RadialCamera());
  f(OpenCvCamera());
  f(OpenCvFisheyeCamera());
  f(FullOpenCvCamera());
  f(FovCamera());
  f(SimpleRadialFisheyeCamera());
  f(RadialFisheyeCamera());
  f(ThinPrismFisheyeCamera());
  f(RadTanThinPrismFisheyeCamera());
  f(SimpleDivisionCamera());
  f(DivisionCamera());
  f(SimpleFisheyeCamera());
  f(FisheyeCamera());
  f(EucmCamera());
  f(EquirectangularCamera());
}

}  // namespace ceres_ext

#endif  // CERES_EXT_CAMERA_MODELS_H_
