// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/sliding_window.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/sentence.h"

namespace ceres_ext {
namespace {

using BlockFlags = std::vector<uint8_t>;

struct BlockKind {
  int size = 0;
  ceres::Manifold* manifold = nullptr;
  std::vector<double> values;
  std::vector<int64_t> numbers;  // of the caller
  BlockFlags is_constant;
  BlockFlags is_dropped;
  BlockFlags is_wanted;
  std::unordered_map<int64_t, int32_t> place;  // of a number

  int64_t num_blocks() const { return static_cast<int64_t>(numbers.size()); }
  bool DropsAny() const { return HasAny(is_dropped); }
  bool WantsAny() const { return HasAny(is_wanted); }
  static bool HasAny(const BlockFlags& flags) {
    return std::find(flags.begin(), flags.end(), 1) != flags.end();
  }
};

struct ResidualKind {
  ArrayProblem::Residuals form;
  std::vector<int> block_kinds;
  int64_t num_residuals = 0;
  std::vector<unsigned char> constants;
  std::vector<std::vector<int32_t>> places;  // of the blocks of each slot
  std::vector<double> weights;
};

struct Prior {
  std::shared_ptr<BlockMarginalPrior> prior;
  ceres::CostFunction* cost_function = nullptr;
  std::vector<int> block_kinds;
  std::vector<int32_t> places;
};

// Takes memory for n elements, and for more at a time than one.
template <typename T>
void Reserve(size_t n, std::vector<T>* v) {
  if (n > v->capacity()) {
    v->reserve(std::max(n, 2 * v->capacity()));
  }
}

// Keeps the elements i, of `size` values each, that keep[i] is 1 for.
template <typename T>
void Compact(const BlockFlags& keep, int64_t size, std::vector<T>* v) {
  auto to = v->begin();
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i] != 0) {
      const auto from = v->begin() + static_cast<int64_t>(i) * size;
      to = to == from ? to + size : std::copy(from, from + size, to);
    }
  }
  v->resize(to - v->begin());
}

}  // namespace

class SlidingWindow::Body {
 public:
  Body(const ceres::Solver::Options& options, const Options& ext_options)
      : options_(options), ext_options_(ext_options) {}

  std::string AddBlockKind(int size, ceres::Manifold* manifold) {
    if (size < 1) {
      return Sentence("size is ", size, ", expected at least 1");
    }
    if (manifold != nullptr && manifold->AmbientSize() != size) {
      return Sentence("the manifold has AmbientSize ",
                      manifold->AmbientSize(),
                      ", expected the size ",
                      size);
    }
    BlockKind kind;
    kind.size = size;
    kind.manifold = manifold;
    kinds_.push_back(std::move(kind));
    return "";
  }

  std::string AddResidualKind(const ArrayProblem::Residuals& form,
                              const std::vector<int>& block_kinds) {
    if (form.make_cost_function == nullptr || form.constants_bytes < 0) {
      return "residual blocks are not made from constants";
    }
    for (const int kind : block_kinds) {
      if (!HasKind(kind)) {
        return NoKind(kind);
      }
    }
    ResidualKind of;
    of.form = form;
    of.block_kinds = block_kinds;
    of.places.resize(block_kinds.size());
    residual_kinds_.push_back(std::move(of));
    return "";
  }

  std::string AddBlock(int kind, int64_t number, const double* values) {
    if (!HasKind(kind)) {
      return NoKind(kind);
    }
    BlockKind& of = kinds_[kind];
    if (of.place.count(number) > 0) {
      return Sentence("block ", number, " of kind ", kind, " is there already");
    }
    for (int j = 0; j < of.size; ++j) {
      if (!std::isfinite(values[j])) {
        return Sentence("value ", j, " of block ", number, " is ", values[j]);
      }
    }
    // They may be those of a block of this kind.
    const std::vector<double> copy(values, values + of.size);
    // From `emplace` on nothing throws.
    Reserve(of.numbers.size() + 1, &of.numbers);
    Reserve(of.numbers.size() + 1, &of.is_constant);
    Reserve(of.numbers.size() + 1, &of.is_dropped);
    Reserve(of.numbers.size() + 1, &of.is_wanted);
    Reserve(of.values.size() + of.size, &of.values);
    of.place.emplace(number, static_cast<int32_t>(of.num_blocks()));
    of.numbers.push_back(number);
    of.is_constant.push_back(0);
    of.is_dropped.push_back(0);
    of.is_wanted.push_back(0);
    of.values.insert(of.values.end(), copy.begin(), copy.end());
    return "";
  }

  // The place of a block, or -1 and why there is none.
  int32_t Find(int kind, int64_t number, std::string* error) const {
    if (!HasKind(kind)) {
      *error = NoKind(kind);
      return -1;
    }
    const auto& place = kinds_[kind].place;
    const auto at = place.find(number);
    if (at == place.end()) {
      *error = Sentence("kind ", kind, " has no block ", number);
      return -1;
    }
    return at->second;
  }

  std::string SetFlag(int kind,
                      int64_t number,
                      BlockFlags BlockKind::*flags,
                      bool value) {
    std::string error;
    const int32_t place = Find(kind, number, &error);
    if (place >= 0) {
      (kinds_[kind].*flags)[place] = value ? 1 : 0;
    }
    return error;
  }

  std::string AddResiduals(int kind,
                           int64_t n,
                           const void* constants,
                           int64_t constants_bytes,
                           const int64_t* numbers,
                           const double* weights) {
    if (!HasResidualKind(kind)) {
      return NoResidualKind(kind);
    }
    ResidualKind& of = residual_kinds_[kind];
    if (constants_bytes != of.form.constants_bytes) {
      return Sentence("the constants have ",
                      constants_bytes,
                      " bytes, expected those of kind ",
                      kind,
                      ", ",
                      of.form.constants_bytes);
    }
    if (n < 0) {
      return Sentence("the number of residual blocks is ", n);
    }
    std::string error = n > 0 ? WhyNotOfSizes(of, constants) : "";
    if (!error.empty()) {
      return error;
    }
    for (int64_t i = 0; weights != nullptr && i < n; ++i) {
      if (!(weights[i] >= 0.0 && std::isfinite(weights[i]))) {
        return Sentence("weights[", i, "] is ", weights[i]);
      }
    }
    const size_t num_slots = of.block_kinds.size();
    std::vector<int32_t> places;
    places.reserve(num_slots * n);
    for (int64_t i = 0; i < n; ++i) {
      for (size_t s = 0; s < num_slots; ++s) {
        places.push_back(
            Find(of.block_kinds[s], numbers[num_slots * i + s], &error));
        if (places.back() < 0) {
          return Sentence("residual block ", i, ", block ", s, ": ", error);
        }
        for (size_t t = 0; t < s; ++t) {
          if (of.block_kinds[t] == of.block_kinds[s] &&
              places[num_slots * i + t] == places.back()) {
            return Sentence("residual block ",
                            i,
                            " has block ",
                            numbers[num_slots * i + s],
                            " of kind ",
                            of.block_kinds[s],
                            " twice");
          }
        }
      }
    }
    // Behind these nothing throws.
    const size_t num_all = of.num_residuals + n;
    Reserve(num_all * constants_bytes, &of.constants);
    Reserve(num_all, &of.weights);
    for (std::vector<int32_t>& of_slot : of.places) {
      Reserve(num_all, &of_slot);
    }
    const auto* const bytes = static_cast<const unsigned char*>(constants);
    of.constants.insert(of.constants.end(), bytes, bytes + constants_bytes * n);
    for (int64_t i = 0; i < n; ++i) {
      of.weights.push_back(weights != nullptr ? weights[i] : 1.0);
      for (size_t s = 0; s < num_slots; ++s) {
        of.places[s].push_back(places[num_slots * i + s]);
      }
    }
    of.num_residuals += n;
    return "";
  }

  std::string Cut(int kind, int64_t number) {
    std::string error;
    const int32_t place = Find(kind, number, &error);
    if (place < 0) {
      return error;
    }
    for (const Prior& prior : priors_) {
      if (HasBlock(prior, kind, place)) {
        return Sentence("a prior is on block ",
                        number,
                        " of kind ",
                        kind,
                        ", which can be dropped but not cut");
      }
    }
    std::vector<BlockFlags> removed = NoFlags();
    removed[kind][place] = 1;
    Remove(removed, nullptr);
    return "";
  }

  std::string CutResiduals(int residual_kind, int kind, int64_t number) {
    std::string error;
    if (!HasResidualKind(residual_kind)) {
      return NoResidualKind(residual_kind);
    }
    if (Find(kind, number, &error) < 0) {
      return error;
    }
    std::vector<BlockFlags> removed = NoFlags();
    removed[kind][Find(kind, number, &error)] = 1;
    ResidualKind& of = residual_kinds_[residual_kind];
    KeepResiduals(ResidualsToKeep(removed, of), &of);
    return "";
  }

  std::string Solve(BatchSummary* summary) {
    std::string error;
    Arrays arrays;
    ProblemBatch batch = MakeBatch(&arrays);
    if (!SolveBatch(options_, ext_options_, &batch, summary, &error)) {
      return error;
    }
    if (!summary->problems[0].IsSolutionUsable()) {
      return summary->problems[0].message;
    }
    for (BlockCovariance& covariance : summary->covariances) {
      SetNumbers(&covariance.blocks);
    }
    if (!batch.drop.any()) {
      return "";
    }
    const Marginal marginal = summary->marginals[0];
    SetNumbers(&summary->marginals[0].blocks);
    return DropBlocks(marginal);
  }

  BlockKind* kind(int k) { return HasKind(k) ? &kinds_[k] : nullptr; }
  const ResidualKind* residual_kind(int k) const {
    return HasResidualKind(k) ? &residual_kinds_[k] : nullptr;
  }
  int num_kinds() const { return static_cast<int>(kinds_.size()); }
  int num_residual_kinds() const {
    return static_cast<int>(residual_kinds_.size());
  }
  int64_t num_priors() const { return static_cast<int64_t>(priors_.size()); }

 private:
  // The offsets that a batch refers to.
  struct Arrays {
    std::vector<std::array<int64_t, 2>> begin;
  };

  bool HasKind(int kind) const { return kind >= 0 && kind < num_kinds(); }
  bool HasResidualKind(int kind) const {
    return kind >= 0 && kind < num_residual_kinds();
  }
  std::string NoKind(int kind) const {
    return Sentence("kind is ", kind, ", expected 0 <= kind < ", num_kinds());
  }
  std::string NoResidualKind(int kind) const {
    return Sentence("the kind of residual blocks is ",
                    kind,
                    ", expected 0 <= kind < ",
                    num_residual_kinds());
  }

  // The reason why the blocks of a kind are not those of its cost function.
  std::string WhyNotOfSizes(const ResidualKind& of,
                            const void* constants) const {
    if (of.num_residuals > 0) {
      return "";
    }
    const std::unique_ptr<const ceres::CostFunction> first(
        of.form.make_cost_function(constants));
    const std::vector<int32_t>& sizes = first->parameter_block_sizes();
    if (sizes.size() != of.block_kinds.size()) {
      return Sentence("the cost function has ",
                      sizes.size(),
                      " blocks, but the kind has ",
                      of.block_kinds.size());
    }
    for (size_t s = 0; s < sizes.size(); ++s) {
      if (kinds_[of.block_kinds[s]].size != sizes[s]) {
        return Sentence("block ",
                        s,
                        " of the cost function has size ",
                        sizes[s],
                        ", but its kind has ",
                        kinds_[of.block_kinds[s]].size);
      }
    }
    return "";
  }

  void SetNumbers(std::vector<Marginal::Block>* blocks) const {
    for (Marginal::Block& block : *blocks) {
      block.block = kinds_[block.parameters].numbers[block.block];
    }
  }

  static bool HasBlock(const Prior& prior, int kind, int32_t place) {
    for (size_t k = 0; k < prior.places.size(); ++k) {
      if (prior.block_kinds[k] == kind && prior.places[k] == place) {
        return true;
      }
    }
    return false;
  }

  std::vector<BlockFlags> NoFlags() const {
    std::vector<BlockFlags> flags;
    for (const BlockKind& kind : kinds_) {
      flags.emplace_back(kind.numbers.size(), 0);
    }
    return flags;
  }

  ProblemBatch MakeBatch(Arrays* arrays) {
    ProblemBatch batch;
    batch.num_problems = 1;
    bool drops_any = false;
    bool wants_any = false;
    for (BlockKind& kind : kinds_) {
      ArrayProblem::Parameters parameters;
      parameters.values = kind.values.data();
      parameters.num_blocks = kind.num_blocks();
      parameters.size = kind.size;
      parameters.manifold = kind.manifold;
      parameters.is_constant = kind.is_constant.data();
      batch.problem.AddParameters(parameters);
      drops_any = drops_any || kind.DropsAny();
      wants_any = wants_any || kind.WantsAny();
      arrays->begin.push_back({0, kind.num_blocks()});
    }
    for (ResidualKind& kind : residual_kinds_) {
      ArrayProblem::Residuals residuals = kind.form;
      residuals.num_blocks = kind.num_residuals;
      residuals.constants = kind.constants.data();
      residuals.weights =
          std::all_of(kind.weights.begin(),
                      kind.weights.end(),
                      [](double weight) { return weight == 1.0; })
              ? nullptr
              : kind.weights.data();
      for (size_t s = 0; s < kind.places.size(); ++s) {
        residuals.blocks.push_back(
            {kind.block_kinds[s], kind.places[s].data()});
      }
      batch.problem.AddResiduals(residuals);
      arrays->begin.push_back({0, kind.num_residuals});
    }
    for (Prior& prior : priors_) {
      ArrayProblem::Residuals residuals;
      residuals.num_blocks = 1;
      residuals.cost_functions = &prior.cost_function;
      for (size_t k = 0; k < prior.places.size(); ++k) {
        residuals.blocks.push_back({prior.block_kinds[k], &prior.places[k]});
      }
      batch.problem.AddResiduals(residuals);
      arrays->begin.push_back({0, 1});
    }
    for (size_t a = 0; a < arrays->begin.size(); ++a) {
      auto* const begins =
          a < kinds_.size() ? &batch.parameter_begin : &batch.residual_begin;
      begins->push_back(arrays->begin[a].data());
    }
    for (size_t k = 0; drops_any && k < kinds_.size(); ++k) {
      batch.drop.parameter_is_dropped.push_back(kinds_[k].is_dropped.data());
    }
    for (size_t k = 0; wants_any && k < kinds_.size(); ++k) {
      batch.covariance_is_wanted.push_back(kinds_[k].is_wanted.data());
    }
    return batch;
  }

  // Leaves the prior in place of the blocks that are dropped.
  std::string DropBlocks(const Marginal& marginal) {
    if (!marginal.message.empty()) {
      return marginal.message;
    }
    std::vector<BlockFlags> removed;
    for (const BlockKind& kind : kinds_) {
      removed.push_back(kind.is_dropped);
    }
    Prior prior;
    if (marginal.prior != nullptr) {
      prior.prior = marginal.prior;
      prior.cost_function = marginal.prior.get();
      for (const Marginal::Block& block : marginal.blocks) {
        prior.block_kinds.push_back(block.parameters);
        prior.places.push_back(static_cast<int32_t>(block.block));
      }
    }
    Remove(removed, marginal.prior != nullptr ? &prior : nullptr);
    return "";
  }

  // Removes blocks with all that depends on them, and moves the new prior, if
  // there is one, behind the others. If it throws, nothing has changed.
  void Remove(const std::vector<BlockFlags>& removed, Prior* added) {
    priors_.reserve(priors_.size() + 1);
    const std::vector<std::vector<int32_t>> moved = NewPlaces(removed);
    std::vector<BlockFlags> keep_blocks;
    keep_blocks.reserve(removed.size());
    for (const BlockFlags& of_kind : removed) {
      keep_blocks.push_back(Others(of_kind));
    }
    std::vector<BlockFlags> keep;
    for (const ResidualKind& kind : residual_kinds_) {
      keep.push_back(ResidualsToKeep(removed, kind));
    }
    for (size_t r = 0; r < residual_kinds_.size(); ++r) {
      ResidualKind& kind = residual_kinds_[r];
      KeepResiduals(keep[r], &kind);
      for (size_t s = 0; s < kind.places.size(); ++s) {
        for (int32_t& place : kind.places[s]) {
          place = moved[kind.block_kinds[s]][place];
        }
      }
    }
    RemovePriors(removed);
    if (added != nullptr) {
      priors_.push_back(std::move(*added));
    }
    for (Prior& prior : priors_) {
      for (size_t k = 0; k < prior.places.size(); ++k) {
        prior.places[k] = moved[prior.block_kinds[k]][prior.places[k]];
      }
    }
    for (size_t k = 0; k < kinds_.size(); ++k) {
      KeepBlocks(keep_blocks[k], moved[k], &kinds_[k]);
    }
  }

  static BlockFlags Others(const BlockFlags& flags) {
    BlockFlags others;
    others.reserve(flags.size());
    for (const uint8_t flag : flags) {
      others.push_back(flag != 0 ? 0 : 1);
    }
    return others;
  }

  void RemovePriors(const std::vector<BlockFlags>& removed) {
    const auto is_removed = [&](const Prior& prior) {
      for (size_t k = 0; k < prior.places.size(); ++k) {
        if (removed[prior.block_kinds[k]][prior.places[k]] != 0) {
          return true;
        }
      }
      return false;
    };
    priors_.erase(std::remove_if(priors_.begin(), priors_.end(), is_removed),
                  priors_.end());
  }

  // The places of blocks behind those that are removed.
  static std::vector<std::vector<int32_t>> NewPlaces(
      const std::vector<BlockFlags>& removed) {
    std::vector<std::vector<int32_t>> moved;
    for (const std::vector<uint8_t>& of_kind : removed) {
      int32_t next = 0;
      moved.emplace_back();
      for (const uint8_t is_removed : of_kind) {
        moved.back().push_back(next);
        next += is_removed != 0 ? 0 : 1;
      }
    }
    return moved;
  }

  static void KeepBlocks(const BlockFlags& keep,
                         const std::vector<int32_t>& moved,
                         BlockKind* kind) {
    for (size_t b = 0; b < keep.size(); ++b) {
      if (keep[b] != 0) {
        kind->place.find(kind->numbers[b])->second = moved[b];
      } else {
        kind->place.erase(kind->numbers[b]);
      }
    }
    Compact(keep, 1, &kind->numbers);
    Compact(keep, 1, &kind->is_constant);
    Compact(keep, 1, &kind->is_dropped);
    Compact(keep, 1, &kind->is_wanted);
    Compact(keep, kind->size, &kind->values);
  }

  static BlockFlags ResidualsToKeep(const std::vector<BlockFlags>& removed,
                                    const ResidualKind& kind) {
    BlockFlags keep(kind.num_residuals, 1);
    for (size_t s = 0; s < kind.places.size(); ++s) {
      const BlockFlags& of_kind = removed[kind.block_kinds[s]];
      for (int64_t i = 0; i < kind.num_residuals; ++i) {
        keep[i] = of_kind[kind.places[s][i]] != 0 ? 0 : keep[i];
      }
    }
    return keep;
  }

  static void KeepResiduals(const BlockFlags& keep, ResidualKind* kind) {
    Compact(keep, kind->form.constants_bytes, &kind->constants);
    Compact(keep, 1, &kind->weights);
    for (std::vector<int32_t>& of_slot : kind->places) {
      Compact(keep, 1, &of_slot);
    }
    kind->num_residuals = std::count(keep.begin(), keep.end(), 1);
  }

  const ceres::Solver::Options options_;
  const Options ext_options_;
  std::vector<BlockKind> kinds_;
  std::vector<ResidualKind> residual_kinds_;
  std::vector<Prior> priors_;
};

namespace {

// Reports the sentence that call() returns; it is empty for success.
template <typename Call>
bool Try(const Call& call, std::string* error) {
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    const std::string sentence = call();
    if (!sentence.empty()) {
      failure.Set(sentence);
    }
    return sentence.empty();
  });
  if (!is_done && error != nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

}  // namespace

SlidingWindow::SlidingWindow(const ceres::Solver::Options& options,
                             const Options& ext_options)
    : body_(std::make_unique<Body>(options, ext_options)) {}

SlidingWindow::~SlidingWindow() = default;

int SlidingWindow::AddBlockKind(int size,
                                ceres::Manifold* manifold,
                                std::string* error) {
  return Try([&] { return body_->AddBlockKind(size, manifold); }, error)
             ? body_->num_kinds() - 1
             : -1;
}

int SlidingWindow::AddResidualKind(const ArrayProblem::Residuals& form,
                                   const std::vector<int>& block_kinds,
                                   std::string* error) {
  return Try([&] { return body_->AddResidualKind(form, block_kinds); }, error)
             ? body_->num_residual_kinds() - 1
             : -1;
}

bool SlidingWindow::AddBlock(int kind,
                             int64_t number,
                             const double* values,
                             std::string* error) {
  return Try([&] { return body_->AddBlock(kind, number, values); }, error);
}

bool SlidingWindow::SetConstant(int kind,
                                int64_t number,
                                bool is_constant,
                                std::string* error) {
  return Try(
      [&] {
        return body_->SetFlag(
            kind, number, &BlockKind::is_constant, is_constant);
      },
      error);
}

double* SlidingWindow::Values(int kind, int64_t number) {
  BlockKind* const of = body_->kind(kind);
  if (of == nullptr) {
    return nullptr;
  }
  const auto at = of->place.find(number);
  return at == of->place.end()
             ? nullptr
             : of->values.data() + int64_t{of->size} * at->second;
}

const double* SlidingWindow::Values(int kind, int64_t number) const {
  return const_cast<SlidingWindow*>(this)->Values(kind, number);
}

bool SlidingWindow::AddResiduals(int kind,
                                 int64_t n,
                                 const void* constants,
                                 int64_t constants_bytes,
                                 const int64_t* numbers,
                                 const double* weights,
                                 std::string* error) {
  return Try(
      [&] {
        return body_->AddResiduals(
            kind, n, constants, constants_bytes, numbers, weights);
      },
      error);
}

bool SlidingWindow::WantCovariance(int kind,
                                   int64_t number,
                                   bool is_wanted,
                                   std::string* error) {
  return Try(
      [&] {
        return body_->SetFlag(kind, number, &BlockKind::is_wanted, is_wanted);
      },
      error);
}

bool SlidingWindow::Drop(int kind, int64_t number, std::string* error) {
  return Try(
      [&] {
        return body_->SetFlag(kind, number, &BlockKind::is_dropped, true);
      },
      error);
}

bool SlidingWindow::Cut(int kind, int64_t number, std::string* error) {
  return Try([&] { return body_->Cut(kind, number); }, error);
}

bool SlidingWindow::CutResiduals(int residual_kind,
                                 int kind,
                                 int64_t number,
                                 std::string* error) {
  return Try([&] { return body_->CutResiduals(residual_kind, kind, number); },
             error);
}

bool SlidingWindow::Solve(BatchSummary* summary, std::string* error) {
  return Try([&] { return body_->Solve(summary); }, error);
}

int64_t SlidingWindow::NumBlocks(int kind) const {
  const BlockKind* const of = body_->kind(kind);
  return of != nullptr ? of->num_blocks() : 0;
}

int64_t SlidingWindow::NumResiduals(int residual_kind) const {
  const ResidualKind* const of = body_->residual_kind(residual_kind);
  return of != nullptr ? of->num_residuals : 0;
}

int64_t SlidingWindow::NumPriors() const { return body_->num_priors(); }

std::vector<int64_t> SlidingWindow::Numbers(int kind) const {
  const BlockKind* const of = body_->kind(kind);
  return of != nullptr ? of->numbers : std::vector<int64_t>();
}

size_t SlidingWindow::NumBlocksOf(int kind) const {
  const ResidualKind* const of = body_->residual_kind(kind);
  return of != nullptr ? of->block_kinds.size() : 0;
}

bool SlidingWindow::RefuseNumbers(int kind,
                                  size_t num_numbers,
                                  std::string* error) const {
  return Try(
      [&] {
        return Sentence("there are ",
                        num_numbers,
                        " numbers of blocks, expected those of kind ",
                        kind,
                        ", ",
                        NumBlocksOf(kind));
      },
      error);
}

}  // namespace ceres_ext
