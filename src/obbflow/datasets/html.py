"""Catalog entries that hold one self-contained HTML page."""

import html
import re

from kedro_datasets._typing import HTMLPreview

from obbflow.datasets.atomic import atomic_path
from obbflow.datasets.local import LocalDataset

_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_HEAD_BYTES = 65_536  # where the title is looked for: a preview must not read a whole report


class HtmlDataset(LocalDataset[str, str]):
    """Saves and loads an HTML page as text, UTF-8.

    Example of an entry::

        report:
          type: obbflow.datasets.HtmlDataset
          filepath: data/08_reporting/report.html
          versioned: true
    """

    def load(self) -> str:
        """Return the page."""
        return self.load_path.read_text(encoding="utf-8")

    def save(self, data: str) -> None:
        """Write the page; readers see the old or the new one, never half of it."""
        with atomic_path(self.save_path) as scratch:
            scratch.write_text(data, encoding="utf-8")

    def preview(self) -> HTMLPreview:
        """Return title, size and place of the newest page, for Kedro-Viz."""
        if not self._exists():
            return HTMLPreview("<p>Not written so far: run the pipeline first.</p>")
        path = self.load_path
        with path.open(encoding="utf-8") as stream:
            title = _TITLE.search(stream.read(_HEAD_BYTES))
        heading = title.group(1).strip() if title else html.escape(path.name)
        size_kb = path.stat().st_size / 1000
        return HTMLPreview(
            f"<h3>{heading}</h3><p>{size_kb:,.0f} kB, one file without links to others; open it "
            f"in a browser:<br><code>{html.escape(str(path))}</code></p>"
        )
