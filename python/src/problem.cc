// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/problem.h"

#include <cmath>
#include <cstdint>
#include <new>
#include <set>
#include <type_traits>
#include <utility>

#include "ceres/line_manifold.h"
#include "ceres/loss_function.h"
#include "ceres/product_manifold.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// A pointer to what the object wraps, null for None; throws TypeError where it
// wraps something else.
template <typename T>
T* Unwrap(const std::string& name, nb::handle object, const char* expected) {
  T* pointer = nullptr;
  if (!object.is_none() && !nb::try_cast(object, pointer)) {
    throw TypeError(name + ": expected " + expected + ", found " +
                    TypeOf(object));
  }
  return pointer;
}

// Remembers the arguments with which an object of a loss or manifold is made.
// ProductManifold of ceres_ext/__init__.py does it too.
template <typename T, typename... Args>
void Remember(const nb::pointer_and_handle<T>& self, const Args&... args) {
  nb::setattr(
      self.h, "_maker", nb::make_tuple(self.h.type(), nb::make_tuple(args...)));
}
// A call that makes the object again: its type without arguments if nothing is
// remembered.
nb::tuple MakerOf(nb::handle object) {
  return nb::hasattr(object, "_maker")
             ? nb::tuple(object.attr("_maker"))
             : nb::make_tuple(object.type(), nb::tuple());
}
// HuberLoss(1.0)
std::string ReprOfMaker(nb::handle object) {
  const nb::tuple maker = MakerOf(object);
  std::string list;
  for (const nb::handle argument : nb::tuple(maker[1])) {
    list += (list.empty() ? "" : ", ") + Repr(argument);
  }
  return Str(maker[0].attr("__name__")) + "(" + list + ")";
}

void AddLosses(nb::module_* module) {
  nb::class_<ceres::LossFunction>(
      *module,
      "LossFunction",
      nb::dynamic_attr(),
      "A loss function of Ceres's: rho(s), where s is the squared norm of a "
      "residual block.")
      .def("__repr__", &ReprOfMaker)
      .def("__reduce__", &MakerOf)
      .def(
          "evaluate",
          [](const ceres::LossFunction& loss, double s) {
            double rho[3];
            loss.Evaluate(s, rho);
            return nb::make_tuple(rho[0], rho[1], rho[2]);
          },
          "s"_a,
          nb::sig("def evaluate(self, s: float) -> tuple[float, float, float]"),
          "rho(s), rho'(s), rho''(s); s >= 0.");
  nb::class_<ceres::TrivialLoss, ceres::LossFunction>(
      *module, "TrivialLoss", "rho(s) = s.")
      .def(nb::init<>());

  const auto add = [module](auto* tag, const char* name, const char* doc) {
    using Loss = std::remove_pointer_t<decltype(tag)>;
    nb::class_<Loss, ceres::LossFunction>(*module, name, doc)
        .def(
            "__init__",
            [name](nb::pointer_and_handle<Loss> self, double a) {
              if (!(a > 0.0) || !std::isfinite(a * a) || !(a * a > 0.0)) {
                throw ValueError(std::string(name) +
                                 ": a: expected a finite number > 0, found " +
                                 Repr(nb::float_(a)));
              }
              new (self.p) Loss(a);
              Remember(self, a);
            },
            "a"_a);
  };
  add(static_cast<ceres::HuberLoss*>(nullptr),
      "HuberLoss",
      "rho(s) = s for s <= a^2, 2 a sqrt(s) - a^2 beyond; a > 0.");
  add(static_cast<ceres::SoftLOneLoss*>(nullptr),
      "SoftLOneLoss",
      "rho(s) = 2 a^2 (sqrt(1 + s / a^2) - 1); a > 0.");
  add(static_cast<ceres::CauchyLoss*>(nullptr),
      "CauchyLoss",
      "rho(s) = a^2 log(1 + s / a^2); a > 0.");
  add(static_cast<ceres::ArctanLoss*>(nullptr),
      "ArctanLoss",
      "rho(s) = a atan(s / a); a > 0.");
  add(static_cast<ceres::TukeyLoss*>(nullptr),
      "TukeyLoss",
      "rho(s) = a^2 / 3 (1 - (1 - s / a^2)^3) for s <= a^2, a^2 / 3 beyond; "
      "a > 0.");

  nb::class_<ceres::TolerantLoss, ceres::LossFunction>(
      *module,
      "TolerantLoss",
      "rho(s) = b log(1 + exp((s - a) / b)) - b log(1 + exp(-a / b)); a >= 0, "
      "b > 0.")
      .def(
          "__init__",
          [](nb::pointer_and_handle<ceres::TolerantLoss> self,
             double a,
             double b) {
            if (!(a >= 0.0) || !(b > 0.0) || !std::isfinite(a) ||
                !std::isfinite(b)) {
              throw ValueError(
                  "TolerantLoss: expected finite a >= 0 and b > 0, found " +
                  Repr(nb::make_tuple(a, b)));
            }
            new (self.p) ceres::TolerantLoss(a, b);
            Remember(self, a, b);
          },
          "a"_a,
          "b"_a);
  nb::class_<ceres::ComposedLoss, ceres::LossFunction>(
      *module, "ComposedLoss", "rho(s) = f(g(s)).")
      .def(
          "__init__",
          [](nb::pointer_and_handle<ceres::ComposedLoss> self,
             nb::handle_t<ceres::LossFunction> f,
             nb::handle_t<ceres::LossFunction> g) {
            new (self.p) ceres::ComposedLoss(nb::cast<ceres::LossFunction*>(f),
                                             ceres::DO_NOT_TAKE_OWNERSHIP,
                                             nb::cast<ceres::LossFunction*>(g),
                                             ceres::DO_NOT_TAKE_OWNERSHIP);
            Remember(self, f, g);
          },
          "f"_a,
          "g"_a,
          nb::keep_alive<1, 2>(),
          nb::keep_alive<1, 3>());
  nb::class_<ceres::ScaledLoss, ceres::LossFunction>(
      *module, "ScaledLoss", "a rho(s), or a s where rho is None; a >= 0.")
      .def(
          "__init__",
          [](nb::pointer_and_handle<ceres::ScaledLoss> self,
             nb::object rho,
             double a) {
            if (!(a >= 0.0) || !std::isfinite(a)) {
              throw ValueError(
                  "ScaledLoss: a: expected a finite number >= 0, found " +
                  Repr(nb::float_(a)));
            }
            new (self.p) ceres::ScaledLoss(
                Unwrap<ceres::LossFunction>(
                    "ScaledLoss: rho", rho, "a loss function or None"),
                a,
                ceres::DO_NOT_TAKE_OWNERSHIP);
            Remember(self, rho, a);
          },
          nb::arg("rho").none(),
          "a"_a,
          nb::keep_alive<1, 2>(),
          nb::sig("def __init__(self, rho: LossFunction | None, a: float) -> "
                  "None"));
}

template <typename Manifold>
void AddSizedManifold(nb::module_* module,
                      const char* name,
                      int smallest,
                      const char* doc) {
  nb::class_<Manifold, ceres::Manifold>(*module, name, doc)
      .def(
          "__init__",
          [name, smallest](nb::pointer_and_handle<Manifold> self, int size) {
            if (size < smallest) {
              throw ValueError(
                  std::string(name) + ": size: expected at least " +
                  std::to_string(smallest) + ", found " + std::to_string(size));
            }
            new (self.p) Manifold(size);
            Remember(self, size);
          },
          "size"_a);
}

using DynamicEuclideanManifold = ceres::EuclideanManifold<ceres::DYNAMIC>;

void AddManifolds(nb::module_* module) {
  nb::class_<ceres::Manifold>(
      *module,
      "Manifold",
      nb::dynamic_attr(),
      "How a parameter block varies: a manifold of Ceres's.")
      .def("__repr__", &ReprOfMaker)
      .def("__reduce__", &MakerOf)
      .def_prop_ro("ambient_size",
                   &ceres::Manifold::AmbientSize,
                   "Values of the parameter block.")
      .def_prop_ro("tangent_size",
                   &ceres::Manifold::TangentSize,
                   "Dimensions in which it varies.");
  AddSizedManifold<DynamicEuclideanManifold>(
      module, "EuclideanManifold", 1, "All values vary, on their own.");
  AddSizedManifold<ceres::SphereManifold<ceres::DYNAMIC>>(
      module, "SphereManifold", 2, "A vector of constant length.");
  AddSizedManifold<ceres::LineManifold<ceres::DYNAMIC>>(
      module,
      "LineManifold",
      2,
      "A line in `size` dimensions: a point on it and its direction, 2 size "
      "values.");
  nb::class_<ceres::SubsetManifold, ceres::Manifold>(
      *module, "SubsetManifold", "Some values are constant.")
      .def(
          "__init__",
          [](nb::pointer_and_handle<ceres::SubsetManifold> self,
             int size,
             const std::vector<int>& constant_parameters) {
            if (size < 1) {
              throw ValueError(
                  "SubsetManifold: size: expected at least 1, "
                  "found " +
                  std::to_string(size));
            }
            std::set<int> seen;
            for (const int i : constant_parameters) {
              if (i < 0 || i >= size || !seen.insert(i).second) {
                throw ValueError(
                    "SubsetManifold: constant_parameters: expected different "
                    "numbers from 0 to " +
                    std::to_string(size - 1) + ", found " +
                    Repr(nb::cast(constant_parameters)));
              }
            }
            new (self.p) ceres::SubsetManifold(size, constant_parameters);
            Remember(self, size, constant_parameters);
          },
          "size"_a,
          "constant_parameters"_a,
          "constant_parameters: the numbers of the values that are constant, "
          "from 0 on.");
  nb::class_<ceres::QuaternionManifold, ceres::Manifold>(
      *module, "QuaternionManifold", "A quaternion w, x, y, z of length 1.")
      .def(nb::init<>());
  nb::class_<ceres::EigenQuaternionManifold, ceres::Manifold>(
      *module,
      "EigenQuaternionManifold",
      "A quaternion x, y, z, w of length 1.")
      .def(nb::init<>());
  nb::class_<BalCameraManifold, ceres::Manifold>(
      *module,
      "BalCameraManifold",
      "That of a camera of 10 values: a quaternion w, x, y, z of length 1, and "
      "6 values that vary on their own.")
      .def(nb::init<>());

  // With values of parts, so that it refers to neither object.
  // ceres_ext/__init__.py has what users call, by whose name it is pickled.
  const auto add_product = [module](auto* tag) {
    using Second = std::remove_pointer_t<decltype(tag)>;
    module->def(
        "_product_manifold",
        [](const ceres::QuaternionManifold& first,
           const Second& second) -> ceres::Manifold* {
          return new ceres::ProductManifold<ceres::QuaternionManifold, Second>(
              first, second);
        },
        "first"_a,
        "second"_a,
        nb::rv_policy::take_ownership);
  };
  add_product(static_cast<ceres::SubsetManifold*>(nullptr));
  add_product(static_cast<DynamicEuclideanManifold*>(nullptr));
}

}  // namespace

Problem::Lock::Lock(Problem* problem) : problem_(problem) {
  problem->CheckUnlocked();
  problem->is_being_solved_ = true;
}

void Problem::CheckUnlocked() const {
  if (is_being_solved_) {
    throw ValueError(
        "ArrayProblem: it is being solved; expected a call before "
        "that or after");
  }
}

int Problem::AddParameters(nb::object values,
                           nb::object constant,
                           nb::object manifold) {
  CheckUnlocked();
  std::vector<int64_t> shape = {kAnyLength, kAnyLength};
  ArrayProblem::Parameters parameters;
  parameters.values = static_cast<double*>(ReadArray(
      "values", values, "float64", ARRAY_WRITE, &shape, &parameters.on_device));
  parameters.num_blocks = shape[0];
  if (shape[1] < 1 || shape[1] > INT32_MAX) {
    throw ValueError("values: expected blocks of 1 to 2^31 - 1 values, found " +
                     std::to_string(shape[1]));
  }
  parameters.size = static_cast<int>(shape[1]);
  if (!constant.is_none()) {
    shape.resize(1);
    parameters.is_constant = static_cast<const uint8_t*>(
        ReadArray("constant", constant, "bool", ARRAY_READ, &shape));
  }
  const char* const kManifold = "a manifold, a list of them, or None";
  std::vector<nb::object> kept = {values, constant, manifold};
  std::unique_ptr<ceres::Manifold*[]> manifolds;
  if (nb::isinstance<nb::list>(manifold) ||
      nb::isinstance<nb::tuple>(manifold)) {
    if (static_cast<int64_t>(nb::len(manifold)) != parameters.num_blocks) {
      throw ValueError(
          "manifold: expected " + std::to_string(parameters.num_blocks) +
          ", one for each block, found " + std::to_string(nb::len(manifold)));
    }
    manifolds = std::make_unique<ceres::Manifold*[]>(parameters.num_blocks);
    int64_t i = 0;
    for (const nb::handle of_one : manifold) {
      manifolds[i] = Unwrap<ceres::Manifold>(
          "manifold[" + std::to_string(i) + "]", of_one, "a manifold or None");
      kept.push_back(nb::borrow(of_one));
      ++i;
    }
    parameters.manifolds = manifolds.get();
  } else {
    parameters.manifold =
        Unwrap<ceres::Manifold>("manifold", manifold, kManifold);
  }
  kept_.insert(kept_.end(), kept.begin(), kept.end());
  manifolds_.push_back(std::move(manifolds));
  return arrays_.AddParameters(parameters);
}

void Problem::AddResiduals(const std::string& cost_function,
                           nb::object observations,
                           nb::object blocks,
                           nb::object loss,
                           nb::object weights) {
  CheckUnlocked();
  std::vector<int64_t> shape = {kAnyLength, 2};
  bool constants_on_device = false;
  const auto* const constants =
      static_cast<const double*>(ReadArray("observations",
                                           observations,
                                           "float64",
                                           ARRAY_READ,
                                           &shape,
                                           &constants_on_device));
  const int64_t num_blocks = shape[0];
  shape.resize(1);
  std::vector<ArrayProblem::Index> indices;
  std::vector<nb::object> kept = {observations, loss, weights};
  if (!nb::isinstance<nb::list>(blocks) && !nb::isinstance<nb::tuple>(blocks)) {
    throw TypeError("blocks: expected a list of (parameters, index), found " +
                    TypeOf(blocks));
  }
  for (const nb::handle of_one : blocks) {
    const std::string name = "blocks[" + std::to_string(indices.size()) + "]";
    ArrayProblem::Index block;
    if (!nb::isinstance<nb::tuple>(of_one) || nb::len(of_one) != 2 ||
        !nb::try_cast(of_one[0], block.parameters)) {
      throw TypeError(name +
                      ": expected (parameters, index), what add_parameters "
                      "returned and an array of int32 or None, found " +
                      Repr(of_one));
    }
    const nb::object index = of_one[1];
    if (!index.is_none()) {
      block.block = static_cast<const int32_t*>(ReadArray(
          name + "[1]", index, "int32", ARRAY_READ, &shape, &block.on_device));
    }
    kept.push_back(index);
    indices.push_back(block);
  }
  auto* const loss_function = Unwrap<ceres::LossFunction>(
      "loss", loss, "a loss function of this module, or None");
  bool weights_on_device = false;
  const double* const scale =
      weights.is_none()
          ? nullptr
          : static_cast<const double*>(ReadArray("weights",
                                                 weights,
                                                 "float64",
                                                 ARRAY_READ,
                                                 &shape,
                                                 &weights_on_device));
  if (cost_function == "BalReprojectionError") {
    arrays_.AddResiduals<BalReprojectionError>(
        num_blocks, constants, std::move(indices), loss_function, scale);
  } else if (cost_function == "BalQuaternionReprojectionError") {
    arrays_.AddResiduals<BalQuaternionReprojectionError>(
        num_blocks, constants, std::move(indices), loss_function, scale);
  } else {
    throw ValueError(
        "cost_function: expected BalReprojectionError or "
        "BalQuaternionReprojectionError, found " +
        cost_function);
  }
  ArrayProblem::Residuals* const residuals = arrays_.mutable_residuals(
      static_cast<int>(arrays_.residuals().size()) - 1);
  residuals->constants_on_device = constants_on_device;
  residuals->weights_on_device = weights_on_device;
  kept_.insert(kept_.end(), kept.begin(), kept.end());
}

void AddProblem(nb::module_* module) {
  AddLosses(module);
  AddManifolds(module);
  nb::class_<Problem>(
      *module,
      "ArrayProblem",
      "A problem as numpy arrays, without an object per block.\n\n"
      "The arrays are the caller's and are not copied: they are kept and read "
      "where a solve begins, must stay as they are until it ends, and it "
      "writes "
      "the values of parameters that vary. No two arrays that are written may "
      "overlap. Problems that are solved at once share no parameters.")
      .def(nb::init<>())
      .def(
          "add_parameters",
          &Problem::AddParameters,
          "values"_a.none(),
          nb::kw_only(),
          "constant"_a = nb::none(),
          "manifold"_a = nb::none(),
          nb::sig("def add_parameters(self, values: "
                  "numpy.typing.NDArray[numpy.float64], *, constant: "
                  "numpy.typing.NDArray[numpy.bool_] | None = None, manifold: "
                  "Manifold | collections.abc.Sequence[Manifold | None] | None "
                  "= None) -> int"),
          "Adds n parameter blocks of `size` values; returns the number of the "
          "array, 0 for the first.\n\n"
          "values: (n, size), float64, C-contiguous, writable; a solve refines "
          "them where they are.\n"
          "constant: (n,), bool; where it is true the block is constant.\n"
          "manifold: that of all blocks, or a list or tuple of n, None for "
          "those without.\n\n"
          "TypeError: an array has another type. ValueError: it has another "
          "shape, is not C-contiguous or not writable.")
      .def(
          "add_residuals",
          &Problem::AddResiduals,
          "cost_function"_a,
          "observations"_a.none(),
          "blocks"_a.none(),
          nb::kw_only(),
          "loss"_a = nb::none(),
          "weights"_a = nb::none(),
          nb::sig("def add_residuals(self, cost_function: "
                  "typing.Literal['BalReprojectionError', "
                  "'BalQuaternionReprojectionError'], observations: "
                  "numpy.typing.NDArray[numpy.float64], blocks: "
                  "collections.abc.Sequence[tuple[int, "
                  "numpy.typing.NDArray[numpy.int32] | None]], *, loss: "
                  "LossFunction | None = None, weights: "
                  "numpy.typing.NDArray[numpy.float64] | None = None) -> None"),
          "Adds n residual blocks, each of one observation of a point in a "
          "camera.\n\n"
          "cost_function: 'BalReprojectionError' (a camera has 9 values: "
          "rotation vector in radians, translation, focal length in pixels, "
          "k1, "
          "k2) or 'BalQuaternionReprojectionError' (10: quaternion w, x, y, z "
          "in "
          "place of the vector). A point has 3 values. A camera looks along "
          "its "
          "negative z axis: p = -P / P.z with P = R X + t is seen at f (1 + k1 "
          "|p|^2 + k2 |p|^4) p.\n"
          "observations: (n, 2), float64; x and y in pixels from the image's "
          "centre.\n"
          "blocks: [(cameras, camera_index), (points, point_index)]: the "
          "number that add_parameters returned, and for each observation the "
          "number of its block there, (n,), int32, or None: block i for "
          "observation i.\n"
          "loss: the loss of all observations, or None for the squared "
          "residual.\n"
          "weights: (n,), float64, >= 0, factors of the cost of each "
          "observation.\n\n"
          "TypeError: an array has another type. ValueError: it has another "
          "shape or is not C-contiguous. A solve checks the contents of the "
          "arrays when it begins.");
}

}  // namespace ceres_ext::python
