// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Models of COLMAP as views of arrays, and their bundle adjustment.
// The package ceres_ext/colmap has what users call.

#include "python/src/colmap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/camera_intrinsics.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "examples/colmap/colmap_origin.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/model_arrays.h"
#include "examples/colmap/position_priors.h"
#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "python/src/array.h"
#include "python/src/callback.h"
#include "python/src/module.h"
#include "python/src/options.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// Marks the model while it lives.
class Solving {
 public:
  explicit Solving(ColmapModel* model) : model_(model) {
    model_->is_solving = true;
  }
  ~Solving() { model_->is_solving = false; }
  Solving(const Solving&) = delete;
  Solving& operator=(const Solving&) = delete;

 private:
  ColmapModel* model_;
};

// The model has the state of each iteration.
class StateCallback : public ceres::IterationCallback {
 public:
  explicit StateCallback(const colmap::ModelArrays* arrays) : arrays_(arrays) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& /*summary*/) override {
    arrays_->Store();
    return ceres::SOLVER_CONTINUE;
  }

 private:
  const colmap::ModelArrays* arrays_;
};

using Self = nb::handle_t<ColmapModel>;
using Class = nb::class_<ColmapModel>;

// A property that is a view of `columns` values of type T, or of one where that
// is 0, of each item of a vector; get returns the first of an item.
template <typename T, typename Item, typename Get>
void AddView(Class* model,
             const char* name,
             std::vector<Item> colmap::Model::*items,
             size_t columns,
             const Get& get,
             const char* doc) {
  static_assert(sizeof(Item) % sizeof(T) == 0);
  model->def_prop_ro(
      name,
      [=](Self self) {
        std::vector<Item>& all = nb::cast<ColmapModel&>(self).model.*items;
        const size_t shape[] = {all.size(), columns};
        const int64_t strides[] = {sizeof(Item) / sizeof(T), 1};
        return nb::ndarray<nb::numpy, T>(
            all.empty()
                ? nullptr
                : const_cast<void*>(static_cast<const void*>(get(&all[0]))),
            columns == 0 ? 1 : 2,
            shape,
            self,
            strides);
      },
      doc);
}

// A property that is an array of its own, with a row for each f(row).
template <typename T, typename Values>
void AddCopy(Class* model,
             const char* name,
             size_t columns,
             const Values& values,
             const char* doc) {
  model->def_prop_ro(
      name,
      [=](ColmapModel& self) {
        std::vector<T> all;
        values(&self.model, &all);
        return MakeArray(std::move(all), columns);
      },
      nb::sig(("def " + std::string(name) +
               "(self) -> numpy.typing.NDArray[numpy." +
               (sizeof(T) == 8 && std::is_floating_point_v<T> ? "float64"
                : sizeof(T) == 8                              ? "int64"
                : std::is_signed_v<T>                         ? "int32"
                                                              : "uint32") +
               "]")
                  .c_str()),
      doc);
}

void AddCameras(Class* model) {
  using colmap::Camera;
  const auto cameras = &colmap::Model::cameras;
  AddView<const uint32_t>(
      model,
      "camera_ids",
      cameras,
      0,
      [](Camera* camera) { return &camera->id; },
      "(num_cameras,)");
  model->def_prop_ro(
      "camera_models",
      [](const ColmapModel& self) {
        std::vector<std::string> names;
        for (const Camera& camera : self.model.cameras) {
          names.emplace_back(camera.model->name);
        }
        return names;
      },
      "Names of COLMAP, as PINHOLE.");
  AddView<const int64_t>(
      model,
      "camera_sizes",
      cameras,
      2,
      [](Camera* camera) { return &camera->width; },
      "(num_cameras, 2): width and height in pixels.");
  AddView<double>(
      model,
      "camera_params",
      cameras,
      kMaxCameraParams,
      [](Camera* camera) { return camera->params; },
      "(num_cameras, 16), writable: the parameters of the camera model in "
      "COLMAP's order, then zeros.");
}

void AddImages(Class* model) {
  using colmap::Image;
  const auto images = &colmap::Model::images;
  AddView<const uint32_t>(
      model,
      "image_ids",
      images,
      0,
      [](Image* image) { return &image->id; },
      "(num_images,)");
  AddView<const int32_t>(
      model,
      "image_cameras",
      images,
      0,
      [](Image* image) { return &image->camera; },
      "(num_images,): numbers of cameras, from 0.");
  AddView<const int32_t>(
      model,
      "image_frames",
      images,
      0,
      [](Image* image) { return &image->frame; },
      "(num_images,): numbers of frames, or -1 without frames.");
  AddView<const int32_t>(
      model,
      "image_sensors",
      images,
      0,
      [](Image* image) { return &image->sensor; },
      "(num_images,): -1 for the reference sensor of a rig, otherwise the "
      "number of the other sensor in its rig.");
  AddView<double>(
      model,
      "image_poses",
      images,
      7,
      [](Image* image) { return image->pose; },
      "(num_images, 7), writable: cam_from_world, quaternion x, y, z, w, then "
      "translation. The pose of a frame is that of its image of the reference "
      "sensor. Poses of images of other sensors follow from it.");
  model->def_prop_ro(
      "image_names",
      [](const ColmapModel& self) {
        nb::list names;
        for (const Image& image : self.model.images) {
          names.append(nb::steal(PyUnicode_DecodeFSDefaultAndSize(
              image.name.data(), static_cast<Py_ssize_t>(image.name.size()))));
        }
        return names;
      },
      nb::sig("def image_names(self) -> list[str]"),
      "File names.");
  AddCopy<int64_t>(
      model,
      "points2d_begin",
      0,
      [](colmap::Model* model, std::vector<int64_t>* begin) {
        begin->push_back(0);
        for (const Image& image : model->images) {
          begin->push_back(image.points2d_end);
        }
      },
      "(num_images + 1,), a copy: image i has the 2D points from number "
      "points2d_begin[i] to points2d_begin[i + 1] - 1.");
  model->def_prop_ro(
      "points2d",
      [](Self self) {
        std::vector<double>& all = nb::cast<ColmapModel&>(self).model.points2d;
        return nb::ndarray<nb::numpy, double, nb::shape<-1, 2>>(
            all.data(), {all.size() / 2, 2}, self);
      },
      "(num_points2d, 2), writable: x and y in pixels from the upper left "
      "corner of the image.");
  model->def_prop_ro(
      "point_index",
      [](Self self) {
        std::vector<int32_t>& all =
            nb::cast<ColmapModel&>(self).model.point_index;
        return nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>>(
            all.data(), {all.size()}, self);
      },
      "(num_points2d,): the number of the point that is seen there, from 0, or "
      "-1.");
}

void AddPoints(Class* model) {
  using colmap::Point3D;
  const auto points = &colmap::Model::points;
  AddView<const int64_t>(
      model,
      "point_ids",
      points,
      0,
      [](Point3D* point) { return &point->id; },
      "(num_points,)");
  AddView<double>(
      model,
      "points",
      points,
      3,
      [](Point3D* point) { return point->xyz; },
      "(num_points, 3), writable: X, Y and Z.");
  AddView<double>(
      model,
      "errors",
      points,
      0,
      [](Point3D* point) { return &point->error; },
      "(num_points,), writable: mean reprojection errors in pixels, -1 if "
      "unknown.");
  AddView<uint8_t>(
      model,
      "colors",
      points,
      3,
      [](Point3D* point) { return point->color; },
      "(num_points, 3), writable: red, green and blue.");
}

void AddRigs(Class* model) {
  using Model = colmap::Model;
  AddCopy<uint32_t>(
      model,
      "frame_ids",
      0,
      [](Model* model, std::vector<uint32_t>* ids) {
        for (const colmap::Frame& frame : model->frames) {
          ids->push_back(frame.id);
        }
      },
      "(num_frames,), a copy.");
  AddCopy<double>(
      model,
      "frame_poses",
      7,
      [](Model* model, std::vector<double>* poses) {
        for (size_t i = 0; i < model->frames.size(); ++i) {
          const double* pose =
              colmap::FramePose(*model, static_cast<int32_t>(i));
          poses->insert(poses->end(), pose, pose + 7);
        }
      },
      "(num_frames, 7), a copy: rig_from_world, as image_poses.");
  // Sensors other than the reference, rig by rig.
  const auto for_each_sensor = [](Model* model, const auto& f) {
    for (const colmap::Rig& rig : model->rigs) {
      for (const colmap::RigSensor& sensor : rig.sensors) {
        f(rig, sensor);
      }
    }
  };
  AddCopy<uint32_t>(
      model,
      "sensor_rig_ids",
      0,
      [=](Model* model, std::vector<uint32_t>* ids) {
        for_each_sensor(model, [&](const auto& rig, const auto& /*sensor*/) {
          ids->push_back(rig.id);
        });
      },
      "(num_sensors,), a copy: the rigs of all sensors that are not the "
      "reference of their rig.");
  AddCopy<uint32_t>(
      model,
      "sensor_camera_ids",
      0,
      [=](Model* model, std::vector<uint32_t>* ids) {
        for_each_sensor(model, [&](const auto& /*rig*/, const auto& sensor) {
          ids->push_back(model->cameras[sensor.camera].id);
        });
      },
      "(num_sensors,), a copy: the cameras of these sensors.");
  AddCopy<double>(
      model,
      "sensor_poses",
      7,
      [=](Model* model, std::vector<double>* poses) {
        for_each_sensor(model, [&](const auto& /*rig*/, const auto& sensor) {
          for (const double value : sensor.pose) {
            poses->push_back(sensor.has_pose
                                 ? value
                                 : std::numeric_limits<double>::quiet_NaN());
          }
        });
      },
      "(num_sensors, 7), a copy: their sensor_from_rig, as image_poses; NaN if "
      "unknown.");
}

ColmapModel* ReadModel(const std::string& folder) {
  auto* const model = new ColmapModel;
  std::string error;
  bool is_read = false;
  {
    const nb::gil_scoped_release no_gil;
    is_read = colmap::ReadModel(folder, &model->model, &error);
  }
  if (!is_read) {
    delete model;
    throw ValueError(error);
  }
  return model;
}

void CheckIdle(const ColmapModel& model) {
  if (model.is_solving) {
    throw ValueError("the model is being solved");
  }
}

void WriteModel(const ColmapModel& model, const std::string& folder) {
  CheckIdle(model);
  std::string error;
  if (!colmap::WriteModel(folder, model.model, &error)) {
    PyErr_SetString(PyExc_OSError, error.c_str());
    nb::raise_python_error();
  }
}

// numpy's bool by index, or empty of None.
std::vector<bool> Flags(const char* name, nb::handle array, size_t size) {
  if (array.is_none()) {
    return {};
  }
  std::vector<int64_t> shape = {static_cast<int64_t>(size)};
  const bool* const flags =
      static_cast<bool*>(ReadArray(name, array, "bool", ARRAY_READ, &shape));
  return std::vector<bool>(flags, flags + size);
}

// images: indices into Model::images. offset: place of the antenna, which is
// expected at `expected`, or None.
void MakePositions(colmap::PositionPriors* positions,
                   nb::object images,
                   nb::object places,
                   nb::object covariances,
                   double loss_scale,
                   nb::object offset,
                   nb::object expected,
                   double antenna_sigma) {
  std::vector<int64_t> shape = {kAnyLength};
  const auto* const image = static_cast<int32_t*>(
      ReadArray("images", images, "int32", ARRAY_READ, &shape));
  const int64_t n = shape[0];
  shape = {n, 3};
  const auto* const place = static_cast<double*>(
      ReadArray("positions", places, "float64", ARRAY_READ, &shape));
  shape = {n, 3, 3};
  const auto* const covariance = static_cast<double*>(
      ReadArray("covariances", covariances, "float64", ARRAY_READ, &shape));
  colmap::PositionPriors made;
  made.loss_scale = loss_scale;
  for (int64_t i = 0; i < n; ++i) {
    colmap::PositionPriors::Prior& prior = made.priors.emplace_back();
    prior.image = image[i];
    std::copy_n(place + 3 * i, 3, prior.position);
    std::string error;
    if (!std::all_of(prior.position, prior.position + 3, [](double x) {
          return std::isfinite(x);
        })) {
      throw ValueError("positions: expected finite numbers, found others in " +
                       std::to_string(i));
    }
    if (!SquareRootInformation<3>(
            covariance + 9 * i, prior.sqrt_information, &error)) {
      throw ValueError("covariances: " + std::to_string(i) + ": " + error);
    }
  }
  if (!offset.is_none()) {
    shape = {3};
    const auto* const start = static_cast<double*>(
        ReadArray("antenna_offset", offset, "float64", ARRAY_READ, &shape));
    const auto* const prior = static_cast<double*>(
        ReadArray("antenna_offset", expected, "float64", ARRAY_READ, &shape));
    made.has_antenna = true;
    for (int i = 0; i < 3; ++i) {
      made.antenna_from_rig[4 + i] = -start[i];
      made.expected_place[i] = prior[i];
    }
    made.antenna_sigma = antenna_sigma;
  }
  new (positions) colmap::PositionPriors(std::move(made));
}

// True if a window takes less time than Solve (docs/measurements/mapping.md):
// few images vary, and no camera that varies has several of them.
bool IsSmall(const colmap::Model& model,
             const colmap::ProblemSelection& selection) {
  constexpr size_t kMostImages = 12;
  size_t num_images = 0;
  std::vector<int> num_images_of_camera(model.cameras.size(), 0);
  for (size_t i = 0; i < model.images.size(); ++i) {
    const int32_t camera = model.images[i].camera;
    if (!selection.images.empty() && !selection.images[i]) {
      continue;
    }
    if (++num_images > kMostImages || (++num_images_of_camera[camera] > 1 &&
                                       (selection.constant_cameras.empty() ||
                                        !selection.constant_cameras[camera]))) {
      return false;
    }
  }
  return true;
}

// Solves the problem as a window, or as Solve if it is not one.
void SolveAsWindow(SolverOptions options,
                   ArrayProblem* problem,
                   Summary* summary) {
  // A window has no callbacks. It ends within milliseconds.
  options.callbacks.clear();
  ProblemBatch batch;
  batch.problem = *problem;
  batch.num_problems = 1;
  std::vector<std::array<int64_t, 2>> ends;
  for (const ArrayProblem::Parameters& parameters : problem->parameters()) {
    ends.push_back({0, parameters.num_blocks});
  }
  for (const ArrayProblem::Residuals& residuals : problem->residuals()) {
    ends.push_back({0, residuals.num_blocks});
  }
  for (const std::array<int64_t, 2>& end : ends) {
    (batch.parameter_begin.size() < problem->parameters().size()
         ? batch.parameter_begin
         : batch.residual_begin)
        .push_back(end.data());
  }
  BatchSummary of_batch;
  std::vector<Summary> summaries;
  if (SolveBatch(options, options, &batch, &of_batch, nullptr, &summaries)) {
    *summary = std::move(summaries[0]);
  } else {
    Solve(options, options, problem, summary);
  }
}

// may_be_window: without callbacks, a small problem is solved as a window.
// selection: the arrays of ProblemSelection in their order. Returns the summary
// (camera id, 0 or 1 for fx or fy, start, end) of runaway focal lengths, and
// (point id, image id, depth, error) of runaway observations.
nb::tuple AdjustModel(ColmapModel* model,
                      const colmap::ProblemOptions& problem_options,
                      const SolverOptions& given,
                      const std::vector<nb::object>& selected,
                      colmap::PositionPriors* positions,
                      nb::object callback,
                      bool may_be_window) {
  CheckIdle(*model);
  colmap::Model& m = model->model;
  colmap::ProblemSelection selection;
  const struct {
    const char* name;
    std::vector<bool>* flags;
    size_t size;
  } kArrays[] = {
      {"images", &selection.images, m.images.size()},
      {"constant_poses", &selection.constant_poses, m.images.size()},
      {"constant_cameras", &selection.constant_cameras, m.cameras.size()},
      {"constant_sensors", &selection.constant_sensors, m.cameras.size()},
      {"added_points", &selection.added_points, m.points.size()},
      {"constant_points", &selection.constant_points, m.points.size()}};
  if (selected.size() != std::size(kArrays)) {
    throw ValueError("selection: expected 6 arrays");
  }
  for (size_t i = 0; i < selected.size(); ++i) {
    *kArrays[i].flags = Flags(kArrays[i].name, selected[i], kArrays[i].size);
  }
  for (size_t i = 0; positions != nullptr && i < positions->priors.size();
       ++i) {
    const int32_t image = positions->priors[i].image;
    if (image < 0 || static_cast<size_t>(image) >= m.images.size()) {
      throw ValueError("positions: expected numbers of images, found " +
                       std::to_string(image));
    }
  }
  for (const colmap::Camera& camera : m.cameras) {
    const auto found = problem_options.expected_intrinsics.find(camera.id);
    const int size = camera.model->num_params;
    if (found != problem_options.expected_intrinsics.end() &&
        found->second.size() != static_cast<size_t>(size)) {
      throw ValueError("expected_intrinsics: camera " +
                       std::to_string(camera.id) + ": expected " +
                       std::to_string(size) + " numbers, found " +
                       std::to_string(found->second.size()));
    }
  }
  if (const std::string pole =
          colmap::FindPole(m, problem_options.min_track_length);
      !pole.empty()) {
    throw ValueError(pole);
  }
  SolverOptions options = given;
  options.Check();
  PythonCallback python_callback(callback);
  options.callbacks.push_back(&python_callback);
  may_be_window = may_be_window && callback.is_none() &&
                  !options.update_state_every_iteration;
  Summary summary;
  std::vector<colmap::RunawayFocalLength> runaways;
  std::vector<colmap::RunawayObservation> observations;
  const Solving solving(model);
  {
    const nb::gil_scoped_release no_gil;
    const std::vector<colmap::Camera> start = m.cameras;
    double origin[3];
    std::optional<colmap::MovedModel> moved;
    if (colmap::IsFar(m, origin)) {
      moved.emplace(origin, &m);
      if (positions != nullptr) {
        positions->MoveOrigin(origin);
      }
    }
    colmap::ModelArrays arrays(problem_options, selection, &m, positions);
    StateCallback state_callback(&arrays);
    if (options.update_state_every_iteration) {
      options.callbacks.insert(options.callbacks.begin(), &state_callback);
    }
    if (may_be_window && IsSmall(m, selection)) {
      SolveAsWindow(options, arrays.problem(), &summary);
    } else {
      Solve(options, options, arrays.problem(), &summary);
    }
    arrays.Store();
    colmap::SetPosesOfSensors(&m);
    observations = colmap::FindRunawayObservations(
        summary,
        [&arrays](const RunawayResidual::Block& block) {
          return arrays.PlaceOf(block);
        },
        m);
    if (moved.has_value()) {
      const auto varying = arrays.FindVarying();
      moved->MoveBack(
          [&varying](const double* block) { return varying.count(block) > 0; },
          &m);
    }
    runaways = colmap::FindRunawayFocalLengths(start, m);
  }
  python_callback.RethrowIfRaised();
  nb::list focal_lengths;
  for (const colmap::RunawayFocalLength& runaway : runaways) {
    focal_lengths.append(nb::make_tuple(
        runaway.camera_id, runaway.index, runaway.start, runaway.end));
  }
  nb::list runaway_observations;
  for (const colmap::RunawayObservation& runaway : observations) {
    runaway_observations.append(nb::make_tuple(
        runaway.point_id, runaway.image_id, runaway.depth, runaway.trial));
  }
  return nb::make_tuple(
      std::move(summary), focal_lengths, runaway_observations);
}

nb::object ImgFromCam(const std::string& name,
                      nb::object params,
                      nb::object points) {
  const colmap::CameraModelInfo* const info = colmap::FindCameraModel(name);
  if (info == nullptr) {
    throw ValueError("camera_model: expected one of " +
                     colmap::CameraModelNames() + ", found " + name);
  }
  std::vector<int64_t> num_params = {info->num_params};
  std::vector<int64_t> num_points = {kAnyLength, 3};
  const double* const k = static_cast<double*>(
      ReadArray("params", params, "float64", ARRAY_READ, &num_params));
  const double* const p = static_cast<double*>(
      ReadArray("points", points, "float64", ARRAY_READ, &num_points));
  std::vector<double> pixels(2 * num_points[0],
                             std::numeric_limits<double>::quiet_NaN());
  ForEachCameraModel([&](auto camera_model) {
    if (camera_model.kModelId == info->id) {
      for (int64_t i = 0; i < num_points[0]; ++i) {
        decltype(camera_model)::ImgFromCam(k, p + 3 * i, &pixels[2 * i]);
      }
    }
  });
  return MakeArray(std::move(pixels), 2);
}

nb::tuple IntrinsicsBounds(const std::string& name,
                           double width,
                           double height,
                           const colmap::ProblemOptions& options) {
  const colmap::CameraModelInfo* const info = colmap::FindCameraModel(name);
  if (info == nullptr) {
    throw ValueError("camera_model: expected one of " +
                     colmap::CameraModelNames() + ", found " + name);
  }
  std::vector<double> lower(info->num_params);
  std::vector<double> upper(info->num_params);
  ForEachCameraModel([&](auto camera_model) {
    if (camera_model.kModelId == info->id) {
      SetIntrinsicsBounds<decltype(camera_model)>(
          options.intrinsics_limits, width, height, lower.data(), upper.data());
    }
  });
  return nb::make_tuple(MakeArray(std::move(lower), 0),
                        MakeArray(std::move(upper), 0));
}

}  // namespace

void AddColmap(nb::module_* module) {
  Class model(
      *module,
      "ColmapModel",
      "A sparse model of COLMAP (ceres_ext.colmap.read). Arrays are views "
      "of the model unless they say that they are copies; items have the "
      "order of the files.");
  AddCameras(&model);
  AddImages(&model);
  AddPoints(&model);
  AddRigs(&model);
  model.def_prop_rw(
      "format",
      [](const ColmapModel& self) {
        return self.model.format == colmap::MODEL_TEXT ? "TXT" : "BIN";
      },
      [](ColmapModel& self, const std::string& format) {
        if (format != "TXT" && format != "BIN") {
          throw ValueError("format: expected TXT or BIN, found " + format);
        }
        self.model.format =
            format == "TXT" ? colmap::MODEL_TEXT : colmap::MODEL_BINARY;
      },
      "The form of the files: TXT or BIN.");
  model.def("__repr__", [](const ColmapModel& self) {
    const colmap::Model& m = self.model;
    return "<ceres_ext.colmap.Model: " + std::to_string(m.cameras.size()) +
           " cameras, " + std::to_string(m.images.size()) + " images, " +
           std::to_string(m.points.size()) + " points, " +
           std::to_string(m.track_elements.size()) + " observations>";
  });

  using Options = colmap::ProblemOptions;
  nb::class_<Options>(*module, "_ColmapProblemOptions")
      .def(nb::init<>())
      .def_rw("refine_focal_length", &Options::refine_focal_length)
      .def_rw("refine_principal_point", &Options::refine_principal_point)
      .def_rw("refine_extra_params", &Options::refine_extra_params)
      .def_rw("refine_rig_from_world", &Options::refine_rig_from_world)
      .def_rw("refine_sensor_from_rig", &Options::refine_sensor_from_rig)
      .def_rw("constant_rig_from_world_rotation",
              &Options::constant_rig_from_world_rotation)
      .def_rw("refine_points3D", &Options::refine_points3D)
      .def_rw("min_track_length", &Options::min_track_length)
      .def_rw("loss_function_scale", &Options::loss_scale)
      .def_rw("bound_intrinsics", &Options::bound_intrinsics)
      .def_prop_rw(
          "min_focal_length_ratio",
          [](const Options& self) {
            return self.intrinsics_limits.min_focal_length_ratio;
          },
          [](Options& self, double value) {
            self.intrinsics_limits.min_focal_length_ratio = value;
          })
      .def_prop_rw(
          "max_focal_length_ratio",
          [](const Options& self) {
            return self.intrinsics_limits.max_focal_length_ratio;
          },
          [](Options& self, double value) {
            self.intrinsics_limits.max_focal_length_ratio = value;
          })
      .def_prop_rw(
          "max_extra_param",
          [](const Options& self) {
            return self.intrinsics_limits.max_extra_param;
          },
          [](Options& self, double value) {
            self.intrinsics_limits.max_extra_param = value;
          })
      .def_prop_rw(
          "focal_length_prior_weight",
          [](const Options& self) {
            return self.intrinsics_prior_weights.focal_length;
          },
          [](Options& self, double value) {
            self.intrinsics_prior_weights.focal_length = value;
          })
      .def_prop_rw(
          "principal_point_prior_weight",
          [](const Options& self) {
            return self.intrinsics_prior_weights.principal_point;
          },
          [](Options& self, double value) {
            self.intrinsics_prior_weights.principal_point = value;
          })
      .def_prop_rw(
          "extra_params_prior_weight",
          [](const Options& self) {
            return self.intrinsics_prior_weights.extra_params;
          },
          [](Options& self, double value) {
            self.intrinsics_prior_weights.extra_params = value;
          })
      .def("_expect_intrinsics",
           [](Options& self, uint32_t camera_id, std::vector<double> params) {
             self.expected_intrinsics[camera_id] = std::move(params);
           })
      .def("_set_loss",
           [](Options& self, int loss) {
             self.loss = static_cast<colmap::LossType>(loss);
           })
      .def("_set_gauge", [](Options& self, int gauge) {
        self.fix_gauge = gauge > 0;
        self.gauge =
            gauge == 2 ? colmap::GAUGE_THREE_POINTS : colmap::GAUGE_TWO_CAMERAS;
      });
  nb::class_<colmap::PositionPriors>(
      *module, "_ColmapPositions", "For one call of _adjust_colmap.")
      .def("__init__",
           &MakePositions,
           "images"_a.none(),
           "positions"_a.none(),
           "covariances"_a.none(),
           "loss_scale"_a,
           "offset"_a.none(),
           "expected"_a.none(),
           "antenna_sigma"_a,
           nb::sig("def __init__(self, images: "
                   "numpy.typing.NDArray[numpy.int32], positions: "
                   "numpy.typing.NDArray[numpy.float64], covariances: "
                   "numpy.typing.NDArray[numpy.float64], loss_scale: float, "
                   "offset: numpy.typing.NDArray[numpy.float64] | None, "
                   "expected: numpy.typing.NDArray[numpy.float64] | None, "
                   "antenna_sigma: float) -> None"))
      .def_prop_ro(
          "antenna_offset",
          [](const colmap::PositionPriors& self) {
            std::vector<double> place(3);
            for (int i = 0; i < 3; ++i) {
              place[i] = -self.antenna_from_rig[4 + i];
            }
            return MakeArray(std::move(place), 0);
          },
          nb::sig("def antenna_offset(self) -> "
                  "numpy.typing.NDArray[numpy.float64]"));
  module->def("_read_colmap", &ReadModel, "folder"_a);
  module->def("_write_colmap", &WriteModel, "model"_a, "folder"_a);
  module->def(
      "_adjust_colmap",
      &AdjustModel,
      "model"_a,
      "problem_options"_a,
      "options"_a,
      "selection"_a,
      "positions"_a.none(),
      "callback"_a.none(),
      "may_be_window"_a,
      nb::sig("def _adjust_colmap(model: ColmapModel, problem_options: "
              "_ColmapProblemOptions, options: SolverOptions, selection: "
              "collections.abc.Sequence[numpy.typing.NDArray[numpy.bool_] | "
              "None], positions: _ColmapPositions | None, callback: "
              "collections.abc.Callable[[IterationSummary], object] | None, "
              "may_be_window: bool) -> tuple[Summary, list[tuple[int, int, "
              "float, float]], "
              "list[tuple[int, int, float, float]]]"));
  module->def(
      "_img_from_cam",
      &ImgFromCam,
      "camera_model"_a,
      "params"_a.none(),
      "points"_a.none(),
      nb::sig("def _img_from_cam(camera_model: str, params: object, "
              "points: object) -> numpy.typing.NDArray[numpy.float64]"));
  module->def(
      "_intrinsics_bounds",
      &IntrinsicsBounds,
      "camera_model"_a,
      "width"_a,
      "height"_a,
      "limits"_a,
      nb::sig("def _intrinsics_bounds(camera_model: str, width: float, height: "
              "float, limits: _ColmapProblemOptions) -> "
              "tuple[numpy.typing.NDArray[numpy.float64], "
              "numpy.typing.NDArray[numpy.float64]]"));
  module->def("_colmap_camera_models", [] {
    std::vector<std::string> names;
    ForEachCameraModel(
        [&](auto camera_model) { names.emplace_back(camera_model.kName); });
    return names;
  });
}

}  // namespace ceres_ext::python
