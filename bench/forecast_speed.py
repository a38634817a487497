"""Measure how long a forecast of 1,000 decode steps takes, as a ratio to starting the command, in one run.

    python bench/forecast_speed.py

Llama 3.1 70B on eight H100, 64 requests: as text, and as JSON with the operators of all steps. A forecast may
take 1 s of wall clock, the start of the process included. Commands alternate within a round; the round with
least processor time counts. Prints a table.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from speed import measure_best_costs

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
_REQUESTS = ["--batch", "64", "--input-tokens", "1024", "--output-tokens", "1001"]
_START = "start: warplens gpus h100"


def main() -> None:
    """Print the costs of each command and their ratios to the start."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "llama-3.1-70b.json"
        model.write_text(json.dumps(_MODEL))
        command = [sys.executable, "-m", "analyzer"]
        forecast = [*command, "forecast", str(model), *_REQUESTS, "--gpu", "h100", "--tp", "8"]
        commands = {
            _START: [*command, "gpus", "h100"],
            "1,000 decode steps, text": forecast,
            "1,000 decode steps, JSON with operators": [*forecast, "--format", "json"],
        }
        costs = measure_best_costs(commands, Path(folder) / "output", rounds)
    table = Table("command", "processor s", "wall s", "ratio to the start", "peak MiB")
    start = costs[_START]
    for name, cost in costs.items():
        ratio = cost.processor_s / start.processor_s
        table.add_row(
            name, f"{cost.processor_s:.2f}", f"{cost.wall_s:.2f}", f"{ratio:.2f}", f"{cost.peak_mib:.0f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
