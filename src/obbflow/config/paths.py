"""Section ``paths``: where the project writes."""

from pathlib import Path

from pydantic import Field

from obbflow.config.section import Section


class PathsSection(Section):
    """One root for everything the project writes; the catalog uses the same one."""

    data_dir: Path = Field(
        Path("data"), description="root of all outputs; relative to the project's folder"
    )

    @property
    def demo_scenes(self) -> Path:
        """The scenes that ``dataset.format: synthetic`` draws."""
        return self.data_dir / "01_raw" / "demo"

    @property
    def tile_index(self) -> Path:
        """The catalog entry ``tile_index``, which names the tiles that are in use."""
        return self.data_dir / "03_primary" / "tile_index.parquet"

    @property
    def tiles(self) -> Path:
        """The tile store: image files and the settings they were cut with."""
        return self.data_dir / "03_primary" / "tiles"

    @property
    def runs(self) -> Path:
        """One folder a training run: checkpoints, metrics, TensorBoard events."""
        return self.data_dir / "06_models" / "runs"
