// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.SlidingWindow.

#include "ceres_ext/sliding_window.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/module.h"
#include "python/src/options.h"
#include "python/src/problem.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// A window with what it refers to. One thread at a time has it: solves release
// the interpreter's lock.
class Window {
 public:
  Window(const SolverOptions* given, const nb::kwargs& values)
      : Window(OptionsOf(given, values)) {}

  int AddBlockKind(int size, nb::object manifold) {
    const Lock lock(this);
    ceres::Manifold* of_kind = nullptr;
    if (!manifold.is_none() && !nb::try_cast(manifold, of_kind)) {
      throw TypeError("manifold: expected a manifold or None, found " +
                      TypeOf(manifold));
    }
    std::string error;
    const int kind = window_.AddBlockKind(size, of_kind, &error);
    Expect(kind >= 0, error);
    sizes_.push_back(size);
    kept_.push_back(manifold);
    return kind;
  }

  int AddResidualKind(nb::object cost_function,
                      const std::vector<int>& blocks,
                      nb::object camera_model,
                      nb::object rotation,
                      nb::object loss) {
    const Lock lock(this);
    ResidualType type = ResidualType::Find(
        cost_function, camera_model, rotation, blocks.size());
    if (!loss.is_none() && !nb::try_cast(loss, type.form.loss)) {
      throw TypeError(
          "loss: expected a loss function of this module, or None, found " +
          TypeOf(loss));
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
      const int kind = blocks[b];
      if (kind >= 0 && kind < static_cast<int>(sizes_.size()) &&
          sizes_[kind] != type.block_sizes[b]) {
        throw ValueError("blocks[" + std::to_string(b) + "]: " + type.name +
                         ": expected blocks of " +
                         std::to_string(type.block_sizes[b]) + " values" +
                         (type.roles.empty() ? "" : ", " + type.roles[b]) +
                         ", found " + std::to_string(sizes_[kind]));
      }
    }
    std::string error;
    const int kind = window_.AddResidualKind(type.form, blocks, &error);
    Expect(kind >= 0, error);
    types_.push_back(type);
    kept_.push_back(cost_function);
    kept_.push_back(loss);
    return kind;
  }

  void AddBlock(int kind, int64_t number, nb::object values, bool constant) {
    const Lock lock(this);
    const double* const from = ReadValues(kind, values);
    std::string error;
    Expect(window_.AddBlock(kind, number, from, &error), error);
    if (constant) {
      Expect(window_.SetConstant(kind, number, true, &error), error);
    }
  }

  void SetConstant(int kind, int64_t number, bool constant) {
    const Lock lock(this);
    std::string error;
    Expect(window_.SetConstant(kind, number, constant, &error), error);
  }

  nb::object Values(int kind, int64_t number) const {
    const Lock lock(this);
    const double* const values = Find(kind, number);
    return MakeArray(std::vector<double>(values, values + sizes_[kind]), 0);
  }

  void SetValues(int kind, int64_t number, nb::object values) {
    const Lock lock(this);
    const double* const from = ReadValues(kind, values);
    double* const to = const_cast<double*>(Find(kind, number));
    for (int j = 0; j < sizes_[kind]; ++j) {
      to[j] = from[j];
    }
  }

  void AddResiduals(int kind,
                    nb::object observations,
                    nb::object blocks,
                    nb::object covariances,
                    nb::object weights) {
    const Lock lock(this);
    if (kind < 0 || kind >= static_cast<int>(types_.size())) {
      throw ValueError(
          "kind: expected what add_residual_kind returned, found " +
          std::to_string(kind));
    }
    const ResidualType& type = types_[kind];
    std::vector<int64_t> shape = {kAnyLength, type.num_columns};
    const void* constants =
        ReadArray("observations", observations, "float64", ARRAY_READ, &shape);
    const int64_t n = shape[0];
    shape = {n, static_cast<int64_t>(type.block_sizes.size())};
    const auto* const numbers = static_cast<const int64_t*>(
        ReadArray("blocks", blocks, "int64", ARRAY_READ, &shape));
    const double* of_weights = nullptr;
    if (!weights.is_none()) {
      shape = {n};
      of_weights = static_cast<const double*>(
          ReadArray("weights", weights, "float64", ARRAY_READ, &shape));
    }
    type.CheckCovariances(covariances);
    std::unique_ptr<double[]> converted;
    if (type.IsConverted()) {
      converted =
          type.Convert(static_cast<const double*>(constants), n, covariances);
      constants = converted.get();
    }
    std::string error;
    Expect(window_.AddResiduals(kind,
                                n,
                                constants,
                                type.form.constants_bytes,
                                numbers,
                                of_weights,
                                &error),
           error);
  }

  void WantCovariance(int kind, int64_t number, bool wanted) {
    const Lock lock(this);
    std::string error;
    Expect(window_.WantCovariance(kind, number, wanted, &error), error);
  }

  void Drop(int kind, int64_t number) {
    const Lock lock(this);
    std::string error;
    Expect(window_.Drop(kind, number, &error), error);
  }
  void Cut(int kind, int64_t number) {
    const Lock lock(this);
    std::string error;
    Expect(window_.Cut(kind, number, &error), error);
  }
  void CutResiduals(int residual_kind, int kind, int64_t number) {
    const Lock lock(this);
    std::string error;
    Expect(window_.CutResiduals(residual_kind, kind, number, &error), error);
  }

  BatchSummary Solve() {
    const Lock lock(this);
    BatchSummary summary;
    std::string error;
    bool is_done = false;
    {
      const nb::gil_scoped_release no_gil;
      is_done = window_.Solve(&summary, &error);
    }
    Expect(is_done, error);
    return summary;
  }

  std::vector<int64_t> Numbers(int kind) const {
    const Lock lock(this);
    return window_.Numbers(kind);
  }
  int64_t NumResiduals(int kind) const { return window_.NumResiduals(kind); }
  int64_t NumPriors() const { return window_.NumPriors(); }

 private:
  class Lock {
   public:
    explicit Lock(const Window* window) : window_(window) {
      if (window->is_in_use_) {
        throw ValueError("SlidingWindow: another thread uses it");
      }
      window->is_in_use_ = true;
    }
    ~Lock() { window_->is_in_use_ = false; }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const Window* const window_;
  };

  explicit Window(const SolverOptions& options) : window_(options, options) {}

  static void Expect(bool success, const std::string& error) {
    if (!success) {
      throw ValueError(error);
    }
  }

  const double* ReadValues(int kind, nb::handle values) const {
    if (kind < 0 || kind >= static_cast<int>(sizes_.size())) {
      throw ValueError("kind: expected what add_block_kind returned, found " +
                       std::to_string(kind));
    }
    std::vector<int64_t> shape = {sizes_[kind]};
    return static_cast<const double*>(
        ReadArray("values", values, "float64", ARRAY_READ, &shape));
  }

  const double* Find(int kind, int64_t number) const {
    const double* const values = window_.Values(kind, number);
    if (values == nullptr) {
      throw ValueError("expected a block of the window, found kind " +
                       std::to_string(kind) + ", number " +
                       std::to_string(number));
    }
    return values;
  }

  SlidingWindow window_;
  std::vector<int> sizes_;
  std::vector<ResidualType> types_;
  std::vector<nb::object> kept_;
  mutable bool is_in_use_ = false;
};

}  // namespace

void AddSlidingWindow(nb::module_* module) {
  nb::class_<Window>(
      *module,
      "SlidingWindow",
      "The window of an odometry or SLAM system from keyframe to keyframe\n"
      "(ceres_ext/sliding_window.h): blocks and residual blocks are added, "
      "the\n"
      "window is solved, and its oldest blocks are dropped with the prior "
      "that\n"
      "they leave. The caller numbers blocks as it likes.\n\n"
      "    window = ceres_ext.SlidingWindow(max_num_iterations=8)\n"
      "    poses = window.add_block_kind(7, manifold)\n"
      "    speeds = window.add_block_kind(9)\n"
      "    inertial = window.add_residual_kind(\n"
      "        \"InertialError\", [poses, speeds, poses, speeds])\n"
      "    window.add_block(poses, k, pose)\n"
      "    window.add_residuals(\n"
      "        inertial, increment.row()[None], numpy.array([[j, j, k, k]]))\n"
      "    window.drop(poses, k - 10)\n"
      "    window.solve()\n"
      "    window.values(poses, k)\n\n"
      "Arguments that are not valid raise ValueError or TypeError and change\n"
      "nothing. One thread at a time may call its methods.")
      .def(nb::init<const SolverOptions*, const nb::kwargs&>(),
           "options"_a.none() = nb::none(),
           "values"_a,
           "options, values: of each solve, as for solve().")
      .def("add_block_kind",
           &Window::AddBlockKind,
           "size"_a,
           "manifold"_a.none() = nb::none(),
           nb::sig("def add_block_kind(self, size: int, manifold: Manifold | "
                   "None = None) -> int"),
           "Parameter blocks of `size` values with one manifold. Returns the\n"
           "number of the kind, 0 for the first.")
      .def(
          "add_residual_kind",
          &Window::AddResidualKind,
          "cost_function"_a,
          "blocks"_a,
          nb::kw_only(),
          "camera_model"_a.none() = nb::none(),
          "rotation"_a.none() = nb::none(),
          "loss"_a.none() = nb::none(),
          nb::sig("def add_residual_kind(self, cost_function: str | "
                  "CompiledCostFunction, blocks: "
                  "collections.abc.Sequence[int], *, camera_model: str | None "
                  "= None, rotation: str | None = None, loss: LossFunction | "
                  "None = None) -> int"),
          "Residual blocks of one type. Returns the number of the kind, 0 for\n"
          "the first.\n\n"
          "cost_function, camera_model, rotation, loss: as of\n"
          "ArrayProblem.add_residuals. blocks: the kind of each block.")
      .def("add_block",
           &Window::AddBlock,
           "kind"_a,
           "number"_a,
           "values"_a,
           "constant"_a = false,
           nb::sig("def add_block(self, kind: int, number: int, values: "
                   "numpy.typing.NDArray[numpy.float64], constant: bool = "
                   "False) -> None"),
           "values: (size of the kind,); copied. constant: it does not vary.")
      .def("set_constant",
           &Window::SetConstant,
           "kind"_a,
           "number"_a,
           "constant"_a)
      .def("values",
           &Window::Values,
           "kind"_a,
           "number"_a,
           nb::sig("def values(self, kind: int, number: int) -> "
                   "numpy.typing.NDArray[numpy.float64]"),
           "A copy of a block's values.")
      .def("set_values",
           &Window::SetValues,
           "kind"_a,
           "number"_a,
           "values"_a,
           nb::sig("def set_values(self, kind: int, number: int, values: "
                   "numpy.typing.NDArray[numpy.float64]) -> None"))
      .def("add_residuals",
           &Window::AddResiduals,
           "kind"_a,
           "observations"_a,
           "blocks"_a,
           nb::kw_only(),
           "covariances"_a.none() = nb::none(),
           "weights"_a.none() = nb::none(),
           nb::sig("def add_residuals(self, kind: int, observations: "
                   "numpy.typing.NDArray[numpy.float64], blocks: "
                   "numpy.typing.NDArray[numpy.int64], *, covariances: "
                   "numpy.typing.NDArray[numpy.float64] | None = None, "
                   "weights: numpy.typing.NDArray[numpy.float64] | None = "
                   "None) -> None"),
           "observations, covariances, weights: as of\n"
           "ArrayProblem.add_residuals; copied. blocks: (n, blocks of a\n"
           "residual block), the numbers of the blocks.")
      .def(
          "want_covariance",
          &Window::WantCovariance,
          "kind"_a,
          "number"_a,
          "wanted"_a = true,
          "solve().covariances[0] has the covariance of the block from now on.")
      .def("drop",
           &Window::Drop,
           "kind"_a,
           "number"_a,
           "The next solve() drops the block at its solution, and leaves a\n"
           "prior of the residual blocks that depend on it.")
      .def("cut",
           &Window::Cut,
           "kind"_a,
           "number"_a,
           "Removes a block with its residual blocks, without a trace.\n"
           "ValueError: a prior is on the block.")
      .def("cut_residuals",
           &Window::CutResiduals,
           "residual_kind"_a,
           "kind"_a,
           "number"_a,
           "Removes the residual blocks of one kind that depend on a block.")
      .def(
          "solve",
          &Window::Solve,
          "Solves the window and drops what is marked. Returns a BatchSummary\n"
          "of one problem, whose `marginals` has the prior; blocks there have "
          "their\n"
          "numbers.\n\n"
          "ValueError: an option or a value is not valid, or there is no\n"
          "usable solution; nothing is dropped then.")
      .def("numbers",
           &Window::Numbers,
           "kind"_a,
           "Numbers of a kind's blocks, in the order in which they were added.")
      .def("num_residuals", &Window::NumResiduals, "residual_kind"_a)
      .def_prop_ro("num_priors", &Window::NumPriors);
}

}  // namespace ceres_ext::python
