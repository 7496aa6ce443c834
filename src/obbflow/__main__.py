"""``obbflow NAME`` and ``python -m obbflow NAME``: the commands of this project."""

from pathlib import Path

from kedro.framework.project import configure_project
from kedro.framework.startup import bootstrap_project
from kedro.utils import find_kedro_project

from obbflow.cli import cli


def main() -> None:
    """Run a command, in the project around the working directory if there is one."""
    project = find_kedro_project(Path.cwd())
    metadata = bootstrap_project(project) if project else None
    if metadata is None:  # a packaged project runs anywhere, with --conf-source
        configure_project("obbflow")
    cli(prog_name="obbflow", obj=metadata)


if __name__ == "__main__":
    main()
