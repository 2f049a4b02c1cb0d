// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes down when each kernel, copy and memset of a program ran on the device.
// The program stays as it is: CUDA loads this library into it.
//
//   export CUDA_INJECTION64_PATH=.../libcuda_timeline.so
//   CERES_EXT_TIMELINE=timeline.csv ./program
//   scripts/timeline_table.py timeline.csv
//
// One line per activity, in the order of their starts:
//
//   kind       kernel, copy_to_device, copy_to_host, copy_on_device,
//              copy_other, memset; with CERES_EXT_TIMELINE_CALLS=1 call, of the
//              host to the CUDA run time
//   name       of the kernel, with namespaces and parameters, or of the
//              function; empty for the rest
//   bytes      of copies and memsets
//   start_ns, end_ns  from the first start on
//   stream     CUPTI's number of it; of a call that of its thread
//
// CUPTI's activity records need no performance counters and so no privileges.
// They cost the program some microseconds of host time per launch; the times of
// the kernels themselves are the device's. Failures are reported on standard
// error, and the program continues.

#include <cuda.h>
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace ceres_ext {
namespace {

// A kernel's record is about 250 bytes: 30 thousand of them.
constexpr size_t kBufferBytes = size_t{8} << 20;

struct Activity {
  const char* kind;
  int32_t name_id;  // -1: none
  uint32_t stream;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
};

struct Timeline {
  std::mutex mutex;
  std::vector<Activity> activities;
  std::vector<std::string> names;  // mangled
  std::unordered_map<std::string, int32_t> name_ids;
  uint64_t num_dropped = 0;
  uint64_t num_unfinished = 0;
};

// Never destroyed: CUPTI may call while the program's objects are.
Timeline& GetTimeline() {
  static auto* const timeline = new Timeline;
  return *timeline;
}

bool Check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) {
    return true;
  }
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::fprintf(stderr,
               "cuda_timeline: %s: %s\n",
               what,
               text != nullptr ? text : "unknown error");
  return false;
}

const char* CopyKind(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return "copy_to_device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return "copy_to_host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy_on_device";
    default:
      return "copy_other";
  }
}

int32_t NameId(const char* name, Timeline* timeline) {
  const auto inserted =
      timeline->name_ids.emplace(name != nullptr ? name : "",
                                 static_cast<int32_t>(timeline->names.size()));
  if (inserted.second) {
    timeline->names.push_back(inserted.first->first);
  }
  return inserted.first->second;
}

void Add(const Activity& activity, Timeline* timeline) {
  // Forced out before the device was done.
  if (activity.start == 0 || activity.end == 0) {
    ++timeline->num_unfinished;
    return;
  }
  timeline->activities.push_back(activity);
}

void AddRecord(const CUpti_Activity* record, Timeline* timeline) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* kernel =
          reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      Add({"kernel",
           NameId(kernel->name, timeline),
           kernel->streamId,
           0,
           kernel->start,
           kernel->end},
          timeline);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      Add({CopyKind(copy->copyKind),
           -1,
           copy->streamId,
           copy->bytes,
           copy->start,
           copy->end},
          timeline);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      Add({"memset", -1, set->streamId, set->bytes, set->start, set->end},
          timeline);
      break;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME: {
      const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
      const char* name = nullptr;
      static_cast<void>(
          cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, call->cbid, &name));
      Add({"call",
           NameId(name, timeline),
           call->threadId,
           0,
           call->start,
           call->end},
          timeline);
      break;
    }
    default:
      break;
  }
}

// Without a buffer CUPTI drops records, and counts them.
void CUPTIAPI BufferRequested(uint8_t** buffer,
                              size_t* size,
                              size_t* max_num_records) {
  *buffer = static_cast<uint8_t*>(
      std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *max_num_records = 0;
}

void CUPTIAPI BufferCompleted(CUcontext context,
                              uint32_t stream_id,
                              uint8_t* buffer,
                              size_t /*size*/,
                              size_t valid_size) {
  Timeline& timeline = GetTimeline();
  try {
    const std::lock_guard<std::mutex> lock(timeline.mutex);
    CUpti_Activity* record = nullptr;
    while (valid_size > 0 &&
           cuptiActivityGetNextRecord(buffer, valid_size, &record) ==
               CUPTI_SUCCESS) {
      AddRecord(record, &timeline);
    }
    size_t num_dropped = 0;
    if (cuptiActivityGetNumDroppedRecords(context, stream_id, &num_dropped) ==
        CUPTI_SUCCESS) {
      timeline.num_dropped += num_dropped;
    }
  } catch (const std::exception&) {
    std::fprintf(stderr, "cuda_timeline: no memory for more records\n");
  }
  std::free(buffer);
}

std::string Demangled(const std::string& mangled) {
  int status = 0;
  char* const demangled =
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  return name;
}

std::string Quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    result += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return result + "\"";
}

void Write(Timeline* timeline) {
  const char* path = std::getenv("CERES_EXT_TIMELINE");
  if (path == nullptr || *path == '\0') {
    path = "cuda_timeline.csv";
  }
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) {
    std::fprintf(stderr, "cuda_timeline: can't write %s\n", path);
    return;
  }
  std::stable_sort(
      timeline->activities.begin(),
      timeline->activities.end(),
      [](const Activity& a, const Activity& b) { return a.start < b.start; });
  std::vector<std::string> names;
  for (const std::string& name : timeline->names) {
    names.push_back(Quoted(Demangled(name)));
  }
  std::fputs("kind,name,bytes,start_ns,end_ns,stream\n", file);
  const uint64_t begin =
      timeline->activities.empty() ? 0 : timeline->activities.front().start;
  for (const Activity& a : timeline->activities) {
    std::fprintf(file,
                 "%s,%s,%llu,%llu,%llu,%u\n",
                 a.kind,
                 a.name_id < 0 ? "" : names[a.name_id].c_str(),
                 static_cast<unsigned long long>(a.bytes),
                 static_cast<unsigned long long>(a.start - begin),
                 static_cast<unsigned long long>(a.end - begin),
                 a.stream);
  }
  if (std::fclose(file) != 0) {
    std::fprintf(stderr, "cuda_timeline: could not write all of %s\n", path);
  }
  if (timeline->num_dropped > 0 || timeline->num_unfinished > 0) {
    std::fprintf(stderr,
                 "cuda_timeline: %llu records dropped, %llu unfinished\n",
                 static_cast<unsigned long long>(timeline->num_dropped),
                 static_cast<unsigned long long>(timeline->num_unfinished));
  }
}

void Finish() {
  Check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush");
  Timeline& timeline = GetTimeline();
  try {
    const std::lock_guard<std::mutex> lock(timeline.mutex);
    Write(&timeline);
  } catch (const std::exception&) {
    std::fprintf(stderr, "cuda_timeline: no memory to write the records\n");
  }
}

}  // namespace
}  // namespace ceres_ext

// CUDA calls this once when it starts, in the library of CUDA_INJECTION64_PATH.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(
    void) {
  using ceres_ext::BufferCompleted;
  using ceres_ext::BufferRequested;
  using ceres_ext::Check;
  ceres_ext::GetTimeline();
  bool usable =
      Check(cuptiActivityRegisterCallbacks(BufferRequested, BufferCompleted),
            "callbacks");
  for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                  CUPTI_ACTIVITY_KIND_MEMCPY,
                                  CUPTI_ACTIVITY_KIND_MEMSET}) {
    usable = usable && Check(cuptiActivityEnable(kind), "activity");
  }
  const char* calls = std::getenv("CERES_EXT_TIMELINE_CALLS");
  if (calls != nullptr && *calls == '1') {
    usable = usable &&
             Check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME), "calls");
  }
  // Handlers run in the reverse order of their registration: this one before
  // CUDA's own, and before the destructors of what the program had at its
  // start.
  if (usable && std::atexit(ceres_ext::Finish) != 0) {
    std::fprintf(stderr, "cuda_timeline: no exit handler\n");
  }
  return 1;
}
