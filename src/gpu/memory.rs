//! How much memory an adapter has. WebGPU does not tell; Vulkan does, underneath.

/// Bytes of the largest heap that is the device's own.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub fn bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handles are only read, while `adapter` keeps them alive.
    let properties = unsafe {
        let vulkan = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let device = vulkan.raw_physical_device();
        let instance = vulkan.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(device)
    };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    heaps.filter(|h| h.flags.as_raw() & DEVICE_LOCAL != 0).map(|h| h.size).max()
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub fn bytes(_adapter: &wgpu::Adapter) -> Option<u64> {
    None
}
