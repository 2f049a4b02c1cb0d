// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>

namespace ceres_ext::kernels {
namespace {

// The first bytes of an ELF file, the same in those of 32 and 64 bits.
struct ElfStart {
  unsigned char ident[EI_NIDENT];
  uint16_t type;
  uint16_t machine;
};

bool ReadStart(const std::string& file, ElfStart* start) {
  std::ifstream stream(file, std::ios::binary);
  return stream.read(reinterpret_cast<char*>(start), sizeof(*start)) &&
         std::memcmp(start->ident, ELFMAG, SELFMAG) == 0;
}

// The reason why the dynamic linker can't load a file, empty if nothing is
// found. It is not always clear: a file for another processor is not a file to
// it.
std::string WhyNoLibrary(const std::string& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) {
    return file + " does not exist or can't be reached";
  }
  if (S_ISDIR(status.st_mode)) {
    return file + " is a folder";
  }
  ElfStart start;
  if (!ReadStart(file, &start)) {
    return file + " can't be read or is not a shared library";
  }
  ElfStart own;
  if (ReadStart("/proc/self/exe", &own) &&
      (start.ident[EI_CLASS] != own.ident[EI_CLASS] ||
       start.ident[EI_DATA] != own.ident[EI_DATA] ||
       start.machine != own.machine)) {
    return file + " is for another processor";
  }
  return "";
}

// The place in which the dynamic linker has found a library.
std::string FileOf(void* handle, const std::string& file) {
  const link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0'
             ? map->l_name
             : file;
}

// The version of an open library, of which the first number is there on
// success. Returns what is wrong with the file.
std::string ReadVersion(const SharedLibrary& library,
                        void* handle,
                        std::vector<int>* version) {
  const bool has_property = !library.get_property.empty();
  const std::string& name =
      has_property ? library.get_property : library.get_version;
  void* const function = dlsym(handle, name.c_str());
  if (function == nullptr) {
    return "lacks " + name;
  }
  int number = 0;
  if (!has_property) {
    const auto get_version = reinterpret_cast<int (*)(int*)>(function);
    if (get_version(&number) != 0) {
      return "does not say its version";
    }
    *version = {number / 10000, number / 100 % 100, number % 100};
    return "";
  }
  const auto get_property = reinterpret_cast<int (*)(int, int*)>(function);
  for (const int property : {0, 1, 2}) {
    if (get_property(property, &number) == 0 && number >= 0) {
      version->push_back(number);
    } else if (property == 0) {
      return "does not say its version";
    }
  }
  return "";
}

// The fault of a file, empty if it is as expected.
std::string TryOpen(const SharedLibrary& library,
                    const std::string& name,
                    std::vector<void*>* functions,
                    std::string* found) {
  if (name.find('/') != std::string::npos) {
    std::string why = WhyNoLibrary(name);
    if (!why.empty()) {
      return why;
    }
  }
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    return error != nullptr ? error : name + " can't be opened";
  }
  const std::string file = FileOf(handle, name);
  std::vector<int> version;
  std::string why = ReadVersion(library, handle, &version);
  if (!why.empty()) {
    return file + " " + why;
  }
  if (version[0] != library.major_version) {
    return file + " is of version " + std::to_string(version[0]);
  }
  functions->clear();
  for (const std::string& function : library.functions) {
    functions->push_back(dlsym(handle, function.c_str()));
    if (functions->back() == nullptr) {
      return file + " lacks " + function;
    }
  }
  *found = library.name;
  for (size_t i = 0; i < version.size(); ++i) {
    *found += (i == 0 ? " " : ".") + std::to_string(version[i]);
  }
  return "";
}

struct LibraryFolders {
  std::mutex mutex;
  std::vector<std::string> folders;
};

// Never destroyed, since solves may run while the process exits.
LibraryFolders& Folders() {
  static LibraryFolders* const folders = new LibraryFolders;
  return *folders;
}

}  // namespace

void SetCudaLibraryFolders(const std::vector<std::string>& folders) {
  LibraryFolders& all = Folders();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.folders = folders;
}

std::vector<std::string> CudaLibraryFiles(const std::string& name,
                                          int major_version,
                                          const std::string& known_folder) {
  const std::string file =
      "lib" + name + ".so." + std::to_string(major_version);
  std::vector<std::string> files;
  void* const loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (loaded != nullptr) {
    files.push_back(file);
    dlclose(loaded);
  }
  {
    LibraryFolders& all = Folders();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (const std::string& folder : all.folders) {
      struct stat status;
      if (stat((folder + "/" + file).c_str(), &status) == 0) {
        files.push_back(folder + "/" + file);
      }
    }
  }
  if (loaded == nullptr) {
    files.push_back(file);
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const home = std::getenv(variable);
    if (home != nullptr && home[0] != '\0') {
      files.push_back(std::string(home) + "/lib64/" + file);
      break;
    }
  }
  if (!known_folder.empty()) {
    files.push_back(known_folder + "/" + file);
  }
  return files;
}

Status OpenSharedLibrary(const SharedLibrary& library,
                         const std::vector<std::string>& files,
                         std::vector<void*>* functions,
                         std::string* found) {
  std::string found_here;
  std::string message = library.name + " of version " +
                        std::to_string(library.major_version) +
                        " was expected and not found: ";
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string why = TryOpen(library, files[i], functions, &found_here);
    if (why.empty()) {
      if (found != nullptr) {
        *found = found_here;
      }
      return {};
    }
    message += (i == 0 ? "" : "; ") + why;
  }
  functions->clear();
  return {StatusCode::kUnsupported, message + "."};
}

}  // namespace ceres_ext::kernels
