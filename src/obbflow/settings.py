"""Project settings that Kedro reads at start-up; see ``kedro.framework.project.settings``."""

import logging
import os
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import kedro_viz
from kedro_viz.integrations import pypi

from obbflow.hooks import EarlyChecksHook, ParametersHook, RunIdHook, TileLockHook

# Kedro 1.7 calls a function that OmegaConf 2.4 has renamed.
warnings.filterwarnings("ignore", message=r"register_new_resolver\(\) is deprecated")
# Kedro-Viz 12 uses a response class that FastAPI has deprecated.
warnings.filterwarnings("ignore", message="ORJSONResponse is deprecated")

HOOKS = (ParametersHook(), EarlyChecksHook(), TileLockHook(), RunIdHook())

# No command of this project uses the network: no telemetry (.telemetry says so too), and
# Kedro-Viz does not ask a registry for newer versions, as it does at each start; it is told that
# the installed one is the newest.
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)
_ANSWER = SimpleNamespace(json=lambda: {"info": {"version": kedro_viz.__version__}})
pypi.requests = SimpleNamespace(
    get=lambda *_args, **_options: _ANSWER, exceptions=pypi.requests.exceptions
)


def _environment_variable(name: str, default: object = None) -> object:
    """Return an environment variable, or ``default`` when it is not set or empty."""
    return os.environ.get(name) or default


# Torch's threads wait for each other many times a step. Spinning while they wait costs nothing on
# idle cores, but with one busy neighbour on two cores a training step took 4 times as long as with
# sleeping (measured: 1.10 against 0.26 s an image). It has to be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

CONFIG_LOADER_ARGS = {
    "base_env": "base",
    "default_run_env": "local",
    # Without "soft", an environment that names one key of a section resets all the others.
    "merge_strategy": {"parameters": "soft", "globals": "soft"},
    "custom_resolvers": {"env": _environment_variable},
}


def _without_markup(make: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    """Return a record factory whose obbflow records are shown as they are.

    Kedro's rich handler would read ``[...]`` in a message, such as in a file name, as markup.
    """

    def factory(name: str | None, *args: object, **kwargs: object) -> logging.LogRecord:
        record = make(name, *args, **kwargs)
        if str(name).partition(".")[0] == "obbflow":  # makeLogRecord gives None
            record.markup = False
        return record

    return factory


logging.setLogRecordFactory(_without_markup(logging.getLogRecordFactory()))

# Kedro logs a failed node and then raises: the error would be shown twice.
logging.getLogger("kedro.pipeline.node").addFilter(lambda record: record.levelno < logging.ERROR)
