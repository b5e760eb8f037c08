"""Time the plan: the model alone for 15 windows, 4 drafts and 4 loads, and the whole command.

python benchmarks/plan_time.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tandem.plan.forecast import DraftShare, PlanLoad, forecast_cells  # noqa: E402
from tandem.spec.catalogue import load_catalogue  # noqa: E402

COMMAND = [sys.executable, "-m", "tandem", "plan", "post", "--env", "post-us-east-2", "--window", "1..15"]
REPEATS = 5


def main() -> int:
    """Print both times; return 0."""
    target, share = load_catalogue().models["Qwen/Qwen3-32B"], DraftShare(0.19, 0.13, 0.4, "measured")
    load = PlanLoad(law="k", target=target, context_tokens=684, acceptance=0.8)
    drafts, windows, loads = [f"draft-{number}" for number in range(4)], range(1, 16), (1, 4, 16, 64)
    model_s, command_s = [], []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        cells = list(forecast_cells(load, share, drafts, windows, loads))
        model_s.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        subprocess.run(COMMAND, cwd=ROOT, check=True, capture_output=True)
        command_s.append(time.perf_counter() - begun)
    print(f"{len(cells)} cells: the model {median(model_s):.3f} s, the whole command {median(command_s):.2f} s, "
          f"medians of {REPEATS}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
