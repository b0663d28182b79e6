"""What a worker imports: nothing that takes as long as torch itself and that training does not use."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from isthmus.cli import main

try:
    main()
finally:
    print(*sorted({"torch._dynamo", "sympy", "torch._inductor"} & sys.modules.keys()), file=sys.stderr)
"""


def test_training_does_not_import_the_compiler(tmp_path):
    asked = ("train", "synthetic:flickr@0.01", "--workers", "1", "--steps", "2", "--dropout", "0.5", "--quiet")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *asked], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.strip() == ""
