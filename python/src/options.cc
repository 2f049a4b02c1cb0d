// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/options.h"

#include <algorithm>
#include <cctype>
#include <new>
#include <string>
#include <vector>

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

// An option of a few values, by their names in any case.
template <typename Owner, typename Enum>
void AddEnum(Class* options,
             const char* name,
             Enum Owner::*member,
             const char* (*to_string)(Enum),
             const std::vector<Enum>& values,
             const std::string& doc) {
  std::string choices;
  for (const Enum value : values) {
    choices += (choices.empty() ? "" : ", ") + std::string(to_string(value));
  }
  options->def_prop_rw(
      name,
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
        throw ValueError(std::string(name) + ": expected one of " + choices +
                         ", found " + text);
      },
      ("Default " + std::string(to_string(SolverOptions().*member)) +
       ", one of " + choices + ", in upper or lower case." +
       (doc.empty() ? "" : " ") + doc)
          .c_str());
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
  AddEnum(options,
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
          "Ceres's default is another one. This library has ITERATIVE_SCHUR "
          "and CGNR and, on a device, the exact steps of DENSE_SCHUR and "
          "SPARSE_SCHUR. With the others, and without a device, Ceres solves, "
          "which needs an object for each block.");
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
          "The last two are Ceres's alone.");
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
      "Default: one for each processor, not Ceres's. Results do not "
      "depend on it where this library solves (Summary.path FULL).");
  AddValue(
      options,
      "function_tolerance",
      &Stock::function_tolerance,
      "The solve ends where the cost changes by less, relative to the cost.");
  AddValue(options,
           "gradient_tolerance",
           &Stock::gradient_tolerance,
           "The solve ends where no component of the gradient is larger.");
  AddValue(
      options,
      "parameter_tolerance",
      &Stock::parameter_tolerance,
      "The solve ends where a step is shorter, relative to the parameters.");
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
           "How far PCG solves for a step: less is further, and longer.");
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
  AddValue(
      options,
      "minimizer_progress_to_stdout",
      &Stock::minimizer_progress_to_stdout,
      "A line for each iteration, on the process's standard output, which a "
      "notebook does not show; a callback can print too.");
  AddValue(options,
           "update_state_every_iteration",
           &Stock::update_state_every_iteration,
           "The arrays hold the state of the iteration in each call of the "
           "callback; "
           "else they hold that of the start until the solve ends.");
  AddValue(options, "check_gradients", &Stock::check_gradients);
  AddValue(options,
           "gradient_check_relative_precision",
           &Stock::gradient_check_relative_precision);
  AddValue(options,
           "gradient_check_numeric_derivative_relative_step_size",
           &Stock::gradient_check_numeric_derivative_relative_step_size);
}

void AddExtOptions(Class* options) {
  using Ext = ceres_ext::Options;
  AddEnum(options,
          "device",
          &Ext::device,
          &DeviceTypeToString,
          {DEVICE_AUTO, DEVICE_HOST, DEVICE_CUDA},
          "Where the solve runs. AUTO: on a CUDA device where there is one and "
          "the problem is large enough to gain by it. Summary.device says "
          "where, and why on the host.");
  AddEnum(
      options,
      "jacobian",
      &Ext::jacobian,
      &JacobianTypeToString,
      {JACOBIAN_AUTO, JACOBIAN_STORED, JACOBIAN_RECOMPUTED},
      "RECOMPUTED is the fastest on a device and takes the least memory; it "
      "takes losses but TolerantLoss and, on points, no manifold but "
      "SubsetManifold. AUTO: there, where that holds.");
  AddEnum(options,
          "precision",
          &Ext::precision,
          &PrecisionTypeToString,
          {PRECISION_DOUBLE, PRECISION_MIXED},
          "MIXED: blocks in float on a device, all else in double.");
  AddEnum(options,
          "preconditioner_blocks",
          &Ext::preconditioner_blocks,
          &PreconditionerBlocksTypeToString,
          {PRECONDITIONER_BLOCKS_SINGLE, PRECONDITIONER_BLOCKS_MERGED},
          "MERGED: parameter blocks that occur only together are one block of "
          "the preconditioner.");
  AddEnum(options,
          "fallback",
          &Ext::fallback,
          &FallbackTypeToString,
          {FALLBACK_TO_CERES, FALLBACK_REFUSE},
          "What happens to what this library does not support.");
  AddEnum(options,
          "linear_solver",
          &Ext::linear_solver,
          &LinearSolverChoiceToString,
          {LINEAR_SOLVER_AS_GIVEN,
           LINEAR_SOLVER_ITERATIVE_SCHUR,
           LINEAR_SOLVER_CGNR},
          "In place of linear_solver_type.");
  AddEnum(options,
          "schur_factorization",
          &Ext::schur_factorization,
          &SchurFactorizationTypeToString,
          {SCHUR_FACTORIZATION_AUTO,
           SCHUR_FACTORIZATION_DENSE,
           SCHUR_FACTORIZATION_SPARSE},
          "Of DENSE_SCHUR and SPARSE_SCHUR on a device.");
  AddEnum(options,
          "forcing_sequence",
          &Ext::forcing_sequence,
          &ForcingSequenceTypeToString,
          {FORCING_SEQUENCE_AUTO,
           FORCING_SEQUENCE_CONSTANT,
           FORCING_SEQUENCE_MODEL_COST,
           FORCING_SEQUENCE_EISENSTAT_WALKER},
          "The accuracy of a step's solve. AUTO: MODEL_COST where PCG "
          "replaces a factorisation or has merged blocks, else CONSTANT. "
          "CONSTANT: eta, as in Ceres. "
          "MODEL_COST: eta, and more accurate where a step takes most of the "
          "linear model's cost away. EISENSTAT_WALKER: from eta down to eta / "
          "100, as fast as the gradient falls.");
  AddValue(options,
           "model_cost_tolerance",
           &Ext::model_cost_tolerance,
           "With eta below 0.1 a step's solve ends with 0.1 where less than "
           "this times the cost is left to gain; 0 or below: never.");
  AddEnum(
      options,
      "cuda_graph",
      &Ext::cuda_graph,
      &CudaGraphTypeToString,
      {CUDA_GRAPH_AUTO, CUDA_GRAPH_ON, CUDA_GRAPH_OFF},
      "PCG as a CUDA graph, which pays for small problems. AUTO: after a "
      "hundred iterations without, unless a profiler, sanitizer or debugger "
      "is found at the process.");
  AddEnum(options,
          "preconditioner",
          &Ext::preconditioner,
          &PreconditionerChoiceToString,
          {PRECONDITIONER_AS_GIVEN,
           PRECONDITIONER_IDENTITY,
           PRECONDITIONER_JACOBI,
           PRECONDITIONER_SCHUR_JACOBI,
           PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION},
          "In place of preconditioner_type.");
  AddValue(options, "enabled", &Ext::enabled, "False: Ceres alone solves.");
  AddValue(options,
           "batch_evaluation",
           &Ext::batch_evaluation,
           "False: Ceres evaluates the residual blocks.");
  AddValue(options,
           "report",
           &Ext::report,
           "A file to which one line of JSON is appended about each solve, or "
           "'stderr'; '': none.");
  AddValue(
      options, "cuda_device", &Ext::cuda_device, "The number of the device.");
  AddValue(
      options,
      "cuda_memory_limit_bytes",
      &Ext::cuda_memory_limit_bytes,
      "Most bytes that all solves of the process may hold on the device at "
      "once; 0: what the device has.");
}

// What an attribute is set to, with errors that name it.
void SetOption(nb::handle options, nb::handle name, nb::handle value) {
  if (PyObject_GenericSetAttr(options.ptr(), name.ptr(), value.ptr()) == 0) {
    return;
  }
  const nb::python_error error;
  const std::string option = Str(name);
  if (error.matches(PyExc_AttributeError)) {
    throw TypeError(option +
                    ": there is no such option; help(ceres_ext.SolverOptions) "
                    "lists them");
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
  num_threads = kernels::NumUsableProcessors();
}

void SolverOptions::Check() const {
  std::string error;
  if (!ceres::Solver::Options::IsValid(&error) ||
      !ceres_ext::Options::IsValid(&error)) {
    throw ValueError(error);
  }
}

void SetOptions(const nb::kwargs& values, SolverOptions* options) {
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
      "Defaults are Ceres's but for linear_solver_type and num_threads. Left "
      "out "
      "is what names blocks or needs a ceres::Problem: orderings, the SUBSET "
      "preconditioner, line search, dumping of problems. solve checks whether "
      "options go together.\n\n"
      "TypeError: there is no such option, or it has another type. ValueError: "
      "a "
      "string is none of the choices.");
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
}

}  // namespace ceres_ext::python
