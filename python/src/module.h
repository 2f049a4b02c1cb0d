// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The parts of the module, and how they refuse what they can't take.

#ifndef PYTHON_SRC_MODULE_H_
#define PYTHON_SRC_MODULE_H_

#include <string>
#include <vector>

#include "nanobind/nanobind.h"

namespace ceres_ext::python {

// TypeError and ValueError, to be thrown.
inline nanobind::builtin_exception TypeError(const std::string& message) {
  return nanobind::type_error(message.c_str());
}
inline nanobind::builtin_exception ValueError(const std::string& message) {
  return nanobind::value_error(message.c_str());
}

// ArithmeticError, which nanobind has no name for.
inline nanobind::python_error ArithmeticError(const std::string& message) {
  PyErr_SetString(PyExc_ArithmeticError, message.c_str());
  return nanobind::python_error();
}

// str(object), repr(object) and the name of the object's type.
inline std::string Str(nanobind::handle object) {
  return nanobind::str(object).c_str();
}
inline std::string Repr(nanobind::handle object) {
  return Str(nanobind::repr(object));
}
inline std::string TypeOf(nanobind::handle object) {
  return Str(nanobind::type_name(object.type()));
}

// The names of the properties of a type and of those it derives from, without
// methods.
nanobind::list PropertiesOf(nanobind::handle type);
// The values of an object's properties by name, those of objects of this module
// as dictionaries too.
nanobind::dict ToDict(nanobind::handle object);

// The method to_dict of a class.
template <typename Class>
void AddToDict(Class* of_class) {
  of_class->def("to_dict",
                &ToDict,
                nanobind::sig("def to_dict(self) -> dict[str, typing.Any]"),
                "All attributes by name, as plain values.");
}
// The same, and pickle: what comes back is a SavedSummary with the results of
// these methods, which take no arguments.
template <typename Class>
void AddSummaryMethods(Class* of_class, std::vector<std::string> methods) {
  AddToDict(of_class);
  of_class->def("__reduce__", [methods](nanobind::handle self) {
    nanobind::dict results;
    for (const std::string& method : methods) {
      results[method.c_str()] = self.attr(method.c_str())();
    }
    return nanobind::make_tuple(
        nanobind::module_::import_("ceres_ext").attr("SavedSummary"),
        nanobind::make_tuple(ToDict(self), results));
  });
}

void AddCompiled(nanobind::module_* module);
void AddProblem(nanobind::module_* module);
void AddOptions(nanobind::module_* module);
void AddSolve(nanobind::module_* module);
void AddBatch(nanobind::module_* module);
void AddSlidingWindow(nanobind::module_* module);
void AddCovariance(nanobind::module_* module);
void AddOdometry(nanobind::module_* module);
void AddBalFile(nanobind::module_* module);
void AddColmap(nanobind::module_* module);
void AddColmapMirror(nanobind::module_* module);

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_MODULE_H_
