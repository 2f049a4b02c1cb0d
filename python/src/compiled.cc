// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/compiled.h"

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

class LoadedCostFunction final : public BatchableCostFunction {
 public:
  LoadedCostFunction(const CompiledModel* model, const void* constants)
      : model_(model), constants_((Bytes() + 7) / 8) {
    std::memcpy(constants_.data(), constants, Bytes());
    const BatchModel& batch = *model->model;
    set_num_residuals(batch.num_residuals);
    mutable_parameter_block_sizes()->assign(
        batch.parameter_block_sizes,
        batch.parameter_block_sizes + batch.num_parameter_blocks);
  }

  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const override {
    return model_->evaluate(
        constants_.data(), parameters, residuals, jacobians);
  }
  const BatchModel& batch_model() const override { return *model_->model; }
  void CopyConstants(void* constants) const override {
    std::memcpy(constants, constants_.data(), Bytes());
  }

 private:
  size_t Bytes() const {
    return static_cast<size_t>(model_->model->constants_bytes);
  }

  const CompiledModel* model_;
  std::vector<double> constants_;
};

CompiledCostFunction Load(const std::string& functor,
                          const std::string& path,
                          const std::string& host_only_reason) {
  // Never closed: problems keep pointers into it.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto get = library == nullptr
                       ? nullptr
                       : reinterpret_cast<CompiledModel* (*)()>(dlsym(
                             library, "ceres_ext_compiled_cost_function"));
  if (get == nullptr) {
    throw nb::import_error(dlerror());
  }
  CompiledModel* const model = get();
  model->factory = [](const CompiledModel* of,
                      const void* constants) -> ceres::CostFunction* {
    return new LoadedCostFunction(of, constants);
  };
  return {functor, host_only_reason, model};
}

std::vector<int> BlockSizes(const CompiledCostFunction& self) {
  const BatchModel& model = *self.model->model;
  return {model.parameter_block_sizes,
          model.parameter_block_sizes + model.num_parameter_blocks};
}

}  // namespace

void AddCompiled(nb::module_* module) {
  using Self = CompiledCostFunction;
  nb::class_<Self>(*module,
                   "CompiledCostFunction",
                   "A cost function for ArrayProblem.add_residuals, made by "
                   "compile_cost_function.")
      .def_prop_ro(
          "functor",
          [](const Self& self) { return self.functor; },
          "The name of the functor.")
      .def_prop_ro(
          "num_residuals",
          [](const Self& self) { return self.model->model->num_residuals; },
          "Residuals of a residual block.")
      .def_prop_ro(
          "block_sizes", &BlockSizes, "Values of each parameter block.")
      .def_prop_ro(
          "num_data",
          [](const Self& self) { return self.model->num_data; },
          "Columns of `observations`: the doubles that the functor holds.")
      .def_prop_ro(
          "has_device_form",
          [](const Self& self) {
            return self.model->model->GetForm(FormKind::kRows) != nullptr;
          },
          "True if a device evaluates it, otherwise the host.")
      .def_prop_ro(
          "host_only_reason",
          [](const Self& self) { return self.host_only_reason; },
          "The reason why it has no device form; empty if it has one.")
      .def("__repr__", [](const Self& self) {
        std::string sizes;
        for (const int size : BlockSizes(self)) {
          sizes += ", " + std::to_string(size);
        }
        return "<ceres_ext.CompiledCostFunction " + self.functor + ", " +
               std::to_string(self.model->model->num_residuals) + sizes + ">";
      });
  module->def("_load_cost_function",
              &Load,
              "functor"_a,
              "path"_a,
              "host_only_reason"_a);
}

}  // namespace ceres_ext::python
