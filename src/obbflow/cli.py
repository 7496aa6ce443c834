"""Commands of this project: reachable as ``obbflow NAME`` and, inside the project, ``kedro NAME``.

They replace Kedro's ``run`` and ``catalog`` by ones that show a user's mistake as one message.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

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
from obbflow.errors import ObbflowError, did_you_mean

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
