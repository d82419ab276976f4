"""The report, made of all results so far."""

from .trainings import CASES

PARTS = {
    "works": "Does it work",
    "speed": "Kernels compared with the limits of the GPU",
    "llama": "Training a Llama of 1.2B parameters",
    "gpt2": "Training GPT-2",
    "models": "Models on every kind of mesh and ZeRO stage, against the CPU",
    "tools": "Memory checks and counters by NVIDIA's tools",
    "nccl": "Several processes on one GPU, with NCCL between them",
}
# Fraction of the copy bandwidth that a memory-bound kernel should reach.
GOAL = 0.85


def render(items, latest):
    """Returns Markdown of the latest record of each item, and the names of items without a record."""
    lines = ["# GPU check", "", *overview(items, latest)]
    for part, title in PARTS.items():
        names = [item.name for item in items if item.name.startswith(f"{part}/")]
        records = [latest[name] for name in names if name in latest]
        if not records:
            continue
        lines += ["", f"## {title}", ""]
        rest = [record for record in records if record.get("kind") not in SECTIONS]
        if rest:
            lines += ["| item | result | seconds | |", "|---|---|---|---|", *map(outcome_row, rest)]
        for record in records:
            if record.get("text"):
                lines += ["", f"### {record['item'].split('/', 1)[1]}", "", *quoted(record["text"])]
        for kind, section in SECTIONS.items():
            of_kind = [record for record in records if record.get("kind") == kind]
            if of_kind:
                lines += ["", *section(of_kind)]
        missing = [name.split("/", 1)[1] for name in names if name not in latest]
        if missing:
            lines += ["", f"Not run yet: {'; '.join(missing)}."]
    return "\n".join(lines) + "\n"


def overview(items, latest):
    """Returns the number of items by status, and the failed items."""
    counts = {}
    for record in latest.values():
        counts[record["status"]] = counts.get(record["status"], 0) + 1
    texts = [f"{count} {status}" for status, count in counts.items()]
    missing = sum(item.name not in latest for item in items)
    yield f"Items: {', '.join([*texts, f'{missing} not run yet'])}."
    for record in latest.values():
        if record["status"] not in ("ok", "skipped"):
            yield f"- **{record['item']}**: {record['status']}. {failure(record)}"


def failure(record):
    names = ", ".join(f"`{name}`" for name in record.get("failed", []))
    logs = ", ".join(record.get("logs", []))
    return " ".join(filter(None, [record.get("why", ""), names, f"(logs: {logs})" if logs else ""]))


def outcome_row(record):
    notes = record.get("notes", [])
    texts = [failure(record), f"{record['passed']} tests passed" if record.get("kind") == "test" else "", *notes]
    told = "<br>".join(filter(None, texts)).replace("|", "\\|")
    status = record["status"] if record["status"] in ("ok", "skipped") else f"**{record['status']}**"
    return f"| {record['item'].split('/', 1)[1]} | {status} | {record['seconds']:.0f} | {told} |"


def quoted(text):
    """Returns a Markdown table unchanged, and other text as a code block."""
    return [text] if text.startswith("|") else ["```text", text, "```"]


def bench(records):
    table = None
    for record in records:
        if record["status"] != "ok":
            yield f"- **{record['item']}**: {record['status']}. {record.get('why', '')}"
        for row in record["rows"]:
            if row["table"] != table:
                table = row["table"]
                yield from ["", f"### {table}", "", "| kernel | ms | rate | of the limit | host, µs |",
                            "|---|---|---|---|---|"]
            yield (f"| {row['name']} | {row['ms']:.3f} | {row['rate']:.0f} {row['unit']} | {share(row)} | "
                   f"{row['host_us']:.0f} |")


def share(row):
    if row["share"] is None:
        return row.get("note") or ""
    text = f"{100 * row['share']:.0f} %"
    slow = row["unit"] == "GB/s" and row["share"] < GOAL
    return f"**{text}**" if slow else text


def trainings(records):
    yield ("| model | program | step, ms (10 % to 90 %) | tokens/s | MFU | peak memory, of all on the GPU | "
           "SM clock, power | loss |")
    yield "|---|---|---|---|---|---|---|---|"
    for record in records:
        if record["status"] != "ok":
            yield f"| | {record['item'].split('/', 1)[1]} | **{record['status']}**: {record.get('why', '')} | | | | | |"
            continue
        mfu = record["mfu"] or mfu_of(record, records)
        yield (f"| {record['case']} | {record['row']}{attention(record)} | {record['step_ms']:.1f} "
               f"({record['p10']:.1f} to {record['p90']:.1f}) | {1e3 * record['tokens'] / record['step_ms']:.0f} | "
               f"{f'{100 * mfu:.1f} %' if mfu else ''} | {memory(record)} | {clocks(record)} | "
               f"{record['losses'][0]:.3f} to {record['losses'][-1]:.3f} |")
    yield ""
    for case, rows in CASES.items():
        yield from ratios(case, rows, [record for record in records if record.get("case") == case])
    yield ""
    yield ("Peak memory is what the program has allocated at most, and beside it what nvidia-smi shows of the whole "
           "GPU. MFU counts the same operations for both programs.")


def mfu_of(record, records):
    """Returns the FLOP/s of a PyTorch row: the operations of our training of the same model, in its time."""
    for ours in records:
        if ours.get("case") == record["case"] and ours["mfu"]:
            return ours["mfu"] * ours["step_ms"] / record["step_ms"]
    return None


def attention(record):
    return f" ({record['attention']} attention, {record['torch']})" if "attention" in record else ""


def memory(record):
    whole = record["samples"].get("memory_bytes")
    return f"{record['peak_bytes'] / 1e9:.1f} GB" + (f", {whole / 1e9:.1f} GB" if whole else "")


def clocks(record):
    found = record["samples"]
    if not found:
        return ""
    return f"{found['sm_mhz']:.0f} MHz, {found['power_w']:.0f} W, {' '.join(found['slowed_by'])}"


def ratios(case, rows, records):
    """Returns our speed over the fastest PyTorch row, nondeterministic and deterministic."""
    times = {record["row"]: record for record in records if record["status"] == "ok"}
    measured = [(row, times[row.name]) for row, _ in rows if row.name in times and row.compared]
    best = lambda torch, deterministic: min(
        (record for row, record in measured if row.torch == torch and deterministic in (None, row.deterministic)),
        key=lambda record: record["step_ms"], default=None)
    for what, ours, others in [("nondeterministic", best(False, False), best(True, False)),
                               ("deterministic", best(False, True), best(True, True)),
                               ("deterministic over the best PyTorch of all", best(False, True), best(True, None))]:
        if ours and others:
            yield (f"- {case}, {what}: **{others['step_ms'] / ours['step_ms']:.2f}x** "
                   f"({ours['row']} over {others['row']})")


# Kinds of records with tables of their own.
SECTIONS = {"bench": bench, "training": trainings}
