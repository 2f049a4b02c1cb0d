// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums of a model window (model_solve.h).
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_

#include "ceres_ext/small/model_window/model_window.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// All elements at once, of sizes that the compiler knows unless they are 0.
template <int kRows, int kColumns, typename ForEach, typename Store>
CERES_EXT_HOST_DEVICE void SumWholeCell(int given_rows,
                                        int given_columns,
                                        const ForEach& for_each,
                                        const Store& store) {
  const int num_rows = kRows > 0 ? kRows : given_rows;
  const int num_columns = kColumns > 0 ? kColumns : given_columns;
  double sum[kRows > 0 ? kRows : kMaxModelValues]
            [kColumns > 0 ? kColumns : kMaxModelValues] = {};
  for_each([&](const double* a, const double* b, const auto&...) {
    for (int r = 0; r < num_rows; ++r) {
      for (int c = 0; c < num_columns; ++c) {
        sum[r][c] += a[r] * b[c];
      }
    }
  });
  for (int r = 0; r < num_rows; ++r) {
    for (int c = 0; c < num_columns; ++c) {
      store(r, c, sum[r][c]);
    }
  }
}

// How lanes of a device take the entries of a cell: those of a slice all of
// them, or the slices of a warp, or of the warps of a unit, in turn.
enum class ModelSlicing { kNone, kWarp, kUnit };

// A slice's lanes have places, each with elements of the cell. A unit is a
// block of threads.
template <typename Team>
struct ModelSlices {
  static constexpr int kWarps = Team::kWarp > 1 ? 8 : 1;
  static constexpr int kSlices = Team::kWarp > 1 ? 4 : 1;
  static constexpr int kPlaces = Team::kWarp / kSlices;
  CERES_EXT_HOST_DEVICE static int slice(const Team& team) {
    return team.rank() % kSlices;
  }
  CERES_EXT_HOST_DEVICE static int place(const Team& team) {
    return team.rank() % Team::kWarp / kSlices;
  }
  CERES_EXT_HOST_DEVICE static int turn(const Team& team,
                                        ModelSlicing slicing) {
    return slicing == ModelSlicing::kNone ? 0
           : slicing == ModelSlicing::kWarp
               ? slice(team)
               : team.rank() / Team::kWarp % kWarps * kSlices + slice(team);
  }
  static constexpr int NumTurns(ModelSlicing slicing) {
    return slicing == ModelSlicing::kNone   ? 1
           : slicing == ModelSlicing::kWarp ? kSlices
                                            : kSlices * kWarps;
  }
  // A unit has a cell of so many entries, and otherwise a warp.
  CERES_EXT_HOST_DEVICE static bool IsLong(int num_entries) {
    return kWarps > 1 && num_entries > 32;
  }
};

// kTile elements a place of those of SumModelCell, from the first on.
template <ModelSlicing kSlicing,
          int kTile,
          typename ForEach,
          typename Store,
          typename Team>
CERES_EXT_HOST_DEVICE void SumPartOfCell(int first,
                                         int num_rows,
                                         int num_columns,
                                         bool has_right,
                                         const ForEach& for_each,
                                         const Store& store,
                                         Team* team) {
  using Slices = ModelSlices<Team>;
  const int width = num_columns + (has_right ? 1 : 0);
  const int n = num_rows * width;
  const int turn = Slices::turn(*team, kSlicing);
  const int place = Slices::place(*team);
  int row[kTile];
  int column[kTile];
  double sums[kTile];
  for (int t = 0; t < kTile; ++t) {
    const int given = first + place + Slices::kPlaces * t;
    const int e = given < n ? given : n - 1;
    row[t] = e / width;
    column[t] = e % width;
    sums[t] = 0.0;
  }
  for_each(turn,
           Slices::NumTurns(kSlicing),
           [&](const double* a, const double* b, const double* right) {
             for (int t = 0; t < kTile; ++t) {
               const double* const factor =
                   column[t] < num_columns ? b + column[t] : right;
               sums[t] += a[row[t]] * *factor;
             }
           });
  if constexpr (kSlicing == ModelSlicing::kWarp) {
    team->SumSlices(sums, Slices::kSlices);
  } else if constexpr (kSlicing == ModelSlicing::kUnit) {
    team->SumTurns(sums, Slices::kSlices);
  }
  for (int t = 0; t < kTile; ++t) {
    if (first + place + Slices::kPlaces * t < n && turn == 0) {
      store(row[t], column[t], sums[t]);
    }
  }
}

template <typename ForEach, typename Store>
CERES_EXT_HOST_DEVICE void SumCellOnHost(int num_rows,
                                         int num_columns,
                                         const ForEach& for_each,
                                         const Store& store) {
  if (num_rows == 6 && num_columns == 6) {
    SumWholeCell<6, 6>(6, 6, for_each, store);
  } else if (num_rows == 9 && num_columns == 9) {
    SumWholeCell<9, 9>(9, 9, for_each, store);
  } else if (num_rows == 9 && num_columns == 6) {
    SumWholeCell<9, 6>(9, 6, for_each, store);
  } else if (num_rows == 6 && num_columns == 9) {
    SumWholeCell<6, 9>(6, 9, for_each, store);
  } else if (num_rows == 1 && num_columns == 6) {
    SumWholeCell<1, 6>(1, 6, for_each, store);
  } else if (num_rows == 3 && num_columns == 6) {
    SumWholeCell<3, 6>(3, 6, for_each, store);
  } else if (num_rows == 1 && num_columns == 1) {
    SumWholeCell<1, 1>(1, 1, for_each, store);
  } else if (num_rows == 6 && num_columns == 1) {
    SumWholeCell<6, 1>(6, 1, for_each, store);
  } else if (num_rows == 9 && num_columns == 1) {
    SumWholeCell<9, 1>(9, 1, for_each, store);
  } else {
    SumWholeCell<0, 0>(num_rows, num_columns, for_each, store);
  }
}

// Calls store(r, c, sum) for each element of the sum of a'b over what
// for_each(turn, turns, function) calls function(a, b, right) for, and if
// has_right store(r, num_columns, sum) for those of a right[0]. All lanes that
// take turns call this.
template <ModelSlicing kSlicing,
          typename ForEach,
          typename Store,
          typename Team>
CERES_EXT_HOST_DEVICE void SumModelCell(int num_rows,
                                        int num_columns,
                                        bool has_right,
                                        const ForEach& for_each,
                                        const Store& store,
                                        Team* team) {
  if constexpr (Team::kWarp > 1) {
    constexpr int kPlaces = ModelSlices<Team>::kPlaces;
    constexpr int kTile = 6;
    const int n = num_rows * (num_columns + (has_right ? 1 : 0));
    if (n <= kPlaces) {
      SumPartOfCell<kSlicing, 1>(
          0, num_rows, num_columns, has_right, for_each, store, team);
      return;
    }
    for (int first = 0; first < n; first += kTile * kPlaces) {
      SumPartOfCell<kSlicing, kTile>(
          first, num_rows, num_columns, has_right, for_each, store, team);
    }
  } else {
    SumCellOnHost(
        num_rows,
        num_columns,
        [&](const auto& function) {
          for_each(0, 1, [&](const double* a, const double* b, const double*) {
            function(a, b);
          });
        },
        store);
    if (has_right) {
      SumCellOnHost(
          num_rows,
          1,
          [&](const auto& function) {
            for_each(
                0, 1, [&](const double* a, const double*, const double* right) {
                  function(a, right);
                });
          },
          [&](int r, int, double sum) { store(r, num_columns, sum); });
    }
  }
}

// Adds what element (r, c) of H contributes, and (c, r) if is_twice.
template <int n>
CERES_EXT_HOST_DEVICE void AddHessianProducts(
    const double* const (&vectors)[n],
    int r,
    int c,
    bool is_twice,
    double value,
    double (&products)[n * (n + 1) / 2]) {
  int k = 0;
  for (int i = 0; i < n; ++i) {
    const double* const a = vectors[i];
    for (int j = i; j < n; ++j, ++k) {
      const double* const b = vectors[j];
      products[k] += value * (a[r] * b[c] + (is_twice ? a[c] * b[r] : 0.0));
    }
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_
