// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <string>
#include <vector>

#include "examples/bal/bal_synthetic.h"

namespace ceres_ext::bal {

const std::vector<BalSize>& BalSizes() {
  // clang-format off
  static const auto* const kSizes = new std::vector<BalSize>{
      {"ladybug-49", 49, 7776, 31843},
      {"ladybug-73", 73, 11032, 46122},
      {"ladybug-138", 138, 19878, 85217},
      {"ladybug-318", 318, 41628, 179919},
      {"ladybug-372", 372, 47423, 204472},
      {"ladybug-412", 412, 52215, 224242},
      {"ladybug-460", 460, 56811, 241877},
      {"ladybug-539", 539, 65220, 277273},
      {"ladybug-598", 598, 69218, 304170},
      {"ladybug-646", 646, 73584, 327297},
      {"ladybug-707", 707, 78455, 349940},
      {"ladybug-783", 783, 84444, 377052},
      {"ladybug-810", 810, 88814, 393775},
      {"ladybug-856", 856, 93344, 415769},
      {"ladybug-885", 885, 97473, 434905},
      {"ladybug-931", 931, 102699, 457460},
      {"ladybug-969", 969, 105826, 474627},
      {"ladybug-1031", 1031, 110968, 500265},
      {"ladybug-1064", 1064, 113655, 510211},
      {"ladybug-1118", 1118, 118384, 528926},
      {"ladybug-1152", 1152, 122269, 545819},
      {"ladybug-1197", 1197, 126327, 563734},
      {"ladybug-1235", 1235, 129634, 576286},
      {"ladybug-1266", 1266, 132593, 587942},
      {"ladybug-1340", 1340, 137079, 612593},
      {"ladybug-1469", 1469, 145199, 641646},
      {"ladybug-1514", 1514, 147317, 651480},
      {"ladybug-1587", 1587, 150845, 663289},
      {"ladybug-1642", 1642, 153820, 671268},
      {"ladybug-1695", 1695, 155710, 676595},
      {"ladybug-1723", 1723, 156502, 678718},
      {"trafalgar-21", 21, 11315, 36455},
      {"trafalgar-39", 39, 18060, 63551},
      {"trafalgar-50", 50, 20431, 73967},
      {"trafalgar-126", 126, 40037, 148328},
      {"trafalgar-138", 138, 44033, 165899},
      {"trafalgar-161", 161, 48126, 182072},
      {"trafalgar-170", 170, 49267, 185815},
      {"trafalgar-174", 174, 50489, 188809},
      {"trafalgar-193", 193, 53101, 196526},
      {"trafalgar-201", 201, 54427, 199938},
      {"trafalgar-206", 206, 54562, 200715},
      {"trafalgar-215", 215, 55910, 204202},
      {"trafalgar-225", 225, 57665, 208622},
      {"trafalgar-257", 257, 65132, 225911},
      {"dubrovnik-16", 16, 22106, 83718},
      {"dubrovnik-88", 88, 64298, 383937},
      {"dubrovnik-135", 135, 90642, 553336},
      {"dubrovnik-142", 142, 93602, 565608},
      {"dubrovnik-150", 150, 95821, 568119},
      {"dubrovnik-161", 161, 103832, 592019},
      {"dubrovnik-173", 173, 111908, 634570},
      {"dubrovnik-182", 182, 116770, 668705},
      {"dubrovnik-202", 202, 132796, 751652},
      {"dubrovnik-237", 237, 154414, 858331},
      {"dubrovnik-253", 253, 163691, 899155},
      {"dubrovnik-262", 262, 169354, 919688},
      {"dubrovnik-273", 273, 176305, 942970},
      {"dubrovnik-287", 287, 182023, 971292},
      {"dubrovnik-308", 308, 195089, 1045197},
      {"dubrovnik-356", 356, 226730, 1255268},
      {"venice-52", 52, 64053, 347173},
      {"venice-89", 89, 110973, 562976},
      {"venice-245", 245, 198739, 1091386},
      {"venice-427", 427, 310384, 1699145},
      {"venice-744", 744, 543562, 3058863},
      {"venice-951", 951, 708276, 3748892},
      {"venice-1102", 1102, 780462, 4052340},
      {"venice-1158", 1158, 802917, 4130503},
      {"venice-1184", 1184, 816583, 4179047},
      {"venice-1238", 1238, 843534, 4290503},
      {"venice-1288", 1288, 866452, 4383006},
      {"venice-1350", 1350, 894716, 4517126},
      {"venice-1408", 1408, 912229, 4634530},
      {"venice-1544", 1544, 942409, 4750193},
      {"venice-1778", 1778, 993923, 5001946},
      {"final-93", 93, 61203, 287451},
      {"final-1936", 1936, 649673, 5213733},
      {"final-3068", 3068, 310854, 1653812},
      {"final-4585", 4585, 1324582, 9125125},
      {"final-13682", 13682, 4456117, 28987644},
  };
  // clang-format on
  return *kSizes;
}

bool FindBalSize(const std::string& name, SyntheticOptions* options) {
  for (const BalSize& size : BalSizes()) {
    if (name == size.name) {
      options->num_cameras = size.num_cameras;
      options->num_points = size.num_points;
      options->num_observations = size.num_observations;
      return true;
    }
  }
  return false;
}

}  // namespace ceres_ext::bal
