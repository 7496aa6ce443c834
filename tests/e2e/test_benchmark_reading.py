"""The benchmark of reading labels, small."""

import re
import subprocess
import sys


def test_small_benchmark_reads_and_checks_every_object(project_root):
    finished = subprocess.run(
        [sys.executable, "benchmarks/reading.py", "--objects", "300", "--files", "40"],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = re.findall(r"^(\S.*?) +([\d.]+) +([\d.]+) +(\d+) +([\d,]+)$", finished.stdout, re.M)
    assert [(row[0], row[4]) for row in rows] == [
        ("open and split lines", "300"), ("read", "300"), ("check", "300"),
    ]  # fmt: skip
    loop, read, check = (int(row[3]) for row in rows)
    assert loop < read <= check  # the loop's memory is without pandas, and the peak never falls
    assert re.search(
        r"read and check: [\d.]+ s \(limit 90\), \d+ MB \(limit 2,000\)$", finished.stdout
    )
