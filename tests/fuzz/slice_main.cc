// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// slice SEEDS [NUM [FIRST]]: a fuzzer without libFuzzer, for the tests: inputs
// FIRST ... FIRST + NUM - 1, each made of the files in SEEDS by a generator
// seeded with its number. The same on every machine and with every compiler.
// CERES_EXT_NUM_CASES replaces NUM.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kLargestInput = 8192;

volatile int64_t current_input = -1;

void SayInputAndEnd(int signal) {
  char text[60];
  const int size = std::snprintf(text,
                                 sizeof(text),
                                 "signal %d in input %lld\n",
                                 signal,
                                 static_cast<long long>(current_input));
  if (write(STDERR_FILENO, text, size) == size) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  _exit(2);
}

std::string MakeInput(const std::vector<std::string>& seeds, int64_t number) {
  std::mt19937_64 generator(number);
  const auto below = [&](size_t n) {
    return n == 0 ? 0 : static_cast<size_t>(generator() % n);
  };
  const auto a_seed = [&] { return seeds[below(seeds.size())]; };
  std::string input = a_seed();
  for (size_t i = below(9); i > 0; --i) {
    const size_t place = below(input.size() + 1);
    const size_t length = 1 + below(below(4) == 0 ? 256 : 8);
    switch (below(9)) {
      case 0:
        if (place < input.size()) {
          input[place] ^= static_cast<char>(1 << below(8));
        }
        break;
      case 1:
        if (place < input.size()) {
          input[place] = static_cast<char>(below(256));
        }
        break;
      case 2:
        if (place < input.size()) {
          input[place] = "\x00\xff\x7f\x80 \n-+.e019"[below(14)];
        }
        break;
      case 3:
        input.insert(place, length, static_cast<char>(below(256)));
        break;
      case 4:
        input.erase(std::min(place, input.size()), length);
        break;
      case 5:
        input.insert(place, input.substr(below(input.size() + 1), length));
        break;
      case 6:
        input.resize(place);
        break;
      case 7: {
        const std::string other = a_seed();
        input.insert(place, other.substr(below(other.size() + 1), length));
        break;
      }
      default:
        input += a_seed();
        break;
    }
  }
  input.resize(std::min(input.size(), kLargestInput));
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s SEEDS [NUM [FIRST]]\n", argv[0]);
    return 1;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: expected files, found none\n", argv[1]);
    return 1;
  }
  const char* const given = std::getenv("CERES_EXT_NUM_CASES");
  const int64_t num = given != nullptr ? std::atoll(given)
                      : argc > 2       ? std::atoll(argv[2])
                                       : 2000;
  const int64_t first = argc > 3 ? std::atoll(argv[3]) : 0;
  for (const int signal : {SIGABRT, SIGALRM}) {
    std::signal(signal, &SayInputAndEnd);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (const int signal : {SIGSEGV, SIGFPE}) {  // else the sanitizer's
    std::signal(signal, &SayInputAndEnd);
  }
#endif
  for (int64_t i = first; i < first + num; ++i) {
    current_input = i;
    alarm(60);
    const std::string input = MakeInput(seeds, i);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                           input.size());
  }
  std::printf("%lld inputs\n", static_cast<long long>(num));
  return 0;
}
