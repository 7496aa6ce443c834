"""Strict mode: any error in the data stops, instead of being left out and reported."""

import pandas as pd

from obbflow.errors import DataError

_SHOWN = 10


def require_no_errors(issues: pd.DataFrame, where: str) -> None:
    """Raise if there is an issue of severity "error".

    Args:
        issues: Table ``data_issues``.
        where: The data set's folder, for the message.

    Raises:
        DataError: Naming the first errors, one a line.
    """
    errors = issues[issues["severity"] == "error"]
    if errors.empty:
        return
    lines = [
        f"{row['file']}{'' if pd.isna(row['line']) else ':' + str(row['line'])}: {row['message']}"
        for row in errors.head(_SHOWN).to_dict("records")
    ]
    more = [f"and {len(errors) - _SHOWN:,} more"] if len(errors) > _SHOWN else []
    raise DataError(
        "\n  ".join(
            [f"{where}: errors in the data: {len(errors):,} (dataset.strict=true)", *lines, *more]
        )
        + "\nCorrect or remove these, or set dataset.strict=false to go on without them."
    )
