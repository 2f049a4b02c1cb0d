// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/options.h"

#include <algorithm>
#include <cctype>
#include <new>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ceres_ext/front/option_table.h"
#include "cuda_kernels/machine/host_processors.h"
#include "nanobind/stl/string.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

using Class = nb::class_<SolverOptions>;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

std::string Join(const ValueNames& names) {
  std::string list;
  for (const char* name : names) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

// The type of an option of a few values, for type checkers: its names in upper
// and in lower case.
std::string LiteralType(const ValueNames& names) {
  std::string list;
  for (const char* name : names) {
    const std::string lower = Lower(name);
    list += (list.empty() ? "'" : ", '") + std::string(name) + "'";
    if (lower != name) {
      list += ", '" + lower + "'";
    }
  }
  return "typing.Literal[" + list + "]";
}

// An option of a few values, by their names in any case.
template <typename Get, typename Set>
void AddNames(Class* options,
              const char* name,
              const ValueNames& names,
              const Get& get,
              const Set& set,
              const std::string& doc) {
  const std::string type = LiteralType(names);
  const std::string signature = "def " + std::string(name) + "(self";
  options->def_prop_rw(
      name,
      get,
      set,
      nb::for_getter(nb::sig((signature + ") -> " + type).c_str())),
      nb::for_setter(
          nb::sig((signature + ", value: " + type + ") -> None").c_str())),
      ("Default " + get(SolverOptions()) + ", one of " + Join(names) +
       ", in upper or lower case." + (doc.empty() ? "" : " ") + doc)
          .c_str());
}

template <typename Enum>
void AddEnum(Class* options,
             const char* name,
             Enum ceres::Solver::Options::*member,
             const char* (*to_string)(Enum),
             const std::vector<Enum>& values,
             const std::string& doc) {
  ValueNames names;
  for (const Enum value : values) {
    names.push_back(to_string(value));
  }
  AddNames(
      options,
      name,
      names,
      [=](const SolverOptions& self) {
        return std::string(to_string(self.*member));
      },
      [=](SolverOptions& self, const std::string& text) {
        for (const Enum value : values) {
          if (Lower(to_string(value)) == Lower(text)) {
            self.*member = value;
            return;
          }
        }
        throw ValueError(std::string(name) + ": expected one of " +
                         Join(names) + ", found " + text);
      },
      doc);
}

// An option that is a number, a truth value or a string.
template <typename Owner, typename T>
void AddValue(Class* options,
              const char* name,
              T Owner::*member,
              const std::string& doc = "") {
  options->def_rw(name,
                  member,
                  ("Default " + Repr(nb::cast(SolverOptions().*member)) + "." +
                   (doc.empty() ? "" : " ") + doc)
                      .c_str());
}

void AddCeresOptions(Class* options) {
  using Stock = ceres::Solver::Options;
  AddEnum(options,
          "trust_region_strategy_type",
          &Stock::trust_region_strategy_type,
          &ceres::TrustRegionStrategyTypeToString,
          {ceres::LEVENBERG_MARQUARDT, ceres::DOGLEG},
          "");
  AddEnum(options,
          "dogleg_type",
          &Stock::dogleg_type,
          &ceres::DoglegTypeToString,
          {ceres::TRADITIONAL_DOGLEG, ceres::SUBSPACE_DOGLEG},
          "");
  AddEnum(
      options,
      "linear_solver_type",
      &Stock::linear_solver_type,
      &ceres::LinearSolverTypeToString,
      {ceres::DENSE_NORMAL_CHOLESKY,
       ceres::DENSE_QR,
       ceres::SPARSE_NORMAL_CHOLESKY,
       ceres::DENSE_SCHUR,
       ceres::SPARSE_SCHUR,
       ceres::ITERATIVE_SCHUR,
       ceres::CGNR},
      "Ceres's default differs. This library supports all but DENSE_QR, with "
      "which stock Ceres solves. That needs an object for each block.");
  AddEnum(options,
          "preconditioner_type",
          &Stock::preconditioner_type,
          &ceres::PreconditionerTypeToString,
          {ceres::IDENTITY,
           ceres::JACOBI,
           ceres::SCHUR_JACOBI,
           ceres::SCHUR_POWER_SERIES_EXPANSION,
           ceres::CLUSTER_JACOBI,
           ceres::CLUSTER_TRIDIAGONAL},
          "Stock Ceres solves with the last two.");
  AddEnum(options,
          "visibility_clustering_type",
          &Stock::visibility_clustering_type,
          &ceres::VisibilityClusteringTypeToString,
          {ceres::CANONICAL_VIEWS, ceres::SINGLE_LINKAGE},
          "");
  AddEnum(options,
          "dense_linear_algebra_library_type",
          &Stock::dense_linear_algebra_library_type,
          &ceres::DenseLinearAlgebraLibraryTypeToString,
          {ceres::EIGEN, ceres::LAPACK, ceres::CUDA},
          "");
  AddEnum(options,
          "sparse_linear_algebra_library_type",
          &Stock::sparse_linear_algebra_library_type,
          &ceres::SparseLinearAlgebraLibraryTypeToString,
          {ceres::SUITE_SPARSE,
           ceres::EIGEN_SPARSE,
           ceres::ACCELERATE_SPARSE,
           ceres::CUDA_SPARSE,
           ceres::NO_SPARSE},
          "");
  AddEnum(options,
          "linear_solver_ordering_type",
          &Stock::linear_solver_ordering_type,
          &ceres::LinearSolverOrderingTypeToString,
          {ceres::AMD, ceres::NESDIS},
          "");
  AddValue(options, "max_num_iterations", &Stock::max_num_iterations);
  AddValue(options,
           "max_solver_time_in_seconds",
           &Stock::max_solver_time_in_seconds);
  options->def_rw(
      "num_threads",
      &Stock::num_threads,
      "The default is one per processor, unlike Ceres's. Results do not depend "
      "on it if this library solves (Summary.path FULL).");
  AddValue(options,
           "function_tolerance",
           &Stock::function_tolerance,
           "The solve ends if the cost changes by less, relative to the cost.");
  AddValue(options,
           "gradient_tolerance",
           &Stock::gradient_tolerance,
           "The solve ends if no component of the gradient is larger.");
  AddValue(options,
           "parameter_tolerance",
           &Stock::parameter_tolerance,
           "The solve ends if a step is shorter, relative to the parameters.");
  AddValue(options,
           "initial_trust_region_radius",
           &Stock::initial_trust_region_radius);
  AddValue(options, "max_trust_region_radius", &Stock::max_trust_region_radius);
  AddValue(options, "min_trust_region_radius", &Stock::min_trust_region_radius);
  AddValue(options, "min_relative_decrease", &Stock::min_relative_decrease);
  AddValue(options, "min_lm_diagonal", &Stock::min_lm_diagonal);
  AddValue(options, "max_lm_diagonal", &Stock::max_lm_diagonal);
  AddValue(options,
           "max_num_consecutive_invalid_steps",
           &Stock::max_num_consecutive_invalid_steps);
  AddValue(options, "use_nonmonotonic_steps", &Stock::use_nonmonotonic_steps);
  AddValue(options,
           "max_consecutive_nonmonotonic_steps",
           &Stock::max_consecutive_nonmonotonic_steps);
  AddValue(options,
           "eta",
           &Stock::eta,
           "Accuracy of PCG; smaller values are more accurate and slower.");
  AddValue(options,
           "min_linear_solver_iterations",
           &Stock::min_linear_solver_iterations);
  AddValue(options,
           "max_linear_solver_iterations",
           &Stock::max_linear_solver_iterations);
  AddValue(options, "max_num_spse_iterations", &Stock::max_num_spse_iterations);
  AddValue(options, "use_spse_initialization", &Stock::use_spse_initialization);
  AddValue(options, "spse_tolerance", &Stock::spse_tolerance);
  AddValue(options, "jacobi_scaling", &Stock::jacobi_scaling);
  AddValue(options,
           "use_explicit_schur_complement",
           &Stock::use_explicit_schur_complement);
  AddValue(options, "dynamic_sparsity", &Stock::dynamic_sparsity);
  AddValue(options,
           "use_mixed_precision_solves",
           &Stock::use_mixed_precision_solves);
  AddValue(options,
           "max_num_refinement_iterations",
           &Stock::max_num_refinement_iterations);
  AddValue(options, "use_inner_iterations", &Stock::use_inner_iterations);
  AddValue(
      options, "inner_iteration_tolerance", &Stock::inner_iteration_tolerance);
  AddValue(options,
           "minimizer_progress_to_stdout",
           &Stock::minimizer_progress_to_stdout,
           "Prints a line for each iteration on the process's standard output, "
           "which a notebook does not show; a callback can print too.");
  AddValue(options,
           "update_state_every_iteration",
           &Stock::update_state_every_iteration,
           "If true, the arrays hold the current state in each call of the "
           "callback; otherwise they hold the start until the solve ends.");
  AddValue(options, "check_gradients", &Stock::check_gradients);
  AddValue(options,
           "gradient_check_relative_precision",
           &Stock::gradient_check_relative_precision);
  AddValue(options,
           "gradient_check_numeric_derivative_relative_step_size",
           &Stock::gradient_check_numeric_derivative_relative_step_size);
}

void AddExtOptions(Class* options) {
  for (const OptionRow& row : OptionTable()) {
    std::visit(
        [&](const auto& field) {
          if constexpr (std::is_same_v<std::decay_t<decltype(field)>,
                                       EnumField>) {
            AddNames(
                options,
                row.name,
                field.names,
                [&field](const SolverOptions& self) {
                  return std::string(field.names[field.get(self)]);
                },
                [&row](SolverOptions& self, const std::string& text) {
                  std::string error;
                  if (!row.Set(text, &self, &error)) {
                    throw ValueError(error);
                  }
                },
                row.sentence);
          } else {
            AddValue(options, row.name, field, row.sentence);
          }
        },
        row.field);
  }
}

// Sets an attribute, with errors that name it.
void SetOption(nb::handle options, nb::handle name, nb::handle value) {
  if (PyObject_GenericSetAttr(options.ptr(), name.ptr(), value.ptr()) == 0) {
    const std::string set = Str(name);
    if (set == "linear_solver_type" || set == "preconditioner_type") {
      nb::cast<SolverOptions*>(options)->linear_solver = LINEAR_SOLVER_AS_GIVEN;
    }
    return;
  }
  const nb::python_error error;
  const std::string option = Str(name);
  if (error.matches(PyExc_AttributeError)) {
    throw TypeError(
        option + ": unknown option; help(ceres_ext.SolverOptions) lists all");
  }
  if (error.matches(PyExc_TypeError)) {
    throw TypeError(option + ": expected a value of type " +
                    TypeOf(options.attr(name)) + ", found " + Repr(value));
  }
  throw error;
}

}  // namespace

SolverOptions::SolverOptions() {
  linear_solver_type = ceres::ITERATIVE_SCHUR;
  linear_solver = LINEAR_SOLVER_AUTO;
  num_threads = kernels::NumUsableProcessors();
}

void SolverOptions::Check() const {
  std::string error;
  if (!ceres::Solver::Options::IsValid(&error) ||
      !ceres_ext::Options::IsValid(&error)) {
    throw ValueError(error);
  }
}

void SetOptions(const nb::dict& values, SolverOptions* options) {
  const nb::object object = nb::cast(options, nb::rv_policy::reference);
  for (const auto [name, value] : values) {
    SetOption(object, name, value);
  }
}

void AddOptions(nb::module_* module) {
  Class options(
      *module,
      "SolverOptions",
      "The fields of ceres::Solver::Options and of ceres_ext::Options.\n\n"
      "Defaults are Ceres's except linear_solver_type and num_threads. "
      "linear_solver is AUTO until linear_solver_type or preconditioner_type "
      "is set, which makes it AS_GIVEN. Not available: orderings, the SUBSET "
      "preconditioner, line search and dumping of problems, which name blocks "
      "or need a ceres::Problem. solve checks whether options go together.\n\n"
      "TypeError: an option is unknown or has another type. ValueError: a "
      "string is not one of the choices.");
  options.def(
      "__init__",
      [](SolverOptions* self, const nb::kwargs& values) {
        new (self) SolverOptions();
        SolverOptions given;
        SetOptions(values, &given);
        *self = given;
      },
      "values"_a,
      nb::sig("def __init__(self, **values: object) -> None"));
  options.def("__setattr__",
              &SetOption,
              "name"_a,
              "value"_a.none(),
              nb::sig("def __setattr__(self, name: str, value: object) -> "
                      "None"));
  AddCeresOptions(&options);
  AddExtOptions(&options);
  AddToDict(&options);
  options.def("__repr__", [](nb::handle self) {
    const nb::object defaults = nb::cast(SolverOptions());
    std::string list;
    for (const nb::handle name : PropertiesOf(self.type())) {
      const nb::object value = nb::getattr(self, name);
      if (!value.equal(nb::getattr(defaults, name))) {
        list += (list.empty() ? "" : ", ") + Str(name) + "=" + Repr(value);
      }
    }
    return "SolverOptions(" + list + ")";
  });
  options.def("__getstate__", &ToDict);
  options.def("__setstate__", [](SolverOptions* self, const nb::dict& values) {
    SolverOptions given;
    SetOptions(values, &given);
    new (self) SolverOptions(given);
  });
}

SolverOptions OptionsOf(const SolverOptions* given, const nb::kwargs& values) {
  SolverOptions options = given != nullptr ? *given : SolverOptions();
  SetOptions(values, &options);
  options.Check();
  return options;
}

}  // namespace ceres_ext::python
