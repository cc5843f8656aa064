// Groups the (token, rank) pairs of a step by expert, in ascending order of pair, and cuts each
// group into tiles of TILE pairs. One workgroup; a thread owns every WG-th expert.
//
// route: expert of each pair at word 0.. (read); at `list_at` the grouped pairs; at `tiles_at` the
// number of tiles, then 3 words a tile: expert, first and end in the list

struct Params {
    pairs: u32,
    experts: u32, // at most EXPERTS
    tile: u32,
    list_at: u32,
    tiles_at: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> route: array<u32>;

var<workgroup> counts: array<u32, EXPERTS>;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_id) local: vec3<u32>) {
    for (var e = local.x; e < p.experts; e += WG) {
        var count = 0u;
        for (var i = 0u; i < p.pairs; i += 4u) {
#for k in 0..4
            count += select(0u, 1u, i + ${k}u < p.pairs && route[min(i + ${k}u, p.pairs - 1u)] == e);
#end
        }
        counts[e] = count;
    }
    workgroupBarrier();
    for (var e = local.x; e < p.experts; e += WG) {
        var first = 0u;
        var tile = 0u;
        for (var before = 0u; before < e; before++) {
            first += counts[before];
            tile += (counts[before] + p.tile - 1u) / p.tile;
        }
        let end = first + counts[e];
        var at = first;
        for (var i = 0u; i < p.pairs && at < end; i++) {
            if (route[i] == e) {
                route[p.list_at + at] = i;
                at++;
            }
        }
        for (var start = first; start < end; start += p.tile) {
            let to = p.tiles_at + 1u + tile * 3u;
            route[to] = e;
            route[to + 1u] = start;
            route[to + 2u] = min(start + p.tile, end);
            tile++;
        }
        if (e == p.experts - 1u) {
            route[p.tiles_at] = tile;
        }
    }
}
