// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/losses.h"

#include <cmath>
#include <map>
#include <memory>
#include <typeinfo>

namespace ceres_ext {

using kernels::RobustLoss;
using kernels::Status;
using kernels::StatusCode;

namespace {

// Observations over which a partial cost is summed.
constexpr int64_t kGrain = 2048;

}  // namespace

template <>
Status LossModel<HostMachine>::Setup(
    const std::vector<const ceres::LossFunction*>& loss,
    const BatchShape<HostMachine>* shape) {
  shape_ = shape;
  empty_ = loss.empty();
  if (empty_) {
    return {};
  }
  const kernels::ObservationIndexView& index = shape->index();
  loss_.resize(index.num_observations);
  for (int64_t k = 0; k < index.num_observations; ++k) {
    loss_[k] = loss[index.input_id[k]];
  }
  return partial_costs_.Allocate((index.num_observations + kGrain - 1) /
                                 kGrain);
}

template <>
template <typename T, int C>
Status LossModel<HostMachine>::Correct(
    kernels::BlockView<T, 2 * C, HostMachine::kLayout> camera_blocks,
    kernels::BlockView<T, 6, HostMachine::kLayout> point_blocks,
    bool correct_residuals,
    double* residuals,
    kernels::Evaluation* evaluation) {
  const auto correct_block = [](const kernels::LossCorrector& corrector,
                                const double* r,
                                auto columns,
                                T* block) {
    constexpr int kColumns = decltype(columns)::value;
    double values[2 * kColumns];
    std::copy_n(block, 2 * kColumns, values);
    corrector.template CorrectJacobian<2, kColumns>(r, values);
    for (int i = 0; i < 2 * kColumns; ++i) {
      block[i] = static_cast<T>(values[i]);
    }
  };
  shape_->backend()->workspace()->context()->ParallelFor(
      shape_->index().num_observations,
      kGrain,
      [&](int64_t begin, int64_t end) {
        double chunk_cost = 0.0;
        for (int64_t k = begin; k < end; ++k) {
          double* r = residuals + 2 * k;
          const double squared_norm = r[0] * r[0] + r[1] * r[1];
          if (loss_[k] == nullptr) {
            chunk_cost += 0.5 * squared_norm;
            continue;
          }
          double rho[3];
          loss_[k]->Evaluate(squared_norm, rho);
          chunk_cost += 0.5 * rho[0];
          const kernels::LossCorrector corrector(squared_norm, rho);
          if (camera_blocks.data != nullptr) {
            correct_block(corrector,
                          r,
                          std::integral_constant<int, C>(),
                          &camera_blocks(k, 0));
            correct_block(corrector,
                          r,
                          std::integral_constant<int, 3>(),
                          &point_blocks(k, 0));
          }
          if (correct_residuals) {
            corrector.template CorrectResidual<2>(r);
          }
        }
        partial_costs_.data()[begin / kGrain] = chunk_cost;
      });
  evaluation->cost = 0.0;
  for (int64_t i = 0; i < partial_costs_.size(); ++i) {
    evaluation->cost += partial_costs_.data()[i];
  }
  return {};
}

#ifdef CERES_EXT_WITH_CUDA

namespace {

// Ceres keeps the parameters of its losses private. An explicit instantiation
// may name a private member, so `Get` gives access to one without a change to
// Ceres.
template <typename Tag, typename Tag::Member kMember>
struct Expose {
  friend typename Tag::Member Get(Tag) { return kMember; }
};
#define CERES_EXT_EXPOSE(Loss, member, Type) \
  struct Loss##_##member {                   \
    using Member = Type ceres::Loss::*;      \
    friend Member Get(Loss##_##member);      \
  };                                         \
  template struct Expose<Loss##_##member, &ceres::Loss::member>;
using OwnedLoss = std::unique_ptr<const ceres::LossFunction>;
CERES_EXT_EXPOSE(HuberLoss, a_, const double)
CERES_EXT_EXPOSE(SoftLOneLoss, b_, const double)
CERES_EXT_EXPOSE(CauchyLoss, b_, const double)
CERES_EXT_EXPOSE(ArctanLoss, a_, const double)
CERES_EXT_EXPOSE(TolerantLoss, a_, const double)
CERES_EXT_EXPOSE(TolerantLoss, b_, const double)
CERES_EXT_EXPOSE(TukeyLoss, a_squared_, const double)
CERES_EXT_EXPOSE(ComposedLoss, f_, OwnedLoss)
CERES_EXT_EXPOSE(ComposedLoss, g_, OwnedLoss)
CERES_EXT_EXPOSE(ScaledLoss, rho_, OwnedLoss)
CERES_EXT_EXPOSE(ScaledLoss, a_, const double)
#undef CERES_EXT_EXPOSE

// Appends what `loss` does to a squared norm, stage by stage; false for a loss
// that the device doesn't know.
bool AppendStages(const ceres::LossFunction& loss,
                  std::vector<RobustLoss>* stages) {
  if (typeid(loss) == typeid(ceres::ComposedLoss)) {
    // f(g(s))
    const auto& composed = static_cast<const ceres::ComposedLoss&>(loss);
    return AppendStages(*(composed.*Get(ComposedLoss_g_())), stages) &&
           AppendStages(*(composed.*Get(ComposedLoss_f_())), stages);
  }
  if (typeid(loss) == typeid(ceres::ScaledLoss)) {
    const auto& scaled = static_cast<const ceres::ScaledLoss&>(loss);
    const auto& inner = scaled.*Get(ScaledLoss_rho_());
    if (inner != nullptr && !AppendStages(*inner, stages)) {
      return false;
    }
    stages->push_back(RobustLoss::Scale(scaled.*Get(ScaledLoss_a_())));
    return true;
  }
  RobustLoss stage;
  if (typeid(loss) == typeid(ceres::TrivialLoss)) {
    stage = RobustLoss::Trivial();
  } else if (typeid(loss) == typeid(ceres::HuberLoss)) {
    const auto& huber = static_cast<const ceres::HuberLoss&>(loss);
    stage = RobustLoss::Huber(huber.*Get(HuberLoss_a_()));
  } else if (typeid(loss) == typeid(ceres::SoftLOneLoss)) {
    const auto& soft = static_cast<const ceres::SoftLOneLoss&>(loss);
    stage = RobustLoss::SoftLOne(std::sqrt(soft.*Get(SoftLOneLoss_b_())));
  } else if (typeid(loss) == typeid(ceres::CauchyLoss)) {
    const auto& cauchy = static_cast<const ceres::CauchyLoss&>(loss);
    stage = RobustLoss::Cauchy(std::sqrt(cauchy.*Get(CauchyLoss_b_())));
  } else if (typeid(loss) == typeid(ceres::ArctanLoss)) {
    const auto& arctan = static_cast<const ceres::ArctanLoss&>(loss);
    stage = RobustLoss::Arctan(arctan.*Get(ArctanLoss_a_()));
  } else if (typeid(loss) == typeid(ceres::TolerantLoss)) {
    const auto& tolerant = static_cast<const ceres::TolerantLoss&>(loss);
    stage = RobustLoss::Tolerant(tolerant.*Get(TolerantLoss_a_()),
                                 tolerant.*Get(TolerantLoss_b_()));
  } else if (typeid(loss) == typeid(ceres::TukeyLoss)) {
    const auto& tukey = static_cast<const ceres::TukeyLoss&>(loss);
    stage = RobustLoss::Tukey(std::sqrt(tukey.*Get(TukeyLoss_a_squared_())));
  } else {
    return false;
  }
  stages->push_back(stage);
  return true;
}

// The number of the chain in `losses`, which gets it if it is new.
int32_t FindOrAddChain(const std::vector<RobustLoss>& stages,
                       std::vector<RobustLoss>* losses) {
  const int32_t size = static_cast<int32_t>(losses->size());
  for (int32_t begin = 0; begin < size; ++begin) {
    int32_t id = begin;
    size_t i = 0;
    while (id >= 0 && i < stages.size() &&
           (*losses)[id].kind == stages[i].kind &&
           (*losses)[id].a == stages[i].a && (*losses)[id].b == stages[i].b) {
      id = (*losses)[id].next;
      ++i;
    }
    if (id < 0 && i == stages.size()) {
      return begin;
    }
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    losses->push_back(stages[i]);
    losses->back().next =
        i + 1 < stages.size() ? static_cast<int32_t>(losses->size()) : -1;
  }
  return size;
}

}  // namespace

template <>
Status LossModel<CudaMachine>::Setup(
    const std::vector<const ceres::LossFunction*>& loss,
    const BatchShape<CudaMachine>* shape) {
  shape_ = shape;
  empty_ = loss.empty();
  if (empty_) {
    return {};
  }
  // Equal losses are usually one object, or one for each residual block.
  std::vector<RobustLoss> losses;
  std::map<const ceres::LossFunction*, uint8_t> id_of_object;
  std::vector<uint8_t> input_ids(loss.size(), kernels::kNoLoss);
  for (size_t i = 0; i < loss.size(); ++i) {
    if (loss[i] == nullptr) {
      continue;
    }
    const auto known = id_of_object.find(loss[i]);
    if (known != id_of_object.end()) {
      input_ids[i] = known->second;
      continue;
    }
    std::vector<RobustLoss> stages;
    if (!AppendStages(*loss[i], &stages)) {
      return {StatusCode::kUnsupported,
              "residual block " + std::to_string(i) +
                  " has a loss function that the device doesn't know"};
    }
    const int32_t id = FindOrAddChain(stages, &losses);
    if (id >= kernels::kNoLoss) {
      return {StatusCode::kUnsupported,
              "there are too many different loss functions for the device"};
    }
    input_ids[i] = static_cast<uint8_t>(id);
    id_of_object[loss[i]] = input_ids[i];
  }
  const int64_t n = shape->index().num_observations;
  CudaMachine* backend = shape->backend();
  std::vector<int32_t> input_id(n);
  CERES_EXT_RETURN_IF_ERROR(
      backend->Download(n, shape->index().input_id, input_id.data()));
  std::vector<uint8_t> ids(n);
  for (int64_t k = 0; k < n; ++k) {
    ids[k] = input_ids[input_id[k]];
  }
  CERES_EXT_RETURN_IF_ERROR(backend->Allocate(losses.size(), &losses_));
  CERES_EXT_RETURN_IF_ERROR(
      backend->Upload(losses.size(), losses.data(), losses_.data()));
  CERES_EXT_RETURN_IF_ERROR(backend->Allocate(n, &loss_id_));
  return backend->Upload(n, ids.data(), loss_id_.data());
}

template <>
template <typename T, int C>
Status LossModel<CudaMachine>::Correct(
    kernels::BlockView<T, 2 * C, CudaMachine::kLayout> camera_blocks,
    kernels::BlockView<T, 6, CudaMachine::kLayout> point_blocks,
    bool correct_residuals,
    double* residuals,
    kernels::Evaluation* evaluation) {
  kernels::CorrectForLossParams<T, C, CudaMachine::kLayout> params;
  params.num_observations = shape_->index().num_observations;
  params.losses = losses_.data();
  params.loss_id = loss_id_.data();
  params.residuals = residuals;
  params.corrected_residuals = correct_residuals ? residuals : nullptr;
  params.camera_blocks = camera_blocks;
  params.point_blocks = point_blocks;
  params.evaluation = evaluation;
  return shape_->backend()->Run(params);
}

#endif  // CERES_EXT_WITH_CUDA

template <typename Backend>
int64_t LossModel<Backend>::bytes() const {
  return static_cast<int64_t>(loss_.size() * sizeof(loss_[0])) +
         partial_costs_.bytes() + losses_.bytes() + loss_id_.bytes();
}

#define CERES_EXT_INSTANTIATE(Backend, T, C)                        \
  template Status LossModel<Backend>::Correct<T, C>(                \
      kernels::BlockView<T, 2 * C, Backend::kLayout> camera_blocks, \
      kernels::BlockView<T, 6, Backend::kLayout> point_blocks,      \
      bool correct_residuals,                                       \
      double* residuals,                                            \
      kernels::Evaluation* evaluation);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

template class LossModel<HostMachine>;
#ifdef CERES_EXT_WITH_CUDA
template class LossModel<CudaMachine>;
#endif

}  // namespace ceres_ext
