// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/blocks/loss_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <typeinfo>
#include <utility>

#include "ceres_ext/base/loss_fault.h"

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

// Null if the loss is not a Loss, or is derived from it.
template <typename Loss>
const Loss* As(const ceres::LossFunction& loss) {
  return typeid(loss) == typeid(Loss) ? static_cast<const Loss*>(&loss)
                                      : nullptr;
}

// Appends what `loss` does to a squared norm, stage by stage. Returns null, or
// the user-defined loss in it.
const ceres::LossFunction* AppendStages(const ceres::LossFunction& loss,
                                        std::vector<RobustLoss>* stages) {
  if (const auto* composed = As<ceres::ComposedLoss>(loss)) {
    // f(g(s))
    const auto* own =
        AppendStages(*(composed->*Get(ComposedLoss_g_())), stages);
    return own != nullptr
               ? own
               : AppendStages(*(composed->*Get(ComposedLoss_f_())), stages);
  }
  if (const auto* scaled = As<ceres::ScaledLoss>(loss)) {
    const auto& inner = scaled->*Get(ScaledLoss_rho_());
    const auto* own = inner == nullptr ? nullptr : AppendStages(*inner, stages);
    if (own != nullptr) {
      return own;
    }
    stages->push_back(
        RobustLoss(RobustLossKind::kScale, scaled->*Get(ScaledLoss_a_())));
  } else if (As<ceres::TrivialLoss>(loss) != nullptr) {
    stages->push_back(RobustLoss());
  } else if (const auto* huber = As<ceres::HuberLoss>(loss)) {
    stages->push_back(
        RobustLoss(RobustLossKind::kHuber, huber->*Get(HuberLoss_a_())));
  } else if (const auto* soft = As<ceres::SoftLOneLoss>(loss)) {
    stages->push_back(RobustLoss(RobustLossKind::kSoftLOne,
                                 std::sqrt(soft->*Get(SoftLOneLoss_b_()))));
  } else if (const auto* cauchy = As<ceres::CauchyLoss>(loss)) {
    stages->push_back(RobustLoss(RobustLossKind::kCauchy,
                                 std::sqrt(cauchy->*Get(CauchyLoss_b_()))));
  } else if (const auto* arctan = As<ceres::ArctanLoss>(loss)) {
    stages->push_back(
        RobustLoss(RobustLossKind::kArctan, arctan->*Get(ArctanLoss_a_())));
  } else if (const auto* tolerant = As<ceres::TolerantLoss>(loss)) {
    stages->push_back(RobustLoss(RobustLossKind::kTolerant,
                                 tolerant->*Get(TolerantLoss_a_()),
                                 tolerant->*Get(TolerantLoss_b_())));
  } else if (const auto* tukey = As<ceres::TukeyLoss>(loss)) {
    stages->push_back(
        RobustLoss(RobustLossKind::kTukey,
                   std::sqrt(tukey->*Get(TukeyLoss_a_squared_()))));
  } else {
    return &loss;
  }
  return nullptr;
}

bool IsSameStage(const RobustLoss& x, const RobustLoss& y) {
  return x.kind == y.kind && x.a == y.a && x.b == y.b;
}

bool AreSameStages(const std::vector<RobustLoss>& x,
                   const std::vector<RobustLoss>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), IsSameStage);
}

// The number of the first row that has another loss than the first row; 0 if
// that has none, or one of the host. Programs make an object of the same loss
// for each row.
size_t FindOtherLoss(const std::vector<const ceres::LossFunction*>& loss,
                     kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 12;
  std::vector<RobustLoss> first;
  if (loss.empty() || loss[0] == nullptr ||
      AppendStages(*loss[0], &first) != nullptr) {
    return 0;
  }
  std::atomic<size_t> other{loss.size()};
  context->ParallelFor(
      static_cast<int64_t>(loss.size()),
      kRowsPerTask,
      [&](int64_t begin, int64_t end) {
        std::vector<RobustLoss> stages;
        const ceres::LossFunction* same = loss[0];
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end);
             ++i) {
          if (loss[i] == same) {
            continue;
          }
          stages.clear();
          if (loss[i] == nullptr ||
              AppendStages(*loss[i], &stages) != nullptr ||
              !AreSameStages(stages, first)) {
            size_t known = other;
            while (i < known && !other.compare_exchange_weak(known, i)) {
            }
            return;
          }
          same = loss[i];
        }
      });
  return other;
}

// FindChains without weights.
const ceres::LossFunction* FindPlainChains(
    const std::vector<const ceres::LossFunction*>& loss,
    std::vector<RobustLoss>* losses,
    std::vector<uint8_t>* ids,
    kernels::HostContext* context) {
  losses->clear();
  // Equal losses are usually one object, or one for each residual block.
  std::map<const ceres::LossFunction*, uint8_t> id_of_object;
  id_of_object[nullptr] = kernels::kNoLoss;
  // The number of its first, and its stages.
  std::vector<std::pair<size_t, std::vector<RobustLoss>>> chains;
  // The first chain is number 0.
  ids->assign(loss.size(), 0);
  const size_t num_same = context == nullptr ? 0 : FindOtherLoss(loss, context);
  for (size_t i = 0; i < loss.size(); i = std::max(i + 1, num_same)) {
    if (i > 0 && loss[i] == loss[i - 1]) {
      (*ids)[i] = (*ids)[i - 1];
      continue;
    }
    const auto [entry, is_new] =
        id_of_object.try_emplace(loss[i], kernels::kNoLoss);
    if (is_new) {
      std::vector<RobustLoss> stages;
      if (const auto* own = AppendStages(*loss[i], &stages)) {
        return own;
      }
      const auto known =
          std::find_if(chains.begin(), chains.end(), [&](const auto& chain) {
            return AreSameStages(chain.second, stages);
          });
      const size_t id = known != chains.end() ? known->first : losses->size();
      if (id >= kernels::kNoLoss) {
        return loss[i];
      }
      if (known == chains.end()) {
        chains.emplace_back(id, stages);
        for (RobustLoss& stage : stages) {
          stage.next = static_cast<int32_t>(losses->size()) + 1;
          losses->push_back(stage);
        }
        losses->back().next = -1;
      }
      entry->second = static_cast<uint8_t>(id);
    }
    (*ids)[i] = entry->second;
  }
  return nullptr;
}

}  // namespace

std::pair<const ceres::LossFunction*, double> WithoutScale(
    const ceres::LossFunction* loss) {
  const auto* scaled = loss == nullptr ? nullptr : As<ceres::ScaledLoss>(*loss);
  if (scaled == nullptr) {
    return {loss, 1.0};
  }
  return {(scaled->*Get(ScaledLoss_rho_())).get(),
          scaled->*Get(ScaledLoss_a_())};
}

const ceres::LossFunction* FindChains(
    const std::vector<const ceres::LossFunction*>& loss,
    std::vector<RobustLoss>* losses,
    std::vector<uint8_t>* ids,
    std::vector<double>* weights,
    kernels::HostContext* context) {
  weights->clear();
  const ceres::LossFunction* const of_host =
      FindPlainChains(loss, losses, ids, context);
  if (of_host == nullptr) {
    return nullptr;
  }
  std::vector<const ceres::LossFunction*> unscaled;
  unscaled.reserve(loss.size());
  for (const ceres::LossFunction* of_row : loss) {
    const auto [inner, weight] = WithoutScale(of_row);
    unscaled.push_back(inner);
    weights->push_back(weight);
  }
  if (FindPlainChains(unscaled, losses, ids, context) != nullptr) {
    weights->clear();
    return of_host;
  }
  return nullptr;
}

Status CheckFactors(const std::vector<const ceres::LossFunction*>& loss,
                    const std::vector<RobustLoss>& losses,
                    const std::vector<uint8_t>& ids,
                    const std::vector<double>& weights) {
  const auto is_bad = [](double factor) { return !(factor >= 0.0); };
  if (std::none_of(losses.begin(),
                   losses.end(),
                   [&](const RobustLoss& stage) {
                     return stage.kind == RobustLossKind::kScale &&
                            is_bad(stage.a);
                   }) &&
      std::none_of(weights.begin(), weights.end(), is_bad)) {
    return {};
  }
  for (size_t k = 0; k < loss.size(); ++k) {
    double factor = weights.empty() ? 1.0 : weights[k];
    int32_t id = ids[k] == kernels::kNoLoss ? -1 : ids[k];
    for (; id >= 0; id = losses[id].next) {
      if (losses[id].kind == RobustLossKind::kScale) {
        factor *= losses[id].a;
      }
    }
    if (is_bad(factor)) {
      return {StatusCode::kNumericalFailure, LossFactorFault(*loss[k], factor)};
    }
  }
  return {};
}

const ceres::LossFunction* FindNotConcave(
    const std::vector<const ceres::LossFunction*>& losses,
    kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 14;
  const auto n = static_cast<int64_t>(losses.size());
  std::mutex mutex;
  int64_t first = n;
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    std::vector<RobustLoss> stages;
    const ceres::LossFunction* seen = nullptr;
    for (int64_t k = begin; k < end; ++k) {
      if (losses[k] == seen || losses[k] == nullptr) {
        continue;
      }
      seen = losses[k];
      stages.clear();
      if (AppendStages(*seen, &stages) != nullptr ||
          !std::all_of(stages.begin(), stages.end(), [](const RobustLoss& s) {
            return s.IsConcave();
          })) {
        const std::lock_guard<std::mutex> lock(mutex);
        first = std::min(first, k);
        return;
      }
    }
  });
  return first == n ? nullptr : losses[first];
}

Status CallLosses(const ceres::LossFunction* const* losses,
                  int64_t n,
                  const double* squared_norms,
                  bool corrects,
                  double* rho,
                  kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 11;
  std::mutex mutex;
  // The first row whose loss threw, and what, or has no root.
  int64_t failed = n;
  std::string thrown;
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    int64_t k = begin;
    std::string what;
    try {
      for (; k < end; ++k) {
        double* const rho_k = rho + 3 * k;
        rho_k[0] = squared_norms[k];
        rho_k[1] = 1.0;
        rho_k[2] = 0.0;
        // Ceres asks for none at residuals that aren't numbers.
        if (losses[k] != nullptr && !std::isnan(squared_norms[k])) {
          losses[k]->Evaluate(squared_norms[k], rho_k);
          if (corrects && !kernels::LossCorrector::HasRoot(rho_k)) {
            break;
          }
        }
      }
      if (k == end) {
        return;
      }
    } catch (const std::bad_alloc&) {
      throw;  // It ends the solve.
    } catch (const std::exception& exception) {
      what = exception.what();
    } catch (...) {
      what = "something that is not a std::exception";
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (k < failed) {
      failed = k;
      thrown = what;
    }
  });
  if (failed == n) {
    return {};
  }
  return {
      StatusCode::kNumericalFailure,
      thrown.empty()
          ? LossFault(*losses[failed], squared_norms[failed], rho + 3 * failed)
          : "The loss function " + TypeName(*losses[failed]) +
                " threw: " + thrown};
}

}  // namespace ceres_ext
