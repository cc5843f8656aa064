"""The results of `tests/bench/h200` as results.json and results.md: tables.py FOLDER [FILE]."""

import json
import pathlib
import sys

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def main():
    folder = pathlib.Path(sys.argv[1])
    files = sorted(path for path in folder.glob("*.json") if path.name != "results.json")
    found = {path.stem: json.loads(path.read_text()) for path in files}
    (folder / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    parts = [facts(found), products(found), decode(found), prefill(found), left_out(folder)]
    text = "\n".join(part for part in parts if part)
    (folder / "results.md").write_text(text)
    print(text)
    if len(sys.argv) > 2:
        page = pathlib.Path(sys.argv[2])
        head, rest = page.read_text().split(BEGIN)
        page.write_text(head + BEGIN + "\n" + text + END + rest.split(END)[1])


def table(head, rows):
    line = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |\n"
    return line(head) + line(["---"] + ["---:"] * (len(head) - 1)) + "".join(map(line, rows))


def measured(found, kind):
    """(format, result) of every measurement of a kind."""
    return [(n.split("-", 1)[1], r) for n, r in found.items() if n.startswith(kind + "-")]


def facts(found):
    one = next((r for r in found.values() if "device" in r and "version" in r), None)
    device = found.get("facts", {}).get("chosen") or (one or {}).get("device")
    if not device:
        return ""
    version = (one or found["facts"])["version"] + " " + (one or {}).get("commit", "")[:12]
    rows = [["adapter", f"{device['name']} ({device['backend']}, {device['driver']})"]]
    rows.append(["tilewright", version.strip()])
    keys = ["lanes", "f16", "matrix_side", "timestamps", "binding_bytes_max", "shared_bytes_max"]
    rows += [[key, device[key]] for key in keys]
    for _, result in measured(found, "kernels")[:1]:
        ceilings = result["ceilings"]
        rows.append(["copies, GB/s", f"{ceilings['copy_gb_per_second']:.1f}"])
        if "fma_gop_per_second" in ceilings:
            rows.append(["f32 multiply-adds, Gop/s", f"{ceilings['fma_gop_per_second']:.0f}"])
    return table(["fact", "value"], rows)


def products(found):
    torch = {m["tokens"]: m for m in found.get("torch", {}).get("matmul", [])}
    head = ["product", "rows", "µs", "Gop/s", "of copies", "of multiply-adds", "torch bf16 Gop/s"]
    rows = []
    for form, result in measured(found, "kernels"):
        for k in result["kernels"]:
            beside = torch.get(k["tokens"])
            fma, gop = k.get("fma_percent"), k["gop_per_second"]
            of_torch = "-"
            if beside:
                other = beside["gop_per_second"]
                of_torch = f"{other:.0f} ({100 * gop / other:.0f} %)"
            rows.append([
                f"{k['shape']} {form}", k["tokens"], f"{k['micros']:.1f}", f"{gop:.1f}",
                f"{k['bandwidth_percent']:.0f} %", "-" if fma is None else f"{fma:.0f} %",
                of_torch, k["variant"],
            ])
    return table(head + ["variant"], rows) if rows else ""


def decode(found):
    copies = [r["ceilings"]["copy_gb_per_second"] for _, r in measured(found, "kernels")]
    rows = []
    for form, result in measured(found, "step"):
        units = "units" if "-units" in form else ""
        mode = " ".join(filter(None, [units, result["device"]["invariance"]]))
        for s in result["steps"]:
            # Weights are read once a step, whatever the batch.
            gb = result["weight_bytes_per_step"] / max(s["parts"]["device"], 1e-3) / 1e3
            share = f"{100 * gb / max(copies):.0f} %" if copies else "-"
            rows.append([
                result["model"], mode, s["batch"], s["depth"], f"{s['micros'] / 1e3:.2f}",
                f"{s['parts']['device'] / 1e3:.2f}", f"{s['outside_percent']:.1f} %",
                f"{s['tokens_per_second']:.1f}", f"{gb:.1f}", share,
            ])
    head = ["decode", "invariance", "batch", "depth", "step ms", "device ms", "outside"]
    return table(head + ["tokens/s", "weights GB/s", "of copies"], rows) if rows else ""


def prefill(found):
    rows = []
    for form, result in measured(found, "prefill"):
        model = result["model"] + (" on matrix units" if form.endswith("-units") else "")
        for t in (t for t in result["tests"] if t["test"].startswith("pp")):
            seconds = int(t["test"][2:]) / t["mean"]
            rows.append([model, t["test"][2:], f"{seconds:.3f}", f"{t['mean']:.1f}"])
    return table(["prefill", "tokens", "s", "tokens/s"], rows) if rows else ""


def left_out(folder):
    path = folder / "left-out.txt"
    if not path.exists():
        return ""
    return "Left out:\n\n" + "".join(f"- {line}\n" for line in path.read_text().splitlines())


main()
