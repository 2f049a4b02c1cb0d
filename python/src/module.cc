// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext._ceres_ext, the compiled part of the package.

#include "python/src/module.h"

#include "ceres_ext/cuda_libraries.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"

namespace nb = nanobind;

namespace ceres_ext::python {
namespace {

nb::object ToPlain(nb::handle value) {
  if (nb::isinstance<nb::list>(value)) {
    nb::list plain;
    for (const nb::handle item : value) {
      plain.append(ToPlain(item));
    }
    return plain;
  }
  return nb::hasattr(value, "to_dict") ? nb::object(ToDict(value))
                                       : nb::borrow(value);
}

}  // namespace

nb::list PropertiesOf(nb::handle type) {
  nb::list names;
  const nb::object property = nb::module_::import_("builtins").attr("property");
  for (const nb::handle base : nb::tuple(type.attr("__mro__"))) {
    for (const nb::handle item : base.attr("__dict__").attr("items")()) {
      if (nb::isinstance(item[1], property)) {
        names.append(item[0]);
      }
    }
  }
  return names;
}

nb::dict ToDict(nb::handle object) {
  nb::dict values;
  for (const nb::handle name : PropertiesOf(object.type())) {
    values[name] = ToPlain(nb::getattr(object, name));
  }
  return values;
}

}  // namespace ceres_ext::python

NB_MODULE(_ceres_ext, module) {
  // Objects that live until the interpreter ends are not an error of the
  // program.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = CERES_EXT_VERSION;
  module.def("_set_cuda_library_folders", &ceres_ext::SetCudaLibraryFolders);
  ceres_ext::python::AddCompiled(&module);
  ceres_ext::python::AddProblem(&module);
  ceres_ext::python::AddOptions(&module);
  ceres_ext::python::AddSolve(&module);
  ceres_ext::python::AddBatch(&module);
  ceres_ext::python::AddSlidingWindow(&module);
  ceres_ext::python::AddCovariance(&module);
  ceres_ext::python::AddOdometry(&module);
  ceres_ext::python::AddBalFile(&module);
  ceres_ext::python::AddColmap(&module);
  ceres_ext::python::AddColmapMirror(&module);
}
