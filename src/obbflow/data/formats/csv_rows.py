"""CSV files row by row, each with the line it starts on."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from obbflow.data.formats.polygons import Fault
from obbflow.errors import DataError


def read_header(path: Path) -> list[str]:
    """Return the column names of a CSV file, none of an empty one."""
    _, header = next(_read_records(path), (1, []))
    return [name.strip() for name in header]


def read_rows(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    remedy: str,
    on_bad: Callable[[int, Fault], None],
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the line where a row starts, from 1, and its values.

    Args:
        path: A CSV file with commas and a header; UTF-8.
        required: Columns that must be there.
        optional: Columns whose values are "" where they are missing.
        remedy: What to do when a column is missing: "set dataset.split_file to another file".
        on_bad: Called with the line and the fault of a row of another length than the header.

    Yields:
        Values stripped of blanks, in the order of ``required`` and ``optional``; no blank rows.

    Raises:
        DataError: If columns are missing, or the file cannot be read as CSV.
    """
    records = _read_records(path)
    _, header = next(records, (1, []))
    header = [name.strip() for name in header]
    missing = [name for name in required if name not in header]
    if missing:
        raise DataError(
            f"{path}: column {', '.join(missing)} is missing; the columns found are "
            f"{', '.join(header) or 'none'}. Add it, or {remedy}"
        )
    places = [header.index(name) if name in header else -1 for name in (*required, *optional)]
    length = len(header)
    for line, row in records:
        if not any(map(str.strip, row)):
            continue  # spreadsheets write commas for a blank line
        if len(row) == length or (len(row) > length and not any(row[length:])):
            yield line, [row[place].strip() if place >= 0 else "" for place in places]
        else:
            message = f"{len(row)} fields, but the header has {length}"
            on_bad(line, Fault("field_count", message))


def _read_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each record starts, and its fields; blank lines are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            line = 1
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}:{line}: no CSV from here on ({error}); correct it") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); make it readable or remove it"
        ) from error
