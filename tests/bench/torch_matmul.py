"""Times of torch's matrix products in bfloat16 as JSON: torch_matmul.py ROWS TOKENS,..."""

import json
import sys

import torch


def main():
    rows = int(sys.argv[1])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = []
    # So many matrices in turn that none is in a cache, as `bench kernels` has it.
    turns = min(32, max(1, (256 << 20) // (rows * rows * 2)))
    make = lambda *size: torch.randn(*size, device=device).to(torch.bfloat16)
    matrices = [make(rows, rows) for _ in range(turns)]
    for tokens in map(int, sys.argv[2].split(",")):
        x = make(tokens, rows)
        seconds = timed(lambda n: x @ matrices[n % turns].T, device)
        gop = 2.0 * rows * rows * tokens / 1e9
        out.append({"tokens": tokens, "micros": seconds * 1e6, "gop_per_second": gop / seconds})
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(json.dumps({"torch": torch.__version__, "device": name, "matmul": out}, indent=2))


def timed(run, device):
    """Seconds of one call: as many as take 50 ms, three times, the middle one."""
    from time import perf_counter

    def wall(calls):
        if device == "cuda":
            torch.cuda.synchronize()
        start = perf_counter()
        for n in range(calls):
            run(n)
        if device == "cuda":
            torch.cuda.synchronize()
        return perf_counter() - start

    wall(3)
    calls = max(1, min(4096, int(0.05 / max(wall(1), 1e-6))))
    return sorted(wall(calls) / calls for _ in range(3))[1]


main()
