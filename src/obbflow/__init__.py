"""obbflow: from raw aerial images and labels to a trained, scored oriented detector."""

__version__ = "0.1.0"
