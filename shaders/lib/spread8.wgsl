// As lib/spread, for the three vectors of a k-block of bytes.

#for g in 0..3
fn x_take$g(part: vec4<u32>, at: u32) -> vec4<u32> {
    return subgroupBroadcast(part, ${g}u);
}
#end
