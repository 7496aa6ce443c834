"""No case of the data stages goes unchecked: a new folder fails here until a test names it."""

import ast
import json
from pathlib import Path

STAGES = {"ingest", "tile", "classes", "ops"}


def named_in_tests() -> set[str]:
    """All string literals of the case tests."""
    files = Path(__file__).parent.glob("test_*.py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant)}


def test_every_case_of_the_data_stages_has_a_check(shared_dir):
    stages = {
        file.parent.name: json.loads(file.read_text(encoding="utf-8"))["stage"]
        for file in (shared_dir / "cases").glob("*/case.json")
    }
    wanted = {name for name, stage in stages.items() if stage in STAGES}
    assert len(wanted) > 40
    assert sorted(wanted - named_in_tests()) == []
