"""Commands of this project: reachable as ``obbflow NAME`` and, inside the project, ``kedro NAME``.

They replace Kedro's ``run`` and ``catalog`` by ones that show a user's mistake as one message.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
import yaml
from click.core import ParameterSource
from kedro.config import MissingConfigException
from kedro.framework.cli.catalog import catalog as kedro_catalog
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.cli.utils import KedroCliError
from kedro.framework.project import pipelines
from kedro.io import DatasetError
from kedro.io.core import DatasetNotFoundError, VersionNotFoundError
from kedro.validation.exceptions import ParameterValidationError
from omegaconf.errors import OmegaConfBaseException

from obbflow import __version__
from obbflow.config import DatasetSection
from obbflow.errors import DataError, ObbflowError, did_you_mean

READ_FORMATS: tuple[str, ...] = get_args(DatasetSection.model_fields["format"].annotation)
"""Formats that data sets are read in."""

_ENVIRONMENTS = (
    "The environments are the folders in conf/; run the command in the project's folder, or below."
)
_RUN_FIRST = "Run the pipeline that writes it first."
# Error -> what to do, where its own message does not say so.
_MISTAKES: dict[type[Exception], str] = {
    ObbflowError: "",
    ParameterValidationError: "",
    MissingConfigException: _ENVIRONMENTS,
    OmegaConfBaseException: "",  # ${...} that leads nowhere
    yaml.YAMLError: "",
    VersionNotFoundError: _RUN_FIRST,
    DatasetNotFoundError: "",
}
_DISK_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR,
}  # fmt: skip


def describe_mistake(error: BaseException) -> str | None:
    """Return the message for an error that the user can mend, else None.

    Args:
        error: Anything raised by a run. Kedro wraps what a catalog entry raises, so causes are
            looked at too.
    """
    cause: BaseException | None = error
    while cause is not None:
        for kind, advice in _MISTAKES.items():
            if isinstance(cause, kind):
                return f"{cause}\n{advice}".rstrip()
        if isinstance(cause, OSError) and cause.errno in _DISK_ERRORS:
            return (
                f"{cause.filename or 'disk'}: {cause.strerror}. Make room or give access, or let "
                "the project write elsewhere with the environment variable OBBFLOW_DATA_DIR."
            )
        if _is_missing_input(cause):
            return f"{cause}\n{_RUN_FIRST}"
        cause = cause.__cause__
    return None


def _is_missing_input(error: BaseException) -> bool:
    """Return whether a catalog entry could not be loaded because its file is not there."""
    return (
        isinstance(error, DatasetError)
        and isinstance(error.__cause__, FileNotFoundError)
        and str(error).startswith("Failed while loading")
    )


@contextmanager
def one_message(*, verbose: bool) -> Iterator[None]:
    """Turn a user's mistake into one message and exit status 1; verbose: with the traceback."""
    try:
        yield
    except KedroCliError as error:
        # With click 8.5 Kedro's own display of these says "NoneType: None".
        raise click.ClickException(error.format_message()) from error
    except Exception as error:
        message = describe_mistake(error)
        if message is None or verbose:
            raise
        raise click.ClickException(message) from error


def _debugging() -> bool:
    return os.environ.get("OBBFLOW_DEBUG") == "1"


class RunCommand(click.Command):
    """Kedro's ``run``, whose option parser raises errors that click does not show well."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: ANN401 - click's
        """Parse the command line."""
        with one_message(verbose=_debugging()):
            return super().make_context(*args, **kwargs)


class CatalogGroup(click.Group):
    """Kedro's ``catalog`` commands."""

    def invoke(self, context: click.Context) -> object:
        """Run a command of the group."""
        if context.obj is None:
            raise click.UsageError("not inside a project: run it in the project's folder, or below")
        with one_message(verbose=_debugging()):
            return super().invoke(context)


@click.group(name="obbflow")
@click.version_option(__version__, prog_name="obbflow")
def cli() -> None:
    """Train, score and document oriented object detectors."""


cli.add_command(
    CatalogGroup(
        "catalog",
        # "list" is what the command was called up to Kedro 0.19.
        commands={**kedro_catalog.commands, "list": kedro_catalog.commands["describe-datasets"]},
        help=kedro_catalog.help,
    )
)


@cli.command(
    name="run",
    cls=RunCommand,
    help=kedro_run.help,
    params=[
        *kedro_run.params,
        click.Option(["--verbose"], is_flag=True, help="Show the traceback of a mistake."),
    ],
)
@click.pass_context
def run(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - Kedro's options
    """Run pipelines; the options are Kedro's."""
    verbose = options.pop("verbose") or _debugging()
    typed = context.get_parameter_source("pipelines") is ParameterSource.COMMANDLINE
    if options["pipeline"] and not typed:  # Kedro 1.7 warns about the singular form
        options["pipelines"], options["pipeline"] = [options["pipeline"]], None
    with one_message(verbose=verbose):
        _check_names(options["pipelines"], "pipeline", pipelines)
        for key in ("from_nodes", "to_nodes", "node_names"):
            _check_names(options[key], "node", _node_names(options["pipelines"]))
        context.invoke(kedro_run, **options)


@cli.command(name="airbus-csv")
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--folds", default=5, show_default=True, type=click.IntRange(2), help="How many.")
@click.option("--seed", default=0, show_default=True, help="Another one gives other folds.")
@click.option("--difficult-tag", "difficult_tags", multiple=True, help="A tag, may be repeated.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="A folder; ROOT without it."
)
@click.option("--force", is_flag=True, help="Overwrite annotations.csv and split.csv.")
def airbus_csv(
    root: Path,
    folds: int,
    seed: int,
    difficult_tags: tuple[str, ...],
    output: Path | None,
    *,
    force: bool,
) -> None:
    """Write annotations.csv and split.csv of an Airbus Playground export.

    ROOT holds <dataset>/samples and <dataset>/labels. The tiles of one image are in one fold.
    """
    from obbflow.data.formats.airbus_folds import make_csv_pair
    from obbflow.datasets.atomic import atomic_path

    folder = root if output is None else output
    files = [folder / "annotations.csv", folder / "split.csv"]
    existing = [str(file) for file in files if file.exists()]
    with one_message(verbose=_debugging()):
        if existing and not force:
            raise DataError(f"{', '.join(existing)}: there already; overwrite with --force")
        issues: list[dict[str, Any]] = []
        tables = make_csv_pair(root, folds, seed, difficult_tags, issues)
        with atomic_path(files[0]) as first, atomic_path(files[1]) as second:
            for table, scratch in zip(tables, (first, second), strict=True):
                table.to_csv(scratch, index=False, lineterminator="\n")
    for issue in issues:
        line = "" if issue["line"] is None else f":{issue['line']}"
        click.echo(f"{issue['file']}{line}: {issue['message']} ({issue['action']})", err=True)
    annotations, split = tables
    click.echo(
        f"{', '.join(map(str, files))}: {len(annotations):,} objects on {len(split):,} tiles, "
        f"tiles a fold: {', '.join(map(str, split['split'].value_counts().sort_index()))}"
    )


@cli.command(name="convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "source_format",
    required=True,
    type=click.Choice([name for name in READ_FORMATS if name != "synthetic"]),
    help="Format of SOURCE, see docs/data.md.",
)
@click.option(
    "--to",
    "target_format",
    required=True,
    type=click.Choice(["dota", "yolo_obb", "coco"]),
    help="Format of TARGET.",
)
@click.option(
    "--copy-images/--link-images", default=True, help="Copy images (default), or link to them."
)
@click.option(
    "--param", "parameters", multiple=True, metavar="KEY=VALUE", help="A key of section dataset."
)
@click.option("--verbose", is_flag=True, help="Show the traceback of a mistake.")
def convert(
    source: Path,
    target: Path,
    source_format: str,
    target_format: str,
    copy_images: bool,
    parameters: tuple[str, ...],
    verbose: bool,
) -> None:
    """Write the data set in SOURCE to the new folder TARGET, in another format."""
    with one_message(verbose=verbose or _debugging()):
        from obbflow.data.formats.convert import ISSUES_FILE, convert_data_set

        done = convert_data_set(
            source,
            target,
            source_format,
            target_format,
            link_images=not copy_images,
            keys=dict(_parse_parameter(text) for text in parameters),
        )
        click.echo(
            f"{target}: {done.n_train + done.n_val:,} images ({done.n_train:,} train, "
            f"{done.n_val:,} val), {done.n_objects:,} objects, {done.n_issues:,} issues"
            + (f", see {ISSUES_FILE}" if done.n_issues else "")
        )


def _parse_parameter(text: str) -> tuple[str, object]:
    """Return key and value, as YAML reads it, of a --param."""
    key, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(
            f"--param {text}: write it as key=value, coco_angle=radians_clockwise"
        )
    return key.removeprefix("dataset.").strip(), yaml.safe_load(value)


def _check_names(names: Iterable[str], kind: str, known: Iterable[str]) -> None:
    """Raise a usage error for a name that does not exist."""
    known = sorted(known)
    for name in names or ():
        if name not in known:
            raise click.UsageError(
                f"there is no {kind} {name!r}{did_you_mean(name, known)}; there are: "
                f"{', '.join(known)}"
            )


def _node_names(pipeline_names: Iterable[str]) -> set[str]:
    """Return the names of all nodes of the given pipelines, or of the default one."""
    names = list(pipeline_names or ()) or ["__default__"]
    return {node.name for name in names for node in pipelines[name].nodes}
