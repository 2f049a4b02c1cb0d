// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/losses.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/base/vector_sums.h"

namespace ceres_ext {

using kernels::RobustLoss;
using kernels::RobustLossKind;
using kernels::Status;
using kernels::StatusCode;

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
    stages->push_back({RobustLossKind::kScale, scaled.*Get(ScaledLoss_a_())});
    return true;
  }
  RobustLoss stage;
  if (typeid(loss) == typeid(ceres::TrivialLoss)) {
    stage = {};
  } else if (typeid(loss) == typeid(ceres::HuberLoss)) {
    const auto& huber = static_cast<const ceres::HuberLoss&>(loss);
    stage = {RobustLossKind::kHuber, huber.*Get(HuberLoss_a_())};
  } else if (typeid(loss) == typeid(ceres::SoftLOneLoss)) {
    const auto& soft = static_cast<const ceres::SoftLOneLoss&>(loss);
    stage = {RobustLossKind::kSoftLOne,
             std::sqrt(soft.*Get(SoftLOneLoss_b_()))};
  } else if (typeid(loss) == typeid(ceres::CauchyLoss)) {
    const auto& cauchy = static_cast<const ceres::CauchyLoss&>(loss);
    stage = {RobustLossKind::kCauchy, std::sqrt(cauchy.*Get(CauchyLoss_b_()))};
  } else if (typeid(loss) == typeid(ceres::ArctanLoss)) {
    const auto& arctan = static_cast<const ceres::ArctanLoss&>(loss);
    stage = {RobustLossKind::kArctan, arctan.*Get(ArctanLoss_a_())};
  } else if (typeid(loss) == typeid(ceres::TolerantLoss)) {
    const auto& tolerant = static_cast<const ceres::TolerantLoss&>(loss);
    stage = {RobustLossKind::kTolerant,
             tolerant.*Get(TolerantLoss_a_()),
             tolerant.*Get(TolerantLoss_b_())};
  } else if (typeid(loss) == typeid(ceres::TukeyLoss)) {
    const auto& tukey = static_cast<const ceres::TukeyLoss&>(loss);
    stage = {RobustLossKind::kTukey,
             std::sqrt(tukey.*Get(TukeyLoss_a_squared_()))};
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

// As kernels::CorrectForLossParams, with losses that only Ceres can call; a
// vector operation of the host.
template <typename T, int C>
struct CorrectForUserLossParams {
  int64_t n = 0;
  const ceres::LossFunction* const* losses = nullptr;  // n; null: none
  double* residuals = nullptr;                         // 2 n
  bool correct_residuals = false;
  kernels::LossCorrection<T, kernels::BalShape<C>, kernels::kHostLayout>
      correction;
  kernels::Evaluation* evaluation = nullptr;  // cost is set

  kernels::TwoSums Term(int64_t k) const {
    double* r = residuals + 2 * k;
    double residual[2] = {r[0], r[1]};
    const double s = r[0] * r[0] + r[1] * r[1];
    double rho[3] = {s, 1.0, 0.0};
    if (losses[k] != nullptr) {
      losses[k]->Evaluate(s, rho);
      correction.Correct(k, s, rho, residual);
    }
    if (correct_residuals) {
      r[0] = residual[0];
      r[1] = residual[1];
    }
    return {rho[0], 0.0};
  }
  void Set(const kernels::TwoSums& sums) const {
    evaluation->cost = 0.5 * sums.first;
  }
};

// The losses as chains, and for each residual block the number of the first of
// its chain. False with the number of a residual block whose loss is a user's
// own, or where there are too many: then *unknown is loss.size().
bool FindChains(const std::vector<const ceres::LossFunction*>& loss,
                std::vector<RobustLoss>* losses,
                std::vector<uint8_t>* ids,
                size_t* unknown) {
  // Equal losses are usually one object, or one for each residual block.
  std::map<const ceres::LossFunction*, uint8_t> id_of_object;
  ids->assign(loss.size(), kernels::kNoLoss);
  for (size_t i = 0; i < loss.size(); ++i) {
    if (loss[i] == nullptr) {
      continue;
    }
    if (i > 0 && loss[i] == loss[i - 1]) {
      (*ids)[i] = (*ids)[i - 1];
      continue;
    }
    const auto known = id_of_object.find(loss[i]);
    if (known != id_of_object.end()) {
      (*ids)[i] = known->second;
      continue;
    }
    std::vector<RobustLoss> stages;
    if (!AppendStages(*loss[i], &stages)) {
      *unknown = i;
      return false;
    }
    const int32_t id = FindOrAddChain(stages, losses);
    if (id >= kernels::kNoLoss) {
      *unknown = loss.size();
      return false;
    }
    (*ids)[i] = static_cast<uint8_t>(id);
    id_of_object[loss[i]] = (*ids)[i];
  }
  return true;
}

}  // namespace

template <typename Machine>
Status LossModel<Machine>::Setup(
    const std::vector<const ceres::LossFunction*>& loss,
    const ObservationBlocks<Machine>* observations) {
  observations_ = observations;
  empty_ = loss.empty();
  if (empty_) {
    return {};
  }
  const int64_t n = observations->index().num_observations;
  Machine* machine = observations->machine;
  std::vector<int32_t> input_id(n);
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(n, observations->index().input_id(), input_id.data()));
  std::vector<RobustLoss> losses;
  std::vector<uint8_t> input_ids;
  size_t unknown = 0;
  if (!FindChains(loss, &losses, &input_ids, &unknown)) {
    if constexpr (kIsHost<Machine>) {
      user_losses_.resize(n);
      for (int64_t k = 0; k < n; ++k) {
        user_losses_[k] = loss[input_id[k]];
      }
      return {};
    } else if (unknown < loss.size()) {
      return {StatusCode::kUnsupported,
              "residual block " + std::to_string(unknown) +
                  " has a loss function that the device doesn't know"};
    } else {
      return {StatusCode::kUnsupported,
              "there are too many different loss functions for the device"};
    }
  }
  std::vector<uint8_t> ids(n);
  for (int64_t k = 0; k < n; ++k) {
    ids[k] = input_ids[input_id[k]];
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(
      static_cast<int64_t>(losses.size()), losses.data(), &losses_));
  return machine->Upload(n, ids.data(), &loss_id_);
}

template <typename Machine>
template <typename T, int C>
Status LossModel<Machine>::Correct(
    const kernels::LossCorrection<T, kernels::BalShape<C>, Machine::kLayout>&
        correction,
    bool correct_residuals,
    double* residuals,
    kernels::Evaluation* evaluation) {
  const int64_t n = observations_->index().num_observations;
  if constexpr (kIsHost<Machine>) {
    if (!user_losses_.empty()) {
      return kernels::Run(CorrectForUserLossParams<T, C>{n,
                                                         user_losses_.data(),
                                                         residuals,
                                                         correct_residuals,
                                                         correction,
                                                         evaluation},
                          observations_->machine);
    }
  }
  kernels::CorrectForLossParams<T, kernels::BalShape<C>, Machine::kLayout>
      params;
  params.n = n;
  params.losses = losses_.data();
  params.loss_id = loss_id_.data();
  params.residuals = residuals;
  params.corrected_residuals = correct_residuals ? residuals : nullptr;
  params.correction = correction;
  params.evaluation = evaluation;
  return kernels::Run(params, observations_->machine);
}

template <typename Machine>
int64_t LossModel<Machine>::bytes() const {
  return static_cast<int64_t>(user_losses_.size() * sizeof(user_losses_[0])) +
         losses_.bytes() + loss_id_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine, T, C)                       \
  template Status LossModel<Machine>::Correct<T, C>(               \
      const kernels::LossCorrection<T,                             \
                                    kernels::BalShape<C>,          \
                                    Machine::kLayout>& correction, \
      bool correct_residuals,                                      \
      double* residuals,                                           \
      kernels::Evaluation* evaluation);
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE
#define CERES_EXT_INSTANTIATE(Machine) template class LossModel<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
