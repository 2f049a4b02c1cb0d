// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifdef WITH_TYPES_OF_CERES
namespace ceres::internal {
struct TypeOfAStaticLibrary {
  virtual ~TypeOfAStaticLibrary() = default;
};
}  // namespace ceres::internal
ceres::internal::TypeOfAStaticLibrary object;
#endif
#ifdef WITH_OTHER_CERES
int OnlyOtherCeresHasThis();
#else
int OnlyOtherCeresHasThis() { return 0; }
#endif

int main() { return OnlyOtherCeresHasThis(); }
