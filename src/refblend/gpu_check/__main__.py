"""``python -m refblend.gpu_check``: the command."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from refblend import gpu_check, runtime


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, write the report; status 1 if a stage failed, 2 without the device."""
    parser = argparse.ArgumentParser(description=(gpu_check.__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two million parameters")
    parser.add_argument("--out", type=Path, default=Path("results/gpu/check.md"))
    options = parser.parse_args(arguments)
    runtime.configure_process(os.cpu_count())
    import torch

    from refblend.files import write_text
    from refblend.gpu_check.measuring import Report
    from refblend.gpu_check.stages import check
    from refblend.provenance import PACKAGE, Source

    if options.device == "cuda" and not torch.cuda.is_available():
        print("error: no CUDA device. Use --device cpu to try the check itself.", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    versions = f"torch {torch.__version__}, Python {sys.version.split()[0]}"
    report = Report(f"{name}, {versions}, {date.today().isoformat()}, {Source.of(PACKAGE)}")
    check(options.device, options.tiny, report)
    write_text(options.out, report.text())
    print(f"Report: {options.out}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
