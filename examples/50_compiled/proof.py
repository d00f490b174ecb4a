# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""The whole way, from PyTorch to a streamed pass: exports a transformer of 1 GB (bf16, tied embeddings, views, a cache that kernels write;
prefill and decode), a convolutional network, a text model with learned positions, a vision transformer, a U-Net, a recurrent network whose
parameters lie in one tensor, a mixture of gathered experts, and a published sentence encoder, and runs each with the program `compiled` at 100, 75, 50
and 25 % and at the floor, beside the same packages without the library. Bits have to be equal. `limited` is the transformer once more,
exported from host memory while PyTorch may take three quarters of its bytes on the device: its weights have to equal those of the
transformer, tensor by tensor. `probes` is the encoder with probes. `stock` is the text model as PyTorch packages it, weights inside: it is
not run here. Beside the runs, two more things are measured: from a package to its first output, of the text model, against PyTorch's loader
on the same package and on `stock`, in processes that take turns, with files in the page cache and not; and what it costs to change one
total for the text model and the recurrent network between their runs.

    proof.py --program PROGRAM --out FOLDER [--encoder FOLDER] [--device cuda|cpu] [--models NAME,...]

On a GPU it writes the records compiled.* into OUT/gpu-compiled.json. A time is over the least possible one: the largest of the exact
bound, the latency floor and the package without the library; where everything is resident, the two take turns. Of a row above 1.02, the
record has what its steps waited for. Runs are made in the
way that takes less time, and in each way, eagerly and as a graph. From one method to the
next, a switch is measured at each budget: plans made for it, and bytes beyond those that a run copies anyway. On the CPU the models are
small, the program runs on the simulated device, and nothing is recorded. The models' folders are OUT/NAME. Needs what requirements.txt
names. Without --encoder the encoder is fetched with pip; where that does not work it is left out, and said so. Exits with 1 where bits
differ or a model fails."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../benchmarks/peers"), os.path.join(HERE, "../../benchmarks/gpu")]

MODELS = ("transformer", "limited", "convolutions", "text", "vision", "unet", "recurrent", "mixture", "encoder", "probes", "stock")
FIRST, TOGETHER = "text", ("text", "recurrent")  # whose first output is timed, and which share a total
TURNS = 3  # of processes that take turns
TOTALS = (0.4, 0.8, 0.4, 0.8, 0.4)  # of both models' weights
LIMIT = 0.75  # of the weights' bytes: what PyTorch may take on the device while `limited` is exported
BUDGETS = ("100%", "75%", "50%", "25%", "0")


def make(name, device, encoder):
    import models
    import torch

    torch.manual_seed(0)
    is_small = device == "cpu"
    if name in ("transformer", "limited"):
        model = models.Transformer(256, 4, 3000, 3, 64, torch.float32) if is_small else models.Transformer()
    elif name == "convolutions":
        model = models.ConvNet((32, 64, 128), 2, 10, 32, 2) if is_small else models.ConvNet().to(torch.bfloat16)
    elif name in ("encoder", "probes"):
        model = models.Encoder.load(encoder, torch.float32 if is_small else torch.bfloat16)
    else:
        made, small = {
            "text": (models.Text, (256, 4, 3000, 3, 16)),
            "vision": (models.Vision, (256, 4, 3, 64, 16, 10, 1)),
            "unet": (models.UNet, ((32, 64, 256), 8, 16, 1)),
            "recurrent": (models.Recurrent, (512, 2, 3, 2)),
            "mixture": (models.Mixture, (256, 512, 8, 2, 2)),
        }[name]
        torch.set_default_dtype(torch.float32 if is_small else torch.bfloat16)  # Module.to() would copy each view by itself
        model = made(*small) if is_small else made()
    return model.eval() if name == "limited" else models.moved(model.eval(), device)


def different_tensors(path, other):
    """Of two files of weights: a line for each tensor that is not the same in both, with what differs."""
    import torch
    from safetensors import safe_open

    with safe_open(path, "pt") as a, safe_open(other, "pt") as b:
        names = set(a.keys()), set(b.keys())
        lines = [f"{name}: not in {path if name in names[1] else other}" for name in sorted(names[0] ^ names[1])]
        for name in sorted(names[0] & names[1]):
            x, y = a.get_tensor(name), b.get_tensor(name)
            if (x.dtype, x.shape) != (y.dtype, y.shape):
                lines.append(f"{name}: {x.dtype} {list(x.shape)} and {y.dtype} {list(y.shape)}")
                continue
            x, y = (tensor.reshape(-1).view(torch.uint8) for tensor in (x, y))
            if not torch.equal(x, y):
                lines.append(f"{name}: {int((x != y).sum())} of {x.numel()} bytes differ")
    return lines


def limit_device(model):
    """PyTorch may not take as many bytes of the GPU as the model has, which is tried. Returns the bytes that it may take."""
    import torch

    weights = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in model.state_dict().values()}
    limit = int(LIMIT * sum(weights.values()))
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    held = []
    try:
        for tensor in model.parameters():
            held.append(tensor.detach().cuda())
    except torch.OutOfMemoryError:
        held.clear()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return limit
    raise RuntimeError("the limit holds all weights: it shows nothing")


def export_one(name, options):
    """In a process of its own: what the compiler leaves on the device is gone afterwards."""
    from residency_export import export

    if name == "stock":
        return export_stock(options)
    model = make(name, options.device, options.encoder)
    arguments = {"methods": model.methods(), "path": os.path.join(options.out, name), "probes": name == "probes"}
    if name != "limited":
        print(export(model, **arguments))
        return
    limit = limit_device(model) if options.device == "cuda" else 0
    print(export(model, device=options.device, **arguments))
    if options.device == "cuda":
        import torch

        figures = {"limit_bytes": limit, "peak_bytes": torch.cuda.max_memory_reserved()}
        with open(os.path.join(options.out, "limited.export.json"), "w", encoding="utf-8") as file:
            json.dump(figures, file)


def export_stock(options):
    """The text model by PyTorch alone, with its own settings: the weights are in the package."""
    import torch

    model = make(FIRST, options.device, options.encoder)
    (arguments,) = model.methods().values()
    os.makedirs(os.path.join(options.out, "stock"), exist_ok=True)
    with torch.no_grad():
        exported = torch.export.export(model, arguments)
        torch._inductor.aoti_compile_and_package(exported, package_path=os.path.join(options.out, "stock", "package.pt2"))


def export_all(names, options):
    """Seconds by name; a name that is missing failed. At once where there are processors for it."""
    at_once = len(names) if (os.cpu_count() or 1) >= 8 else 1
    waiting, running, seconds = list(names), {}, {}
    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.pop(0)
            log = open(os.path.join(options.out, name + ".log"), "w", encoding="utf-8")
            command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--export", name]
            if options.encoder:
                command += ["--encoder", options.encoder]
            running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), log, time.monotonic()
        for name, (process, log, begin) in list(running.items()):
            try:
                process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                continue
            del running[name]
            log.close()
            with open(log.name, encoding="utf-8") as file:
                text = file.read()
            print(f"== export of {name}, {time.monotonic() - begin:.0f} s\n{text if process.returncode == 0 else text[-4000:]}", flush=True)
            if process.returncode == 0:
                seconds[name] = time.monotonic() - begin
    return seconds


def run(name, options):
    """What the program measured, and whether it was right."""
    import torch

    figures = os.path.join(options.out, name + ".json")
    command = [options.program, os.path.join(options.out, name), "--torch", os.path.join(os.path.dirname(torch.__file__), "lib"),
               "--budget", ",".join(BUDGETS if name != "limited" else BUDGETS[::2]), "--rounds", str(options.rounds), "--json", figures,
               "--timeline", os.path.join(options.out, name + ".timeline.json")]
    if options.device == "cuda":
        command += ["--eager", "--graph"]
    print("$", *command, flush=True)
    status = subprocess.run(command, check=False).returncode
    if status not in (0, 1):
        return None, False
    with open(figures, encoding="utf-8") as file:
        return json.load(file), status == 0


def record_limited(records, options, figures, is_equal):
    with open(os.path.join(options.out, "limited.export.json"), encoding="utf-8") as file:
        exported = json.load(file)
    records.add("compiled.limited.weights_over_the_limit", figures["weight_bytes"] / exported["limit_bytes"], "ratio", ">= 1.1")
    records.add("compiled.limited.export_peak", exported["peak_bytes"] / 1e6, "MB")
    if is_equal is not None:
        records.add("compiled.limited.weights_equal", float(is_equal), "yes", ">= 1")


def record(records, name, seconds, figures):
    records.add(f"compiled.{name}.export", seconds, "s")
    records.add(f"compiled.{name}.weights", figures["weight_bytes"] / 1e6, "MB")
    for each in figures["runs"]:
        method, budget = each["method"], {"0": "floor"}.get(each["budget"], each["budget"])
        prefix = f"compiled.{name}.{method}." + ("alone" if budget == "none" else budget)
        prefix += {"chosen": "", "eager": ".eager", "graph": ".graph"}[each["way"]]
        records.add(f"{prefix}.run", each["milliseconds"], "ms")
        if budget == "none":
            continue
        if each["way"] == "chosen":
            records.add(f"{prefix}.is_a_graph", float(each["graph"]), "yes")
        records.add(f"{prefix}.bits_equal", float(each["right"]), "yes", ">= 1")
        records.add(f"{prefix}.driver_bytes_of_the_budget", each["driver_bytes"] / each["budget_bytes"], "ratio", "<= 1")
        if each["bound_milliseconds"] == 0:
            records.add(f"{prefix}.alone_by_turns", each["alone_milliseconds"], "ms")
            records.add(f"{prefix}.over_alone", each["milliseconds"] / each["alone_milliseconds"], "ratio", "<= 1.01")
            continue
        records.add(f"{prefix}.copied", each["copied_bytes"] / 1e6, "MB")
        records.add(f"{prefix}.bound", each["bound_milliseconds"], "ms")
        records.add(f"{prefix}.planned", each["planned_milliseconds"], "ms")
        records.add(f"{prefix}.leases", each["leases"], "a run")
        records.add(f"{prefix}.calls", each["calls"], "a run")
        least = max(each["bound_milliseconds"], each["alone_milliseconds"])
        why = each.get("why")
        records.add(f"{prefix}.over_least", each["milliseconds"] / least, "ratio", "<= 1.02", why["text"] if why else "")
        if why:
            records.add(f"{prefix}.waited", why["waited_milliseconds"], "ms")
            records.add(f"{prefix}.longest_wait", why["longest_milliseconds"], "ms", note=f"{why['step']}: {why['cause']}" if why["waits"] else "")
    for each in figures["switches"]:
        budget = {"0": "floor"}.get(each["budget"], each["budget"])
        prefix = f"compiled.switch.{name}.{budget}.{each['from']}_to_{each['to']}"
        more, difference = max(0, each["copied_bytes"] - each["steady_bytes"]), each["difference_bytes"]
        records.add(f"{prefix}.plans_made", each["plans"], "", "<= 0")
        records.add(f"{prefix}.run", each["milliseconds"], "ms")
        records.add(f"{prefix}.difference", difference / 1e6, "MB")
        records.add(f"{prefix}.more_copied", more / 1e6, "MB", f"<= {difference / 1e6:.6f}")


def hash_of(data):
    """FNV-1a, as the program `compiled` computes it."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def load_with_torch(options):
    """In a process of its own: prints the milliseconds from a package to its first outputs by PyTorch's loader, and their hashes. Before
    that PyTorch is imported, the device is ready, and the arguments are on it. `--weights`: of a package without them. `--cpp`: the loader of
    C++ alone; that of Python asks a compiler first what the processor can do."""
    import torch
    import torch._inductor.package
    from safetensors.torch import load_file

    arguments = load_file(options.inputs, device=options.device)
    arguments = [arguments[f"input{number}"] for number in range(len(arguments))]
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    loader = torch._C._aoti.AOTIModelPackageLoader(options.load, "model", False, 1, -1) if options.cpp else torch._inductor.aoti_load_package(options.load).loader
    if options.weights:
        tensors = load_file(options.weights, device=options.device)
        if options.device == "cpu":  # views of a file are aligned to 8 bytes, and the bits of products depend on that
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        loader.load_constants({name: tensors[name] for name in loader.get_constant_fqns()}, False, True, True)
    outputs = loader.boxed_run(arguments)
    wait()
    milliseconds = 1e3 * (time.perf_counter() - begin)
    data = [output.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() for output in outputs]
    print(json.dumps({"milliseconds": milliseconds, "hashes": [hash_of(each) for each in data]}))


def time_first_outputs(commands, files, is_cold, scratch):
    """By way: milliseconds of each turn, seconds of its process, and hashes of the outputs; without a way whose process fails. None where
    files stay in the page cache, or do not."""
    from cold_start import cached_share, drop

    def prepare(path):
        if is_cold:
            drop(path)
            return cached_share(path) <= 0.01
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
        return cached_share(path) >= 0.99

    measured = {way: ([], [], []) for way in commands}
    for turn in range(TURNS):
        for way in sorted(measured, reverse=turn % 2 == 1):
            if not all([prepare(path) for path in files]):
                return None
            begin = time.monotonic()
            done = subprocess.run(commands[way], check=way == "residency", stdout=subprocess.PIPE, text=True)
            seconds = time.monotonic() - begin
            if done.returncode != 0:
                print(f"SKIPPED: {way}: PyTorch's loader ended with {done.returncode}", flush=True)
                del measured[way]
                continue
            if way == "residency":
                with open(scratch, encoding="utf-8") as file:
                    first = json.load(file)["first"]
                milliseconds, hashes = first["open_milliseconds"] + first["run_milliseconds"], first["hashes"]
            else:
                figures = json.loads(done.stdout.strip().splitlines()[-1])
                milliseconds, hashes = figures["milliseconds"], figures["hashes"]
            for values, value in zip(measured[way], (milliseconds, seconds, hashes)):
                values.append(value)
            print(f"{'cold' if is_cold else 'warm'}, {way}: {milliseconds:.1f} ms, {seconds:.2f} s the process", flush=True)
    return measured


def first_outputs(records, options, has_stock):
    """From a package to its first output, this library and PyTorch's loader by turns. Returns whether the outputs of the same package are
    equal."""
    import torch

    folder, scratch = os.path.join(options.out, FIRST), os.path.join(options.out, "first.json")
    (method,) = [name[:-4] for name in os.listdir(folder) if name.endswith(".pt2")]
    package, weights, inputs = (os.path.join(folder, name) for name in (f"{method}.pt2", "weights.safetensors", f"{method}.inputs.safetensors"))
    by_torch = [sys.executable, "-X", "faulthandler", "-W", "ignore", os.path.abspath(__file__), "--program", options.program, "--out", options.out,
                "--device", options.device, "--inputs", inputs, "--load"]
    commands = {"residency": [options.program, folder, "--torch", os.path.join(os.path.dirname(torch.__file__), "lib"), "--first",
                              "--budget", "100%", "--json", scratch],
                "torch": [*by_torch, package, "--weights", weights],
                "torch_cpp": [*by_torch, package, "--weights", weights, "--cpp"]}
    files = [weights, package, inputs, os.path.join(folder, "program.residency")]
    if has_stock:
        files.append(os.path.join(options.out, "stock", "package.pt2"))
        commands["stock_cpp"] = [*by_torch, files[-1], "--cpp"]
    is_equal = True
    for state in ("warm", "cold"):
        measured = time_first_outputs(commands, files, state == "cold", scratch)
        if measured is None:
            print(f"SKIPPED: the first output, {state}: the page cache of this file system does as it likes")
            continue
        same = [hashes for way in measured if way != "stock_cpp" for hashes in measured[way][2]]
        is_equal = is_equal and all(hashes == same[0] for hashes in same)
        if records is None:
            continue
        prefix = f"compiled.first_output.{FIRST}.{state}"
        taken = {way: statistics.median(measured[way][0]) for way in measured}
        for way in taken:
            records.add(f"{prefix}.{way}", taken[way], "ms")
            records.add(f"{prefix}.{way}.process", statistics.median(measured[way][1]), "s")
        for way in list(taken)[1:]:
            records.add(f"{prefix}.over_{way}", taken["residency"] / taken[way], "ratio", "<= 0.2")
    if records is not None:
        records.add(f"compiled.first_output.{FIRST}.bits_equal", float(is_equal), "yes", ">= 1")
    return is_equal


def change_totals(records, options):
    """What a change of one total costs two models between their runs. Returns whether the outputs stayed equal."""
    import torch

    folders = [os.path.join(options.out, name) for name in TOGETHER]
    weights = sum(os.path.getsize(os.path.join(folder, "weights.safetensors")) for folder in folders)
    figures = os.path.join(options.out, "totals.json")
    command = [options.program, folders[0], "--beside", folders[1], "--total", ",".join(str(int(share * weights)) for share in TOTALS),
               "--rounds", str(options.rounds), "--torch", os.path.join(os.path.dirname(torch.__file__), "lib"), "--json", figures]
    print("$", *command, flush=True)
    if subprocess.run(command, check=False).returncode not in (0, 1):
        return False
    with open(figures, encoding="utf-8") as file:
        totals = json.load(file)["totals"]
    for number, each in enumerate(totals if records is not None else []):
        prefix = f"compiled.total.{number}"
        records.add(f"{prefix}.before", each["before_bytes"] / 1e6, "MB")
        records.add(f"{prefix}.total", each["total_bytes"] / 1e6, "MB")
        records.add(f"{prefix}.rounds", each["rounds"], "")
        records.add(f"{prefix}.new", each["new_bytes"] / 1e6, "MB")
        records.add(f"{prefix}.link", each["link_milliseconds"], "ms")
        records.add(f"{prefix}.changing", each["changing_milliseconds"], "ms")
        more = each["milliseconds"] - each["steady_milliseconds"]
        records.add(f"{prefix}.beyond_the_rounds", more, "ms")
        records.add(f"{prefix}.beyond_the_link", more - each["link_milliseconds"], "ms", "<= 10")
        records.add(f"{prefix}.bits_equal", float(each["right"]), "yes", ">= 1")
    return all(each["right"] for each in totals)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the built program compiled")
    parser.add_argument("--out", required=True, help="folder for the models and the records")
    parser.add_argument("--encoder", help="folder with the encoder's config.json and model.safetensors")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--models", default=",".join(MODELS), help="which of them, with commas between")
    parser.add_argument("--rounds", type=int, default=50, help="timed runs of each method at each budget")
    for hidden in ("--export", "--load", "--weights", "--inputs"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--cpp", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    if options.export:
        return export_one(options.export, options)
    if options.load:
        return load_with_torch(options)
    names = options.models.split(",")
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; they are {', '.join(MODELS)}")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is no program: build the target compiled, and name it")
    if {"encoder", "probes"} & set(names) and not options.encoder:
        import models

        try:
            options.encoder = models.fetch_encoder(os.path.join(options.out, "published"))
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"SKIPPED: the encoder: it could not be fetched ({error}); name a folder with --encoder")
            names = [name for name in names if name not in ("encoder", "probes")]

    exported = export_all(names, options)
    failed = [name for name in names if name not in exported]
    records = None
    for name in names:  # in the order of the command line
        if name == "stock" or name not in exported:
            continue
        figures, is_right = run(name, options)
        is_equal = None  # the weights of limited, to those of transformer
        if name == "limited" and "transformer" in exported:
            lines = different_tensors(*(os.path.join(options.out, each, "weights.safetensors") for each in ("transformer", "limited")))
            is_equal = not lines
            print(*(f"limited: {line}" for line in lines or ["its weights equal those of transformer, tensor by tensor"]), sep="\n", flush=True)
        if not is_right or is_equal is False:
            failed.append(name)
        if figures is not None and options.device == "cuda":
            if records is None:
                from records import Records

                os.environ["RESIDENCY_RESULTS"] = options.out
                records = Records("gpu-compiled", figures["device"])
            record(records, name, exported[name], figures)
            if name == "limited":
                record_limited(records, options, figures, is_equal)
        if records is not None:
            records.write()
    if set(TOGETHER) <= set(exported) and not change_totals(records, options):
        failed.append("the change of a total")
    if FIRST in exported and not first_outputs(records, options, "stock" in exported):
        failed.append("the first output")
    if records is not None:
        records.write()
    ran = [name for name in names if name not in failed and name != "stock"]
    of = len(names) - ("stock" in names)
    print(f"{len(ran)} of {of} models ran with equal bits" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
