// What a CPU build of torch lacks for tensors that say they are on "cuda": a device guard, which
// operators ask for on the way to their kernels, and CUDA's hooks, which answer "is there a GPU?".
// Nothing computes here; streams are all one, and an event is a non-null pointer.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

DeviceIndex device_count() {
  const char* count = std::getenv("PRETENDED_DEVICES");
  return static_cast<DeviceIndex>(count == nullptr ? 1 : std::atoi(count));
}

Device first_device() { return Device(DeviceType::CUDA, 0); }

Stream only_stream() { return Stream(Stream::DEFAULT, first_device()); }

struct PretendedGuard : public c10::impl::DeviceGuardImplInterface {
  PretendedGuard() = default;
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return first_device(); }
  Device getDevice() const override { return first_device(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return only_stream(); }
  Stream getDefaultStream(Device) const override { return only_stream(); }
  Stream getNewStream(Device, int = 0) const override { return only_stream(); }
  Stream exchangeStream(Stream) const noexcept override { return only_stream(); }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};

struct PretendedHooks final : at::CUDAHooksInterface {
  explicit PretendedHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return device_count(); }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return device_count(); }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, PretendedGuard)

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, ::PretendedHooks)
}
