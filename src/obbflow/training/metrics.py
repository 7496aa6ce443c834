"""Metrics of a run: averages while it goes on, and the table of its epochs."""

import csv
import io
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

logger = logging.getLogger(__name__)

Row = dict[str, float | int | None]
"""One epoch: column -> value, None where it was not computed."""

TIME_COLUMNS = ("epoch_seconds", "validation_seconds", "images_per_second", "data_wait_share")
"""Columns that differ between two otherwise identical runs."""

_FIRST = ("epoch", "train/total_loss")
_GROUPS = ("train/", "val/mAP", "val/", "lr", "grad_norm", "")  # "" takes the rest


class MetricTracker:
    """Weighted averages of named values, over everything since ``reset`` or the newest few."""

    def __init__(self) -> None:
        """Start without any value."""
        self._values: dict[str, list[tuple[float, float]]] = {}

    def update(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Add one observation of each name.

        Args:
            values: Name -> value.
            weight: For losses, the number of images in the batch.
        """
        for name, value in values.items():
            self._values.setdefault(name, []).append((float(value), float(weight)))

    def average(self, name: str, window: int | None = None) -> float:
        """Return the weighted mean of ``name`` over its newest ``window`` values, None: all.

        Raises:
            KeyError: If ``name`` was never updated.
        """
        newest = self._values[name][-window:] if window else self._values[name]
        total = sum(weight for _, weight in newest)
        return sum(value * weight for value, weight in newest) / total

    def latest(self, name: str) -> float:
        """Return the newest value of ``name``."""
        return self._values[name][-1][0]

    def largest(self, name: str) -> float:
        """Return the largest value of ``name``."""
        return max(value for value, _ in self._values[name])

    def summary(self) -> dict[str, float]:
        """Return the average of every name, in the order of first appearance."""
        return {name: self.average(name) for name in self._values}

    def reset(self) -> None:
        """Forget everything."""
        self._values.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._values


class MetricsCsv:
    """The metrics file of a run: one row an epoch, always whole on disk.

    Columns come in a stable order (epoch, training, validation, rates, the rest), new ones extend
    the header, and an empty cell means "not computed".
    """

    def __init__(self, path: Path, rows: Iterable[Row] = ()) -> None:
        """Start with ``rows``; the file is written by the first ``append``."""
        self.path = path
        self.rows = list(rows)

    @classmethod
    def resume(cls, path: Path, epoch: int) -> "MetricsCsv":
        """Return the table of a run that goes on after ``epoch``.

        Rows after ``epoch`` are left out (they will be computed again), as are damaged lines; both
        are said in the log.
        """
        rows = read_rows(path)
        kept = [row for row in rows if (row.get("epoch") or epoch + 1) <= epoch]
        if len(kept) < len(rows):
            logger.info(
                "%s: %d rows after epoch %d will be replaced", path, len(rows) - len(kept), epoch
            )
        return cls(path, kept)

    def append(self, row: Row) -> None:
        """Add one epoch and write the file anew through a temporary one."""
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        """Write all rows through a temporary file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}.tmp")
        scratch.write_text(_format(self.rows), encoding="utf-8")
        scratch.replace(self.path)

    def table(self) -> pd.DataFrame:
        """Return the rows as a table in the order of the file."""
        columns = order_columns(self.rows)
        values = {name: [row.get(name) for row in self.rows] for name in columns}
        return pd.DataFrame(
            {name: pd.Series(column, dtype=_dtype(column)) for name, column in values.items()},
            columns=columns,
        )


def order_columns(rows: Iterable[Row]) -> list[str]:
    """Return every column of ``rows``: grouped, and within a group as they first appear."""
    names = dict.fromkeys(name for row in rows for name in row)
    return sorted(names, key=_group_of)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a metrics file, none if there is no file.

    A torn last line and lines that are damaged otherwise are dropped, with a warning each: the
    checkpoints hold the same history, so that the file never stands in the way of going on.
    """
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    header, *body = csv.reader(io.StringIO(text)) if text else [[]]
    if body and (len(body[-1]) != len(header) or not text.endswith("\n")):
        logger.warning("%s: the last line is incomplete and was dropped", path)
        body = body[:-1]
    rows = []
    for number, line in enumerate(body, start=2):
        try:
            rows.append({name: _parse(cell) for name, cell in zip(header, line, strict=True)})
        except ValueError:  # from zip: too few or too many cells; from float: no number
            logger.warning("%s:%d: the line is damaged and was dropped", path, number)
    return rows


def _group_of(name: str) -> int:
    """Return the place of a column among the groups."""
    if name in _FIRST:
        return _FIRST.index(name)
    groups = enumerate(_GROUPS, start=len(_FIRST))
    return next(place for place, prefix in groups if name.startswith(prefix))


def _dtype(values: list[float | int | None]) -> str:
    """Return int64 for whole numbers without a gap, else float64, where a gap is NaN."""
    return "int64" if all(isinstance(value, int) for value in values) else "float64"


def _format(rows: list[Row]) -> str:
    stream = io.StringIO()
    columns = order_columns(rows)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = [row.get(name) for name in columns]
        writer.writerow(["" if value is None else repr(value) for value in values])
    return stream.getvalue()


def _parse(cell: str) -> float | int | None:
    if cell == "":
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)
