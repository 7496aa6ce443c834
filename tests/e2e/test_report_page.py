"""The report in a real browser."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; .ci/run installs it with apt-get"
)


def browse(page, *options, profile):
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_page_opens_without_an_error_and_shows_pictures(smoke_run, tmp_path):
    page = smoke_run.path("report")

    shown = browse(page, "--dump-dom", profile=tmp_path)

    assert "</html>" in shown.stdout
    assert shown.stdout.count("<img") + shown.stdout.count("<svg") >= 4
    assert "CONSOLE" not in shown.stderr


def test_the_page_is_not_blank(smoke_run, tmp_path):
    picture = tmp_path / "report.png"

    browse(
        smoke_run.path("report"),
        f"--screenshot={picture}",
        "--window-size=1200,1600",
        profile=tmp_path / "profile",
    )

    pixels = np.asarray(Image.open(picture).convert("L"))
    assert pixels.shape == (1600, 1200)
    assert pixels.std() > 10
