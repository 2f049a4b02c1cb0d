// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/problem.h"

#include <algorithm>
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
#include "ceres_ext/marginal_prior.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/compiled.h"
#include "python/src/module.h"
#include "python/src/residuals.h"

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
      "The manifold of a camera of 10 values: a quaternion w, x, y, z of "
      "length 1, and "
      "6 values that vary on their own.")
      .def(nb::init<>());

  // With values of parts, so that it refers to neither object.
  // ceres_ext/__init__.py has what users call, by whose name it is pickled.
  const auto add_product = [module](auto* first_tag, auto* second_tag) {
    using First = std::remove_pointer_t<decltype(first_tag)>;
    using Second = std::remove_pointer_t<decltype(second_tag)>;
    module->def(
        "_product_manifold",
        [](const First& first, const Second& second) -> ceres::Manifold* {
          return new ceres::ProductManifold<First, Second>(first, second);
        },
        "first"_a,
        "second"_a,
        nb::rv_policy::take_ownership);
  };
  const auto add_products = [&](auto* first_tag) {
    add_product(first_tag, static_cast<ceres::SubsetManifold*>(nullptr));
    add_product(first_tag, static_cast<DynamicEuclideanManifold*>(nullptr));
  };
  add_products(static_cast<ceres::QuaternionManifold*>(nullptr));
  add_products(static_cast<ceres::EigenQuaternionManifold*>(nullptr));
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

namespace {

// Bounds of all blocks (`size` values) or of each: *of_all or *of_each.
void ReadBounds(const char* name,
                nb::handle bounds,
                const ArrayProblem::Parameters& parameters,
                const double** of_all,
                const double** of_each) {
  if (bounds.is_none()) {
    return;
  }
  const bool are_of_all = nb::hasattr(bounds, "ndim") &&
                          nb::cast<int64_t>(bounds.attr("ndim")) == 1;
  std::vector<int64_t> shape = {parameters.num_blocks, parameters.size};
  if (are_of_all) {
    shape.erase(shape.begin());
  }
  *(are_of_all ? of_all : of_each) = static_cast<const double*>(
      ReadArray(name, bounds, "float64", ARRAY_READ, &shape));
}

}  // namespace

int Problem::AddParameters(nb::object values,
                           nb::object constant,
                           nb::object manifold,
                           nb::object lower,
                           nb::object upper,
                           bool own) {
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
  parameters.is_own = own;
  if (!constant.is_none()) {
    shape.resize(1);
    parameters.is_constant = static_cast<const uint8_t*>(
        ReadArray("constant", constant, "bool", ARRAY_READ, &shape));
  }
  ReadBounds("lower",
             lower,
             parameters,
             &parameters.lower_bound,
             &parameters.lower_bounds);
  ReadBounds("upper",
             upper,
             parameters,
             &parameters.upper_bound,
             &parameters.upper_bounds);
  const char* const kManifold = "a manifold, a list of them, or None";
  std::vector<nb::object> kept = {values, constant, manifold, lower, upper};
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

namespace {

// "a", "b", ...
std::string List(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) {
    list += (list.empty() ? "" : ", ") + item;
  }
  return list;
}

// The different values of a text of the residuals, in their order.
std::vector<std::string> Values(const std::vector<const NamedResidual*>& all,
                                const char* NamedResidual::*text) {
  std::vector<std::string> values;
  for (const NamedResidual* residual : all) {
    if (residual->*text != nullptr &&
        std::find(values.begin(), values.end(), residual->*text) ==
            values.end()) {
      values.push_back(residual->*text);
    }
  }
  return values;
}

// Keeps the residuals whose text is the argument. None: `missing`.
void KeepThose(const std::string& name,
               const char* argument,
               const char* NamedResidual::*text,
               nb::handle value,
               const char* missing,
               std::vector<const NamedResidual*>* all) {
  const std::vector<std::string> values = Values(*all, text);
  if (values.empty()) {
    if (!value.is_none()) {
      throw ValueError(std::string(argument) + ": " + name +
                       " does not depend on it; expected None, found " +
                       Repr(value));
    }
    return;
  }
  const std::string wanted = value.is_none() ? missing : Str(value);
  if (std::find(values.begin(), values.end(), wanted) == values.end()) {
    throw ValueError(std::string(argument) + ": " +
                     (name.empty() ? "" : name + ": ") + "expected one of " +
                     List(values) + ", found " + Repr(value));
  }
  all->erase(std::remove_if(all->begin(),
                            all->end(),
                            [&](const NamedResidual* residual) {
                              return residual->*text != wanted;
                            }),
             all->end());
}

const NamedResidual& FindResidual(const std::string& name,
                                  nb::handle camera_model,
                                  nb::handle rotation,
                                  size_t num_blocks) {
  std::vector<const NamedResidual*> all;
  for (const NamedResidual& residual : NamedResiduals()) {
    all.push_back(&residual);
  }
  KeepThose("",
            "cost_function",
            &NamedResidual::name,
            nb::str(name.c_str()),
            "",
            &all);
  KeepThose(name,
            "rotation",
            &NamedResidual::rotation,
            rotation,
            "EIGEN_QUATERNION",
            &all);
  KeepThose(name,
            "camera_model",
            &NamedResidual::camera_model,
            camera_model,
            "",
            &all);
  std::string forms;
  for (const NamedResidual* residual : all) {
    if (residual->block_sizes.size() == num_blocks) {
      return *residual;
    }
    forms += (forms.empty() ? "" : " or ") +
             std::to_string(residual->block_sizes.size()) + " (" +
             List(residual->roles) + ")";
  }
  throw ValueError("blocks: " + name + ": expected " + forms + ", found " +
                   std::to_string(num_blocks));
}

template <typename Rotation>
std::unique_ptr<ceres::CostFunction> CreateMarginalPrior(
    int num_poses,
    const double* references,
    int num_residuals,
    const double* a,
    const double* b,
    std::string* error) {
  return MarginalPrior<Rotation>::Create(
      num_poses, references, num_residuals, a, b, error);
}

}  // namespace

void Problem::CheckBlocks(
    const std::string& name,
    const std::vector<std::string>& roles,
    const std::vector<int>& sizes,
    const std::vector<ArrayProblem::Index>& blocks) const {
  const auto num_arrays = static_cast<int>(arrays_.parameters().size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    const std::string place = "blocks[" + std::to_string(b) + "]: ";
    const int array = blocks[b].parameters;
    if (array < 0 || array >= num_arrays) {
      throw ValueError(place +
                       "expected a number that add_parameters returned, "
                       "found " +
                       std::to_string(array));
    }
    const int size = arrays_.parameters()[array].size;
    if (size != sizes[b]) {
      throw ValueError(place + name + ": expected parameters of shape (any, " +
                       std::to_string(sizes[b]) + ")" +
                       (roles.empty() ? "" : ", " + roles[b]) + ", found (" +
                       std::to_string(arrays_.parameters()[array].num_blocks) +
                       ", " + std::to_string(size) + ")");
    }
  }
}

std::vector<ArrayProblem::Index> Problem::ReadBlocks(
    nb::handle blocks, std::vector<nb::object>* kept) const {
  if (!nb::isinstance<nb::list>(blocks) && !nb::isinstance<nb::tuple>(blocks)) {
    throw TypeError("blocks: expected a list of (parameters, index), found " +
                    TypeOf(blocks));
  }
  std::vector<ArrayProblem::Index> indices;
  for (const nb::handle of_one : blocks) {
    ArrayProblem::Index block;
    if (!nb::isinstance<nb::tuple>(of_one) || nb::len(of_one) != 2 ||
        !nb::try_cast(of_one[0], block.parameters)) {
      throw TypeError("blocks[" + std::to_string(indices.size()) +
                      "]: expected (parameters, index), what add_parameters "
                      "returned and an array of int32 or None, found " +
                      Repr(of_one));
    }
    kept->push_back(of_one[1]);
    indices.push_back(block);
  }
  return indices;
}

ResidualType ResidualType::Find(nb::handle cost_function,
                                nb::handle camera_model,
                                nb::handle rotation,
                                size_t num_blocks) {
  ResidualType type;
  CompiledCostFunction* compiled = nullptr;
  if (nb::isinstance<nb::str>(cost_function)) {
    type.name = Str(cost_function);
    const NamedResidual& named =
        FindResidual(type.name, camera_model, rotation, num_blocks);
    type.named = &named;
    type.num_residuals = named.num_residuals;
    type.num_columns = named.num_columns;
    type.roles = named.roles;
    type.block_sizes = named.block_sizes;
    type.form.constants_bytes = named.constants_bytes;
    type.form.make_cost_function = named.make_cost_function;
    type.form.constants_are_of_model = named.constants_are_of_model;
    return type;
  }
  if (!nb::try_cast(cost_function, compiled)) {
    throw TypeError(
        "cost_function: expected a name or what compile_cost_function "
        "returned, found " +
        TypeOf(cost_function));
  }
  for (const auto& [argument, value] :
       {std::pair("camera_model", &camera_model),
        std::pair("rotation", &rotation)}) {
    if (!value->is_none()) {
      throw ValueError(std::string(argument) +
                       ": expected None with a compiled cost function, found " +
                       Repr(*value));
    }
  }
  const BatchModel& model = *compiled->model->model;
  type.name = compiled->functor;
  type.num_residuals = model.num_residuals;
  type.num_columns = compiled->model->num_data;
  type.block_sizes.assign(
      model.parameter_block_sizes,
      model.parameter_block_sizes + model.num_parameter_blocks);
  type.form.constants_bytes = model.constants_bytes;
  type.form.make_cost_function = compiled->model->make_cost_function;
  type.form.constants_are_of_model = true;
  if (type.block_sizes.size() != num_blocks) {
    throw ValueError("blocks: " + type.name + ": expected " +
                     std::to_string(type.block_sizes.size()) + ", found " +
                     std::to_string(num_blocks));
  }
  return type;
}

void ResidualType::CheckCovariances(nb::handle covariances) const {
  if (covariances.is_none()) {
    return;
  }
  if (named == nullptr) {
    throw ValueError(
        "covariances: expected None with a compiled cost function, found " +
        Repr(covariances));
  }
  if (named->information_begin == 0) {
    throw ValueError("covariances: " + name +
                     " has none; expected None, and weights of 1 / sigma^2");
  }
}

std::unique_ptr<double[]> ResidualType::Convert(const double* rows,
                                                int64_t num_rows,
                                                nb::handle covariances) const {
  if (num_columns == 0) {
    return std::make_unique<double[]>(num_rows);
  }
  const int n = num_residuals;
  const double* covariance = nullptr;
  int64_t stride = 0;
  if (!covariances.is_none()) {
    std::vector<int64_t> shape = {n, n};
    if (nb::hasattr(covariances, "ndim") &&
        !covariances.attr("ndim").equal(nb::int_(2))) {
      shape = {num_rows, n, n};
      stride = int64_t{n} * n;
    }
    covariance = static_cast<const double*>(
        ReadArray("covariances", covariances, "float64", ARRAY_READ, &shape));
  }
  const auto size = static_cast<int64_t>(form.constants_bytes / sizeof(double));
  auto all = std::make_unique<double[]>(size * num_rows);
  for (int64_t i = 0; i < num_rows; ++i) {
    double* const constants = all.get() + i * size;
    if (!named->convert(rows + i * num_columns, constants)) {
      throw ValueError(
          "observations: " + name +
          ": expected finite values, and quaternions that are not 0, found " +
          "others in row " + std::to_string(i));
    }
    if (named->information_begin > 0) {
      double* const information = constants + named->information_begin;
      std::string error;
      if (i > 0 && stride == 0) {
        std::copy_n(information - size, n * n, information);
      } else if (!SetInformation(
                     n,
                     covariance == nullptr ? nullptr : covariance + i * stride,
                     information,
                     &error)) {
        throw ValueError("covariances: of row " + std::to_string(i) + ": " +
                         error);
      }
    }
  }
  return all;
}

void Problem::ReadIndices(const std::vector<nb::object>& kept,
                          std::vector<int64_t> shape,
                          ArrayProblem::Residuals* residuals) {
  const size_t n = residuals->blocks.size();
  for (size_t b = 0; b < n; ++b) {
    const nb::object& index = kept[kept.size() - n + b];
    ArrayProblem::Index& block = residuals->blocks[b];
    if (!index.is_none()) {
      block.block = static_cast<const int32_t*>(
          ReadArray("blocks[" + std::to_string(b) + "][1]",
                    index,
                    "int32",
                    ARRAY_READ,
                    &shape,
                    &block.on_device));
    }
  }
}

void Problem::ReadWeights(nb::handle weights,
                          std::vector<int64_t> shape,
                          ArrayProblem::Residuals* residuals) {
  if (!weights.is_none()) {
    residuals->weights =
        static_cast<const double*>(ReadArray("weights",
                                             weights,
                                             "float64",
                                             ARRAY_READ,
                                             &shape,
                                             &residuals->weights_on_device));
  }
}

void Problem::AddResiduals(nb::object cost_function,
                           nb::object observations,
                           nb::object blocks,
                           nb::object camera_model,
                           nb::object rotation,
                           nb::object covariances,
                           nb::object loss,
                           nb::object weights) {
  CheckUnlocked();
  std::vector<nb::object> kept = {cost_function, observations, loss, weights};
  ArrayProblem::Residuals residuals;
  residuals.blocks = ReadBlocks(blocks, &kept);
  const ResidualType type = ResidualType::Find(
      cost_function, camera_model, rotation, residuals.blocks.size());
  CheckBlocks(type.name, type.roles, type.block_sizes, residuals.blocks);
  residuals.constants_bytes = type.form.constants_bytes;
  residuals.make_cost_function = type.form.make_cost_function;
  residuals.constants_are_of_model = type.form.constants_are_of_model;

  std::vector<int64_t> shape = {kAnyLength, type.num_columns};
  residuals.constants = ReadArray("observations",
                                  observations,
                                  "float64",
                                  ARRAY_READ,
                                  &shape,
                                  type.named != nullptr && type.IsConverted()
                                      ? nullptr
                                      : &residuals.constants_on_device);
  residuals.num_blocks = shape[0];
  shape.resize(1);
  ReadIndices(kept, shape, &residuals);
  residuals.loss = Unwrap<ceres::LossFunction>(
      "loss", loss, "a loss function of this module, or None");
  ReadWeights(weights, shape, &residuals);
  type.CheckCovariances(covariances);
  if (type.IsConverted()) {
    owned_.push_back(
        type.Convert(static_cast<const double*>(residuals.constants),
                     residuals.num_blocks,
                     covariances));
    residuals.constants = owned_.back().get();
    residuals.constants_on_device = false;
  }
  arrays_.AddResiduals(residuals);
  num_residuals_.push_back(type.num_residuals);
  kept_.insert(kept_.end(), kept.begin(), kept.end());
}

void Problem::AddMarginalPriors(nb::object references,
                                nb::object a,
                                nb::object b,
                                nb::object blocks,
                                nb::object rotation,
                                nb::object weights) {
  CheckUnlocked();
  std::vector<nb::object> kept = {weights};
  ArrayProblem::Residuals residuals;
  residuals.blocks = ReadBlocks(blocks, &kept);
  const auto num_poses = static_cast<int64_t>(residuals.blocks.size());
  if (num_poses == 0) {
    throw ValueError("blocks: expected a pose or more, found none");
  }
  const std::string of_poses =
      rotation.is_none() ? EigenQuaternion::kName : Str(rotation);
  const auto create =
      of_poses == EigenQuaternion::kName ? &CreateMarginalPrior<EigenQuaternion>
      : of_poses == Quaternion::kName    ? &CreateMarginalPrior<Quaternion>
      : of_poses == AngleAxis::kName     ? &CreateMarginalPrior<AngleAxis>
                                         : nullptr;
  if (create == nullptr) {
    throw ValueError(
        "rotation: expected one of EIGEN_QUATERNION, QUATERNION, ANGLE_AXIS, "
        "found " +
        Repr(rotation));
  }
  const int pose_size = of_poses == AngleAxis::kName ? 6 : 7;
  CheckBlocks("MarginalPrior",
              {},
              std::vector<int>(num_poses, pose_size),
              residuals.blocks);
  std::vector<int64_t> shape = {kAnyLength, num_poses, pose_size};
  const auto* const x_0 = static_cast<const double*>(
      ReadArray("references", references, "float64", ARRAY_READ, &shape));
  const int64_t num_priors = shape[0];
  shape = {num_priors, kAnyLength};
  const auto* const offset = static_cast<const double*>(
      ReadArray("b", b, "float64", ARRAY_READ, &shape));
  const int64_t num_residuals = shape[1];
  shape = {num_priors, num_residuals, 6 * num_poses};
  const auto* const matrix = static_cast<const double*>(
      ReadArray("a", a, "float64", ARRAY_READ, &shape));
  shape = {num_priors};
  residuals.num_blocks = num_priors;
  ReadIndices(kept, shape, &residuals);
  ReadWeights(weights, shape, &residuals);
  auto list = std::make_unique<ceres::CostFunction*[]>(num_priors);
  std::vector<std::unique_ptr<ceres::CostFunction>> made;
  for (int64_t i = 0; i < num_priors; ++i) {
    std::string error;
    made.push_back(create(static_cast<int>(num_poses),
                          x_0 + num_poses * pose_size * i,
                          static_cast<int>(num_residuals),
                          matrix + 6 * num_poses * num_residuals * i,
                          offset + num_residuals * i,
                          &error));
    if (made.back() == nullptr) {
      throw ValueError(error + "; of prior " + std::to_string(i));
    }
    list[i] = made.back().get();
  }
  residuals.cost_functions = list.get();
  arrays_.AddResiduals(residuals);
  num_residuals_.push_back(static_cast<int>(num_residuals));
  for (std::unique_ptr<ceres::CostFunction>& one : made) {
    cost_functions_.push_back(std::move(one));
  }
  cost_function_lists_.push_back(std::move(list));
  kept_.insert(kept_.end(), kept.begin(), kept.end());
}

void Problem::AddMarginal(const Marginal& marginal, nb::object blocks) {
  CheckUnlocked();
  if (marginal.prior == nullptr) {
    throw ValueError("marginal: expected one with a prior");
  }
  const BlockMarginalPrior& prior = *marginal.prior;
  std::vector<std::pair<int, int64_t>> pairs;
  if (blocks.is_none()) {
    for (const Marginal::Block& block : marginal.blocks) {
      pairs.emplace_back(block.parameters, block.block);
    }
  } else if (!nb::try_cast(blocks, pairs)) {
    throw TypeError("blocks: expected a list of (parameters, block), found " +
                    Repr(blocks));
  }
  if (pairs.size() != static_cast<size_t>(prior.num_blocks())) {
    throw ValueError("blocks: expected " + std::to_string(prior.num_blocks()) +
                     ", found " + std::to_string(pairs.size()));
  }
  ArrayProblem::Residuals residuals;
  auto numbers = std::make_unique<int32_t[]>(pairs.size());
  for (size_t b = 0; b < pairs.size(); ++b) {
    numbers[b] = static_cast<int32_t>(pairs[b].second);
    ArrayProblem::Index index;
    index.parameters = pairs[b].first;
    index.block = &numbers[b];
    residuals.blocks.push_back(index);
  }
  CheckBlocks("Marginal",
              {},
              std::vector<int>(prior.parameter_block_sizes().begin(),
                               prior.parameter_block_sizes().end()),
              residuals.blocks);
  for (size_t b = 0; b < pairs.size(); ++b) {
    const int64_t n = arrays_.parameters()[pairs[b].first].num_blocks;
    if (pairs[b].second < 0 || pairs[b].second >= n) {
      throw ValueError("blocks[" + std::to_string(b) + "]: expected 0 to " +
                       std::to_string(n - 1) + ", found " +
                       std::to_string(pairs[b].second));
    }
  }
  auto list = std::make_unique<ceres::CostFunction*[]>(1);
  list[0] = marginal.prior.get();
  residuals.num_blocks = 1;
  residuals.cost_functions = list.get();
  arrays_.AddResiduals(residuals);
  num_residuals_.push_back(prior.num_residuals());
  priors_.push_back(marginal.prior);
  numbers_.push_back(std::move(numbers));
  cost_function_lists_.push_back(std::move(list));
}

namespace {

// The type of the texts of all residuals, for type checkers.
std::string LiteralOf(const char* NamedResidual::*text) {
  std::vector<const NamedResidual*> all;
  for (const NamedResidual& residual : NamedResiduals()) {
    all.push_back(&residual);
  }
  std::vector<std::string> values = Values(all, text);
  for (std::string& value : values) {
    value = "'" + value + "'";
  }
  return "typing.Literal[" + List(values) + "]";
}

const char* const kAddResidualsDoc =
    R"(Adds n residual blocks of one cost function.

    problem.add_residuals(
        "ReprojectionError",
        pixels,
        [(points, point_index), (poses, image_index), (cameras, camera_index)],
        camera_model="OPENCV",
        loss=ceres_ext.HuberLoss(2.0),
    )

cost_function: what compile_cost_function returned, or a name. With each name:
the columns of `observations`, and the parameter blocks in their order. A pose
has 7 values, rotation then translation, 6 with ANGLE_AXIS; X_b = R X_a + t for
b_from_a. Lengths are in the unit of the points, angles in radians.

  BalReprojectionError            x y: camera (9), point (3)
  BalQuaternionReprojectionError  x y: camera (10), point
  ReprojectionError               x y: point, cam_from_world, camera; or
                                  rotation, translation, point, camera
  RigReprojectionError            x y: point, cam_from_rig, rig_from_world,
                                  camera
  ConstantRigReprojectionError    x y and the 7 values of cam_from_rig: point,
                                  rig_from_world, camera
  PositionPrior                   position of the camera in the world (3):
                                  cam_from_world; or rotation, translation
  PosePrior                       cam_from_world (7 or 6): cam_from_world; or
                                  rotation, translation
  RelativePosePrior               i_from_j (7 or 6): i_from_world,
                                  j_from_world; or rotation and translation of
                                  i, then of j
  PointPrior                      position of the point (3): point
  IntrinsicsPrior                 the k parameters of the camera, then the weight
                                  of each, 1 / sigma or 0 (2 k): camera
  DirectionError                  direction (3): center, point, scale (1)
  RigDirectionError               direction, place from the rig's center with
                                  the axes of the world (6): center of the rig,
                                  point, scale, scale of the rigs (1)
  SensorDirectionError            direction, world_from_rig row-major (12):
                                  center of the rig, point, scale, place in
                                  the rig (3)
  InertialError                   Preintegration.row() (194): world_from_body,
                                  speed and biases (9) of i, the same of j
  InverseDepthError               x y of the anchor, their velocities, x y and
                                  velocities of the image, weight (9):
                                  world_from_body of the anchor and of the
                                  image, body_from_camera, inverse depth (1),
                                  time offset (1)
  StereoInverseDepthError         the same of another camera: its
                                  body_from_camera is after the anchor's
  AnchorStereoInverseDepthError   the same at the anchor's keyframe: both
                                  body_from_camera, inverse depth, time offset
  SpeedAndBiasPrior               measured speed and biases (9): those
  PlanarMotionError               two directions and a point of the body, normal
                                  and height of the plane (13): world_from_body
  GnssPositionError               position of the antenna in the world (3):
                                  world_from_body, antenna in the body (3)

BAL: a camera has a rotation vector (or a quaternion w, x, y, z), translation,
focal length in pixels, k1, k2, and looks along its negative z axis: p = -P / P.z
with P = R X + t is seen at f (1 + k1 |p|^2 + k2 |p|^4) p. x and y are in pixels
from the image's centre.
Reprojection errors: projection minus (x, y), both in pixels. Images that name
the same camera share its intrinsics. Errors of poses are (log D, d), D the
rotation and d the translation of pose * measured pose^-1; that of a position is
measured minus estimated, that of a point estimated minus measured. Direction
errors are the direction minus the scale times the point relative to the camera;
each residual block has a scale of its own. Odometry: normalised images, and
velocity, gyroscope's and accelerometer's bias in a block of speed and biases.
ceres_ext/photogrammetry.h, odometry_errors.h, inverse_depth_errors.h,
odometry_priors.h and docs/photogrammetry.md have the details.

observations: (n, columns), float64.
blocks: for each parameter block (parameters, index): the number that
add_parameters returned, and for each residual block the number of its block
there, (n,), int32, or None: block i for residual block i.
camera_model: of reprojection errors and IntrinsicsPrior, the name that COLMAP gives it; a camera has
COLMAP's parameters. EQUIRECTANGULAR's must be constant, and
its errors in x take the shorter way around the seam.
rotation: EIGEN_QUATERNION (x, y, z, w; the default), QUATERNION (w, x, y, z) or
ANGLE_AXIS, of poses. Rigs and reprojection errors of poses in two blocks have
the default alone. Quaternions need a manifold: ProductManifold of
EigenQuaternionManifold() and EuclideanManifold(3) for a pose.
covariances: of priors, planar motion and GNSS, (n, k, k), or (k, k) for all; k
is 3, or 6 for poses (rotation first), or 9 for speed and biases. Default: the identity. PositionPrior's is in the world, those
of poses are in the frame on the left (camera, i).
loss: the loss of all residual blocks, or None for the squared residual.
weights: (n,), float64, >= 0, factors of the cost of each residual block; 1 /
sigma^2 gives residuals a standard deviation.

A device evaluates BAL, directions, odometry, and ReprojectionError and rigs with
the rotation EIGEN_QUATERNION (two blocks and rigs: the usual camera models
alone). The host evaluates all others meanwhile; Summary.path_reason says so.
Observations of priors, ConstantRigReprojectionError, PlanarMotionError and
GnssPositionError, and covariances, are copied here;
all other arrays are read when a solve begins.

TypeError: an array has another type. ValueError: it has another shape or is not
C-contiguous, a name is unknown, an argument does not belong to the name, or a
covariance is not positive definite. The message names the argument. A solve
checks what the arrays hold when it begins.)";

const char* const kAddMarginalDoc =
    R"(Adds the prior of a Marginal, what marginalize() returned.

blocks: (parameters, block) for each block of the prior; None: those of
marginal.blocks, if this problem has them at the same places.

The prior is on blocks of any sizes. solve_batch and WindowSolver solve windows
of poses with priors of poses whole; other solves evaluate it on the host.

TypeError and ValueError: the marginal has no prior, or blocks do not fit.)";

const char* const kAddMarginalPriorsDoc =
    R"(Adds k dense priors |A d + b|^2 / 2 on n poses each, d the difference of the
poses from x_0: what marginalised keyframes leave (ceres_ext/marginal_prior.h).

    # H = L L', the Schur complement of J'J on the poses at x_0; g that of J'r.
    l = numpy.linalg.cholesky(H)
    problem.add_marginal_priors(
        x_0[None], l.T[None].copy(), numpy.linalg.solve(l, g)[None],
        [(poses, numpy.array([i], numpy.int32)) for i in poses_of_prior])

references: (k, n, 7), float64, x_0: rotation, then translation; (k, n, 6) with
ANGLE_AXIS.
a: (k, m, 6 n), float64: 6 columns for each pose, those of the rotation first, in
radians; of a quaternion half the rotation vector.
b: (k, m), float64.
blocks: n times (parameters, index): as for add_residuals.
rotation: EIGEN_QUATERNION (the default), QUATERNION or ANGLE_AXIS.
weights: (k,), float64, >= 0, factors of the cost of each prior.

references, a and b are copied; the other arrays are read when a solve begins.
solve_batch and WindowSolver solve windows of poses with such priors whole; other
solves evaluate them on the host.

TypeError and ValueError: as for add_residuals, and a value that is not finite or
a quaternion that is 0.)";

}  // namespace

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
          "lower"_a = nb::none(),
          "upper"_a = nb::none(),
          "own"_a = false,
          nb::sig("def add_parameters(self, values: "
                  "numpy.typing.NDArray[numpy.float64], *, constant: "
                  "numpy.typing.NDArray[numpy.bool_] | None = None, manifold: "
                  "Manifold | collections.abc.Sequence[Manifold | None] | None "
                  "= None, lower: numpy.typing.NDArray[numpy.float64] | None = "
                  "None, upper: numpy.typing.NDArray[numpy.float64] | None = "
                  "None, own: bool = False) -> int"),
          "Adds n parameter blocks of `size` values; returns the number of the "
          "array, 0 for the first.\n\n"
          "values: (n, size), float64, C-contiguous, writable; a solve refines "
          "them where they are.\n"
          "constant: (n,), bool; where it is true the block is constant.\n"
          "manifold: that of all blocks, or a list or tuple of n, None for "
          "those without.\n"
          "lower, upper: bounds of the values, (size,) for all blocks or "
          "(n, size), float64; an infinity is none. Values that start beyond "
          "them are moved onto them first.\n"
          "own: with a communicator, each rank has blocks of its own, of which "
          "no residual block names two. One array has to be so, the points.\n\n"
          "TypeError: an array has another type. ValueError: it has another "
          "shape, is not C-contiguous or not writable.\n\n"
          "    points = problem.add_parameters(numpy.zeros((100, 3)))\n"
          "    poses = problem.add_parameters(\n"
          "        values, constant=numpy.arange(len(values)) == 0)")
      .def("add_residuals",
           &Problem::AddResiduals,
           "cost_function"_a.none(),
           "observations"_a.none(),
           "blocks"_a.none(),
           nb::kw_only(),
           "camera_model"_a = nb::none(),
           "rotation"_a = nb::none(),
           "covariances"_a = nb::none(),
           "loss"_a = nb::none(),
           "weights"_a = nb::none(),
           nb::sig(("def add_residuals(self, cost_function: " +
                    LiteralOf(&NamedResidual::name) +
                    " | CompiledCostFunction, observations: "
                    "numpy.typing.NDArray[numpy.float64], blocks: "
                    "collections.abc.Sequence[tuple[int, "
                    "numpy.typing.NDArray[numpy.int32] | None]], *, "
                    "camera_model: " +
                    LiteralOf(&NamedResidual::camera_model) +
                    " | None = None, rotation: " +
                    LiteralOf(&NamedResidual::rotation) +
                    " | None = None, covariances: "
                    "numpy.typing.NDArray[numpy.float64] | None = None, loss: "
                    "LossFunction | None = None, weights: "
                    "numpy.typing.NDArray[numpy.float64] | None = None) -> "
                    "None")
                       .c_str()),
           kAddResidualsDoc)
      .def("add_marginal_priors",
           &Problem::AddMarginalPriors,
           "references"_a.none(),
           "a"_a.none(),
           "b"_a.none(),
           "blocks"_a.none(),
           nb::kw_only(),
           "rotation"_a = nb::none(),
           "weights"_a = nb::none(),
           nb::sig(("def add_marginal_priors(self, references: "
                    "numpy.typing.NDArray[numpy.float64], a: "
                    "numpy.typing.NDArray[numpy.float64], b: "
                    "numpy.typing.NDArray[numpy.float64], blocks: "
                    "collections.abc.Sequence[tuple[int, "
                    "numpy.typing.NDArray[numpy.int32] | None]], *, "
                    "rotation: " +
                    LiteralOf(&NamedResidual::rotation) +
                    " | None = None, weights: "
                    "numpy.typing.NDArray[numpy.float64] | None = None) -> "
                    "None")
                       .c_str()),
           kAddMarginalPriorsDoc)
      .def("add_marginal",
           &Problem::AddMarginal,
           "marginal"_a,
           "blocks"_a.none() = nb::none(),
           nb::sig("def add_marginal(self, marginal: Marginal, blocks: "
                   "collections.abc.Sequence[tuple[int, int]] | None = None) "
                   "-> None"),
           kAddMarginalDoc);
}

}  // namespace ceres_ext::python
