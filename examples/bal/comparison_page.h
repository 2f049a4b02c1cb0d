// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_BAL_COMPARISON_PAGE_H_
#define EXAMPLES_BAL_COMPARISON_PAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "examples/bal/comparison.h"

namespace ceres_ext::bal {

// A comparison as a page (html_page.h), below 1 MB. left_out are solvers that
// did not run, and why.
std::string ComparisonPage(
    const Comparison& comparison,
    const ComparisonResult& result,
    const std::vector<std::pair<std::string, std::string>>& left_out);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COMPARISON_PAGE_H_
